/* SPDX-License-Identifier: BSD-2-Clause */
/* Where connections are awaited: one place for each local address. */
#include "fabric/verbs/verbs.h"

#define BACKLOG 1024

static bool same_host_part(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr, 16);
}

static struct verbs_listener *listener_new(struct verbs_state *state, struct sockaddr_storage *address)
{
	struct verbs_listener *listener = pl_zalloc(&state->context->allocator, sizeof(*listener));

	if (!listener) {
		errno = ENOMEM;
		return NULL;
	}
	listener->address = *address;
	if (!state->library->rdma_create_id(state->cms[0].channel, &listener->id, NULL, RDMA_PS_TCP)) {
		if (!state->library->rdma_bind_addr(listener->id, (struct sockaddr *)address) &&
		    !state->library->rdma_listen(listener->id, BACKLOG)) {
			pl_list_append(&state->listeners, &listener->link);
			return listener;
		}
		state->library->rdma_destroy_id(listener->id);
	}
	pl_free(&state->context->allocator, listener);
	return NULL;
}

int verbs_listen(struct verbs_state *state, const struct sockaddr_storage *local)
{
	struct sockaddr_storage address = verbs_address(local, 0);
	struct verbs_listener *listener = NULL;
	int rc;

	pthread_mutex_lock(&state->lock);
	pl_list_for_each(at, &state->listeners) {
		listener = pl_list_entry(at, struct verbs_listener, link);
		if (same_host_part(&listener->address, &address))
			break;
		listener = NULL;
	}
	if (!listener)
		listener = listener_new(state, &address);
	rc = listener ? ntohs(state->library->rdma_get_src_port(listener->id)) : -errno;
	pthread_mutex_unlock(&state->lock);
	return rc;
}
