/* SPDX-License-Identifier: BSD-2-Clause */
/* Large answers to reads, one behind the other, go from the socket into their region: only headers go through other memory. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

#define SIZE ((size_t)64 << 10)
#define DEPTH 8u
#define ROUNDS 20u
/* Most bytes of headers that are read at once. */
#define HEADERS 256

static atomic_int watched; /* descriptor; -1: none */
static atomic_size_t most; /* bytes that one call received from it */

/*
 * Replaces that of the C library in this program, by which the fabric reads into memory of its own. ThreadSanitizer must see the
 * call, which orders threads.
 */
ssize_t recv(int fd, void *bytes, size_t length, int flags)
{
	static ssize_t (*_Atomic next)(int, void *, size_t, int);
	ssize_t got;

	if (!next)
		next = (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
	got = atomic_load(&next)(fd, bytes, length, flags);
	if (fd == atomic_load(&watched) && got > (ssize_t)atomic_load(&most))
		atomic_store(&most, (size_t)got);
	return got;
}

static void read_all(struct pair *pair)
{
	struct pl_operation *operations[DEPTH];
	struct pl_error error;

	for (unsigned i = 0; i < DEPTH; i++) {
		const struct pl_transfer transfer = { pair->remote, i * SIZE, pair->near.region, i * SIZE, SIZE };

		check_ok(pl_read(pair->environment.near_peer, &transfer, NULL, &operations[i], &error), &error);
	}
	for (unsigned i = 0; i < DEPTH; i++)
		complete(&pair->environment, operations[i], NULL);
}

static void into_the_region(void *progress)
{
	const struct setting setting = { .name = "answer-reads",
					 .fabric = "tcp",
					 .host = "127.0.0.1",
					 .progress = *(const enum pl_progress *)progress,
					 .lanes = 1 };
	struct pair pair;

	pair_open(&pair, &setting, DEPTH * SIZE);
	/* The end does not know yet what comes before the first answer. */
	read_all(&pair);
	atomic_store(&watched, tcp_endpoint_of(pair.environment.near_peer->endpoint)->lanes[0]->source.fd);
	for (unsigned i = 0; i < ROUNDS; i++) {
		memset(pair.near.bytes, 0, DEPTH * SIZE);
		for (size_t at = 0; at < DEPTH * SIZE; at++)
			pair.far.bytes[at] = (uint8_t)(at % 251 + i);
		read_all(&pair);
		check(!memcmp(pair.near.bytes, pair.far.bytes, DEPTH * SIZE));
	}
	atomic_store(&watched, -1);
	check(atomic_load(&most) > 0);
	check(atomic_load(&most) <= HEADERS);
	pair_close(&pair);
}

static const enum pl_progress thread = PL_PROGRESS_THREAD, manual = PL_PROGRESS_MANUAL;

static const struct test_case cases[] = {
	{ "thread", into_the_region, &thread, 300 },
	{ "manual", into_the_region, &manual, 300 },
};

int main(void)
{
	atomic_store(&watched, -1);
	return cases_run("answer-reads", cases, sizeof(cases) / sizeof(cases[0]));
}
