/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A callback of the program (authorize, refused) that does not return holds up the connections of its own engine only: other
 * engines queue the handshakes that need a callback, and go on with all other work.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "core/peer.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/socket.h"

#define WORKERS 4
#define PEERS (2 * WORKERS)
#define LATER (2 * WORKERS) /* handshakes that begin while a callback does not return */

static const struct setting setting = {
	"turns", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 1, false, false, false, false
};

/* Calls of a context's callback. The first one after `armed` that the first engine, which accepts, does not make, blocks. */
struct gate {
	struct pl_context *context;
	pthread_t program; /* thread of the program that the library must not call on */
	atomic_bool armed, open, inside;
	atomic_int engine; /* index of the engine that is blocked; -1: none */
	atomic_uint calls;
};

static void gate_pass(struct gate *gate)
{
	struct pl_context *context = gate->context;

	/* The library makes one call at a time. */
	check(!atomic_exchange(&gate->inside, true));
	check(!pthread_equal(gate->program, pthread_self()));
	atomic_fetch_add(&gate->calls, 1);
	if (atomic_load(&gate->armed) && !pl_engine_held(context->engines[0]) && atomic_load(&gate->engine) < 0) {
		unsigned i = 1;

		while (!pl_engine_held(context->engines[i]))
			i++;
		atomic_store(&gate->engine, (int)i);
		while (!atomic_load(&gate->open))
			usleep(1000);
	}
	atomic_store(&gate->inside, false);
}

static int authorize(void *user, const struct pl_identity *identity, struct pl_rights *rights)
{
	(void)identity;
	(void)rights;
	gate_pass(user);
	return 0;
}

static void learn_refused(void *user, const struct pl_identity *identity, const struct pl_error *error)
{
	(void)identity;
	check_text(error->id, "TLS-FAILED");
	gate_pass(user);
}

struct rig {
	struct gate gate;
	struct pl_context *server, *client;
	struct pl_listener *listener;
	char address[96];
	struct pl_peer *client_peers[PEERS], *server_peers[PEERS];
	struct pl_remote *remotes[PEERS];
	struct buffer near, far;
	struct pl_operation *later[LATER];
};

/* `asked`: context whose callback may block. */
static void rig_open(struct rig *rig, struct pl_context **asked, bool reports)
{
	struct scenario_environment environment = { .setting = &setting };
	struct pl_options options = setting_options(&setting), plain = options;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	atomic_init(&rig->gate.engine, -1);
	rig->gate.program = pthread_self();
	options.workers = plain.workers = WORKERS;
	options.authorize = reports ? NULL : authorize;
	options.authorize_user = &rig->gate;
	options.refused = reports ? learn_refused : NULL;
	options.refused_user = &rig->gate;
	rig->server = context_open_with(asked == &rig->server ? &options : &plain);
	rig->client = context_open_with(asked == &rig->client ? &options : &plain);
	rig->gate.context = *asked;
	rig->listener = listener_open(&setting, rig->server, rig->address);
	buffer_open(&rig->near, rig->client, 64, PL_ACCESS_ALL);
	buffer_open(&rig->far, rig->server, 64, PL_ACCESS_ALL);
	for (unsigned i = 0; i < PEERS; i++) {
		check_ok(pl_connect(rig->client, rig->address, AMPLE_TIME, &rig->client_peers[i], &error), &error);
		check_ok(pl_accept(rig->listener, AMPLE_TIME, &rig->server_peers[i], &error), &error);
		rig->remotes[i] = share(&environment, rig->far.region, rig->client_peers[i], NULL);
	}
	atomic_store(&rig->gate.armed, true);
}

static struct pl_operation *begin_connecting(struct rig *rig)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_connect_start(rig->client, rig->address, AMPLE_TIME, 0, &operation, &error), &error);
	return operation;
}

static void expect_connected(struct pl_operation *operation)
{
	struct pl_error error;

	check_ok(pl_wait(operation, AMPLE_TIME, NULL, &error), &error);
}

/* Connects, one after the other, until a callback blocks. Returns the last connection, which waits for it. */
static struct pl_operation *block_by_connecting(struct rig *rig)
{
	for (;;) {
		struct pl_operation *operation = begin_connecting(rig);

		while (atomic_load(&rig->gate.engine) < 0 &&
		       atomic_load_explicit(&operation->state, memory_order_acquire) != PL_DONE)
			usleep(1000);
		if (atomic_load(&rig->gate.engine) >= 0)
			return operation;
		expect_connected(operation);
	}
}

/* Waits until handshakes wait for the callback on all engines but the one that is blocked. */
static void wait_for_queues(struct rig *rig)
{
	struct pl_context *context = rig->gate.context;

	for (int i = 0; i < WORKERS; i++) {
		bool waits = i == atomic_load(&rig->gate.engine);

		while (!waits) {
			pl_engine_lock(context->engines[i]);
			waits = !pl_list_empty(&context->callback_turns.queues[i].waiting);
			pl_engine_unlock(context->engines[i]);
			usleep(1000);
		}
	}
}

/* Writes to all peers whose engines are not blocked. */
static void expect_transfers(struct rig *rig)
{
	const int blocked = atomic_load(&rig->gate.engine);
	const bool server = rig->gate.context == rig->server;
	unsigned count = 0;

	for (unsigned i = 0; i < PEERS; i++) {
		struct pl_peer *peer = server ? rig->server_peers[i] : rig->client_peers[i];
		struct pl_operation *operation;
		struct pl_error error;

		if (!atomic_load(&rig->gate.open) && peer->home == rig->gate.context->engines[blocked])
			continue;
		check_ok(pl_write(rig->client_peers[i],
				  &(struct pl_transfer){ rig->remotes[i], 0, rig->near.region, 0, 64 }, NULL,
				  &operation, &error),
			 &error);
		check_ok(pl_wait(operation, AMPLE_TIME, NULL, &error), &error);
		count++;
	}
	check(count >= PEERS - PEERS / WORKERS);
}

static void rig_close(struct rig *rig)
{
	for (unsigned i = 0; i < PEERS; i++)
		pl_remote_release(rig->remotes[i]);
	buffer_close(&rig->near);
	pl_close(rig->client);
	pl_close(rig->server);
	buffer_close_bare(&rig->far);
}

/* A stranger's data sockets: each gets a challenge from its engine, without a callback. Waits for those of engines that run. */
static void expect_challenges(struct rig *rig)
{
	const struct pl_lane_hello hello = { .version = PL_PROTOCOL_VERSION, .lane = 1 };
	uint8_t bytes[PL_LANE_HELLO];
	struct pollfd sockets[WORKERS];
	int ready = 0;

	pl_lane_hello_encode(&hello, bytes);
	for (unsigned i = 0; i < WORKERS; i++) {
		sockets[i] = (struct pollfd){ socket_connect(rig->address), POLLIN, 0 };
		check(sockets[i].fd >= 0);
		check(socket_send(sockets[i].fd, bytes, sizeof(bytes)));
	}
	/* Engines with as many connections get them in turn, so at most two are at the blocked one. */
	while (ready < WORKERS - 2)
		ready = poll(sockets, WORKERS, 100);
	for (unsigned i = 0; i < WORKERS; i++)
		close(sockets[i].fd);
}

static void *reload(void *argument)
{
	struct pl_credentials credentials = PL_CREDENTIALS_INIT;
	struct rig *rig = argument;
	struct pl_error error;

	check_ok(pl_context_reload(rig->server, &credentials, &error), &error);
	return NULL;
}

/* The acceptor's callback does not return. */
static void accept_blocked(void *argument)
{
	struct pl_operation *first;
	unsigned calls;
	pthread_t thread;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &rig.server, false);
	first = block_by_connecting(&rig);
	calls = atomic_load(&rig.gate.calls);
	for (unsigned i = 0; i < LATER; i++)
		rig.later[i] = begin_connecting(&rig);
	wait_for_queues(&rig);
	/* It judges all peers again, one call at a time, and waits without an engine's lock. */
	check_number(pthread_create(&thread, NULL, reload, &rig), 0);
	expect_transfers(&rig);
	expect_challenges(&rig);
	check_number(atomic_load(&rig.gate.calls), calls);
	atomic_store(&rig.gate.open, true);
	expect_connected(first);
	for (unsigned i = 0; i < LATER; i++)
		expect_connected(rig.later[i]);
	check_number(pthread_join(thread, NULL), 0);
	check(atomic_load(&rig.gate.calls) >= calls + LATER + PEERS);
	expect_transfers(&rig);
	rig_close(&rig);
}

/* The initiator's callback does not return. Connections that wait for it can be cancelled. */
static void connect_blocked(void *argument)
{
	struct pl_operation *first;
	struct pl_error error;
	unsigned canceled = 0;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &rig.client, false);
	first = block_by_connecting(&rig);
	for (unsigned i = 0; i < LATER; i++)
		rig.later[i] = begin_connecting(&rig);
	wait_for_queues(&rig);
	expect_transfers(&rig);
	for (unsigned i = 0; i < LATER; i++) {
		if (rig.later[i]->home == rig.client->engines[atomic_load(&rig.gate.engine)] || i % 2)
			continue;
		pl_cancel(rig.later[i]);
		check_status(pl_wait(rig.later[i], AMPLE_TIME, NULL, &error), -ECANCELED, &error);
		rig.later[i] = NULL;
		canceled++;
	}
	check(canceled);
	atomic_store(&rig.gate.open, true);
	expect_connected(first);
	for (unsigned i = 0; i < LATER; i++)
		if (rig.later[i])
			expect_connected(rig.later[i]);
	expect_transfers(&rig);
	rig_close(&rig);
}

/* Begins a handshake that fails, which the program learns. */
static int begin_failing(struct rig *rig)
{
	static const uint8_t bytes[] = { 0x16, 3, 1, 0, 4, 0xff, 0, 0, 0 };
	int fd = socket_connect(rig->address);

	check(fd >= 0);
	check(socket_send(fd, bytes, sizeof(bytes)));
	return fd;
}

/* A report of a refused stranger does not return: other connections need no callback, and those of other engines open. */
static void report_blocked(void *argument)
{
	int strangers[LATER];
	unsigned open = 0, calls;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &rig.server, true);
	while (atomic_load(&rig.gate.engine) < 0) {
		int fd = begin_failing(&rig);

		/* The engine closes the connection after the callback. */
		while (atomic_load(&rig.gate.engine) < 0 && !socket_wait_closed(fd, 10))
			;
		close(fd);
	}
	calls = atomic_load(&rig.gate.calls);
	for (unsigned i = 0; i < LATER; i++)
		strangers[i] = begin_failing(&rig);
	wait_for_queues(&rig);
	expect_transfers(&rig);
	for (unsigned i = 0; i < LATER; i++)
		rig.later[i] = begin_connecting(&rig);
	/* The blocked engine accepts at most three of eight, and is the home of at most two others. */
	while (open < LATER - 5) {
		open = 0;
		for (unsigned i = 0; i < LATER; i++)
			open += atomic_load_explicit(&rig.later[i]->state, memory_order_acquire) == PL_DONE;
		usleep(1000);
	}
	check_number(atomic_load(&rig.gate.calls), calls);
	atomic_store(&rig.gate.open, true);
	for (unsigned i = 0; i < LATER; i++) {
		expect_connected(rig.later[i]);
		check(socket_wait_closed(strangers[i], 60000));
		close(strangers[i]);
	}
	check_number(atomic_load(&rig.gate.calls), calls + LATER);
	rig_close(&rig);
}

/* True if an engine has been told that it has the next turn. */
static bool turn_was_handed_over(struct pl_callback_turns *turns)
{
	bool handed = false;

	for (unsigned i = 0; i < WORKERS; i++)
		handed |= atomic_load(&turns->queues[i].task.queued);
	return handed;
}

/*
 * The turn comes while a thread of the program holds the engine's lock, as in pl_write(). That thread runs the engine's tasks
 * before it unlocks, and must leave the callback to a thread of the library (gate_pass() checks that).
 */
static void program_holds_locks(void *argument)
{
	struct pl_operation *first;
	struct pl_context *context;
	struct rig rig;
	int blocked;

	(void)argument;
	rig_open(&rig, &rig.server, false);
	context = rig.server;
	first = block_by_connecting(&rig);
	for (unsigned i = 0; i < LATER; i++)
		rig.later[i] = begin_connecting(&rig);
	wait_for_queues(&rig);
	blocked = atomic_load(&rig.gate.engine);
	for (int i = 0; i < WORKERS; i++)
		if (i != blocked)
			pl_engine_lock(context->engines[i]);
	atomic_store(&rig.gate.open, true);
	while (!turn_was_handed_over(&context->callback_turns))
		usleep(1000);
	for (int i = 0; i < WORKERS; i++)
		if (i != blocked)
			pl_engine_unlock(context->engines[i]);
	expect_connected(first);
	for (unsigned i = 0; i < LATER; i++)
		expect_connected(rig.later[i]);
	expect_transfers(&rig);
	rig_close(&rig);
}

/* -- turns without connections ------------------------------------------------------------------------------------ */

#define WAITS 10

struct bare;

struct bare_handshake {
	struct pl_callback_wait wait;
	struct bare *bare;
};

/* Turns of a context whose only engine has no thread: this one runs it. */
struct bare {
	struct pl_context *context;
	struct pl_callback_turns *turns;
	struct bare_handshake handshakes[WAITS];
	unsigned calls;
	atomic_bool taken; /* by the thread in pl_callback_turn_take() */
};

static const struct setting manual = {
	"manual", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false, false, false, false
};

static void bare_try(struct pl_callback_wait *wait)
{
	struct bare *bare = pl_container_of(wait, struct bare_handshake, wait)->bare;

	if (!pl_callback_turn_begin(&bare->turns->queues[0], wait))
		return;
	bare->calls++;
	pl_callback_turn_end(bare->turns);
}

static void bare_open(struct bare *bare)
{
	struct pl_options options = setting_options(&manual);

	memset(bare, 0, sizeof(*bare));
	bare->context = context_open_with(&options);
	bare->turns = &bare->context->callback_turns;
	for (unsigned i = 0; i < WAITS; i++) {
		pl_callback_wait_init(&bare->handshakes[i].wait, bare_try);
		bare->handshakes[i].bare = bare;
	}
}

/* Many handshakes wait: other work of the engine goes on between them. */
static void few_at_once(void *argument)
{
	struct pl_engine *engine;
	struct bare bare;

	(void)argument;
	bare_open(&bare);
	engine = bare.context->engines[0];
	pl_callback_turn_take(bare.turns);
	pl_engine_lock(engine);
	for (unsigned i = 0; i < WAITS; i++)
		bare_try(&bare.handshakes[i].wait);
	check_number(bare.calls, 0);
	pl_callback_turn_end(bare.turns);
	pl_engine_unlock(engine);
	check_number(bare.calls, 4);
	while (bare.calls < WAITS)
		pl_engine_progress(engine);
	pl_close(bare.context);
}

static void *take_turn(void *argument)
{
	struct bare *bare = argument;

	pl_callback_turn_take(bare->turns);
	atomic_store(&bare->taken, true);
	pl_callback_turn_end(bare->turns);
	return NULL;
}

static void wait_until_awaited(struct pl_callback_turns *turns)
{
	bool awaited = false;

	while (!awaited) {
		pthread_mutex_lock(&turns->lock);
		awaited = turns->awaited;
		pthread_mutex_unlock(&turns->lock);
		usleep(100);
	}
}

/* A reload that waits gets the turn before an engine that comes when it ends. Often: without that, the reload may be faster. */
static void reload_first(void *argument)
{
	struct pl_engine *engine;
	struct bare bare;

	(void)argument;
	bare_open(&bare);
	engine = bare.context->engines[0];
	for (unsigned round = 0; round < 200; round++) {
		pthread_t thread;

		bare.calls = 0;
		atomic_store(&bare.taken, false);
		pl_callback_turn_take(bare.turns);
		check_number(pthread_create(&thread, NULL, take_turn, &bare), 0);
		wait_until_awaited(bare.turns);
		pl_engine_lock(engine);
		pl_callback_turn_end(bare.turns);
		bare_try(&bare.handshakes[0].wait);
		check(!bare.calls || atomic_load(&bare.taken));
		pl_engine_unlock(engine);
		check_number(pthread_join(thread, NULL), 0);
		/* The end of the reload's turn calls the engine. */
		while (!bare.calls)
			pl_engine_progress(engine);
	}
	pl_close(bare.context);
}

static const struct test_case cases[] = {
	{ "accept", accept_blocked, NULL, 120 },   { "connect", connect_blocked, NULL, 120 },
	{ "report", report_blocked, NULL, 120 },   { "program-holds-locks", program_holds_locks, NULL, 120 },
	{ "few-at-once", few_at_once, NULL, 120 }, { "reload-first", reload_first, NULL, 120 },
};

int main(void)
{
	return cases_run("callback-turns", cases, PL_ARRAY_SIZE(cases));
}
