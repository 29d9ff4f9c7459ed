/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * nccl_rate PLUGIN SIZE CONNECTIONS DEPTH SECONDS [both]: messages of host memory through the NCCL plugin, between two processes of
 * this machine. In each, one thread serves all connections, as NCCL's proxy does, with up to DEPTH messages under way on each. With
 * `both`, messages go both ways. Prints GB/s of one direction, microseconds of a message, and processor seconds of both processes for
 * each GB. NCCL_RATE_LOG=1 shows what the plugin logs.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "net.h"
#include "support.h"

#define CONNECTIONS_MAX 64
#define DEPTH_MAX 8
#define ROOM_MAX ((size_t)1 << 30)

struct end {
	void *comm, *memory;
	uint8_t *data;
	void *requests[DEPTH_MAX];
	uint64_t begun, ended;
};

struct run {
	const struct net_v10 *net;
	size_t size;
	unsigned connections, depth;
	bool both;
	int other; /* socket to the other process */
	struct end sends[CONNECTIONS_MAX], receives[CONNECTIONS_MAX];
};

/* Shows why a call fails, with NCCL_RATE_LOG set. */
static void keep_log(enum net_log_level level, unsigned long flags, const char *file, int line, const char *format, ...)
{
	va_list arguments;

	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	if (!getenv("NCCL_RATE_LOG"))
		return;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

static void must(enum net_result result, const char *call)
{
	if (result == NET_SUCCESS)
		return;
	fprintf(stderr, "nccl_rate: %s returned %d\n", call, result);
	exit(1);
}

static void load(struct run *run, const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	run->net = library ? dlsym(library, "ncclNetPlugin_v10") : NULL;
	if (!run->net) {
		fprintf(stderr, "nccl_rate: %s\n", dlerror());
		exit(1);
	}
	must(run->net->init(keep_log, NULL), "init()");
}

/* -- connections ---------------------------------------------------------------------------------- */

static void prepare(struct run *run, struct end *end)
{
	size_t room = run->size * run->depth;

	if (posix_memalign((void **)&end->data, 4096, room))
		exit(1);
	memset(end->data, 1, room);
	must(run->net->regMr(end->comm, end->data, room, NET_POINTER_HOST, &end->memory), "regMr()");
}

static void connect_all(struct run *run)
{
	struct net_config config = { .traffic_class = -1 };

	for (unsigned i = 0; i < run->connections; i++) {
		uint8_t mine[NET_HANDLE_SIZE], theirs[NET_HANDLE_SIZE];
		struct net_device_handle *offload = NULL;
		void *listener;

		must(run->net->listen(0, mine, &listener), "listen()");
		put(run->other, mine, sizeof(mine));
		get(run->other, theirs, sizeof(theirs));
		while (!run->sends[i].comm || !run->receives[i].comm) {
			if (!run->sends[i].comm)
				must(run->net->connect(0, &config, theirs, &run->sends[i].comm, &offload), "connect()");
			if (!run->receives[i].comm)
				must(run->net->accept(listener, &run->receives[i].comm, &offload), "accept()");
		}
		must(run->net->closeListen(listener), "closeListen()");
		prepare(run, &run->sends[i]);
		prepare(run, &run->receives[i]);
	}
}

static void close_all(struct run *run)
{
	for (unsigned i = 0; i < run->connections; i++) {
		must(run->net->deregMr(run->sends[i].comm, run->sends[i].memory), "deregMr()");
		must(run->net->deregMr(run->receives[i].comm, run->receives[i].memory), "deregMr()");
		must(run->net->closeSend(run->sends[i].comm), "closeSend()");
		must(run->net->closeRecv(run->receives[i].comm), "closeRecv()");
	}
}

/* -- messages ------------------------------------------------------------------------------------- */

static void begin(struct run *run, struct end *end, bool sends)
{
	unsigned slot = end->begun % run->depth;
	void *data = end->data + slot * run->size, **request = &end->requests[slot];
	size_t size = run->size;
	int tag = 0;

	if (sends)
		must(run->net->isend(end->comm, data, size, 0, end->memory, NULL, request), "isend()");
	else
		must(run->net->irecv(end->comm, 1, &data, &size, &tag, &end->memory, NULL, request), "irecv()");
	end->begun += *request != NULL;
}

/* Begins a message if there is room and it is wanted, and tests the oldest. Returns true if one began or ended. */
static bool serve(struct run *run, struct end *end, bool sends, uint64_t last)
{
	uint64_t begun = end->begun;
	int done = 0;

	if (end->begun < last && end->begun - end->ended < run->depth)
		begin(run, end, sends);
	if (end->begun > end->ended)
		must(run->net->test(end->requests[end->ended % run->depth], &done, NULL), "test()");
	end->ended += (uint64_t)done;
	return end->begun > begun || done;
}

/* Serves all connections until each has moved `last` messages. */
static void move(struct run *run, uint64_t last, bool sends, bool receives)
{
	bool busy = true, progressed = true;

	while (busy) {
		/* As NCCL's proxy: others may run. */
		if (!progressed)
			sched_yield();
		busy = progressed = false;
		for (unsigned i = 0; i < run->connections; i++) {
			if (sends)
				progressed |= serve(run, &run->sends[i], true, last);
			if (receives)
				progressed |= serve(run, &run->receives[i], false, last);
			busy |= (sends && run->sends[i].ended < last) || (receives && run->receives[i].ended < last);
		}
	}
}

static void meet(const struct run *run)
{
	char byte = 0;

	put(run->other, &byte, 1);
	get(run->other, &byte, 1);
}

/* Moves `count` messages more on each connection. Returns the nanoseconds that they took. */
static uint64_t move_more(struct run *run, uint64_t count, bool first)
{
	struct end *end = first || run->both ? &run->sends[0] : &run->receives[0];
	uint64_t begun;

	meet(run);
	begun = now_ns();
	move(run, end->ended + count, first || run->both, !first || run->both);
	meet(run);
	return now_ns() - begun;
}

/* Both processes take the number of messages of the first. */
static uint64_t agreed(const struct run *run, bool first, uint64_t count)
{
	if (first)
		put(run->other, &count, sizeof(count));
	else
		get(run->other, &count, sizeof(count));
	return count;
}

static void measure(struct run *run, bool first, double seconds)
{
	uint64_t count = 16, spent, theirs, took;

	move_more(run, count, first);
	took = move_more(run, count, first);
	count = agreed(run, first, (uint64_t)((double)count * seconds * NS_PER_S / (double)took) + 1);
	spent = processor_ns();
	took = move_more(run, count, first);
	spent = processor_ns() - spent;
	put(run->other, &spent, sizeof(spent));
	get(run->other, &theirs, sizeof(theirs));
	if (first) {
		double messages = (double)(count * run->connections);
		double bytes = messages * (double)run->size;

		printf("%.2f %.2f %.3f\n", bytes / (double)took, (double)took / 1000 / messages,
		       (double)(spent + theirs) / bytes / (run->both ? 2 : 1));
	}
}

int main(int argc, char **argv)
{
	static struct run run;
	int ends[2], status = 0;
	pid_t child;

	run.size = argc > 2 ? (size_t)atol(argv[2]) : 0;
	run.connections = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
	run.depth = argc > 4 ? (unsigned)atoi(argv[4]) : 0;
	run.both = argc > 6 && !strcmp(argv[6], "both");
	if (argc < 6 || run.connections < 1 || run.connections > CONNECTIONS_MAX || run.depth < 1 || run.depth > DEPTH_MAX ||
	    run.size < 1 || run.size > ROOM_MAX / run.depth / run.connections || atof(argv[5]) <= 0) {
		fputs("usage: nccl_rate PLUGIN SIZE CONNECTIONS DEPTH SECONDS [both]\n", stderr);
		return 2;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
		return 1;
	child = fork();
	if (child < 0)
		return 1;
	run.other = ends[child == 0];
	close(ends[child != 0]);
	load(&run, argv[1]);
	connect_all(&run);
	measure(&run, child != 0, atof(argv[5]));
	close_all(&run);
	if (child == 0)
		return 0;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
