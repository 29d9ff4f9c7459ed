/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_threads FABRIC SIZE THREADS SECONDS: threads of one context write to one peer, one write at a time, each with regions of
 * its own. Prints the number of threads, writes a second of all, nanoseconds of a write in each thread, and the time in which
 * 99.9 % of the writes ended, in nanoseconds. Times have a resolution of 8 ns, and include the reading of the clock.
 */
#include <pthread.h>
#include <string.h>

#include "support.h"

#define THREADS_MAX 256
#define BUCKETS 16384
#define BUCKET_NS 8

struct worker {
	pthread_t thread;
	struct pl_peer *peer;
	struct pl_transfer transfer;
	uint64_t count, times[BUCKETS];
};

static struct worker workers[THREADS_MAX];
static pthread_barrier_t begin;
static double seconds;

static void open_regions(struct worker *worker, struct pl_context *near, struct pl_context *far, size_t size)
{
	struct pl_region *target;
	struct pl_error error;
	char token[PL_TOKEN_MAX];
	size_t length = sizeof(token);

	MUST(pl_region_allocate(far, size, PL_ACCESS_ALL, &target, &error), &error);
	MUST(pl_region_allocate(near, size, PL_ACCESS_LOCAL, &worker->transfer.region, &error), &error);
	MUST(pl_region_share(target, NULL, token, &length, &error), &error);
	MUST(pl_remote_import(worker->peer, token, length, 0, &worker->transfer.remote, &error), &error);
	worker->transfer.length = size;
}

static void *write_often(void *argument)
{
	struct worker *worker = argument;
	struct pl_operation *operation;
	struct pl_error error;
	uint64_t last, end;

	pthread_barrier_wait(&begin);
	last = now_ns();
	end = last + (uint64_t)(seconds * NS_PER_S);
	while (last < end) {
		uint64_t now, took;

		MUST(pl_write(worker->peer, &worker->transfer, NULL, &operation, &error), &error);
		MUST(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
		now = now_ns();
		took = (now - last) / BUCKET_NS;
		worker->times[took < BUCKETS ? took : BUCKETS - 1]++;
		worker->count++;
		last = now;
	}
	return NULL;
}

static uint64_t time_of_share(unsigned count, double share)
{
	uint64_t total = 0, seen = 0;
	unsigned bucket = 0;

	for (unsigned i = 0; i < count; i++)
		total += workers[i].count;
	for (; bucket < BUCKETS && (double)seen < share * (double)total; bucket++)
		for (unsigned i = 0; i < count; i++)
			seen += workers[i].times[bucket];
	return (uint64_t)bucket * BUCKET_NS;
}

int main(int argc, char **argv)
{
	struct pl_options options = PL_OPTIONS_INIT;
	unsigned count = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
	struct pl_context *near, *far;
	struct pl_listener *listener;
	struct pl_peer *peer, *other;
	struct pl_error error;
	char address[80];
	double writes = 0;

	seconds = argc > 4 ? atof(argv[4]) : 0;
	if (count < 1 || count > THREADS_MAX || seconds <= 0 || atol(argv[2]) < 1) {
		fputs("usage: local_threads FABRIC SIZE THREADS SECONDS\n", stderr);
		return 2;
	}
	options.fabric = argv[1];
	MUST(pl_open(&near, &options, &error), &error);
	MUST(pl_open(&far, &options, &error), &error);
	MUST(pl_listen(far, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	MUST(pl_connect(near, address, 0, &peer, &error), &error);
	MUST(pl_accept(listener, 10 * NS_PER_S, &other, &error), &error);
	pthread_barrier_init(&begin, NULL, count);
	for (unsigned i = 0; i < count; i++) {
		workers[i].peer = peer;
		open_regions(&workers[i], near, far, (size_t)atol(argv[2]));
	}
	for (unsigned i = 0; i < count; i++)
		MUST(-pthread_create(&workers[i].thread, NULL, write_often, &workers[i]), NULL);
	for (unsigned i = 0; i < count; i++) {
		pthread_join(workers[i].thread, NULL);
		writes += (double)workers[i].count;
	}
	printf("%u %.0f %.1f %llu\n", count, writes / seconds, 1e9 * seconds * count / writes,
	       (unsigned long long)time_of_share(count, 0.999));
	pl_close(near);
	pl_close(far);
	return 0;
}
