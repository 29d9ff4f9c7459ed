/* SPDX-License-Identifier: BSD-2-Clause */
/* Public functions about a peer. */
#include <stdio.h>

#include "core/fabric.h"
#include "core/trust.h"

void pl_peer_set_user_data(struct pl_peer *peer, uint64_t user_data)
{
	/* Events that are queued later have this value: pl_completion_push_event(). */
	pl_lock_take(&peer->context->queue_lock);
	atomic_store(&peer->user_data, user_data);
	pl_lock_release(&peer->context->queue_lock);
}

uint64_t pl_peer_user_data(const struct pl_peer *peer)
{
	return atomic_load(&peer->user_data);
}

void pl_peer_format_address(const struct pl_peer *peer, char *text, size_t size)
{
	const struct sockaddr_storage *address = &peer->address;

	/* Not connected yet: the address that the peer dials, or waits to dial. */
	if (address->ss_family == AF_UNSPEC && peer->target_count)
		address = &peer->targets[peer->target_next ? peer->target_next - 1 : 0];
	pl_address_format((const struct sockaddr *)address, text, size);
}

int pl_peer_query(struct pl_peer *peer, struct pl_peer_info *info)
{
	struct pl_peer_info full = PL_PEER_INFO_INIT;
	size_t size = info->size;

	if (size < sizeof(size) || size > sizeof(full))
		return -EINVAL;
	pl_address_format((struct sockaddr *)&peer->address, full.address, sizeof(full.address));
	pl_address_format((struct sockaddr *)&peer->local_address, full.local_address, sizeof(full.local_address));
	snprintf(full.fabric, sizeof(full.fabric), "%s", peer->ops->name);
	snprintf(full.software, sizeof(full.software), "%s", peer->software);
	snprintf(full.program, sizeof(full.program), "%s", peer->program);
	full.lanes = peer->ops->lanes(peer->endpoint);
	full.authenticated = pl_tls_has_key(peer->context->tls) || pl_trust_decides(peer->context, !peer->initiator);
	full.encrypted = peer->encrypt;
	full.same_host = peer->same_host;
	full.connected = atomic_load(&peer->state) == PL_PEER_UP;
	full.rate = atomic_load(&peer->bucket.rate);
	full.rate_waits = atomic_load(&peer->bucket.waits);
	if (peer->ops->lanes_missing)
		full.lanes_missing = peer->ops->lanes_missing(peer->endpoint, &full.lanes_status);
	memcpy(info, &full, size);
	info->size = size;
	return 0;
}
