/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes over a queue pair in the loop of perftest's ib_write_bw: post while there is room, poll, count. Between the
 * program and the driver is nothing, so this is the floor of the cost of a write.
 */
#ifndef CARD_PLAIN_LOOP_H
#define CARD_PLAIN_LOOP_H

#include "rdma/library.h"

#define PLAIN_LOOP_LENGTH 8u
#define PLAIN_LOOP_LIST_MAX 16u

struct plain_loop {
	const struct verbs_library *library;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t bytes[2][PLAIN_LOOP_LENGTH]; /* source, destination */
};

/* Opens the first device, and a queue pair that is connected to itself. A failure ends the program. */
void plain_loop_open(struct plain_loop *loop);
void plain_loop_close(struct plain_loop *loop);
/*
 * Writes `count` times, with at most `depth` writes under way, in lists of `list` requests. One request in `every` is
 * signaled. `depth` is a multiple of `list` and of `every`, and `count` one of `depth`.
 */
void plain_loop_run(struct plain_loop *loop, unsigned count, unsigned depth, unsigned list, unsigned every);

#endif
