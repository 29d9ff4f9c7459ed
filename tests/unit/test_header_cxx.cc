/* SPDX-License-Identifier: BSD-2-Clause */
/* Compiled, not run: the public headers are C++ too, and their initialisers name every field. */
#include <peerlane/sys/memory.h>

#include <peerlane/error.h>
#include <peerlane/peerlane.h>

int main()
{
	pl_options options = PL_OPTIONS_INIT;
	pl_grant_options grant = PL_GRANT_OPTIONS_INIT;
	pl_peer_info info = PL_PEER_INFO_INIT;
	pl_context *context = nullptr;
	pl_error error = {};
	pl_memory_ops operations = {};

	static_assert(PL_ACCESS_ALL == (PL_ACCESS_READ | PL_ACCESS_WRITE | PL_ACCESS_ATOMIC), "an access right is not in ALL");
	if (pl_open(&context, &options, &error) < 0)
		return 1;
	pl_close(context);
	return options.size == grant.size && info.size && operations.name;
}
