/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the decimals for three significant digits: 1.23, 12.3, 123. */
static int count_decimals(double value)
{
	return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

static const char *format_scaled_bytes(char *buffer, double value, const char *suffix)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
	size_t unit = 0;

	while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1000;
		unit++;
	}
	snprintf(buffer, CLI_UNIT_MAX, "%.*f %s%s", unit ? count_decimals(value) : 0, value, units[unit], suffix);
	return buffer;
}

const char *cli_format_bytes(char buffer[CLI_UNIT_MAX], uint64_t bytes)
{
	return format_scaled_bytes(buffer, (double)bytes, "");
}

const char *cli_format_rate(char buffer[CLI_UNIT_MAX], uint64_t bytes, uint64_t nanoseconds)
{
	if (!nanoseconds || !bytes)
		return strcpy(buffer, "-");
	return format_scaled_bytes(buffer, (double)bytes * 1e9 / (double)nanoseconds, "/s");
}

const char *cli_format_time(char buffer[CLI_UNIT_MAX], uint64_t nanoseconds)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	double value = (double)nanoseconds;
	size_t unit = 0;

	while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1000;
		unit++;
	}
	snprintf(buffer, CLI_UNIT_MAX, "%.*f %s", unit ? count_decimals(value) : 0, value, units[unit]);
	return buffer;
}

const char *cli_plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

const char *cli_format_clock(char buffer[CLI_UNIT_MAX], uint64_t seconds)
{
	unsigned long long hours = seconds / 3600, minutes = seconds / 60 % 60, remaining = seconds % 60;

	if (hours)
		snprintf(buffer, CLI_UNIT_MAX, "%llu:%02llu:%02llu", hours, minutes, remaining);
	else
		snprintf(buffer, CLI_UNIT_MAX, "%llu:%02llu", minutes, remaining);
	return buffer;
}

/* Returns the factor of a suffix such as "K", "KiB" or "KB"; 0 if the suffix is unknown. */
static uint64_t size_suffix_factor(const char *suffix)
{
	static const char letters[] = "KMGT";
	uint64_t binary = 1, decimal = 1;

	if (!*suffix || !strcmp(suffix, "B"))
		return 1;
	for (size_t i = 0; letters[i]; i++) {
		binary *= 1024;
		decimal *= 1000;
		if (toupper((unsigned char)suffix[0]) != letters[i])
			continue;
		if (!suffix[1] || !strcmp(suffix + 1, "iB"))
			return binary;
		return strcmp(suffix + 1, "B") ? 0 : decimal;
	}
	return 0;
}

int cli_parse_size(const char *text, uint64_t *bytes)
{
	unsigned long long value;
	uint64_t factor;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	factor = size_suffix_factor(end);
	if (errno || !factor || value > UINT64_MAX / factor)
		return -EINVAL;
	*bytes = value * factor;
	return 0;
}

int cli_parse_seconds(const char *text, uint64_t *nanoseconds)
{
	double value;
	char *end;

	if (!isdigit((unsigned char)text[0]) && text[0] != '.')
		return -EINVAL;
	value = strtod(text, &end);
	if (*end || end == text || !isfinite(value) || value < 0 || value > 1e9)
		return -EINVAL;
	*nanoseconds = (uint64_t)(value * 1e9);
	return 0;
}

const char *cli_parse_memory_kind(const char *name, const char *text, const struct argp_state *state)
{
	unsigned number;

	if (strcmp(text, "host") && strcmp(text, "cuda") &&
	    (strncmp(text, "cuda:", 5) || cli_parse_number(text + 5, 0, UINT32_MAX, &number) < 0))
		argp_error(state, "--%s takes host, cuda or cuda:N, not '%s'", name, text);
	return text;
}

int cli_parse_number(const char *text, unsigned min, unsigned max, unsigned *value)
{
	unsigned long number;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || *end || number < min || number > max)
		return -EINVAL;
	*value = (unsigned)number;
	return 0;
}
