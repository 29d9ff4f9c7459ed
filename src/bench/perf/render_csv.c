/* SPDX-License-Identifier: BSD-2-Clause */
/* Results for spreadsheets: a line of names, then one for each size, and for each of several servers.  No value has a comma in it. */
#include "bench/perf/results.h"
#include "cmd/common/output.h"

static void print_spent(const struct bench_row *row)
{
	double operations = row->operations_per_second * (double)row->elapsed / 1e9;

	if (row->spent.has_cycles && operations > 0)
		printf(",%.1f,%.4f", row->spent.cycles / operations,
		       row->spent.cycles / (operations * (double)row->plan.size));
	else
		printf(",,");
	if (row->spent.has_joules)
		printf(",%.3f", row->spent.joules);
	else
		printf(",");
}

/* Of one of several servers: the total's row, with what is its own in place of that of all. */
static void print_row(const struct bench_row *row, const struct bench_report *report, const struct bench_peer *peer)
{
	const struct bench_plan *plan = &row->plan;
	const struct bench_latency *latency = &row->latency;
	const uint64_t times[] = { latency->minimum, latency->p50,  latency->p90,   latency->p95,
				   latency->p99,     latency->p999, latency->p9999, latency->maximum };
	bool total = !peer;

	peer = peer ? peer : &report->peers[0];
	printf("%s,%s,%llu,%s,%s,%s,%s,%u,%u,%u,%u,%u,%d", bench_op_name(plan->op),
	       plan->latency ? "latency" : "bandwidth", (unsigned long long)plan->size,
	       total && row->sample.fabric ? row->sample.fabric : peer->info.fabric, cli_route_name(row->sample.route),
	       report->memory, peer->memory, row->streams, plan->latency ? 1 : plan->depth, plan->vector,
	       plan->post_list, plan->peers, plan->both_ways);
	printf(",%llu,%.6f,%.0f,%.0f", (unsigned long long)row->operations, (double)row->elapsed / 1e9,
	       row->bytes_per_second, row->operations_per_second);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(times); i++)
		printf(",%.3f", (double)times[i] / 1000);
	printf(",%.3f,%.3f", latency->mean / 1000, latency->deviation / 1000);
	if (total)
		printf(",%.1f", row->cpu);
	else
		printf(",");
	printf(",%.1f", row->server_cpu);
	print_spent(row);
	printf(",%s", !plan->validate || !total ? "" : row->verified ? "true" : "false");
	printf(",%s\n", total ? "" : peer->info.address);
}

static void print_share(const struct bench_row *row, const struct bench_report *report, uint32_t index)
{
	const struct bench_share *share = &row->shares[index];
	struct bench_row own = *row;

	own.operations = share->operations;
	own.elapsed = share->elapsed;
	own.bytes_per_second = share->bytes_per_second;
	own.operations_per_second = share->operations_per_second;
	own.latency = share->latency;
	own.server_cpu = share->server_cpu;
	own.spent.has_cycles = own.spent.has_joules = false;
	print_row(&own, report, &report->peers[index]);
}

void bench_render_csv(const struct bench_options *options, const struct bench_report *report)
{
	(void)options;
	puts("operation,mode,size,fabric,route,memory,peer_memory,streams,depth,vector,post_list,peers,both_ways,"
	     "operations,seconds,bytes_per_second,operations_per_second,"
	     "min_us,p50_us,p90_us,p95_us,p99_us,p999_us,p9999_us,max_us,mean_us,stddev_us,"
	     "cpu_percent,server_cpu_percent,cycles_per_operation,cycles_per_byte,joules,verified,server");
	for (uint32_t i = 0; i < report->count; i++) {
		print_row(&report->rows[i], report, NULL);
		for (uint32_t j = 0; report->rows[i].shares && j < report->peer_count; j++)
			print_share(&report->rows[i], report, j);
	}
}
