/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scale SUBJECT COUNT [KEY [WORKERS]]: what many peers, regions and grants cost. WORKERS: engines of each process, by default
 * those of the library. Subjects:
 *
 * connect   COUNT connections at once; KEY is a pre-shared key for TLS, "" for none
 * turns     manual progress: a write of 8 bytes to each of COUNT peers in turn
 * dying     COUNT reads outstanding at a process that is killed: time until all have ended
 * mappings  registration of host memory above COUNT mappings of the process
 * regions   register and deregister, while COUNT regions exist
 * grants    share, revoke and deregister, while COUNT grants of another region exist
 * close     close of a peer, while COUNT imports from another peer are held
 * keys      local fabric: writes through the first and the last of COUNT imports
 *
 * Prints one JSON object.
 */
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT (60 * NS_PER_S)
#define SAMPLES 1000u
#define PAGE 4096u

struct run {
	unsigned count;
	const char *key;
	unsigned workers;
	int socket; /* to the other process */
	pid_t other;
};

/* Address and token of the other process. */
struct offer {
	char address[80];
	size_t token_length;
	uint8_t token[PL_TOKEN_MAX];
};

static struct pl_context *open_context(const struct run *run, const char *fabric, enum pl_progress progress)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.fabric = fabric;
	options.progress = progress;
	options.workers = run->workers;
	options.key = run->key;
	options.key_length = run->key ? strlen(run->key) : 0;
	MUST(pl_open(&context, &options, &error), &error);
	return context;
}

static void share(struct pl_region *region, struct offer *offer)
{
	struct pl_error error;

	offer->token_length = sizeof(offer->token);
	MUST(pl_region_share(region, NULL, offer->token, &offer->token_length, &error), &error);
}

/* Accepts until the first process ends or kills this one. */
static _Noreturn void serve(const struct run *run, const char *fabric)
{
	struct pl_context *context = open_context(run, fabric, PL_PROGRESS_THREAD);
	struct pl_listener *listener;
	struct pl_region *region;
	struct offer offer = { .address = "" };
	struct pl_error error;
	char end;

	MUST(pl_region_allocate(context, PAGE, PL_ACCESS_ALL, &region, &error), &error);
	MUST(pl_listen(context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, offer.address, sizeof(offer.address));
	share(region, &offer);
	put(run->socket, &offer, sizeof(offer));
	for (;;) {
		struct pl_peer *peer;

		if (pl_accept(listener, NS_PER_S / 10, &peer, NULL) < 0 &&
		    recv(run->socket, &end, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
			break;
	}
	pl_close(context);
	exit(0);
}

static void start_other(struct run *run, const char *fabric, struct offer *offer)
{
	run->other = start_process(&run->socket);
	if (run->other == 0)
		serve(run, fabric);
	get(run->socket, offer, sizeof(*offer));
}

static struct pl_peer *connect_one(struct pl_context *context, const struct offer *offer)
{
	struct pl_error error;
	struct pl_peer *peer;

	MUST(pl_connect(context, offer->address, TIMEOUT, &peer, &error), &error);
	return peer;
}

static struct pl_remote *import(struct pl_peer *peer, const struct offer *offer)
{
	struct pl_remote *remote;
	struct pl_error error;

	MUST(pl_remote_import(peer, offer->token, offer->token_length, TIMEOUT, &remote, &error), &error);
	return remote;
}

static void *array(size_t count, size_t size)
{
	void *all = calloc(count, size);

	if (!all) {
		perror("calloc");
		exit(1);
	}
	return all;
}

/* -- subjects ------------------------------------------------------------------------------------------------------- */

static void measure_connect(struct run *run)
{
	struct pl_operation **operations = array(run->count, sizeof(struct pl_operation *));
	unsigned failed = 0;
	struct pl_error error, first = { .id = "" };
	struct pl_context *context;
	struct offer offer;
	uint64_t began;

	start_other(run, "tcp", &offer);
	context = open_context(run, "tcp", PL_PROGRESS_THREAD);
	began = now_ns();
	for (unsigned i = 0; i < run->count; i++)
		MUST(pl_connect_start(context, offer.address, TIMEOUT, i, &operations[i], &error), &error);
	for (unsigned i = 0; i < run->count; i++)
		if (pl_wait(operations[i], TIMEOUT, NULL, &error) < 0 && failed++ == 0)
			first = error;
	began = now_ns() - began;
	if (failed)
		fprintf(stderr, "first failure: %s\n", first.message);
	printf("{\"failed\": %u, \"error\": \"%s\", \"seconds\": %.3f, \"per_second\": %.0f}\n", failed, first.id,
	       (double)began / NS_PER_S, (double)(run->count - failed) * NS_PER_S / (double)began);
	free(operations);
	pl_close(context);
}

static void measure_turns(struct run *run)
{
	struct pl_remote **remotes = array(run->count, sizeof(struct pl_remote *));
	struct pl_peer **peers = array(run->count, sizeof(struct pl_peer *));
	struct pl_context *context;
	struct pl_region *region;
	struct pl_error error;
	struct offer offer;
	uint64_t lowest = UINT64_MAX;

	start_other(run, "tcp", &offer);
	context = open_context(run, "tcp", PL_PROGRESS_MANUAL);
	MUST(pl_region_allocate(context, PAGE, PL_ACCESS_ALL, &region, &error), &error);
	for (unsigned i = 0; i < run->count; i++) {
		peers[i] = connect_one(context, &offer);
		remotes[i] = import(peers[i], &offer);
	}
	for (unsigned round = 0; round < 5; round++) {
		uint64_t began = now_ns();

		for (unsigned i = 0; i < SAMPLES; i++) {
			struct pl_transfer transfer = { .remote = remotes[i % run->count],
							.region = region,
							.length = 8 };
			struct pl_operation *operation;

			MUST(pl_write(peers[i % run->count], &transfer, NULL, &operation, &error), &error);
			MUST(pl_wait(operation, TIMEOUT, NULL, &error), &error);
		}
		began = (now_ns() - began) / SAMPLES;
		lowest = began < lowest ? began : lowest;
	}
	printf("{\"microseconds\": %.2f}\n", (double)lowest / 1000);
	pl_close(context);
	free(remotes);
	free(peers);
}

static void measure_dying(struct run *run)
{
	struct pl_operation **operations = array(run->count, sizeof(struct pl_operation *));
	struct pl_transfer transfer = { .length = PAGE };
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_error error;
	struct offer offer;
	unsigned ended = 0;
	uint64_t began;

	start_other(run, "tcp", &offer);
	context = open_context(run, "tcp", PL_PROGRESS_THREAD);
	MUST(pl_region_allocate(context, PAGE, PL_ACCESS_ALL, &transfer.region, &error), &error);
	peer = connect_one(context, &offer);
	transfer.remote = import(peer, &offer);
	kill(run->other, SIGSTOP);
	for (unsigned i = 0; i < run->count; i++)
		MUST(pl_read(peer, &transfer, NULL, &operations[i], &error), &error);
	began = now_ns();
	kill(run->other, SIGKILL);
	for (unsigned i = 0; i < run->count; i++)
		ended += pl_wait(operations[i], TIMEOUT, NULL, &error) == -ECONNRESET;
	printf("{\"seconds\": %.4f, \"lost\": %u}\n", (double)(now_ns() - began) / NS_PER_S, ended);
	free(operations);
	pl_close(context);
}

/* Neighbours differ in their access, so that the kernel keeps them apart. The memory above them is of the caller. */
static char *map_many(unsigned count)
{
	char *begin =
		mmap(NULL, ((size_t)count + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (unsigned i = 0; begin != MAP_FAILED && i < count; i += 2)
		if (mprotect(begin + (size_t)i * PAGE, PAGE, PROT_READ) < 0)
			begin = MAP_FAILED;
	if (begin == MAP_FAILED) {
		perror("mmap: see vm.max_map_count");
		exit(1);
	}
	return begin + (size_t)count * PAGE;
}

static void measure_mappings(struct run *run)
{
	struct pl_context *context = open_context(run, "tcp", PL_PROGRESS_MANUAL);
	char *memory = map_many(run->count);
	uint64_t times[21];

	for (unsigned i = 0; i < 21; i++) {
		uint64_t began = now_ns();
		struct pl_region *region;
		struct pl_error error;

		MUST(pl_region_register(context, memory, PAGE, PL_ACCESS_ALL, &region, &error), &error);
		times[i] = now_ns() - began;
		pl_region_deregister(region);
	}
	sort_times(times, 21);
	printf("{\"register_microseconds\": %.2f}\n", (double)times[10] / 1000);
	pl_close(context);
}

static void measure_regions(struct run *run)
{
	struct pl_context *context = open_context(run, "tcp", PL_PROGRESS_MANUAL);
	uint64_t begins[SAMPLES], ends[SAMPLES];
	static _Alignas(PAGE) char memory[PAGE];
	struct pl_region *region;
	struct pl_error error;

	for (unsigned i = 0; i < run->count; i++)
		MUST(pl_region_register(context, memory, PAGE, PL_ACCESS_ALL, &region, &error), &error);
	for (unsigned i = 0; i < SAMPLES; i++) {
		uint64_t began = now_ns();

		MUST(pl_region_register(context, memory, PAGE, PL_ACCESS_ALL, &region, &error), &error);
		begins[i] = now_ns() - began;
		began = now_ns();
		MUST(pl_region_deregister(region), NULL);
		ends[i] = now_ns() - began;
	}
	sort_times(begins, SAMPLES);
	sort_times(ends, SAMPLES);
	printf("{\"register_microseconds\": %.2f, \"deregister_microseconds\": %.2f}\n",
	       (double)begins[SAMPLES / 2] / 1000, (double)ends[SAMPLES / 2] / 1000);
	pl_close(context);
}

static void measure_grants(struct run *run)
{
	struct pl_context *context = open_context(run, "tcp", PL_PROGRESS_MANUAL);
	uint64_t shares[SAMPLES], revokes[SAMPLES], ends[SAMPLES];
	struct pl_region *region, *other;
	struct pl_error error;
	struct offer offer;

	MUST(pl_region_allocate(context, PAGE, PL_ACCESS_ALL, &region, &error), &error);
	for (unsigned i = 0; i < run->count; i++)
		share(region, &offer);
	for (unsigned i = 0; i < SAMPLES; i++) {
		uint64_t began = now_ns();

		share(region, &offer);
		shares[i] = now_ns() - began;
		began = now_ns();
		MUST(pl_region_revoke(region, offer.token, offer.token_length), NULL);
		revokes[i] = now_ns() - began;
		MUST(pl_region_allocate(context, PAGE, PL_ACCESS_ALL, &other, &error), &error);
		share(other, &offer);
		began = now_ns();
		MUST(pl_region_deregister(other), NULL);
		ends[i] = now_ns() - began;
	}
	sort_times(shares, SAMPLES);
	sort_times(revokes, SAMPLES);
	sort_times(ends, SAMPLES);
	printf("{\"share_microseconds\": %.2f, \"revoke_microseconds\": %.2f, \"deregister_microseconds\": %.2f}\n",
	       (double)shares[SAMPLES / 2] / 1000, (double)revokes[SAMPLES / 2] / 1000,
	       (double)ends[SAMPLES / 2] / 1000);
	pl_close(context);
}

static void measure_close(struct run *run)
{
	struct pl_context *context;
	struct pl_peer *holder;
	uint64_t times[21];
	struct offer offer;

	start_other(run, "tcp", &offer);
	context = open_context(run, "tcp", PL_PROGRESS_THREAD);
	holder = connect_one(context, &offer);
	for (unsigned i = 0; i < run->count; i++)
		import(holder, &offer);
	for (unsigned i = 0; i < 21; i++) {
		struct pl_peer *peer = connect_one(context, &offer);
		uint64_t began;

		import(peer, &offer);
		began = now_ns();
		pl_peer_close(peer);
		times[i] = now_ns() - began;
	}
	sort_times(times, 21);
	printf("{\"close_microseconds\": %.2f}\n", (double)times[10] / 1000);
	pl_close(context);
}

/* Returns the median time of a write. */
static double write_time(struct pl_peer *peer, const struct pl_transfer *transfer, struct pl_completion *receipt)
{
	uint64_t times[SAMPLES];

	for (unsigned i = 0; i < SAMPLES; i++) {
		uint64_t began = now_ns();
		struct pl_operation *operation;
		struct pl_error error;

		MUST(pl_write(peer, transfer, NULL, &operation, &error), &error);
		MUST(pl_wait(operation, TIMEOUT, receipt, &error), &error);
		times[i] = now_ns() - began;
	}
	sort_times(times, SAMPLES);
	return (double)times[SAMPLES / 2] / 1000;
}

static void measure_keys(struct run *run)
{
	struct pl_remote **remotes = array(run->count, sizeof(struct pl_remote *));
	struct pl_transfer transfer = { .length = 8 };
	struct pl_completion first, last;
	double first_time, last_time;
	struct pl_context *context;
	struct pl_error error;
	struct pl_peer *peer;
	struct offer offer;

	start_other(run, "local", &offer);
	context = open_context(run, "local", PL_PROGRESS_THREAD);
	MUST(pl_region_allocate(context, PAGE, PL_ACCESS_ALL, &transfer.region, &error), &error);
	peer = connect_one(context, &offer);
	for (unsigned i = 0; i < run->count; i++)
		remotes[i] = import(peer, &offer);
	transfer.remote = remotes[0];
	first_time = write_time(peer, &transfer, &first);
	transfer.remote = remotes[run->count - 1];
	last_time = write_time(peer, &transfer, &last);
	printf("{\"first_microseconds\": %.2f, \"first\": \"%s\", \"last_microseconds\": %.2f, \"last\": \"%s\"}\n",
	       first_time, first.reason, last_time, last.reason);
	free(remotes);
	pl_close(context);
}

static const struct subject {
	const char *name;
	void (*measure)(struct run *);
} subjects[] = {
	{ "connect", measure_connect },   { "turns", measure_turns },     { "dying", measure_dying },
	{ "mappings", measure_mappings }, { "regions", measure_regions }, { "grants", measure_grants },
	{ "close", measure_close },       { "keys", measure_keys },
};

int main(int argc, char **argv)
{
	struct run run = { .other = -1, .socket = -1, .key = argc > 3 && *argv[3] ? argv[3] : NULL };
	struct rlimit limit;

	run.count = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	run.workers = argc > 4 ? (unsigned)atoi(argv[4]) : 0;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (size_t i = 0; run.count && i < sizeof(subjects) / sizeof(subjects[0]); i++) {
		if (strcmp(argv[1], subjects[i].name) != 0)
			continue;
		subjects[i].measure(&run);
		close(run.socket);
		if (run.other > 0)
			waitpid(run.other, NULL, 0);
		return 0;
	}
	fprintf(stderr,
		"usage: scale SUBJECT COUNT [KEY [WORKERS]], SUBJECT is connect, turns, dying, mappings, regions, "
		"grants, close or keys\n");
	return 2;
}
