/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw_loop FABRIC SIZE DEPTH SECONDS [write|read [ADDRESS]]: writes or reads between two processes of this host, in the
 * simplest loop that the public API allows: DEPTH operations are in flight, and each completion is followed by the next
 * post.  It records no times.  benchmarks/overhead compares `peerlane bench` with it.  ADDRESS (default: 127.0.0.1)
 * chooses an RDMA device, with FABRIC verbs.  Prints one JSON object.
 */
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT (10 * NS_PER_S)
/* Small messages are spread over a window of this size, as in `peerlane bench`. */
#define WINDOW (4ull << 20)
#define BATCH 64
#define WARMUP 1000

struct setting {
	const char *fabric, *address;
	bool read;
	uint64_t size, stride, slots, duration;
	unsigned depth;
};

struct loop {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *region;
	struct pl_remote *remote;
	uint64_t first, last, completed; /* from receipts */
};

static struct pl_context *open_context(const struct setting *setting)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.progress = PL_PROGRESS_MANUAL;
	options.fabric = setting->fabric;
	MUST(pl_open(&context, &options, &error), &error);
	return context;
}

/* Target process: owns the memory and makes progress until it is killed. */
static _Noreturn void serve_target(const struct setting *setting, int socket)
{
	struct pl_context *context = open_context(setting);
	struct pl_listener *listener;
	struct pl_region *region;
	struct pl_error error;
	struct pl_peer *peer;
	char address[80] = "", token[PL_TOKEN_MAX] = "";
	size_t length = sizeof(token);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	MUST(pl_region_allocate(context, setting->slots * setting->stride,
				setting->read ? PL_ACCESS_READ : PL_ACCESS_WRITE, &region, &error),
	     &error);
	memset(pl_region_address(region), 0, pl_region_length(region));
	MUST(pl_region_share(region, NULL, token, &length, &error), &error);
	snprintf(address, sizeof(address), "%.60s:0", setting->address);
	MUST(pl_listen(context, address, &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	put(socket, address, sizeof(address));
	put(socket, &length, sizeof(length));
	put(socket, token, sizeof(token));
	MUST(pl_accept(listener, TIMEOUT, &peer, &error), &error);
	for (;;) {
		pl_poll(context, NULL, 0);
		/* Over other fabrics the initiator copies, or a card does. */
		if (strcmp(setting->fabric, "tcp"))
			usleep(5000);
	}
}

static void connect_initiator(struct loop *loop, const struct setting *setting, int socket)
{
	char address[80], token[PL_TOKEN_MAX];
	struct pl_error error;
	size_t length;

	get(socket, address, sizeof(address));
	get(socket, &length, sizeof(length));
	get(socket, token, sizeof(token));
	loop->context = open_context(setting);
	MUST(pl_connect(loop->context, address, TIMEOUT, &loop->peer, &error), &error);
	MUST(pl_remote_import(loop->peer, token, length, TIMEOUT, &loop->remote, &error), &error);
	MUST(pl_region_allocate(loop->context, setting->slots * setting->stride, PL_ACCESS_LOCAL, &loop->region,
				&error),
	     &error);
	memset(pl_region_address(loop->region), 0x5a, pl_region_length(loop->region));
}

static void post_operation(struct loop *loop, const struct setting *setting, uint64_t number)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint64_t slot = number < setting->slots ? number : number % setting->slots;
	uint64_t offset = slot * setting->stride;
	struct pl_error error;

	attributes.user_data = number;
	if (setting->read)
		MUST(pl_read(loop->peer,
			     &(struct pl_transfer){ loop->remote, offset, loop->region, offset, setting->size },
			     &attributes, NULL, &error),
		     &error);
	else
		MUST(pl_write(loop->peer,
			      &(struct pl_transfer){ loop->remote, offset, loop->region, offset, setting->size },
			      &attributes, NULL, &error),
		     &error);
}

/* Runs until `operations` completed, or for a duration; then waits for all operations in flight. */
static void run_operations(struct loop *loop, const struct setting *setting, uint64_t operations, uint64_t duration)
{
	_Alignas(64) struct pl_completion completions[BATCH];
	uint64_t posted = 0;
	bool ended = false;

	loop->completed = loop->last = 0;
	loop->first = UINT64_MAX;
	for (; posted < setting->depth && posted < operations; posted++)
		post_operation(loop, setting, posted);
	while (loop->completed < posted) {
		int count = pl_poll(loop->context, completions, BATCH);

		for (int i = 0; i < count; i++) {
			const struct pl_completion *receipt = &completions[i];

			struct pl_error error;

			if (receipt->status < 0) {
				pl_completion_error(loop->context, receipt, &error);
				give_up(setting->read ? "pl_read" : "pl_write", receipt->status, &error);
			}
			if (receipt->posted < loop->first)
				loop->first = receipt->posted;
			if (receipt->completed > loop->last)
				loop->last = receipt->completed;
			loop->completed++;
			ended = ended || (duration && loop->last - loop->first >= duration) || posted == operations;
		}
		for (int i = 0; i < count && !ended; i++, posted++) {
			post_operation(loop, setting, completions[i].user_data);
			ended = posted + 1 == operations;
		}
	}
}

int main(int argc, char **argv)
{
	struct setting setting;
	struct loop loop = { 0 };
	double seconds, rate;
	uint64_t processor;
	int sockets[2];
	pid_t child;

	if (argc < 5 || argc > 7 || (argc > 5 && strcmp(argv[5], "write") && strcmp(argv[5], "read"))) {
		fprintf(stderr, "usage: %s FABRIC SIZE DEPTH SECONDS [write|read [ADDRESS]]\n", argv[0]);
		return 2;
	}
	setting = (struct setting){ .fabric = argv[1],
				    .address = argc > 6 ? argv[6] : "127.0.0.1",
				    .read = argc > 5 && !strcmp(argv[5], "read"),
				    .size = strtoull(argv[2], NULL, 10),
				    .depth = (unsigned)strtoul(argv[3], NULL, 10),
				    .duration = (uint64_t)(strtod(argv[4], NULL) * 1e9) };
	if (!setting.size || !setting.depth || !setting.duration) {
		fprintf(stderr, "%s: SIZE, DEPTH and SECONDS must be numbers above 0\n", argv[0]);
		return 2;
	}
	setting.stride = (setting.size + 63) & ~63ull;
	setting.slots = WINDOW / setting.stride < setting.depth ? WINDOW / setting.stride : setting.depth;
	if (setting.slots == 0)
		setting.slots = 1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		give_up("socketpair", -errno, NULL);
	child = fork();
	if (child < 0)
		give_up("fork", -errno, NULL);
	if (child == 0)
		serve_target(&setting, sockets[1]);
	connect_initiator(&loop, &setting, sockets[0]);
	run_operations(&loop, &setting, WARMUP, 0);
	processor = processor_ns();
	run_operations(&loop, &setting, UINT64_MAX, setting.duration);
	processor = processor_ns() - processor;
	seconds = (double)(loop.last - loop.first) / 1e9;
	rate = (double)loop.completed / seconds;
	printf("{ \"fabric\": \"%s\", \"size\": %llu, \"operations\": %llu, \"seconds\": %.6f, "
	       "\"operations_per_second\": %.0f, \"bytes_per_second\": %.0f, \"processor_ns_per_operation\": %.2f }\n",
	       setting.fabric, (unsigned long long)setting.size, (unsigned long long)loop.completed, seconds, rate,
	       rate * (double)setting.size, (double)processor / (double)loop.completed);
	pl_close(loop.context);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
