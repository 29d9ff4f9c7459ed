/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys of windows at the importer. A window belongs to one connection of a rail, so this end asks for its key over each
 * rail that comes up after the import.
 */
#include "fabric/verbs/verbs.h"

static void ask_for_key(struct verbs_rail *rail, struct pl_list *list, struct verbs_remote_key *target)
{
	target->present &= (uint8_t)~verbs_bit_of(rail);
	target->windows |= verbs_bit_of(rail);
	verbs_mw_send(rail, list, PL_FRAME_ASK_KEY, target->id, 0);
}

bool verbs_ask_missing(struct verbs_endpoint *endpoint, struct verbs_remote_key *target, uint8_t rails)
{
	uint8_t left = rails & (uint8_t)~target->refused;

	if (!left || left & target->windows || !endpoint->base.peer->asks)
		return false;
	ask_for_key(&endpoint->rails[__builtin_ctz(left)], &endpoint->waiting, target);
	return true;
}

bool verbs_obtainable(const struct verbs_endpoint *endpoint, const struct verbs_remote_key *target)
{
	bool any_up = false;

	if (target->present | target->windows)
		return true;
	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		if (endpoint->rails[i].link != VERBS_UP)
			continue;
		any_up = true;
		if (endpoint->base.peer->asks && !(target->refused & 1u << i))
			return true;
	}
	return !any_up;
}

void verbs_mw_ask(struct verbs_endpoint *endpoint, struct verbs_remote_key *target)
{
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if ((target->windows & ~target->present & verbs_bit_of(&endpoint->rails[i])) &&
		    endpoint->rails[i].link == VERBS_UP)
			ask_for_key(&endpoint->rails[i], &endpoint->again, target);
}

static const char by_window[] = "verbs: the network card reads and writes the region itself, by a memory window";

void verbs_imported(struct pl_endpoint *base, struct pl_remote *remote)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	struct verbs_remote_key *target = verbs_remote_key_make(remote, endpoint);

	if (!target || !target->windows)
		return;
	remote->path_reason = by_window;
	verbs_flush(endpoint);
}

void verbs_key_told(struct verbs_rail *rail, uint64_t id, uint64_t answer)
{
	struct verbs_endpoint *endpoint = rail->endpoint;

	pthread_mutex_lock(&endpoint->state->lock);
	pl_list_for_each(at, &endpoint->targets) {
		struct verbs_remote_key *target = pl_list_entry(at, struct verbs_remote_key, link);

		if (target->id != id || !(target->windows & verbs_bit_of(rail)))
			continue;
		if (answer > UINT32_MAX) {
			target->windows &= (uint8_t)~verbs_bit_of(rail);
			target->refused |= verbs_bit_of(rail);
			break;
		}
		target->rkeys[rail->index] = (uint32_t)answer;
		target->present |= verbs_bit_of(rail);
		break;
	}
	pthread_mutex_unlock(&endpoint->state->lock);
}

void verbs_mw_rail_up(struct verbs_rail *rail)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	bool renewed = rail->far_renewals != rail->far_told && endpoint->base.peer->asks;

	rail->far_renewals = rail->far_told;
	pthread_mutex_lock(&endpoint->state->lock);
	pl_list_for_each(at, &endpoint->targets) {
		struct verbs_remote_key *target = pl_list_entry(at, struct verbs_remote_key, link);

		if (renewed)
			target->windows |= verbs_bit_of(rail);
		/* The rail may be new, between cards near the memory. */
		if (target->windows & verbs_bit_of(rail) ||
		    (target->near & 1u << rail->far_port && !(target->present & verbs_bit_of(rail))))
			ask_for_key(rail, &endpoint->again, target);
	}
	pthread_mutex_unlock(&endpoint->state->lock);
}
