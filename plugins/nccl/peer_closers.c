/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that close peers at the end of the process. */
#include "peer_closers.h"
#include "quiet_thread.h"

/* Most threads beside the caller's. A peer without unsent messages closes at once, so few peers need one. */
#define CLOSERS_MAX 63

struct closing {
	struct pl_peer *const *peers;
	unsigned count;
	atomic_uint next; /* first peer that no thread has taken */
};

static void *close_next_peers(void *argument)
{
	struct closing *closing = argument;
	unsigned i;

	while ((i = atomic_fetch_add(&closing->next, 1)) < closing->count)
		pl_peer_close(closing->peers[i]);
	return NULL;
}

void peers_close(struct pl_peer *const *peers, unsigned count)
{
	struct closing closing = { .peers = peers, .count = count };
	pthread_t threads[CLOSERS_MAX];
	unsigned started = 0;

	/* Without a further thread, those that there are close the rest. */
	while (started < CLOSERS_MAX && started + 1 < count &&
	       quiet_thread_create(&threads[started], close_next_peers, &closing) == 0)
		started++;
	close_next_peers(&closing);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}
