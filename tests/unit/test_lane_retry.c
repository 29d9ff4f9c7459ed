/* SPDX-License-Identifier: BSD-2-Clause */
/* Lanes that cannot be opened: the peer goes on with those that it has, and opens the others when that is possible. */
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "core/fabric.h"
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
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	check_number(pl_peer_query(rig->environment.near_peer, &info), 0);
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

/* Checks that the further lanes, of which `most` may be open, fail for a reason, and that transfers go on. */
static void expect_missing(struct lanes_rig *rig, int status, unsigned most)
{
	for (unsigned i = 0; i < 2; i++) {
		write_once(rig, i);
		progress_until(&rig->environment, near_info(rig).lanes_missing >= LANES - most);
		check(near_info(rig).lanes <= PL_MAX(most, 1u));
		check_number(near_info(rig).lanes_status, status);
		/* Longer than the first pauses, and than it takes a peer that lost a lane to be lost. */
		if (i == 0)
			settle(&rig->environment, 700);
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
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	check_number(pl_peer_query(rig->environment.far_peer, &info), 0);
	return info.connected;
}

/* The acceptor has taken a lane, and the initiator gives up before it learns that, twice. Then it opens the lane. */
static void left_by_initiator(void *argument)
{
	uint8_t welcome[PL_LANE_WELCOME];
	struct lanes_rig rig;

	rig_open(&rig, argument);
	for (unsigned i = 0; i < 2; i++) {
		int fd;

		progress_until(&rig.environment, (fd = join_far(&rig, 1)) >= 0);
		progress_until(&rig.environment, recv(fd, welcome, sizeof(welcome), 0) == sizeof(welcome));
		close(fd);
		/* Longer than it takes a peer that lost a lane to be lost. */
		settle(&rig.environment, 700);
		check(far_is_connected(&rig));
	}
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
	{ "fails-at-acceptor", fails_at_acceptor, &settings[0], 60 },
	{ "left-after-bytes", left_after_bytes, &settings[0], 60 },
	{ "lost-meanwhile", lost_meanwhile, &settings[0], 60 },
};

int main(void)
{
	return cases_run("lane-retry", cases, sizeof(cases) / sizeof(cases[0]));
}
