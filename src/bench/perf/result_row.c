/* SPDX-License-Identifier: BSD-2-Clause */
/* Computes a row of results from the measurements of both endpoints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/perf/results.h"

/* An end that polls uses a whole processor unless other programs take it. */
#define STARVED_PERCENT 50
/* Nanoseconds of a run in which a scheduler's turns even out. */
#define SHARE_TIME (100 * CLI_NS_PER_MS)

static double count_per_second(uint64_t count, uint64_t nanoseconds)
{
	return nanoseconds ? (double)count * 1e9 / (double)nanoseconds : 0;
}

static double share_percent(uint64_t part, uint64_t whole)
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

/* Converts counts to rates.  The last interval is incomplete, so it is left out. */
static int fill_row_samples(struct bench_endpoint *ep, struct bench_row *row)
{
	const struct bench_samples *samples = &ep->samples;
	double bytes = (double)(ep->plan.size * ep->plan.vector);

	row->sample_count = samples->used ? samples->used - 1 : 0;
	if (!samples->interval)
		return 0;
	row->samples = calloc(row->sample_count + 1, sizeof(*row->samples));
	if (!row->samples)
		return bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u samples", row->sample_count);
	for (uint32_t i = 0; i < row->sample_count; i++)
		row->samples[i] = (double)samples->counts[i] * bytes * 1e9 / (double)samples->interval;
	return 0;
}

/* Returns the processor time of all servers together. */
static double sum_server_cpu(const struct bench_endpoint *ep)
{
	double sum = 0;

	for (uint32_t i = 0; i < ep->peer_count; i++)
		sum += share_percent(ep->peers[i].result.cpu, ep->peers[i].result.wall);
	return sum;
}

/* Returns the rate of a server's own operations. */
static double incoming_rate(const struct bench_endpoint *ep, const struct bench_peer *peer)
{
	return ep->plan.both_ways ? count_per_second(peer->result.operations, peer->result.elapsed) : 0;
}

static int fill_row_shares(struct bench_endpoint *ep, struct bench_row *row)
{
	if (ep->peer_count < 2)
		return 0;
	row->shares = calloc(ep->peer_count, sizeof(*row->shares));
	if (!row->shares)
		return bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u servers", ep->peer_count);
	for (uint32_t i = 0; i < ep->peer_count; i++) {
		const struct bench_peer *peer = &ep->peers[i];
		uint64_t operations = peer->completed * ep->plan.vector,
			 elapsed = peer->completed ? peer->last - peer->first : 0;
		double out = count_per_second(operations, elapsed), in = incoming_rate(ep, peer);

		row->shares[i] = (struct bench_share){
			.operations = operations,
			.elapsed = elapsed,
			.operations_per_second = out + in,
			.bytes_per_second = (out + in) * (double)ep->plan.size,
			.bytes_out = out * (double)ep->plan.size,
			.bytes_in = in * (double)ep->plan.size,
			.server_cpu = share_percent(peer->result.cpu, peer->result.wall),
		};
		bench_latency_fill(&row->shares[i].latency, peer->stats);
	}
	return 0;
}

double bench_row_cpu_seconds(const struct bench_row *row)
{
	if (row->bytes_per_second <= 0)
		return NAN;
	return (row->cpu + row->server_cpu) / 100 / (row->bytes_per_second / 1e9);
}

double bench_row_polling_share(const struct bench_options *options, const struct bench_row *row)
{
	bool server_polls = !options->address_count && row->sample.fabric && !strcmp(row->sample.fabric, "tcp");

	if (!options->manual || bench_operation_sequential(row->plan.operation) || row->elapsed < SHARE_TIME)
		return NAN;
	return server_polls ? CLI_MIN(row->cpu, row->server_cpu) : row->cpu;
}

bool bench_row_starved(const struct bench_options *options, const struct bench_row *row)
{
	return bench_row_polling_share(options, row) < STARVED_PERCENT;
}

void bench_row_free(struct bench_row *row)
{
	free(row->samples);
	free(row->shares);
	row->samples = NULL;
	row->shares = NULL;
}

int bench_row_fill(struct bench_endpoint *ep, const struct bench_result *ours, struct bench_row *row)
{
	double out = count_per_second(ours->operations, ours->elapsed), in = 0;
	int rc;

	for (uint32_t i = 0; i < ep->peer_count; i++)
		in += incoming_rate(ep, &ep->peers[i]);
	bench_row_free(row);
	*row = (struct bench_row){
		.plan = ep->plan,
		.sample = ep->sample,
		.lanes = ep->sample.lanes,
		.operations = ours->operations,
		.elapsed = ours->elapsed,
		.operations_per_second = out + in,
		.bytes_per_second = (out + in) * (double)ep->plan.size,
		.bytes_out = out * (double)ep->plan.size,
		.bytes_in = in * (double)ep->plan.size,
		.cpu = share_percent(ours->cpu, ours->wall),
		.server_cpu = sum_server_cpu(ep),
		.verified = ours->verified,
		.spent = ep->spent,
		.cached = ours->cached,
		.operation = ours->operation,
	};
	bench_latency_fill(&row->latency, &ep->stats);
	rc = fill_row_samples(ep, row);
	return rc < 0 ? rc : fill_row_shares(ep, row);
}
