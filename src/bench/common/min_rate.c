/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/common/min_rate.h"

#include "cmd/common/units.h"

#define MIN_RATE_MAX (1ull << 50)

uint64_t bench_parse_min_rate(const char *text, struct argp_state *state)
{
	uint64_t rate = 0;

	if (cli_parse_size(text, &rate) || !rate || rate > MIN_RATE_MAX)
		argp_error(state, "--min-rate takes bytes per second, such as 20GB, not '%s'", text);
	return rate;
}

int bench_fail_min_rate(struct pl_error *error, const char *object, double lowest, uint64_t min_rate, unsigned below,
			unsigned count)
{
	char had[CLI_UNIT_MAX], least[CLI_UNIT_MAX];

	return cli_fail(error, -ERANGE, "RATE-TOO-LOW", object,
			"`peerlane check` names settings that cost rate; with --json, card_counters has losses and "
			"congestion of RDMA cards",
			"%.0f bytes a second (%s/s), less than the %llu (%s/s) of --min-rate; %u of %u results are "
			"below it",
			lowest, cli_format_bytes(had, (uint64_t)lowest), (unsigned long long)min_rate,
			cli_format_bytes(least, min_rate), below, count);
}
