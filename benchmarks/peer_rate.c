/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer_rate PROGRESS PEERS THREADS SIZE SECONDS [WORKERS]: writes of SIZE bytes over tcp to PEERS peers in another process, one under
 * way at each peer. Each of THREADS threads has peers and a region of its own. PROGRESS is thread or manual (one thread). WORKERS:
 * engines of each process, by default those of the library.
 * Before that, the same with plain sockets: a thread sends 32 + SIZE bytes to each socket, waits in epoll, and sends again
 * after an answer of 32 bytes; the other process has as many threads. Prints one JSON object: operations a second, and
 * microseconds of processor time for an operation, of this process and of the other one.
 */
#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT (60 * NS_PER_S)
#define HEADER 32u
#define SIZE_MOST 4096u
#define EVENTS 64

struct run {
	bool manual;
	unsigned peers, threads, workers;
	size_t size;
	uint64_t duration;
	int socket; /* to the other process */
	pid_t other;
};

/* Peers of a thread, and its results. */
struct worker {
	struct run *run;
	pthread_t thread;
	unsigned first, count;
	uint64_t operations;
};

struct result {
	double per_second, own_microseconds, other_microseconds;
};

static int *fds; /* of plain sockets */
static struct pl_context *context;
static struct pl_peer **peers;
static struct pl_transfer *transfers; /* for each peer */
static atomic_bool done;

static void *array(size_t count, size_t size)
{
	void *all = calloc(count, size);

	if (!all)
		give_up("calloc", -errno, NULL);
	return all;
}

/* Runs a function in a thread for each share of the peers. */
static struct worker *start_workers(struct run *run, void *(*work)(void *))
{
	struct worker *workers = array(run->threads, sizeof(*workers));

	for (unsigned i = 0; i < run->threads; i++) {
		workers[i].run = run;
		workers[i].first = (unsigned)((uint64_t)run->peers * i / run->threads);
		workers[i].count = (unsigned)((uint64_t)run->peers * (i + 1) / run->threads) - workers[i].first;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			give_up("pthread_create", -errno, NULL);
	}
	return workers;
}

/* -- the other process ------------------------------------------------------------------------------------------------ */

static int watch_share(const struct worker *worker)
{
	int epoll = epoll_create1(0);

	for (unsigned i = worker->first; i < worker->first + worker->count; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.fd = fds[i] };

		if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event) < 0)
			give_up("epoll_ctl", -errno, NULL);
	}
	return epoll;
}

/* Answers each message of plain sockets. */
static void *answer_sockets(void *argument)
{
	struct worker *worker = argument;
	static const char answer[HEADER];
	int epoll = watch_share(worker);

	for (;;) {
		struct epoll_event events[EVENTS];
		int count = epoll_wait(epoll, events, EVENTS, -1);

		for (int i = 0; i < count; i++) {
			char bytes[HEADER + SIZE_MOST];

			if (recv(events[i].data.fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
				send(events[i].data.fd, answer, sizeof(answer), MSG_NOSIGNAL);
		}
	}
	return NULL;
}

static void set_no_delay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static _Noreturn void serve_sockets(struct run *run)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, 4096) < 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &length) < 0)
		give_up("listen", -errno, NULL);
	put(run->socket, &address, sizeof(address));
	for (unsigned i = 0; i < run->peers; i++) {
		fds[i] = accept(listener, NULL, NULL);
		if (fds[i] < 0)
			give_up("accept", -errno, NULL);
		set_no_delay(fds[i]);
	}
	start_workers(run, answer_sockets);
	tell_processor_time(run->socket);
}

static struct pl_context *open_context(const struct run *run, enum pl_progress progress)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *opened;
	struct pl_error error;

	options.fabric = "tcp";
	options.progress = progress;
	options.workers = run->workers;
	MUST(pl_open(&opened, &options, &error), &error);
	return opened;
}

static _Noreturn void serve_peers(struct run *run)
{
	struct pl_context *far = open_context(run, PL_PROGRESS_THREAD);
	struct pl_listener *listener;
	struct pl_error error;
	char address[96] = "";

	MUST(pl_listen(far, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	put(run->socket, address, sizeof(address));
	for (unsigned i = 0; i < run->threads; i++) {
		uint8_t token[PL_TOKEN_MAX] = { 0 };
		size_t length = sizeof(token);
		struct pl_region *region;

		MUST(pl_region_allocate(far, run->size, PL_ACCESS_ALL, &region, &error), &error);
		MUST(pl_region_share(region, NULL, token, &length, &error), &error);
		put(run->socket, &length, sizeof(length));
		put(run->socket, token, sizeof(token));
	}
	for (unsigned i = 0; i < run->peers; i++) {
		struct pl_peer *peer;

		MUST(pl_accept(listener, TIMEOUT, &peer, &error), &error);
	}
	tell_processor_time(run->socket);
}

static void start_other(struct run *run, void (*serve)(struct run *))
{
	run->other = start_process(&run->socket);
	if (run->other == 0)
		serve(run);
}

static void end_other(struct run *run)
{
	close(run->socket);
	waitpid(run->other, NULL, 0);
}

/* -- the first process ------------------------------------------------------------------------------------------------ */

static uint64_t ask_other(const struct run *run)
{
	uint64_t time;

	put(run->socket, "?", 1);
	get(run->socket, &time, sizeof(time));
	return time;
}

static struct result measure(struct run *run, void *(*work)(void *))
{
	uint64_t began = now_ns(), own = processor_ns(), other = ask_other(run), operations = 0;
	struct worker *workers;

	atomic_store(&done, false);
	workers = start_workers(run, work);
	usleep((useconds_t)(run->duration / 1000));
	atomic_store(&done, true);
	for (unsigned i = 0; i < run->threads; i++) {
		pthread_join(workers[i].thread, NULL);
		operations += workers[i].operations;
	}
	began = now_ns() - began;
	own = processor_ns() - own;
	other = ask_other(run) - other;
	free(workers);
	return (struct result){ (double)operations * NS_PER_S / (double)began, (double)own / 1000 / (double)operations,
				(double)other / 1000 / (double)operations };
}

static void *use_sockets(void *argument)
{
	struct worker *worker = argument;
	size_t length = HEADER + worker->run->size;
	static const char bytes[HEADER + SIZE_MOST];
	unsigned under_way = worker->count;
	int epoll = watch_share(worker);

	for (unsigned i = worker->first; i < worker->first + worker->count; i++)
		send(fds[i], bytes, length, MSG_NOSIGNAL);
	while (under_way) {
		struct epoll_event events[EVENTS];
		int count = epoll_wait(epoll, events, EVENTS, worker->run->manual ? 0 : -1);

		for (int i = 0; i < count; i++) {
			char answer[HEADER];

			if (recv(events[i].data.fd, answer, sizeof(answer), MSG_DONTWAIT) <= 0)
				continue;
			worker->operations++;
			if (atomic_load_explicit(&done, memory_order_relaxed))
				under_way--;
			else
				send(events[i].data.fd, bytes, length, MSG_NOSIGNAL);
		}
	}
	close(epoll);
	return NULL;
}

static struct result measure_sockets(struct run *run)
{
	struct sockaddr_in address;
	struct result result;

	start_other(run, serve_sockets);
	get(run->socket, &address, sizeof(address));
	for (unsigned i = 0; i < run->peers; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fds[i] < 0 || connect(fds[i], (struct sockaddr *)&address, sizeof(address)) < 0)
			give_up("connect", -errno, NULL);
		set_no_delay(fds[i]);
	}
	result = measure(run, use_sockets);
	for (unsigned i = 0; i < run->peers; i++)
		close(fds[i]);
	end_other(run);
	return result;
}

/* Manual progress: each completion is followed by the next write to its peer. */
static void *use_peers_manually(void *argument)
{
	struct worker *worker = argument;
	unsigned under_way = worker->run->peers;
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	for (unsigned i = 0; i < worker->run->peers; i++) {
		attributes.user_data = i;
		MUST(pl_write(peers[i], &transfers[i], &attributes, NULL, &error), &error);
	}
	while (under_way) {
		struct pl_completion completions[EVENTS];
		int count = pl_poll(context, completions, EVENTS);

		for (int i = 0; i < count; i++) {
			unsigned peer = (unsigned)completions[i].user_data;

			MUST(completions[i].status, NULL);
			worker->operations++;
			attributes.user_data = peer;
			if (atomic_load_explicit(&done, memory_order_relaxed))
				under_way--;
			else
				MUST(pl_write(peers[peer], &transfers[peer], &attributes, NULL, &error), &error);
		}
	}
	return NULL;
}

/* Threads make progress: waits for the writes of the own peers in their order. */
static void *use_peers(void *argument)
{
	struct worker *worker = argument;
	struct pl_operation **operations = array(worker->count + 1, sizeof(struct pl_operation *));
	struct pl_error error;

	for (unsigned i = 0; i < worker->count; i++)
		MUST(pl_write(peers[worker->first + i], &transfers[worker->first + i], NULL, &operations[i], &error),
		     &error);
	for (bool last = false; !last;) {
		last = atomic_load_explicit(&done, memory_order_relaxed);
		for (unsigned i = 0; i < worker->count; i++) {
			unsigned peer = worker->first + i;

			MUST(pl_wait(operations[i], TIMEOUT, NULL, &error), &error);
			worker->operations++;
			if (!last)
				MUST(pl_write(peers[peer], &transfers[peer], NULL, &operations[i], &error), &error);
		}
	}
	free(operations);
	return NULL;
}

static void connect_share(struct run *run, const char *address, unsigned first, unsigned end)
{
	uint8_t token[PL_TOKEN_MAX];
	struct pl_region *region;
	struct pl_error error;
	size_t length;

	get(run->socket, &length, sizeof(length));
	get(run->socket, token, sizeof(token));
	MUST(pl_region_allocate(context, run->size, PL_ACCESS_ALL, &region, &error), &error);
	for (unsigned i = first; i < end; i++) {
		transfers[i].region = region;
		transfers[i].length = run->size;
		MUST(pl_connect(context, address, TIMEOUT, &peers[i], &error), &error);
		MUST(pl_remote_import(peers[i], token, length, TIMEOUT, &transfers[i].remote, &error), &error);
	}
}

static struct result measure_peers(struct run *run)
{
	char address[96];
	struct result result;

	start_other(run, serve_peers);
	get(run->socket, address, sizeof(address));
	context = open_context(run, run->manual ? PL_PROGRESS_MANUAL : PL_PROGRESS_THREAD);
	for (unsigned i = 0; i < run->threads; i++)
		connect_share(run, address, (unsigned)((uint64_t)run->peers * i / run->threads),
			      (unsigned)((uint64_t)run->peers * (i + 1) / run->threads));
	result = measure(run, run->manual ? use_peers_manually : use_peers);
	pl_close(context);
	end_other(run);
	return result;
}

static void print_result(const char *name, const struct result *result, const char *end)
{
	printf("\"%s\": {\"per_second\": %.0f, \"own_microseconds\": %.2f, \"other_microseconds\": %.2f}%s", name,
	       result->per_second, result->own_microseconds, result->other_microseconds, end);
}

int main(int argc, char **argv)
{
	struct result sockets, writes;
	struct rlimit limit;
	struct run run;

	if (argc != 6 && argc != 7) {
		fprintf(stderr, "usage: peer_rate thread|manual PEERS THREADS SIZE SECONDS [WORKERS]\n");
		return 2;
	}
	run = (struct run){ .manual = !strcmp(argv[1], "manual"),
			    .peers = (unsigned)atoi(argv[2]),
			    .threads = (unsigned)atoi(argv[3]),
			    .size = (size_t)atoi(argv[4]),
			    .workers = argc > 6 ? (unsigned)atoi(argv[6]) : 0,
			    .duration = (uint64_t)(atof(argv[5]) * NS_PER_S) };
	if (run.manual)
		run.threads = 1;
	if (!run.threads || run.peers < run.threads || !run.size || run.size > SIZE_MOST) {
		fprintf(stderr, "peer_rate: at least one peer for each thread, 1 to 4096 bytes\n");
		return 2;
	}
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	fds = array(run.peers, sizeof(*fds));
	peers = array(run.peers, sizeof(*peers));
	transfers = array(run.peers, sizeof(*transfers));
	sockets = measure_sockets(&run);
	writes = measure_peers(&run);
	printf("{");
	print_result("sockets", &sockets, ", ");
	print_result("peerlane", &writes, "}\n");
	free(fds);
	free(peers);
	free(transfers);
	return 0;
}
