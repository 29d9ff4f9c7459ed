/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/cli.h"
#include "cmd/common/units.h"
#include "cmd/stream/stream_accounts.h"

void stream_accounts_warn(const struct pl_accounts *accounts)
{
	uint64_t full = accounts->dropped + accounts->rejected;

	if (full)
		cli_warn(
			"the queue was full for %llu frame%s\n"
			"  hint: raise --queue, or use --overflow block, which `peerlane publish --allow-block` allows",
			(unsigned long long)full, cli_plural(full));
}
