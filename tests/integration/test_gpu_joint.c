/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads from host memory into GPU memory over several lanes: chunks are small, and neighbouring ones are copied together. Uses the
 * stand-in for the driver.
 */
#include <errno.h>
#include <stdlib.h>

#include "fabric/tcp/landing.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/pair.h"

#define LANES 8u
/* Threads of each end, also where processors are few. */
#define WORKERS 4u
#define READS 8u
#define LENGTH ((size_t)1 << 20)
#define SIZE (READS * LENGTH)
/* Reads before these are too few to join their chunks. */
#define JOINING_FROM 4u
/* Longer than a case may run, in microseconds. */
#define HELD 100000000u
#define FAILED 700
/* Time of a copy that goes on while its peer is closed, in microseconds. */
#define SHORT 20000u

static const struct setting manual = {
	.name = "gpu-joint",
	.fabric = "tcp",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_MANUAL,
	.lanes = LANES,
};

static const struct setting threads = {
	.name = "gpu-joint-threads",
	.fabric = "tcp",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_THREAD,
	.lanes = LANES,
};

/* Opens two ends, of which the near one has GPU memory, and all lanes. */
static void open_ends(struct pair *pair, const struct setting *setting)
{
	struct scenario_environment *environment = &pair->environment;
	struct pl_options options = setting_options(setting);
	struct tcp_endpoint *endpoint;
	struct pl_operation *write;
	struct pl_error error;

	if (!gpu_open("alloc"))
		exit(SKIPPED);
	gpu_standin_find();
	gpu_standin_need();
	*pair = (struct pair){ .environment.setting = setting };
	if (setting->progress == PL_PROGRESS_THREAD)
		options.workers = WORKERS;
	environment->near = context_open_with(&options);
	environment->far = context_open_with(&options);
	if (setting->progress == PL_PROGRESS_MANUAL) {
		drive(environment, environment->near);
		drive(environment, environment->far);
	}
	environment->listener = listener_open(setting, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
	buffer_open(&pair->near, pair->environment.near, SIZE, PL_ACCESS_ALL);
	gpu_kind = NULL;
	buffer_open(&pair->far, pair->environment.far, SIZE, PL_ACCESS_ALL);
	gpu_kind = "alloc";
	pair->remote = share(&pair->environment, pair->far.region, pair->environment.near_peer, NULL);
	/* A large write opens all lanes. */
	check_ok(pl_write(pair->environment.near_peer,
			  &(struct pl_transfer){ pair->remote, 0, pair->near.region, 0, SIZE }, NULL, &write, &error),
		 &error);
	complete(&pair->environment, write, NULL);
	endpoint = tcp_endpoint_of(pair->environment.near_peer->endpoint);
	progress_until(&pair->environment, atomic_load(&endpoint->lanes_up) == tcp_sockets(LANES));
	pattern_fill(pair->far.bytes, SIZE, 1, 0);
	bytes_set(pair->near.bytes, POISON, SIZE);
}

static uint64_t staging_in_use(struct pl_context *context)
{
	struct pl_staging_info info = PL_STAGING_INFO_INIT;

	check_number(pl_staging_query(context, &info, NULL), 0);
	return info.in_use;
}

/* Late answers to cancelled requests may hold a slot until they have arrived. */
static void close_ends(struct pair *pair)
{
	progress_until(&pair->environment, !staging_in_use(pair->environment.near));
	pair_close(pair);
}

/* Posts all reads. None ends before the near end makes progress. */
static void begin_reads(struct pair *pair, struct pl_operation *reads[READS])
{
	struct pl_error error;

	for (unsigned i = 0; i < READS; i++)
		check_ok(pl_read(pair->environment.near_peer,
				 &(struct pl_transfer){ pair->remote, i * LENGTH, pair->near.region, i * LENGTH,
							LENGTH },
				 NULL, &reads[i], &error),
			 &error);
}

/* Waits for reads that all end well, and checks their bytes. */
static void complete_reads(struct pair *pair, struct pl_operation *reads[READS])
{
	for (unsigned i = 0; i < READS; i++)
		complete(&pair->environment, reads[i], NULL);
	pattern_check(pair->near.bytes, SIZE, 1, 0);
}

/* Waits for reads that end with this status. */
static void check_reads(struct pair *pair, struct pl_operation *reads[READS], int status)
{
	struct pl_error error;

	for (unsigned i = 0; i < READS; i++)
		check_status(await(&pair->environment, reads[i], NULL, &error), status, &error);
}

/* Waits for reads of which some end well, and checks the bytes of those. */
static void check_good_reads(struct pair *pair, struct pl_operation *reads[READS])
{
	struct pl_error error;

	for (unsigned i = 0; i < READS; i++)
		if (await(&pair->environment, reads[i], NULL, &error) == 0)
			pattern_check(pair->near.bytes + i * LENGTH, LENGTH, 1, i * LENGTH);
}

/* Returns the copies of a read whose chunks do not join, with so many reads under way. */
static unsigned copies_of_read(unsigned under_way)
{
	enum { STEP = 128 };
	size_t share = LENGTH * under_way / (2 * tcp_sockets(LANES));
	size_t chunk = (PL_MAX(share, (size_t)TCP_CHUNK_MIN) + STEP - 1) / STEP * STEP;

	return (unsigned)((LENGTH + chunk - 1) / chunk);
}

/* Whenever a lane takes a chunk, and in whatever order chunks arrive: a read of a slot's size has one copy. */
static void one_copy_for_a_read(void *unused)
{
	struct pl_operation *reads[READS];
	struct pair pair;
	unsigned before, copies = 0;

	(void)unused;
	open_ends(&pair, &manual);
	before = gpu_standin.copies();
	begin_reads(&pair, reads);
	for (unsigned i = 0; i < READS; i++) {
		complete(&pair.environment, reads[i], NULL);
		copies += i + 1 < JOINING_FROM ? copies_of_read(i + 1) : 1;
	}
	check_number(gpu_standin.copies() - before, copies);
	pattern_check(pair.near.bytes, SIZE, 1, 0);
	close_ends(&pair);
}

/* Without locked memory the bytes arrive in ordinary slots. */
static void ordinary_memory(void *unused)
{
	struct pl_operation *reads[READS];
	struct pair pair;

	(void)unused;
	open_ends(&pair, &manual);
	pl_slots_close(&pair.environment.near->slot_pool);
	pl_slots_open(&pair.environment.near->slot_pool, &pair.environment.near->allocator, 1);
	begin_reads(&pair, reads);
	complete_reads(&pair, reads);
	close_ends(&pair);
}

/* Some chunks have arrived, some will, and some were not requested. The memory does not change after the end of the reads. */
static void cancelled_reads(void *unused)
{
	struct pl_operation *reads[READS], *last;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	open_ends(&pair, &manual);
	gpu_standin.delay(HELD);
	begin_reads(&pair, reads);
	while (!pair.environment.near->slot_pool.taken)
		progress(&pair.environment);
	for (unsigned i = 0; i < READS; i++)
		pl_cancel(reads[i]);
	pl_poll(pair.environment.near, NULL, 0);
	gpu_standin.delay(0);
	check_reads(&pair, reads, -ECANCELED);
	bytes_set(pair.near.bytes, POISON, SIZE);
	check_ok(pl_read(pair.environment.near_peer,
			 &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, SIZE / 2 }, NULL, &last, &error),
		 &error);
	complete(&pair.environment, last, NULL);
	pattern_check(pair.near.bytes, SIZE / 2, 1, 0);
	for (size_t at = SIZE / 2; at < SIZE; at++)
		check_number(pair.near.bytes[at], POISON);
	close_ends(&pair);
}

/* The copy of a read fails, and with it the read. */
static void failed_copy(void *unused)
{
	struct pl_operation *reads[READS];
	struct pair pair;

	(void)unused;
	open_ends(&pair, &manual);
	begin_reads(&pair, reads);
	gpu_standin.fail("copy", 0, UINT32_MAX, FAILED);
	check_reads(&pair, reads, -EFAULT);
	gpu_standin.fail("copy", 0, 0, 0);
	close_ends(&pair);
}

/* The far end refuses all requests: nothing is copied. */
static void refused_reads(void *unused)
{
	struct pl_operation *reads[READS];
	struct pl_error error;
	struct pair pair;
	unsigned before;

	(void)unused;
	open_ends(&pair, &manual);
	begin_reads(&pair, reads);
	buffer_close(&pair.far);
	before = gpu_standin.copies();
	for (unsigned i = 0; i < READS; i++)
		check(await(&pair.environment, reads[i], NULL, &error) < 0);
	check_number(gpu_standin.copies() - before, 0);
	check_number(pair.environment.near->slot_pool.taken, 0);
	pl_remote_release(pair.remote);
	buffer_close(&pair.near);
	environment_close(&pair.environment);
}

/* Changes the number of operations that are under way, so that the chunks of the first reads join, too. */
static void count_running(const struct pair *pair, int more)
{
	struct pl_peer *peer = pair->environment.near_peer;

	pl_engine_lock(peer->home);
	peer->running += (unsigned)more;
	pl_engine_unlock(peer->home);
}

/* Posts reads of which all chunks join, and waits until all their copies have begun, which do not end yet. */
static void hold_copies(struct pair *pair, struct pl_operation *reads[READS])
{
	unsigned before = gpu_standin.copies();

	count_running(pair, JOINING_FROM - 1);
	gpu_standin.delay(HELD);
	begin_reads(pair, reads);
	progress_until(&pair->environment, gpu_standin.copies() - before == READS);
	count_running(pair, 1 - (int)JOINING_FROM);
}

/* Reads are cancelled while their bytes are copied: they end after the copies. */
static void cancelled_copies(void *unused)
{
	struct pl_operation *reads[READS];
	struct pl_error error;
	struct pair pair;

	(void)unused;
	open_ends(&pair, &threads);
	hold_copies(&pair, reads);
	for (unsigned i = 0; i < READS; i++)
		pl_cancel(reads[i]);
	for (unsigned i = 0; i < READS; i++)
		check_number(pl_test(reads[i], NULL, &error), -EINPROGRESS);
	gpu_standin.delay(0);
	check_reads(&pair, reads, -ECANCELED);
	close_ends(&pair);
}

/* Copies that lanes of several threads have begun fail, and with them the reads. */
static void failed_copies(void *unused)
{
	struct pl_operation *reads[READS];
	struct pair pair;

	(void)unused;
	open_ends(&pair, &threads);
	hold_copies(&pair, reads);
	gpu_standin.fail("copy", 0, UINT32_MAX, FAILED);
	gpu_standin.delay(0);
	check_reads(&pair, reads, -EFAULT);
	gpu_standin.fail("copy", 0, 0, 0);
	close_ends(&pair);
}

/* The other end closes the connection after all bytes have arrived, and before they are copied. */
static void lost_peer(void *unused)
{
	struct pl_operation *reads[READS];
	struct pair pair;

	(void)unused;
	open_ends(&pair, &threads);
	hold_copies(&pair, reads);
	pl_peer_close(pair.environment.far_peer);
	pair.environment.far_peer = NULL;
	gpu_standin.delay(0);
	/* A slow machine may lose the peer before the copies have ended. */
	check_good_reads(&pair, reads);
	close_ends(&pair);
}

/* The near end closes the connection during copies. They end before the slots return. */
static void closed_peer(void *unused)
{
	struct pl_operation *reads[READS];
	struct pl_error error;
	struct pair pair;

	(void)unused;
	open_ends(&pair, &threads);
	hold_copies(&pair, reads);
	gpu_standin.delay(SHORT);
	pl_peer_close(pair.environment.near_peer);
	pair.environment.near_peer = NULL;
	check_number(staging_in_use(pair.environment.near), 0);
	/* A short copy may have ended before. */
	for (unsigned i = 0; i < READS; i++)
		await(&pair.environment, reads[i], NULL, &error);
	gpu_standin.delay(0);
	close_ends(&pair);
}

/* The other end revokes its memory when some bytes have arrived. */
static void revoked_memory(void *unused)
{
	struct pl_operation *reads[READS];
	struct pair pair;

	(void)unused;
	open_ends(&pair, &manual);
	begin_reads(&pair, reads);
	while (!pair.environment.near->slot_pool.taken)
		progress(&pair.environment);
	buffer_close(&pair.far);
	check_good_reads(&pair, reads);
	progress_until(&pair.environment, !staging_in_use(pair.environment.near));
	pl_remote_release(pair.remote);
	buffer_close(&pair.near);
	environment_close(&pair.environment);
}

static void *refuse_memory(size_t size, void *unused)
{
	(void)size;
	(void)unused;
	return NULL;
}

/* Closes the engine's copier, for which there is no memory any more. Returns the former allocator. */
static struct pl_allocator lose_copier(struct pl_context *context, struct pl_engine *engine)
{
	struct pl_copier **copier = &context->copiers[pl_context_engine_index(context, engine)];
	struct pl_allocator former = context->allocator;

	pl_copier_close(*copier);
	*copier = NULL;
	context->allocator.allocate = refuse_memory;
	return former;
}

/* Receives a chunk of the read that the joint belongs to. Returns what tcp_land_answer() returned. */
static int receive_chunk(struct tcp_lane *lane, struct tcp_joint *joint, const struct pl_chunk *chunk)
{
	struct pl_memory *memory = &chunk->segment->region->memory;
	struct tcp_request request = { .joint = joint, .memory = memory };
	int rc;

	lane->destination = (uint8_t *)memory->address + chunk->at;
	rc = tcp_land_answer(lane, &request, false);
	tcp_joint_leave(lane, joint, rc == 0);
	return rc;
}

/* A lane that cannot copy takes no place in a slot that another one has begun: its chunk may be the last one. */
static void no_copier(void *unused)
{
	struct tcp_joint *open = NULL, *joint;
	struct pl_operation *operation;
	struct tcp_endpoint *endpoint;
	struct pl_allocator former;
	struct pl_segment segment;
	struct pl_chunk chunks[2];
	struct pair pair;

	(void)unused;
	open_ends(&pair, &manual);
	endpoint = tcp_endpoint_of(pair.environment.near_peer->endpoint);
	operation = pl_operation_new(pair.environment.near, pair.environment.near_peer, PL_KIND_READ, NULL, NULL);
	check(operation);
	segment = (struct pl_segment){ .region = pair.near.region, .length = LENGTH };
	chunks[0] = (struct pl_chunk){ operation, &segment, 0, LENGTH / 2 };
	chunks[1] = (struct pl_chunk){ operation, &segment, LENGTH / 2, LENGTH / 2 };
	joint = tcp_joint_add(&open, &chunks[0], LENGTH);
	check(joint && open == joint);
	check(tcp_joint_add(&open, &chunks[1], LENGTH) == joint && !open);
	check_number(receive_chunk(endpoint->lanes[0], joint, &chunks[0]), 0);
	former = lose_copier(pair.environment.near, endpoint->lanes[1]->engine);
	check_number(receive_chunk(endpoint->lanes[1], joint, &chunks[1]), -ENOMEM);
	pair.environment.near->allocator = former;
	pl_operation_free(operation);
	close_ends(&pair);
}

/* Lanes of several threads share slots, while every other round of reads is cancelled. */
static void many_threads(void *unused)
{
	enum { ROUNDS = 10 };
	struct pl_operation *reads[READS];
	struct pl_error error;
	struct pair pair;

	(void)unused;
	open_ends(&pair, &threads);
	for (unsigned round = 0; round < ROUNDS; round++) {
		bool cancels = round % 2 == 0;

		bytes_set(pair.near.bytes, POISON, SIZE);
		begin_reads(&pair, reads);
		for (unsigned i = 0; cancels && i < READS; i++)
			pl_cancel(reads[i]);
		for (unsigned i = 0; i < READS; i++)
			check(!await(&pair.environment, reads[i], NULL, &error) || cancels);
		if (!cancels)
			pattern_check(pair.near.bytes, SIZE, 1, 0);
	}
	close_ends(&pair);
}

static const struct test_case cases[] = {
	{ "one-copy-for-a-read", one_copy_for_a_read, NULL, 60 },
	{ "ordinary-memory", ordinary_memory, NULL, 60 },
	{ "cancelled-reads", cancelled_reads, NULL, 60 },
	{ "failed-copy", failed_copy, NULL, 60 },
	{ "refused-reads", refused_reads, NULL, 60 },
	{ "cancelled-copies", cancelled_copies, NULL, 60 },
	{ "failed-copies", failed_copies, NULL, 60 },
	{ "lost-peer", lost_peer, NULL, 60 },
	{ "closed-peer", closed_peer, NULL, 60 },
	{ "revoked-memory", revoked_memory, NULL, 60 },
	{ "no-copier", no_copier, NULL, 60 },
	{ "many-threads", many_threads, NULL, 120 },
};

int main(void)
{
	return cases_run("gpu-joint", cases, PL_ARRAY_SIZE(cases));
}
