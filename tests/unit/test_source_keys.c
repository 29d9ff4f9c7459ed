/* SPDX-License-Identifier: BSD-2-Clause */
/* Keys of large sends over tcp: which ids the peer can use, when their memory serves other keys, and when their sends end. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/fabric.h"
#include "support/cases.h"
#include "support/pair.h"

#define LENGTH ((size_t)64 << 10)
/* Keys of the table's first block. */
#define FIRST 8u

static const struct setting setting = {
	.name = "source-keys", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* The test drives both ends. */
struct rig {
	struct pair pair;
	struct pl_peer *peer; /* of the sender */
};

static void rig_open(struct rig *rig)
{
	pair_open(&rig->pair, &setting, LENGTH);
	rig->peer = rig->pair.environment.near_peer;
}

/* Begins a large send, whose key is there when this returns. */
static struct pl_operation *send_large(struct rig *rig)
{
	struct pl_operation *send;
	struct pl_error error;

	check_ok(pl_send(rig->peer, 1, &(struct pl_buffer){ rig->pair.near.region, 0, LENGTH }, NULL, &send, &error),
		 &error);
	check(pl_key_is_source(send->source_key));
	return send;
}

static void cancel_send(struct rig *rig, struct pl_operation *send)
{
	pl_cancel(send);
	fail_with(&rig->pair.environment, send, -ECANCELED);
}

/* Returns an operation for keys of its own: a send of the whole segment, which is not posted. */
static struct pl_operation *unposted_send(struct rig *rig, struct pl_segment *segment)
{
	struct pl_operation *operation = calloc(1, sizeof(*operation));

	check(operation);
	*segment = (struct pl_segment){ .region = rig->pair.near.region, .length = LENGTH };
	operation->segments = segment;
	atomic_init(&operation->pending, 1);
	return operation;
}

/* Checks the status of a use of the first byte. Returns the key, or NULL. */
static struct pl_key *use_key(struct rig *rig, uint64_t id, enum pl_wire_status wanted)
{
	enum pl_wire_status status;
	struct pl_key *key = pl_key_acquire(rig->peer, id, 0, 1, PL_ACCESS_READ, &status);

	check_number(status, wanted);
	check(!key == (wanted != PL_WIRE_OK));
	return key;
}

static void check_unknown(struct rig *rig, uint64_t id)
{
	use_key(rig, id, PL_WIRE_UNKNOWN_KEY);
}

/* Ids that no send has are unknown, whichever index they have, and so are those of other random bits. */
static void guessed(void *unused)
{
	static const uint32_t indexes[] = { 0, 1, FIRST - 1, FIRST, 3 * FIRST, 65527, 65528, 65535, INT32_MAX };
	struct pl_operation *send = NULL;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < PL_ARRAY_SIZE(indexes); i++)
			check_unknown(&rig, PL_SOURCE_KEY | indexes[i]);
		if (!send)
			send = send_large(&rig);
	}
	check_unknown(&rig, send->source_key ^ 1ull << 32);
	check_unknown(&rig, send->source_key ^ 1ull << 63);
	pl_key_release(use_key(&rig, send->source_key, PL_WIRE_OK));
	cancel_send(&rig, send);
	pair_close(&rig.pair);
}

/* The peer may read the bytes of the send, and nothing else. */
static void limited(void *unused)
{
	enum pl_wire_status status;
	struct pl_operation *send;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	send = send_large(&rig);
	check(!pl_key_acquire(rig.peer, send->source_key, 0, 1, PL_ACCESS_WRITE | PL_ACCESS_ATOMIC, &status));
	check_number(status, PL_WIRE_RIGHTS);
	check(!pl_key_acquire(rig.peer, send->source_key, 1, LENGTH, PL_ACCESS_READ, &status));
	check_number(status, PL_WIRE_RANGE);
	pl_key_release(pl_key_acquire(rig.peer, send->source_key, 0, LENGTH, PL_ACCESS_READ, &status));
	check_number(status, PL_WIRE_OK);
	cancel_send(&rig, send);
	pair_close(&rig.pair);
}

/* The memory of an ended key is another key's, with another id; that of keys in use is not. */
static void reused(void *unused)
{
	struct pl_operation *sends[FIRST], *again;
	struct rig rig;
	uint64_t ended;

	(void)unused;
	rig_open(&rig);
	for (unsigned i = 0; i < FIRST; i++) {
		sends[i] = send_large(&rig);
		check_number((uint32_t)sends[i]->source_key, (uint32_t)PL_SOURCE_KEY | i);
	}
	ended = sends[3]->source_key;
	cancel_send(&rig, sends[3]);
	check_unknown(&rig, ended);
	again = sends[3] = send_large(&rig);
	check_number((uint32_t)again->source_key, (uint32_t)ended);
	check(again->source_key != ended);
	check_unknown(&rig, ended);
	for (unsigned i = 0; i < FIRST; i++)
		pl_key_release(use_key(&rig, sends[i]->source_key, PL_WIRE_OK));
	again = send_large(&rig);
	check_number((uint32_t)again->source_key, (uint32_t)PL_SOURCE_KEY | FIRST);
	cancel_send(&rig, again);
	for (unsigned i = 0; i < FIRST; i++)
		cancel_send(&rig, sends[i]);
	pair_close(&rig.pair);
}

/* While a lane uses a key, its send does not end, and no other key gets its memory. */
static void held(void *unused)
{
	struct pl_operation *send, *others[FIRST];
	struct pl_key *key;
	struct rig rig;
	uint64_t id;

	(void)unused;
	rig_open(&rig);
	send = send_large(&rig);
	id = send->source_key;
	key = use_key(&rig, id, PL_WIRE_OK);
	pl_cancel(send);
	check(atomic_load(&key->revoked));
	check_unknown(&rig, id);
	for (unsigned i = 0; i < FIRST; i++) {
		others[i] = send_large(&rig);
		check((uint32_t)others[i]->source_key != (uint32_t)id);
	}
	check_number(atomic_load(&send->pending), 1);
	check(key->operation == send);
	pl_key_release(key);
	fail_with(&rig.pair.environment, send, -ECANCELED);
	for (unsigned i = 0; i < FIRST; i++)
		cancel_send(&rig, others[i]);
	pair_close(&rig.pair);
}

/* Ends a key as a RELEASE of the peer does. */
static void release_key(struct rig *rig, uint64_t id)
{
	pl_engine_lock(rig->peer->home);
	pl_key_destroy(rig->peer, id);
	pl_engine_unlock(rig->peer->home);
}

/* A peer may release the key of a send: it cannot read the bytes then. Further releases change no other key. */
static void released(void *unused)
{
	struct pl_operation *send, *other, *receive;
	struct pl_error error;
	struct rig rig;
	uint64_t id;

	(void)unused;
	rig_open(&rig);
	release_key(&rig, PL_SOURCE_KEY);
	send = send_large(&rig);
	id = send->source_key;
	release_key(&rig, PL_SOURCE_KEY | 65528);
	release_key(&rig, PL_SOURCE_KEY | FIRST);
	pl_key_release(use_key(&rig, id, PL_WIRE_OK));
	release_key(&rig, id);
	check_unknown(&rig, id);
	release_key(&rig, id);
	other = send_large(&rig);
	check_number((uint32_t)other->source_key, (uint32_t)id);
	release_key(&rig, id);
	pl_key_release(use_key(&rig, other->source_key, PL_WIRE_OK));
	check_ok(pl_receive(rig.pair.environment.far_peer, 1, UINT64_MAX,
			    &(struct pl_buffer){ rig.pair.far.region, 0, LENGTH }, NULL, &receive, &error),
		 &error);
	fail_with(&rig.pair.environment, receive, -ECANCELED);
	fail_with(&rig.pair.environment, send, -ECANCELED);
	pl_key_release(use_key(&rig, other->source_key, PL_WIRE_OK));
	cancel_send(&rig, other);
	pair_close(&rig.pair);
}

/* Memory that is kept when it is released, and is filled then. */
#define FILLER 0xa5
#define KEPT_MOST 8u
/* Blocks of keys that the test uses: of FIRST, and of twice as many. They are released before the table. */
#define BLOCKS 2u

struct kept {
	void *released[KEPT_MOST];
	unsigned count;
};

static void keep_released(void *pointer, void *user)
{
	struct kept *kept = user;

	if (!pointer)
		return;
	check(kept->count < KEPT_MOST);
	if (kept->count < BLOCKS)
		memset(pointer, FILLER, FIRST * sizeof(struct pl_key));
	kept->released[kept->count++] = pointer;
}

/* Keys that are in use at the end of their peer, in several blocks, end before any memory of keys is freed. */
static void freed_in_use(void *unused)
{
	struct pl_operation *operation;
	struct kept kept = { .count = 0 };
	struct pl_allocator before;
	struct pl_segment segment;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	operation = unposted_send(&rig, &segment);
	pl_engine_lock(rig.peer->home);
	for (unsigned i = 0; i <= FIRST; i++)
		check(pl_source_key_add(rig.peer, operation));
	before = rig.peer->context->allocator;
	rig.peer->context->allocator.release = keep_released;
	rig.peer->context->allocator.user = &kept;
	pl_source_keys_free(rig.peer);
	rig.peer->context->allocator = before;
	pl_engine_unlock(rig.peer->home);
	check_number(atomic_load(&operation->pending), 1);
	check_number(kept.count, BLOCKS + 1);
	for (unsigned i = 0; i < kept.count; i++) {
		const uint8_t *bytes = kept.released[i];

		for (size_t at = 0; i < BLOCKS && at < FIRST * sizeof(struct pl_key); at++)
			check_number(bytes[at], FILLER);
		free(kept.released[i]);
	}
	free(operation);
	pair_close(&rig.pair);
}

/* -- all keys of a peer ------------------------------------------------------------------------- */

/* Most keys of large sends. */
#define ALL 65528u
/* Keys that lanes use when they end. */
#define HELD 1024u

struct all_keys {
	struct rig rig;
	struct pl_operation *operation;
	struct pl_segment segment;
	struct pl_key *keys[ALL];
};

/* Makes all keys, of one operation that nothing sends. */
static struct all_keys *all_keys_make(void)
{
	struct all_keys *all = calloc(1, sizeof(*all));

	check(all);
	rig_open(&all->rig);
	all->operation = calloc(1, sizeof(*all->operation));
	check(all->operation);
	all->segment = (struct pl_segment){ .region = all->rig.pair.near.region, .length = LENGTH };
	all->operation->segments = &all->segment;
	atomic_init(&all->operation->pending, 1);
	pl_engine_lock(all->rig.peer->home);
	for (unsigned i = 0; i < ALL; i++) {
		all->keys[i] = pl_source_key_add(all->rig.peer, all->operation);
		check(all->keys[i]);
	}
	pl_engine_unlock(all->rig.peer->home);
	return all;
}

/* Adds a key, which has the memory of an unused one; NULL: checks that none is unused. */
static void add_key_of(struct all_keys *all, const struct pl_key *unused)
{
	pl_engine_lock(all->rig.peer->home);
	check(pl_source_key_add(all->rig.peer, all->operation) == unused);
	pl_engine_unlock(all->rig.peer->home);
}

/* The one unused key is found among many that have ended and that lanes use, each of which is found as soon as its use ends. */
static void all_in_use(void *unused)
{
	struct all_keys *all = all_keys_make();
	struct pl_peer *peer = all->rig.peer;

	(void)unused;
	add_key_of(all, NULL);
	for (unsigned i = 0; i <= HELD; i++) {
		if (i != HELD / 2)
			check(pl_source_key_hold(peer, all->keys[i]->id) == all->keys[i]);
		release_key(&all->rig, all->keys[i]->id);
	}
	add_key_of(all, all->keys[HELD / 2]);
	add_key_of(all, NULL);
	for (unsigned i = 0; i <= HELD; i++) {
		if (i == HELD / 2)
			continue;
		pl_key_release(all->keys[i]);
		add_key_of(all, all->keys[i]);
	}
	add_key_of(all, NULL);
	pl_engine_lock(peer->home);
	pl_source_keys_free(peer);
	pl_engine_unlock(peer->home);
	check_number(atomic_load(&all->operation->pending), 1);
	free(all->operation);
	pair_close(&all->rig.pair);
	free(all);
}

/* -- lanes that use keys ------------------------------------------------------------------------ */

#define LANES 2u
#define ROUNDS 2000u

struct lane_of_test {
	struct rig *rig;
	_Atomic(uint64_t) id; /* of the key to use; 0: none. 1: the last one has been used */
	pthread_t thread;
};

/* Uses the keys of one slot. A key may end before and during its use. */
static void *use_keys(void *argument)
{
	struct lane_of_test *lane = argument;
	uint64_t id;

	while ((id = atomic_load(&lane->id)) != 1) {
		if (id)
			pl_key_release(pl_source_key_hold(lane->rig->peer, id));
		sched_yield();
	}
	return NULL;
}

/* Each key is unused once, whichever thread ends its last use: none is lost, and none is given to two sends. */
static void ended_by_lanes(void *unused)
{
	struct pl_operation *operation;
	struct lane_of_test lanes[LANES];
	struct pl_segment segment;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	operation = unposted_send(&rig, &segment);
	for (unsigned i = 0; i < LANES; i++) {
		lanes[i] = (struct lane_of_test){ .rig = &rig };
		check(!pthread_create(&lanes[i].thread, NULL, use_keys, &lanes[i]));
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct pl_key *key;

		pl_engine_lock(rig.peer->home);
		key = pl_source_key_add(rig.peer, operation);
		check(key);
		/* A key at most for each lane is in use, and one that was added. */
		check((uint32_t)key->id < (PL_SOURCE_KEY | FIRST));
		atomic_store(&lanes[round % LANES].id, key->id);
		pl_engine_unlock(rig.peer->home);
		sched_yield();
		release_key(&rig, key->id);
	}
	for (unsigned i = 0; i < LANES; i++) {
		atomic_store(&lanes[i].id, 1);
		check(!pthread_join(lanes[i].thread, NULL));
	}
	check_number(atomic_load(&operation->pending), 1);
	pl_engine_lock(rig.peer->home);
	for (unsigned i = 0, used = 0; i < FIRST; i++) {
		struct pl_key *key = pl_source_key_add(rig.peer, operation);
		unsigned bit;

		check(key);
		bit = 1u << ((uint32_t)key->id & ~(uint32_t)PL_SOURCE_KEY);
		check(bit < 1u << FIRST && !(used & bit));
		used |= bit;
	}
	pl_source_keys_free(rig.peer);
	pl_engine_unlock(rig.peer->home);
	check_number(atomic_load(&operation->pending), 1);
	free(operation);
	pair_close(&rig.pair);
}

static const struct test_case cases[] = {
	{ "guessed", guessed, NULL, 60 },       { "limited", limited, NULL, 60 },
	{ "reused", reused, NULL, 60 },         { "held", held, NULL, 60 },
	{ "released", released, NULL, 60 },     { "freed-in-use", freed_in_use, NULL, 60 },
	{ "all-in-use", all_in_use, NULL, 60 }, { "ended-by-lanes", ended_by_lanes, NULL, 60 },
};

int main(void)
{
	return cases_run("source-keys", cases, PL_ARRAY_SIZE(cases));
}
