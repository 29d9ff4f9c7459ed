/* SPDX-License-Identifier: BSD-2-Clause */
/* Lanes that cannot be opened: the peer goes on with those that it has, and opens the others when that is possible. */
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
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

static const struct test_case cases[] = {
	{ "no-descriptor", no_descriptor, &settings[0], 60 },
	{ "no-descriptor-encrypted", no_descriptor, &settings[1], 60 },
	{ "no-descriptor-manual", no_descriptor, &settings[2], 60 },
	{ "no-listener", no_listener, &settings[0], 60 },
	{ "no-proof", no_proof, &settings[0], 60 },
	{ "silence", silence, &settings[0], 60 },
	{ "ended", ended, &settings[0], 60 },
};

int main(void)
{
	return cases_run("lane-retry", cases, sizeof(cases) / sizeof(cases[0]));
}
