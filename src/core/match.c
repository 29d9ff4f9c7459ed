/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving messages: arrivals match posted receives by tag, both in order. */
#include "core/fastpath.h"

/* Message that arrived before its receive. */
struct pl_arrival {
	struct pl_list link;
	struct pl_frame frame;
	uint8_t payload[]; /* the message, or the source's remote key */
};

static bool receive_accepts_tag(const struct pl_operation *receive, uint64_t tag)
{
	return (tag & receive->mask) == (receive->tag & receive->mask);
}

static void consume(struct pl_peer *peer)
{
	if (pl_message_consumed(peer))
		pl_message_credit(peer);
}

static void fail_receive(struct pl_operation *receive, int code, const char *id, const char *fact, const char *hint)
{
	struct pl_error error;

	pl_fail(&error, code, id, "pl_receive", NULL, hint, "%s", fact);
	pl_operation_fail(receive, code, &error);
}

static void too_long(struct pl_operation *receive, uint64_t length)
{
	struct pl_error error;

	receive->completion.bytes = length;
	pl_fail(&error, -EMSGSIZE, "MESSAGE-TOO-LONG", "pl_receive", NULL, "post a larger buffer",
		"a message of %llu bytes for a buffer of %llu", (unsigned long long)length,
		(unsigned long long)receive->total);
	pl_operation_fail(receive, -EMSGSIZE, &error);
}

static void fail_unwritable(struct pl_operation *receive)
{
	fail_receive(receive, -EFAULT, "MEMORY-UNWRITABLE", "the region's memory cannot be written",
		     "keep the region mapped and writable, and files behind it whole");
}

/* -- arrivals in order; small messages into device memory are copied in batches ----------------------------- */

PL_ALWAYS_INLINE void deliver_arrival(struct pl_operation *operation)
{
	if (operation->completion.kind == PL_KIND_NOTIFIED)
		pl_completion_push_event(operation->peer, operation);
	else
		pl_fast_pending_done(operation);
}

static void queue_landing(struct pl_operation *operation, bool placed)
{
	operation->landing = true;
	operation->placed = placed;
	pl_list_append(&operation->peer->landing, &operation->queue_link);
}

/* Hands over an operation, after all that arrived before it. */
PL_ALWAYS_INLINE void arrived(struct pl_operation *operation)
{
	if (pl_list_empty(&operation->peer->landing))
		deliver_arrival(operation);
	else
		queue_landing(operation, true);
}

static void finish_landing(struct pl_small *small, int status)
{
	struct pl_operation *receive = pl_container_of(small, struct pl_operation, small);
	struct pl_list *line = &receive->peer->landing;

	receive->placed = true;
	if (status < 0)
		fail_unwritable(receive);
	while (!pl_list_empty(line)) {
		struct pl_operation *first = pl_list_first(line, struct pl_operation, queue_link);

		if (!first->placed)
			break;
		pl_list_remove(&first->queue_link);
		first->landing = false;
		deliver_arrival(first);
	}
}

/* Starts a batched copy into device memory. Returns false if the caller must copy now. */
static bool start_landing(struct pl_operation *receive, struct pl_memory *memory, const void *payload, size_t length)
{
	struct pl_copier *copier = pl_context_copier(receive->context, receive->home);

	_Static_assert(PL_SMALL_MAX >= PL_EAGER_MAX, "no message is longer");
	receive->small.done = finish_landing;
	if (!copier || !pl_copier_small(copier, &receive->context->slot_pool, &receive->small, memory,
					receive->segments->offset, (void *)payload, length, true))
		return false;
	queue_landing(receive, false);
	return true;
}

PL_ALWAYS_INLINE void place_eager(struct pl_operation *receive, const struct pl_frame *frame, const void *payload)
{
	const struct pl_segment *segment = receive->segments;
	struct pl_memory *memory = segment->region ? &segment->region->memory : NULL;

	receive->completion.tag = frame->key;
	if (frame->length > receive->total) {
		too_long(receive, frame->length);
	} else if (!memory) {
		atomic_store_explicit(&receive->rails, 1, memory_order_relaxed);
	} else if (frame->length && pl_memory_staged(memory) && (receive->attributes.flags & PL_REQUIRE_DIRECT)) {
		pl_operation_not_direct(receive, pl_message_staging_reason);
	} else {
		if (pl_memory_staged(memory))
			pl_operation_staged(receive, frame->length, pl_message_staging_reason);
		receive->completion.bytes = frame->length;
		atomic_store_explicit(&receive->rails, 1, memory_order_relaxed);
		if (frame->length && pl_memory_staged(memory) && start_landing(receive, memory, payload, frame->length))
			return;
		if (frame->length && pl_memory_copy_in(memory, segment->offset, payload, frame->length) < 0)
			fail_unwritable(receive);
	}
	arrived(receive);
}

/* -- large messages: fetched by a read ---------------------------------------------------------- */

bool pl_message_has_arrived(struct pl_operation *operation)
{
	struct pl_operation *fetch = operation->parent ? operation : operation->child;

	return operation->landing || (fetch && !pl_fetch_decide(fetch, PL_FETCH_STOPPED));
}

static void finish_fetch(struct pl_operation *child)
{
	struct pl_operation *receive = child->parent;
	int status = child->completion.status;

	receive->child = NULL;
	if (status == -EACCES)
		/* The key no longer exists: the sender gave up. */
		fail_receive(receive, -ECANCELED, "PEER-CANCELED", "the sender withdrew the message", NULL);
	else if (status < 0)
		pl_operation_fail(receive, status, child->error);
	else
		receive->completion.bytes = child->total;
	atomic_store(&receive->rails, atomic_load(&child->rails));
	receive->completion.visible = child->completion.visible;
	receive->completion.visibility = child->completion.visibility;
	if (atomic_load(&child->staged))
		pl_operation_staged(receive, atomic_load(&child->staged), atomic_load(&child->staged_reason));
	if (atomic_load_explicit(&child->fetch_end, memory_order_relaxed) != PL_FETCH_FINISHED)
		pl_message_finish(child->peer, child->cookie, status == 0 ? PL_WIRE_OK : PL_WIRE_CANCELED);
	pl_fast_pending_done(receive);
	if (status < 0)
		pl_operation_free(child);
	else
		pl_fast_free_held(child);
}

static struct pl_remote *source_of(struct pl_peer *peer, const struct pl_frame *frame, const void *payload)
{
	struct pl_remote *source = pl_pool_first(&peer->home->spare_sources);

	if (!source)
		source = pl_alloc(&peer->context->allocator, sizeof(*source));
	if (!source)
		return NULL;
	/* Without the key and the token, of which little is used. */
	memset(source, 0, offsetof(struct pl_remote, key));
	pl_list_init(&source->link);
	pl_list_init(&source->peer_link);
	source->context = peer->context;
	source->unlisted = peer->home;
	/* The fetch is its only user, and begins without an atomic instruction. */
	source->used = 1;
	atomic_init(&source->references, 1);
	source->length = frame->offset;
	source->rights = PL_ACCESS_READ;
	source->key_length = (uint16_t)frame->length;
	memcpy(source->key, payload, frame->length);
	return source;
}

static void fetch_message(struct pl_peer *peer, struct pl_operation *receive, const struct pl_frame *frame,
			  const void *payload)
{
	struct pl_attributes attributes = { .size = sizeof(attributes), .timeout = UINT64_MAX };
	struct pl_operation *child = NULL;
	struct pl_segment segment;
	struct pl_remote *source;

	attributes.flags = receive->attributes.flags & PL_REQUIRE_DIRECT;
	attributes.visible = receive->attributes.visible;
	receive->completion.tag = frame->key;
	if (frame->offset > receive->total) {
		too_long(receive, frame->offset);
		pl_message_finish(peer, frame->cookie, PL_WIRE_TOO_LONG);
		pl_operation_pending_done(receive);
		return;
	}
	if (!receive->segments->region) {
		/* An empty message by rendezvous: there are no bytes to read. */
		pl_message_finish(peer, frame->cookie, PL_WIRE_OK);
		pl_operation_pending_done(receive);
		return;
	}
	source = source_of(peer, frame, payload);
	segment = (struct pl_segment){ .region = receive->segments[0].region,
				       .offset = receive->segments[0].offset,
				       .length = frame->offset };
	/* The memory of the home engine's pool stays with its thread. */
	if (source)
		child = pl_fast_new_held(peer, PL_KIND_READ, &attributes, &segment);
	if (!child) {
		pl_free(&peer->context->allocator, source);
		fail_receive(receive, -ENOMEM, "NO-MEMORY", "out of memory", NULL);
		pl_message_finish(peer, frame->cookie, PL_WIRE_INTERNAL);
		pl_operation_pending_done(receive);
		return;
	}
	child->single.remote = source;
	child->internal = true;
	child->finished = finish_fetch;
	child->parent = receive;
	child->cookie = frame->cookie;
	child->completion.posted = receive->completion.posted;
	child->deadline = UINT64_MAX;
	receive->child = child;
	if (pl_operation_begin(child))
		peer->ops->post(peer->endpoint, child);
}

PL_ALWAYS_INLINE void deliver(struct pl_peer *peer, struct pl_operation *receive, const struct pl_frame *frame,
			      const void *payload)
{
	if (frame->type == PL_FRAME_EAGER)
		place_eager(receive, frame, payload);
	else
		fetch_message(peer, receive, frame, payload);
	consume(peer);
}

static int keep_arrival(struct pl_peer *peer, const struct pl_frame *frame, const void *payload)
{
	struct pl_arrival *arrival = pl_alloc(&peer->context->allocator, sizeof(*arrival) + frame->length);

	if (!arrival)
		return -ENOMEM;
	arrival->frame = *frame;
	if (frame->length)
		memcpy(arrival->payload, payload, frame->length);
	pl_list_append(&peer->unexpected, &arrival->link);
	return 0;
}

PL_ALWAYS_INLINE bool match(struct pl_peer *peer, const struct pl_frame *frame, const void *payload)
{
	pl_list_for_each(at, &peer->receives) {
		struct pl_operation *receive = pl_list_entry(at, struct pl_operation, queue_link);

		if (!receive_accepts_tag(receive, frame->key))
			continue;
		pl_list_remove(at);
		deliver(peer, receive, frame, payload);
		return true;
	}
	return false;
}

PL_ALWAYS_INLINE int message_arrived(struct pl_peer *peer, const struct pl_frame *frame, const void *payload)
{
	if (frame->type == PL_FRAME_RENDEZVOUS && frame->length > PL_KEY_BLOB_MAX)
		return -EPROTO;
	if (match(peer, frame, payload))
		return 0;
	/* Runs receives that were posted while the engine was busy: they came before this message. */
	if (pl_engine_run_tasks(peer->home, pl_receive_run) && match(peer, frame, payload))
		return 0;
	return keep_arrival(peer, frame, payload);
}

static int notified(struct pl_peer *peer, const struct pl_frame *frame, const void *payload)
{
	struct pl_operation *operation;

	/* The program never gets a peer whose opening failed. A thread that found the peer may keep it alive for a while. */
	if (peer->dead)
		return 0;
	operation = pl_operation_new(peer->context, peer, PL_KIND_NOTIFIED, NULL, NULL);
	if (!operation)
		return -ENOMEM;
	if (frame->length) {
		operation->copy = pl_alloc(&peer->context->allocator, frame->length);
		if (!operation->copy) {
			pl_operation_discard(operation);
			return -ENOMEM;
		}
		memcpy(operation->copy, payload, frame->length);
		operation->completion.data_length = frame->length;
	}
	operation->completion.value = frame->offset;
	operation->completion.posted = operation->completion.completed = pl_now();
	arrived(operation);
	return 0;
}

static int receive_notification(struct pl_peer *peer, const struct pl_frame *frame)
{
	if (frame->type == PL_FRAME_FINISH)
		return pl_message_finished(peer, frame->cookie, frame->offset);
	if (frame->type == PL_FRAME_CREDIT)
		return pl_message_credited(peer, frame->offset);
	return -EPROTO;
}

int pl_message_arrived(struct pl_peer *peer, const struct pl_frame *frame, const void *payload)
{
	bool message = frame->type == PL_FRAME_EAGER || frame->type == PL_FRAME_RENDEZVOUS;

	if (!message && frame->type != PL_FRAME_NOTIFY && frame->type != PL_FRAME_SKIP)
		return receive_notification(peer, frame);
	/* The sender must respect the window of the hello. */
	if (++peer->arrived - atomic_load(&peer->consumed) > PL_MESSAGE_WINDOW)
		return -EPROTO;
	if (message)
		return message_arrived(peer, frame, payload);
	if (frame->type == PL_FRAME_NOTIFY)
		return notified(peer, frame, payload);
	consume(peer);
	return 0;
}

void pl_receive_run(struct pl_task *task)
{
	struct pl_operation *receive = pl_operation_of_task(task);
	struct pl_peer *peer = receive->peer;
	bool lost = atomic_load(&peer->state) == PL_PEER_LOST;

	pl_fast_prefetch_submitted(receive->home);
	pl_list_for_each(at, &peer->unexpected) {
		struct pl_arrival *arrival = pl_list_entry(at, struct pl_arrival, link);

		if (!receive_accepts_tag(receive, arrival->frame.key) ||
		    (lost && arrival->frame.type != PL_FRAME_EAGER))
			continue;
		pl_list_remove(at);
		if (lost) {
			place_eager(receive, &arrival->frame, arrival->payload);
		} else {
			pl_operation_begin(receive);
			deliver(peer, receive, &arrival->frame, arrival->payload);
		}
		pl_free(&peer->context->allocator, arrival);
		return;
	}
	if (pl_operation_begin(receive))
		pl_list_append(&peer->receives, &receive->queue_link);
}

void pl_messages_init(struct pl_peer *peer)
{
	pl_list_init(&peer->receives);
	pl_list_init(&peer->unexpected);
	pl_list_init(&peer->landing);
	pl_list_init(&peer->unsent);
	for (unsigned i = 0; i < PL_RENDEZVOUS_LISTS; i++)
		pl_list_init(&peer->rendezvous[i]);
}

void pl_messages_drop(struct pl_peer *peer)
{
	while (!pl_list_empty(&peer->unexpected)) {
		struct pl_arrival *arrival = pl_list_first(&peer->unexpected, struct pl_arrival, link);

		pl_list_remove(&arrival->link);
		pl_free(&peer->context->allocator, arrival);
	}
}
