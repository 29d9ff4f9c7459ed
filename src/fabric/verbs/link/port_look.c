/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looks at devices and ports, and waits for them. Asynchronous events tell of changes; without one, a look stays valid for a
 * second. The driver may let a look wait while it resets a device, or for ever. So a helper thread looks, and nobody
 * waits for it longer than a limit.
 */
#include "fabric/verbs/verbs.h"

#define LOOK_PAUSE PL_NS_PER_S
/* Share of the time for connecting that the first look gets: both ends of a connection may make one, one after the other. */
#define FIRST_LOOK_SHARE 4
/* Longest wait for the first look: an engine waits, and the time for connecting may have no limit. */
#define FIRST_LOOK_MAX (10 * PL_NS_PER_S)
#define HINT_SILENT "see the kernel's log, or name other devices (--device)"

bool verbs_ports_look_now(struct verbs_state *state)
{
	bool complete;

	pthread_mutex_lock(&state->look_lock);
	complete = verbs_ports_read(state);
	pthread_mutex_unlock(&state->look_lock);
	return complete;
}

bool verbs_ports_are_old(const struct verbs_state *state)
{
	return !atomic_load(&state->looked) || atomic_load(&state->stale) ||
	       pl_now() - atomic_load(&state->looked) >= LOOK_PAUSE;
}

/* Looks if the last look is old, and waits for another thread's look. */
static void look_if_old(struct verbs_state *state)
{
	bool looked = false;

	pthread_mutex_lock(&state->look_lock);
	if (verbs_ports_are_old(state)) {
		verbs_ports_read(state);
		looked = true;
	}
	pthread_mutex_unlock(&state->look_lock);
	if (looked)
		pl_engine_post(state->context->engines[0], &state->watch_task);
}

static void run_port_look(struct verbs_job *job)
{
	struct verbs_state *state = pl_container_of(job, struct verbs_state, port_look.job);

	look_if_old(state);
	atomic_store(&state->port_look.late, false);
	atomic_store(&state->port_look.busy, false);
}

void verbs_ports_open(struct verbs_state *state)
{
	state->port_look.job.run = run_port_look;
}

/* Returns the longest wait for a look: known ports serve meanwhile, and a first look may open many devices. */
static uint64_t limit_of_look(const struct verbs_state *state, uint64_t until)
{
	const uint64_t now = pl_now(), left = until > now ? until - now : 0;
	const uint64_t share = PL_MIN(left, state->context->options.connect_timeout) / FIRST_LOOK_SHARE;

	if (atomic_load(&state->place_count) || atomic_load(&state->port_look.late))
		return VERBS_WAIT;
	return PL_MAX(PL_MIN(share, FIRST_LOOK_MAX), VERBS_WAIT);
}

void verbs_ports_look(struct verbs_state *state, uint64_t until)
{
	const bool known = atomic_load(&state->place_count);

	if (!verbs_ports_are_old(state) && !atomic_load(&state->port_look.busy))
		return;
	if (atomic_load(&state->tending.busy))
		return;
	if (!atomic_exchange(&state->port_look.busy, true)) {
		if (!verbs_helpers_start(&state->connectors, &state->port_look.job)) {
			run_port_look(&state->port_look.job);
			return;
		}
	} else if (known) {
		return;
	}
	verbs_helpers_await(&state->connectors, &state->port_look.busy, limit_of_look(state, until));
	if (!known && atomic_load(&state->port_look.busy))
		atomic_store(&state->port_look.late, true);
}

int verbs_look_fail(const struct verbs_state *state, struct pl_error *error)
{
	return pl_fail(error, -ETIMEDOUT, "RDMA-DEVICE-SILENT", "ibv_open_device",
		       state->silent[0] ? state->silent : NULL, HINT_SILENT, "the device's driver does not answer");
}
