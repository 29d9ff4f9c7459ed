/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers of threads and lanes that a context has by default, by the number of the process's cores. */
#include <stddef.h>
#include <unistd.h>

#include <peerlane/counters.h>

#include "base/processors.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

/* A write of this size opens all lanes. */
#define LARGE ((size_t)4 << 20)

static unsigned cores;

/* Replaces that of the library in this program. */
unsigned pl_processors(void)
{
	return cores;
}

/* Returns the time that the threads of a context poll before they sleep. */
static uint64_t poll_time_of(struct pl_context *context)
{
	struct pl_context_info info = PL_CONTEXT_INFO_INIT;
	struct pl_error error;

	check_ok(pl_context_query(context, &info, &error), &error);
	return info.poll_time;
}

static void check_context(unsigned count, const struct pl_options *options, unsigned lanes, unsigned workers)
{
	struct pl_context *context;
	struct pl_error error;

	cores = count;
	check_ok(pl_open(&context, options, &error), &error);
	check_number(context->options.lanes, lanes);
	check_number(context->options.workers, workers);
	check_number(context->engine_count, workers);
	check_number(poll_time_of(context), count < 4 || options->progress == PL_PROGRESS_MANUAL ? 0 : 20000);
	check(atomic_load(&context->engines[0]->pace.adapts) == !options->poll_time);
	pl_close(context);
}

/* Half the cores, at least two of two cores, at most 16 lanes, and one thread more; a thread for each of 32 cores on large machines. */
static void by_cores(void *unused)
{
	struct pl_options options = PL_OPTIONS_INIT;

	(void)unused;
	options.insecure = PL_ON;
	check_context(1, &options, 1, 1);
	check_context(2, &options, 2, 2);
	check_context(3, &options, 2, 2);
	check_context(4, &options, 2, 2);
	check_context(6, &options, 3, 3);
	check_context(8, &options, 4, 5);
	check_context(16, &options, 8, 9);
	check_context(31, &options, 15, 16);
	check_context(32, &options, 16, 32);
	check_context(128, &options, 16, 32);
}

/* Peers with few lanes each use different threads. */
static void with_few_lanes(void *unused)
{
	struct pl_options options = PL_OPTIONS_INIT;

	(void)unused;
	options.insecure = PL_ON;
	options.lanes = 4;
	check_context(1, &options, 4, 1);
	check_context(2, &options, 4, 2);
	check_context(16, &options, 4, 8);
	check_context(32, &options, 4, 32);
	/* The one lane of a peer is its home's. */
	options.lanes = 1;
	check_context(2, &options, 1, 1);
	check_context(32, &options, 1, 16);
}

static void with_manual_progress(void *unused)
{
	struct pl_options options = PL_OPTIONS_INIT;

	(void)unused;
	options.insecure = PL_ON;
	options.progress = PL_PROGRESS_MANUAL;
	check_context(2, &options, 1, 1);
	check_context(32, &options, 16, 1);
	/* Nothing polls, so the option has no effect. */
	options.poll_time = 1000;
	check_context(32, &options, 16, 1);
}

static void given_poll_time(void *unused)
{
	struct pl_context_info earlier = { .size = offsetof(struct pl_context_info, poll_time), .poll_time = 1 };
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	(void)unused;
	cores = 16;
	options.poll_time = 1000;
	check_ok(pl_open(&context, &options, &error), &error);
	check_number(poll_time_of(context), 1000);
	check(!atomic_load(&context->engines[0]->pace.adapts));
	/* A program that was built with an earlier header has no room for the time. */
	check_ok(pl_context_query(context, &earlier, &error), &error);
	check_number(earlier.engines, context->engine_count);
	check_number(earlier.poll_time, 1);
	pl_close(context);
	options.poll_time = PL_NO_POLLING;
	check_ok(pl_open(&context, &options, &error), &error);
	check_number(poll_time_of(context), 0);
	pl_close(context);
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

/* Both ends have these numbers of lanes; 0: the default, which is 16. */
static void pair_open_unconnected(struct pair *pair, unsigned near_lanes, unsigned far_lanes)
{
	struct scenario_environment *environment = &pair->environment;
	struct pl_options options = setting_options(&setting);

	cores = 32;
	options.workers = 2;
	*environment = (struct scenario_environment){ .setting = &setting };
	options.lanes = near_lanes;
	environment->near = context_open_with(&options);
	options.lanes = far_lanes;
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

/* Closes a peer. Waits until the other end has learned that, and has its place back. */
static void close_wide_peer(struct pair *pair, struct pl_peer *peer)
{
	unsigned before = atomic_load(&pair->environment.far->wide_peers);

	pl_peer_close(peer);
	while (atomic_load(&pair->environment.far->wide_peers) == before)
		usleep(1000);
}

/* A ninth peer has half the lanes, until one of the others is closed. */
static void of_many_peers(void *unused)
{
	struct pl_peer *first = NULL;
	struct pair pair;

	(void)unused;
	pair_open_unconnected(&pair, 0, 0);
	for (unsigned i = 0; i < TCP_WIDE_PEERS; i++) {
		struct pl_peer *peer = widen_peer(&pair, 16);

		first = first ? first : peer;
	}
	widen_peer(&pair, TCP_LANES_OF_OTHERS);
	close_wide_peer(&pair, first);
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
	pair_open_unconnected(&pair, 0, 0);
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

/* Connects a peer that opens all lanes. Waits until the acceptor has refused those beyond its limit. */
static struct pl_peer *refuse_lanes_of_peer(struct pair *pair)
{
	struct scenario_environment *environment = &pair->environment;
	struct pl_event_record records[PL_EVENTS_MAX];
	struct tcp_endpoint *ends[2];
	struct pl_peer_info info;
	struct pl_error error;
	unsigned refusals = 0;
	size_t count;

	connect_peer(pair);
	check_ok(pl_region_prepare(environment->near_peer, pair->near.region, &error), &error);
	ends[0] = tcp_endpoint_of(environment->near_peer->endpoint);
	ends[1] = tcp_endpoint_of(environment->far_peer->endpoint);
	check_number(ends[0]->lanes_requested, tcp_sockets(16));
	for (unsigned i = 0; i < 2; i++)
		while (atomic_load(&ends[i]->lanes_up) != tcp_sockets(TCP_LANES_OF_OTHERS) ||
		       atomic_load(&ends[i]->lanes_open) != tcp_sockets(TCP_LANES_OF_OTHERS))
			usleep(1000);
	check_number(tcp_lanes_most(&ends[0]->base), TCP_LANES_OF_OTHERS);
	/* The initiator does not try the refused lanes again, and one event tells why. */
	info = peer_information_of(environment->near_peer);
	check_number(info.lanes, TCP_LANES_OF_OTHERS);
	check_number(info.lanes_missing, 0);
	count = pl_event_log_read(&environment->near_peer->events, 0, sizeof(records[0]), records, PL_EVENTS_MAX);
	for (size_t i = 0; i < count; i++)
		refusals += records[i].event == PL_EVENT_LANE_LOST && strstr(records[i].text, "takes no more lanes");
	check_number(refusals, 1);
	widen_by_write(environment, environment->far_peer, &pair->far, &pair->near, TCP_LANES_OF_OTHERS);
	return environment->near_peer;
}

/* An acceptor with the default limits the lanes of clients that ask for all of them. */
static void of_many_clients(void *unused)
{
	struct pl_peer *first = NULL;
	struct pair pair;

	(void)unused;
	pair_open_unconnected(&pair, 16, 0);
	for (unsigned i = 0; i < TCP_WIDE_PEERS; i++) {
		struct pl_peer *peer = widen_peer(&pair, 16);

		first = first ? first : peer;
	}
	check_number(atomic_load(&pair.environment.far->wide_peers), TCP_WIDE_PEERS);
	refuse_lanes_of_peer(&pair);
	close_wide_peer(&pair, first);
	widen_peer(&pair, 16);
	refuse_lanes_of_peer(&pair);
	pair_end(&pair);
}

/* An initiator with the default opens what acceptors ask for, and counts them: an acceptor would wait for its lanes. */
static void of_many_servers(void *unused)
{
	struct scenario_environment *environment;
	struct tcp_endpoint *endpoint;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	pair_open_unconnected(&pair, 0, 16);
	environment = &pair.environment;
	for (unsigned i = 0; i < TCP_WIDE_PEERS; i++) {
		connect_peer(&pair);
		widen_by_write(environment, environment->far_peer, &pair.far, &pair.near, 16);
	}
	connect_peer(&pair);
	endpoint = tcp_endpoint_of(environment->near_peer->endpoint);
	check_ok(pl_region_prepare(environment->far_peer, pair.far.region, &error), &error);
	while (atomic_load(&endpoint->lanes_up) != tcp_sockets(16))
		usleep(1000);
	check_number(atomic_load(&environment->near->wide_peers), TCP_WIDE_PEERS + 1);
	pair_end(&pair);
}

/* A program that asks for a number has it for each peer. */
static void of_many_peers_as_asked(void *unused)
{
	struct pair pair;

	(void)unused;
	pair_open_unconnected(&pair, 16, 16);
	for (unsigned i = 0; i <= TCP_WIDE_PEERS; i++)
		widen_peer(&pair, 16);
	pair_end(&pair);
}

static const struct test_case cases[] = {
	{ "by-cores", by_cores, NULL, 60 },
	{ "with-few-lanes", with_few_lanes, NULL, 60 },
	{ "with-manual-progress", with_manual_progress, NULL, 60 },
	{ "given-poll-time", given_poll_time, NULL, 60 },
	{ "of-many-peers", of_many_peers, NULL, 60 },
	{ "of-many-wide-peers", of_many_wide_peers, NULL, 60 },
	{ "of-many-clients", of_many_clients, NULL, 60 },
	{ "of-many-servers", of_many_servers, NULL, 60 },
	{ "of-many-peers-as-asked", of_many_peers_as_asked, NULL, 60 },
};

int main(void)
{
	return cases_run("defaults", cases, PL_ARRAY_SIZE(cases));
}
