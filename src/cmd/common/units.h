/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers as people write and read them. */
#ifndef PL_CLI_UNITS_H
#define PL_CLI_UNITS_H

#include <stddef.h>
#include <stdint.h>

#define CLI_UNIT_MAX 32

/* "512 B", "1.23 GB": decimal, three digits.  Return buffer. */
const char *cli_format_bytes(char buffer[CLI_UNIT_MAX], uint64_t bytes);
/* "3.42 GB/s"; "-" where no time passed. */
const char *cli_format_rate(char buffer[CLI_UNIT_MAX], uint64_t bytes, uint64_t nanoseconds);
/* "850 ns", "12.3 us", "4.56 s". */
const char *cli_format_time(char buffer[CLI_UNIT_MAX], uint64_t nanoseconds);
/* "0:07", "2:03:00". */
const char *cli_format_clock(char buffer[CLI_UNIT_MAX], uint64_t seconds);

/* "4096", "64K" and "64KiB" (1024), "64KB" (1000), up to T.  0, or -EINVAL. */
int cli_parse_size(const char *text, uint64_t *bytes);
/* "30", "0.5": seconds.  0, or -EINVAL. */
int cli_parse_seconds(const char *text, uint64_t *nanoseconds);
/* A decimal number within bounds.  0, or -EINVAL. */
int cli_parse_number(const char *text, unsigned min, unsigned max, unsigned *value);

#endif
