/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/hostile_ring.h"

#include "core/remote.h"
#include "fabric/local/local.h"
#include "stream/publisher.h"
#include "stream/subscriber.h"
#include "support/check.h"

struct pl_remote *hostile_ring_key(struct pl_subscriber *subscriber, bool payload)
{
	struct pl_remote *remote = payload ? subscriber->payload : subscriber->control;

	check(remote && pl_remote_rights(remote) == PL_ACCESS_READ);
	remote->rights = PL_ACCESS_ALL;
	return remote;
}

void *hostile_ring_mapping(const struct pl_remote *remote)
{
	const struct local_access *access = remote->fabric_data;

	return access ? access->mapping : NULL;
}

const uint8_t *ring_bytes(const struct pl_publisher *publisher, bool payload, size_t *length)
{
	const struct pl_region *region = payload ? publisher->payload : publisher->control;

	*length = region->memory.length;
	return pl_region_address(region);
}
