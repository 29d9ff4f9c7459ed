/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `peerlane bench`: two processes, each with one region of two areas.  The peer writes into, reads
 * from and sends into the first (the target area); this end's own source is the second.
 */
#ifndef PL_CLI_BENCH_H
#define PL_CLI_BENCH_H

#include "cli/bench/stats.h"
#include "cli/cli.h"

#define BENCH_SIZES_MAX 64
#define BENCH_SIZE_MAX (1ull << 30)
#define BENCH_DEPTH_MAX 4096u
#define BENCH_VECTOR_MAX 256u
#define BENCH_AREA_MIN 4096u

enum bench_operation {
	BENCH_WRITE = 1,
	BENCH_READ,
	BENCH_SEND,
	BENCH_FETCH_ADD,
	BENCH_COMPARE_SWAP,
	BENCH_OPERATIONS,
};

const char *bench_operation_name(enum bench_operation operation);

/* -- messages between the two ends (wire.c) ------------------------------------------------------- */

enum bench_type {
	BENCH_SETUP = 1, /* client: room for the largest size, its token; server: the same of its own */
	BENCH_START,     /* client: one size is measured now; server: ready */
	BENCH_STOP,      /* client: done; server: what it saw */
	BENCH_TYPES,
};

#define BENCH_MESSAGE_SIZE 176

struct bench_message {
	enum bench_type type;
	enum bench_operation operation;
	bool latency, both_ways;
	uint32_t depth;
	uint64_t size;
	uint64_t cpu;   /* ns of processor time, of the time that passed: */
	uint64_t time;
	uint64_t count; /* operations done */
	uint64_t hash;  /* XXH3-64 of the target area's first `size` bytes */
	uint8_t token[PL_TOKEN_MAX];
	uint16_t token_length;
};

void bench_encode(const struct bench_message *message, uint8_t buffer[BENCH_MESSAGE_SIZE]);
/* 0, or -EPROTO for anything else than a well-formed message within the limits above. */
int bench_decode(const void *buffer, size_t length, struct bench_message *message);

/* -- one end (link.c) ------------------------------------------------------------------------------ */

struct bench_link {
	struct pl_context *context;
	struct pl_peer *peer;
	bool manual;
	uint64_t timeout;

	struct pl_region *control; /* where messages arrive */
	struct bench_message message;
	bool arrived;              /* `message` is new */

	struct pl_region *region;  /* target area, then source area */
	uint64_t area;             /* bytes of each */
	uint8_t *target, *source;
	struct pl_remote *remote;  /* the peer's target area */

	uint64_t posted, done;     /* operations of ours */
	uint64_t received;         /* messages into the target area */
	unsigned receives;         /* posted for that */
	uint64_t notified;
	struct stats *stats;       /* takes the times of ours, if not NULL */
	struct pl_receipt last;    /* of the latest completion of ours */
	int failure;               /* the first */
	struct pl_error error;
};

int bench_link_open(struct bench_link *link, struct pl_context *context, struct pl_peer *peer, bool manual,
		    uint64_t timeout, struct pl_error *error);
void bench_link_close(struct bench_link *link);
/* Makes the region and a token of its target area. */
int bench_link_room(struct bench_link *link, uint64_t area, struct bench_message *offer, struct pl_error *error);
int bench_link_import(struct bench_link *link, const struct bench_message *offer, struct pl_error *error);
int bench_link_say(struct bench_link *link, const struct bench_message *message, struct pl_error *error);
/* Waits for the next message; -ETIMEDOUT, -EPROTO, or why the connection ended. */
int bench_link_hear(struct bench_link *link, uint64_t timeout, struct pl_error *error);
/* Collects completions; waits a little for one unless progress is manual or `busy`. link->failure tells of errors. */
void bench_link_pump(struct bench_link *link, bool busy);
/* Posts one operation of ours, its completion to be counted. `vector` elements in one, if over 1. */
int bench_link_post(struct bench_link *link, enum bench_operation operation, uint64_t size, unsigned vector,
		    bool notify, struct pl_error *error);
/* Keeps `depth` receives posted into the target area. */
int bench_link_receive(struct bench_link *link, unsigned depth, struct pl_error *error);
uint64_t bench_cpu_time(void);

/* -- the two programs ------------------------------------------------------------------------------ */

struct bench_options {
	struct cli_options common;
	const char *address;
	bool server, once, manual, latency, both_ways;
	enum bench_operation operation;
	uint64_t sizes[BENCH_SIZES_MAX];
	unsigned size_count, step;
	unsigned depth, vector, repeat;
	uint64_t duration;   /* nanoseconds for each size */
	uint64_t iterations; /* instead, if not 0 */
};

/* What one size gave. */
struct bench_result {
	enum bench_operation operation;
	uint64_t size, count, bytes, nanoseconds;
	double bytes_per_second, operations_per_second;
	uint64_t p50, p99, p999, max; /* latency, ns */
	double cpu, peer_cpu;         /* per cent of one processor */
	unsigned depth, streams;
	const char *fabric, *reason;
	enum pl_route route;
	bool verified;
};

/* client.c */
int bench_measure(struct bench_link *link, const struct bench_options *options, uint64_t size,
		  struct bench_result *result, struct pl_error *error);
int bench_client_open(struct bench_link *link, const struct bench_options *options, struct pl_error *error);
/* server.c: listens, says where on standard output, serves clients one after the other. */
int bench_serve(const struct bench_options *options);

/* render.c */
void bench_render_table(const struct bench_options *options, const struct bench_result *results, unsigned count);
void bench_render_json(const struct bench_options *options, const struct bench_result *results, unsigned count);

#endif
