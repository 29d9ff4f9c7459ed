/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work that the home engine does once for many operations: it takes the posted ones together, and queues the completions of a batch
 * together, in order with events and with operations that have handles. It sends large messages without waiting for
 * acknowledgements.
 */
#include <pthread.h>
#include <sched.h>

#include "core/fabric.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

enum { LENGTH = 64 << 10, MANY = 40 };

/* -- tasks ------------------------------------------------------------------------------------------ */

/* Tasks write their letters in the order in which they run. */
struct order {
	struct pl_engine *engine;
	struct pl_task first, second, third, posted, withdrawn, last;
	char letters[8];
	int count;
};

static void order_open(struct order *order)
{
	struct pl_error error;

	*order = (struct order){ .count = 0 };
	check_ok(pl_engine_open(&pl_system_allocator, false, 0, &order->engine, &error), &error);
}

static void order_close(struct order *order)
{
	pl_engine_stop(order->engine);
	pl_engine_close(order->engine);
}

static void write_letter(struct order *order, char letter)
{
	order->letters[order->count++] = letter;
}

static void run_second(struct pl_task *task)
{
	write_letter(pl_container_of(task, struct order, second), '2');
}

static void run_third(struct pl_task *task)
{
	struct order *order = pl_container_of(task, struct order, third);

	write_letter(order, '3');
	check_number(atomic_load(&order->engine->task_count), 1);
}

static void run_posted(struct pl_task *task)
{
	write_letter(pl_container_of(task, struct order, posted), 'p');
}

/* Finds the others taken. They count as queued, so that no operation overtakes them. */
static void run_first(struct pl_task *task)
{
	struct order *order = pl_container_of(task, struct order, first);

	write_letter(order, '1');
	check_number(order->engine->submitted_count, 0);
	check_number(atomic_load(&order->engine->task_count), 4);
	check(pl_engine_run_tasks(order->engine, run_second));
	check(!pl_engine_run_tasks(order->engine, run_second));
}

/* Submitted tasks are taken together, before posted ones. A look for tasks of one kind finds those that are taken. */
static void taken_together(void *unused)
{
	struct order order;

	(void)unused;
	order_open(&order);
	pl_task_init(&order.first, run_first);
	pl_task_init(&order.second, run_second);
	pl_task_init(&order.third, run_third);
	pl_task_init(&order.posted, run_posted);
	pl_engine_lock(order.engine);
	pl_engine_post(order.engine, &order.posted);
	pl_engine_submit(order.engine, &order.first);
	pl_engine_submit(order.engine, &order.second);
	pl_engine_submit(order.engine, &order.third);
	check_number(order.count, 0);
	pl_engine_unlock(order.engine);
	check(strcmp(order.letters, "123p") == 0);
	check_number(atomic_load(&order.engine->task_count), 0);
	/* A free engine runs it at once. */
	pl_engine_submit(order.engine, &order.second);
	check_number(order.count, 5);
	order_close(&order);
}

static void run_last(struct pl_task *task)
{
	write_letter(pl_container_of(task, struct order, last), 'l');
}

static void run_withdrawn(struct pl_task *task)
{
	write_letter(pl_container_of(task, struct order, withdrawn), 'w');
}

/* The stream goes on, and another task is posted. */
static void run_first_of_stream(struct pl_task *task)
{
	struct order *order = pl_container_of(task, struct order, first);

	write_letter(order, '1');
	pl_engine_withdraw(order->engine, &order->withdrawn);
	pl_engine_submit(order->engine, &order->second);
	pl_engine_post(order->engine, &order->last);
}

/*
 * Submitted tasks that come while others run wait for the tasks that were posted before, so that a stream of them does not hold those
 * up. No task overtakes a submitted one that was queued earlier, also if another task was withdrawn.
 */
static void posted_in_turn(void *unused)
{
	struct order order;

	(void)unused;
	order_open(&order);
	pl_task_init(&order.first, run_first_of_stream);
	pl_task_init(&order.second, run_second);
	pl_task_init(&order.withdrawn, run_withdrawn);
	pl_task_init(&order.posted, run_posted);
	pl_task_init(&order.last, run_last);
	pl_engine_lock(order.engine);
	pl_engine_post(order.engine, &order.withdrawn);
	pl_engine_post(order.engine, &order.posted);
	pl_engine_submit(order.engine, &order.first);
	pl_engine_unlock(order.engine);
	check(strcmp(order.letters, "1p2l") == 0);
	check_number(atomic_load(&order.engine->task_count), 0);
	order_close(&order);
}

/* -- completions ------------------------------------------------------------------------------------ */

/* Contexts whose engines have threads that poll. */
static const struct setting setting = {
	.name = "home-work", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

static struct pl_operation *operation_new(struct pl_peer *peer, enum pl_kind kind, uint64_t number)
{
	struct pl_operation *operation;
	struct pl_error error;

	operation = pl_operation_new(peer->context, peer, kind, NULL, &error);
	check(operation);
	operation->completion.user_data = number;
	atomic_store(&operation->pending, 0);
	return operation;
}

static bool any_completed(struct pl_context *context)
{
	return atomic_load(&context->any_completed);
}

/* The batch's end queues its completions; an event, or the end of an operation with a handle, those before it. */
static void completed_together(void *unused)
{
	struct scenario_environment environment;
	struct pl_completion completions[5];
	struct pl_operation *held;
	struct pl_engine *engine;
	struct pl_peer *peer;
	bool outer;

	(void)unused;
	environment_open(&environment, &setting);
	peer = environment.near_peer;
	engine = peer->home;
	pl_engine_lock(engine);
	outer = pl_engine_begin_batch(engine);
	pl_operation_complete(operation_new(peer, PL_KIND_WRITE, 1));
	pl_operation_complete(operation_new(peer, PL_KIND_WRITE, 2));
	check(!any_completed(environment.near));
	pl_completion_push_event(peer, operation_new(peer, PL_KIND_NOTIFIED, 0));
	check(any_completed(environment.near));
	collect(&environment, environment.near, completions, 3);
	check_number(completions[0].user_data, 1);
	check_number(completions[1].user_data, 2);
	check_number(completions[2].kind, PL_KIND_NOTIFIED);
	pl_operation_complete(operation_new(peer, PL_KIND_WRITE, 3));
	check(!any_completed(environment.near));
	held = operation_new(peer, PL_KIND_WRITE, 4);
	pl_operation_hold(held, &held);
	pl_operation_complete(held);
	check(any_completed(environment.near));
	pl_operation_complete(operation_new(peer, PL_KIND_WRITE, 5));
	pl_engine_end_batch(engine, outer);
	pl_engine_unlock(engine);
	complete(&environment, held, NULL);
	collect(&environment, environment.near, completions, 2);
	check_number(completions[0].user_data, 3);
	check_number(completions[1].user_data, 5);
	environment_close(&environment);
}

/* A long batch queues completions meanwhile, and wakes a program that sleeps on the descriptor. */
static void completed_meanwhile(void *unused)
{
	struct scenario_environment environment;
	struct pl_completion completions[MANY];
	struct pl_engine *engine;
	bool outer;

	(void)unused;
	environment_open(&environment, &setting);
	check(pl_fd(environment.near) >= 0);
	engine = environment.near_peer->home;
	pl_engine_lock(engine);
	outer = pl_engine_begin_batch(engine);
	for (unsigned i = 0; i < MANY; i++)
		pl_operation_complete(operation_new(environment.near_peer, PL_KIND_WRITE, i));
	check(any_completed(environment.near));
	check(engine->gathered_count > 0);
	pl_engine_end_batch(engine, outer);
	check_number(engine->gathered_count, 0);
	pl_engine_unlock(engine);
	check(environment.near->announced);
	collect(&environment, environment.near, completions, MANY);
	for (unsigned i = 0; i < MANY; i++)
		check_number(completions[i].user_data, i);
	environment_close(&environment);
}

enum { WRITES = 8, BATCH_OPEN = 1, WRITTEN };

struct beside {
	struct pl_engine *engine;
	atomic_int step; /* relaxed: the two threads have nothing else in common */
};

static void await_step(struct beside *beside, int step)
{
	while (atomic_load_explicit(&beside->step, memory_order_relaxed) != step)
		sched_yield();
}

static void *hold_batch(void *argument)
{
	struct beside *beside = argument;
	bool outer;

	pl_engine_lock(beside->engine);
	outer = pl_engine_begin_batch(beside->engine);
	atomic_store_explicit(&beside->step, BATCH_OPEN, memory_order_relaxed);
	await_step(beside, WRITTEN);
	pl_engine_end_batch(beside->engine, outer);
	pl_engine_unlock(beside->engine);
	return NULL;
}

/* A thread of the program that ends writes itself looks at no batch of home, which another thread has begun. */
static void completed_beside(void *unused)
{
	static const struct setting local = {
		.name = "home-work-local", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD
	};
	struct pl_completion completions[WRITES];
	struct beside beside = { .step = 0 };
	struct pl_error error;
	struct pair pair;
	pthread_t thread;

	(void)unused;
	pair_open(&pair, &local, LENGTH);
	beside.engine = pair.environment.near_peer->home;
	check_number(pthread_create(&thread, NULL, hold_batch, &beside), 0);
	await_step(&beside, BATCH_OPEN);
	for (unsigned i = 0; i < WRITES; i++)
		check_ok(pl_write(pair.environment.near_peer,
				  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, 8 }, NULL, NULL, &error),
			 &error);
	atomic_store_explicit(&beside.step, WRITTEN, memory_order_relaxed);
	pthread_join(thread, NULL);
	collect(&pair.environment, pair.environment.near, completions, WRITES);
	for (unsigned i = 0; i < WRITES; i++)
		check_completion(pair.environment.near, &completions[i], 0);
	pair_close(&pair);
}

/* -- acknowledgements ------------------------------------------------------------------------------- */

static struct tcp_lane *first_lane(struct pl_peer *peer)
{
	return tcp_endpoint_of(peer->endpoint)->lanes[0];
}

/* Waits until the near end has sent so many counted frames over lane 0. Returns true if it waits for answers then. */
static bool await_sent(struct pair *pair, uint32_t count)
{
	struct tcp_lane *lane = first_lane(pair->environment.near_peer);
	bool under_way;

	for (pl_engine_lock(lane->engine); lane->sequence < count; pl_engine_lock(lane->engine)) {
		pl_engine_unlock(lane->engine);
		sched_yield();
	}
	check_number(lane->acked, 0);
	under_way = tcp_lane_is_under_way(lane);
	pl_engine_unlock(lane->engine);
	return under_way;
}

static struct pl_operation *send_large(struct pair *pair)
{
	struct pl_operation *send;
	struct pl_error error;

	check_ok(pl_send(pair->environment.near_peer, 1, &(struct pl_buffer){ pair->near.region, 0, LENGTH }, NULL,
			 &send, &error),
		 &error);
	return send;
}

static void receive_large(struct pair *pair, struct pl_operation *send)
{
	struct pl_operation *receive;
	struct pl_error error;

	check_ok(pl_receive(pair->environment.far_peer, 1, UINT64_MAX,
			    &(struct pl_buffer){ pair->far.region, 0, LENGTH }, NULL, &receive, &error),
		 &error);
	complete(&pair->environment, receive, NULL);
	complete(&pair->environment, send, NULL);
}

/* An engine that polls sends large messages before the first one is acknowledged. The far end does nothing meanwhile. */
static void not_awaited(void *unused)
{
	struct pl_operation *sends[2];
	struct pl_engine *far;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &setting, LENGTH);
	far = pair.environment.far_peer->home;
	pl_engine_lock(far);
	sends[0] = send_large(&pair);
	sends[1] = send_large(&pair);
	check(!await_sent(&pair, 2));
	pl_engine_unlock(far);
	receive_large(&pair, sends[0]);
	receive_large(&pair, sends[1]);
	pair_close(&pair);
}

/* It waits for the acknowledgement of small ones, which are sent together then; other engines wait for those of all. */
static void awaited(void *argument)
{
	const bool *polls = argument;
	struct pl_operation *send;
	struct pl_engine *far;
	struct pl_error error;
	struct pair pair;

	poll_time = *polls ? 20000 : PL_NO_POLLING;
	pair_open(&pair, &setting, LENGTH);
	far = pair.environment.far_peer->home;
	pl_engine_lock(far);
	send = send_large(&pair);
	check(await_sent(&pair, 1) != *polls);
	if (*polls)
		check_ok(pl_send_copy(pair.environment.near_peer, 2, "8 bytes", 8, NULL, NULL, &error), &error);
	if (*polls)
		check(await_sent(&pair, 2));
	pl_engine_unlock(far);
	receive_large(&pair, send);
	pair_close(&pair);
	poll_time = 20000;
}

static const bool yes = true, no = false;

static const struct test_case cases[] = {
	{ "taken-together", taken_together, NULL, 20 },
	{ "posted-in-turn", posted_in_turn, NULL, 20 },
	{ "completed-together", completed_together, NULL, 60 },
	{ "completed-meanwhile", completed_meanwhile, NULL, 60 },
	{ "completed-beside", completed_beside, NULL, 60 },
	{ "not-awaited", not_awaited, NULL, 60 },
	{ "awaited-polls", awaited, &yes, 60 },
	{ "awaited-sleeps", awaited, &no, 60 },
};

int main(void)
{
	poll_time = 20000;
	return cases_run("home-work", cases, sizeof(cases) / sizeof(cases[0]));
}
