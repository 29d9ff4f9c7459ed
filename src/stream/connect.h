/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection of a subscriber with the publisher at a peer. */
#ifndef PL_STREAM_CONNECT_H
#define PL_STREAM_CONNECT_H

#include "stream/publisher.h"
#include "stream/subscriber.h"

/* Subscribes at the peer, and begins to read. After a failure the subscriber has no connection. */
int pl_subscriber_connect(struct pl_subscriber *subscriber, struct pl_peer *peer, uint64_t deadline,
			  struct pl_error *error);
/* subscribe_status.c: describes the refusal of a subscription to the stream `name`. Returns its errno. */
int pl_fail_subscribe_status(enum pl_subscribe_status status, const char *name, struct pl_error *error);
/*
 * warm_up.c: makes the first copies from the ring into free frames, and from a frame in GPU memory into the host's, so that later
 * ones take no longer than their bytes. Nothing that the frames hold is lost. Returns -ETIMEDOUT, or that the peer is lost.
 */
int pl_subscriber_warm_up(struct pl_subscriber *subscriber, struct pl_peer *peer, struct pl_remote *payload,
			  const struct pl_ring_geometry *geometry, uint64_t deadline, struct pl_error *error);
/* subscriber.c: leaves the present peer, and waits until no read uses the memory. */
void pl_subscriber_detach(struct pl_subscriber *subscriber);
/* subscriber_memory.c: allocates memory for all frames, unless it is there. Returns -EBUSY if the old one is used. */
int pl_subscriber_allocate(struct pl_subscriber *subscriber, const struct pl_ring_geometry *geometry,
			   struct pl_error *error);

#endif
