/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small reads of aligned words, while a thread of the owner stores the words. Each word is loaded once, and the words in
 * ascending order. ThreadSanitizer reports loads that are not atomic.
 */
#include <stdlib.h>

#include "support/cases.h"
#include "support/local.h"
#include "support/pair.h"

#define WORDS 8
#define READS 2000

static const struct setting tcp_threads = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 2
};

struct storing {
	uint64_t *words;
	atomic_bool stop;
};

/* Stores the same number in each half of each word, the last word first: an ascending reader finds no smaller number behind a larger one. */
static void *store_words(void *argument)
{
	struct storing *storing = argument;

	for (uint64_t number = 1; !atomic_load(&storing->stop); number++)
		for (unsigned i = WORDS; i-- > 0;)
			__atomic_store_n(&storing->words[i], number << 32 | number, __ATOMIC_RELEASE);
	return NULL;
}

static void check_words(const uint64_t *words)
{
	for (unsigned i = 0; i < WORDS; i++) {
		check((uint32_t)words[i] == words[i] >> 32);
		check(i == 0 || words[i] >= words[i - 1]);
	}
}

static void read_words(struct pair *pair, struct pl_remote *remote, struct pl_region *to)
{
	const struct pl_transfer transfer = { .remote = remote, .region = to, .length = WORDS * sizeof(uint64_t) };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_read(pair->environment.near_peer, &transfer, NULL, &operation, &error), &error);
	complete(&pair->environment, operation, NULL);
}

static void test_words(void *argument)
{
	const struct setting *setting = argument;
	struct storing storing = { .words = NULL };
	struct pl_region *owned, *copied;
	struct pl_remote *remote;
	struct pl_error error;
	struct pair pair;
	pthread_t thread;

	pair_open(&pair, setting, 4096);
	check_ok(pl_region_allocate(pair.environment.far, 4096, PL_ACCESS_READ, &owned, &error), &error);
	check_ok(pl_region_allocate(pair.environment.near, 4096, PL_ACCESS_LOCAL, &copied, &error), &error);
	remote = share(&pair.environment, owned, pair.environment.near_peer, NULL);
	storing.words = pl_region_address(owned);
	check(pthread_create(&thread, NULL, store_words, &storing) == 0);
	for (unsigned i = 0; i < READS; i++) {
		read_words(&pair, remote, copied);
		check_words(pl_region_address(copied));
	}
	atomic_store(&storing.stop, true);
	check(pthread_join(thread, NULL) == 0);
	pl_remote_release(remote);
	pair_close(&pair);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "tcp", test_words, &tcp_threads, 20 },
		{ "local", test_words, &local_threads, 20 },
	};

	return cases_run("read_words", cases, sizeof(cases) / sizeof(cases[0]));
}
