/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CSV output: a line of names, then one line for each size, and one for each of several servers.  Values contain no
 * comma.
 */
#include "bench/perf/results.h"
#include "cmd/common/output.h"

static void print_csv_cost(const struct bench_row *row)
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

/* Prints one line.  For one of several servers, `row` has the server's values in place of the total ones. */
static void print_csv_row(const struct bench_row *row, const struct bench_report *report,
			  const struct bench_server *server)
{
	const struct bench_plan *plan = &row->plan;
	const struct bench_latency *latency = &row->latency;
	const uint64_t times[] = { latency->minimum, latency->p50,  latency->p90,   latency->p95,
				   latency->p99,     latency->p999, latency->p9999, latency->maximum };
	bool total = !server;

	server = server ? server : &report->servers[0];
	printf("%s,%s,%llu,%s,%s,%s,%s,%u,%u,%u,%u,%u,%d", plan->operation->name,
	       plan->latency ? "latency" : "bandwidth", (unsigned long long)plan->size,
	       total && row->sample.fabric ? row->sample.fabric : server->info.fabric,
	       cli_route_name(row->sample.route), report->memory, server->memory, row->lanes,
	       plan->latency ? 1 : plan->depth, plan->vector, plan->post_list, plan->connections, plan->both_ways);
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
	print_csv_cost(row);
	printf(",%s", !plan->validate || !total ? "" : row->verified ? "true" : "false");
	printf(",%s\n", total ? "" : server->info.address);
}

static void print_csv_share(const struct bench_row *row, const struct bench_report *report, uint32_t index)
{
	const struct bench_share *share = &row->shares[index];
	struct bench_row line = *row;

	line.operations = share->operations;
	line.elapsed = share->elapsed;
	line.bytes_per_second = share->bytes_per_second;
	line.operations_per_second = share->operations_per_second;
	line.latency = share->latency;
	line.server_cpu = share->server_cpu;
	line.spent.has_cycles = line.spent.has_joules = false;
	print_csv_row(&line, report, &report->servers[index]);
}

void bench_render_csv(const struct bench_options *options, const struct bench_report *report)
{
	(void)options;
	puts("operation,mode,size,fabric,route,memory,peer_memory,lanes,depth,vector,post_list,peers,both_ways,"
	     "operations,seconds,bytes_per_second,operations_per_second,"
	     "min_us,p50_us,p90_us,p95_us,p99_us,p999_us,p9999_us,max_us,mean_us,stddev_us,"
	     "cpu_percent,server_cpu_percent,cycles_per_operation,cycles_per_byte,joules,verified,server");
	for (uint32_t i = 0; i < report->count; i++) {
		print_csv_row(&report->rows[i], report, NULL);
		for (uint32_t j = 0; report->rows[i].shares && j < report->server_count; j++)
			print_csv_share(&report->rows[i], report, j);
	}
}
