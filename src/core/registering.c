/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of peers that wait while a thread of the fabric registers memory: imports to answer, and a large send to
 * announce. Each end of a registration tries them again. Many imports are answered at once then, so the answers wait for the
 * control channel.
 */
#include "core/fabric.h"

/* Most imports of a peer that wait; further ones are refused with PL_WIRE_BUSY. */
#define HELD_IMPORTS_MAX 4096
/*
 * Answers waiting for room at which this end stops reading. An importer of this release waits for fewer (IMPORTS_UNDER_WAY), so two ends
 * that import from each other go on reading each other's answers. A peer that requests more, and reads no answers, gets no more memory.
 */
#define UNSENT_ANSWERS_MAX 1024

struct held_import {
	struct pl_list link; /* peer->held_imports */
	struct pl_import import;
};

/* Answer that waits for room in the control channel. */
struct unsent_answer {
	struct pl_list link; /* peer->unsent_answers */
	struct pl_imported imported;
};

/* Without an answer the peer would wait until its timeout. */
static void lose_unanswered_peer(struct pl_peer *peer, int code)
{
	struct pl_error error;

	if (code == -ENOMEM)
		pl_fail_memory(&error, "import");
	else
		pl_fail_errno(&error, code, "PEER-LOST", "import", NULL);
	pl_peer_lose(peer, &error);
}

static void send_answer(struct pl_peer *peer, const struct pl_imported *imported)
{
	const struct pl_control answer = { .type = PL_CONTROL_IMPORTED, .imported = *imported };
	int rc = pl_channel_send(&peer->channel, &answer);

	if (rc < 0)
		lose_unanswered_peer(peer, rc);
}

static void limit_unsent_answers(struct pl_peer *peer)
{
	if (peer->unsent_answer_count >= UNSENT_ANSWERS_MAX)
		pl_channel_pause(&peer->channel);
}

void pl_import_answer(struct pl_peer *peer, const struct pl_imported *imported)
{
	struct unsent_answer *answer;

	if (pl_list_empty(&peer->unsent_answers) && pl_channel_has_room_for_answer(&peer->channel)) {
		send_answer(peer, imported);
		return;
	}
	answer = pl_alloc(&peer->context->allocator, sizeof(*answer));
	if (!answer) {
		lose_unanswered_peer(peer, -ENOMEM);
		return;
	}
	answer->imported = *imported;
	pl_list_append(&peer->unsent_answers, &answer->link);
	peer->unsent_answer_count++;
	limit_unsent_answers(peer);
}

static struct unsent_answer *first_answer(struct pl_peer *peer)
{
	struct unsent_answer *answer = pl_list_first(&peer->unsent_answers, struct unsent_answer, link);

	pl_list_remove(&answer->link);
	peer->unsent_answer_count--;
	return answer;
}

void pl_answers_resume(struct pl_peer *peer)
{
	while (!pl_list_empty(&peer->unsent_answers) && pl_channel_has_room_for_answer(&peer->channel)) {
		struct unsent_answer *answer = first_answer(peer);

		send_answer(peer, &answer->imported);
		pl_free(&peer->context->allocator, answer);
	}
	limit_unsent_answers(peer);
}

void pl_answers_drop(struct pl_peer *peer)
{
	while (!pl_list_empty(&peer->unsent_answers))
		pl_free(&peer->context->allocator, first_answer(peer));
}

/* Returns false if too many imports wait, or there is no memory. */
static bool import_hold(struct pl_peer *peer, const struct pl_import *import)
{
	struct held_import *held = NULL;

	if (peer->held_import_count < HELD_IMPORTS_MAX)
		held = pl_alloc(&peer->context->allocator, sizeof(*held));
	if (!held)
		return false;
	held->import = *import;
	pl_list_append(&peer->held_imports, &held->link);
	peer->held_import_count++;
	return true;
}

void pl_import_serve(struct pl_peer *peer, const struct pl_import *import)
{
	struct pl_imported answer;

	if (pl_grant_answer(peer, import, &answer) == -EINPROGRESS) {
		if (import_hold(peer, import))
			return;
		answer = (struct pl_imported){ .request = import->request, .status = PL_WIRE_BUSY };
		pl_peer_note_refusal(peer, 0, 0, PL_WIRE_BUSY);
	}
	if (answer.status != PL_WIRE_OK || !peer->ops->hold_answer || !peer->ops->hold_answer(peer->endpoint, &answer))
		pl_import_answer(peer, &answer);
}

void pl_peer_registered(struct pl_peer *peer)
{
	struct pl_list held;

	if (atomic_load(&peer->state) != PL_PEER_UP)
		return;
	pl_message_resume(peer);
	pl_list_init(&held);
	pl_list_splice(&held, &peer->held_imports);
	peer->held_import_count = 0;
	while (!pl_list_empty(&held)) {
		struct held_import *first = pl_list_first(&held, struct held_import, link);

		pl_list_remove(&first->link);
		if (atomic_load(&peer->state) == PL_PEER_UP)
			pl_import_serve(peer, &first->import);
		pl_free(&peer->context->allocator, first);
	}
}

void pl_held_imports_drop(struct pl_peer *peer)
{
	while (!pl_list_empty(&peer->held_imports)) {
		struct held_import *first = pl_list_first(&peer->held_imports, struct held_import, link);

		pl_list_remove(&first->link);
		pl_free(&peer->context->allocator, first);
	}
}
