/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between two bursts of a large write, a lane looks for acknowledgements: other operations end meanwhile. A lane that shuts sends the
 * rest without a pause.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

#define SIZE ((size_t)32 << 20)
/* Several bursts, and no more than a lane has under way at once. */
#define REST ((size_t)4 << 20)
/* A burst ends with the system call that reaches 512 KiB, and a system call sends at most 2 MiB and a chunk. */
#define BURST_MAX (((size_t)512 << 10) + ((size_t)2 << 20) + TCP_CHUNK_MAX)

static atomic_int watched;       /* descriptor; -1: none */
static atomic_int full;          /* descriptor that takes no bytes; -1: none */
static atomic_size_t sent, most; /* bytes since the last look at it, and the maximum so far */

static void *next_of(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static ssize_t note_sent(int fd, ssize_t count)
{
	if (fd == atomic_load(&watched) && count > 0 && atomic_fetch_add(&sent, (size_t)count) + (size_t)count > most)
		atomic_store(&most, atomic_load(&sent));
	return count;
}

static bool is_full(int fd)
{
	errno = EAGAIN;
	return fd == atomic_load(&full);
}

static void note_look(int fd)
{
	if (fd == atomic_load(&watched))
		atomic_store(&sent, 0);
}

/*
 * These replace functions of the C library in this program. ThreadSanitizer must see the calls, which order threads. A watched socket
 * is never full: the call waits for room.
 */
ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
	static ssize_t (*_Atomic next)(int, const void *, size_t, int);

	if (!next)
		next = (ssize_t(*)(int, const void *, size_t, int))next_of("send");
	if (fd == atomic_load(&watched))
		flags &= ~MSG_DONTWAIT;
	return is_full(fd) ? -1 : note_sent(fd, atomic_load(&next)(fd, bytes, length, flags));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	static ssize_t (*_Atomic next)(int, const struct msghdr *, int);

	if (!next)
		next = (ssize_t(*)(int, const struct msghdr *, int))next_of("sendmsg");
	if (fd == atomic_load(&watched))
		flags &= ~MSG_DONTWAIT;
	return is_full(fd) ? -1 : note_sent(fd, atomic_load(&next)(fd, message, flags));
}

ssize_t recv(int fd, void *bytes, size_t length, int flags)
{
	static ssize_t (*_Atomic next)(int, void *, size_t, int);

	if (!next)
		next = (ssize_t(*)(int, void *, size_t, int))next_of("recv");
	note_look(fd);
	return atomic_load(&next)(fd, bytes, length, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	static ssize_t (*_Atomic next)(int, struct msghdr *, int);

	if (!next)
		next = (ssize_t(*)(int, struct msghdr *, int))next_of("recvmsg");
	note_look(fd);
	return atomic_load(&next)(fd, message, flags);
}

static const struct setting setting = {
	.name = "lane-bursts", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* Each call of the fabric says that it must not wait. */
static void make_waiting(int fd)
{
	check(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0);
}

static void looks_between(void *unused)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct pair pair;
	int fd;

	(void)unused;
	/* Only where engines poll: elsewhere each further round costs more. */
	poll_time = 20000;
	pair_open(&pair, &setting, SIZE);
	pattern_fill(pair.near.bytes, SIZE, 1, 0);
	fd = tcp_endpoint_of(pair.environment.near_peer->endpoint)->lanes[0]->source.fd;
	make_waiting(fd);
	atomic_store(&watched, fd);
	check_ok(pl_write(pair.environment.near_peer,
			  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, SIZE }, NULL, &operation, &error),
		 &error);
	complete(&pair.environment, operation, NULL);
	atomic_store(&watched, -1);
	pattern_check(pair.far.bytes, SIZE, 1, 0);
	check(atomic_load(&most) > 0);
	check(atomic_load(&most) <= BURST_MAX);
	pair_close(&pair);
}

static size_t queued_in(struct tcp_lane *lane)
{
	size_t queued;

	pl_engine_lock(lane->engine);
	queued = lane->queued;
	pl_engine_unlock(lane->engine);
	return queued;
}

static struct pl_operation *read_rest(struct pair *pair)
{
	const struct pl_transfer transfer = { pair->remote, 0, pair->near.region, 0, REST };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_read(pair->environment.near_peer, &transfer, NULL, &operation, &error), &error);
	return operation;
}

/* A lane has all bytes of many messages in its queue when it shuts, and its socket has room for them. */
static void sends_rest(void *unused)
{
	struct tcp_lane *lane;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	poll_time = 20000;
	pair_open(&pair, &setting, REST);
	lane = tcp_endpoint_of(pair.environment.near_peer->endpoint)->lanes[0];
	make_waiting(lane->source.fd);
	atomic_store(&full, lane->source.fd);
	for (size_t at = 0; at < REST; at += PL_EAGER_MAX)
		check_ok(pl_send(pair.environment.near_peer, 1,
				 &(struct pl_buffer){ pair.near.region, at, PL_EAGER_MAX }, NULL, NULL, &error),
			 &error);
	while (queued_in(lane) < REST)
		usleep(100);
	pl_engine_lock(lane->engine);
	atomic_store(&watched, lane->source.fd);
	atomic_store(&full, -1);
	lane->blocked = false; /* and no flush before that of the shut */
	tcp_lane_shut(lane);
	atomic_store(&watched, -1);
	pl_engine_unlock(lane->engine);
	check(atomic_load(&most) >= REST);
	pair_close(&pair);
}

/* Nothing else wakes the lane between the bursts of an answer: the near end has asked for all of it. */
static void goes_on(void *unused)
{
	struct pl_operation *operation;
	struct pair pair;
	int fd;

	(void)unused;
	poll_time = 20000;
	pair_open(&pair, &setting, REST);
	pattern_fill(pair.far.bytes, REST, 1, 0);
	fd = tcp_endpoint_of(pair.environment.far_peer->endpoint)->lanes[0]->source.fd;
	make_waiting(fd);
	atomic_store(&watched, fd);
	operation = read_rest(&pair);
	complete(&pair.environment, operation, NULL);
	atomic_store(&watched, -1);
	pattern_check(pair.near.bytes, REST, 1, 0);
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "looks-between", looks_between, NULL, 300 },
	{ "sends-rest", sends_rest, NULL, 60 },
	{ "goes-on", goes_on, NULL, 60 },
};

int main(void)
{
	atomic_store(&watched, -1);
	atomic_store(&full, -1);
	return cases_run("lane-bursts", cases, sizeof(cases) / sizeof(cases[0]));
}
