/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Output in the columns of perftest 4.5, for scripts that parse them: the same lines begin with a blank and a number,
 * and fields have the same order.  The head above the table names the fabric, the route and the servers.
 */
#include <string.h>

#include "bench/perf/results.h"
#include "cmd/common/output.h"

#define LINE "---------------------------------------------------------------------------------------"
#define MIB (1024.0 * 1024.0)

static void print_perftest_head(const struct bench_options *options, const struct bench_report *report)
{
	const struct bench_plan *plan = &report->rows[0].plan;

	puts(LINE);
	printf("                    %s %s%s Test\n", plan->operation->perftest_title,
	       plan->both_ways ? "Bidirectional " : "", plan->latency ? "Latency" : "BW");
	printf(" Tool            : peerlane %s\n", pl_version());
	printf(" Fabric          : %s\t\tRoute          : %s\n", report->servers[0].info.fabric,
	       cli_route_name(report->rows[0].sample.route));
	printf(" Number of qps   : %u\n", report->rows[0].lanes);
	printf(" TX depth        : %u\n", plan->latency ? 1 : plan->depth);
	printf(" Memory          : %s\t\tPeer's memory  : %s\n", report->memory, report->servers[0].memory);
	printf(" Server          : %s%s\n", report->servers[0].info.address,
	       options->address_count ? "" : ", started here");
	for (uint32_t i = 1; i < report->server_count; i++)
		printf(" Server          : %s\n", report->servers[i].info.address);
	puts(LINE);
}

/* Returns the highest rate of an interval or run; the average, if the run is shorter than an interval. */
static double peak_rate(const struct bench_row *row)
{
	double peak = row->bytes_per_second;

	for (uint32_t i = 0; i < row->sample_count; i++)
		peak = CLI_MAX(peak, row->samples[i]);
	for (uint32_t i = 0; i < row->run_count; i++)
		peak = CLI_MAX(peak, row->runs[i]);
	return peak;
}

static void print_perftest_bandwidth(const struct bench_options *options, const struct bench_report *report)
{
	double unit = options->gbits ? 1.25e8 : MIB;

	printf(" #bytes     #iterations    BW peak[%s]    BW average[%s]   MsgRate[Mpps]\n",
	       options->gbits ? "Gb/sec" : "MB/sec", options->gbits ? "Gb/sec" : "MB/sec");
	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];

		printf(" %-7llu    %-10llu       %-7.2f            %-7.2f  \t\t   %-7.6f\n",
		       (unsigned long long)row->plan.size, (unsigned long long)row->operations, peak_rate(row) / unit,
		       row->bytes_per_second / unit, row->operations_per_second / 1e6);
	}
}

static double to_microseconds(uint64_t nanoseconds)
{
	return (double)nanoseconds / 1000;
}

/* t_max is the largest time, where perftest prints the second largest; t_stdev is not rounded to whole numbers. */
static void print_perftest_latency(const struct bench_report *report)
{
	puts(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
	     "99% percentile[usec]   99.9% percentile[usec] ");
	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];
		const struct bench_latency *latency = &row->latency;
		uint64_t rounds = bench_plan_pingpong(&row->plan) ? row->operations / 2 : row->operations;

		printf(" %-7llu %llu          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f "
		       "\t\t"
		       "%-7.2f\n",
		       (unsigned long long)row->plan.size, (unsigned long long)rounds,
		       to_microseconds(latency->minimum), to_microseconds(latency->maximum),
		       to_microseconds(latency->p50), latency->mean / 1000, latency->deviation / 1000,
		       to_microseconds(latency->p99), to_microseconds(latency->p999));
	}
}

void bench_render_perftest(const struct bench_options *options, const struct bench_report *report)
{
	if (!report->count)
		return;
	print_perftest_head(options, report);
	if (options->plan.latency)
		print_perftest_latency(report);
	else
		print_perftest_bandwidth(options, report);
	puts(LINE);
}
