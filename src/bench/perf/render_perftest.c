/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Results in the columns of perftest 4.5, whose output people's scripts take apart: the same lines begin with a blank
 * and a number, the same values are in the same fields.  What stands before the table says what was really measured.
 */
#include <string.h>

#include "bench/perf/results.h"
#include "cmd/common/output.h"

#define LINE "---------------------------------------------------------------------------------------"
#define MIB (1024.0 * 1024.0)

static const char *title_of(enum bench_op op)
{
	switch (op) {
	case BENCH_WRITE:
		return "RDMA_Write";
	case BENCH_READ:
		return "RDMA_Read";
	case BENCH_SEND:
		return "Send";
	default:
		return "Atomic";
	}
}

static void print_head(const struct bench_options *options, const struct bench_report *report)
{
	const struct bench_plan *plan = &report->rows[0].plan;

	puts(LINE);
	printf("                    %s %s%s Test\n", title_of(plan->op), plan->both_ways ? "Bidirectional " : "",
	       plan->latency ? "Latency" : "BW");
	printf(" Tool            : peerlane %s\n", pl_version());
	printf(" Fabric          : %s\t\tRoute          : %s\n", report->peers[0].info.fabric,
	       cli_route_name(report->rows[0].sample.route));
	printf(" Number of qps   : %u\n", report->rows[0].streams);
	printf(" TX depth        : %u\n", plan->latency ? 1 : plan->depth);
	printf(" Memory          : %s\t\tPeer's memory  : %s\n", report->memory, report->peers[0].memory);
	printf(" Server          : %s%s\n", report->peers[0].info.address,
	       options->address_count ? "" : ", started here");
	for (uint32_t i = 1; i < report->peer_count; i++)
		printf(" Server          : %s\n", report->peers[i].info.address);
	puts(LINE);
}

/* A run too short for an interval of its own has no other peak than its average. */
static double peak_of(const struct bench_row *row)
{
	double peak = row->bytes_per_second;

	for (uint32_t i = 0; i < row->sample_count; i++)
		peak = CLI_MAX(peak, row->samples[i]);
	for (uint32_t i = 0; i < row->run_count; i++)
		peak = CLI_MAX(peak, row->runs[i]);
	return peak;
}

static void print_bandwidth(const struct bench_options *options, const struct bench_report *report)
{
	double unit = options->gbits ? 1.25e8 : MIB;

	printf(" #bytes     #iterations    BW peak[%s]    BW average[%s]   MsgRate[Mpps]\n",
	       options->gbits ? "Gb/sec" : "MB/sec", options->gbits ? "Gb/sec" : "MB/sec");
	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];

		printf(" %-7llu    %-10llu       %-7.2f            %-7.2f  \t\t   %-7.6f\n",
		       (unsigned long long)row->plan.size, (unsigned long long)row->operations, peak_of(row) / unit,
		       row->bytes_per_second / unit, row->operations_per_second / 1e6);
	}
}

static double us(uint64_t nanoseconds)
{
	return (double)nanoseconds / 1000;
}

/* In place of perftest's, the second largest time and a deviation of whole numbers, the right ones. */
static void print_latency(const struct bench_report *report)
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
		       (unsigned long long)row->plan.size, (unsigned long long)rounds, us(latency->minimum),
		       us(latency->maximum), us(latency->p50), latency->mean / 1000, latency->deviation / 1000,
		       us(latency->p99), us(latency->p999));
	}
}

void bench_render_perftest(const struct bench_options *options, const struct bench_report *report)
{
	if (!report->count)
		return;
	print_head(options, report);
	if (options->plan.latency)
		print_latency(report);
	else
		print_bandwidth(options, report);
	puts(LINE);
}
