/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers that close at the end of the process wait at the same time: each close ends only when all of them have begun. The
 * threads that close them take no signals of the program, whose own thread takes them.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "peer_closers.h"

#define PEERS 8u
#define LIMIT 300 /* seconds after which a close that comes alone ends the program */

static pthread_barrier_t all_close;
static atomic_uint closes[PEERS];
static char objects[PEERS];
static pthread_t caller;
static atomic_uint wrong_masks;

static bool takes_signals(void)
{
	sigset_t blocked;

	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	return !sigismember(&blocked, SIGTERM);
}

void pl_peer_close(struct pl_peer *peer)
{
	atomic_fetch_add(&closes[(char *)peer - objects], 1);
	atomic_fetch_add(&wrong_masks, takes_signals() != (bool)pthread_equal(pthread_self(), caller));
	pthread_barrier_wait(&all_close);
}

int main(void)
{
	struct pl_peer *peers[PEERS];
	unsigned wrong = 0;

	alarm(LIMIT);
	caller = pthread_self();
	for (unsigned i = 0; i < PEERS; i++)
		peers[i] = (struct pl_peer *)&objects[i];
	peers_close(peers, 0);
	if (pthread_barrier_init(&all_close, NULL, PEERS))
		return 1;
	peers_close(peers, PEERS);
	pthread_barrier_destroy(&all_close);
	for (unsigned i = 0; i < PEERS; i++)
		wrong += atomic_load(&closes[i]) != 1;
	if (wrong)
		fprintf(stderr, "%u of %u peers were not closed once\n", wrong, PEERS);
	if (atomic_load(&wrong_masks) || !takes_signals())
		fprintf(stderr, "%u threads have a wrong signal mask\n", atomic_load(&wrong_masks) + !takes_signals());
	return wrong != 0 || atomic_load(&wrong_masks) != 0 || !takes_signals();
}
