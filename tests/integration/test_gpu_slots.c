/* SPDX-License-Identifier: BSD-2-Clause */
/* Staging of bulk data over several lanes: slots of ordinary memory, and copies. Uses the stand-in for the driver. */
#include <stdlib.h>

#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/pair.h"

#define LARGE ((size_t)24 << 20)
/* Enough for the larger limit of each lane. */
#define PLENTY ((size_t)64 << 20)
/* Less than TCP_SPREAD_FROM: lane 0 carries it. */
#define SMALL ((size_t)8 << 10)
#define LANES 2u
#define ORDINARY_MAX 256u
/* Longer than a case may run, in microseconds. */
#define HELD 100000000u

static const struct setting setting = {
	.name = "gpu-slots",
	.fabric = "tcp",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_THREAD,
	.lanes = LANES,
};

/* Allocator of a context that counts slots of ordinary memory. */
struct slot_counter {
	struct pl_allocator allocator;
	pthread_mutex_t lock;
	void *slots[ORDINARY_MAX];
	unsigned count, most;
};

static void *counter_allocate(size_t size, void *user)
{
	struct slot_counter *counter = user;
	void *pointer = malloc(size);

	if (size != sizeof(struct pl_slot) + PL_SLOT_SIZE)
		return pointer;
	pthread_mutex_lock(&counter->lock);
	check(pointer && counter->count < ORDINARY_MAX);
	counter->slots[counter->count++] = pointer;
	counter->most = PL_MAX(counter->most, counter->count);
	pthread_mutex_unlock(&counter->lock);
	return pointer;
}

static void *counter_reallocate(void *pointer, size_t size, void *user)
{
	(void)user;
	return realloc(pointer, size);
}

static void counter_release(void *pointer, void *user)
{
	struct slot_counter *counter = user;

	pthread_mutex_lock(&counter->lock);
	for (unsigned i = 0; pointer && i < counter->count; i++)
		if (counter->slots[i] == pointer)
			counter->slots[i] = counter->slots[--counter->count];
	pthread_mutex_unlock(&counter->lock);
	free(pointer);
}

static void counter_init(struct slot_counter *counter)
{
	*counter = (struct slot_counter){ .allocator = { counter_allocate, counter_reallocate, counter_release,
							 counter } };
	pthread_mutex_init(&counter->lock, NULL);
}

static struct pl_context *counted_context(struct slot_counter *counter)
{
	struct pl_options options = setting_options(&setting);

	counter_init(counter);
	options.allocator = &counter->allocator;
	options.staging_bytes = (size_t)8 << 20;
	return context_open_with(&options);
}

static void begin_with_standin(void)
{
	if (!gpu_open("alloc"))
		exit(SKIPPED);
	gpu_standin_find();
	gpu_standin_need();
}

static struct pl_operation *post(struct pair *pair, bool write, size_t at, size_t length)
{
	const struct pl_transfer transfer = { pair->remote, at, pair->near.region, at, length };
	struct pl_peer *peer = pair->environment.near_peer;
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(write ? pl_write(peer, &transfer, NULL, &operation, &error)
		       : pl_read(peer, &transfer, NULL, &operation, &error),
		 &error);
	return operation;
}

/* Opens all lanes by a write. */
static void widen(struct pair *pair)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(pair->environment.near_peer->endpoint);

	complete(&pair->environment, post(pair, true, 0, LARGE), NULL);
	while (atomic_load(&endpoint->lanes_up) != tcp_sockets(LANES))
		sleep_ms(1);
}

/* A lane that uses slots waits for its own when no others are locked: only its first ones can be of ordinary memory. */
static void few_ordinary(void *unused)
{
	struct scenario_environment environment = { .setting = &setting };
	struct slot_counter near, far;
	struct pair pair;

	(void)unused;
	begin_with_standin();
	environment.near = counted_context(&near);
	environment.far = counted_context(&far);
	environment.listener = listener_open(&setting, environment.far, environment.address);
	connect_pair(&environment, environment.near, environment.listener, &environment.near_peer,
		     &environment.far_peer);
	pair.environment = environment;
	buffer_open(&pair.near, environment.near, LARGE, PL_ACCESS_LOCAL);
	buffer_open(&pair.far, environment.far, LARGE, PL_ACCESS_ALL);
	pair.remote = share(&environment, pair.far.region, environment.near_peer, NULL);
	gpu_standin.delay(3000);
	widen(&pair);
	pattern_fill(pair.near.bytes, LARGE, 1, 0);
	complete(&environment, post(&pair, true, 0, LARGE), NULL);
	pattern_check(pair.far.bytes, LARGE, 1, 0);
	bytes_set(pair.near.bytes, POISON, LARGE);
	complete(&environment, post(&pair, false, 0, LARGE), NULL);
	pattern_check(pair.near.bytes, LARGE, 1, 0);
	gpu_standin.delay(0);
	pair_close(&pair);
	/* Each lane may use one in each direction. */
	check(near.most <= 2 * tcp_sockets(LANES));
	check(far.most <= 2 * tcp_sockets(LANES));
	check_number(near.count, 0);
	check_number(far.count, 0);
}

/* Writes from host memory over lane 0. Returns when the frame is sent: its copy at the far end has not ended then. */
static struct pl_operation *begin_held_write(struct pair *pair, const struct buffer *small)
{
	const struct pl_transfer transfer = { pair->remote, LARGE - SMALL, small->region, 0, SMALL };
	struct tcp_endpoint *endpoint = tcp_endpoint_of(pair->environment.near_peer->endpoint);
	struct pl_engine *home = pair->environment.near_peer->home;
	struct pl_operation *operation;
	struct pl_error error;
	bool sent;

	check_ok(pl_write(pair->environment.near_peer, &transfer, NULL, &operation, &error), &error);
	do {
		sleep_ms(1);
		pl_engine_lock(home);
		sent = endpoint->lanes[0]->sequence != endpoint->lanes[0]->acked;
		pl_engine_unlock(home);
	} while (!sent);
	return operation;
}

/* Returns the copies of a write of 1 MiB at one end, while so many operations are under way, with that write. */
static unsigned copies_of_write(unsigned under_way)
{
	enum { SIZE = 1 << 20, STEP = 128 };
	unsigned share = SIZE / (2 * tcp_sockets(LANES)) * under_way / STEP * STEP + STEP;
	unsigned chunk = PL_MIN(PL_MAX(share, TCP_CHUNK_MIN), TCP_CHUNK_MAX);

	return (SIZE + chunk - 1) / chunk;
}

/* Chunks are larger while more operations are under way: each chunk costs calls of the driver at both ends. */
static void chunks_under_way(void *unused)
{
	enum { WRITES = 16, SIZE = 1 << 20 };
	unsigned copies = 0;
	struct pl_operation *writes[WRITES], *held;
	struct buffer small;
	struct pair pair;
	unsigned before;

	(void)unused;
	begin_with_standin();
	pair_open(&pair, &setting, LARGE);
	gpu_kind = NULL;
	buffer_open(&small, pair.environment.near, SMALL, PL_ACCESS_LOCAL);
	gpu_kind = "alloc";
	widen(&pair);
	pattern_fill(pair.near.bytes, LARGE, 2, 0);
	before = gpu_standin.copies();
	/* No copy ends before all writes are posted. */
	gpu_standin.delay(HELD);
	held = begin_held_write(&pair, &small);
	for (unsigned i = 0; i < WRITES; i++) {
		writes[i] = post(&pair, true, i * (size_t)SIZE, SIZE);
		copies += copies_of_write(i + 2);
	}
	/* Unlocking runs posted operations. */
	pl_engine_lock(pair.environment.near_peer->home);
	pl_engine_unlock(pair.environment.near_peer->home);
	gpu_standin.delay(0);
	for (unsigned i = 0; i < WRITES; i++)
		complete(&pair.environment, writes[i], NULL);
	complete(&pair.environment, held, NULL);
	/* The held write has one copy, at the far end. */
	check(copies < WRITES + 6);
	check_number(gpu_standin.copies() - before, 2 * copies + 1);
	pattern_check(pair.far.bytes, WRITES * (size_t)SIZE, 2, 0);
	gpu_kind = NULL;
	buffer_close(&small);
	gpu_kind = "alloc";
	pair_close(&pair);
}

/* Returns the slots of a lane. */
static unsigned lane_slots(const struct pair *pair, unsigned index)
{
	struct tcp_lane *lane = tcp_endpoint_of(pair->environment.near_peer->endpoint)->lanes[index];
	unsigned slots;

	pl_engine_lock(lane->engine);
	slots = lane->slots;
	pl_engine_unlock(lane->engine);
	return slots;
}

/* Checks the number of chunks that each lane takes of a write while no copy ends. */
static void check_chunks_taken(size_t size, unsigned chunks)
{
	struct pl_operation *write;
	struct pair pair;

	begin_with_standin();
	pair_open(&pair, &setting, size);
	widen(&pair);
	pattern_fill(pair.near.bytes, size, 3, 0);
	gpu_standin.delay(HELD);
	write = post(&pair, true, 0, size);
	for (unsigned i = 1; i < tcp_sockets(LANES); i++) {
		while (!lane_slots(&pair, i))
			sleep_ms(1);
		check_number(lane_slots(&pair, i), chunks);
	}
	gpu_standin.delay(0);
	complete(&pair.environment, write, NULL);
	pattern_check(pair.far.bytes, size, 3, 0);
	pair_close(&pair);
}

/* A lane takes two chunks whose copies have not ended: no other lane could carry those that it took beyond them. */
static void lanes_leave_chunks(void *unused)
{
	(void)unused;
	check_chunks_taken(LARGE, 2);
}

/* A lane takes more chunks while plenty waits for all lanes: more copies run while it sends. */
static void lanes_take_more_of_plenty(void *unused)
{
	(void)unused;
	check_chunks_taken(PLENTY, 4);
}

/* Returns the requests of a lane that are not answered. */
static unsigned lane_requests(const struct pair *pair, unsigned index)
{
	struct tcp_lane *lane = tcp_endpoint_of(pair->environment.near_peer->endpoint)->lanes[index];
	unsigned requests;

	pl_engine_lock(lane->engine);
	requests = lane->request_count;
	pl_engine_unlock(lane->engine);
	return requests;
}

/* Checks the number of chunks that each lane requests of a read while no copy ends, and so no answer comes. */
static void check_chunks_requested(size_t size, unsigned fewest, unsigned most)
{
	struct pl_operation *read;
	struct pair pair;

	begin_with_standin();
	pair_open(&pair, &setting, PL_MAX(size, LARGE));
	widen(&pair);
	pattern_fill(pair.far.bytes, size, 6, 0);
	gpu_standin.delay(HELD);
	read = post(&pair, false, 0, size);
	for (unsigned i = 1; i < tcp_sockets(LANES); i++) {
		while (lane_requests(&pair, i) < fewest)
			sleep_ms(1);
		check(lane_requests(&pair, i) <= most);
	}
	gpu_standin.delay(0);
	complete(&pair.environment, read, NULL);
	pattern_check(pair.near.bytes, size, 6, 0);
	pair_close(&pair);
}

/* The first lane requests half of eight chunks, and the other one two: it gets the next one that is free. */
static void lanes_leave_requests(void *unused)
{
	(void)unused;
	check_chunks_requested(8 * (size_t)TCP_CHUNK_MAX, 2, 4);
}

static void lanes_request_more_of_plenty(void *unused)
{
	(void)unused;
	check_chunks_requested(PLENTY, 8, 8);
}

/*
 * A lane looks for the ends of copies of large frames between the reads of one visit, because the other end waits for them. The
 * engine's own first poll comes after that visit.
 */
static void looks_within_visit(void *unused)
{
	enum { FRAMES = 3, FRAME = TCP_CHUNK_MIN };
	static const struct setting manual = {
		.name = "gpu-visit",
		.fabric = "tcp",
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_MANUAL,
		.lanes = 1,
	};
	struct pl_operation *writes[FRAMES];
	unsigned asked, landings;
	struct pair pair;

	(void)unused;
	begin_with_standin();
	environment_open(&pair.environment, &manual);
	buffer_open(&pair.far, pair.environment.far, FRAMES * FRAME, PL_ACCESS_ALL);
	gpu_kind = NULL;
	buffer_open(&pair.near, pair.environment.near, FRAMES * FRAME, PL_ACCESS_LOCAL);
	pair.remote = share(&pair.environment, pair.far.region, pair.environment.near_peer, NULL);
	pattern_fill(pair.near.bytes, FRAMES * FRAME, 4, 0);
	gpu_standin.delay(HELD);
	for (unsigned i = 0; i < FRAMES; i++)
		writes[i] = post(&pair, true, i * (size_t)FRAME, FRAME);
	asked = gpu_standin.asked();
	check_number(pl_poll(pair.environment.far, NULL, 0), 0);
	asked = gpu_standin.asked() - asked;
	landings = tcp_endpoint_of(pair.environment.far_peer->endpoint)->lanes[0]->landing_count;
	check(landings);
	check(asked);
	gpu_standin.delay(0);
	for (unsigned i = 0; i < FRAMES; i++)
		complete(&pair.environment, writes[i], NULL);
	buffer_close(&pair.near);
	gpu_kind = "alloc";
	pattern_check(pair.far.bytes, FRAMES * FRAME, 4, 0);
	pl_remote_release(pair.remote);
	buffer_close(&pair.far);
	environment_close(&pair.environment);
}

/* A lane that has nothing to send looks for the ends of its copies before it leaves the processor to others. */
static void looks_before_it_waits(void *unused)
{
	static const struct setting manual = {
		.name = "gpu-look",
		.fabric = "tcp",
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_MANUAL,
		.lanes = 1,
	};
	struct pl_operation *write;
	struct pair pair;
	unsigned asked;

	(void)unused;
	begin_with_standin();
	pair_open(&pair, &manual, TCP_CHUNK_MIN);
	pattern_fill(pair.near.bytes, TCP_CHUNK_MIN, 5, 0);
	gpu_standin.delay(HELD);
	asked = gpu_standin.asked();
	/* Posting begins the copy, and sends what can be sent. */
	write = post(&pair, true, 0, TCP_CHUNK_MIN);
	check_number(gpu_standin.asked() - asked, 1);
	gpu_standin.delay(0);
	complete(&pair.environment, write, NULL);
	pattern_check(pair.far.bytes, TCP_CHUNK_MIN, 5, 0);
	pair_close(&pair);
}

/* One lane, without threads. `back`: the near buffer, for the far end. */
static void open_one_lane(struct pair *pair, struct pl_remote **back)
{
	static const struct setting manual = {
		.name = "gpu-fence",
		.fabric = "tcp",
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_MANUAL,
		.lanes = 1,
	};
	struct scenario_environment *environment = &pair->environment;
	struct pl_options options = setting_options(&manual);

	*pair = (struct pair){ .environment.setting = &manual };
	options.staging_bytes = (size_t)8 << 20;
	environment->near = context_open_with(&options);
	environment->far = context_open_with(&options);
	drive(environment, environment->near);
	drive(environment, environment->far);
	environment->listener = listener_open(&manual, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
	buffer_open(&pair->near, environment->near, TCP_WIDEN_FROM, PL_ACCESS_ALL);
	buffer_open(&pair->far, environment->far, TCP_WIDEN_FROM, PL_ACCESS_ALL);
	pair->remote = share(environment, pair->far.region, environment->near_peer, NULL);
	*back = share(environment, pair->near.region, environment->far_peer, NULL);
}

/* Posts a read of the far end of TCP_SMALL_MAX bytes, which the near end's lane stages. */
static struct pl_operation *post_back(struct pair *pair, struct pl_remote *back, size_t at)
{
	const struct pl_transfer transfer = { back, at, pair->far.region, at, TCP_SMALL_MAX };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_read(pair->environment.far_peer, &transfer, NULL, &operation, &error), &error);
	return operation;
}

static void turn(struct pair *pair)
{
	pl_poll(pair->environment.far, NULL, 0);
	pl_poll(pair->environment.near, NULL, 0);
}

/* A fenced write that a cancelled one releases begins its copy only after the walk through the waiting pieces. */
static void cancelled_write_releases_fence(void *unused)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *reads[2], *first, *second;
	struct pl_slot *taken[5];
	struct pl_remote *back;
	struct tcp_lane *lane;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	begin_with_standin();
	open_one_lane(&pair, &back);
	lane = tcp_endpoint_of(pair.environment.near_peer->endpoint)->lanes[0];
	/* The first read holds a slot, the test the others: the write and the second read wait. */
	gpu_standin.delay(HELD);
	reads[0] = post_back(&pair, back, 0);
	while (!lane->slots)
		turn(&pair);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(taken); i++)
		taken[i] = pl_slots_take(&pair.environment.near->slot_pool, &pair.near.region->memory);
	first = post(&pair, true, 0, SMALL);
	reads[1] = post_back(&pair, back, TCP_SMALL_MAX);
	while (lane->waiting.next->next == &lane->waiting)
		turn(&pair);
	attributes.flags = PL_FENCE;
	check_ok(pl_write(pair.environment.near_peer,
			  &(struct pl_transfer){ pair.remote, SMALL, pair.near.region, SMALL, SMALL }, &attributes,
			  &second, &error),
		 &error);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(taken); i++)
		pl_slots_give(&pair.environment.near->slot_pool, taken[i]);
	pl_cancel(first);
	gpu_standin.delay(0);
	check_status(await(&pair.environment, first, NULL, &error), -ECANCELED, &error);
	complete(&pair.environment, second, NULL);
	complete(&pair.environment, reads[0], NULL);
	complete(&pair.environment, reads[1], NULL);
	pl_remote_release(back);
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "cancelled-write-releases-fence", cancelled_write_releases_fence, NULL, 60 },
	{ "few-ordinary", few_ordinary, NULL, 120 },
	{ "chunks-under-way", chunks_under_way, NULL, 60 },
	{ "lanes-leave-chunks", lanes_leave_chunks, NULL, 60 },
	{ "lanes-take-more-of-plenty", lanes_take_more_of_plenty, NULL, 60 },
	{ "lanes-leave-requests", lanes_leave_requests, NULL, 60 },
	{ "lanes-request-more-of-plenty", lanes_request_more_of_plenty, NULL, 60 },
	{ "looks-within-visit", looks_within_visit, NULL, 60 },
	{ "looks-before-it-waits", looks_before_it_waits, NULL, 60 },
};

int main(void)
{
	return cases_run("gpu-slots", cases, PL_ARRAY_SIZE(cases));
}
