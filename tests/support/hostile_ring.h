/* SPDX-License-Identifier: BSD-2-Clause */
/* A stream's ring, and its keys in the hands of a hostile subscriber. */
#ifndef TEST_HOSTILE_RING_H
#define TEST_HOSTILE_RING_H

#include <peerlane/stream.h>

/* Returns a subscriber's key of the payload, or else of the control part, and lets it claim all rights. */
struct pl_remote *hostile_ring_key(struct pl_subscriber *subscriber, bool payload);
/* Returns the memory of this process in which the local fabric has mapped the key's, or NULL. */
void *hostile_ring_mapping(const struct pl_remote *remote);
/* Returns the ring itself. */
const uint8_t *ring_bytes(const struct pl_publisher *publisher, bool payload, size_t *length);

#endif
