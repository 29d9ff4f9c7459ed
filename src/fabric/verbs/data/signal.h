/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signaled requests. Requests of a queue pair complete in order, so one completion ends all earlier requests, and costs
 * the device and the processor as much as one for each request would. A rail is quiet while its last request is
 * unsignaled. Its completion may then never come, so:
 *
 * - A poll of the queue that finds nothing asks: it posts an empty signaled request behind the last one of each quiet rail.
 *   So does a poll that finds completions, which may all be of other rails, when it saw quiet rails VERBS_QUIET_TIME ago.
 *
 * - No rail becomes quiet unless such a poll will follow soon: while a thread may sleep until a completion comes (the
 *   queue is armed), or when completions were not taken for a while, each request is signaled.
 *
 * - A rail that fails asks first, so that completed requests show themselves.
 *
 * - Some drivers name the oldest request without a completion when another one has failed (wc_error.c). Then each request is
 *   signaled until all that may have failed have ended. With such a driver each atomic operation is signaled, and so is the
 *   request before it: an atomic operation is not repeated to find the one that failed.
 *
 * A program that posts bursts has few requests under way at the beginning of each. So a rail remembers the most requests
 * of the last burst. An empty request shows that too few are signaled: the rail then forgets that number.
 *
 * The empty request has its room in the queue pair and in the completion queue: a quiet rail reserves it.
 */
#ifndef PL_FABRIC_VERBS_DATA_SIGNAL_H
#define PL_FABRIC_VERBS_DATA_SIGNAL_H

#include "fabric/verbs/verbs.h"

/* At most this many requests have one completion. */
#define VERBS_SIGNAL_EVERY 16
/* Completions come at least once in a quarter of the requests under way, so that a program gets them in several steps. */
#define VERBS_SIGNAL_SHARE 4
/* Longer requests take more time than a completion. Bytes. */
#define VERBS_QUIET_LENGTH 4096
/* A program that took completions this long ago will probably not poll soon. */
#define VERBS_QUIET_TIME (PL_NS_PER_MS / 10)

/* The last request is unsignaled. */
PL_ALWAYS_INLINE void verbs_mark_quiet(struct verbs_rail *rail)
{
	if (rail->unsignaled++)
		return;
	if (!rail->queue->quiet++)
		rail->queue->quiet_since = 0;
	rail->queue->posted++;
}

/* The last request is signaled, or the rail has no more requests. */
PL_ALWAYS_INLINE void verbs_mark_signaled(struct verbs_rail *rail)
{
	if (!rail->unsignaled)
		return;
	rail->unsignaled = 0;
	rail->queue->quiet--;
	rail->queue->posted--;
}

/* Learns how many requests a program usually has under way. The rail has one at least, and one ended. */
PL_ALWAYS_INLINE void verbs_note_peak(struct verbs_rail *rail, unsigned posted_count)
{
	rail->peak = PL_MAX(rail->peak, posted_count);
	if (rail->posted_count)
		return;
	rail->usual = rail->peak;
	rail->peak = 0;
}

/* True if a single request of an operation, posted at that time, must be signaled. */
PL_ALWAYS_INLINE bool verbs_must_signal(const struct verbs_rail *rail, const struct verbs_work *work, uint64_t posted)
{
	unsigned under_way = PL_MAX(rail->posted_count, rail->usual);
	unsigned every = PL_MIN(under_way / VERBS_SIGNAL_SHARE, (unsigned)VERBS_SIGNAL_EVERY);

	return rail->unsignaled + 1 >= every || rail->posted_count + 2 > VERBS_SEND_DEPTH ||
	       rail->queue->posted + 2 > rail->queue->room || rail->queue->armed || work->length > VERBS_QUIET_LENGTH ||
	       rail->endpoint->suspects || rail->pace.limit != VERBS_UNLIMITED ||
	       posted - rail->queue->taken > VERBS_QUIET_TIME;
}

/* True if a request of that kind must be signaled, so that its failure names it. */
PL_ALWAYS_INLINE bool verbs_must_be_named(const struct verbs_rail *rail, enum verbs_work_kind kind)
{
	return kind == VERBS_ATOMIC && rail->device->names_oldest;
}

/* True if the failure of a request of that kind must not be taken for that of an unsignaled one before it. */
PL_ALWAYS_INLINE bool verbs_must_follow_signaled(const struct verbs_rail *rail, enum verbs_work_kind kind)
{
	return kind == VERBS_BIND || verbs_must_be_named(rail, kind);
}

static inline bool verbs_is_atomic(const struct ibv_send_wr *request)
{
	return request->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || request->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* Signals requests that are posted as one list: a part of them, and the last one. */
static inline void verbs_signal_list(const struct verbs_rail *rail, struct ibv_send_wr *requests, unsigned count)
{
	const bool named = rail->device->names_oldest, all = rail->endpoint->suspects;

	for (unsigned i = 0; i < count; i++)
		if ((i + 1) % VERBS_SIGNAL_EVERY == 0 || i + 1 == count || all ||
		    (named && (verbs_is_atomic(&requests[i]) || verbs_is_atomic(&requests[i + 1]))))
			requests[i].send_flags |= IBV_SEND_SIGNALED;
		else
			requests[i].wr_id |= VERBS_UNSIGNALED;
}

/* signal.c: asks for the completion of the rail's last request, if it is quiet. */
void verbs_ask(struct verbs_rail *rail);
/* Asks before a request for which verbs_must_follow_signaled() is true. Returns true if the rail has room for it. */
bool verbs_ask_before(struct verbs_rail *rail);
/* Asks for all quiet rails of the queue. */
void verbs_ask_all(struct verbs_cq *queue);

#endif
