/* SPDX-License-Identifier: BSD-2-Clause */
/* The other end does not read one socket: operations use the others, also once much is in flight over that socket. */
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

/* For writes of one chunk the library wakes no sleeping thread while 256 KiB wait for a lane that works. */
#define CHUNK ((size_t)64 << 10)
#define CHUNKS_LEFT 4u
/* The library wakes no further lane for an operation of this size while one works. */
#define SMALL ((size_t)32 << 10)
#define LARGE ((size_t)16 << 20)
#define LARGE_MOST 64u
/* A lane of loopback takes no write with this many bytes in flight; with half of them while little work waits. */
#define FLIGHT ((uint32_t)512 << 10)
/* Writes that are posted at once, and the most that the stalled lane may have. */
#define FLIGHT_OPERATIONS 32u
#define FLIGHT_LEFT 96u
/* The bulk lanes: one whose other end does not read, and one without work. */
#define STALLED 1u
#define IDLE 2u

static const struct setting setting = {
	.name = "lane-stalled", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 2
};

struct stalled {
	struct pair pair;
	struct tcp_endpoint *near;
	struct tcp_lane *far_lane;
	int far_socket, stand_in[2]; /* the far lane's socket, and the pair that has its descriptor meanwhile */
	struct pl_operation *large[LARGE_MOST];
	unsigned count;
};

static void limit_buffer(int fd, int option, int bytes)
{
	check_number(setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof(bytes)), 0);
}

/*
 * Gives the far lane's descriptor to a socket that has no bytes and takes none. To watch the lane's socket no more is not enough:
 * the engine may have fetched an event before, and what it sends makes it watch the socket again.
 */
static void hide_far_socket(struct stalled *rig)
{
	int fd = rig->far_lane->stream.fd;

	check_number(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, rig->stand_in), 0);
	while (send(rig->stand_in[0], "", 1, 0) == 1)
		;
	pl_engine_lock(rig->far_lane->engine);
	check_number(pl_source_watch(&rig->far_lane->source, 0), 0);
	rig->far_socket = dup(fd);
	check(rig->far_socket >= 0 && dup2(rig->stand_in[0], fd) == fd);
	pl_engine_unlock(rig->far_lane->engine);
}

/* Gives the descriptor back. epoll has kept the socket beside its number. */
static void show_far_socket(struct stalled *rig)
{
	int fd = rig->far_lane->stream.fd;

	limit_buffer(rig->far_socket, SO_RCVBUF, (int)LARGE);
	limit_buffer(rig->near->lanes[STALLED]->stream.fd, SO_SNDBUF, (int)LARGE);
	pl_engine_lock(rig->far_lane->engine);
	check(dup2(rig->far_socket, fd) == fd);
	check_number(pl_source_watch(&rig->far_lane->source, EPOLLIN | EPOLLOUT), 0);
	pl_engine_unlock(rig->far_lane->engine);
	close(rig->far_socket);
	close(rig->stand_in[0]);
	close(rig->stand_in[1]);
}

static struct pl_operation *write_bytes(struct stalled *rig, size_t length)
{
	const struct pl_transfer transfer = { rig->pair.remote, 0, rig->pair.near.region, 0, length };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_write(rig->pair.environment.near_peer, &transfer, NULL, &operation, &error), &error);
	return operation;
}

static bool work_is_listed(const struct stalled *rig)
{
	bool listed;

	pthread_mutex_lock(&rig->near->lock);
	listed = !pl_list_empty(&rig->near->work);
	pthread_mutex_unlock(&rig->near->lock);
	return listed;
}

/* A lane that awaits an acknowledgement looks for work when it comes. */
static bool lane_awaits_nothing(struct tcp_lane *lane)
{
	bool nothing;

	pl_engine_lock(lane->engine);
	nothing = lane->sequence == lane->acked && pl_list_empty(&lane->queue);
	pl_engine_unlock(lane->engine);
	return nothing;
}

/* True if the kernel has bytes that it cannot send, because the other end has no room for a segment. */
static bool socket_is_full(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t length = sizeof(info);
	int unacknowledged, unsent;

	check_number(ioctl(fd, SIOCOUTQ, &unacknowledged), 0);
	check_number(ioctl(fd, SIOCOUTQNSD, &unsent), 0);
	check_number(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
	return unsent && unacknowledged == unsent && info.tcpi_snd_wnd < info.tcpi_snd_mss;
}

static bool near_lane_is_blocked(const struct stalled *rig)
{
	return atomic_load(&rig->near->blocked) & 1u << STALLED;
}

static bool near_lane_is_stuck(const struct stalled *rig)
{
	return lane_awaits_nothing(rig->near->lanes[IDLE]) && near_lane_is_blocked(rig) &&
	       socket_is_full(rig->near->lanes[STALLED]->stream.fd) && (atomic_load(&rig->near->hungry) & 1u << IDLE) &&
	       !work_is_listed(rig);
}

static void rig_widen(struct stalled *rig)
{
	rig->count = 0;
	pair_open(&rig->pair, &setting, LARGE);
	rig->near = tcp_endpoint_of(rig->pair.environment.near_peer->endpoint);
	/* The first large write opens all lanes. */
	while (atomic_load(&rig->near->bulk_lanes) != (1u << STALLED | 1u << IDLE))
		complete(&rig->pair.environment, write_bytes(rig, LARGE), NULL);
}

static void await_stuck_lane(struct stalled *rig)
{
	while (!near_lane_is_stuck(rig)) {
		/* The kernel may still have taken all. */
		if (!near_lane_is_blocked(rig) && lane_awaits_nothing(rig->near->lanes[IDLE]) && !work_is_listed(rig)) {
			check(rig->count < LARGE_MOST);
			rig->large[rig->count++] = write_bytes(rig, LARGE);
		}
		usleep(1000);
	}
}

/*
 * Writes until the socket of one lane is full, and the other one has nothing more to send. The kernel enlarges buffers, also while
 * nobody reads. Limits far below what the sender's buffer holds keep the socket full.
 */
static void stall_lane(struct stalled *rig)
{
	rig_widen(rig);
	rig->far_lane = tcp_endpoint_of(rig->pair.environment.far_peer->endpoint)->lanes[STALLED];
	hide_far_socket(rig);
	await_stuck_lane(rig);
	limit_buffer(rig->far_socket, SO_RCVBUF, 1);
	limit_buffer(rig->near->lanes[STALLED]->stream.fd, SO_SNDBUF, 1);
	await_stuck_lane(rig);
}

static void end_stall(struct stalled *rig)
{
	show_far_socket(rig);
	for (unsigned i = 0; i < rig->count; i++)
		complete(&rig->pair.environment, rig->large[i], NULL);
	pair_close(&rig->pair);
}

static void write_beside_full_socket(void *unused)
{
	struct stalled rig;

	(void)unused;
	stall_lane(&rig);
	complete(&rig.pair.environment, write_bytes(&rig, SMALL), NULL);
	end_stall(&rig);
}

/* The write is left to a lane whose socket is found full only then. */
static void write_before_full_socket(void *unused)
{
	struct pl_operation *operation;
	struct tcp_lane *lane;
	struct stalled rig;

	(void)unused;
	stall_lane(&rig);
	lane = rig.near->lanes[STALLED];
	pl_engine_lock(lane->engine);
	tcp_lane_unblock(lane);
	pl_engine_unlock(lane->engine);
	operation = write_bytes(&rig, SMALL);
	while (!work_is_listed(&rig))
		usleep(1000);
	pl_engine_lock(lane->engine);
	tcp_lane_block(lane);
	pl_engine_unlock(lane->engine);
	complete(&rig.pair.environment, operation, NULL);
	end_stall(&rig);
}

/* A lane that works has several small writes for itself before another one's thread is woken. */
static void write_beside_sleeping_lane(void *unused)
{
	struct pl_operation *operations[CHUNKS_LEFT + 1];
	const unsigned both = 1u << STALLED | 1u << IDLE;
	struct tcp_lane *sleeper;
	struct stalled rig;

	(void)unused;
	rig_widen(&rig);
	sleeper = rig.near->lanes[STALLED];
	check(sleeper->engine != rig.near->base.peer->home);
	while (!lane_awaits_nothing(sleeper) || !lane_awaits_nothing(rig.near->lanes[IDLE]) ||
	       atomic_load(&rig.near->hungry) != both || !pl_engine_asleep(sleeper->engine))
		usleep(1000);
	/* The other one looks for work no more, as if it had some. */
	atomic_store(&rig.near->hungry, 1u << STALLED);
	for (unsigned i = 0; i < CHUNKS_LEFT; i++) {
		operations[i] = write_bytes(&rig, CHUNK);
		check(atomic_load(&rig.near->hungry) == 1u << STALLED);
	}
	operations[CHUNKS_LEFT] = write_bytes(&rig, CHUNK);
	for (unsigned i = 0; i <= CHUNKS_LEFT; i++)
		complete(&rig.pair.environment, operations[i], NULL);
	pair_close(&rig.pair);
}

/* -- bytes in flight ------------------------------------------------------------------------------ */

struct flight {
	struct stalled stalled;
	struct pl_operation *left[FLIGHT_LEFT];
	unsigned count;
};

/* State of the stalled lane at the near end. */
struct near_state {
	uint32_t taken; /* bytes to send or in flight */
	bool sent, full, blocked;
};

static struct near_state near_state(const struct flight *rig)
{
	struct tcp_lane *lane = rig->stalled.near->lanes[STALLED];
	struct near_state state;

	pl_engine_lock(lane->engine);
	state.taken = lane->flight.bytes + lane->queued;
	state.sent = pl_list_empty(&lane->queue);
	state.full = lane->flight.full;
	state.blocked = lane->blocked;
	pl_engine_unlock(lane->engine);
	return state;
}

/* True if all that was posted is acknowledged, or left to the stalled lane. */
static bool rest_is_acknowledged(const struct flight *rig)
{
	struct near_state state = near_state(rig);

	return (state.sent || state.blocked) && !work_is_listed(&rig->stalled) &&
	       lane_awaits_nothing(rig->stalled.near->lanes[IDLE]) && lane_awaits_nothing(rig->stalled.near->lanes[0]);
}

/* Keeps the operations that are under way. */
static void keep_rest(struct flight *rig, struct pl_operation **operations, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		if (pl_test(operations[i], NULL, NULL) != -EINPROGRESS)
			continue;
		check(rig->count < FLIGHT_LEFT);
		rig->left[rig->count++] = operations[i];
	}
}

static void write_many(struct flight *rig)
{
	struct pl_operation *operations[FLIGHT_OPERATIONS];

	for (unsigned i = 0; i < FLIGHT_OPERATIONS; i++)
		operations[i] = write_bytes(&rig->stalled, CHUNK);
	while (!rest_is_acknowledged(rig))
		usleep(1000);
	keep_rest(rig, operations, FLIGHT_OPERATIONS);
}

static void flight_begin(struct flight *rig)
{
	struct tcp_lane *lane;

	/* The limit exists where engines poll. */
	poll_time = 20000;
	rig->count = 0;
	rig_widen(&rig->stalled);
	lane = rig->stalled.near->lanes[STALLED];
	rig->stalled.far_lane = tcp_endpoint_of(rig->stalled.pair.environment.far_peer->endpoint)->lanes[STALLED];
	while (!lane_awaits_nothing(lane) || !lane_awaits_nothing(rig->stalled.near->lanes[IDLE]))
		usleep(1000);
	hide_far_socket(&rig->stalled);
	/* The limit is the share again, after any round trips. */
	pl_engine_lock(lane->engine);
	lane->flight.shortest = 0;
	pl_engine_unlock(lane->engine);
	while (!near_state(rig).full)
		write_many(rig);
	check(near_state(rig).taken >= FLIGHT / 2);
}

static void flight_end(struct flight *rig)
{
	show_far_socket(&rig->stalled);
	for (unsigned i = 0; i < rig->count; i++)
		complete(&rig->stalled.pair.environment, rig->left[i], NULL);
	check_number(near_state(rig).taken, 0);
	pair_close(&rig->stalled.pair);
}

static void write_beside_full_flight(void *unused)
{
	struct flight rig;

	(void)unused;
	flight_begin(&rig);
	write_many(&rig);
	check(near_state(&rig).taken < FLIGHT + CHUNK);
	complete(&rig.stalled.pair.environment, write_bytes(&rig.stalled, SMALL), NULL);
	flight_end(&rig);
}

/* A proxy of this host may lead to a distant host. */
static void write_over_long_path(void *unused)
{
	struct tcp_lane *lane;
	struct flight rig;

	(void)unused;
	flight_begin(&rig);
	lane = rig.stalled.near->lanes[STALLED];
	pl_engine_lock(lane->engine);
	lane->flight.shortest = 5 * PL_NS_PER_MS;
	pl_engine_unlock(lane->engine);
	tcp_lane_wake(lane);
	/* Small buffers of the socket take less. */
	while (near_state(&rig).taken < FLIGHT + 2 * CHUNK && !near_state(&rig).blocked)
		write_many(&rig);
	flight_end(&rig);
}

static const struct test_case cases[] = {
	{ "write-beside-full-socket", write_beside_full_socket, NULL, 60 },
	{ "write-before-full-socket", write_before_full_socket, NULL, 60 },
	{ "write-beside-sleeping-lane", write_beside_sleeping_lane, NULL, 60 },
	{ "write-beside-full-flight", write_beside_full_flight, NULL, 60 },
	{ "write-over-long-path", write_over_long_path, NULL, 60 },
};

int main(void)
{
	return cases_run("lane-stalled", cases, PL_ARRAY_SIZE(cases));
}
