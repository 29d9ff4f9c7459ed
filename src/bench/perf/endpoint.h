/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Endpoint of a measurement: the client, which measures, or the server.  For each size they set up memory, then run
 * once or several times.  The client leads by control messages.  The initiator of an operation posts it; its target is
 * the peer.
 */
#ifndef PL_BENCH_PERF_ENDPOINT_H
#define PL_BENCH_PERF_ENDPOINT_H

#include "bench/perf/buffer.h"
#include "bench/perf/cost.h"
#include "bench/perf/message.h"
#include "bench/perf/pipeline.h"
#include "bench/perf/samples.h"

#define BENCH_BATCH 64
#define BENCH_POSTED_CONTROLS 4

struct bench_options;

/* Connection to a peer.  Operations use the connections in turn. */
struct bench_connection {
	struct pl_peer *peer;
	struct pl_remote *remote; /* the peer's `exposed` buffer */
	bool additional;          /* not the one of control messages */
};

/* Process at the other end: the one client of a server, or one of a client's servers. */
struct bench_peer {
	struct pl_peer *control; /* connection of the control messages */
	char address[300];       /* client only: the server's */
	struct bench_message inbox;
	bool has_message; /* inbox holds a message that was not handled */
	bool lost;        /* the connection is closed */
	struct bench_result result;
	/* Operations of this endpoint with the peer, counted if there are several peers. */
	uint64_t completed, first, last;
	struct stats *stats; /* NULL: the peer is the only one */
	uint64_t received;   /* data messages */
	/* Operations posted in this run, warm-up included: scattered ones, and those that take slots in turn. */
	uint64_t requests;
};

struct bench_endpoint {
	struct pl_context *context;
	struct bench_peer *peers, *peer; /* peer: the one that control messages are exchanged with */
	uint32_t peer_count;
	struct pl_region *control;   /* receives control messages */
	char memory[BENCH_KIND_MAX]; /* kind of memory of both buffers */
	bool huge;                   /* use huge pages for host memory */
	const char *pages;           /* huge pages in use: "hugetlb", "transparent", or NULL */
	struct bench_buffer local;   /* own operations take their bytes from it, or put them there */
	struct bench_buffer exposed; /* peers access it */
	struct bench_connection connections[BENCH_CONNECTIONS_MAX]; /* plan.connections for each peer */
	struct bench_plan plan;
	struct bench_layout layout;
	struct bench_run_settings settings;
	struct bench_pipeline pipeline;
	struct stats stats;
	struct pl_completion sample; /* receipt of one operation, for its route */
	bool manual, server;
	/* nanoseconds that the measuring thread polls before it sleeps, while threads make progress; 0: none */
	uint64_t poll_time;
	bool in_run;      /* manual progress must not sleep, as no bytes would move */
	bool one_sided;   /* the fabric accesses memory without the peer's program */
	bool may_sleep;   /* in a run, but a card does all the work of this endpoint */
	int fd;           /* with threads: readable when completions are there */
	uint64_t timeout; /* nanoseconds that the peer may take for an answer */
	uint64_t round;   /* ping-pong: messages so far, in one direction */
	uint64_t tag;     /* of own messages */
	uint64_t received_tag;

	bool started, finished;   /* server: the client sent BENCH_GO, BENCH_FINISH */
	bool closing;             /* the end of the connection is expected */
	uint32_t posted_receives; /* for data */
	uint32_t repost_number;   /* receive that is to be posted again, if `repost` */
	bool repost;
	uint64_t received; /* data messages of all peers */
	uint64_t notified; /* target of scattered operations: notifications of this run */
	struct bench_samples samples;
	struct bench_cost cost;
	struct bench_spent spent;     /* of the last run */
	struct pl_listener *listener; /* server only */
	uint64_t due;                 /* --rate: time of the next post; 0: now */
	uint64_t checksum;            /* of bytes read for --touch; keeps the compiler from dropping the reads */
	uint64_t cpu_start, wall_start;

	uint32_t idle_rounds;                     /* polls in a row without any completion */
	uint64_t idle_since;                      /* time of the first of them, if the thread polls */
	uint64_t events, events_seen, last_event; /* detect a run that has stalled */
	bool interrupted;
	struct pl_error error; /* the first one */
	/*
	 * Begins a cache line, as in benchmarks/raw_loop.c: elsewhere an operation takes up to 1.5 % more or less time.
	 */
	_Alignas(64) struct pl_completion completions[BENCH_BATCH];
};

/* Allocates an endpoint with the alignment of its members, for free(3).  Returns NULL if out of memory. */
struct bench_endpoint *bench_endpoint_new(void);
/* Opens a context for a number of peers and blocks SIGINT and SIGTERM.  Returns 0 or a negative errno. */
int bench_endpoint_open(struct bench_endpoint *ep, const struct bench_options *options, uint32_t peers,
			struct pl_error *error);
/* Begins to exchange messages with ep->peer.  Returns 0, or a negative errno with the error in ep->error. */
int bench_endpoint_begin(struct bench_endpoint *ep);
/* Closes the peers and frees all that belongs to them. */
void bench_endpoint_reset(struct bench_endpoint *ep);
void bench_endpoint_close(struct bench_endpoint *ep);

/* -- memory: all return 0, or a negative errno with the error in ep->error ----------------------------- */

/* Allocates the buffers and the pipeline for ep->plan. */
int bench_endpoint_allocate(struct bench_endpoint *ep);
/* Puts a token of the memory that ep->peer is to access into *message.  Each peer has a window of its own. */
int bench_endpoint_grant(struct bench_endpoint *ep, struct bench_message *message);
/* Returns the offset of a peer's window in ep->exposed. */
uint64_t bench_exposed_offset(const struct bench_endpoint *ep, const struct bench_peer *peer);
/* Imports the memory that ep->peer exposes. */
int bench_endpoint_import(struct bench_endpoint *ep, const struct bench_message *message);
void bench_endpoint_free_memory(struct bench_endpoint *ep);

/* True if this endpoint posts operations; if it is the target of operations. */
bool bench_endpoint_initiates(const struct bench_endpoint *ep);
bool bench_endpoint_is_target(const struct bench_endpoint *ep);

/* -- errors: record the first error, and return its code ------------------------------------------------ */

int bench_fail(struct bench_endpoint *ep, int code, const char *id, const char *object, const char *hint,
	       const char *format, ...) __attribute__((format(printf, 6, 7)));
int bench_fail_with(struct bench_endpoint *ep, const struct pl_error *error);
int bench_fail_protocol(struct bench_endpoint *ep, const char *fact);

#endif
