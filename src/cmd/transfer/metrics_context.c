/* SPDX-License-Identifier: BSD-2-Clause */
/* Metrics of the library's context: what pl_context_query() and its relatives tell. */
#include <string.h>

#include <peerlane/counters.h>

#include "cmd/common/prometheus.h"
#include "cmd/transfer/metrics.h"

static const char *const kinds[] = {
	[PL_KIND_WRITE] = "write",     [PL_KIND_READ] = "read",           [PL_KIND_SEND] = "send",
	[PL_KIND_RECEIVE] = "receive", [PL_KIND_FETCH_ADD] = "fetch_add", [PL_KIND_COMPARE_SWAP] = "compare_swap",
	[PL_KIND_NOTIFY] = "notify",
};

#define KINDS CLI_ARRAY_SIZE(kinds)
/* A bound of the histograms covers this many buckets of the library: it is 4 times the bound before it. */
#define BUCKETS_OF_A_BOUND 2

struct context_traffic {
	struct pl_traffic of[KINDS][METRICS_FABRICS];
};

static void begin_sample(FILE *file, const char *metric, size_t kind, size_t fabric)
{
	prometheus_begin(file, metric, "kind", kinds[kind]);
	prometheus_label(file, "fabric", metrics_fabric_names[fabric]);
}

static void write_operations(FILE *file, const struct context_traffic *traffic)
{
	prometheus_describe(file, "operations_total", "counter", "Operations of the server that have ended.");
	for (size_t i = PL_KIND_WRITE; i < KINDS; i++) {
		for (size_t j = 0; j < 2 * METRICS_FABRICS; j++) {
			begin_sample(file, "operations_total", i, j / 2);
			prometheus_label(file, "result", j % 2 ? "error" : "ok");
			prometheus_end(file, j % 2 ? traffic->of[i][j / 2].failed : traffic->of[i][j / 2].done);
		}
	}
}

static void write_bytes(FILE *file, const struct context_traffic *traffic)
{
	prometheus_describe(file, "operation_bytes_total", "counter", "Bytes of the server's operations, by route.");
	for (size_t i = PL_KIND_WRITE; i < KINDS; i++) {
		for (size_t j = 0; j < 2 * METRICS_FABRICS; j++) {
			const struct pl_traffic *one = &traffic->of[i][j / 2];

			begin_sample(file, "operation_bytes_total", i, j / 2);
			prometheus_label(file, "route", j % 2 ? "staged" : "direct");
			prometheus_end(file, j % 2 ? one->staged : one->bytes - one->staged);
		}
	}
}

static void write_histogram(FILE *file, size_t kind, size_t fabric, const struct pl_traffic *traffic)
{
	uint64_t below = 0;
	char bound[32];

	for (size_t i = 0; i < PL_TIME_BUCKETS; i++) {
		below += traffic->times[i];
		if (i % BUCKETS_OF_A_BOUND || i + 1 == PL_TIME_BUCKETS)
			continue;
		snprintf(bound, sizeof(bound), "%.9g", (double)PL_TIME_BUCKET_END(i) / CLI_NS_PER_S);
		begin_sample(file, "operation_seconds_bucket", kind, fabric);
		prometheus_label(file, "le", bound);
		prometheus_end(file, below);
	}
	begin_sample(file, "operation_seconds_bucket", kind, fabric);
	prometheus_label(file, "le", "+Inf");
	prometheus_end(file, below);
	begin_sample(file, "operation_seconds_sum", kind, fabric);
	prometheus_end_seconds(file, traffic->time);
	begin_sample(file, "operation_seconds_count", kind, fabric);
	prometheus_end(file, below);
}

static void write_times(FILE *file, const struct context_traffic *traffic)
{
	prometheus_describe(file, "operation_seconds", "histogram",
			    "Times of the server's operations from posting to completion.");
	for (size_t i = PL_KIND_WRITE; i < KINDS; i++)
		for (size_t j = 0; j < METRICS_FABRICS; j++)
			if (traffic->of[i][j].done)
				write_histogram(file, i, j, &traffic->of[i][j]);
}

static void write_errors(FILE *file, struct pl_context *context)
{
	struct pl_error_count count = PL_ERROR_COUNT_INIT;
	struct metrics_ids ids = { .count = 0 };

	for (unsigned i = 0; pl_context_error_count(context, i, &count, NULL) == 0; i++) {
		struct metrics_id *id = &ids.list[ids.count];

		if (!count.id[0]) {
			ids.others = count.count;
			continue;
		}
		memcpy(id->id, count.id, sizeof(id->id));
		id->count = count.count;
		ids.count++;
	}
	metrics_write_ids(file, "operation_errors_total",
			  "Operations of the server that failed, by identifier of the error.", &ids);
}

static void write_staging(FILE *file, struct pl_context *context)
{
	struct pl_staging_info info = PL_STAGING_INFO_INIT;

	if (pl_staging_query(context, &info, NULL) < 0)
		return;
	prometheus_value(file, "staging_locked_bytes", "gauge", "Host memory locked for staging.", info.locked);
	prometheus_value(file, "staging_limit_bytes", "gauge", "Most host memory that is locked for staging.",
			 info.limit);
	prometheus_value(file, "staging_used_bytes", "gauge", "Locked memory that running transfers use.", info.in_use);
}

/* Writes a counter with two values of a label. */
static void write_pair(FILE *file, const char *name, const char *help, const char *label, const char *const texts[2],
		       const uint64_t values[2])
{
	prometheus_describe(file, name, "counter", help);
	for (size_t i = 0; i < 2; i++) {
		prometheus_begin(file, name, label, texts[i]);
		prometheus_end(file, values[i]);
	}
}

static void write_registrations(FILE *file, struct pl_context *context)
{
	struct pl_registrations_info info = PL_REGISTRATIONS_INFO_INIT;

	if (pl_registrations_query(context, &info, NULL) < 0)
		return;
	prometheus_value(file, "registered_bytes", "gauge", "Memory that RDMA cards have registered.", info.bytes);
	prometheus_value(file, "registrations", "gauge", "Registrations of memory with RDMA cards.",
			 info.registrations);
	write_pair(file, "registration_lookups_total",
		   "Searches for a registration; those without a result register memory.", "found",
		   (const char *const[]){ "yes", "no" }, (const uint64_t[]){ info.found, info.made });
	write_pair(file, "dropped_registrations_total", "Kept registrations that ended, by reason.", "reason",
		   (const char *const[]){ "limit", "freed" }, (const uint64_t[]){ info.evicted, info.outdated });
}

_Static_assert(PL_ERROR_COUNTS <= METRICS_IDS_MAX, "each error has a place");

static void write_queues(FILE *file, struct pl_context *context)
{
	static const char *const names[] = { "running", "fenced", "receives", "unexpected" };

	prometheus_describe(file, "queue_depth", "gauge",
			    "Operations of the server that have not ended, and messages without a receive.");
	for (size_t i = 0; i < METRICS_FABRICS; i++) {
		struct pl_queues queues = PL_QUEUES_INIT;

		pl_context_queues(context, metrics_fabric_names[i], &queues, NULL);
		for (size_t j = 0; j < CLI_ARRAY_SIZE(names); j++) {
			prometheus_begin(file, "queue_depth", "fabric", metrics_fabric_names[i]);
			prometheus_label(file, "queue", names[j]);
			prometheus_end(file, (const uint64_t[]){ queues.running, queues.fenced, queues.receives,
								 queues.unexpected }[j]);
		}
	}
}

static void read_traffic(struct pl_context *context, struct context_traffic *traffic)
{
	for (size_t i = PL_KIND_WRITE; i < KINDS; i++) {
		for (size_t j = 0; j < METRICS_FABRICS; j++) {
			traffic->of[i][j] = (struct pl_traffic)PL_TRAFFIC_INIT;
			pl_context_traffic(context, (enum pl_kind)i, metrics_fabric_names[j], &traffic->of[i][j], NULL);
		}
	}
}

void metrics_write_context(FILE *file, struct pl_context *context)
{
	struct pl_context_info info = PL_CONTEXT_INFO_INIT;
	struct context_traffic traffic;

	read_traffic(context, &traffic);
	write_operations(file, &traffic);
	write_bytes(file, &traffic);
	write_times(file, &traffic);
	write_errors(file, context);
	write_queues(file, context);
	write_staging(file, context);
	write_registrations(file, context);
	if (pl_context_query(context, &info, NULL) < 0)
		return;
	prometheus_value(file, "operations_running", "gauge", "Operations of the server that are under way.",
			 info.running);
	prometheus_value(file, "regions", "gauge", "Registered regions of memory.", info.regions);
}
