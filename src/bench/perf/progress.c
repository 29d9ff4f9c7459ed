/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/progress.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "bench/common/process.h"
#include "bench/perf/control.h"
#include "bench/perf/post.h"
#include "bench/perf/receives.h"

#define SPINS_BETWEEN_CHECKS 1024u
#define ROUNDS_BEFORE_SLEEP 2000u
#define SLEEP_US 200
#define SLEEP_IN_RUN_MS 5
#define POLL_MS 50

static inline void handle_completion(struct bench_endpoint *ep, const struct pl_completion *completion)
{
	uint32_t number = (uint32_t)completion->user_data;
	struct pl_error error;

	/* The control receive fails, too, when a peer is lost. */
	if (completion->kind == PL_KIND_LOST)
		return;
	if (completion->kind == PL_KIND_NOTIFIED) {
		struct pl_completion taken = *completion;

		/* Requests have no data, which a faulty peer may send all the same. */
		pl_notification_free(ep->context, &taken);
		ep->notified++;
		return;
	}
	if (completion->status < 0) {
		if (completion->user_data >> BENCH_TAG_SHIFT == BENCH_TAG_CONTROL)
			bench_control_peer(ep, number)->lost = true;
		if (!ep->closing) {
			pl_completion_error(ep->context, completion, &error);
			bench_fail_with(ep, &error);
		}
		return;
	}
	switch (completion->user_data >> BENCH_TAG_SHIFT) {
	case BENCH_TAG_DATA:
		bench_pipeline_complete(ep, completion);
		break;
	case BENCH_TAG_RECEIVE:
		bench_receives_complete(ep, number, completion);
		break;
	case BENCH_TAG_CONTROL:
		bench_control_complete(ep, number, completion->bytes);
		break;
	}
}

void bench_handle_completion(struct bench_endpoint *ep, const struct pl_completion *completion)
{
	handle_completion(ep, completion);
}

int bench_progress(struct bench_endpoint *ep)
{
	int count = pl_poll(ep->context, ep->completions, BENCH_BATCH);

	for (int i = 0; i < count; i++)
		handle_completion(ep, &ep->completions[i]);
	ep->events += (uint64_t)count;
	if (count)
		ep->idle_rounds = 0;
	return ep->error.code ? ep->error.code : count;
}

bool bench_interrupted(struct bench_endpoint *ep)
{
	if (bench_signal_pending())
		ep->interrupted = true;
	return ep->interrupted;
}

void bench_restart_timeout(struct bench_endpoint *ep)
{
	ep->last_event = cli_now();
	ep->events_seen = ep->events;
}

int bench_check_signals(struct bench_endpoint *ep)
{
	if (bench_interrupted(ep))
		return bench_fail(ep, -EINTR, "INTERRUPTED", NULL, NULL, "interrupted by a signal");
	return 1;
}

static int check_timeout(struct bench_endpoint *ep, uint64_t timeout)
{
	int rc = bench_check_signals(ep);

	if (rc < 0)
		return rc;
	if (ep->events != ep->events_seen) {
		bench_restart_timeout(ep);
		return 0;
	}
	if (!timeout || cli_now() - ep->last_event < timeout)
		return 0;
	return bench_fail(ep, -ETIMEDOUT, "BENCH-SILENT", NULL,
			  "the server may be busy with another client; allow more time with --timeout",
			  "nothing arrived from the peer for %.3g s", (double)timeout / 1e9);
}

int bench_spin(struct bench_endpoint *ep, uint64_t timeout)
{
	ep->idle_rounds++;
	/* The library's threads need the processor. */
	if (!ep->manual)
		sched_yield();
	return ep->idle_rounds % SPINS_BETWEEN_CHECKS ? 0 : check_timeout(ep, timeout);
}

/* Waits for a completion, or until the next operation is due. */
static void sleep_until_completion(const struct bench_endpoint *ep)
{
	struct pollfd ready = { .fd = ep->fd, .events = POLLIN };
	uint64_t now = ep->due ? cli_now() : 0, left = POLL_MS * CLI_NS_PER_MS;
	struct timespec time;

	if (ep->due)
		left = ep->due <= now ? 0 : CLI_MIN(ep->due - now, left);
	time = (struct timespec){ .tv_nsec = (long)left };
	ppoll(&ready, 1, &time, NULL);
}

/* Sleeps beside operations that do not need this process, unless it copies for a peer that cannot open its GPU memory. */
static void sleep_in_run(const struct bench_endpoint *ep)
{
	struct pollfd ready = { .fd = ep->exposed.host_copy ? pl_fd(ep->context) : -1, .events = POLLIN };

	poll(&ready, 1, SLEEP_IN_RUN_MS);
}

/* True while the thread polls: its wake-up would take longer than many operations. */
static bool polls_before_sleep(struct bench_endpoint *ep)
{
	uint64_t now;

	if (!ep->poll_time || ep->due)
		return false;
	now = cli_now();
	if (ep->idle_rounds++ == 0)
		ep->idle_since = now;
	return now - ep->idle_since < ep->poll_time;
}

int bench_idle(struct bench_endpoint *ep, uint64_t timeout)
{
	if (polls_before_sleep(ep))
		return 0;
	if (ep->manual && !ep->may_sleep && (ep->in_run || ep->idle_rounds < ROUNDS_BEFORE_SLEEP))
		return bench_spin(ep, timeout);
	if (ep->manual && ep->may_sleep)
		sleep_in_run(ep);
	else if (ep->manual)
		usleep(SLEEP_US);
	else
		sleep_until_completion(ep);
	return check_timeout(ep, timeout);
}
