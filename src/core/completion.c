/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue of completions for pl_poll(), and the descriptor that signals it. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/bulk_sender.h"
#include "core/error_log.h"
#include "core/message.h"

/* Most events of closed peers that wait for a program that has never collected all completions, and may collect none. */
#define ORPHANS_MAX 1024u
/* Most completions that a batch gathers, so that the program goes on meanwhile. */
#define GATHERED_MAX 16u
/* Most notifications of closed peers that wait while the program holds notifications: those of 16 peers at their limit. */
#define ORPHANS_HELD_MAX (16u * 1024)

/* Makes the descriptor readable if there are completions. The caller holds the queue's lock. */
static void announce_completed(struct pl_context *context)
{
	uint64_t one = 1;

	if (context->event_fd < 0 || context->announced || pl_list_empty(&context->completed))
		return;
	context->announced = true;
	(void)!write(context->event_fd, &one, sizeof(one));
}

/* The program may have collected all completions of the batch meanwhile. */
static void announce_batch(struct pl_batch_end *end)
{
	struct pl_context *context = pl_container_of(end, struct pl_context, announcement);

	pl_lock_take(&context->queue_lock);
	announce_completed(context);
	pl_lock_release(&context->queue_lock);
}

void pl_completion_init(struct pl_context *context)
{
	pl_lock_init(&context->queue_lock);
	pl_list_init(&context->completed);
	pl_list_init(&context->held_notifications);
	context->event_fd = context->poll_fd = -1;
	context->announcement.run = announce_batch;
}

/* Appends an operation to the queue, and announces it now or at the end of a batch. The caller holds the queue's lock. */
static inline void queue_completed(struct pl_context *context, struct pl_operation *operation)
{
	struct pl_engine *home = operation->home;
	bool was_empty = pl_list_empty(&context->completed);

	pl_list_append(&context->completed, &operation->queue_link);
	if (was_empty)
		atomic_store_explicit(&context->any_completed, true, memory_order_release);
	if (context->event_fd < 0 || context->announced)
		return;
	if (!pl_engine_held(home) || !home->batching)
		announce_completed(context);
	else if (!home->announcement)
		home->announcement = &context->announcement;
}

/* -- completions of a batch ----------------------------------------------------------------------- */

/* Moves the completions that this engine has gathered to the queue. The caller holds the queue's lock. */
static void queue_gathered(struct pl_context *context, struct pl_engine *home)
{
	if (!home->gathered_count)
		return;
	home->gathered_count = 0;
	pl_list_splice(&context->completed, &home->gathered);
	atomic_store_explicit(&context->any_completed, true, memory_order_release);
}

void pl_completions_queue(struct pl_engine *home)
{
	struct pl_context *context = pl_list_first(&home->gathered, struct pl_operation, queue_link)->context;

	pl_lock_take(&context->queue_lock);
	queue_gathered(context, home);
	pl_lock_release(&context->queue_lock);
}

static void announce_gathered(struct pl_batch_end *end)
{
	struct pl_engine *home = pl_container_of(end, struct pl_engine, gathered_end);
	struct pl_context *context = home->gathered_context;

	pl_lock_take(&context->queue_lock);
	queue_gathered(context, home);
	announce_completed(context);
	pl_lock_release(&context->queue_lock);
}

/*
 * True if other threads poll the queue, whose lock is taken once for all completions of a batch. Only those of a peer at home: what
 * frees a peer has its home's lock first, and no batch holds them then.
 */
static bool may_gather(const struct pl_operation *operation)
{
	const struct pl_engine *home = operation->home;

	return pl_engine_held(home) && home->batching && home->poll_time && operation->peer &&
	       operation->completion.kind < PL_COUNTED_KINDS;
}

/* Not inline: it would cost other completions instructions, too. */
__attribute__((noinline)) static void gather_completed(struct pl_context *context, struct pl_operation *operation)
{
	struct pl_engine *home = operation->home;

	pl_list_append(&home->gathered, &operation->queue_link);
	home->gathered_context = context;
	home->gathered_end.run = announce_gathered;
	home->announcement = &home->gathered_end;
	if (++home->gathered_count == GATHERED_MAX)
		pl_completions_queue(home);
}

void pl_completion_push(struct pl_context *context, struct pl_operation *operation)
{
	if (may_gather(operation)) {
		gather_completed(context, operation);
		return;
	}
	pl_lock_take(&context->queue_lock);
	queue_completed(context, operation);
	pl_lock_release(&context->queue_lock);
}

/* Queues an event, unless the program holds notifications. The caller holds the queue's lock. */
static void queue_event(struct pl_context *context, struct pl_operation *event)
{
	if (context->holds_notifications && event->completion.kind == PL_KIND_NOTIFIED)
		pl_list_append(&context->held_notifications, &event->queue_link);
	else
		queue_completed(context, event);
}

void pl_completion_push_event(struct pl_peer *peer, struct pl_operation *event)
{
	pl_lock_take(&peer->context->queue_lock);
	event->completion.user_data = atomic_load(&peer->user_data);
	if (pl_engine_held(peer->home))
		queue_gathered(peer->context, peer->home);
	if (peer->unaccepted)
		pl_list_append(&peer->held_events, &event->queue_link);
	else
		queue_event(peer->context, event);
	pl_lock_release(&peer->context->queue_lock);
}

void pl_completion_release_events(struct pl_peer *peer)
{
	pl_lock_take(&peer->context->queue_lock);
	peer->unaccepted = false;
	while (!pl_list_empty(&peer->held_events)) {
		struct pl_operation *event = pl_list_first(&peer->held_events, struct pl_operation, queue_link);

		pl_list_remove(&event->queue_link);
		queue_event(peer->context, event);
	}
	pl_lock_release(&peer->context->queue_lock);
}

/* Returns the number of events. */
static size_t free_events(struct pl_list *events)
{
	size_t count = 0;

	for (; !pl_list_empty(events); count++) {
		struct pl_operation *event = pl_list_first(events, struct pl_operation, queue_link);

		pl_list_remove(&event->queue_link);
		pl_operation_free(event);
	}
	return count;
}

/* True for an event of a closed peer. */
static bool is_orphan(const struct pl_operation *operation)
{
	return !operation->completion.peer &&
	       (operation->completion.kind == PL_KIND_NOTIFIED || operation->completion.kind == PL_KIND_LOST);
}

/* Returns the number of events of closed peers in the list, with those of this one. */
static size_t forget_peer_of(struct pl_list *list, const struct pl_peer *peer)
{
	size_t orphans = 0;

	pl_list_for_each(at, list) {
		struct pl_operation *operation = pl_list_entry(at, struct pl_operation, queue_link);

		if (operation->completion.peer == peer)
			operation->completion.peer = operation->peer = NULL;
		orphans += is_orphan(operation);
	}
	return orphans;
}

/* Takes the oldest ones of these events of closed peers out of a list, down to `most`. The caller holds the queue's lock. */
static void take_old_orphans(struct pl_list *list, size_t orphans, size_t most, struct pl_list *old)
{
	pl_list_for_each_safe(at, next, list) {
		struct pl_operation *operation = pl_list_entry(at, struct pl_operation, queue_link);

		if (orphans <= most)
			return;
		if (!is_orphan(operation))
			continue;
		pl_list_remove(at);
		pl_list_append(old, at);
		orphans--;
	}
}

static void forget_peer_of_handles(struct pl_operation_store *store, const struct pl_peer *peer)
{
	pl_latch_take(&store->pool.latch);
	pl_list_for_each(at, &store->handles) {
		struct pl_operation *operation = pl_list_entry(at, struct pl_operation, handle_link);

		/*
		 * Operations of this peer are all done, and another thread may collect them now. Completions of others
		 * may change.
		 */
		if (atomic_load(&operation->state) != PL_DONE || operation->completion.peer != peer)
			continue;
		__atomic_store_n(&operation->completion.peer, NULL, __ATOMIC_RELAXED);
		operation->peer = NULL;
	}
	pl_latch_release(&store->pool.latch);
}

void pl_completions_forget_peer(struct pl_context *context, struct pl_peer *peer)
{
	struct pl_list old, old_held;
	size_t orphans;

	pl_list_init(&old);
	pl_list_init(&old_held);
	atomic_fetch_add(&context->closed_peers, 1);
	/* No accept has delivered the peer, and nothing reports events of it any more. */
	free_events(&peer->held_events);
	pl_lock_take(&context->queue_lock);
	/* Counted afresh, so that pl_poll(), which runs much more often, keeps no count. */
	orphans = forget_peer_of(&context->completed, peer);
	if (!context->collects)
		take_old_orphans(&context->completed, orphans, ORPHANS_MAX, &old);
	orphans = forget_peer_of(&context->held_notifications, peer);
	take_old_orphans(&context->held_notifications, orphans, ORPHANS_HELD_MAX, &old_held);
	pl_lock_release(&context->queue_lock);
	free_events(&old);
	/* The program may want these, although it is slow. */
	pl_count_lost_events(&context->counters, free_events(&old_held));
	for (unsigned i = 0; i < context->engine_count; i++)
		forget_peer_of_handles(&context->engines[i]->operations, peer);
}

/* Consumes the event of a queue that became empty. The caller holds the queue's lock. */
static void end_announcement(struct pl_context *context)
{
	uint64_t value;

	atomic_store_explicit(&context->any_completed, false, memory_order_release);
	if (context->announced)
		(void)!read(context->event_fd, &value, sizeof(value));
	/* The compiler makes one store of both. */
	context->announced = false;
	context->collects = true;
}

void pl_notifications_hold(struct pl_context *context, bool hold)
{
	pl_lock_take(&context->queue_lock);
	context->holds_notifications = hold;
	if (hold) {
		pl_list_for_each_safe(at, next, &context->completed) {
			if (pl_list_entry(at, struct pl_operation, queue_link)->completion.kind != PL_KIND_NOTIFIED)
				continue;
			pl_list_remove(at);
			pl_list_append(&context->held_notifications, at);
		}
		if (pl_list_empty(&context->completed))
			end_announcement(context);
	} else if (!pl_list_empty(&context->held_notifications)) {
		pl_list_splice(&context->completed, &context->held_notifications);
		atomic_store_explicit(&context->any_completed, true, memory_order_release);
		announce_completed(context);
	}
	pl_lock_release(&context->queue_lock);
}

/* Moves up to `n` finished operations to `taken`. Consumes the event when the queue is empty. */
static void take_completed(struct pl_context *context, struct pl_list *taken, int n)
{
	int count = 0;

	pl_lock_take(&context->queue_lock);
	while (count < n && !pl_list_empty(&context->completed)) {
		struct pl_list *first = context->completed.next;
		struct pl_operation *operation = pl_list_entry(first, struct pl_operation, queue_link);

		pl_list_remove(first);
		pl_list_append(taken, first);
		count++;
		/* Pins the peer: another thread may close it as soon as the lock is free. */
		if (operation->completion.kind == PL_KIND_NOTIFIED && operation->peer &&
		    pl_message_consumed(operation->peer)) {
			atomic_fetch_add(&operation->peer->pins, 1);
			operation->credit_due = true;
		}
	}
	if (count && pl_list_empty(&context->completed))
		end_announcement(context);
	pl_lock_release(&context->queue_lock);
}

static void fill_completion(struct pl_operation *operation, struct pl_completion *completion)
{
	struct pl_context *context = operation->context;
	struct pl_error general;

	*completion = operation->completion;
	if (completion->status < 0) {
		if (!operation->error)
			pl_fail_errno(&general, completion->status, "OPERATION-FAILED", NULL, NULL);
		completion->error = pl_error_log_add(&context->errors, operation->error ? operation->error : &general);
	}
	if (completion->kind == PL_KIND_NOTIFIED && operation->copy) {
		/* pl_notification_free() frees it. */
		completion->data = operation->copy;
		operation->copy = NULL;
	}
	if (operation->credit_due && !pl_engine_post(operation->home, &operation->peer->credit_task))
		pl_peer_unpin(operation->peer);
	pl_operation_free(operation);
}

/*
 * Makes progress on the only engine. Operations that complete meanwhile go straight into the array. Returns their
 * number.
 */
static int progress_into(struct pl_context *context, struct pl_completion *completions, int n)
{
	struct pl_sink sink = { .completions = completions, .most = n };
	struct pl_engine *engine = context->engines[0];

	if (!pl_engine_try(engine))
		return 0; /* another thread makes progress */
	if (n > 0)
		context->sink = &sink;
	pl_engine_progress_held(engine);
	context->sink = NULL;
	pl_engine_leave(engine);
	return sink.count;
}

/* Collects operations that completed while no thread was in pl_poll(). */
static int collect_queued(struct pl_context *context, struct pl_completion *completions, int n)
{
	struct pl_list taken;
	int count = 0;

	if (n <= 0 || !atomic_load_explicit(&context->any_completed, memory_order_acquire))
		return 0;
	pl_list_init(&taken);
	take_completed(context, &taken, n);
	/* The list is not unlinked element by element: it ends with this function. */
	pl_list_for_each_safe(at, next, &taken)
		fill_completion(pl_list_entry(at, struct pl_operation, queue_link), &completions[count++]);
	return count;
}

void pl_notification_free(struct pl_context *context, struct pl_completion *completion)
{
	if (completion->kind != PL_KIND_NOTIFIED)
		return;
	pl_free(&context->allocator, completion->data);
	completion->data = NULL;
	completion->data_length = 0;
}

int pl_completion_error(struct pl_context *context, const struct pl_completion *completion, struct pl_error *error)
{
	if (completion->status < 0 && !pl_error_log_find(&context->errors, completion->error, error))
		pl_fail_errno(error, completion->status, "OPERATION-FAILED", NULL, NULL);
	return completion->status;
}

int pl_poll(struct pl_context *context, struct pl_completion *completions, int n)
{
	/* The queue comes first: later completions go straight into the array only if the queue is empty. */
	int count = collect_queued(context, completions, n);

	if (!pl_context_manual(context)) {
		if (!atomic_load_explicit(&context->any_completed, memory_order_relaxed))
			pl_bulk_sender_waits(context);
		return count;
	}
	count += progress_into(context, completions + count, n - count);
	return count + collect_queued(context, completions + count, n - count);
}

/* Without threads two things wake the program: sockets, and completions not yet collected. */
static int join_descriptors(struct pl_context *context)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN };
	int rc = fd < 0 ? -errno : 0;

	if (rc == 0 && epoll_ctl(fd, EPOLL_CTL_ADD, context->event_fd, &event) < 0)
		rc = -errno;
	for (unsigned i = 0; rc == 0 && i < context->engine_count; i++) {
		if (epoll_ctl(fd, EPOLL_CTL_ADD, context->engines[i]->epoll_fd, &event) < 0)
			rc = -errno;
		atomic_store(&context->engines[i]->eager_idle, true);
	}
	if (rc < 0 && fd >= 0)
		close(fd);
	return rc < 0 ? rc : fd;
}

int pl_fd(struct pl_context *context)
{
	int rc = 0;

	pl_lock_take(&context->queue_lock);
	if (context->event_fd < 0) {
		context->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (context->event_fd < 0)
			rc = -errno;
		else
			announce_completed(context);
	}
	if (rc == 0 && context->poll_fd < 0) {
		rc = pl_context_manual(context) ? join_descriptors(context) : context->event_fd;
		if (rc >= 0)
			context->poll_fd = rc;
	} else if (rc == 0) {
		rc = context->poll_fd;
	}
	pl_lock_release(&context->queue_lock);
	return rc;
}
