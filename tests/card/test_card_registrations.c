/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that take long, which the stand-in card holds until the test goes on: the operation, import or message
 * waits, all others go on, and each end of the operation is safe.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "card/card.h"
#include "card/settings.h"
#include "core/remote.h"
#include "support/cases.h"
#include "support/pair.h"

/* More than the registrations of the library's own buffers. */
#define LARGE (8u << 20)
#define HELD (6u << 20)
#define SMALL 4096u
#define ROUNDS 50u

/* One engine, so that all peers share it; and two with threads. */

enum kind { WRITE, READ, IMPORT, SEND };

struct wait_case {
	enum kind kind;
	bool narrow, there, threads;
};

/* Two peers; `beside` is the second one. */
struct rig {
	struct pair pair;
	struct buffer near, far; /* large ones */
	struct pl_peer *beside, *beside_far;
	struct pl_remote *beside_remote;
};

static struct pl_remote *import_small(struct rig *rig)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	check_ok(pl_region_share(rig->pair.far.region, NULL, token, &length, &error), &error);
	return import_token(&rig->pair.environment, rig->beside, token, length);
}

static void rig_open(struct rig *rig, const struct wait_case *test)
{
	narrow_grants = test->narrow;
	pair_open(&rig->pair, test->threads ? &card_threads : &card_manual, SMALL);
	connect_pair(&rig->pair.environment, rig->pair.environment.near, rig->pair.environment.listener, &rig->beside,
		     &rig->beside_far);
	rig->beside_remote = import_small(rig);
	buffer_open(&rig->near, rig->pair.environment.near, LARGE, PL_ACCESS_LOCAL);
	buffer_open(&rig->far, rig->pair.environment.far, LARGE, PL_ACCESS_ALL);
}

static void rig_close(struct rig *rig)
{
	buffer_close(&rig->near);
	buffer_close(&rig->far);
	pl_remote_release(rig->beside_remote);
	pl_peer_close(rig->beside);
	pl_peer_close(rig->beside_far);
	pair_close(&rig->pair);
}

static void await_held(struct rig *rig, unsigned count)
{
	progress_until(&rig->pair.environment, card_held() == count);
}

/* The other peer writes and imports, and the waiting one writes. */
static void others_live(struct rig *rig)
{
	struct scenario_environment *environment = &rig->pair.environment;
	const struct pl_transfer one = { rig->beside_remote, 0, rig->pair.near.region, 0, SMALL };
	const struct pl_transfer two = { rig->pair.remote, 0, rig->pair.near.region, 0, SMALL };
	struct pl_operation *operation;
	struct pl_error error;

	for (unsigned i = 0; i < ROUNDS; i++) {
		check_ok(pl_write(rig->beside, &one, NULL, &operation, &error), &error);
		complete(environment, operation, NULL);
		check_ok(pl_write(environment->near_peer, &two, NULL, &operation, &error), &error);
		complete(environment, operation, NULL);
	}
	pl_remote_release(import_small(rig));
}

/* They do so while the registration runs. */
static void others_go_on(struct rig *rig)
{
	others_live(rig);
	check_number(card_held(), 1);
}

/* -- what waits ------------------------------------------------------------------------------------ */

struct posted {
	struct pl_operation *operation, *received;
	struct pl_remote *remote;
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
};

/* Posts what needs the registration, which is held. For transfers the far end has registered its memory before. */
static void post_only(struct rig *rig, enum kind kind, uint64_t timeout, struct posted *posted)
{
	struct pl_peer *peer = rig->pair.environment.near_peer;
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	const struct pl_buffer from = { rig->near.region, 0, LARGE }, to = { rig->far.region, 0, LARGE };
	struct pl_transfer transfer = { NULL, 0, rig->near.region, 0, LARGE };
	struct pl_error error;

	attributes.timeout = timeout;
	*posted = (struct posted){ .token_length = sizeof(posted->token) };
	pattern_fill(rig->near.bytes, LARGE, 1, 0);
	pattern_fill(rig->far.bytes, LARGE, 2, 0);
	check_ok(pl_region_share(rig->far.region, NULL, posted->token, &posted->token_length, &error), &error);
	if (kind == WRITE || kind == READ)
		transfer.remote = posted->remote =
			import_token(&rig->pair.environment, peer, posted->token, posted->token_length);
	card_hold(HELD);
	switch (kind) {
	case WRITE:
		check_ok(pl_write(peer, &transfer, &attributes, &posted->operation, &error), &error);
		break;
	case READ:
		check_ok(pl_read(peer, &transfer, &attributes, &posted->operation, &error), &error);
		break;
	case IMPORT:
		check_ok(pl_import_post(peer, posted->token, posted->token_length, &attributes, &posted->operation, &error),
			 &error);
		break;
	case SEND:
		check_ok(pl_receive(rig->pair.environment.far_peer, 7, UINT64_MAX, &to, NULL, &posted->received, &error),
			 &error);
		check_ok(pl_send(peer, 7, &from, &attributes, &posted->operation, &error), &error);
		break;
	}
}

/* Posts, and waits until a thread registers. */
static void post(struct rig *rig, enum kind kind, struct posted *posted)
{
	post_only(rig, kind, 0, posted);
	await_held(rig, 1);
}

static void check_result(struct rig *rig, enum kind kind, struct posted *posted)
{
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(await(&rig->pair.environment, posted->operation, &receipt, &error), &error);
	if (kind == IMPORT)
		posted->remote = receipt.remote;
	else
		check_number(receipt.route, PL_ROUTE_DIRECT);
	if (kind == SEND)
		complete(&rig->pair.environment, posted->received, NULL);
	if (kind == WRITE || kind == SEND)
		pattern_check(rig->far.bytes, LARGE, 1, 0);
	if (kind == READ)
		pattern_check(rig->near.bytes, LARGE, 2, 0);
	pl_remote_release(posted->remote);
}

/* What needs the registration waits for it, all else goes on. */
static void waits(void *argument)
{
	const struct wait_case *test = argument;
	struct posted posted;
	struct rig rig;

	rig_open(&rig, test);
	post(&rig, test->kind, &posted);
	others_go_on(&rig);
	check_number(pl_test(posted.operation, NULL, NULL), -EINPROGRESS);
	card_hold(0);
	check_result(&rig, test->kind, &posted);
	rig_close(&rig);
}

/* -- each end while the thread registers ------------------------------------------------------------ */

static const struct wait_case plain;

/* Releases the registrations after a moment. */
static void *release_later(void *argument)
{
	(void)argument;
	usleep(50000);
	card_hold(0);
	return NULL;
}

static void release_soon(pthread_t *thread)
{
	check_number(pthread_create(thread, NULL, release_later, NULL), 0);
}

/* The receive of a send that ended. */
static void drop_receive(struct rig *rig, struct posted *posted)
{
	struct pl_error error;

	if (!posted->received)
		return;
	pl_cancel(posted->received);
	check_one_of(await(&rig->pair.environment, posted->received, NULL, &error), -ECANCELED, -ECONNRESET, -ENOTCONN);
}

/* The operation ends at once, and its region as soon as the thread does not use the memory any more. */
static void canceled(void *argument)
{
	const struct wait_case *test = argument;
	struct posted posted;
	struct pl_error error;
	pthread_t thread;
	struct rig rig;

	rig_open(&rig, test);
	post(&rig, test->kind, &posted);
	pl_cancel(posted.operation);
	check_number(await(&rig.pair.environment, posted.operation, NULL, &error), -ECANCELED);
	drop_receive(&rig, &posted);
	others_go_on(&rig);
	pl_remote_release(posted.remote);
	release_soon(&thread);
	buffer_close(test->kind == IMPORT ? &rig.far : &rig.near);
	check_number(card_held(), 0);
	pthread_join(thread, NULL);
	buffer_open(test->kind == IMPORT ? &rig.far : &rig.near,
		    test->kind == IMPORT ? rig.pair.environment.far : rig.pair.environment.near, LARGE, PL_ACCESS_ALL);
	others_live(&rig);
	rig_close(&rig);
}

/* Returns false if the operation ended before the thread registered, as on a busy machine. */
static bool times_out_within(const struct wait_case *test, uint64_t timeout)
{
	int status = -EINPROGRESS;
	struct posted posted;
	struct pl_error error;
	struct rig rig;
	bool held;

	rig_open(&rig, test);
	post_only(&rig, test->kind, timeout, &posted);
	while (!card_held() && status == -EINPROGRESS) {
		progress(&rig.pair.environment);
		status = pl_test(posted.operation, NULL, &error);
	}
	held = status == -EINPROGRESS;
	if (held)
		status = await(&rig.pair.environment, posted.operation, NULL, &error);
	check_status(status, -ETIMEDOUT, &error);
	drop_receive(&rig, &posted);
	if (held)
		others_go_on(&rig);
	card_hold(0);
	pl_remote_release(posted.remote);
	rig_close(&rig);
	return held;
}

/* An operation without the registration in time. */
static void timed_out(void *argument)
{
	uint64_t timeout = 100 * MS;

	while (!times_out_within(argument, timeout))
		timeout *= 4;
}

/* The peer is closed, at either end. */
static void closed(void *argument)
{
	const struct wait_case *test = argument;
	struct posted posted;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, test);
	post(&rig, test->kind, &posted);
	pl_peer_close(test->there ? rig.pair.environment.far_peer : rig.pair.environment.near_peer);
	check_one_of(await(&rig.pair.environment, posted.operation, NULL, &error), -ECANCELED, -ECONNRESET, -ENOTCONN);
	*(test->there ? &rig.pair.environment.far_peer : &rig.pair.environment.near_peer) = NULL;
	drop_receive(&rig, &posted);
	card_hold(0);
	pl_remote_release(posted.remote);
	progress_until(&rig.pair.environment, card_held() == 0);
	rig_close(&rig);
}

/* The context is closed while its thread registers: pl_close() waits for the thread, as regions are left. */
static void context_closed(void *argument)
{
	const struct wait_case *test = argument;
	struct scenario_environment *environment;
	struct posted posted;
	pthread_t thread;
	struct rig rig;

	rig_open(&rig, test);
	environment = &rig.pair.environment;
	post(&rig, test->kind, &posted);
	release_soon(&thread);
	pl_close(environment->near);
	drive_no_more(environment, environment->near);
	pl_close(environment->far);
	check_number(card_held(), 0);
	pthread_join(thread, NULL);
	buffer_close_bare(&rig.near);
	buffer_close_bare(&rig.far);
	buffer_close_bare(&rig.pair.near);
	buffer_close_bare(&rig.pair.far);
}

/* No registration of a revoked grant is left when the call returns, and the import is refused. */
static void revoked(void *argument)
{
	const struct wait_case *test = argument;
	struct pl_error error;
	struct posted posted;
	pthread_t thread;
	struct rig rig;
	unsigned mrs;

	rig_open(&rig, test);
	mrs = card_counts_now().mrs;
	post(&rig, IMPORT, &posted);
	release_soon(&thread);
	check_number(pl_region_revoke(rig.far.region, posted.token, posted.token_length), 0);
	/* With windows the thread registers the region for this end's own use, which stays. */
	if (!test->narrow) {
		check_number(card_held(), 0);
		check_number(card_counts_now().mrs, mrs);
	}
	check_number(await(&rig.pair.environment, posted.operation, NULL, &error), -EACCES);
	pthread_join(thread, NULL);
	rig_close(&rig);
}

/*
 * The device is removed while its thread registers, and returns. A transfer goes on over the new one. An import or a
 * message may be refused, as without a registration, and succeeds later.
 */
static void removed(void *argument)
{
	const struct wait_case *test = argument;
	struct pl_completion receipt;
	struct pl_error error;
	struct posted posted;
	struct rig rig;
	int status;

	rig_open(&rig, test);
	post(&rig, test->kind, &posted);
	card_remove();
	settle(&rig.pair.environment, 50);
	card_hold(0);
	if (test->kind == WRITE || test->kind == READ) {
		check_result(&rig, test->kind, &posted);
	} else {
		status = await(&rig.pair.environment, posted.operation, &receipt, &error);
		/* A receiver takes a refused read for a message that was withdrawn. */
		check_one_of(status, 0, -ENODEV, -EOPNOTSUPP, test->kind == SEND ? -ECANCELED : 0);
		if (status == 0 && test->kind == IMPORT)
			pl_remote_release(receipt.remote);
		if (status == 0 && posted.received)
			complete(&rig.pair.environment, posted.received, NULL);
		else
			drop_receive(&rig, &posted);
	}
	others_live(&rig);
	rig_close(&rig);
}

/* Messages behind a large one keep their order, also if the large one is cancelled. */
static void messages_in_order(void *argument)
{
	const bool cancel = *(const bool *)argument;
	struct pl_operation *after[2], *received[2];
	struct scenario_environment *environment;
	struct pl_error error;
	struct posted posted;
	struct rig rig;

	rig_open(&rig, &plain);
	environment = &rig.pair.environment;
	post(&rig, SEND, &posted);
	for (unsigned i = 0; i < 2; i++) {
		const struct pl_buffer to = { rig.pair.far.region, i, 1 }, from = { rig.pair.near.region, 0, 1 };

		check_ok(pl_receive(environment->far_peer, 8 + i, UINT64_MAX, &to, NULL, &received[i], &error), &error);
		check_ok(pl_send(environment->near_peer, 8 + i, &from, NULL, &after[i], &error), &error);
		settle(environment, 5);
		check_number(pl_test(received[i], NULL, NULL), -EINPROGRESS);
		check_number(pl_test(after[i], NULL, NULL), -EINPROGRESS);
	}
	if (cancel) {
		pl_cancel(posted.operation);
		check_number(await(environment, posted.operation, NULL, &error), -ECANCELED);
		drop_receive(&rig, &posted);
		check_number(card_held(), 1);
	} else {
		card_hold(0);
		check_result(&rig, SEND, &posted);
	}
	for (unsigned i = 0; i < 2; i++) {
		complete(environment, received[i], NULL);
		complete(environment, after[i], NULL);
	}
	card_hold(0);
	rig_close(&rig);
}

/* pl_region_prepare() registers, and returns when the memory is registered. */
static void prepared(void *argument)
{
	struct scenario_environment *environment;
	struct pl_error error;
	pthread_t thread;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &plain);
	environment = &rig.pair.environment;
	card_hold(HELD);
	release_soon(&thread);
	check_ok(pl_region_prepare(environment->near_peer, rig.near.region, &error), &error);
	check_number(card_held(), 0);
	pthread_join(thread, NULL);
	rig_close(&rig);
}

/* More memory than the process may lock: the thread's failure stages the operation. */
static void locked(void *argument)
{
	struct scenario_environment *environment;
	struct pl_transfer transfer = { .length = LARGE };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;
	char limit[32];
	struct rig rig;

	(void)argument;
	rig_open(&rig, &plain);
	environment = &rig.pair.environment;
	transfer.remote = share(environment, rig.far.region, environment->near_peer, NULL);
	transfer.region = rig.near.region;
	/* Both ends have as much for themselves; the buffers for staging fit, the region does not. */
	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)((card_counts_now().locked - LARGE) / 2 + HELD));
	setenv("STANDIN_LOCKED", limit, 1);
	pattern_fill(rig.near.bytes, LARGE, 3, 0);
	for (unsigned i = 0; i < 2; i++) {
		check_ok(pl_write(environment->near_peer, &transfer, NULL, &operation, &error), &error);
		complete(environment, operation, &receipt);
		check_number(receipt.route, PL_ROUTE_STAGED);
		check(strstr(receipt.reason, "ulimit -l"));
	}
	pattern_check(rig.far.bytes, LARGE, 3, 0);
	pl_remote_release(transfer.remote);
	rig_close(&rig);
}

/* Memory that no device can register: each import is refused once the threads have tried. A later one tries again. */
static void unreachable(void *argument)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_completion receipt;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_operation *operation;
	struct pl_error error;
	char limit[32];
	struct rig rig;

	rig_open(&rig, argument);
	check_ok(pl_region_share(rig.far.region, NULL, token, &length, &error), &error);
	attributes.timeout = 10000 * MS;
	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)((card_counts_now().locked - LARGE) / 2 + HELD));
	setenv("STANDIN_LOCKED", limit, 1);
	for (unsigned i = 0; i < 3; i++) {
		int status;

		if (i == 2) {
			/* The failure for this end's own use is known for a second. */
			settle(&rig.pair.environment, 1100);
			unsetenv("STANDIN_LOCKED");
		}
		check_ok(pl_import_post(rig.pair.environment.near_peer, token, length, &attributes, &operation, &error),
			 &error);
		status = await(&rig.pair.environment, operation, &receipt, &error);
		check_number(status, i == 2 ? 0 : -EBUSY);
	}
	pl_remote_release(receipt.remote);
	others_live(&rig);
	rig_close(&rig);
}

/* One case for each kind of request that waits. */
#define EACH(function, name, field) \
	{ name " write", function, &(const struct wait_case){ .kind = WRITE field }, 30 }, \
	{ name " read", function, &(const struct wait_case){ .kind = READ field }, 30 }, \
	{ name " import", function, &(const struct wait_case){ .kind = IMPORT field }, 30 }, \
	{ name " import of a window", function, &(const struct wait_case){ .kind = IMPORT, .narrow = true field }, 30 }, \
	{ name " send", function, &(const struct wait_case){ .kind = SEND field }, 30 }
#define NONE
#define THERE , .there = true
#define THREADS , .threads = true

static const bool yes = true, no = false;

static const struct test_case cases[] = {
	EACH(waits, "waiting", NONE),
	EACH(canceled, "canceled", NONE),
	EACH(timed_out, "timed out", NONE),
	EACH(closed, "closed here", NONE),
	EACH(closed, "closed there", THERE),
	EACH(context_closed, "context closed", NONE),
	EACH(removed, "device removed", NONE),
	EACH(waits, "waiting for threads", THREADS),
	EACH(canceled, "canceled with threads", THREADS),
	EACH(closed, "closed with threads", THREADS),
	{ "revoked", revoked, &(const struct wait_case){ .kind = IMPORT }, 30 },
	{ "window revoked", revoked, &(const struct wait_case){ .kind = IMPORT, .narrow = true }, 30 },
	{ "messages in order", messages_in_order, &no, 30 },
	{ "messages behind a canceled one", messages_in_order, &yes, 30 },
	{ "prepared", prepared, NULL, 30 },
	{ "locked memory", locked, NULL, 30 },
	{ "unreachable", unreachable, &(const struct wait_case){ .kind = IMPORT }, 30 },
	{ "unreachable by a window", unreachable, &(const struct wait_case){ .kind = IMPORT, .narrow = true }, 30 },
};

int main(void)
{
	return cases_run("card registrations", cases, sizeof(cases) / sizeof(cases[0]));
}
