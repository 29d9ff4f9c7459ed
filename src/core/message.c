/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sending messages. A small message carries its bytes. A large message sends a rendezvous frame with a key, by which
 * the peer reads the bytes once a receive is posted. A window limits the messages that the peer must hold.
 */
#include <stdio.h>

#include "core/fastpath.h"

const char pl_message_staging_reason[] =
	"messages of up to 8 KiB go through host memory on their way from or to a GPU's";

static bool window_open(const struct pl_peer *peer)
{
	return peer->sent - peer->consumed_there < peer->window;
}

/*
 * Finds the bytes of a small message; copies them if their memory may change or go later. Returns 0, -ENOMEM or
 * -EFAULT.
 */
PL_ALWAYS_INLINE int find_bytes(struct pl_operation *operation, const void **bytes)
{
	const struct pl_segment *segment = operation->segments;
	struct pl_memory *memory;
	int rc;

	*bytes = operation->copy;
	if (operation->copy || operation->total == 0)
		return 0;
	memory = &segment->region->memory;
	*bytes = memory->fragile ? NULL : pl_memory_host_pointer(memory, segment->offset);
	if (*bytes)
		return 0;
	*bytes = operation->copy = pl_alloc(&operation->context->allocator, operation->total);
	if (!operation->copy)
		return -ENOMEM;
	rc = pl_memory_copy_out(memory, segment->offset, operation->copy, operation->total);
	return rc;
}

/* The control channel is encrypted. Returns as pl_channel_send(); -EINPROGRESS: it has no room. */
static int send_by_control(struct pl_peer *peer, struct pl_operation *operation)
{
	const struct pl_control message = {
		.type = PL_CONTROL_MESSAGE,
		.message = { operation->tag, (uint16_t)operation->total, operation->copy },
	};

	if (!pl_channel_has_room(&peer->channel))
		return -EINPROGRESS;
	operation->completion.visible = PL_VISIBLE_ON_WIRE;
	peer->sent_by_control = true;
	return pl_channel_send(&peer->channel, &message);
}

PL_ALWAYS_INLINE int send_eager(struct pl_peer *peer, struct pl_operation *operation)
{
	struct pl_frame frame = { .type = PL_FRAME_EAGER, .key = operation->tag, .length = (uint32_t)operation->total };
	const void *bytes = NULL;
	int rc = operation->gathered ? 0 : find_bytes(operation, &bytes);

	operation->completion.bytes = operation->total;
	atomic_store_explicit(&operation->rails, 1, memory_order_relaxed);
	if (operation->attributes.flags & PL_CONFIDENTIAL && !peer->encrypt)
		return send_by_control(peer, operation);
	return rc < 0 ? rc : peer->ops->message(peer->endpoint, &frame, bytes, operation);
}

/* Returns the list of the large send with that cookie. Each list is short, although the peer answers in any order. */
static struct pl_list *rendezvous_list(struct pl_peer *peer, uint32_t cookie)
{
	return &peer->rendezvous[cookie % PL_RENDEZVOUS_LISTS];
}

static int send_rendezvous(struct pl_peer *peer, struct pl_operation *operation)
{
	struct pl_frame frame = { .type = PL_FRAME_RENDEZVOUS, .key = operation->tag, .offset = operation->total };
	uint8_t blob[PL_KEY_BLOB_MAX];
	int rc = pl_key_create(peer, operation, blob);

	if (rc < 0)
		return rc;
	frame.cookie = operation->cookie = ++peer->next_cookie;
	frame.length = (uint32_t)rc;
	pl_list_append(rendezvous_list(peer, frame.cookie), &operation->queue_link);
	/* The peer's FINISH ends this pending count. */
	atomic_fetch_add(&operation->pending, 1);
	rc = peer->ops->message(peer->endpoint, &frame, blob, operation);
	if (rc < 0) {
		pl_list_remove(&operation->queue_link);
		pl_operation_pending_done(operation);
		pl_key_destroy(peer, operation->source_key);
		operation->source_key = 0;
	}
	return rc;
}

static int notify(struct pl_peer *peer, struct pl_operation *operation)
{
	struct pl_frame frame = { .type = PL_FRAME_NOTIFY,
				  .offset = operation->attributes.notify,
				  .length = (uint32_t)operation->attributes.notify_length };

	return peer->ops->message(peer->endpoint, &frame, operation->copy, operation);
}

/* True if the peer cannot read a large message, because the fabric's devices do not reach its memory. */
static bool is_out_of_reach(const struct pl_operation *operation, int rc)
{
	const struct pl_region *region = operation->segment_count ? operation->segments->region : NULL;

	return (rc == -EFAULT || rc == -ENOTSUP) && operation->completion.kind == PL_KIND_SEND &&
	       operation->total > operation->peer->eager_max && region && pl_memory_staged(&region->memory);
}

static void fail_to_send(struct pl_operation *operation, int rc)
{
	struct pl_error error;
	char hint[160];

	if (is_out_of_reach(operation, rc)) {
		snprintf(hint, sizeof(hint),
			 "send at most %u bytes, or memory of the host, or use the fabric tcp; see: peerlane routes",
			 (unsigned)operation->peer->eager_max);
		pl_fail(&error, rc, "SEND-NOT-REGISTERED", "message", NULL, hint,
			"no network device takes the device memory of the message, which the peer would read");
	} else {
		pl_fail_errno(&error, rc, "SEND-FAILED", "message", NULL);
	}
	pl_operation_fail(operation, rc, &error);
}

PL_ALWAYS_INLINE void transmit(struct pl_peer *peer, struct pl_operation *operation)
{
	int rc;

	peer->sent++;
	if (operation->completion.kind != PL_KIND_SEND)
		rc = notify(peer, operation);
	else if (operation->total > peer->eager_max)
		rc = send_rendezvous(peer, operation);
	else
		rc = send_eager(peer, operation);
	if (rc == -EINPROGRESS) {
		peer->sent--;
		operation->held_back = true;
		pl_list_prepend(&peer->unsent, &operation->queue_link);
		return;
	}
	if (rc < 0) {
		peer->sent--;
		fail_to_send(operation, rc);
	}
	pl_fast_pending_done(operation);
}

/* Returns false if the bytes would be staged and the operation forbids that. */
static bool note_message_staging(struct pl_operation *operation)
{
	const struct pl_peer *peer = operation->peer;
	bool large = operation->total > peer->eager_max;
	const char *why = large ? peer->ops->staging_reason : pl_message_staging_reason;

	if (!why)
		return true;
	operation->gathered = !large && peer->ops->gathers && peer->ops->gathers(peer->endpoint, operation);
	if (operation->gathered)
		return true;
	pl_operation_staged(operation, operation->total, why);
	if (!(operation->attributes.flags & PL_REQUIRE_DIRECT))
		return true;
	pl_operation_not_direct(operation, why);
	return false;
}

PL_ALWAYS_INLINE bool is_staged(const struct pl_operation *operation)
{
	return operation->completion.kind == PL_KIND_SEND && !operation->copy && operation->total &&
	       pl_memory_staged(&operation->segments->region->memory);
}

bool pl_message_take_turn(struct pl_peer *peer)
{
	if (!pl_list_empty(&peer->unsent) || !window_open(peer))
		return false;
	peer->sent++;
	return true;
}

static void transmit_waiting(struct pl_peer *peer)
{
	while (!pl_list_empty(&peer->unsent) && window_open(peer)) {
		struct pl_operation *operation = pl_list_first(&peer->unsent, struct pl_operation, queue_link);

		if (operation->leaving || operation->held_back)
			break;
		pl_list_remove(&operation->queue_link);
		transmit(peer, operation);
	}
}

void pl_message_resume(struct pl_peer *peer)
{
	if (!pl_list_empty(&peer->unsent))
		pl_list_first(&peer->unsent, struct pl_operation, queue_link)->held_back = false;
	transmit_waiting(peer);
}

/* -- small messages from device memory, copied in batches ------------------------------------------- */

static void finish_copy_ahead(struct pl_small *small, int status)
{
	struct pl_operation *operation = pl_container_of(small, struct pl_operation, small);
	struct pl_peer *peer = operation->peer;

	operation->leaving = false;
	if (status < 0)
		fail_to_send(operation, status);
	if (status < 0 || atomic_load(&operation->canceled)) {
		pl_list_remove(&operation->queue_link);
		pl_operation_pending_done(operation);
	}
	transmit_waiting(peer);
}

/* Starts a batched copy of the bytes. Returns false if the message can be sent now, or copies its bytes at its turn. */
static bool start_copy_ahead(struct pl_operation *operation)
{
	const struct pl_segment *segment = operation->segments;
	struct pl_memory *memory = &segment->region->memory;
	struct pl_context *context = operation->context;
	struct pl_copier *copier = pl_context_copier(context, operation->home);
	struct pl_peer *peer = operation->peer;
	int rc;

	if (operation->gathered || operation->total > PL_SMALL_MAX || !copier || !window_open(peer))
		return false;
	operation->copy = pl_alloc(&context->allocator, operation->total);
	if (!operation->copy)
		return false;
	rc = pl_copier_alone(copier, memory, segment->offset, operation->copy, operation->total);
	if (rc == 1)
		return false;
	operation->small.done = finish_copy_ahead;
	if (rc == 0 && pl_copier_small(copier, &context->slot_pool, &operation->small, memory, segment->offset,
				       operation->copy, operation->total, false)) {
		operation->leaving = true;
		pl_list_append(&peer->unsent, &operation->queue_link);
		return true;
	}
	pl_free(&context->allocator, operation->copy);
	operation->copy = NULL;
	return false;
}

void pl_message_send(struct pl_operation *operation)
{
	struct pl_peer *peer = operation->peer;

	if (is_staged(operation)) {
		if (!note_message_staging(operation)) {
			pl_operation_pending_done(operation);
			return;
		}
		if (start_copy_ahead(operation))
			return;
	}
	if (pl_list_empty(&peer->unsent) && window_open(peer)) {
		transmit(peer, operation);
		return;
	}
	/* Only the first waiting message meets the limit. */
	if (pl_list_empty(&peer->unsent))
		pl_peer_note(peer, PL_EVENT_LIMIT_REACHED,
			     "messages wait: the other end's program has not consumed those before");
	pl_list_append(&peer->unsent, &operation->queue_link);
}

int pl_message_credited(struct pl_peer *peer, uint64_t consumed)
{
	if (consumed > peer->sent || consumed < peer->consumed_there)
		return -EPROTO;
	peer->consumed_there = consumed;
	transmit_waiting(peer);
	return 0;
}

void pl_message_dropped(struct pl_peer *peer, uint8_t type)
{
	if (type != PL_FRAME_EAGER && type != PL_FRAME_RENDEZVOUS && type != PL_FRAME_NOTIFY)
		return;
	peer->sent--;
	transmit_waiting(peer);
}

int pl_message_finished(struct pl_peer *peer, uint32_t cookie, uint64_t status)
{
	pl_list_for_each(at, rendezvous_list(peer, cookie)) {
		struct pl_operation *operation = pl_list_entry(at, struct pl_operation, queue_link);
		uint64_t key = operation->source_key;
		struct pl_error error;

		if (operation->cookie != cookie)
			continue;
		pl_list_remove(at);
		if (status == PL_WIRE_OK) {
			operation->completion.bytes = operation->total;
			atomic_store(&operation->rails, 1);
		} else {
			pl_wire_fail(&error, (uint32_t)status, "pl_send", NULL);
			pl_operation_fail(operation, error.code, &error);
		}
		operation->source_key = 0;
		pl_key_destroy(peer, key);
		pl_fast_pending_done(operation);
		return 0;
	}
	return 0; /* the send was cancelled */
}

void pl_message_finish(struct pl_peer *peer, uint32_t cookie, enum pl_wire_status status)
{
	struct pl_frame frame = { .type = PL_FRAME_FINISH, .cookie = cookie, .offset = status };
	struct pl_error error;

	if (atomic_load(&peer->state) != PL_PEER_UP)
		return;
	if (peer->ops->message(peer->endpoint, &frame, NULL, NULL) < 0) {
		/* Without FINISH the sender would wait until its timeout. */
		pl_fail_memory(&error, "message");
		pl_peer_lose(peer, &error);
	}
}

/* -- credits for the peer's window -------------------------------------------------------------- */

void pl_message_credit(struct pl_peer *peer)
{
	uint64_t consumed = atomic_load(&peer->consumed);
	struct pl_frame frame = { .type = PL_FRAME_CREDIT, .offset = consumed };

	if (atomic_load(&peer->state) != PL_PEER_UP || consumed == atomic_load(&peer->consumed_told))
		return;
	/* Without memory now, the next message carries the credit. */
	if (peer->ops->message(peer->endpoint, &frame, NULL, NULL) == 0)
		atomic_store(&peer->consumed_told, consumed);
}

void pl_message_credit_run(struct pl_task *task)
{
	struct pl_peer *peer = pl_container_of(task, struct pl_peer, credit_task);

	pl_message_credit(peer);
	pl_peer_unpin(peer);
}
