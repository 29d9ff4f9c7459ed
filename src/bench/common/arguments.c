/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/common/arguments.h"

#include <string.h>

#include "cmd/common/units.h"

uint32_t bench_parse_number(const char *name, const char *text, unsigned min, unsigned max, struct argp_state *state)
{
	unsigned value = min;

	if (cli_parse_number(text, min, max, &value))
		argp_error(state, "--%s takes a number from %u to %u, not '%s'", name, min, max, text);
	return value;
}

uint64_t bench_parse_interval(const char *name, const char *text, struct argp_state *state)
{
	uint64_t time = 0;

	if (cli_parse_seconds(text, &time) || !time)
		argp_error(state, "--%s takes seconds, such as 5 or 0.5, not '%s'", name, text);
	return time;
}

bool bench_has_option(int argc, char **argv, const char *option)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], option))
			return true;
	return false;
}
