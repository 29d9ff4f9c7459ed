/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flushes: they make written bytes visible. A device's acknowledgement of a write does not mean that the bytes are in
 * memory: they may still be in switches of PCI Express or in a GPU. Messages sent afterwards find the bytes in host
 * memory (InfiniBand, o9-20: a receive completes after the writes before it). Stronger promises need a read of the
 * written memory: a read does not pass writes of the same device (PCI Express Base Specification, 2.4.1, even with
 * relaxed ordering), so its answer comes when the bytes are there.
 *
 * - The writer reads back over the same connection, if the grant allows reads.
 *
 * - Otherwise the writer asks the owner (FLUSH), whose device reads over a loopback queue pair.
 *
 * - Kernels of a GPU that does not keep the order of device writes need the driver's flush, or such a read.
 */
#ifndef PL_FABRIC_VERBS_DATA_FLUSH_H
#define PL_FABRIC_VERBS_DATA_FLUSH_H

#include "fabric/verbs/verbs.h"

/* Most posted reads of all loopback queue pairs of a queue. */
#define VERBS_LOOPBACK_DEPTH 16
/* Mark in wr_id of these reads, which are aligned. */
#define VERBS_LOOPBACK_READ 2u

/* State in operation->fabric while the operation waits for answers. */
struct verbs_settling {
	uint32_t cookie;
	unsigned answers;
};

/* pl_fabric_ops.settle */
bool verbs_settle(struct pl_endpoint *base, struct pl_operation *operation);
/*
 * Posts a read behind a write at once if that read will make the write visible, which saves a round trip. Called when
 * the write is posted.
 */
int verbs_read_behind(struct verbs_endpoint *endpoint, struct pl_operation *operation);
/* True if the operation needs a flush after the acknowledgement of its writes. */
bool verbs_needs_more(const struct pl_operation *operation);
/* Handles FLUSH and FLUSHED; -EPROTO. */
int verbs_flush_arrived(struct verbs_endpoint *endpoint, const struct pl_frame *frame);
/* Ends an endpoint's flushes without answers. */
void verbs_flushes_forget(struct verbs_endpoint *endpoint);

/* flush_loopback.c: reads of an owner */
struct verbs_flush {
	struct pl_list link;             /* endpoint->flushes */
	struct verbs_endpoint *endpoint; /* NULL: the endpoint is gone */
	struct verbs_state *state;
	struct pl_key *key; /* of the asking peer; NULL: for an operation of this end */
	uint32_t cookie;
	uint8_t how;
	unsigned reads;
	bool failed;
};

/* All reads of a flush are done. */
void verbs_flush_done(struct verbs_flush *flush);
/*
 * Starts a read of a region through the device of a rail that is or was connected. Returns 0 or a negative errno. A read
 * that fails later makes the flush fail only if the rail is connected now.
 */
int verbs_loopback_read(struct verbs_rail *rail, struct pl_region *region, struct verbs_flush *flush);
void verbs_loopback_done(struct verbs_cq *queue, const struct ibv_wc *completion);
void verbs_loopbacks_close(struct verbs_cq *queue);
/* Removes all loopback queue pairs of a device that goes away. grant_lock is held. */
void verbs_loopbacks_end(struct verbs_device *device);

#endif
