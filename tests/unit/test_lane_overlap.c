/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests and answers of a lane overlap: the far end sends what waits in parts, and the near end asks for more after half of that,
 * within its visit. The far end does nothing until the near one has requested its share, so all requests reach it together.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/tcp/turns.h"
#include "support/cases.h"
#include "support/pair.h"

#define LARGE ((size_t)1 << 20)
#define LARGE_COUNT 4u
/* Bulk lanes, beside lane 0. Each requests a share, and leaves work in the list. */
#define LANES 2u
#define SHARE_MIN (640u << 10)

static atomic_int receiver = -1, sender = -1; /* descriptors that are watched; -1: none */
static atomic_int held = -1;                  /* descriptor without bytes, as long as the receiver is watched */
static atomic_size_t received;                /* bytes, until the receiver sends some */
static atomic_size_t sent_most;               /* by one call */
static atomic_size_t wanted;                  /* the receiver waits for bytes until it has so many */

static void *next_of(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static int flags_to_send(int fd, int flags)
{
	return fd == atomic_load(&sender) ? flags & ~MSG_DONTWAIT : flags;
}

static ssize_t note_sent(int fd, ssize_t count)
{
	if (fd == atomic_load(&sender) && count > 0 && (size_t)count > atomic_load(&sent_most))
		atomic_store(&sent_most, (size_t)count);
	if (fd == atomic_load(&receiver) && atomic_load(&received) > 0)
		atomic_store(&receiver, -1);
	return count;
}

/* A visit ends when the socket is empty. It is not until the near end has received what it wants. */
static int flags_to_receive(int fd, int flags)
{
	if (fd != atomic_load(&receiver) || atomic_load(&received) >= atomic_load(&wanted))
		return flags;
	return (flags & ~MSG_DONTWAIT) | MSG_WAITALL;
}

/* The other lane takes no work that the receiver's lane shall find in the list. */
static bool is_held(int fd)
{
	if (fd != atomic_load(&held) || atomic_load(&receiver) < 0)
		return false;
	errno = EAGAIN;
	return true;
}

static ssize_t note_received(int fd, ssize_t count)
{
	if (fd == atomic_load(&receiver) && count > 0)
		atomic_fetch_add(&received, (size_t)count);
	return count;
}

/* Functions of the C library, replaced in this program. */
ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
	static ssize_t (*_Atomic next)(int, const void *, size_t, int);

	if (!next)
		next = (ssize_t(*)(int, const void *, size_t, int))next_of("send");
	return note_sent(fd, atomic_load(&next)(fd, bytes, length, flags_to_send(fd, flags)));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	static ssize_t (*_Atomic next)(int, const struct msghdr *, int);

	if (!next)
		next = (ssize_t(*)(int, const struct msghdr *, int))next_of("sendmsg");
	return note_sent(fd, atomic_load(&next)(fd, message, flags_to_send(fd, flags)));
}

ssize_t recv(int fd, void *bytes, size_t length, int flags)
{
	static ssize_t (*_Atomic next)(int, void *, size_t, int);

	if (!next)
		next = (ssize_t(*)(int, void *, size_t, int))next_of("recv");
	if (is_held(fd))
		return -1;
	return note_received(fd, atomic_load(&next)(fd, bytes, length, flags_to_receive(fd, flags)));
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	static ssize_t (*_Atomic next)(int, struct msghdr *, int);

	if (!next)
		next = (ssize_t(*)(int, struct msghdr *, int))next_of("recvmsg");
	if (is_held(fd))
		return -1;
	return note_received(fd, atomic_load(&next)(fd, message, flags_to_receive(fd, flags)));
}

/* The path is short, also on a busy machine: lanes request no more than their shares. */
int getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
	static int (*_Atomic next)(int, int, int, void *, socklen_t *);
	int rc;

	if (!next)
		next = (int (*)(int, int, int, void *, socklen_t *))next_of("getsockopt");
	rc = atomic_load(&next)(fd, level, option, value, length);
	if (rc == 0 && level == IPPROTO_TCP && option == TCP_INFO && *length == sizeof(struct tcp_info))
		((struct tcp_info *)value)->tcpi_min_rtt = 10;
	return rc;
}

/* -- cases ---------------------------------------------------------------------------------------- */

static const struct setting setting = {
	.name = "lane-overlap", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = LANES
};

static void open_lanes(struct pair *pair)
{
	struct pl_error error;

	poll_time = 20000;
	pair_open(pair, &setting, LARGE * LARGE_COUNT);
	check_ok(pl_region_prepare(pair->environment.near_peer, pair->near.region, &error), &error);
	pair_spread(pair, LANES);
}

static struct tcp_lane *bulk_lane(struct pl_peer *peer)
{
	return tcp_endpoint_of(peer->endpoint)->lanes[1];
}

/* Each call of the fabric says that it must not wait. */
static void watch(atomic_int *place, int fd)
{
	check(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0);
	atomic_store(place, fd);
}

static void lock_engines(struct pl_context *context)
{
	for (unsigned i = 0; i < context->engine_count; i++)
		pl_engine_lock(context->engines[i]);
}

static void unlock_engines(struct pl_context *context)
{
	for (unsigned i = 0; i < context->engine_count; i++)
		pl_engine_unlock(context->engines[i]);
}

/* Returns what lane 1 requests, once all bulk lanes have sent requests for their shares, and no task can make them request more. */
static size_t share_at_rest(struct pl_peer *peer)
{
	struct pl_context *context = peer->context;
	bool rest = true;
	size_t share;

	lock_engines(context);
	for (unsigned i = 1; i <= LANES; i++) {
		const struct tcp_lane *lane = tcp_endpoint_of(peer->endpoint)->lanes[i];

		rest &= lane->requested >= SHARE_MIN && !lane->queued;
	}
	for (unsigned i = 0; i < context->engine_count; i++)
		rest &= !atomic_load(&context->engines[i]->task_count) &&
			!atomic_load(&context->engines[i]->handed_count);
	share = bulk_lane(peer)->requested;
	unlock_engines(context);
	return rest ? share : 0;
}

/* Reads all bytes. Returns those that the near end's lane requests before the far end answers. */
static size_t read_all(struct pair *pair, size_t parts_wanted)
{
	struct pl_operation *operations[LARGE_COUNT];
	struct pl_context *far = pair->environment.far;
	struct pl_error error;
	size_t share;

	lock_engines(far);
	for (unsigned i = 0; i < LARGE_COUNT; i++) {
		const struct pl_transfer transfer = { pair->remote, i * LARGE, pair->near.region, i * LARGE, LARGE };

		check_ok(pl_read(pair->environment.near_peer, &transfer, NULL, &operations[i], &error), &error);
	}
	while (!(share = share_at_rest(pair->environment.near_peer)))
		usleep(1000);
	atomic_store(&received, 0);
	atomic_store(&sent_most, 0);
	atomic_store(&wanted, share / 4 * parts_wanted);
	unlock_engines(far);
	for (unsigned i = 0; i < LARGE_COUNT; i++)
		complete(&pair->environment, operations[i], NULL);
	atomic_store(&receiver, -1);
	atomic_store(&sender, -1);
	return share;
}

static void answers_in_parts(void *unused)
{
	struct pair pair;
	size_t share;

	(void)unused;
	open_lanes(&pair);
	pattern_fill(pair.far.bytes, LARGE * LARGE_COUNT, 1, 0);
	watch(&sender, bulk_lane(pair.environment.far_peer)->source.fd);
	share = read_all(&pair, 0);
	pattern_check(pair.near.bytes, LARGE * LARGE_COUNT, 1, 0);
	check(atomic_load(&sent_most) > 0);
	check(atomic_load(&sent_most) < share / 4 * 3);
	pair_close(&pair);
}

static void asks_within_visit(void *unused)
{
	struct pair pair;
	size_t share;

	(void)unused;
	open_lanes(&pair);
	pattern_fill(pair.far.bytes, LARGE * LARGE_COUNT, 1, 0);
	atomic_store(&held, tcp_endpoint_of(pair.environment.near_peer->endpoint)->lanes[2]->source.fd);
	watch(&receiver, bulk_lane(pair.environment.near_peer)->source.fd);
	share = read_all(&pair, 3);
	pattern_check(pair.near.bytes, LARGE * LARGE_COUNT, 1, 0);
	check(atomic_load(&received) > 0);
	check(atomic_load(&received) < share / 4 * 3);
	pair_close(&pair);
}

/* Where engines do not poll, a lane sends and receives as much as it can. */
static void has_limits(void *unused)
{
	struct tcp_endpoint *endpoint = calloc(1, sizeof(*endpoint));
	struct pl_engine *engine = calloc(1, sizeof(*engine));
	struct tcp_lane *lane = calloc(1, sizeof(*lane));

	(void)unused;
	check(endpoint && lane && engine);
	lane->endpoint = endpoint;
	lane->engine = engine;
	lane->serving = 1;
	lane->queued = 1u << 20;
	check_number(tcp_lane_gather_limit(lane), TCP_GATHER_BYTES);
	engine->poll_time = 1;
	check_number(tcp_lane_gather_limit(lane), 512u << 10);
	lane->queued = 16u << 20;
	check_number(tcp_lane_gather_limit(lane), TCP_GATHER_BYTES);
	lane->queued = 1;
	check_number(tcp_lane_gather_limit(lane), TCP_GATHER_ANSWERS);
	lane->serving = 0;
	check_number(tcp_lane_gather_limit(lane), TCP_GATHER_BYTES);
	atomic_store(&endpoint->any_work, true);
	lane->requested = 1u << 20;
	tcp_lane_asked(lane);
	check(!tcp_lane_must_ask(lane));
	lane->requested = 512u << 10;
	check(tcp_lane_must_ask(lane));
	engine->poll_time = 0;
	check(!tcp_lane_must_ask(lane));
	lane->answered = TCP_ASK_ANSWERS;
	check(tcp_lane_must_ask(lane));
	lane->answered = 0;
	engine->poll_time = 1;
	atomic_store(&endpoint->any_work, false);
	check(!tcp_lane_must_ask(lane));
	atomic_store(&endpoint->any_work, true);
	lane->requested = TCP_ASK_BYTES;
	tcp_lane_asked(lane);
	lane->requested = 1;
	check(!tcp_lane_must_ask(lane));
	lane->requested = 0;
	check(tcp_lane_must_ask(lane));
	free(lane);
	free(engine);
	free(endpoint);
}

static const struct test_case cases[] = {
	{ "answers-in-parts", answers_in_parts, NULL, 60 },
	{ "asks-within-visit", asks_within_visit, NULL, 60 },
	{ "has-limits", has_limits, NULL, 60 },
};

int main(void)
{
	return cases_run("lane-overlap", cases, sizeof(cases) / sizeof(cases[0]));
}
