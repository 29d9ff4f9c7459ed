/* SPDX-License-Identifier: BSD-2-Clause */
/* Lanes that cannot be opened: the peer goes on with those that it has, and opens the others when that is possible. */
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "core/fabric.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/socket.h"

#define SIZE (8u << 20)
#define LANES 4

struct lanes_rig {
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;
};

static const struct setting settings[] = {
	{ "thread", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, LANES, false, false, false, false },
	{ "encrypted", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, LANES, true, true, false, false },
	{ "manual-encrypted", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, LANES, true, true, false, false },
	{ "manual", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, LANES, false, false, false, false },
};

static void rig_open(struct lanes_rig *rig, const struct setting *setting)
{
	environment_open(&rig->environment, setting);
	buffer_open(&rig->near, rig->environment.near, SIZE, PL_ACCESS_ALL);
	buffer_open(&rig->far, rig->environment.far, SIZE, PL_ACCESS_ALL);
	rig->remote = share(&rig->environment, rig->far.region, rig->environment.near_peer, NULL);
}

static void rig_close(struct lanes_rig *rig)
{
	pl_remote_release(rig->remote);
	buffer_close(&rig->near);
	buffer_close(&rig->far);
	environment_close(&rig->environment);
}

static struct pl_peer_info near_info(struct lanes_rig *rig)
{
	struct pl_peer_info info = peer_information_of(rig->environment.near_peer);

	check(info.connected);
	return info;
}

/* Writes as many bytes as open all lanes, and checks them. */
static void write_once(struct lanes_rig *rig, unsigned seed)
{
	struct pl_operation *operation;
	struct pl_error error;

	pattern_fill(rig->near.bytes, SIZE, seed, 0);
	check_ok(pl_write(rig->environment.near_peer,
			  &(struct pl_transfer){ rig->remote, 0, rig->near.region, 0, SIZE }, NULL, &operation, &error),
		 &error);
	complete(&rig->environment, operation, NULL);
	pattern_check(rig->far.bytes, SIZE, seed, 0);
}

/* Returns once no task of the peer's home waits. Checks that the end of a lane does not end the peer then, or later. */
static void expect_lasting(struct pl_peer *peer)
{
	pl_engine_lock(peer->home);
	pl_engine_unlock(peer->home);
	check(!atomic_load(&peer->ending));
	check_number(atomic_load(&peer->state), PL_PEER_UP);
}

/* True if a further lane of the near end has failed at least twice: its pause has grown. */
static bool near_has_tried_again(struct lanes_rig *rig)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(rig->environment.near_peer->endpoint);
	bool tried = false;

	for (unsigned i = 1; i <= LANES; i++) {
		struct tcp_lane *lane;

		pthread_mutex_lock(&endpoint->lock);
		lane = endpoint->lanes[i];
		pthread_mutex_unlock(&endpoint->lock);
		if (!lane)
			continue;
		pl_engine_lock(lane->engine);
		tried |= lane->retry_pause > PL_NS_PER_S / 4;
		pl_engine_unlock(lane->engine);
	}
	return tried;
}

/* Checks that the further lanes, of which `most` may be open, fail for a reason, and that transfers go on. */
static void expect_missing(struct lanes_rig *rig, int status, unsigned most)
{
	for (unsigned i = 0; i < 2; i++) {
		write_once(rig, i);
		progress_until(&rig->environment, near_info(rig).lanes_missing >= LANES - most);
		check(near_info(rig).lanes <= PL_MAX(most, 1u));
		check_number(near_info(rig).lanes_status, status);
		progress_until(&rig->environment, near_has_tried_again(rig));
		expect_lasting(rig->environment.near_peer);
		expect_lasting(rig->environment.far_peer);
	}
}

static void expect_all(struct lanes_rig *rig)
{
	progress_until(&rig->environment, near_info(rig).lanes == LANES && !near_info(rig).lanes_missing);
	check_number(near_info(rig).lanes_status, 0);
	write_once(rig, 7);
}

/* This process has no descriptor for the lanes. */
static void no_descriptor(void *argument)
{
	struct rlimit limit, none;
	struct lanes_rig rig;

	rig_open(&rig, argument);
	check_number(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = open_descriptors();
	check_number(setrlimit(RLIMIT_NOFILE, &none), 0);
	/* The descriptor of the folder that was counted may be free. */
	expect_missing(&rig, -EMFILE, 1);
	check_number(setrlimit(RLIMIT_NOFILE, &limit), 0);
	expect_all(&rig);
	rig_close(&rig);
}

/* The other end's listener has gone, and comes back. */
static void no_listener(void *argument)
{
	struct lanes_rig rig;
	struct pl_error error;

	rig_open(&rig, argument);
	pl_listener_close(rig.environment.listener);
	expect_missing(&rig, -ECONNREFUSED, 0);
	check_ok(pl_listen(rig.environment.far, rig.environment.address, &rig.environment.listener, &error), &error);
	expect_all(&rig);
	rig_close(&rig);
}

/* A stranger listens in place of the other end, and does not know the secret. */
static void no_proof(void *argument)
{
	struct lanes_rig rig;
	struct pl_error error;
	char address[96];
	uint8_t answer[64] = "PLL";
	unsigned descriptors;
	int listener, status, ports[LANES];

	rig_open(&rig, argument);
	descriptors = open_descriptors();
	strcpy(address, rig.environment.address);
	pl_listener_close(rig.environment.listener);
	listener = socket_listen_at(address);
	write_once(&rig, 1);
	for (unsigned i = 0; i < LANES; i++) {
		ports[i] = socket_accept(listener);
		check(socket_send(ports[i], answer, sizeof(answer)));
	}
	close(listener);
	progress_until(&rig.environment, near_info(&rig).lanes_missing == LANES);
	/* A lane that was dialled again meanwhile may have been reset. */
	status = near_info(&rig).lanes_status;
	check(status == -EPROTO || status == -ECONNREFUSED || status == -ECONNRESET || status == -EPIPE);
	for (unsigned i = 0; i < LANES; i++)
		close(ports[i]);
	/* Sockets of failed lanes are closed, and so is the listener. */
	progress_until(&rig.environment, open_descriptors() < descriptors);
	check_ok(pl_listen(rig.environment.far, address, &rig.environment.listener, &error), &error);
	expect_all(&rig);
	rig_close(&rig);
}

/* A stranger accepts the lanes, and says nothing. */
static void silence(void *argument)
{
	struct lanes_rig rig;
	struct pl_error error;
	char address[96];
	int listener, ports[LANES];

	connect_time = 5 * PL_NS_PER_S;
	rig_open(&rig, argument);
	strcpy(address, rig.environment.address);
	pl_listener_close(rig.environment.listener);
	listener = socket_listen_at(address);
	write_once(&rig, 1);
	for (unsigned i = 0; i < LANES; i++)
		ports[i] = socket_accept(listener);
	progress_until(&rig.environment, near_info(&rig).lanes_missing == LANES);
	check_number(near_info(&rig).lanes_status, -ETIMEDOUT);
	close(listener);
	for (unsigned i = 0; i < LANES; i++)
		close(ports[i]);
	check_ok(pl_listen(rig.environment.far, address, &rig.environment.listener, &error), &error);
	expect_all(&rig);
	rig_close(&rig);
}

/* No lane is missing once the peer has ended. */
static void ended(void *argument)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct lanes_rig rig;

	rig_open(&rig, argument);
	write_once(&rig, 1);
	expect_all(&rig);
	pl_peer_close(rig.environment.far_peer);
	rig.environment.far_peer = NULL;
	progress_until(&rig.environment, pl_peer_query(rig.environment.near_peer, &info) == 0 && !info.connected);
	check_number(info.lanes_missing, 0);
	check_number(info.lanes_status, 0);
	rig_close(&rig);
}

/*
 * Gives the far end a socket for a lane, as its listener does after the proof. Returns the other end of the socket; -1: the
 * lane is in use.
 */
static int join_far(struct lanes_rig *rig, uint16_t lane)
{
	struct pl_peer *peer = rig->environment.far_peer;
	const struct pl_lane_hello hello = { .version = PL_PROTOCOL_VERSION, .lane = lane };
	uint8_t bytes[PL_LANE_HELLO];
	struct pl_stream stream = { .fd = -1 };
	int ends[2];

	check_number(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
	stream.fd = ends[0];
	pl_lane_hello_encode(&hello, bytes);
	if (peer->ops->join(peer->endpoint, &stream, bytes) == 0)
		return ends[1];
	close(ends[1]);
	return -1;
}

/* Returns the engine of a lane of the far end. While its lock is held, the lane does not take its socket. */
static struct pl_engine *far_engine(struct lanes_rig *rig, unsigned lane)
{
	struct pl_context *context = rig->environment.far;
	unsigned home = pl_context_engine_index(context, rig->environment.far_peer->home);

	return context->engines[(home + lane) % context->engine_count];
}

static bool far_is_connected(struct lanes_rig *rig)
{
	return peer_information_of(rig->environment.far_peer).connected;
}

/* Gives the far end a socket for lane 1, as soon as that is not in use, and reads the welcome. */
static int join_and_welcome(struct lanes_rig *rig)
{
	uint8_t welcome[PL_LANE_WELCOME];
	int fd;

	progress_until(&rig->environment, (fd = join_far(rig, 1)) >= 0);
	progress_until(&rig->environment, recv(fd, welcome, sizeof(welcome), 0) == sizeof(welcome));
	return fd;
}

/* True if the far end has noticed that the socket of lane 1 ended, and keeps the peer. */
static bool far_has_vacant_lane(struct lanes_rig *rig)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(rig->environment.far_peer->endpoint);
	bool vacant;

	check(far_is_connected(rig));
	pthread_mutex_lock(&endpoint->lock);
	vacant = endpoint->lanes[1]->vacant;
	pthread_mutex_unlock(&endpoint->lock);
	return vacant;
}

static void expire_never(struct pl_timer *timer)
{
	(void)timer;
	check(false);
}

/* Takes the limited time for the last lanes away from a peer, which uses its timer only if that is free. */
static void take_grace(struct pl_peer *peer)
{
	pl_engine_lock(peer->home);
	check(pl_list_empty(&peer->timer.link));
	peer->timer.expire = expire_never;
	pl_timer_set(peer->home, &peer->timer, UINT64_MAX / 2);
	pl_engine_unlock(peer->home);
}

/* The initiator gives up after the acceptor has taken a lane that nothing used. The peer stays. */
static void give_up(struct lanes_rig *rig)
{
	close(join_and_welcome(rig));
	progress_until(&rig->environment, far_has_vacant_lane(rig));
	expect_lasting(rig->environment.far_peer);
}

/* The acceptor has taken a lane, and the initiator gives up before it learns that, twice. Then it opens the lane. */
static void left_by_initiator(void *argument)
{
	struct lanes_rig rig;

	rig_open(&rig, argument);
	for (unsigned i = 0; i < 2; i++)
		give_up(&rig);
	write_once(&rig, 3);
	expect_all(&rig);
	rig_close(&rig);
}

/*
 * The acceptor has bytes to send while the initiator has not read the welcome, and gives up. The acceptor has sent none of them
 * over that lane, so nothing is lost with it.
 */
static void left_while_acceptor_sends(void *argument)
{
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_error error;
	struct lanes_rig rig;
	uint8_t byte;
	int fd;

	rig_open(&rig, argument);
	remote = share(&rig.environment, rig.near.region, rig.environment.far_peer, NULL);
	fd = join_and_welcome(&rig);
	pattern_fill(rig.far.bytes, SIZE, 5, 0);
	check_ok(pl_write(rig.environment.far_peer, &(struct pl_transfer){ remote, 0, rig.far.region, 0, SIZE }, NULL,
			  &operation, &error),
		 &error);
	complete(&rig.environment, operation, NULL);
	pattern_check(rig.near.bytes, SIZE, 5, 0);
	check_number(recv(fd, &byte, 1, 0), -1);
	check_number(errno, EAGAIN);
	close(fd);
	/* The near end, which the write made open lanes, may take the place at once. */
	progress_until(&rig.environment, far_has_vacant_lane(&rig) || near_info(&rig).lanes == LANES);
	expect_lasting(rig.environment.far_peer);
	write_once(&rig, 3);
	expect_all(&rig);
	pl_remote_release(remote);
	rig_close(&rig);
}

/* An initiator of a release that confirms no lanes gives up a lane that nothing used. */
static void left_by_older_initiator(void *argument)
{
	struct lanes_rig rig;

	rig_open(&rig, argument);
	pl_engine_lock(rig.environment.far_peer->home);
	rig.environment.far_peer->confirms_lanes = false;
	pl_engine_unlock(rig.environment.far_peer->home);
	give_up(&rig);
	write_once(&rig, 3);
	expect_all(&rig);
	rig_close(&rig);
}

/* The sockets of lanes fail before the acceptor has answered their proofs. */
static void fails_at_acceptor(void *argument)
{
	struct lanes_rig rig;

	rig_open(&rig, argument);
	for (uint16_t lane = 1; lane <= LANES; lane++) {
		struct pl_engine *engine = far_engine(&rig, lane);

		pl_engine_lock(engine);
		close(join_far(&rig, lane));
		pl_engine_unlock(engine);
	}
	write_once(&rig, 3);
	expect_all(&rig);
	check(far_is_connected(&rig));
	rig_close(&rig);
}

/*
 * The initiator closes the connection, and a lane that nothing used ends last. Its end does not end a peer that is up, but ends
 * one that waits for it at once: not when the grace of the last bytes is over.
 */
static void unused_lane_ends_last(void *argument)
{
	struct lanes_rig rig;
	struct pl_peer *peer;
	int fd;

	rig_open(&rig, argument);
	peer = rig.environment.far_peer;
	fd = join_and_welcome(&rig);
	take_grace(peer);
	pl_peer_close(rig.environment.near_peer);
	rig.environment.near_peer = NULL;
	progress_until(&rig.environment,
		       atomic_load(&tcp_endpoint_of(peer->endpoint)->lanes_open) == 1 && atomic_load(&peer->ending));
	check(far_is_connected(&rig));
	close(fd);
	progress_until(&rig.environment, !far_is_connected(&rig));
	rig_close(&rig);
}

/* Bytes have passed over the lane that ends, so that work may be lost: the peer ends with it. */
static void left_after_bytes(void *argument)
{
	struct lanes_rig rig;
	int fd;

	rig_open(&rig, argument);
	fd = join_far(&rig, 1);
	check_number(send(fd, "bytes", 5, MSG_NOSIGNAL), 5);
	close(fd);
	progress_until(&rig.environment, !far_is_connected(&rig));
	rig_close(&rig);
}

/* The peer is lost while a socket waits for its lane, which closes the socket. */
static void lost_meanwhile(void *argument)
{
	struct pl_engine *engine;
	struct lanes_rig rig;
	struct pl_peer *peer;
	struct pl_error error;
	char byte;
	int fd;

	rig_open(&rig, argument);
	peer = rig.environment.far_peer;
	engine = far_engine(&rig, 1);
	pl_fail(&error, -ECONNRESET, "PEER-LOST", "test", NULL, NULL, "the test ends the peer");
	pl_engine_lock(engine);
	if (peer->home != engine)
		pl_engine_lock(peer->home);
	fd = join_far(&rig, 1);
	pl_peer_lose(peer, &error);
	if (peer->home != engine)
		pl_engine_unlock(peer->home);
	pl_engine_unlock(engine);
	progress_until(&rig.environment, recv(fd, &byte, 1, 0) == 0);
	close(fd);
	rig_close(&rig);
}

static const struct test_case cases[] = {
	{ "no-descriptor", no_descriptor, &settings[0], 60 },
	{ "no-descriptor-encrypted", no_descriptor, &settings[1], 60 },
	{ "no-descriptor-manual", no_descriptor, &settings[2], 60 },
	{ "no-listener", no_listener, &settings[0], 60 },
	{ "no-proof", no_proof, &settings[0], 60 },
	{ "silence", silence, &settings[0], 60 },
	{ "ended", ended, &settings[0], 60 },
	{ "left-by-initiator", left_by_initiator, &settings[0], 60 },
	{ "left-by-initiator-manual", left_by_initiator, &settings[3], 60 },
	{ "left-while-acceptor-sends", left_while_acceptor_sends, &settings[0], 60 },
	{ "left-while-acceptor-sends-manual", left_while_acceptor_sends, &settings[3], 60 },
	{ "left-by-older-initiator", left_by_older_initiator, &settings[0], 60 },
	{ "fails-at-acceptor", fails_at_acceptor, &settings[0], 60 },
	{ "unused-lane-ends-last", unused_lane_ends_last, &settings[0], 60 },
	{ "unused-lane-ends-last-manual", unused_lane_ends_last, &settings[3], 60 },
	{ "left-after-bytes", left_after_bytes, &settings[0], 60 },
	{ "lost-meanwhile", lost_meanwhile, &settings[0], 60 },
};

int main(void)
{
	return cases_run("lane-retry", cases, sizeof(cases) / sizeof(cases[0]));
}
