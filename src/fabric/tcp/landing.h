/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that sockets cannot reach: slots between it and the socket. */
#ifndef PL_TCP_LANDING_H
#define PL_TCP_LANDING_H

#include "core/work_list.h"
#include "fabric/tcp/tcp.h"

/* staging.c: memory that the socket cannot reach */
/* Records bytes of an operation that the socket cannot reach. Returns false if the operation must not be staged. */
bool tcp_note_transfer_staging(struct pl_operation *operation);
/* Copies the payload to a slot, then queues the piece. Drops the piece, and its pending count, after a failed copy. */
void tcp_piece_stage(struct tcp_lane *lane, struct tcp_piece *piece, struct pl_memory *memory, size_t offset);
/* Starts copies of waiting pieces while slots are free. */
void tcp_lane_start_copies(struct tcp_lane *lane);
/* Queues pieces whose copies have ended. */
void tcp_lane_finish_copies(struct tcp_lane *lane);
void tcp_lane_sweep_staging(struct tcp_lane *lane, bool all);
/* Returns a slot for bytes that arrive; NULL: no memory. Waits for copies of the lane if no other slot is locked. */
struct pl_slot *tcp_take_landing_slot(struct tcp_lane *lane, const struct pl_memory *memory);
/* Fails an operation whose bytes cannot be copied to their memory. */
void tcp_fail_landing(struct pl_operation *operation);
/* Returns the slot of a piece that was sent. */
void tcp_piece_return_slot(struct tcp_lane *lane, struct tcp_piece *piece);
/*
 * Prepares a slot for the current frame. `whole`: all bytes of the frame have arrived. Returns 0, or -ENOMEM: the
 * frame is dropped.
 */
int tcp_land_begin(struct tcp_lane *lane, struct pl_memory *memory, size_t offset, bool whole);
/* Starts the copy of an arrived frame. Takes over a reference to the key. Returns false if no slot was used. */
bool tcp_land_end(struct tcp_lane *lane, struct pl_key *key, struct pl_operation *operation);
void tcp_land_drop(struct tcp_lane *lane);
/* Counts frames as placed whose copies from slots have ended, if the lane receives large ones. */
void tcp_lane_finish_landings(struct tcp_lane *lane);
/* Counts a received frame that was placed, or refused, without a copy. */
void tcp_lane_count_received(struct tcp_lane *lane, enum pl_wire_status refusal);

/* True if sockets of the memory's owner cannot reach it. */
static inline bool tcp_staged_by_peer(const struct pl_remote *remote)
{
	return remote->key_length > sizeof(uint64_t) && remote->key[sizeof(uint64_t)] & TCP_KEY_STAGED;
}

/* joint_landing.c: chunks of a read that are copied to GPU memory together */
/* True if chunks of this size should be copied together. Home. */
bool tcp_chunks_join(const struct tcp_endpoint *endpoint, const struct pl_operation *operation, uint32_t chunk);
/*
 * Adds a chunk to the operation's open joint, or to a new one, of at most `most` bytes. Sets *open to the joint that the next chunk
 * belongs to; NULL: a new one. Returns NULL if there is no memory. The caller holds endpoint->lock.
 */
struct tcp_joint *tcp_joint_add(struct tcp_joint **open, const struct pl_chunk *chunk, uint32_t most);
/* Ends an open joint whose next chunk will not come: no byte of it is copied. The caller holds endpoint->lock. */
void tcp_joint_close(struct tcp_endpoint *endpoint, struct tcp_joint **open);
/* tcp_land_begin() for DATA: prepares a slot of its own, or a place in its joint's. */
int tcp_land_answer(struct tcp_lane *lane, struct tcp_request *request, bool whole);
/* Prepares a chunk of a joint that is in its slot for the copy. */
void tcp_joint_received(const struct tcp_request *request);
/*
 * A chunk has arrived, or will not: then no byte of the joint is copied. The last chunk starts the copy. The caller holds a pending
 * count of the operation.
 */
void tcp_joint_leave(struct tcp_lane *lane, struct tcp_joint *joint, bool arrived);
static inline void tcp_request_leave_joint(struct tcp_lane *lane, struct tcp_request *request, bool arrived)
{
	struct tcp_joint *joint = request->joint;

	request->joint = NULL;
	if (joint)
		tcp_joint_leave(lane, joint, arrived);
}

#endif
