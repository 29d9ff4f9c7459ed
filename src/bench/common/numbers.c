/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/common/numbers.h"

#include <math.h>
#include <stdio.h>

#include <json-c/json.h>

const char *bench_size_text(char *buffer, size_t size, uint64_t bytes)
{
	static const char units[] = "KMG";
	char unit[2] = "";

	for (size_t i = 0; i < 3 && bytes && bytes % 1024 == 0; i++) {
		bytes /= 1024;
		unit[0] = units[i];
	}
	snprintf(buffer, size, "%llu%s", (unsigned long long)bytes, unit);
	return buffer;
}

struct json_object *bench_json_number(double value, int decimals)
{
	char text[48];

	if (isnan(value))
		return NULL;
	snprintf(text, sizeof(text), "%.*f", decimals, value);
	return json_object_new_double_s(value, text);
}
