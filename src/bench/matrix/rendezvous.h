/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * World of ranks that meet at one address, without MPI.  Rank 0 listens; the others connect with the key of the
 * connection options, and say HELLO.  A message of all ranks goes to rank 0, which answers when all have come.  A rank
 * whose connection is lost, or that is silent for too long, is left out.
 */
#ifndef PL_BENCH_MATRIX_RENDEZVOUS_H
#define PL_BENCH_MATRIX_RENDEZVOUS_H

#include "bench/matrix/membership.h"
#include "bench/matrix/world.h"

#define RENDEZVOUS_TERMS 256

struct rendezvous_options {
	const struct cli_options *common;
	const struct membership *membership;
	char terms[RENDEZVOUS_TERMS]; /* what is measured: equal at all ranks */
	uint64_t join_timeout;        /* nanoseconds in which all ranks have to come */
	int minimum;                  /* ranks without which the measurement does not begin, at least 2 */
};

/*
 * Waits until all ranks have joined, or the time is over.  Fails if fewer than `minimum` have.  Options and texts that
 * *options points to must stay until the world is closed.
 */
int rendezvous_open(struct world **world, const struct rendezvous_options *options, struct pl_error *error);

#endif
