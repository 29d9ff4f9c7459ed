/* SPDX-License-Identifier: BSD-2-Clause */
/* Values of command-line options.  The functions exit with a usage error if a value is wrong. */
#ifndef PL_BENCH_COMMON_ARGUMENTS_H
#define PL_BENCH_COMMON_ARGUMENTS_H

#include "cmd/common/cli.h"

uint32_t bench_parse_number(const char *name, const char *text, unsigned min, unsigned max, struct argp_state *state);
/* Parses seconds, more than 0; returns nanoseconds. */
uint64_t bench_parse_interval(const char *name, const char *text, struct argp_state *state);

/* True if a long option without a value is on a command line. */
bool bench_has_option(int argc, char **argv, const char *option);

#endif
