/* SPDX-License-Identifier: BSD-2-Clause */
/* Time limits of waits in a context with manual progress, whose engine always has work: traffic of other peers. */
#include <sys/eventfd.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "core/fabric.h"
#include "support/cases.h"
#include "support/pair.h"

#define LENGTH 64u

static const struct setting tcp = {
	.name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* Descriptor that stays readable. */
struct traffic {
	struct pl_source source;
	struct pl_engine *engine;
	useconds_t pause; /* length of a round */
	unsigned rounds;
};

static bool traffic_ready(struct pl_source *source, uint32_t events)
{
	struct traffic *traffic = pl_container_of(source, struct traffic, source);

	(void)events;
	traffic->rounds++;
	if (traffic->pause)
		usleep(traffic->pause);
	return true;
}

static void traffic_begin(struct traffic *traffic, struct pl_engine *engine)
{
	memset(traffic, 0, sizeof(*traffic));
	traffic->engine = engine;
	traffic->source.ready = traffic_ready;
	pl_list_init(&traffic->source.hot);
	traffic->source.fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	check(traffic->source.fd >= 0);
	check_number(pl_source_add(engine, &traffic->source, EPOLLIN), 0);
	check(pl_engine_progress(engine) && pl_engine_progress(engine));
}

static void traffic_end(struct traffic *traffic)
{
	pl_engine_lock(traffic->engine);
	pl_source_remove(&traffic->source);
	pl_engine_unlock(traffic->engine);
	close(traffic->source.fd);
}

static void operation_limit(void *unused)
{
	struct pl_operation *received;
	struct traffic traffic;
	struct pl_error error;
	struct pl_buffer to;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &tcp, LENGTH);
	traffic_begin(&traffic, pair.environment.far_peer->home);
	to = (struct pl_buffer){ pair.far.region, 0, LENGTH };
	check_ok(pl_receive(pair.environment.far_peer, 1, UINT64_MAX, &to, NULL, &received, &error), &error);
	check_number(pl_try_wait(received, 0, NULL, &error), -EINPROGRESS);
	check_number(pl_try_wait(received, SECOND / 1000, NULL, &error), -EINPROGRESS);
	check_number(pl_wait(received, SECOND / 1000, NULL, &error), -ETIMEDOUT);
	traffic_end(&traffic);
	pair_close(&pair);
}

/* Each round takes longer than the limit: the first one ends the wait. */
static void limit_of_long_rounds(void *unused)
{
	struct pl_operation *received;
	struct traffic traffic;
	struct pl_error error;
	struct pl_buffer to;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &tcp, LENGTH);
	traffic_begin(&traffic, pair.environment.far_peer->home);
	to = (struct pl_buffer){ pair.far.region, 0, LENGTH };
	check_ok(pl_receive(pair.environment.far_peer, 1, UINT64_MAX, &to, NULL, &received, &error), &error);
	traffic.pause = 2000;
	traffic.rounds = 0;
	check_number(pl_try_wait(received, SECOND / 1000, NULL, &error), -EINPROGRESS);
	check_number(traffic.rounds, 1);
	traffic.pause = 0;
	check_number(pl_wait(received, SECOND / 1000, NULL, &error), -ETIMEDOUT);
	traffic_end(&traffic);
	pair_close(&pair);
}

static void accept_limit(void *unused)
{
	struct scenario_environment environment;
	struct traffic traffic;
	struct pl_error error;
	struct pl_peer *peer;

	(void)unused;
	environment_open(&environment, &tcp);
	traffic_begin(&traffic, environment.far->engines[0]);
	check_number(pl_accept(environment.listener, 0, &peer, &error), -ETIMEDOUT);
	check_number(pl_accept(environment.listener, SECOND / 1000, &peer, &error), -ETIMEDOUT);
	traffic_end(&traffic);
	environment_close(&environment);
}

static void stream_limits(void *unused)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct scenario_environment environment;
	struct pl_subscriber *subscriber, *other;
	struct pl_publisher *publisher;
	struct pl_stream_frame *frame;
	struct traffic traffic;
	struct pl_error error;
	struct pump pump;

	(void)unused;
	environment_open(&environment, &tcp);
	pump_start(&environment, &pump, environment.far);
	options.slot_bytes = LENGTH;
	check_ok(pl_publisher_open(environment.far, "cam0", &options, &publisher, &error), &error);
	check_ok(pl_subscriber_open(environment.near_peer, "cam0", NULL, AMPLE_TIME, &subscriber, &error), &error);
	pump_stop(&pump);
	traffic_begin(&traffic, environment.near->engines[0]);
	check_number(pl_subscriber_take(subscriber, &frame, 1, 0, &error), -EAGAIN);
	check_number(pl_subscriber_take(subscriber, &frame, 1, SECOND / 1000, &error), -ETIMEDOUT);
	/* The publisher's end makes no progress, so it does not answer. */
	check_number(pl_subscriber_open(environment.near_peer, "cam0", NULL, SECOND / 1000, &other, &error),
		     -ETIMEDOUT);
	check_number(pl_peer_publishers(environment.near_peer, &info, 1, SECOND / 1000, &error), -ETIMEDOUT);
	traffic_end(&traffic);
	pump_start(&environment, &pump, environment.far);
	pl_subscriber_close(subscriber);
	pump_stop(&pump);
	pl_publisher_close(publisher);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "operation-limit", operation_limit, NULL, 30 },
	{ "limit-of-long-rounds", limit_of_long_rounds, NULL, 30 },
	{ "accept-limit", accept_limit, NULL, 30 },
	{ "stream-limits", stream_limits, NULL, 30 },
};

int main(void)
{
	return cases_run("wait-traffic", cases, PL_ARRAY_SIZE(cases));
}
