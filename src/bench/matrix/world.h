/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes (ranks) of a measurement, which exchange small messages: by MPI (mpi.c), or by a rendezvous at rank 0
 * (rendezvous.c).  All ranks call the same functions in the same order.
 */
#ifndef PL_BENCH_MATRIX_WORLD_H
#define PL_BENCH_MATRIX_WORLD_H

#include "cmd/common/cli.h"

#define WORLD_RANKS_MAX 1024
#define WORLD_REASON 96

struct world;

struct world_ops {
	/* -- messages, required ------------------------------------------------------------------------ */
	/* Gathers `each` bytes of every rank into `all`, by rank.  Those of ranks that are left out are zero. */
	int (*gather)(struct world *world, const void *own, size_t each, void *all, struct pl_error *error);
	/* Gathers them into `all` of rank 0 only. */
	int (*collect)(struct world *world, const void *own, size_t each, void *all, struct pl_error *error);
	/* Copies `length` bytes of rank 0 to all other ranks. */
	int (*share)(struct world *world, void *bytes, size_t length, struct pl_error *error);
	/* Waits until all ranks have called it.  Sleeps meanwhile, to leave the processor to ranks that measure. */
	int (*barrier)(struct world *world, struct pl_error *error);
	/* Ends the rank; called once.  The world is freed. */
	void (*close)(struct world *world);

	/* -- worlds that need every rank ------------------------------------------------------------------ */
	/* Ends all ranks after a failure of this one; NULL: the others notice the end of this one. */
	void (*abort)(struct world *world, int status);

	/* -- worlds that lose ranks ----------------------------------------------------------------------- */
	/* Rank 0: goes on without a rank; the others know after the next message.  NULL: every rank is needed. */
	void (*leave_out)(struct world *world, int rank, const char *reason);
	/* Learns of lost ranks between messages, for `lost`.  Does not wait. */
	void (*notice)(struct world *world);
	/* Copies the address of this host towards the other ranks, with port 0; "": not known. */
	void (*local_address)(struct world *world, char *address, size_t size);
};

/* Rank that takes no part any more, or never did. */
struct world_loss {
	char host[64]; /* "": not known */
	char reason[WORLD_REASON];
};

struct world {
	const struct world_ops *ops;
	int rank, size;
	uint8_t *gone;             /* by rank: 1 if left out, equal at all ranks between messages; NULL: never */
	uint8_t *lost;             /* by rank: 1 as soon as this rank knows of a loss; NULL as `gone` */
	struct world_loss *losses; /* rank 0: by rank; NULL as `gone` */
	bool ended;                /* all ranks end in order */
	uint64_t patience;         /* nanoseconds that rank 0 waits for the message of a rank */
};

static inline bool world_has(const struct world *world, int rank)
{
	return !world->gone || !world->gone[rank];
}

/* Returns true if it makes no sense to wait for a rank. */
static inline bool world_lost(struct world *world, int rank)
{
	if (world->ops->notice)
		world->ops->notice(world);
	return !world_has(world, rank) || (world->lost && world->lost[rank]);
}

/* Returns the number of ranks that take part. */
static inline int world_present(const struct world *world)
{
	int count = 0;

	for (int i = 0; i < world->size; i++)
		count += world_has(world, i);
	return count;
}

#endif
