/* SPDX-License-Identifier: BSD-2-Clause */
/* Sizes, rates and times as text for people. */
#ifndef PL_CMD_COMMON_UNITS_H
#define PL_CMD_COMMON_UNITS_H

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

#define CLI_UNIT_MAX 32

/* Formats bytes in decimal units with three digits, such as "512 B" and "1.23 GB".  All cli_format_*() return buffer. */
const char *cli_format_bytes(char buffer[CLI_UNIT_MAX], uint64_t bytes);
/* Formats a rate, such as "3.42 GB/s"; "-" if bytes or time is 0. */
const char *cli_format_rate(char buffer[CLI_UNIT_MAX], uint64_t bytes, uint64_t nanoseconds);
/* Formats a duration, such as "850 ns", "12.3 us" and "4.56 s". */
const char *cli_format_time(char buffer[CLI_UNIT_MAX], uint64_t nanoseconds);
/* Returns the end of a noun behind a count: "" for 1, else "s". */
const char *cli_plural(uint64_t count);
/* Formats seconds as on a clock, such as "0:07" and "2:03:00". */
const char *cli_format_clock(char buffer[CLI_UNIT_MAX], uint64_t seconds);

/* Parses "4096", "64K" and "64KiB" (factor 1024) or "64KB" (factor 1000), up to T.  Returns 0 or -EINVAL. */
int cli_parse_size(const char *text, uint64_t *bytes);
/* Parses seconds, such as "30" or "0.5".  Returns 0 or -EINVAL. */
int cli_parse_seconds(const char *text, uint64_t *nanoseconds);
/* Returns the kind of memory that an option --NAME gives: host, cuda or cuda:N.  Ends the process for another one. */
const char *cli_parse_memory_kind(const char *name, const char *text, const struct argp_state *state);
/* Parses a decimal number from min to max.  Returns 0 or -EINVAL. */
int cli_parse_number(const char *text, unsigned min, unsigned max, unsigned *value);

#endif
