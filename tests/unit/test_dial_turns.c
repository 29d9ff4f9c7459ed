/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns of peers that connect, to a listener that accepts and then says nothing. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/fabric.h"
#include "support/socket.h"

#define TURNS 64u
#define WAITING 10u
#define PATIENCE (20 * PL_NS_PER_S)

struct rig {
	struct pl_context *context;
	struct pl_dial_turns *turns;
	int silent; /* listening socket */
	char address[64];
	struct pl_operation *operations[TURNS + WAITING];
};

/* Returns a socket with an address of its own, which is written as text. */
static int socket_bind(char *text, size_t size)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t length = sizeof(address);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	snprintf(text, size, "127.0.0.1:%u", ntohs(address.sin_port));
	return fd;
}

/* Moves the end of all turns. The engine's lock is held. */
static void set_ends(struct rig *rig, uint64_t end)
{
	pl_list_for_each(at, &rig->turns->running)
		pl_list_entry(at, struct pl_peer, turn_link)->turn_end = end;
	pl_timer_set(rig->turns->engine, &rig->turns->timer, end);
}

/* Begins to connect. No turn ends by its time: all begin, and get a later end, under one lock. */
static void rig_open(struct rig *rig)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_engine *engine;

	options.workers = 1;
	options.fabric = "tcp";
	options.connect_timeout = 60 * PL_NS_PER_S;
	assert_int_equal(pl_open(&rig->context, &options, NULL), 0);
	rig->turns = &rig->context->dial_turns[0];
	engine = rig->turns->engine;
	rig->silent = socket_bind(rig->address, sizeof(rig->address));
	assert_int_equal(listen(rig->silent, 2 * (TURNS + WAITING)), 0);
	pl_engine_lock(engine);
	for (unsigned i = 0; i < TURNS + WAITING; i++)
		assert_int_equal(pl_connect_start(rig->context, rig->address, 0, i, &rig->operations[i], NULL), 0);
	pl_engine_run_tasks(engine, rig->operations[0]->task.run);
	set_ends(rig, UINT64_MAX);
	pl_engine_unlock(engine);
}

/* Returns the number of peers in a list of the turns. */
static unsigned count_peers(struct rig *rig, const struct pl_list *list)
{
	unsigned count = 0;

	pl_engine_lock(rig->turns->engine);
	pl_list_for_each(at, list)
		count++;
	pl_engine_unlock(rig->turns->engine);
	return count;
}

static void end_connect(struct rig *rig, unsigned i)
{
	struct pl_error error;

	pl_cancel(rig->operations[i]);
	assert_int_equal(pl_wait(rig->operations[i], PATIENCE, NULL, &error), -ECANCELED);
}

static void test_order(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_int_equal(count_peers(&rig, &rig.turns->running), TURNS);
	assert_int_equal(count_peers(&rig, &rig.turns->waiting), WAITING);
	/* A waiting peer is cancelled, then a peer with a turn: the next waiting one gets the turn. */
	end_connect(&rig, TURNS);
	assert_int_equal(count_peers(&rig, &rig.turns->waiting), WAITING - 1);
	assert_int_equal(count_peers(&rig, &rig.turns->running), TURNS);
	end_connect(&rig, 0);
	assert_int_equal(count_peers(&rig, &rig.turns->running), TURNS);
	assert_int_equal(count_peers(&rig, &rig.turns->waiting), WAITING - 2);
	/* A turn ends although the peer has not connected. */
	pl_engine_lock(rig.turns->engine);
	set_ends(&rig, 1);
	pl_engine_unlock(rig.turns->engine);
	for (uint64_t end = pl_now() + PATIENCE; count_peers(&rig, &rig.turns->running); usleep(20000))
		assert_true(pl_now() < end);
	assert_int_equal(count_peers(&rig, &rig.turns->waiting), 0);
	for (unsigned i = 1; i < TURNS + WAITING; i++)
		if (i != TURNS)
			end_connect(&rig, i);
	assert_int_equal(rig.turns->count, 0);
	close(rig.silent);
	pl_close(rig.context);
}

/* The context ends with peers that have turns, and peers that wait. */
static void test_close(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_int_equal(count_peers(&rig, &rig.turns->waiting), WAITING);
	pl_close(rig.context);
	close(rig.silent);
}

/* Addresses that refuse end their turns at once, one after the other. */
static void test_refused(void **state)
{
	struct pl_operation *operations[TURNS + WAITING];
	struct pl_error error;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	for (unsigned i = 0; i < TURNS + WAITING; i++)
		end_connect(&rig, i);
	close(rig.silent);
	/* An address that is in use, where no process listens. */
	rig.silent = socket_bind(rig.address, sizeof(rig.address));
	for (unsigned i = 0; i < TURNS + WAITING; i++)
		assert_int_equal(pl_connect_start(rig.context, rig.address, 0, i, &operations[i], NULL), 0);
	for (unsigned i = 0; i < TURNS + WAITING; i++) {
		assert_int_equal(pl_wait(operations[i], PATIENCE, NULL, &error), -ECONNREFUSED);
		assert_string_equal(error.id, "CONNECT-REFUSED");
	}
	assert_int_equal(rig.turns->count, 0);
	close(rig.silent);
	pl_close(rig.context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
