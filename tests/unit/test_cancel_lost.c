/* SPDX-License-Identifier: BSD-2-Clause */
/* pl_cancel_posted() ends an operation of a peer, and a fenced one that it releases loses the peer: all its operations end. */
#include "core/fabric.h"
#include "support/cases.h"
#include "support/pair.h"

#define LARGE (1u << 20)
#define CANCELED 1u
#define OTHER 2u
#define TAG 5u

static const struct setting setting = {
	.name = "cancel-lost", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* Replaces that of a fabric, which loses the peer if it cannot send. */
static int lose_by_message(struct pl_endpoint *endpoint, const struct pl_frame *frame, const void *payload,
			   struct pl_operation *operation)
{
	struct pl_error error;

	(void)frame;
	(void)payload;
	(void)operation;
	pl_fail_memory(&error, "message");
	pl_peer_lose(endpoint->peer, &error);
	return -ENOMEM;
}

/* Posts a large message, a fenced one, and a receive behind both. The far end, which nobody drives, answers nothing. */
static void post_all(struct pair *pair)
{
	const struct pl_buffer large = { pair->near.region, 0, LARGE }, small = { pair->near.region, 0, 8 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_peer *peer = pair->environment.near_peer;
	struct pl_error error;

	attributes.user_data = CANCELED;
	check_ok(pl_send(peer, TAG, &large, &attributes, NULL, &error), &error);
	attributes.user_data = OTHER;
	attributes.flags = PL_FENCE;
	check_ok(pl_send(peer, TAG, &small, &attributes, NULL, &error), &error);
	attributes.flags = 0;
	check_ok(pl_receive(peer, TAG, UINT64_MAX, &small, &attributes, NULL, &error), &error);
}

static void cancel_loses_peer(void *unused)
{
	const struct pl_fabric_ops *before;
	struct pl_completion completions[8];
	unsigned sends = 0, receives = 0;
	struct pl_fabric_ops ops;
	struct pair pair;
	int count;

	(void)unused;
	pair_open(&pair, &setting, LARGE);
	before = pair.environment.near_peer->ops;
	post_all(&pair);
	ops = *before;
	ops.message = lose_by_message;
	pair.environment.near_peer->ops = &ops;
	check_number(pl_cancel_posted(pair.environment.near, CANCELED), 1);
	pair.environment.near_peer->ops = before;
	check(!peer_information_of(pair.environment.near_peer).connected);
	count = pl_poll(pair.environment.near, completions, 8);
	for (int i = 0; i < count; i++) {
		check_completion(pair.environment.near, &completions[i],
				 completions[i].user_data == CANCELED ? -ECANCELED : -ENOMEM);
		sends += completions[i].kind == PL_KIND_SEND;
		receives += completions[i].kind == PL_KIND_RECEIVE;
	}
	check_number(sends, 2);
	check_number(receives, 1);
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "cancel-loses-peer", cancel_loses_peer, NULL, 30 },
};

int main(void)
{
	return cases_run("cancel-lost", cases, PL_ARRAY_SIZE(cases));
}
