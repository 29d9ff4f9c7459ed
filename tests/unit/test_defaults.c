/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers of threads and lanes that a context has by default, by the number of the machine's cores. */
#include <unistd.h>

#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

/* A write of this size opens all lanes. */
#define LARGE ((size_t)4 << 20)

static long cores;

/* Same as sysconf() of the C library. */
long __sysconf(int name);

/* Replaces that of the C library in this program. Sanitizers ask it for sizes before they are ready. */
__attribute__((no_sanitize("address", "thread", "undefined"))) long sysconf(int name)
{
	return name == _SC_NPROCESSORS_ONLN ? cores : __sysconf(name);
}

static void check_context(long count, const struct pl_options *options, unsigned lanes, unsigned workers)
{
	struct pl_context *context;
	struct pl_error error;

	cores = count;
	check_ok(pl_open(&context, options, &error), &error);
	check_number(context->options.lanes, lanes);
	check_number(context->options.workers, workers);
	check_number(context->engine_count, workers);
	pl_close(context);
}

/* Half the cores, at most 16 lanes; on large machines one thread more than lanes. */
static void by_cores(void *unused)
{
	struct pl_options options = PL_OPTIONS_INIT;

	(void)unused;
	options.insecure = PL_ON;
	check_context(1, &options, 1, 1);
	check_context(2, &options, 1, 1);
	check_context(4, &options, 2, 2);
	check_context(16, &options, 8, 9);
	check_context(32, &options, 16, 17);
	check_context(128, &options, 16, 17);
}

/* Peers with few lanes each use different threads. */
static void with_few_lanes(void *unused)
{
	struct pl_options options = PL_OPTIONS_INIT;

	(void)unused;
	options.insecure = PL_ON;
	options.lanes = 4;
	check_context(2, &options, 4, 1);
	check_context(16, &options, 4, 8);
	check_context(32, &options, 4, 16);
}

static void with_manual_progress(void *unused)
{
	struct pl_options options = PL_OPTIONS_INIT;

	(void)unused;
	options.insecure = PL_ON;
	options.progress = PL_PROGRESS_MANUAL;
	check_context(32, &options, 16, 1);
}

/* -- many peers --------------------------------------------------------------------------------- */

static const struct setting setting = {
	.name = "defaults", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD
};

/* Writes to a peer, from one buffer to the other. Waits until the peer has so many bulk lanes. */
static void widen_by_write(struct scenario_environment *environment, struct pl_peer *peer, const struct buffer *from,
			   const struct buffer *to, unsigned lanes)
{
	struct pl_transfer transfer = { .region = from->region, .length = LARGE };
	struct tcp_endpoint *endpoint = tcp_endpoint_of(peer->endpoint);
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_error error;

	remote = share(environment, to->region, peer, NULL);
	transfer.remote = remote;
	check_ok(pl_write(peer, &transfer, NULL, &operation, &error), &error);
	complete(environment, operation, NULL);
	check_number(endpoint->lanes_requested, tcp_sockets(lanes));
	while (atomic_load(&endpoint->lanes_up) != tcp_sockets(lanes))
		usleep(1000);
	pl_remote_release(remote);
}

static void connect_peer(struct pair *pair)
{
	struct scenario_environment *environment = &pair->environment;

	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
}

/* Connects a peer and writes to it. Waits until it has so many bulk lanes, and returns it. */
static struct pl_peer *widen_peer(struct pair *pair, unsigned lanes)
{
	connect_peer(pair);
	widen_by_write(&pair->environment, pair->environment.near_peer, &pair->near, &pair->far, lanes);
	return pair->environment.near_peer;
}

static void pair_open_unconnected(struct pair *pair, unsigned lanes)
{
	struct scenario_environment *environment = &pair->environment;
	struct pl_options options = setting_options(&setting);

	cores = 32;
	options.lanes = lanes;
	options.workers = 2;
	*environment = (struct scenario_environment){ .setting = &setting };
	environment->near = context_open_with(&options);
	environment->far = context_open_with(&options);
	environment->listener = listener_open(&setting, environment->far, environment->address);
	buffer_open(&pair->near, environment->near, LARGE, PL_ACCESS_ALL);
	buffer_open(&pair->far, environment->far, LARGE, PL_ACCESS_ALL);
}

static void pair_end(struct pair *pair)
{
	buffer_close(&pair->near);
	buffer_close(&pair->far);
	environment_close(&pair->environment);
}

/* A ninth peer has half the lanes, until one of the others is closed. */
static void of_many_peers(void *unused)
{
	struct pl_peer *first = NULL;
	struct pair pair;

	(void)unused;
	pair_open_unconnected(&pair, 0);
	for (unsigned i = 0; i < TCP_WIDE_PEERS; i++) {
		struct pl_peer *peer = widen_peer(&pair, 16);

		first = first ? first : peer;
	}
	widen_peer(&pair, TCP_LANES_OF_OTHERS);
	pl_peer_close(first);
	widen_peer(&pair, 16);
	widen_peer(&pair, TCP_LANES_OF_OTHERS);
	pair_end(&pair);
}

/* Lanes that the other end asked for count as well, once for each peer. */
static void of_many_wide_peers(void *unused)
{
	struct scenario_environment *environment;
	struct pair pair;

	(void)unused;
	pair_open_unconnected(&pair, 0);
	environment = &pair.environment;
	for (unsigned i = 0; i < TCP_WIDE_PEERS; i++) {
		connect_peer(&pair);
		widen_by_write(environment, environment->far_peer, &pair.far, &pair.near, 16);
		widen_by_write(environment, environment->near_peer, &pair.near, &pair.far, 16);
		check_number(atomic_load(&environment->near->wide_peers), i + 1);
	}
	widen_peer(&pair, TCP_LANES_OF_OTHERS);
	check_number(atomic_load(&environment->near->wide_peers), TCP_WIDE_PEERS);
	pair_end(&pair);
}

/* A program that asks for a number has it for each peer. */
static void of_many_peers_as_asked(void *unused)
{
	struct pair pair;

	(void)unused;
	pair_open_unconnected(&pair, 16);
	for (unsigned i = 0; i <= TCP_WIDE_PEERS; i++)
		widen_peer(&pair, 16);
	pair_end(&pair);
}

static const struct test_case cases[] = {
	{ "by-cores", by_cores, NULL, 60 },
	{ "with-few-lanes", with_few_lanes, NULL, 60 },
	{ "with-manual-progress", with_manual_progress, NULL, 60 },
	{ "of-many-peers", of_many_peers, NULL, 60 },
	{ "of-many-wide-peers", of_many_wide_peers, NULL, 60 },
	{ "of-many-peers-as-asked", of_many_peers_as_asked, NULL, 60 },
};

int main(void)
{
	return cases_run("defaults", cases, PL_ARRAY_SIZE(cases));
}
