/* SPDX-License-Identifier: BSD-2-Clause */
/* What both ends measured in a run becomes a row of figures. */
#include <stdlib.h>

#include "bench/perf/results.h"

static double per_second(uint64_t count, uint64_t nanoseconds)
{
	return nanoseconds ? (double)count * 1e9 / (double)nanoseconds : 0;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100 * (double)part / (double)whole : 0;
}

void bench_latency_fill(struct bench_latency *latency, const struct stats *stats)
{
	*latency = (struct bench_latency){
		.minimum = stats->count ? stats->minimum : 0,
		.p50 = stats_percentile(stats, 50),
		.p90 = stats_percentile(stats, 90),
		.p95 = stats_percentile(stats, 95),
		.p99 = stats_percentile(stats, 99),
		.p999 = stats_percentile(stats, 99.9),
		.p9999 = stats_percentile(stats, 99.99),
		.maximum = stats->count ? stats->maximum : 0,
		.mean = stats_mean(stats),
		.deviation = stats_deviation(stats),
	};
}

/* The last interval is not a whole one. */
static int fill_samples(struct bench_end *end, struct bench_row *row)
{
	const struct bench_samples *samples = &end->samples;
	double bytes = (double)(end->plan.size * end->plan.vector);

	row->sample_count = samples->used ? samples->used - 1 : 0;
	if (!samples->interval)
		return 0;
	row->samples = calloc(row->sample_count + 1, sizeof(*row->samples));
	if (!row->samples)
		return bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u samples", row->sample_count);
	for (uint32_t i = 0; i < row->sample_count; i++)
		row->samples[i] = (double)samples->counts[i] * bytes * 1e9 / (double)samples->interval;
	return 0;
}

/* What it costs all servers together, as if they were one. */
static double servers_percent(const struct bench_end *end)
{
	double sum = 0;

	for (uint32_t i = 0; i < end->far_count; i++)
		sum += percent(end->fars[i].result.cpu, end->fars[i].result.wall);
	return sum;
}

/* What one of them did at the same time. */
static double rate_in(const struct bench_end *end, const struct bench_far *far)
{
	return end->plan.both_ways ? per_second(far->result.operations, far->result.elapsed) : 0;
}

static int fill_shares(struct bench_end *end, struct bench_row *row)
{
	if (end->far_count < 2)
		return 0;
	row->shares = calloc(end->far_count, sizeof(*row->shares));
	if (!row->shares)
		return bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u servers", end->far_count);
	for (uint32_t i = 0; i < end->far_count; i++) {
		const struct bench_far *far = &end->fars[i];
		uint64_t operations = far->completed * end->plan.vector,
			 elapsed = far->completed ? far->last - far->first : 0;
		double out = per_second(operations, elapsed), in = rate_in(end, far);

		row->shares[i] = (struct bench_share){
			.operations = operations,
			.elapsed = elapsed,
			.operations_per_second = out + in,
			.bytes_per_second = (out + in) * (double)end->plan.size,
			.bytes_out = out * (double)end->plan.size,
			.bytes_in = in * (double)end->plan.size,
			.server_cpu = percent(far->result.cpu, far->result.wall),
		};
		bench_latency_fill(&row->shares[i].latency, far->stats);
	}
	return 0;
}

void bench_row_free(struct bench_row *row)
{
	free(row->samples);
	free(row->shares);
	row->samples = NULL;
	row->shares = NULL;
}

int bench_row_fill(struct bench_end *end, const struct bench_result *ours, struct bench_row *row)
{
	double out = per_second(ours->operations, ours->elapsed), in = 0;
	int rc;

	for (uint32_t i = 0; i < end->far_count; i++)
		in += rate_in(end, &end->fars[i]);
	bench_row_free(row);
	*row = (struct bench_row){
		.plan = end->plan,
		.sample = end->sample,
		.streams = end->sample.streams,
		.operations = ours->operations,
		.elapsed = ours->elapsed,
		.operations_per_second = out + in,
		.bytes_per_second = (out + in) * (double)end->plan.size,
		.bytes_out = out * (double)end->plan.size,
		.bytes_in = in * (double)end->plan.size,
		.cpu = percent(ours->cpu, ours->wall),
		.server_cpu = servers_percent(end),
		.verified = ours->verified,
		.spent = end->spent,
		.cached = ours->cached,
		.operation = ours->operation,
	};
	bench_latency_fill(&row->latency, &end->stats);
	rc = fill_samples(end, row);
	return rc < 0 ? rc : fill_shares(end, row);
}
