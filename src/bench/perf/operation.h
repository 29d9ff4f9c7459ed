/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations that `peerlane bench` measures.  The table in operation.c has one entry for each; all other files ask its
 * members, never for a certain operation.
 */
#ifndef PL_BENCH_PERF_OPERATION_H
#define PL_BENCH_PERF_OPERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

struct bench_endpoint;
struct bench_fast_loop;
struct bench_request;
struct registration_times;
struct stats;

/* Codes of the requests of `peerlane bench kv`. */
#define BENCH_KV_READ 8u
#define BENCH_KV_WRITE 9u

struct bench_operation {
	uint8_t code;     /* number in control messages */
	const char *name; /* value of --op and of "operation" in results */

	/* -- sizes ------------------------------------------------------------------------------- */
	uint64_t size;             /* the only size; 0: --size chooses */
	const char *default_sizes; /* NULL: the mode decides */
	bool no_sizes;             /* --size is refused */

	/* -- memory and receives ----------------------------------------------------------------- */
	unsigned access;    /* rights on the exposed memory; PL_ACCESS_LOCAL: no token is exchanged */
	bool needs_receive; /* consumes a posted receive of the peer */
	bool reads;         /* the bytes move from the peer's memory to the initiator's */
	bool atomic;        /* each word has one operation at a time, whose old value is known */
	bool scattered;     /* requests of `peerlane bench kv`, see requests.h; not a value of --op */

	/* -- modes ------------------------------------------------------------------------------- */
	bool pingpong;              /* --latency sends messages to and fro; else it posts one operation at a time */
	bool vectors;               /* --vector is allowed */
	bool server_busy;           /* the server's processor takes part, even over a one-sided fabric */
	bool registers;             /* registers memory: "registration_us" in results */
	bool connects;              /* opens connections: "connect_us" in results */
	const char *perftest_title; /* head of --perftest; NULL: perftest has no test of it */

	/* -- data path; NULL for operations that measure_once() runs --------------------------- */

	/*
	 * Posts one operation, of `vector` messages.  `number` is its operation number.  Returns 0 or a negative errno.
	 */
	int (*post)(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number, uint32_t vector,
		    struct pl_error *error);
	/* The loop of fast_loop.h, specialised for post(); NULL: pipeline.c runs the operation. */
	int (*fast_loop)(struct bench_endpoint *ep, struct bench_fast_loop *loop);
	/* True if all content that this endpoint received is as expected. */
	bool (*verify)(const struct bench_endpoint *ep);

	/* -- sequential operations: one after the other, timed by the client's clock ------------- */

	/* Runs one operation and records its time in *stats, unless NULL.  Returns 0 or a negative errno. */
	int (*measure_once)(struct bench_endpoint *ep, struct stats *stats, struct registration_times *times);
	unsigned default_count; /* operations of a run without --iterations */
};

/* Return NULL if there is none. */
const struct bench_operation *bench_operation_by_name(const char *name);
const struct bench_operation *bench_operation_by_code(unsigned code);

/* Lists all names: "write, read or send".  Returns buffer. */
const char *bench_operation_names(char *buffer, size_t size);

/* True if operations run one after the other, each timed by the client's clock. */
static inline bool bench_operation_sequential(const struct bench_operation *operation)
{
	return operation->measure_once != NULL;
}

#endif
