/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Batches of an engine: one announcement for many completions, one system call for many frames, one task for many operations that
 * other engines finish, one list for many bulk operations.
 */
#include <poll.h>
#include <pthread.h>

#include "core/fabric.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

enum { THREADS = 4, OPERATIONS = 50 };
/* Reads that share a batch, and their bytes. The first one goes over lane 0. */
enum { READS = 4, READ_BYTES = 64 << 10, CANCELED = 2 };
/* Writes that share a batch, and their bytes: 256 KiB in all. */
enum { WRITES = 4, WRITE_BYTES = 64 << 10 };

static const struct setting manual = {
	.name = "batch",
	.fabric = "tcp",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_MANUAL,
	.lanes = 1,
};

/* -- work for the end of a batch -------------------------------------------------------------------- */

struct recorder {
	struct pl_batch_end first, second, announcement;
	struct pl_engine *engine;
	char order[8];
	int count;
};

static void run_first(struct pl_batch_end *end)
{
	struct recorder *recorder = pl_container_of(end, struct recorder, first);

	recorder->order[recorder->count++] = '1';
	check(recorder->engine->batching);
	/* Work may add other work. */
	pl_list_append(&recorder->engine->batch_ends, &recorder->second.link);
}

static void run_second(struct pl_batch_end *end)
{
	struct recorder *recorder = pl_container_of(end, struct recorder, second);

	recorder->order[recorder->count++] = '2';
}

static void run_announcement(struct pl_batch_end *end)
{
	struct recorder *recorder = pl_container_of(end, struct recorder, announcement);

	recorder->order[recorder->count++] = 'a';
}

/* The end of the outermost batch runs all work once, and the announcement after it. */
static void outermost_end(void *argument)
{
	struct recorder recorder = { .first.run = run_first,
				     .second.run = run_second,
				     .announcement.run = run_announcement };
	struct pl_engine *engine;
	struct pl_error error;
	bool outer, inner;

	(void)argument;
	check_ok(pl_engine_open(&pl_system_allocator, false, 0, &engine, &error), &error);
	recorder.engine = engine;
	pl_list_init(&recorder.first.link);
	pl_list_init(&recorder.second.link);
	pl_engine_lock(engine);
	outer = pl_engine_begin_batch(engine);
	engine->announcement = &recorder.announcement;
	pl_list_append(&engine->batch_ends, &recorder.first.link);
	inner = pl_engine_begin_batch(engine);
	pl_engine_end_batch(engine, inner);
	check_number(recorder.count, 0);
	pl_engine_end_batch(engine, outer);
	check_text(recorder.order, "12a");
	check(!engine->batching);
	pl_engine_end_batch(engine, pl_engine_begin_batch(engine));
	check_number(recorder.count, 3);
	pl_engine_unlock(engine);
	pl_engine_stop(engine);
	pl_engine_close(engine);
}

/* -- completions ------------------------------------------------------------------------------------ */

/* Makes an operation that has ended, and is not completed. */
static struct pl_operation *ended_operation(struct pl_peer *peer, uint64_t number)
{
	struct pl_operation *operation;
	struct pl_error error;

	operation = pl_operation_new(peer->context, peer, PL_KIND_WRITE, NULL, &error);
	check(operation);
	operation->completion.user_data = number;
	atomic_store(&operation->pending, 0);
	return operation;
}

static bool is_announced(const struct pl_context *context)
{
	struct pollfd event = { .fd = context->event_fd, .events = POLLIN };

	return poll(&event, 1, 0) == 1;
}

/* The descriptor reports completions at the end of the batch, and none that the program has collected before. */
static void announced_once(void *argument)
{
	struct scenario_environment environment;
	struct pl_completion completions[4];
	struct pl_engine *engine;
	bool outer;

	(void)argument;
	environment_open(&environment, &manual);
	check(pl_fd(environment.near) >= 0);
	engine = environment.near_peer->home;
	pl_engine_lock(engine);
	outer = pl_engine_begin_batch(engine);
	pl_operation_complete(ended_operation(environment.near_peer, 1));
	pl_operation_complete(ended_operation(environment.near_peer, 2));
	check(!is_announced(environment.near));
	pl_engine_end_batch(engine, outer);
	check(is_announced(environment.near));
	check_number(pl_poll(environment.near, completions, 4), 2);
	check(!is_announced(environment.near));
	outer = pl_engine_begin_batch(engine);
	pl_operation_complete(ended_operation(environment.near_peer, 3));
	check_number(pl_poll(environment.near, completions, 4), 1);
	pl_engine_end_batch(engine, outer);
	check(!is_announced(environment.near));
	/* Outside of a batch the descriptor reports each completion. */
	pl_operation_complete(ended_operation(environment.near_peer, 4));
	check(is_announced(environment.near));
	pl_engine_unlock(engine);
	check_number(pl_poll(environment.near, completions, 4), 1);
	check(!is_announced(environment.near));
	environment_close(&environment);
}

struct finisher {
	struct pl_peer *peer;
	unsigned number;
	pthread_t thread;
};

static void *finish_operations(void *argument)
{
	const struct finisher *finisher = argument;

	for (unsigned i = 0; i < OPERATIONS; i++)
		pl_operation_finish(ended_operation(finisher->peer, (uint64_t)finisher->number << 32 | i));
	return NULL;
}

/* Collects all completions, and checks that those of each thread come in their order. */
static void collect_finished(struct scenario_environment *environment)
{
	unsigned next[THREADS] = { 0 };
	struct pl_completion completion;

	for (int i = 0; i < THREADS * OPERATIONS; i++) {
		unsigned thread;

		collect(environment, environment->near, &completion, 1);
		thread = (unsigned)(completion.user_data >> 32);
		check(thread < THREADS);
		check_number((uint32_t)completion.user_data, next[thread]++);
	}
}

/* Operations that other threads finish while the home engine is held have one task in all, and complete in their order. */
static void finished_by_one_task(void *argument)
{
	struct finisher finishers[THREADS];
	struct scenario_environment environment;
	struct pl_engine *engine;

	(void)argument;
	environment_open(&environment, &manual);
	engine = environment.near_peer->home;
	pl_engine_lock(engine);
	for (unsigned i = 0; i < THREADS; i++) {
		finishers[i] = (struct finisher){ .peer = environment.near_peer, .number = i };
		check_number(pthread_create(&finishers[i].thread, NULL, finish_operations, &finishers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(finishers[i].thread, NULL);
	check_number(atomic_load(&engine->task_count), 1);
	pl_engine_unlock(engine);
	collect_finished(&environment);
	environment_close(&environment);
}

/* -- frames ----------------------------------------------------------------------------------------- */

/* Small frames of a batch wait for its end. */
static void frames_sent_together(void *argument)
{
	struct scenario_environment environment;
	struct pl_engine *engine;
	struct tcp_lane *lane;
	bool outer;

	(void)argument;
	environment_open(&environment, &manual);
	lane = tcp_endpoint_of(environment.near_peer->endpoint)->lanes[0];
	engine = environment.near_peer->home;
	pl_engine_lock(engine);
	outer = pl_engine_begin_batch(engine);
	/* The other end knows no such messages, as if it had cancelled them. */
	pl_message_finish(environment.near_peer, 1000, PL_WIRE_OK);
	pl_message_finish(environment.near_peer, 1001, PL_WIRE_OK);
	check_number(lane->queued, 2 * PL_FRAME_HEADER);
	pl_engine_end_batch(engine, outer);
	check_number(lane->queued, 0);
	check(pl_list_empty(&lane->batch_end.link));
	pl_engine_unlock(engine);
	environment_close(&environment);
}

/*
 * Writes to a peer with one socket that share a batch wait for its end, or until 256 KiB are queued: where engines poll, one system
 * call sends several.
 */
static void writes_sent_together(void *unused)
{
	struct pl_operation *operations[WRITES];
	struct pl_engine *engine;
	struct tcp_lane *lane;
	struct pl_error error;
	struct pair pair;
	bool outer;

	(void)unused;
	pair_open(&pair, &manual, WRITES * WRITE_BYTES);
	pattern_fill(pair.near.bytes, WRITES * WRITE_BYTES, 1, 0);
	engine = pair.environment.near_peer->home;
	lane = tcp_endpoint_of(pair.environment.near_peer->endpoint)->lanes[0];
	pl_engine_lock(engine);
	engine->poll_time = 20000;
	outer = pl_engine_begin_batch(engine);
	for (unsigned i = 0; i < WRITES; i++) {
		const struct pl_transfer transfer = { pair.remote, i * WRITE_BYTES, pair.near.region, i * WRITE_BYTES,
						      WRITE_BYTES };

		check_ok(pl_write(pair.environment.near_peer, &transfer, NULL, &operations[i], &error), &error);
		pl_engine_run_tasks(engine, NULL);
		if (i < WRITES - 1)
			check_number(lane->queued, (i + 1) * (PL_FRAME_HEADER + WRITE_BYTES));
	}
	/* The last one reached the limit. */
	check(lane->queued < WRITES * (PL_FRAME_HEADER + WRITE_BYTES));
	pl_engine_end_batch(engine, outer);
	engine->poll_time = 0;
	pl_engine_unlock(engine);
	for (unsigned i = 0; i < WRITES; i++)
		complete(&pair.environment, operations[i], NULL);
	pattern_check(pair.far.bytes, WRITES * WRITE_BYTES, 1, 0);
	pair_close(&pair);
}

/* -- bulk operations -------------------------------------------------------------------------------- */

static unsigned list_length(const struct pl_list *list)
{
	unsigned length = 0;

	pl_list_for_each(at, list)
		length++;
	return length;
}

/* Opens a pair with lanes that carry bulk data, beside lane 0. */
static void pair_open_wide(struct pair *pair)
{
	static const struct setting wide = { "batch-wide", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, .lanes = 2 };
	struct pl_error error;

	pair_open(pair, &wide, 1 << 20);
	check_ok(pl_region_prepare(pair->environment.near_peer, pair->near.region, &error), &error);
	await_lanes(&pair->environment, wide.lanes);
}

/* Begins reads in a batch of the home engine, and cancels one of them meanwhile. */
static void read_in_a_batch(struct pair *pair, struct pl_operation **operations)
{
	struct pl_peer *peer = pair->environment.near_peer;
	struct tcp_endpoint *endpoint = tcp_endpoint_of(peer->endpoint);
	struct pl_error error;
	bool outer;

	pl_engine_lock(peer->home);
	outer = pl_engine_begin_batch(peer->home);
	for (unsigned i = 0; i < READS; i++) {
		const struct pl_transfer transfer = { pair->remote, i * READ_BYTES, pair->near.region, i * READ_BYTES,
						      READ_BYTES };

		check_ok(pl_read(peer, &transfer, NULL, &operations[i], &error), &error);
	}
	pl_engine_run_tasks(peer->home, NULL);
	check_number(list_length(&endpoint->gathered), READS - 1);
	check_number(endpoint->gathered_bytes, (READS - 1) * READ_BYTES);
	check_number(endpoint->gathered_chunks, READS - 1);
	check(pl_list_empty(&endpoint->work));
	pl_cancel(operations[CANCELED]);
	pl_engine_run_tasks(peer->home, NULL);
	check_number(list_length(&endpoint->gathered), READS - 2);
	pl_engine_end_batch(peer->home, outer);
	check(pl_list_empty(&endpoint->gathered));
	check_number(endpoint->gathered_chunks, 0);
	check_number(list_length(&endpoint->work), READS - 2);
	pl_engine_unlock(peer->home);
}

/* Bulk operations of a batch go to the list of all lanes together. One that is cancelled before goes nowhere. */
static void operations_listed_together(void *argument)
{
	struct pl_operation *operations[READS];
	struct pair pair;

	(void)argument;
	pair_open_wide(&pair);
	memset(pair.near.bytes, 0, READS * READ_BYTES);
	memset(pair.far.bytes, 7, READS * READ_BYTES);
	read_in_a_batch(&pair, operations);
	for (unsigned i = 0; i < READS; i++) {
		if (i == CANCELED)
			fail_with(&pair.environment, operations[i], -ECANCELED);
		else
			complete(&pair.environment, operations[i], NULL);
		check_number(pair.near.bytes[i * READ_BYTES], i == CANCELED ? 0 : 7);
	}
	pair_close(&pair);
}

/* The other lanes of an acceptor leave, unused, before the end of the batch. Lane 0 takes the gathered operations. */
static void lanes_leave_meanwhile(void *argument)
{
	struct pl_operation *operations[2];
	struct tcp_endpoint *endpoint;
	struct pl_remote *remote;
	struct pl_peer *peer;
	struct pl_error error;
	struct buffer source;
	struct pair pair;
	bool outer;

	(void)argument;
	pair_open_wide(&pair);
	peer = pair.environment.far_peer;
	endpoint = tcp_endpoint_of(peer->endpoint);
	buffer_open(&source, pair.environment.near, READ_BYTES, PL_ACCESS_READ);
	remote = share(&pair.environment, source.region, peer, NULL);
	pl_engine_lock(peer->home);
	outer = pl_engine_begin_batch(peer->home);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(operations); i++)
		check_ok(pl_read(peer, &(struct pl_transfer){ remote, 0, pair.far.region, 0, READ_BYTES }, NULL,
				 &operations[i], &error),
			 &error);
	pl_engine_run_tasks(peer->home, NULL);
	check_number(list_length(&endpoint->gathered), 1);
	for (unsigned i = 1; i < TCP_SOCKETS_MAX; i++)
		if (endpoint->lanes[i])
			tcp_lane_fail(endpoint->lanes[i], -ECONNRESET);
	check_number(atomic_load(&endpoint->lanes_up), 1);
	pl_engine_end_batch(peer->home, outer);
	check_number(list_length(&endpoint->work), 1);
	pl_engine_unlock(peer->home);
	check(pl_list_empty(&endpoint->work));
	/* The other end may close the connection for the loss of its lanes. */
	for (unsigned i = 0; i < PL_ARRAY_SIZE(operations); i++)
		await(&pair.environment, operations[i], NULL, &error);
	pl_remote_release(remote);
	buffer_close(&source);
	pair_close(&pair);
}

/* The end of a peer ends the operations that a batch has gathered. */
static void gathered_operations_lost(void *argument)
{
	struct pl_operation *operation;
	struct pl_transfer transfer;
	struct pl_peer *peer;
	struct pl_error error;
	struct pair pair;
	bool outer;

	(void)argument;
	pair_open_wide(&pair);
	peer = pair.environment.near_peer;
	pl_engine_lock(peer->home);
	outer = pl_engine_begin_batch(peer->home);
	transfer = (struct pl_transfer){ pair.remote, 0, pair.near.region, 0, READ_BYTES };
	check_ok(pl_read(peer, &transfer, NULL, NULL, &error), &error);
	check_ok(pl_read(peer, &transfer, NULL, &operation, &error), &error);
	pl_engine_run_tasks(peer->home, NULL);
	check(!pl_list_empty(&tcp_endpoint_of(peer->endpoint)->gathered));
	pl_fail(&error, -ECONNRESET, "PEER-LOST", "test", NULL, NULL, "the test ends the peer");
	pl_peer_lose(peer, &error);
	check(pl_list_empty(&tcp_endpoint_of(peer->endpoint)->gathered));
	pl_engine_end_batch(peer->home, outer);
	pl_engine_unlock(peer->home);
	fail_with(&pair.environment, operation, -ECONNRESET);
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "outermost-end", outermost_end, NULL, 20 },
	{ "announced-once", announced_once, NULL, 60 },
	{ "finished-by-one-task", finished_by_one_task, NULL, 60 },
	{ "frames-sent-together", frames_sent_together, NULL, 60 },
	{ "writes-sent-together", writes_sent_together, NULL, 60 },
	{ "operations-listed-together", operations_listed_together, NULL, 60 },
	{ "lanes-leave", lanes_leave_meanwhile, NULL, 60 },
	{ "gathered-operations-lost", gathered_operations_lost, NULL, 60 },
};

int main(void)
{
	return cases_run("batch", cases, sizeof(cases) / sizeof(cases[0]));
}
