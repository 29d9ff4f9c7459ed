/* SPDX-License-Identifier: BSD-2-Clause */
/* Remote keys, at the end that uses them. */
#include "fabric/verbs/verbs.h"

static void forget_remote_key(struct pl_remote *remote)
{
	struct verbs_remote_key *target = remote->fabric_data;

	/* The endpoint may be closing. */
	pthread_mutex_lock(&target->state->lock);
	pl_list_remove(&target->link);
	pthread_mutex_unlock(&target->state->lock);
	pl_free(&remote->context->allocator, target);
}

/*
 * Returns the rails whose keys are windows that are bound to their present connections. Another key of a window is not
 * valid any more, or not yet.
 */
static uint8_t read_bound_rails(struct pl_reader *reader, const struct verbs_endpoint *endpoint, unsigned rails)
{
	uint8_t bound = 0;

	for (unsigned i = 0; i < rails; i++) {
		uint16_t generation = pl_get_u16(reader);

		if (!reader->bad && i < endpoint->rail_count && endpoint->rails[i].link == VERBS_UP && endpoint->rails[i].generation == generation)
			bound |= (uint8_t)(1u << i);
	}
	return bound;
}

/* A truncated key covers only the rails that it has keys for, possibly none. */
static void decode_remote_key(const struct pl_remote *remote, const struct verbs_endpoint *endpoint,
			      struct verbs_remote_key *target)
{
	struct pl_reader reader;
	uint8_t present, rails, order;

	pl_reader_init(&reader, remote->key, remote->key_length);
	target->id = pl_get_u64(&reader);
	target->address = pl_get_u64(&reader);
	present = pl_get_u8(&reader);
	rails = pl_get_u8(&reader);
	target->near = pl_get_u16(&reader) & (uint16_t)((1u << VERBS_PORTS_MAX) - 1);
	for (unsigned i = 0; i < rails; i++) {
		uint32_t rkey = pl_get_u32(&reader);

		if (reader.bad || i >= endpoint->rail_count)
			continue;
		target->rkeys[i] = rkey;
		target->present |= present & (uint8_t)(1u << i);
	}
	target->windows = pl_get_u8(&reader) & (uint8_t)((1u << endpoint->rail_count) - 1);
	if (reader.bad)
		target->windows = 0;
	/* An ordering that this release does not know needs a flush by the card's read. */
	order = pl_get_u8(&reader);
	target->order = reader.bad ? PL_ORDER_HOST : (enum pl_memory_order)PL_MIN(order, PL_ORDER_READ);
	target->present &= (uint8_t)~target->windows | read_bound_rails(&reader, endpoint, rails);
}

struct verbs_remote_key *verbs_remote_key_make(struct pl_remote *remote, struct verbs_endpoint *endpoint)
{
	struct verbs_remote_key *target = pl_zalloc(&remote->context->allocator, sizeof(*target));

	if (!target)
		return NULL;
	pl_list_init(&target->link);
	target->state = endpoint->state;
	decode_remote_key(remote, endpoint, target);
	pthread_mutex_lock(&endpoint->state->lock);
	pl_list_append(&endpoint->targets, &target->link);
	pthread_mutex_unlock(&endpoint->state->lock);
	verbs_mw_ask(endpoint, target);
	remote->fabric_data = target;
	remote->forget = forget_remote_key;
	return target;
}
