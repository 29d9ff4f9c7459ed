/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages to and fro.  A written message is noticed by polling the memory that it is written to, as a program that
 * waits for one-sided writes does; a sent one by its receive.  Each message carries its round, and the last one of a
 * run a flag: a written one in its markers, a sent one in its tag.
 */
#include "bench/perf/pingpong.h"

#include <stdatomic.h>

#include "bench/perf/pattern.h"
#include "bench/perf/post.h"
#include "bench/perf/progress.h"
#include "bench/perf/receives.h"

#define LAST (1ull << 63)
/* Polls of memory between two polls of completions: while an own completion is outstanding, else for errors only. */
#define POLLS_PER_PROGRESS 32
#define POLLS_PER_CHECK 1024

/* Waits until at most `most` own messages are in flight. */
static int wait_own_messages(struct bench_endpoint *ep, uint64_t most)
{
	while (ep->pipeline.posted - ep->pipeline.completed > most) {
		int rc = bench_progress(ep);

		if (rc == 0)
			rc = bench_spin(ep, ep->timeout);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Writes markers into the next message to be posted. */
static inline int write_next_markers(struct bench_endpoint *ep, const struct bench_number_pool *pool, uint64_t value)
{
	size_t offset = pool->free[pool->free_count - 1] * ep->layout.stride;

	bench_markers_write(ep->local.bytes + offset, ep->plan.size, value);
	return bench_buffer_sync_in(ep, &ep->local, offset, ep->plan.size);
}

/* Sending and waiting are part of the measured time, so both are inlined. */
static inline __attribute__((always_inline)) int send_round(struct bench_endpoint *ep, uint64_t value)
{
	struct bench_number_pool *pool = &ep->pipeline.pools[0];

	/* The answer may arrive before the completion; until that the message must not change. */
	if (!pool->free_count && wait_own_messages(ep, ep->plan.depth - 1) < 0)
		return ep->error.code;
	if (ep->plan.operation->needs_receive)
		ep->tag = BENCH_MESSAGE_ROUND(value) | (value & LAST ? BENCH_MESSAGE_LAST : BENCH_MESSAGE_DATA);
	else if (write_next_markers(ep, pool, value) < 0)
		return ep->error.code;
	return bench_post(ep, pool, false);
}

/* Returns the marker of the message of this round; 0 if the message has not arrived. */
static inline uint64_t poll_message_marker(const struct bench_endpoint *ep, const void *message, uint64_t round)
{
	uint64_t size = ep->plan.size, value = bench_marker_last(message, size);

	/* A message of at most one block has a single marker. */
	if ((value & ~LAST) != round || (size >= BENCH_BLOCK && !bench_markers_equal(message, size, value)))
		return 0;
	/* The rest of the message is read after the markers, also by processors that reorder loads. */
	atomic_thread_fence(memory_order_acquire);
	return value;
}

static inline int wait_written_message(struct bench_endpoint *ep, uint64_t *value)
{
	const void *message = ep->exposed.bytes;

	for (uint32_t polls = 1;; polls++) {
		/* Completions of own messages are collected while the peer works. */
		uint32_t between = ep->pipeline.completed < ep->pipeline.posted ? POLLS_PER_PROGRESS : POLLS_PER_CHECK;
		bool progress = polls % between == 1;
		int rc = 0;

		if (ep->exposed.host_copy && bench_buffer_poll(ep, &ep->exposed, ep->plan.size) < 0)
			return ep->error.code;
		*value = poll_message_marker(ep, message, ep->round);
		if (*value)
			return 0;
		if (!progress && ep->one_sided)
			continue;
		if (progress)
			rc = bench_progress(ep);
		else
			pl_poll(ep->context, NULL, 0);
		if (rc == 0)
			rc = bench_spin(ep, ep->timeout);
		if (rc < 0)
			return rc;
	}
}

static inline int wait_sent_message(struct bench_endpoint *ep, uint64_t *value)
{
	int rc = bench_receives_repost(ep);

	if (rc < 0)
		return rc;
	while (ep->received < ep->round) {
		rc = bench_progress(ep);
		if (rc == 0)
			rc = bench_idle(ep, ep->timeout);
		if (rc < 0)
			return rc;
	}
	*value = ep->round | ((ep->received_tag & BENCH_MESSAGE_LAST) == BENCH_MESSAGE_LAST ? LAST : 0);
	if (ep->received_tag >> BENCH_MESSAGE_SHIFT << BENCH_MESSAGE_SHIFT != BENCH_MESSAGE_ROUND(ep->round))
		return bench_fail(ep, -EPROTO, "BENCH-PROTOCOL", NULL, NULL, "message %llu arrived out of order",
				  (unsigned long long)ep->round);
	return 0;
}

static inline __attribute__((always_inline)) int wait_round(struct bench_endpoint *ep, uint64_t *value)
{
	bool sent = ep->plan.operation->needs_receive;
	uint64_t slot = sent ? (ep->round - 1) % CLI_MAX(ep->layout.receives, 1) : 0;
	int rc = sent ? wait_sent_message(ep, value) : wait_written_message(ep, value);

	if (rc == 0 && ep->plan.touch)
		rc = bench_buffer_read(ep, &ep->exposed, slot * ep->layout.stride, ep->plan.size);
	return rc;
}

static void begin_pingpong(struct bench_endpoint *ep, struct stats *stats)
{
	struct bench_pipeline *pipeline = &ep->pipeline;

	pipeline->stats = stats;
	pipeline->pingpong = pipeline->special = true;
	pipeline->first = UINT64_MAX;
	pipeline->last_post = pipeline->duration = 0;
	bench_restart_timeout(ep);
}

/*
 * The time of a round lies between two posts of this endpoint, which are in their receipts.  The receipts are collected
 * while the peer works, so no clock is read between a message and its answer.
 */
int bench_pingpong_client(struct bench_endpoint *ep, uint64_t iterations, uint64_t duration, struct stats *stats)
{
	struct bench_pipeline *pipeline = &ep->pipeline;
	uint64_t value = 0, rounds = 0, stopped;
	bool last;
	int rc;

	begin_pingpong(ep, stats);
	do {
		rounds++;
		last = iterations ? rounds == iterations
				  : pipeline->last_post && pipeline->last_post - pipeline->first >= duration;
		ep->round++;
		rc = send_round(ep, ep->round | (last && stats ? LAST : 0));
		if (rc == 0)
			rc = wait_round(ep, &value);
		if (rc < 0)
			return rc;
	} while (!last);
	stopped = cli_now();
	if (wait_own_messages(ep, 0) < 0)
		return ep->error.code;
	pipeline->last = stopped;
	if (stats)
		stats_record(stats, (pipeline->last - pipeline->last_post) / 2);
	pipeline->measured = 2 * rounds;
	return bench_receives_repost(ep);
}

int bench_pingpong_server(struct bench_endpoint *ep)
{
	uint64_t value = 0;

	begin_pingpong(ep, NULL);
	do {
		int rc;

		ep->round++;
		rc = wait_round(ep, &value);
		if (rc == 0)
			rc = send_round(ep, value);
		if (rc < 0)
			return rc;
	} while (!(value & LAST));
	return bench_receives_repost(ep);
}
