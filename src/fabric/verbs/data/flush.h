/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes in their place.  That a device acknowledged a write does not mean that the bytes are in memory: they may be
 * on their way there, through switches of PCI Express and, behind these, in a GPU.  What is sent to the peer's program
 * afterwards finds them (InfiniBand, o9-20: a receive completes after the writes before it), as far as memory of the
 * host goes.  For more, something has to be read where they were written: a read does not pass writes of the same
 * device (PCI Express Base Specification, 2.4.1, also if those have relaxed ordering), and so its answer comes when
 * they are there.
 *
 * - Who wrote reads back, over the same connection, where the grant lets it read.
 * - Otherwise the owner is asked (FLUSH), and has its device read over a queue pair that is connected to itself.
 * - Kernels of a GPU that does not keep the order of what cards write need its driver's flush, or such a read.
 */
#ifndef PL_FABRIC_VERBS_DATA_FLUSH_H
#define PL_FABRIC_VERBS_DATA_FLUSH_H

#include "fabric/verbs/verbs.h"

/* Reads that a queue pair connected to itself has posted at most. */
#define VERBS_LOOP_DEPTH 16
/* In wr_id of these reads, which are aligned. */
#define VERBS_LOOPED 2u

/* In operation->fabric, while it waits for answers. */
struct verbs_settling {
	uint32_t cookie;
	unsigned answers;
};

/* pl_fabric_ops.settle */
bool verbs_settle(struct pl_endpoint *base, struct pl_operation *operation);
/*
 * When a write is posted: if that is how it will be made visible, posts the read behind it at once, which saves a
 * round trip.  With several rails nobody knows yet which of them will carry it.
 */
int verbs_read_behind(struct verbs_endpoint *endpoint, struct pl_operation *operation);
/* Whether a write has to be made more visible than it is when it is acknowledged. */
bool verbs_needs_more(const struct pl_operation *operation);
/* FLUSH, or FLUSHED; -EPROTO. */
int verbs_flush_arrived(struct verbs_endpoint *endpoint, const struct pl_frame *frame);
/* At the end of an endpoint: nobody is to be answered any more. */
void verbs_flushes_forget(struct verbs_endpoint *endpoint);

/* loop.c: an owner's reads */
struct verbs_flush {
	struct pl_list link;             /* endpoint->flushes */
	struct verbs_endpoint *endpoint; /* NULL: it is gone */
	const struct pl_allocator *allocator;
	struct pl_key *key; /* the peer asked; NULL: an operation of this end's */
	uint32_t cookie;
	uint8_t how;
	unsigned reads;
	bool failed;
};

/* All its reads are done. */
void verbs_flush_done(struct verbs_flush *flush);
/* Begins a read of a region over the device of a rail that is connected: 0, or why that cannot be. */
int verbs_loop_read(struct verbs_rail *rail, struct pl_region *region, struct verbs_flush *flush);
void verbs_loop_done(struct verbs_queue *queue, const struct ibv_wc *completion);
void verbs_loop_close(struct verbs_queue *queue);
/* The device goes: nothing of these queue pairs is left on it.  grant_lock */
void verbs_loops_end(const struct verbs_library *library, struct verbs_device *device);

#endif
