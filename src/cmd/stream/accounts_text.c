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

void stream_accounts_add_lost(struct wrap_line *line, const struct pl_accounts *accounts)
{
	wrap_line_add(line, "lost %llu: dropped %llu, rejected %llu, lapped %llu, missed %llu",
		      (unsigned long long)stream_accounts_lost(accounts), (unsigned long long)accounts->dropped,
		      (unsigned long long)accounts->rejected, (unsigned long long)accounts->lapped,
		      (unsigned long long)accounts->missed);
}
