/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of pairs of ports whose devices did not reach each other. Where another fabric replaces verbs, the next
 * connection over such pairs takes that fabric at once. A pair is forgotten after a minute, when
 * a connection over it succeeds, or when a device reports a change of a port.
 */
#include "fabric/verbs/verbs.h"

#define LIFETIME (60 * PL_NS_PER_S)

/* Returns the entry of a rail's pair, or NULL. The caller holds the lock. */
static struct verbs_lost_path *find_path(const struct verbs_rail *rail)
{
	struct verbs_state *state = rail->endpoint->state;

	for (unsigned i = 0; i < PL_ARRAY_SIZE(state->lost_paths); i++) {
		struct verbs_lost_path *path = &state->lost_paths[i];

		if (path->port == rail->port && verbs_gid_same(&path->gid, &rail->gid) &&
		    verbs_gid_same(&path->far_gid, &rail->far_gid))
			return path;
	}
	return NULL;
}

/* Adds a pair in place of the oldest one. The caller holds the lock. */
static void add_path(const struct verbs_rail *rail)
{
	struct verbs_state *state = rail->endpoint->state;
	struct verbs_lost_path *path = find_path(rail);

	if (!path)
		path = &state->lost_paths[state->next_lost_path++ % PL_ARRAY_SIZE(state->lost_paths)];
	*path = (struct verbs_lost_path){
		.port = rail->port, .gid = rail->gid, .far_gid = rail->far_gid, .until = pl_now() + LIFETIME
	};
}

void verbs_paths_remember(struct pl_endpoint *base)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);

	pthread_mutex_lock(&endpoint->state->lock);
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (endpoint->rails[i].unreached)
			add_path(&endpoint->rails[i]);
	pthread_mutex_unlock(&endpoint->state->lock);
}

bool verbs_paths_are_lost(const struct verbs_endpoint *endpoint)
{
	bool all = true;

	pthread_mutex_lock(&endpoint->state->lock);
	for (unsigned i = 0; i < endpoint->rail_count && all; i++) {
		const struct verbs_lost_path *path = find_path(&endpoint->rails[i]);

		all = path && pl_now() < path->until;
	}
	pthread_mutex_unlock(&endpoint->state->lock);
	return all;
}

void verbs_path_found(const struct verbs_rail *rail)
{
	struct verbs_lost_path *path;

	pthread_mutex_lock(&rail->endpoint->state->lock);
	path = find_path(rail);
	if (path)
		path->port = NULL;
	pthread_mutex_unlock(&rail->endpoint->state->lock);
}

void verbs_paths_forget(struct verbs_state *state)
{
	pthread_mutex_lock(&state->lock);
	memset(state->lost_paths, 0, sizeof(state->lost_paths));
	pthread_mutex_unlock(&state->lock);
}
