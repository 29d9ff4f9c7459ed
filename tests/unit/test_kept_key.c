/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Key of a lane's last frame: frames with it take no lock, each is checked, and no byte moves after a revocation or deregistration
 * has returned.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/fabric.h"
#include "core/kept_key.h"
#include "support/cases.h"
#include "support/pair.h"

#define LENGTH 4096u
#define BLOCK ((size_t)64 << 10)
#define TIMEOUT (120 * PL_NS_PER_S)

static const struct setting manual = {
	.name = "kept-key", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

static void write_and_read(struct pair *pair)
{
	const struct pl_transfer transfer = { pair->remote, 0, pair->near.region, 0, LENGTH };
	struct pl_peer *peer = pair->environment.near_peer;
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_write(peer, &transfer, NULL, &operation, &error), &error);
	complete(&pair->environment, operation, NULL);
	check_ok(pl_read(peer, &transfer, NULL, &operation, &error), &error);
	complete(&pair->environment, operation, NULL);
}

/* A thread holds the owner's lock of grants, and drives the owner: a frame that took the lock would never end. */
static void takes_no_lock(void *unused)
{
	struct pair pair;

	(void)unused;
	pair_open(&pair, &manual, LENGTH);
	write_and_read(&pair);
	pthread_mutex_lock(&pair.environment.far->grant_lock);
	write_and_read(&pair);
	pthread_mutex_unlock(&pair.environment.far->grant_lock);
	pair_close(&pair);
}

/* -- uses of keys by the owner, in place of a lane ----------------------------------------------------- */

struct rig {
	struct pair pair;
	struct pl_peer *peer; /* of the owner */
	struct pl_key *kept;
};

/* The owner is locked until rig_close(). */
static void rig_open(struct rig *rig, size_t length)
{
	pair_open(&rig->pair, &manual, length);
	rig->peer = rig->pair.environment.far_peer;
	rig->kept = NULL;
	pl_engine_lock(rig->peer->home);
}

static void rig_close(struct rig *rig)
{
	pl_key_release(rig->kept);
	pl_engine_unlock(rig->peer->home);
	pair_close(&rig->pair);
}

/* Checks the status of a use, and which key is kept behind it. */
static void use(struct rig *rig, uint64_t id, uint64_t offset, unsigned right, enum pl_wire_status wanted,
		uint64_t kept)
{
	enum pl_wire_status status;
	struct pl_key *key = pl_key_acquire_kept(&rig->kept, rig->peer, id, offset, 8, right, &status);

	check_number(status, wanted);
	check(!key == (wanted != PL_WIRE_OK));
	check(!key || key->id == id);
	check(rig->kept && rig->kept->id == kept);
	/* The table, the kept key, and this use. */
	if (key && key == rig->kept)
		check_number(atomic_load(&key->references), 3);
	pl_key_release(key);
}

static void checked(void *unused)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct pl_remote *readable;
	uint64_t whole, other;
	struct rig rig;

	(void)unused;
	rig_open(&rig, LENGTH);
	pl_engine_unlock(rig.peer->home);
	options.rights = PL_ACCESS_READ;
	readable = share(&rig.pair.environment, rig.pair.far.region, rig.pair.environment.near_peer, &options);
	pl_engine_lock(rig.peer->home);
	whole = pl_remote_key_id(rig.pair.remote);
	other = pl_remote_key_id(readable);
	for (unsigned round = 0; round < 2; round++) {
		use(&rig, whole, 0, PL_ACCESS_WRITE, PL_WIRE_OK, whole);
		use(&rig, whole, LENGTH - 8, PL_ACCESS_ATOMIC, PL_WIRE_OK, whole);
		use(&rig, whole, LENGTH - 7, PL_ACCESS_WRITE, PL_WIRE_RANGE, whole);
		use(&rig, whole ^ 1ull << 32, 0, PL_ACCESS_READ, PL_WIRE_UNKNOWN_KEY, whole);
		use(&rig, other, 0, PL_ACCESS_READ, PL_WIRE_OK, other);
		use(&rig, other, 0, PL_ACCESS_WRITE, PL_WIRE_RIGHTS, other);
		use(&rig, other, LENGTH, PL_ACCESS_READ, PL_WIRE_RANGE, other);
	}
	rig.kept->expires = 1;
	use(&rig, other, 0, PL_ACCESS_READ, PL_WIRE_EXPIRED, other);
	rig.kept->expires = 0;
	use(&rig, other, 0, PL_ACCESS_READ, PL_WIRE_OK, other);
	pl_remote_release(readable);
	rig_close(&rig);
}

/* A revoked key, and one that the peer has released, serve no frame. */
static void ended(void *released)
{
	struct rig rig;
	uint64_t id;

	rig_open(&rig, LENGTH);
	id = pl_remote_key_id(rig.pair.remote);
	use(&rig, id, 0, PL_ACCESS_WRITE, PL_WIRE_OK, id);
	if (released) {
		pl_key_destroy(rig.peer, id);
	} else {
		pl_engine_unlock(rig.peer->home);
		check_number(pl_region_revoke(rig.pair.far.region, NULL, 0), 0);
		pl_engine_lock(rig.peer->home);
	}
	use(&rig, id, 0, PL_ACCESS_WRITE, PL_WIRE_UNKNOWN_KEY, id);
	rig_close(&rig);
}

/* A kept key of a large message would keep its send from ending. */
static void of_message(void *unused)
{
	struct pl_operation *send;
	enum pl_wire_status status;
	struct pl_error error;
	struct rig rig;
	uint64_t id;

	(void)unused;
	rig_open(&rig, BLOCK);
	id = pl_remote_key_id(rig.pair.remote);
	use(&rig, id, 0, PL_ACCESS_WRITE, PL_WIRE_OK, id);
	check_ok(pl_send(rig.peer, 1, &(struct pl_buffer){ rig.pair.far.region, 0, BLOCK }, NULL, &send, &error),
		 &error);
	/* The post of the send waits for the owner's lock. */
	pl_engine_unlock(rig.peer->home);
	pl_engine_lock(rig.peer->home);
	pl_key_release(pl_key_acquire_kept(&rig.kept, rig.peer, send->source_key, 0, 8, PL_ACCESS_READ, &status));
	check_number(status, PL_WIRE_OK);
	check(rig.kept && rig.kept->id == id);
	pl_engine_unlock(rig.peer->home);
	pl_cancel(send);
	fail_with(&rig.pair.environment, send, -ECANCELED);
	pl_engine_lock(rig.peer->home);
	rig_close(&rig);
}

/* -- traffic of both ends ------------------------------------------------------------------------------- */

#define LANES 4u
#define BLOCKS 8u
#define AREA (BLOCK * BLOCKS)
#define ROUNDS 12u
/* Byte that the owner stores once the peer has no access any more. */
#define OWN 0xa5

/* Owner of memory that it takes back again and again, while the other end writes and reads it. */
struct side {
	struct pl_context *owner;
	struct pl_peer *peer; /* of the other end */
	struct pl_region *local, *steady;
	struct pl_remote *steady_remote; /* of memory that stays: frames of both keys follow each other */
	pthread_t thread;
};

/* Writes or reads a block. Its local bytes are those at `local`, which no other operation uses at this time. */
static void post_block(const struct side *side, struct pl_remote *remote, unsigned block, size_t local,
		       struct pl_operation **operation)
{
	const struct pl_transfer transfer = { remote, block * BLOCK, side->local, local, BLOCK };
	struct pl_error error;

	if (block % 2)
		check_ok(pl_read(side->peer, &transfer, NULL, operation, &error), &error);
	else
		check_ok(pl_write(side->peer, &transfer, NULL, operation, &error), &error);
}

static void end_all(struct pl_operation **operations, unsigned count, bool may_fail)
{
	struct pl_error error;

	for (unsigned i = 0; i < count; i++) {
		int status = pl_wait(operations[i], TIMEOUT, NULL, &error);

		if (!may_fail || status != -EACCES)
			check_ok(status, &error);
	}
}

static void take_back_once(const struct side *side, unsigned round)
{
	struct pl_operation *operations[BLOCKS], *steady[BLOCKS];
	uint8_t token[PL_TOKEN_MAX], *memory = malloc(AREA);
	size_t length = sizeof(token);
	struct pl_remote *remote;
	struct pl_region *region;
	struct pl_error error;

	check(memory);
	memset(memory, 1, AREA);
	check_ok(pl_region_register(side->owner, memory, AREA, PL_ACCESS_ALL, &region, &error), &error);
	check_ok(pl_region_share(region, NULL, token, &length, &error), &error);
	check_ok(pl_remote_import(side->peer, token, length, TIMEOUT, &remote, &error), &error);
	for (unsigned i = 0; i < BLOCKS; i++) {
		post_block(side, remote, i, i * BLOCK, &operations[i]);
		post_block(side, side->steady_remote, i, AREA + i * BLOCK, &steady[i]);
	}
	/* Waits for some operations, or for none, by the round. */
	end_all(operations, round % BLOCKS, false);
	if (round % 3 == 0)
		check_number(pl_region_revoke(region, token, length), 0);
	else if (round % 3 == 1)
		check_number(pl_region_revoke(region, NULL, 0), 0);
	if (round % 3 == 2) {
		check_number(pl_region_deregister(region), 0);
		region = NULL;
	}
	memset(memory, OWN, AREA);
	end_all(&operations[round % BLOCKS], BLOCKS - round % BLOCKS, true);
	end_all(steady, BLOCKS, false);
	check(memory[0] == OWN && !memcmp(memory, memory + 1, AREA - 1));
	check_number(pl_region_deregister(region), 0);
	free(memory);
	pl_remote_release(remote);
}

static void *take_back_often(void *argument)
{
	for (unsigned round = 0; round < ROUNDS; round++)
		take_back_once(argument, round);
	return NULL;
}

static void taken_back(void *unused)
{
	static const struct setting threads = {
		.name = "kept-key", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = LANES
	};
	struct scenario_environment *environment;
	struct pl_error error;
	struct side sides[2];
	struct pair pair;

	(void)unused;
	pair_open(&pair, &threads, 2 * AREA);
	environment = &pair.environment;
	check_ok(pl_region_prepare(environment->near_peer, pair.near.region, &error), &error);
	sides[0] = (struct side){ .owner = environment->far,
				  .peer = environment->near_peer,
				  .local = pair.near.region,
				  .steady = pair.far.region,
				  .steady_remote = pair.remote };
	sides[1] = (struct side){ .owner = environment->near, .peer = environment->far_peer };
	check_ok(pl_region_allocate(environment->far, 2 * AREA, PL_ACCESS_LOCAL, &sides[1].local, &error), &error);
	check_ok(pl_region_allocate(environment->near, AREA, PL_ACCESS_ALL, &sides[1].steady, &error), &error);
	sides[1].steady_remote = share(environment, sides[1].steady, environment->far_peer, NULL);
	for (unsigned i = 0; i < 2; i++)
		check(!pthread_create(&sides[i].thread, NULL, take_back_often, &sides[i]));
	for (unsigned i = 0; i < 2; i++)
		check(!pthread_join(sides[i].thread, NULL));
	pl_remote_release(sides[1].steady_remote);
	check_number(pl_region_deregister(sides[1].steady), 0);
	check_number(pl_region_deregister(sides[1].local), 0);
	pair_close(&pair);
}

int main(void)
{
	static const bool yes = true;
	static const struct test_case cases[] = {
		{ "takes-no-lock", takes_no_lock, NULL, 60 },
		{ "checked", checked, NULL, 60 },
		{ "revoked", ended, NULL, 60 },
		{ "released", ended, &yes, 60 },
		{ "of-message", of_message, NULL, 60 },
		{ "taken-back", taken_back, NULL, 240 },
	};

	return cases_run("kept-key", cases, PL_ARRAY_SIZE(cases));
}
