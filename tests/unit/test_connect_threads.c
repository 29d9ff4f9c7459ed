/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that connect, transfer and close in the same contexts, which have several progress threads. Other threads
 * load the key anew, guess the numbers of peers, and cancel operations without a handle, of which there are none.
 * ThreadSanitizer reports an access without the lock of the state that connections share.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/peer.h"
#include "support/cases.h"
#include "support/environment.h"

#define ROUNDS 20
#define CONNECTORS 3
#define WORKERS 3
#define SIZE 4096

struct rig {
	struct pl_context *near, *far;
	struct pl_listener *listener;
	char address[96];
	struct buffer source, target;
	uint8_t token[PL_TOKEN_MAX];
	size_t length;
	atomic_uint connectors; /* each writes into a part of its own */
	atomic_bool done;
};

/*
 * Replaces that of the C library. An engine that accepts a peer calls it when other threads can find the peer, and the
 * peer's own engine does not know of it yet. The pause gives a reload the time to find such a peer.
 */
int getsockname(int fd, __SOCKADDR_ARG address, socklen_t *restrict length)
{
	usleep(500);
	return (int)syscall(SYS_getsockname, fd, address.__sockaddr__, length);
}

static void *connect_and_write(void *argument)
{
	struct rig *rig = argument;
	const uint64_t at = atomic_fetch_add(&rig->connectors, 1) * SIZE;
	struct pl_error error;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct pl_operation *operation;
		struct pl_remote *remote;
		struct pl_peer *peer;

		check_ok(pl_connect(rig->near, rig->address, AMPLE_TIME, &peer, &error), &error);
		check_ok(pl_remote_import(peer, rig->token, rig->length, AMPLE_TIME, &remote, &error), &error);
		check_ok(pl_write(peer, &(struct pl_transfer){ remote, at, rig->source.region, at, SIZE }, NULL,
				  &operation, &error),
			 &error);
		check_ok(pl_wait(operation, AMPLE_TIME, NULL, &error), &error);
		pl_remote_release(remote);
		pl_peer_close(peer);
	}
	return NULL;
}

/* Closes each peer when its other end has closed it. */
static void *accept_and_close(void *argument)
{
	struct rig *rig = argument;
	struct pl_error error;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct pl_peer_info info = PL_PEER_INFO_INIT;
		struct pl_peer *peer;

		check_ok(pl_accept(rig->listener, AMPLE_TIME, &peer, &error), &error);
		do
			usleep(1000);
		while (pl_peer_query(peer, &info) == 0 && info.connected);
		pl_peer_close(peer);
	}
	return NULL;
}

static void *reload(void *argument)
{
	struct rig *rig = argument;
	struct pl_credentials credentials = PL_CREDENTIALS_INIT;
	struct pl_error error;

	credentials.key = test_key;
	credentials.key_length = sizeof(test_key);
	while (!atomic_load(&rig->done)) {
		check_ok(pl_context_reload(rig->near, &credentials, &error), &error);
		check_ok(pl_context_reload(rig->far, &credentials, &error), &error);
	}
	return NULL;
}

/* Looks for peers as a socket does that guesses their numbers. */
static void *guess_peers(void *argument)
{
	struct rig *rig = argument;

	for (uint64_t i = 0; !atomic_load(&rig->done); i++) {
		struct pl_peer *peer = pl_peer_by_index(rig->far, i % (2 * CONNECTORS));

		if (peer)
			pl_peer_unpin(peer);
		/* A thread that always has the lock would order the others, and hide their races. */
		usleep(100);
	}
	return NULL;
}

static void *cancel_posted(void *argument)
{
	struct rig *rig = argument;

	while (!atomic_load(&rig->done)) {
		check_number(pl_cancel_posted(rig->near, 0), 0);
		usleep(100);
	}
	return NULL;
}

static void use_contexts_in_threads(void *argument)
{
	const struct setting setting = {
		.name = "threads",
		.fabric = argument,
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_THREAD,
		.lanes = 2,
		.key = true,
	};
	struct pl_options options = setting_options(&setting);
	pthread_t threads[2 * CONNECTORS], reloader, guesser, canceller;
	struct rig rig = { .length = PL_TOKEN_MAX };
	struct pl_error error;

	options.workers = WORKERS;
	rig.near = context_open_with(&options);
	rig.far = context_open_with(&options);
	rig.listener = listener_open(&setting, rig.far, rig.address);
	buffer_open(&rig.source, rig.near, CONNECTORS * SIZE, PL_ACCESS_ALL);
	buffer_open(&rig.target, rig.far, CONNECTORS * SIZE, PL_ACCESS_ALL);
	check_ok(pl_region_share(rig.target.region, NULL, rig.token, &rig.length, &error), &error);
	check_number(pthread_create(&reloader, NULL, reload, &rig), 0);
	check_number(pthread_create(&guesser, NULL, guess_peers, &rig), 0);
	check_number(pthread_create(&canceller, NULL, cancel_posted, &rig), 0);
	for (unsigned i = 0; i < 2 * CONNECTORS; i++)
		check_number(pthread_create(&threads[i], NULL, i % 2 ? accept_and_close : connect_and_write, &rig), 0);
	for (unsigned i = 0; i < 2 * CONNECTORS; i++)
		check_number(pthread_join(threads[i], NULL), 0);
	atomic_store(&rig.done, true);
	check_number(pthread_join(reloader, NULL), 0);
	check_number(pthread_join(guesser, NULL), 0);
	check_number(pthread_join(canceller, NULL), 0);
	buffer_close(&rig.source);
	buffer_close(&rig.target);
	pl_listener_close(rig.listener);
	pl_close(rig.near);
	pl_close(rig.far);
}

static const struct test_case cases[] = {
	{ "tcp", use_contexts_in_threads, "tcp", 30 },
	{ "local", use_contexts_in_threads, "local", 30 },
};

int main(void)
{
	return cases_run("connect-threads", cases, sizeof(cases) / sizeof(cases[0]));
}
