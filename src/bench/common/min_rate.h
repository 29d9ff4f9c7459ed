/* SPDX-License-Identifier: BSD-2-Clause */
/* Least rate of a measurement (--min-rate). */
#ifndef PL_BENCH_COMMON_MIN_RATE_H
#define PL_BENCH_COMMON_MIN_RATE_H

#include "cmd/common/cli.h"

/* Parses the bytes per second of --min-rate; exits with a usage error if the text is wrong. */
uint64_t bench_parse_min_rate(const char *text, struct argp_state *state);
/*
 * Fills *error for results below --min-rate and returns its code.  `object` names the lowest result, whose rate is
 * `lowest`; `below` of `count` results are too low.
 */
int bench_fail_min_rate(struct pl_error *error, const char *object, double lowest, uint64_t min_rate, unsigned below,
			unsigned count);

#endif
