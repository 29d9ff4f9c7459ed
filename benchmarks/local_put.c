/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_put latency|rate SIZE SECONDS: writes between two processes of this host into regions that the library
 * allocated, as `ucx_perftest -t ucp_put_lat` and `-t ucp_put_bw` measure it: for the latency both write in turn
 * and look at their own memory for what the other wrote; for the rate one writes, each time the same bytes.
 * Prints one JSON object.
 */
#include "support.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE (10 * NS_PER_S)
/* How many are done between two looks at the clock. */
#define BATCH_BYTES (64u << 20)
#define BATCH_MAX 10000

struct end {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_peer *peer;
	struct pl_region *region; /* where the other end writes to */
	struct pl_region *source;
	struct pl_remote *remote;
	int socket; /* to the other process */
	size_t size;
	uint64_t rounds; /* so far */
	char reason[200];
};

/*
 * Each end on a core of its own, where there are two: a kernel may leave two processes that never
 * sleep on one core for seconds.
 */
static void choose_core(bool first)
{
	cpu_set_t all;
	int wanted = first ? 0 : 1;

	if (sched_getaffinity(0, sizeof(all), &all) || CPU_COUNT(&all) < 2)
		return;
	for (int core = 0; core < CPU_SETSIZE && wanted >= 0; core++)
		if (CPU_ISSET(core, &all) && wanted-- == 0)
			stay_on_core(core);
}

static struct pl_region *allocate(struct end *end)
{
	struct pl_region *region;
	struct pl_error error;

	MUST(pl_region_allocate(end->context, end->size, PL_ACCESS_ALL, &region, &error), &error);
	memset(pl_region_address(region), 0, end->size);
	return region;
}

static void open_end(struct end *end)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_error error;

	options.progress = PL_PROGRESS_MANUAL;
	options.fabric = "local";
	MUST(pl_open(&end->context, &options, &error), &error);
	end->region = allocate(end);
	end->source = allocate(end);
}

/* Both ends want a token of the other's region; neither drives the other, so they take turns. */
static void meet(struct end *end, bool first)
{
	struct pl_error error;
	char address[96];

	if (first) {
		MUST(pl_listen(end->context, "127.0.0.1:0", &end->listener, &error), &error);
		pl_listener_address(end->listener, address, sizeof(address));
		put(end->socket, address, sizeof(address));
		MUST(pl_accept(end->listener, PATIENCE, &end->peer, &error), &error);
	} else {
		get(end->socket, address, sizeof(address));
		MUST(pl_connect(end->context, address, 0, &end->peer, &error), &error);
	}
}

static void exchange(struct end *end)
{
	uint8_t token[PL_TOKEN_MAX] = { 0 };
	size_t length = sizeof(token);
	struct pl_operation *operation;
	struct pl_receipt receipt;
	struct pl_error error;
	int status;
	char done;

	MUST(pl_region_share(end->region, NULL, token, &length, &error), &error);
	put(end->socket, &length, sizeof(length));
	put(end->socket, token, sizeof(token));
	get(end->socket, &length, sizeof(length));
	get(end->socket, token, sizeof(token));
	MUST(pl_remote_import_start(end->peer, token, length, 0, &operation, &error), &error);
	while ((status = pl_test(operation, &receipt, &error)) == -EINPROGRESS)
		;
	MUST(status, &error);
	end->remote = receipt.remote;
	put(end->socket, "i", 1);
	/* The other end may still wait for this one's answer. */
	while (recv(end->socket, &done, 1, MSG_DONTWAIT) != 1)
		pl_poll(end->context, NULL, 0);
}

static void write_once(struct end *end)
{
	struct pl_operation *operation;
	struct pl_receipt receipt;
	struct pl_error error;

	MUST(pl_write(end->peer, end->remote, 0, end->source, 0, end->size, NULL, &operation, &error), &error);
	MUST(pl_wait(operation, PATIENCE, end->reason[0] ? NULL : &receipt, &error), &error);
	if (!end->reason[0])
		snprintf(end->reason, sizeof(end->reason), "%s", receipt.reason);
}

static volatile uint8_t *last_byte(const struct end *end, struct pl_region *region)
{
	return (volatile uint8_t *)pl_region_address(region) + end->size - 1;
}

/* The last byte of what came is sent back, one more. */
static void ping_pong(struct end *end, bool first, uint64_t rounds)
{
	volatile uint8_t *last = last_byte(end, end->region), *next = last_byte(end, end->source);

	for (uint64_t i = 0; i < rounds; i++) {
		uint8_t now = (uint8_t)(2 * end->rounds++);

		if (first) {
			*next = (uint8_t)(now + 1);
			write_once(end);
			while (*last != (uint8_t)(now + 2))
				;
		} else {
			while (*last != (uint8_t)(now + 1))
				;
			*next = (uint8_t)(now + 2);
			write_once(end);
		}
	}
}

static void stream(struct end *end, uint64_t writes)
{
	for (uint64_t i = 0; i < writes; i++)
		write_once(end);
}

/* The first end decides when it is over: before each batch it says whether there is one. */
static void follow(struct end *end, bool latency)
{
	uint64_t batch;

	for (;;) {
		while (recv(end->socket, &batch, sizeof(batch), MSG_DONTWAIT) != (ssize_t)sizeof(batch)) {
			pl_poll(end->context, NULL, 0);
			usleep(100);
		}
		if (batch == 0)
			return;
		if (latency)
			ping_pong(end, false, batch);
	}
}

static void lead(struct end *end, bool latency, double seconds)
{
	uint64_t batch = BATCH_BYTES / end->size, done = 0, took = 0;

	batch = latency || batch > BATCH_MAX ? BATCH_MAX : batch ? batch : 1;
	for (bool warm = false; took < (uint64_t)(seconds * (double)NS_PER_S); warm = true) {
		uint64_t began;

		put(end->socket, &batch, sizeof(batch));
		if (latency)
			ping_pong(end, true, 100); /* both are awake now */
		began = now_ns();
		if (latency)
			ping_pong(end, true, batch - 100);
		else
			stream(end, batch);
		if (warm) {
			took += now_ns() - began;
			done += latency ? batch - 100 : batch;
		}
	}
	batch = 0;
	put(end->socket, &batch, sizeof(batch));
	printf("{\"test\": \"%s\", \"size\": %zu, \"operations\": %llu, \"bytes_per_second\": %.0f, "
	       "\"one_way_us\": %.4f, \"reason\": \"%s\"}\n",
	       latency ? "latency" : "rate", end->size, (unsigned long long)done,
	       (double)done * (double)end->size * (double)NS_PER_S / (double)took,
	       (double)took / (double)done / (latency ? 2000 : 1000), end->reason);
}

int main(int argc, char **argv)
{
	struct end end = { .size = argc == 4 ? strtoull(argv[2], NULL, 0) : 0 };
	bool latency = argc == 4 && !strcmp(argv[1], "latency"), first;
	double seconds = argc == 4 ? atof(argv[3]) : 0;
	int sockets[2], status = 0;
	pid_t child;

	if (end.size == 0 || seconds <= 0 || (!latency && strcmp(argv[1], "rate"))) {
		fprintf(stderr, "usage: local_put latency|rate SIZE SECONDS\n");
		return 2;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) < 0)
		give_up("socketpair", -errno, NULL);
	child = fork();
	if (child < 0)
		give_up("fork", -errno, NULL);
	first = child != 0;
	if (!first)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	choose_core(first);
	end.socket = sockets[first];
	close(sockets[!first]);
	open_end(&end);
	meet(&end, first);
	exchange(&end);
	if (first)
		lead(&end, latency, seconds);
	else
		follow(&end, latency);
	pl_close(end.context);
	if (first && (waitpid(child, &status, 0) != child || status))
		return 1;
	return 0;
}
