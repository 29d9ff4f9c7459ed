/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Choice of the rails that carry a transfer: those between cards near the memory at both ends. Memory to which all
 * cards are alike uses the rails that are connected first. The initiator makes further rails when a transfer needs
 * them first; an acceptor asks it to.
 *
 * A transfer waits for the first connection of its rails, and for a moment while they connect again. After that any
 * rail that is up carries it.
 */
#include "fabric/verbs/memory/near.h"
#include "fabric/verbs/verbs.h"

void verbs_choices_open(struct verbs_endpoint *endpoint)
{
	endpoint->choices[0] = (struct verbs_choice){ .rails = (uint8_t)((1u << endpoint->rail_count) - 1), .known = true };
	endpoint->choice_count = 1;
}

uint16_t verbs_port_numbers(const struct verbs_endpoint *endpoint, unsigned places)
{
	uint16_t mask = 0;

	for (unsigned i = 0; i < endpoint->port_count; i++)
		if (endpoint->ports[i]->place < VERBS_PLACES && places & 1u << endpoint->ports[i]->place)
			mask |= (uint16_t)(1u << i);
	return mask;
}

/*
 * Makes a choice: by the initiator at once, by the acceptor with a question. Without room for the question the transfer uses the
 * choice of all rails, and a later one asks.
 */
static uint8_t add_choice(struct verbs_endpoint *endpoint, unsigned near, uint16_t far)
{
	uint8_t number = (uint8_t)endpoint->choice_count;
	struct verbs_choice *choice = &endpoint->choices[number];
	struct pl_control control = { .type = PL_CONTROL_RAILS };
	int rc;

	if (number == VERBS_CHOICES)
		return 0;
	*choice = (struct verbs_choice){ .near = near, .far = far };
	if (endpoint->base.peer->initiator) {
		endpoint->choice_count++;
		choice->known = true;
		choice->rails = verbs_rails_between(endpoint, verbs_port_numbers(endpoint, near), far);
		return number;
	}
	control.rails.acceptor = verbs_port_numbers(endpoint, near);
	control.rails.initiator = far;
	rc = pl_channel_send(&endpoint->base.peer->channel, &control);
	if (pl_channel_left_out(rc))
		return 0;
	endpoint->choice_count++;
	/* The peer is lost otherwise. */
	choice->known = rc < 0;
	return number;
}

uint8_t verbs_choose(struct verbs_endpoint *endpoint, unsigned near, uint16_t far)
{
	if (!near && !far)
		return 0;
	for (unsigned i = 1; i < endpoint->choice_count; i++)
		if (endpoint->choices[i].near == near && endpoint->choices[i].far == far)
			return (uint8_t)i;
	return endpoint->rail_count ? add_choice(endpoint, near, far) : 0;
}

/* Returns the rails of a mask that carry such transfers now. */
static uint8_t live_among(const struct verbs_endpoint *endpoint, uint8_t mask, uint8_t number,
			  const struct verbs_remote_key *target)
{
	const struct verbs_choice *choice = &endpoint->choices[number];
	uint8_t refused = target ? target->refused : 0, up = 0, coming = 0;

	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		const struct verbs_rail *rail = &endpoint->rails[i];

		if (!(mask & 1u << i))
			continue;
		if (rail->link == VERBS_UP)
			up |= (uint8_t)(1u << i) & (uint8_t)~refused;
		else if (choice->rails & 1u << i && rail->wait_until && pl_now() < rail->wait_until)
			coming |= (uint8_t)(1u << i);
	}
	if (up & choice->rails)
		return up & choice->rails;
	return coming || !choice->known ? 0 : up;
}

uint8_t verbs_live_rails(const struct verbs_endpoint *endpoint, uint8_t number, const struct verbs_remote_key *target)
{
	return live_among(endpoint, UINT8_MAX, number, target);
}

uint8_t verbs_rails_with_atomics(const struct verbs_endpoint *endpoint)
{
	uint8_t able = 0;

	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (endpoint->rails[i].device->attributes.atomic_cap != IBV_ATOMIC_NONE)
			able |= (uint8_t)(1u << i);
	return able;
}

uint8_t verbs_live_atomic_rails(const struct verbs_endpoint *endpoint, uint8_t number,
				const struct verbs_remote_key *target)
{
	return live_among(endpoint, verbs_rails_with_atomics(endpoint), number, target);
}

struct verbs_device *verbs_device_of(const struct verbs_endpoint *endpoint, uint8_t number)
{
	const struct verbs_choice *choice = &endpoint->choices[number];
	uint8_t live = verbs_live_rails(endpoint, number, NULL);
	uint8_t rails = live ? live : choice->rails;
	uint16_t near = verbs_port_numbers(endpoint, choice->near);

	if (rails)
		return endpoint->rails[__builtin_ctz(rails)].device;
	return near ? endpoint->ports[__builtin_ctz(near)]->device : endpoint->rails[0].device;
}

/* -- waiting -------------------------------------------------------------------------------------- */

void verbs_park(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	const struct verbs_choice *choice = &endpoint->choices[work->choice];
	uint64_t until = 0;

	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (choice->rails & 1u << i)
			until = PL_MAX(until, endpoint->rails[i].wait_until);
	pl_list_remove(&work->link);
	pl_list_append(&endpoint->parked, &work->link);
	if (until && pl_list_empty(&endpoint->parking.link))
		pl_timer_set(endpoint->base.peer->home, &endpoint->parking, until);
}

void verbs_unpark(struct verbs_endpoint *endpoint)
{
	if (pl_list_empty(&endpoint->parked))
		return;
	pl_timer_clear(endpoint->base.peer->home, &endpoint->parking);
	pl_list_splice(&endpoint->parked, &endpoint->waiting);
	pl_list_splice(&endpoint->waiting, &endpoint->parked);
}

void verbs_parking_ended(struct pl_timer *timer)
{
	struct verbs_endpoint *endpoint = pl_container_of(timer, struct verbs_endpoint, parking);
	uint64_t now = pl_now();

	/* Work that is parked again waits for a rail to come up: it must not set the timer to a time that has passed. */
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (endpoint->rails[i].wait_until <= now)
			endpoint->rails[i].wait_until = 0;
	verbs_unpark(endpoint);
	verbs_flush(endpoint);
}

/* -- messages ------------------------------------------------------------------------------------- */

static int asked(struct verbs_endpoint *endpoint, const struct pl_rails_message *message)
{
	struct pl_control control = { .type = PL_CONTROL_RAILS, .rails = *message };

	if (message->rails || message->acceptor >> endpoint->far_port_count || message->initiator >> endpoint->port_count)
		return -EPROTO;
	control.rails.rails = verbs_rails_between(endpoint, message->initiator, message->acceptor);
	/* Transfers of the other end wait for the answer. */
	pl_channel_send_awaited(&endpoint->base.peer->channel, &control);
	return 0;
}

static int answered(struct verbs_endpoint *endpoint, const struct pl_rails_message *message)
{
	if (message->rails >> endpoint->rail_count)
		return -EPROTO;
	for (unsigned i = 1; i < endpoint->choice_count; i++) {
		struct verbs_choice *choice = &endpoint->choices[i];

		if (choice->known || choice->far != message->initiator ||
		    verbs_port_numbers(endpoint, choice->near) != message->acceptor)
			continue;
		choice->rails = message->rails;
		choice->known = true;
		verbs_unpark(endpoint);
		verbs_flush(endpoint);
		return 0;
	}
	return -EPROTO;
}

int verbs_rails_message(struct pl_endpoint *base, const struct pl_rails_message *message)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);

	if (endpoint->closing)
		return 0;
	return base->peer->initiator ? asked(endpoint, message) : answered(endpoint, message);
}
