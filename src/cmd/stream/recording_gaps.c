/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/recording_gaps.h"

#include "cmd/common/output.h"
#include "cmd/common/units.h"

void recording_gaps_begin(struct recording_gaps *gaps, uint64_t first)
{
	*gaps = (struct recording_gaps){ .next = first };
}

void recording_gaps_add(struct recording_gaps *gaps, uint64_t sequence)
{
	if (sequence > gaps->next) {
		if (gaps->count < RECORDING_GAPS_MAX)
			gaps->list[gaps->count] = (struct recording_gap){ gaps->next, sequence - 1 };
		gaps->count++;
		gaps->sequences += sequence - gaps->next;
	}
	gaps->next = sequence + 1;
}

static uint64_t gaps_listed(const struct recording_gaps *gaps)
{
	return CLI_MIN(gaps->count, (uint64_t)RECORDING_GAPS_MAX);
}

void recording_gaps_print(FILE *to, const struct recording_gaps *gaps)
{
	for (uint64_t i = 0; i < gaps_listed(gaps); i++) {
		const struct recording_gap *gap = &gaps->list[i];

		fprintf(to, "%s%llu", i ? ", " : "missing: ", (unsigned long long)gap->first);
		if (gap->last > gap->first)
			fprintf(to, " to %llu", (unsigned long long)gap->last);
	}
	if (gaps->count > RECORDING_GAPS_MAX)
		fprintf(to, ", and %llu more range%s", (unsigned long long)gaps->count - RECORDING_GAPS_MAX,
			cli_plural(gaps->count - RECORDING_GAPS_MAX));
	if (gaps->count)
		fputc('\n', to);
}

struct json_object *recording_gaps_json(const struct recording_gaps *gaps)
{
	struct json_object *object = json_object_new_object(), *ranges = json_object_new_array();

	for (uint64_t i = 0; i < gaps_listed(gaps); i++) {
		struct json_object *range = json_object_new_array();

		cli_json_append(range, json_object_new_uint64(gaps->list[i].first));
		cli_json_append(range, json_object_new_uint64(gaps->list[i].last));
		cli_json_append(ranges, range);
	}
	cli_json_add(object, "count", json_object_new_uint64(gaps->count));
	cli_json_add(object, "sequences", json_object_new_uint64(gaps->sequences));
	cli_json_add(object, "ranges", ranges);
	return object;
}
