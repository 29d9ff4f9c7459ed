/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows of large messages. The peer reads the bytes of a message through a window on the region's only
 * registration, so a message registers nothing. Windows are bound and invalidated by requests, and used again: both
 * stay out of the kernel. The send completes when the invalidation is done, or when the queue pair is in the error
 * state, so the peer cannot reach the buffer any more.
 *
 * The rendezvous frame follows the bind request on its own queue pair, and waits for those of other rails. It tells the
 * connections of the windows. A peer that has another connection asks for the key, as after an import.
 */
#include "fabric/verbs/data/request.h"
#include "fabric/verbs/data/signal.h"
#include "fabric/verbs/verbs.h"

/* Most unbound windows that a rail keeps. */
#define WINDOWS_KEPT 64u

static struct verbs_rail *rail_of(const struct verbs_mw *window)
{
	return (struct verbs_rail *)window->base.device;
}

/* -- the life of a window -------------------------------------------------------------------------- */

static bool post_invalidation(struct verbs_rail *rail, struct verbs_work *work)
{
	struct ibv_send_wr *bad, request = {
		.wr_id = verbs_number_request(rail, work),
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = work->window->rkey,
	};

	if (ibv_post_send(rail->qp, &request, &bad))
		return false;
	verbs_mark_signaled(rail);
	verbs_account(rail, work);
	pl_list_append(&rail->posted, &work->link);
	return true;
}

/* Begins to invalidate a bound window, for which its send waits. Returns false if no request can be posted. */
static bool invalidate(struct verbs_mw *window)
{
	struct verbs_rail *rail = rail_of(window);
	struct verbs_work *work;

	if (!pl_engine_held(rail->endpoint->base.peer->home) || rail->link != VERBS_UP ||
	    window->generation != rail->generation || rail->posted_count >= VERBS_SEND_DEPTH ||
	    rail->queue->posted >= rail->queue->room)
		return false;
	work = verbs_work_only(rail, VERBS_INVALIDATE);
	if (!work)
		return false;
	work->window = window;
	if (!post_invalidation(rail, work)) {
		work->window = NULL;
		verbs_work_free(rail->endpoint, work);
		return false;
	}
	work->operation = window->operation;
	atomic_fetch_add(&work->operation->pending, 1);
	return true;
}

/* The key ends. The rail may be gone if the window is not bound. A window that is being invalidated is not finished. */
static void release_message_window(struct pl_registration *base)
{
	struct verbs_mw *window = pl_container_of(base, struct verbs_mw, base);

	if (window->mw && invalidate(window))
		pl_list_remove(&base->link);
	else
		verbs_mw_release(base);
}

void verbs_mw_invalidated(struct verbs_work *work)
{
	struct verbs_rail *rail = work->only;

	/* verbs_mw_work_over() ends a window that is not kept. */
	if (rail->window_count == WINDOWS_KEPT)
		return;
	pl_list_prepend(&rail->windows, &work->window->base.link);
	rail->window_count++;
	work->window = NULL;
}

bool verbs_mw_take(struct verbs_rail *rail, struct verbs_mw *window)
{
	struct verbs_mw *unbound;

	if (pl_list_empty(&rail->windows))
		return false;
	unbound = pl_list_first(&rail->windows, struct verbs_mw, base.link);
	pl_list_remove(&unbound->base.link);
	rail->window_count--;
	window->mw = unbound->mw;
	window->rkey = unbound->rkey;
	pl_free(unbound->allocator, unbound);
	return true;
}

void verbs_mw_forget(struct verbs_rail *rail)
{
	while (!pl_list_empty(&rail->windows)) {
		struct verbs_mw *window = pl_list_first(&rail->windows, struct verbs_mw, base.link);

		pl_list_remove(&window->base.link);
		verbs_mw_free(window);
	}
	rail->window_count = 0;
	pl_list_for_each(at, &rail->posted) {
		const struct verbs_work *work = pl_list_entry(at, struct verbs_work, link);

		if (work->kind != VERBS_INVALIDATE)
			continue;
		verbs_mw_dealloc(rail, work->window->mw);
		work->window->mw = NULL;
	}
}

/* -- messages -------------------------------------------------------------------------------------- */

/* Returns true if the peer and the device use windows for the bytes of a message. */
static bool uses_windows(const struct verbs_rail *rail, const struct pl_key *key)
{
	return rail->endpoint->base.peer->bound_messages && verbs_mw_enabled(rail->endpoint->state, rail->device) &&
	       verbs_mw_binds(key->memory) && key->length <= atomic_load(&rail->device->window_max);
}

int verbs_mw_make_message(struct verbs_rail *rail, struct pl_key *key, const char **refusal)
{
	int rc;

	*refusal = "";
	if (!uses_windows(rail, key))
		return 0;
	rc = verbs_mw_add(rail, key, verbs_region_of(key), release_message_window);
	if (rc == -EINPROGRESS)
		return rc;
	if (rc == 0)
		*refusal = NULL;
	return 0;
}

static void add_bind(struct verbs_rail *rail, struct verbs_answer *answer, uint64_t key)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	struct verbs_work *work = rail->link == VERBS_UP ? verbs_work_only(rail, VERBS_BIND) : NULL;

	/* The peer asks over rails without a key. */
	if (!work)
		return;
	work->frame.key = key;
	work->answer = answer;
	answer->pending++;
	endpoint->questions++;
	pl_list_append(&endpoint->waiting, &work->link);
}

bool verbs_mw_bind_message(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct verbs_answer *answer;
	struct pl_reader reader;
	uint64_t key;
	size_t at;

	if (work->frame.type != PL_FRAME_RENDEZVOUS || work->frame.length <= VERBS_KEY_COUNT)
		return false;
	at = verbs_key_windows(work->payload[VERBS_KEY_COUNT]);
	if (work->frame.length <= at || !work->payload[at])
		return false;
	answer = pl_zalloc(&endpoint->state->context->allocator, sizeof(*answer));
	if (!answer)
		return false;
	answer->for_message = true;
	answer->message = work;
	work->answer = answer;
	pl_reader_init(&reader, work->payload, work->frame.length);
	key = pl_get_u64(&reader);
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (work->payload[at] & 1u << i)
			add_bind(&endpoint->rails[i], answer, key);
	return true;
}

bool verbs_mw_message_goes(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	const struct verbs_answer *answer = work->answer;
	const struct verbs_rail *rail = verbs_frame_rail(endpoint);

	if (!rail || (answer->posted & ~(1u << rail->index)) ||
	    answer->pending != (unsigned)__builtin_popcount(answer->posted))
		return false;
	verbs_mw_message_left(endpoint, work);
	return true;
}

void verbs_mw_message_left(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct verbs_answer *answer = work->answer;

	work->answer = NULL;
	answer->message = NULL;
	if (!answer->pending)
		pl_free(&endpoint->state->context->allocator, answer);
}
