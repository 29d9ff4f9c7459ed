/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tcp_posters OP PEERS POSTERS LANES SIZE DEPTH SECONDS [WORKERS]: rate of writes, reads or messages (OP: write, read, send) of SIZE
 * bytes over tcp to PEERS peers of one context, in another process. POSTERS threads post, each to peers of its own; DEPTH operations
 * are under way at each peer, in regions of the peer's own. As many threads of the other process post the receives of messages. LANES:
 * sockets of each peer, WORKERS: threads of each library; 0 for the library's default. Prints one JSON object: bytes a second, and
 * the processors that this process and the other one kept busy, in percent.
 */
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT (60 * NS_PER_S)
#define PEERS_MAX 64u
#define DEPTH_MAX 1024u
#define WARM_UP_US 200000
#define TAG 1u
/* Pause of a poster that has looked at all of its operations; the kernel adds about 50 us. */
#define PAUSE_US 10

struct run {
	enum pl_kind kind;
	unsigned peers, posters, lanes, depth, workers;
	size_t size;
	uint64_t duration;
	int socket; /* to the other process */
	pid_t other;
};

struct target {
	struct pl_peer *peer;
	struct pl_transfer transfer; /* of slot 0; slot i is i * size bytes behind */
	struct pl_operation **operations;
};

struct poster {
	_Alignas(128) atomic_ullong operations;
	const struct run *run;
	struct target *targets;
	unsigned count;
	pthread_t thread;
};

static struct target targets[PEERS_MAX];
static struct poster posters[PEERS_MAX];
static atomic_bool done;

static struct pl_context *open_context(const struct run *run)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.fabric = "tcp";
	options.lanes = run->lanes;
	options.workers = run->workers;
	MUST(pl_open(&context, &options, &error), &error);
	return context;
}

static struct pl_region *allocate_region(struct pl_context *context, const struct run *run, unsigned access)
{
	struct pl_region *region;
	struct pl_error error;

	MUST(pl_region_allocate(context, run->size * run->depth, access, &region, &error), &error);
	memset(pl_region_address(region), 1, pl_region_length(region));
	return region;
}

static void allocate_operations(const struct run *run, struct target *target)
{
	target->operations = calloc(run->depth, sizeof(struct pl_operation *));
	if (!target->operations)
		give_up("calloc", -errno, NULL);
}

/* Starts a thread for each share of the peers. */
static void start_posters(const struct run *run, void *(*work)(void *))
{
	for (unsigned i = 0; i < run->posters; i++) {
		unsigned first = run->peers * i / run->posters, end = run->peers * (i + 1) / run->posters;

		posters[i].run = run;
		posters[i].targets = &targets[first];
		posters[i].count = end - first;
		if (pthread_create(&posters[i].thread, NULL, work, &posters[i]))
			give_up("pthread_create", -errno, NULL);
	}
}

/* -- the other process ------------------------------------------------------------------------------------------------ */

static void post_receive(const struct run *run, struct target *target, unsigned slot)
{
	struct pl_buffer buffer = { target->transfer.region, slot * run->size, run->size };
	struct pl_error error;

	MUST(pl_receive(target->peer, TAG, ~0ull, &buffer, NULL, &target->operations[slot], &error), &error);
}

/* Posts the next receive in place of each that has completed, until the first process closes its peers. */
static void *receive_often(void *argument)
{
	struct poster *poster = argument;

	for (unsigned slot = 0; slot < poster->run->depth; slot++)
		for (unsigned i = 0; i < poster->count; i++)
			post_receive(poster->run, &poster->targets[i], slot);
	for (;; usleep(PAUSE_US)) {
		for (unsigned slot = 0; slot < poster->run->depth; slot++) {
			for (unsigned i = 0; i < poster->count; i++) {
				int rc = pl_test(poster->targets[i].operations[slot], NULL, NULL);

				if (rc < 0 && rc != -EINPROGRESS)
					return NULL;
				if (rc >= 0)
					post_receive(poster->run, &poster->targets[i], slot);
			}
		}
	}
}

static _Noreturn void serve(const struct run *run)
{
	struct pl_context *context = open_context(run);
	struct pl_listener *listener;
	struct pl_error error;
	char address[96] = "";

	MUST(pl_listen(context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	put(run->socket, address, sizeof(address));
	for (unsigned i = 0; i < run->peers; i++) {
		struct pl_region *region = allocate_region(context, run, PL_ACCESS_ALL);
		uint8_t token[PL_TOKEN_MAX] = { 0 };
		size_t length = sizeof(token);
		struct target *target = &targets[i];

		MUST(pl_region_share(region, NULL, token, &length, &error), &error);
		put(run->socket, &length, sizeof(length));
		put(run->socket, token, sizeof(token));
		MUST(pl_accept(listener, TIMEOUT, &target->peer, &error), &error);
		MUST(pl_region_prepare(target->peer, region, &error), &error);
		target->transfer.region = region;
		allocate_operations(run, target);
	}
	if (run->kind == PL_KIND_SEND)
		start_posters(run, receive_often);
	tell_processor_time(run->socket);
}

/* -- the first process ------------------------------------------------------------------------------------------------ */

static void connect_target(const struct run *run, struct pl_context *context, const char *address,
			   struct target *target)
{
	uint8_t token[PL_TOKEN_MAX];
	struct pl_error error;
	size_t length;

	get(run->socket, &length, sizeof(length));
	get(run->socket, token, sizeof(token));
	target->transfer.region = allocate_region(context, run, PL_ACCESS_LOCAL);
	target->transfer.length = run->size;
	MUST(pl_connect(context, address, TIMEOUT, &target->peer, &error), &error);
	MUST(pl_remote_import(target->peer, token, length, TIMEOUT, &target->transfer.remote, &error), &error);
	MUST(pl_region_prepare(target->peer, target->transfer.region, &error), &error);
	allocate_operations(run, target);
}

static void post(const struct run *run, struct target *target, unsigned slot)
{
	struct pl_transfer transfer = target->transfer;
	struct pl_buffer buffer = { transfer.region, slot * run->size, run->size };
	struct pl_error error;

	transfer.offset = transfer.remote_offset = slot * run->size;
	if (run->kind == PL_KIND_SEND)
		MUST(pl_send(target->peer, TAG, &buffer, NULL, &target->operations[slot], &error), &error);
	else if (run->kind == PL_KIND_READ)
		MUST(pl_read(target->peer, &transfer, NULL, &target->operations[slot], &error), &error);
	else
		MUST(pl_write(target->peer, &transfer, NULL, &target->operations[slot], &error), &error);
}

/* Collects an operation. Returns false if it is under way and `last` is false. */
static bool collect(struct pl_operation *operation, bool last)
{
	struct pl_error error;
	int rc = last ? pl_wait(operation, TIMEOUT, NULL, &error) : pl_test(operation, NULL, &error);

	if (rc == -EINPROGRESS)
		return false;
	MUST(rc, &error);
	return true;
}

/*
 * Posts the next operation in place of each that has completed, in any order: with several sockets, operations complete in another
 * order than that of the posts.
 */
static void *post_often(void *argument)
{
	struct poster *poster = argument;
	const struct run *run = poster->run;

	for (unsigned slot = 0; slot < run->depth; slot++)
		for (unsigned i = 0; i < poster->count; i++)
			post(run, &poster->targets[i], slot);
	for (bool last = false; !last; usleep(PAUSE_US)) {
		last = atomic_load_explicit(&done, memory_order_relaxed);
		for (unsigned slot = 0; slot < run->depth; slot++) {
			for (unsigned i = 0; i < poster->count; i++) {
				if (!collect(poster->targets[i].operations[slot], last))
					continue;
				atomic_fetch_add_explicit(&poster->operations, 1, memory_order_relaxed);
				if (!last)
					post(run, &poster->targets[i], slot);
			}
		}
	}
	return NULL;
}

struct sample {
	uint64_t time, operations, own, other;
};

static struct sample take_sample(const struct run *run)
{
	struct sample sample = { .time = now_ns(), .own = processor_ns() };

	for (unsigned i = 0; i < run->posters; i++)
		sample.operations += atomic_load_explicit(&posters[i].operations, memory_order_relaxed);
	put(run->socket, "?", 1);
	get(run->socket, &sample.other, sizeof(sample.other));
	return sample;
}

static void print_rate(const struct run *run, const struct sample *begin, const struct sample *end)
{
	double time = (double)(end->time - begin->time);

	printf("{\"bytes_per_second\": %.0f, \"cpu_percent\": %.1f, \"server_cpu_percent\": %.1f}\n",
	       (double)(end->operations - begin->operations) * (double)run->size * NS_PER_S / time,
	       (double)(end->own - begin->own) * 100 / time, (double)(end->other - begin->other) * 100 / time);
}

/* Returns 0 for an unknown name. */
static enum pl_kind kind_of(const char *name)
{
	if (!strcmp(name, "send"))
		return PL_KIND_SEND;
	if (!strcmp(name, "read"))
		return PL_KIND_READ;
	return strcmp(name, "write") ? 0 : PL_KIND_WRITE;
}

static bool read_arguments(struct run *run, int argc, char **argv)
{
	if (argc != 8 && argc != 9)
		return false;
	*run = (struct run){ .kind = kind_of(argv[1]),
			     .peers = (unsigned)atoi(argv[2]),
			     .posters = (unsigned)atoi(argv[3]),
			     .lanes = (unsigned)atoi(argv[4]),
			     .size = strtoull(argv[5], NULL, 10),
			     .depth = (unsigned)atoi(argv[6]),
			     .workers = argc > 8 ? (unsigned)atoi(argv[8]) : 0,
			     .duration = (uint64_t)(atof(argv[7]) * NS_PER_S) };
	return run->kind && run->posters && run->peers >= run->posters && run->peers <= PEERS_MAX && run->depth &&
	       run->depth <= DEPTH_MAX && run->size && run->duration;
}

int main(int argc, char **argv)
{
	struct pl_context *context;
	struct sample begin, end;
	struct run run;
	char address[96];

	if (!read_arguments(&run, argc, argv)) {
		fputs("usage: tcp_posters write|read|send PEERS POSTERS LANES SIZE DEPTH SECONDS [WORKERS]\n", stderr);
		return 2;
	}
	run.other = start_process(&run.socket);
	if (run.other == 0)
		serve(&run);
	context = open_context(&run);
	get(run.socket, address, sizeof(address));
	for (unsigned i = 0; i < run.peers; i++)
		connect_target(&run, context, address, &targets[i]);
	start_posters(&run, post_often);
	usleep(WARM_UP_US);
	begin = take_sample(&run);
	usleep((useconds_t)(run.duration / 1000));
	end = take_sample(&run);
	atomic_store(&done, true);
	for (unsigned i = 0; i < run.posters; i++)
		pthread_join(posters[i].thread, NULL);
	print_rate(&run, &begin, &end);
	pl_close(context);
	close(run.socket);
	waitpid(run.other, NULL, 0);
	for (unsigned i = 0; i < run.peers; i++)
		free(targets[i].operations);
	return 0;
}
