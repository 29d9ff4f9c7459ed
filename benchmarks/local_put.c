/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_put latency|rate SIZE SECONDS: writes between two processes of this host into regions that the library
 * allocated, measured as `ucx_perftest -t ucp_put_lat` and `-t ucp_put_bw` do.  For the latency both processes write in
 * turn and poll their own memory.  For the rate one process writes the same bytes again and again.  Prints one JSON
 * object.
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

#define TIMEOUT (10 * NS_PER_S)
/* Operations between two reads of the clock. */
#define BATCH_BYTES (64u << 20)
#define BATCH_MAX 10000
/* The library measures the rate of the processor's counter twice before it uses that counter: 20 ms. */
#define WARM_UP (NS_PER_S / 20)

struct process {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_peer *peer;
	struct pl_region *region; /* the peer writes into it */
	struct pl_region *source;
	struct pl_remote *remote;
	int socket; /* to the other process */
	size_t size;
	uint64_t rounds; /* so far */
	char reason[200];
};

/*
 * Runs each process on a core of its own, if there are two: a kernel may leave two processes that never sleep on one
 * core for seconds.
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

static struct pl_region *allocate_region(struct process *self)
{
	struct pl_region *region;
	struct pl_error error;

	MUST(pl_region_allocate(self->context, self->size, PL_ACCESS_ALL, &region, &error), &error);
	memset(pl_region_address(region), 0, self->size);
	return region;
}

static void open_process(struct process *self)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_error error;

	options.progress = PL_PROGRESS_MANUAL;
	options.fabric = "local";
	MUST(pl_open(&self->context, &options, &error), &error);
	self->region = allocate_region(self);
	self->source = allocate_region(self);
}

/* Connects both processes; each drives only its own context, so they take turns. */
static void connect_processes(struct process *self, bool first)
{
	struct pl_error error;
	char address[96];

	if (first) {
		MUST(pl_listen(self->context, "127.0.0.1:0", &self->listener, &error), &error);
		pl_listener_address(self->listener, address, sizeof(address));
		put(self->socket, address, sizeof(address));
		MUST(pl_accept(self->listener, TIMEOUT, &self->peer, &error), &error);
	} else {
		get(self->socket, address, sizeof(address));
		MUST(pl_connect(self->context, address, 0, &self->peer, &error), &error);
	}
}

static void exchange_tokens(struct process *self)
{
	uint8_t token[PL_TOKEN_MAX] = { 0 };
	size_t length = sizeof(token);
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;
	int status;
	char done;

	MUST(pl_region_share(self->region, NULL, token, &length, &error), &error);
	put(self->socket, &length, sizeof(length));
	put(self->socket, token, sizeof(token));
	get(self->socket, &length, sizeof(length));
	get(self->socket, token, sizeof(token));
	MUST(pl_remote_import_start(self->peer, token, length, 0, &operation, &error), &error);
	while ((status = pl_test(operation, &receipt, &error)) == -EINPROGRESS)
		;
	MUST(status, &error);
	self->remote = receipt.remote;
	put(self->socket, "i", 1);
	/* The other process may still need progress of this one. */
	while (recv(self->socket, &done, 1, MSG_DONTWAIT) != 1)
		pl_poll(self->context, NULL, 0);
}

static void write_once(struct process *self)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	MUST(pl_write(self->peer, &(struct pl_transfer){ self->remote, 0, self->source, 0, self->size }, NULL,
		      &operation, &error),
	     &error);
	MUST(pl_wait(operation, TIMEOUT, self->reason[0] ? NULL : &receipt, &error), &error);
	if (!self->reason[0])
		snprintf(self->reason, sizeof(self->reason), "%s", receipt.reason);
}

static volatile uint8_t *last_byte(const struct process *self, struct pl_region *region)
{
	return (volatile uint8_t *)pl_region_address(region) + self->size - 1;
}

/* Returns the last byte of each message, incremented. */
static void ping_pong(struct process *self, bool first, uint64_t rounds)
{
	volatile uint8_t *last = last_byte(self, self->region), *next = last_byte(self, self->source);

	for (uint64_t i = 0; i < rounds; i++) {
		uint8_t now = (uint8_t)(2 * self->rounds++);

		if (first) {
			*next = (uint8_t)(now + 1);
			write_once(self);
			while (*last != (uint8_t)(now + 2))
				;
		} else {
			while (*last != (uint8_t)(now + 1))
				;
			*next = (uint8_t)(now + 2);
			write_once(self);
		}
	}
}

static void write_batch(struct process *self, uint64_t writes)
{
	for (uint64_t i = 0; i < writes; i++)
		write_once(self);
}

/* Runs batches until the first process sends an empty one. */
static void run_second(struct process *self, bool latency)
{
	uint64_t batch;

	for (;;) {
		while (recv(self->socket, &batch, sizeof(batch), MSG_DONTWAIT) != (ssize_t)sizeof(batch)) {
			pl_poll(self->context, NULL, 0);
			usleep(100);
		}
		if (batch == 0)
			return;
		if (latency)
			ping_pong(self, false, batch);
	}
}

static void run_first(struct process *self, bool latency, double seconds)
{
	uint64_t batch = BATCH_BYTES / self->size, start = now_ns(), done = 0, took = 0, used = 0;

	batch = latency || batch > BATCH_MAX ? BATCH_MAX : batch ? batch : 1;
	while (took < (uint64_t)(seconds * (double)NS_PER_S)) {
		uint64_t began, busy;
		bool warm;

		put(self->socket, &batch, sizeof(batch));
		if (latency)
			ping_pong(self, true, 100); /* wakes both processes */
		began = now_ns();
		warm = began - start > WARM_UP;
		busy = processor_ns();
		if (latency)
			ping_pong(self, true, batch - 100);
		else
			write_batch(self, batch);
		if (warm) {
			used += processor_ns() - busy;
			took += now_ns() - began;
			done += latency ? batch - 100 : batch;
		}
	}
	batch = 0;
	put(self->socket, &batch, sizeof(batch));
	printf("{\"test\": \"%s\", \"size\": %zu, \"operations\": %llu, \"bytes_per_second\": %.0f, "
	       "\"one_way_us\": %.4f, \"processor_ns_per_operation\": %.2f, \"reason\": \"%s\"}\n",
	       latency ? "latency" : "rate", self->size, (unsigned long long)done,
	       (double)done * (double)self->size * (double)NS_PER_S / (double)took,
	       (double)took / (double)done / (latency ? 2000 : 1000), (double)used / (double)done, self->reason);
}

int main(int argc, char **argv)
{
	struct process self = { .size = argc == 4 ? strtoull(argv[2], NULL, 0) : 0 };
	bool latency = argc == 4 && !strcmp(argv[1], "latency"), first;
	double seconds = argc == 4 ? atof(argv[3]) : 0;
	int sockets[2], status = 0;
	pid_t child;

	if (self.size == 0 || seconds <= 0 || (!latency && strcmp(argv[1], "rate"))) {
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
	self.socket = sockets[first];
	close(sockets[!first]);
	open_process(&self);
	connect_processes(&self, first);
	exchange_tokens(&self);
	if (first)
		run_first(&self, latency, seconds);
	else
		run_second(&self, latency);
	pl_close(self.context);
	if (first && (waitpid(child, &status, 0) != child || status))
		return 1;
	return 0;
}
