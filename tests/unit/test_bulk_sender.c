/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bulk data that a posting thread sends itself: that of one write, until it has nothing to collect. Engines' threads send the
 * rest.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/bulk_sender.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/frames.h"
#include "support/pair.h"

/* Bytes of a write that a posting thread may send, and of its frame. */
#define SIZE ((size_t)64 << 10)
#define FRAME (SIZE + PL_FRAME_HEADER)
/* A smaller write that is bulk data, too. */
#define HALF ((size_t)16 << 10)
/* A write of this size opens all lanes. */
#define LARGE ((size_t)8 << 20)
#define PEERS 3u
/* Bytes of a message's frame that is no write of SIZE bytes. */
#define SMALL ((size_t)4 << 10)

static atomic_ulong poster;
static atomic_size_t sent_by_poster;
static atomic_uint sends_of_poster; /* calls */

/* Replaces that of the C library in this program, which the fabric sends pieces with. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t sent = syscall(SYS_sendmsg, fd, message, flags);

	if (sent > (ssize_t)SMALL && atomic_load(&poster) == pl_thread_self()) {
		atomic_fetch_add(&sent_by_poster, (size_t)sent);
		atomic_fetch_add(&sends_of_poster, 1);
	}
	return sent;
}

static atomic_uint watched_by_poster; /* calls of epoll_ctl() */

/* Replaces that of the C library in this program. ThreadSanitizer must see the call, which orders threads. */
int epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event)
{
	static int (*_Atomic next)(int, int, int, struct epoll_event *);

	if (!next)
		next = (int (*)(int, int, int, struct epoll_event *))dlsym(RTLD_NEXT, "epoll_ctl");
	if (atomic_load(&poster) == pl_thread_self())
		atomic_fetch_add(&watched_by_poster, 1);
	return atomic_load(&next)(epoll_fd, operation, fd, event);
}

struct rig {
	struct setting setting;
	struct pair pair;
	struct pl_peer *peers[PEERS]; /* of the near end */
	struct pl_remote *remotes[PEERS];
};

/* All peers of the near end have the same home. */
static void rig_open(struct rig *rig, unsigned lanes, uint64_t poll)
{
	struct scenario_environment *environment = &rig->pair.environment;
	struct pl_options options;

	rig->setting = (struct setting){ .name = "bulk-sender",
					 .fabric = "tcp",
					 .host = "127.0.0.1",
					 .progress = PL_PROGRESS_THREAD,
					 .lanes = lanes };
	*environment = (struct scenario_environment){ .setting = &rig->setting };
	options = setting_options(&rig->setting);
	options.poll_time = poll;
	options.workers = 1;
	environment->near = context_open_with(&options);
	environment->far = context_open_with(&options);
	environment->listener = listener_open(&rig->setting, environment->far, environment->address);
	buffer_open(&rig->pair.near, environment->near, LARGE, PL_ACCESS_LOCAL);
	buffer_open(&rig->pair.far, environment->far, LARGE, PL_ACCESS_ALL);
	for (unsigned i = 0; i < PEERS; i++) {
		connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
			     &environment->far_peer);
		rig->peers[i] = environment->near_peer;
		rig->remotes[i] = share(environment, rig->pair.far.region, environment->near_peer, NULL);
	}
}

static void rig_close(struct rig *rig)
{
	rig->pair.remote = rig->remotes[0];
	for (unsigned i = 1; i < PEERS; i++)
		pl_remote_release(rig->remotes[i]);
	pair_close(&rig->pair);
}

static struct pl_operation *write_to(struct rig *rig, unsigned peer, size_t length)
{
	const struct pl_transfer transfer = { rig->remotes[peer], 0, rig->pair.near.region, 0, length };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_write(rig->peers[peer], &transfer, NULL, &operation, &error), &error);
	return operation;
}

static bool lane_is_at_rest(struct tcp_lane *lane)
{
	bool rests;

	pl_engine_lock(lane->engine);
	rests = lane->sequence == lane->acked && pl_list_empty(&lane->queue);
	pl_engine_unlock(lane->engine);
	return rests;
}

/* Waits until all lanes are up, and none has anything under way. */
static void rig_rest(struct rig *rig)
{
	for (unsigned i = 0; i < PEERS; i++) {
		struct tcp_endpoint *endpoint = tcp_endpoint_of(rig->peers[i]->endpoint);

		while (atomic_load(&endpoint->lanes_up) != tcp_sockets(rig->setting.lanes) ||
		       atomic_load(&endpoint->bulk_lanes) & ~atomic_load(&endpoint->hungry))
			usleep(1000);
		for (unsigned lane = 0; lane < tcp_sockets(rig->setting.lanes); lane++)
			while (!lane_is_at_rest(endpoint->lanes[lane]))
				usleep(1000);
	}
}

/* A large write to each peer opens its lanes. */
static void rig_widen(struct rig *rig)
{
	for (unsigned i = 0; i < PEERS; i++)
		complete(&rig->pair.environment, write_to(rig, i, LARGE), NULL);
	rig_rest(rig);
}

/*
 * Posts a write to each peer while the engine's thread cannot take the lock, so that this thread runs the posts. Returns the bulk
 * bytes that it sent, and the number of writes that lane 0 carried.
 */
static size_t post_to_all(struct rig *rig, unsigned *over_lane_0)
{
	struct pl_engine *home = rig->peers[0]->home;
	struct pl_operation *operations[PEERS];
	size_t sent;

	rig_rest(rig);
	atomic_store(&sent_by_poster, 0);
	atomic_store(&watched_by_poster, 0);
	atomic_store(&poster, pl_thread_self());
	pl_engine_lock(home);
	for (unsigned i = 0; i < PEERS; i++)
		operations[i] = write_to(rig, i, SIZE);
	pl_engine_unlock(home);
	sent = atomic_load(&sent_by_poster);
	atomic_store(&poster, 0);
	/* It hands lanes over to the engine's thread. */
	check_number(atomic_load(&watched_by_poster), 0);
	*over_lane_0 = 0;
	for (unsigned i = 0; i < PEERS; i++) {
		struct pl_completion receipt;

		complete(&rig->pair.environment, operations[i], &receipt);
		*over_lane_0 += receipt.rail == 0;
	}
	return sent;
}

static void find_nothing(struct rig *rig)
{
	struct pl_completion completion;

	check_number(pl_poll(rig->pair.environment.near, &completion, 1), 0);
}

static void post_beside_own_sending(unsigned lanes)
{
	unsigned over_lane_0;
	struct rig rig;

	rig_open(&rig, lanes, 1000);
	rig_widen(&rig);
	for (int i = 0; i < 2; i++) {
		find_nothing(&rig);
		check_number(post_to_all(&rig, &over_lane_0), FRAME);
		check_number(over_lane_0, lanes > 1 ? 1 : PEERS);
	}
	rig_close(&rig);
}

static void one_socket(void *unused)
{
	(void)unused;
	post_beside_own_sending(1);
}

static void more_sockets(void *unused)
{
	(void)unused;
	post_beside_own_sending(2);
}

/* Without a wait between them, the second round sends nothing itself. One call sends both writes of the first round. */
static void without_wait(void *unused)
{
	struct pl_engine *home;
	struct rig rig;

	(void)unused;
	rig_open(&rig, 1, 1000);
	rig_widen(&rig);
	home = rig.peers[0]->home;
	find_nothing(&rig);
	atomic_store(&sent_by_poster, 0);
	atomic_store(&poster, pl_thread_self());
	for (unsigned round = 0; round < 3; round++) {
		struct pl_operation *operations[2];

		/* A batch gathers both. */
		pl_engine_lock(home);
		operations[0] = write_to(&rig, 0, HALF);
		operations[1] = write_to(&rig, 0, HALF);
		pl_engine_unlock(home);
		/* pl_wait() of an operation that is done does not wait. */
		for (int i = 0; i < 2; i++) {
			while (atomic_load(&operations[i]->state) != PL_DONE)
				usleep(1000);
			check_ok(pl_wait(operations[i], UINT64_MAX, NULL, NULL), NULL);
		}
		rig_rest(&rig);
	}
	check_number(atomic_load(&sent_by_poster), 2 * (HALF + PL_FRAME_HEADER));
	check_number(atomic_load(&sends_of_poster), 1);
	rig_close(&rig);
}

/* -- the end of a thread's occupation ------------------------------------------------------------- */

/* Counts the bulk bytes that the calling thread sends from now on. */
static void count_own_sends(void)
{
	atomic_store(&sent_by_poster, 0);
	atomic_store(&poster, pl_thread_self());
}

static unsigned completions_left(struct pl_context *context)
{
	unsigned count = 0;

	pl_lock_take(&context->queue_lock);
	pl_list_for_each(at, &context->completed)
		count++;
	pl_lock_release(&context->queue_lock);
	return count;
}

/* Posts a write while the engine's thread cannot take the lock. Waits for its end without a function that collects. */
static void write_here(struct rig *rig)
{
	const struct pl_transfer transfer = { rig->remotes[0], 0, rig->pair.near.region, 0, SIZE };
	struct pl_context *near = rig->pair.environment.near;
	unsigned left = completions_left(near);
	struct pl_error error;

	rig_rest(rig);
	pl_engine_lock(rig->peers[0]->home);
	check_ok(pl_write(rig->peers[0], &transfer, NULL, NULL, &error), &error);
	pl_engine_unlock(rig->peers[0]->home);
	while (completions_left(near) == left)
		usleep(1000);
}

/* pl_poll() for one completion leaves nothing to collect, although it returns one. */
static void last_completion(void *unused)
{
	struct pl_completion completion;
	struct pl_context *near;
	struct rig rig;

	(void)unused;
	rig_open(&rig, 1, 1000);
	rig_widen(&rig);
	find_nothing(&rig);
	near = rig.pair.environment.near;
	count_own_sends();
	for (size_t i = 1; i <= 3; i++) {
		write_here(&rig);
		check_number(atomic_load(&sent_by_poster), i * FRAME);
		check_number(pl_poll(near, &completion, 1), 1);
	}
	/* A second completion is left to collect: the thread stays occupied. */
	write_here(&rig);
	write_here(&rig);
	check_number(pl_poll(near, &completion, 1), 1);
	check(pl_bulk_sender_is_occupied(near));
	check_number(pl_poll(near, &completion, 1), 1);
	check(!pl_bulk_sender_is_occupied(near));
	rig_close(&rig);
}

/* A thread that waits for frames has nothing to collect. */
static void wait_for_frames(void *unused)
{
	struct scenario_environment *environment;
	struct pl_subscriber *subscriber;
	struct pl_completion completions[4];
	struct pl_publisher *publisher;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	(void)unused;
	rig_open(&rig, 1, 1000);
	rig_widen(&rig);
	environment = &rig.pair.environment;
	publisher = open_blocking_publisher(environment->far, "cam0", SIZE, 4);
	check_ok(pl_subscriber_open(rig.peers[0], "cam0", NULL, AMPLE_TIME, &subscriber, &error), &error);
	find_nothing(&rig);
	count_own_sends();
	for (size_t i = 1; i <= 3; i++) {
		write_here(&rig);
		check_number(atomic_load(&sent_by_poster), i * FRAME);
		check_number(pl_subscriber_take(subscriber, &frame, 1, SECOND / 1000, &error), -ETIMEDOUT);
	}
	check_number(pl_poll(environment->near, completions, 4), 3);
	pl_subscriber_close(subscriber);
	pl_publisher_close(publisher);
	rig_close(&rig);
}

/* A thread that only publishes collects nothing. It sends each pushed frame to a single subscriber itself. */
static void pushed_frames(void *unused)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct scenario_environment *environment;
	struct pl_subscriber *subscriber;
	struct pl_publisher *publisher;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	(void)unused;
	rig_open(&rig, 1, 1000);
	rig_widen(&rig);
	environment = &rig.pair.environment;
	publisher = open_blocking_publisher(environment->near, "cam0", SIZE, 4);
	options.push = true;
	check_ok(pl_subscriber_open(environment->far_peer, "cam0", &options, AMPLE_TIME, &subscriber, &error), &error);
	/* The publisher knows the subscriber's slots from here on. */
	publish_filled(publisher, SIZE);
	check_number(pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error), 1);
	pl_frame_release(frame);
	find_nothing(&rig);
	count_own_sends();
	for (size_t i = 1; i <= 3; i++) {
		rig_rest(&rig);
		pl_engine_lock(rig.peers[0]->home);
		publish_filled(publisher, SIZE);
		pl_engine_unlock(rig.peers[0]->home);
		check_number(atomic_load(&sent_by_poster), i * FRAME);
		check_number(pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error), 1);
		pl_frame_release(frame);
	}
	pl_subscriber_close(subscriber);
	pl_publisher_close(publisher);
	rig_close(&rig);
}

/* Each wake of a thread would cost more than it saves. */
static void without_polling(void *unused)
{
	unsigned over_lane_0;
	struct rig rig;

	(void)unused;
	rig_open(&rig, 1, PL_NO_POLLING);
	rig_widen(&rig);
	check_number(post_to_all(&rig, &over_lane_0), PEERS * FRAME);
	rig_close(&rig);
}

static const struct test_case cases[] = {
	{ "one-socket", one_socket, NULL, 60 },           { "more-sockets", more_sockets, NULL, 60 },
	{ "without-wait", without_wait, NULL, 60 },       { "last-completion", last_completion, NULL, 60 },
	{ "wait-for-frames", wait_for_frames, NULL, 60 }, { "pushed-frames", pushed_frames, NULL, 60 },
	{ "without-polling", without_polling, NULL, 60 },
};

int main(void)
{
	return cases_run("bulk-sender", cases, PL_ARRAY_SIZE(cases));
}
