/* SPDX-License-Identifier: BSD-2-Clause */
/* Control messages between client and server. */
#ifndef PL_BENCH_PERF_MESSAGE_H
#define PL_BENCH_PERF_MESSAGE_H

#include "bench/common/result_head.h"
#include "bench/perf/plan.h"

#define BENCH_VERSION 3
#define BENCH_MESSAGE_MAX 1024
#define BENCH_KIND_MAX 24 /* bytes of the name of a kind of memory */

enum bench_message_type {
	BENCH_SETUP = 1, /* client: plan, token of its memory; server: its token */
	BENCH_PREPARE,   /* client: settings of a run; server: its memory is ready and its receives are posted */
	BENCH_GO,        /* client: the measured part begins */
	BENCH_FINISH,    /* client and server: end of the measured part, with the result */
	BENCH_BYE,       /* client: no more requests; server: the same */
	BENCH_FAILED,    /* either: an error ends the measurement */
	BENCH_HELLO, /* client: kind of memory for the server, or none; server: its machine and its kind of memory */
};

/* Result of one endpoint's run. */
struct bench_result {
	uint64_t operations, elapsed; /* of the measured part; elapsed from the first post to the last completion */
	uint64_t cpu, wall;           /* processor time and time of the measured part */
	uint64_t slots_covered;       /* message slots that this endpoint's operations used */
	bool verified;                /* true if all content that this endpoint checked was correct */
	double cached, operation;     /* registration, client only: see struct bench_row */
};

struct bench_message {
	enum bench_message_type type;
	struct bench_plan plan;
	struct bench_run_settings settings;
	struct bench_result result;
	struct machine machine;
	char memory[BENCH_KIND_MAX];
	uint8_t token[PL_TOKEN_MAX];
	uint16_t token_length;
	struct pl_error error;
};

/* Returns the number of bytes written; the buffer has BENCH_MESSAGE_MAX. */
size_t bench_message_encode(const struct bench_message *message, uint8_t *buffer);
/* Returns 0, -EPROTO if the bytes are not a control message, or -EPROTONOSUPPORT if they are of another version. */
int bench_message_decode(const uint8_t *buffer, size_t length, struct bench_message *message);

#endif
