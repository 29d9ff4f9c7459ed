/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations that begin after the work of a CUDA stream. They wait in peer->after_stream, which the engine polls. A
 * message or notification behind a waiting message waits too, because messages keep their order.
 */
#include <time.h>

#include "core/fastpath.h"

/* Time that pl_stream_wait() polls without sleeping, and its sleeps afterwards. */
#define SPIN (PL_NS_PER_MS / 20)
#define NAP (PL_NS_PER_MS / 50)

/* Returns 1 if the operation's stream has reached its mark, 0 if not, -EFAULT if the work on the stream failed. */
static int stream_reached(const struct pl_operation *operation)
{
	return operation->after ? pl_stream_mark_done(operation->after) : 1;
}

static void fail_after_stream(struct pl_operation *operation)
{
	struct pl_error error;

	pl_fail(&error, -EFAULT, "STREAM-FAILED", "cuEventQuery", NULL, "check the program's kernels and copies",
		"the work on the stream before this operation failed");
	pl_operation_stop(operation, -EFAULT, &error);
}

/* Moves the operations that can run into a list of their own, in order: each one that runs may end others. */
static void take_ready(struct pl_peer *peer, struct pl_list *ready)
{
	bool message_waits = false;

	pl_list_for_each_safe(at, next, &peer->after_stream) {
		struct pl_operation *operation = pl_list_entry(at, struct pl_operation, queue_link);
		bool waits = (message_waits && pl_fast_keeps_order(operation)) || stream_reached(operation) == 0;

		message_waits |= waits && pl_fast_is_message(operation);
		if (waits)
			continue;
		pl_list_remove(&operation->queue_link);
		pl_list_append(ready, &operation->queue_link);
	}
}

static bool poll_streams(struct pl_watch *watch)
{
	struct pl_peer *peer = pl_container_of(watch, struct pl_peer, stream_watch);
	struct pl_list ready;
	bool any;

	pl_list_init(&ready);
	take_ready(peer, &ready);
	any = !pl_list_empty(&ready);
	while (!pl_list_empty(&ready)) {
		struct pl_operation *operation = pl_list_first(&ready, struct pl_operation, queue_link);

		if (stream_reached(operation) < 0) {
			fail_after_stream(operation);
			continue;
		}
		pl_list_remove(&operation->queue_link);
		pl_stream_mark_free(operation->after);
		operation->after = NULL;
		pl_fast_carry(peer, operation);
	}
	if (pl_list_empty(&peer->after_stream))
		pl_watch_remove(watch);
	return any;
}

void pl_after_stream_init(struct pl_peer *peer)
{
	pl_list_init(&peer->after_stream);
	pl_watch_init(&peer->stream_watch, poll_streams);
}

void pl_after_stream(struct pl_peer *peer, struct pl_operation *operation)
{
	struct pl_copier *copier = pl_context_copier(peer->context, peer->home);
	struct pl_error error;

	pl_list_append(&peer->after_stream, &operation->queue_link);
	if (copier) {
		pl_watch_add(copier, &peer->stream_watch);
		return;
	}
	pl_fail_memory(&error, "stream");
	pl_operation_stop(operation, -ENOMEM, &error);
}

int pl_stream_wait(void *stream, uint64_t timeout, struct pl_error *error)
{
	const struct timespec nap = { .tv_nsec = NAP };
	uint64_t begun = pl_now(), deadline = pl_deadline(begun, timeout), now;
	struct pl_stream_mark *mark;
	int rc = pl_stream_mark_new(stream, &mark, error);

	if (rc < 0)
		return rc;
	while ((rc = pl_stream_mark_done(mark)) == 0 && (now = pl_now()) < deadline)
		if (now - begun > SPIN)
			nanosleep(&nap, NULL);
	pl_stream_mark_free(mark);
	if (rc == 0)
		return pl_fail(error, -ETIMEDOUT, "STREAM-TIMEOUT", "pl_stream_wait", NULL, "allow more time",
			       "the work on the stream is not done within %.3f s",
			       (double)timeout / (double)PL_NS_PER_S);
	if (rc < 0)
		return pl_fail(error, rc, "STREAM-FAILED", "pl_stream_wait", NULL,
			       "check the program's kernels and copies", "the work on the stream failed");
	return 0;
}
