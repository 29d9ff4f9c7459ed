/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection of a subscriber with the publisher at a peer. */
#ifndef PL_STREAM_CONNECT_H
#define PL_STREAM_CONNECT_H

#include "stream/publisher.h"
#include "stream/subscriber.h"

/* Subscribes at the peer, and begins to read. After a failure the subscriber has no connection. */
int pl_subscriber_connect(struct pl_subscriber *subscriber, struct pl_peer *peer, uint64_t deadline,
			  struct pl_error *error);
/* subscriber.c: leaves the present peer, and waits until no read uses the memory. */
void pl_subscriber_detach(struct pl_subscriber *subscriber);
/* subscriber_memory.c: allocates memory for all frames, unless it is there. Returns -EBUSY if the old one is used. */
int pl_subscriber_allocate(struct pl_subscriber *subscriber, const struct pl_ring_geometry *geometry,
			   struct pl_error *error);

#endif
