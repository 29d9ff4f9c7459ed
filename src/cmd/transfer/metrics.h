/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters of `peerlane serve`, and the text of its metrics. */
#ifndef PL_CMD_TRANSFER_METRICS_H
#define PL_CMD_TRANSFER_METRICS_H

#include <pthread.h>

#include "cmd/transfer/server.h"

/* Most identifiers that one metric names; the count of all others has the label "other". */
#define METRICS_IDS_MAX 64

/* Fabrics of clients, for the label `fabric`. */
enum metrics_fabric { METRICS_LOCAL, METRICS_VERBS, METRICS_TCP, METRICS_FABRICS };
extern const char *const metrics_fabric_names[METRICS_FABRICS];

/* Numbers of errors by identifier. */
struct metrics_ids {
	struct metrics_id {
		char id[sizeof(((struct pl_error *)NULL)->id)];
		uint64_t count;
	} list[METRICS_IDS_MAX];
	size_t count;
	uint64_t others;
};

/* Counters of the clients of one fabric. */
struct metrics_traffic {
	uint64_t clients; /* now */
	uint64_t connections, opened, opened_bytes, stored, stored_bytes, read_bytes, written_bytes;
	uint64_t routed[2][2]; /* bytes by route: [written][staged], of reports that tell it */
};

struct metrics {
	uint64_t started; /* nanoseconds since 1970 */
	struct metrics_traffic traffic[METRICS_FABRICS];
	uint64_t deleted;
	struct metrics_ids refused_requests;
	pthread_mutex_t lock; /* of the following, which threads of the library count */
	struct metrics_ids refused_connections;
};

void metrics_init(struct metrics *metrics);
void metrics_close(struct metrics *metrics);
/* Counts an event of the server.  Called on the thread of the server. */
void metrics_count_event(struct metrics *metrics, const struct server_event_report *report);
/* Counts a refused connection.  Thread-safe. */
void metrics_count_refused_connection(struct metrics *metrics, const struct pl_error *error);
/* Returns all metrics in Prometheus' text format, for free(3); NULL: no memory.  Called on the thread of the server. */
char *metrics_text(struct metrics *metrics, const struct server *server);
/* Writes a counter of errors by identifier. */
void metrics_write_ids(FILE *file, const char *metric, const char *help, const struct metrics_ids *ids);
/* Writes the metrics of a context. */
void metrics_write_context(FILE *file, struct pl_context *context);

#endif
