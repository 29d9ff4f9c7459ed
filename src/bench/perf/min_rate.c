/* SPDX-License-Identifier: BSD-2-Clause */
/* Judges the results by --min-rate. */
#include "bench/common/min_rate.h"

#include "bench/common/numbers.h"
#include "bench/perf/results.h"

bool bench_row_meets_rate(const struct bench_options *options, const struct bench_row *row)
{
	return row->bytes_per_second >= (double)options->min_rate;
}

void bench_judge_rates(const struct bench_options *options, struct bench_report *report)
{
	const struct bench_row *lowest = NULL;
	unsigned below = 0;
	char size[32], object[80];

	for (uint32_t i = 0; !report->failed && i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];

		if (bench_row_meets_rate(options, row))
			continue;
		below++;
		if (!lowest || row->bytes_per_second < lowest->bytes_per_second)
			lowest = row;
	}
	if (!lowest)
		return;
	snprintf(object, sizeof(object), "%s of size %s", lowest->plan.operation->name,
		 bench_size_text(size, sizeof(size), lowest->plan.size));
	report->failed = true;
	bench_fail_min_rate(&report->error, object, lowest->bytes_per_second, options->min_rate, below, report->count);
}
