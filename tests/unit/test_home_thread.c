/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work that other threads leave to the thread of a peer's home engine while that is awake: posts of bulk data by a busy thread of
 * the program, and completions of operations whose last bytes another engine has sent.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/bulk_sender.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

/* Bytes of an operation whose post is left; and of a write that goes over the further lanes. */
#define SIZE ((size_t)64 << 10)
#define LARGE ((size_t)8 << 20)
#define LANES 2u
/* Rounds in which the home's thread stays awake, and most rounds that are begun for them. */
#define ROUNDS 30u
#define ATTEMPTS 5000u

static const struct setting setting = {
	.name = "home-thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = LANES
};

static struct pl_fabric_ops noting; /* of the near peer: they note threads */
static atomic_ulong poster, finisher;

static void note_post(struct pl_endpoint *endpoint, struct pl_operation *operation)
{
	atomic_store(&poster, (unsigned long)pthread_self());
	pl_tcp_fabric.post(endpoint, operation);
}

/* Called when an operation of this visibility has ended, by the thread that completes it. */
static bool note_end(struct pl_endpoint *endpoint, struct pl_operation *operation)
{
	(void)endpoint;
	(void)operation;
	atomic_store(&finisher, (unsigned long)pthread_self());
	return false;
}

static atomic_ulong home_thread;
static atomic_uint home_sleeps; /* sleeps of that thread */

/* Replaces that of the C library in this program. ThreadSanitizer must see the call, which orders threads. */
int epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	static int (*_Atomic next)(int, struct epoll_event *, int, int);

	if (!next)
		next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
	if (timeout < 0 && atomic_load(&home_thread) == (unsigned long)pthread_self())
		atomic_fetch_add(&home_sleeps, 1);
	return atomic_load(&next)(fd, events, count, timeout);
}

struct rig {
	struct pair pair;
	struct pl_engine *home;
	struct pl_attributes attributes;
};

static void rig_open(struct rig *rig)
{
	struct scenario_environment *environment = &rig->pair.environment;
	struct pl_options options = setting_options(&setting);

	*environment = (struct scenario_environment){ .setting = &setting };
	options.poll_time = PL_NS_PER_S; /* so long stays a thread awake */
	options.workers = 4;
	environment->near = context_open_with(&options);
	environment->far = context_open_with(&options);
	environment->listener = listener_open(&setting, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
	buffer_open(&rig->pair.near, environment->near, LARGE, PL_ACCESS_LOCAL);
	buffer_open(&rig->pair.far, environment->far, LARGE, PL_ACCESS_ALL);
	rig->pair.remote = share(environment, rig->pair.far.region, environment->near_peer, NULL);
	rig->home = environment->near_peer->home;
	rig->attributes = (struct pl_attributes)PL_ATTRIBUTES_INIT;
	rig->attributes.visible = PL_VISIBLE_PLACED;
	noting = pl_tcp_fabric;
	noting.post = note_post;
	noting.settle = note_end;
	environment->near_peer->ops = &noting;
	atomic_store(&home_thread, (unsigned long)rig->home->thread);
}

/* Wakes the home's thread, which then stays awake for long. Returns the number of its sleeps so far. */
static unsigned keep_awake(struct rig *rig)
{
	while (pl_engine_asleep(rig->home)) {
		pl_engine_wake(rig->home);
		usleep(100);
	}
	return atomic_load(&home_sleeps);
}

/* True if the thread has not slept since. */
static bool kept_awake(struct rig *rig, unsigned sleeps)
{
	return !pl_engine_asleep(rig->home) && atomic_load(&home_sleeps) == sleeps;
}

static void rig_close(struct rig *rig)
{
	rig->pair.environment.near_peer->ops = &pl_tcp_fabric;
	pair_close(&rig->pair);
}

static void write_and_wait(struct rig *rig, size_t length)
{
	const struct pl_transfer transfer = { rig->pair.remote, 0, rig->pair.near.region, 0, length };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_write(rig->pair.environment.near_peer, &transfer, &rig->attributes, &operation, &error), &error);
	complete(&rig->pair.environment, operation, NULL);
}

/* The calling thread has sent bulk data and not waited since. */
static void be_busy(struct rig *rig)
{
	pl_bulk_sender_sends(rig->pair.environment.near);
}

/* A busy thread posts no write itself to a home whose thread is awake. */
static void posts(void *unused)
{
	unsigned awake = 0;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	for (unsigned i = 0; awake < ROUNDS && i < ATTEMPTS; i++) {
		unsigned sleeps = keep_awake(&rig);

		be_busy(&rig);
		write_and_wait(&rig, SIZE);
		if (!kept_awake(&rig, sleeps))
			continue;
		awake++;
		check(atomic_load(&poster) == (unsigned long)rig.home->thread);
	}
	check_number(awake, ROUNDS);
	rig_close(&rig);
}

/* A thread that has waited posts itself, unless the home is busy just then. */
static void posts_of_one_at_a_time(void *unused)
{
	bool once = false;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	for (unsigned i = 0; !once && i < ATTEMPTS; i++) {
		write_and_wait(&rig, SIZE);
		once = atomic_load(&poster) == (unsigned long)pthread_self();
	}
	check(once);
	rig_close(&rig);
}

/* The thread of another engine, which has sent or acknowledged the last bytes, does not complete the write. */
static void completions(void *unused)
{
	unsigned awake = 0;
	struct tcp_endpoint *endpoint;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	endpoint = tcp_endpoint_of(rig.pair.environment.near_peer->endpoint);
	write_and_wait(&rig, LARGE);
	while (atomic_load(&endpoint->lanes_up) != tcp_sockets(LANES))
		usleep(1000);
	for (unsigned i = 0; awake < ROUNDS && i < ATTEMPTS; i++) {
		unsigned sleeps = keep_awake(&rig);

		write_and_wait(&rig, LARGE);
		if (!kept_awake(&rig, sleeps))
			continue;
		awake++;
		for (unsigned lane = 1; lane < tcp_sockets(LANES); lane++) {
			const struct pl_engine *engine = endpoint->lanes[lane]->engine;

			check(engine == rig.home || atomic_load(&finisher) != (unsigned long)engine->thread);
		}
	}
	check_number(awake, ROUNDS);
	rig_close(&rig);
}

/* The first large message after a wait makes the thread busy: it leaves the next ones. */
static void messages(void *unused)
{
	struct pl_context *near;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	near = rig.pair.environment.near;
	for (unsigned i = 0; i < ROUNDS; i++) {
		const struct pl_buffer from = { rig.pair.near.region, 0, SIZE }, to = { rig.pair.far.region, 0, SIZE };
		struct pl_operation *received, *sent;
		struct pl_error error;
		unsigned sleeps;

		check_ok(pl_receive(rig.pair.environment.far_peer, 1, UINT64_MAX, &to, NULL, &received, &error),
			 &error);
		pl_bulk_sender_waits(near);
		check(!pl_bulk_sender_is_occupied(near));
		sleeps = keep_awake(&rig);
		check_ok(pl_send(rig.pair.environment.near_peer, 1, &from, NULL, &sent, &error), &error);
		if (kept_awake(&rig, sleeps))
			check(pl_bulk_sender_is_occupied(near));
		complete(&rig.pair.environment, sent, NULL);
		complete(&rig.pair.environment, received, NULL);
	}
	rig_close(&rig);
}

static const struct test_case cases[] = {
	{ "posts", posts, NULL, 300 },
	{ "posts-of-one-at-a-time", posts_of_one_at_a_time, NULL, 300 },
	{ "completions", completions, NULL, 600 },
	{ "messages", messages, NULL, 300 },
};

int main(void)
{
	return cases_run("home-thread", cases, sizeof(cases) / sizeof(cases[0]));
}
