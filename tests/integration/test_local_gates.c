/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gates of the local fabric. The owner waits at most 1 s for the holders of a gate, by slot or by counter. Held gates
 * of ended threads and of hostile peers harm no other key.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "fabric/local/local.h"
#include "scenarios/scenario.h"
#include "support/cases.h"
#include "support/local.h"

#define SIZE (64u << 10)
/* Longest duration of a revocation: 1 s of waiting for holders, and the delay of a busy machine. */

/* -- in the middle of a copy ----------------------------------------------------------------------- */

/* Checks that memory with a held gate stays mapped after the owner's wait, until the remote region is released. */
static void revoked_while_copying(void *argument)
{
	struct scenario_environment environment;
	uint8_t token[3][PL_TOKEN_MAX];
	size_t length[3] = { PL_TOKEN_MAX, PL_TOKEN_MAX, PL_TOKEN_MAX };
	const struct local_access *accesses[3];
	struct pl_region *allocated;
	struct pl_remote *remotes[3];
	_Atomic uint32_t *slot;
	struct pl_error error;
	void *mappings[3];
	char text[8];

	environment_open(&environment, argument);
	check_ok(pl_region_allocate(environment.far, SIZE, PL_ACCESS_ALL, &allocated, &error), &error);
	for (unsigned i = 0; i < 3; i++) {
		check_ok(pl_region_share(allocated, NULL, token[i], &length[i], &error), &error);
		remotes[i] = import_token(&environment, environment.near_peer, token[i], length[i]);
		accesses[i] = remotes[i]->fabric_data;
		mappings[i] = accesses[i]->mapping;
	}
	slot = local_gate_enter(accesses[0]->gate, accesses[0]->number);
	check(slot && slot != &accesses[0]->gate->holders);
	check(local_gate_hold(accesses[1]->gate, accesses[1]->number));
	for (unsigned i = 0; i < 3; i++)
		check_number(pl_region_revoke(allocated, token[i], length[i]), 0);
	/* The owner reports revocations in their order, so the last mapping disappears last. */
	progress_until(&environment, !mapping_shared(mappings[2]));
	for (unsigned i = 0; i < 2; i++) {
		mapping_permissions(mappings[i], text);
		check_text(text, "rw-s");
	}
	local_gate_leave(accesses[0]->gate, slot);
	local_gate_release(accesses[1]->gate);
	for (unsigned i = 0; i < 3; i++) {
		pl_remote_release(remotes[i]);
		progress_until(&environment, (mapping_permissions(mappings[i], text), !*text));
	}
	check_number(pl_region_deregister(allocated), 0);
	environment_close(&environment);
}

/* Thread that holds a gate, and leaves it after 50 ms. */
struct copying {
	struct local_gate *gate;
	_Atomic uint32_t *slot;
	atomic_bool ended;
};

static void *hold_gate_50_ms(void *argument)
{
	struct copying *copying = argument;

	sleep_ms(50);
	atomic_store(&copying->ended, true);
	local_gate_leave(copying->gate, copying->slot);
	return NULL;
}

/* Checks that an end which closes the connection waits for the holders of its gates. */
static void closed_while_copying(void *argument)
{
	struct scenario_environment environment;
	const struct local_access *access;
	struct copying copying = { 0 };
	struct pl_remote *remote;
	struct buffer far;
	pthread_t thread;
	uint64_t began;

	environment_open(&environment, argument);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	access = remote->fabric_data;
	copying.gate = access->gate;
	copying.slot = local_gate_enter(access->gate, access->number);
	check(copying.slot);
	began = clock_now();
	check(!pthread_create(&thread, NULL, hold_gate_50_ms, &copying));
	pl_peer_close(environment.far_peer);
	environment.far_peer = NULL;
	/* The close returns after the holder left, or after the full wait of 1 s. */
	check(atomic_load(&copying.ended) || clock_now() - began >= SECOND);
	check(!pthread_join(thread, NULL));
	pl_remote_release(remote);
	buffer_close(&far);
	environment_close(&environment);
}

/* -- held ------------------------------------------------------------------------------------------ */

/* Checks that writes succeed with 0 to all holder slots taken: further threads use the counter. */
static void gate_crowded(void *argument)
{
	struct scenario_environment environment;
	struct local_endpoint *near;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct buffer source, far;
	struct pl_error error;

	environment_open(&environment, argument);
	near = local_endpoint_of(environment.near_peer->endpoint);
	buffer_open(&source, environment.near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	for (unsigned taken = 0; taken <= LOCAL_HOLDER_SLOTS; taken++) {
		for (unsigned i = 0; i < LOCAL_GATES_LEAST; i++)
			for (unsigned j = 0; j < taken; j++)
				atomic_store(&near->gates[i].slots[j], 1);
		pattern_fill(source.bytes, SIZE, taken, 0);
		check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, source.region, 0, SIZE },
				  NULL, &operation, &error),
			 &error);
		complete(&environment, operation, NULL);
		pattern_check(far.bytes, SIZE, taken, 0);
	}
	for (unsigned i = 0; i < LOCAL_GATES_LEAST; i++) {
		check_number(atomic_load(&near->gates[i].holders), 0);
		for (unsigned j = 0; j < LOCAL_HOLDER_SLOTS; j++)
			check_number(atomic_exchange(&near->gates[i].slots[j], 0), 1);
	}
	pl_remote_release(remote);
	buffer_close(&source);
	buffer_close(&far);
	environment_close(&environment);
}

/* Checks that a revocation waits about 1 s for a peer that never leaves the gate. */
static void gate_held(void *argument)
{
	struct scenario_environment environment;
	struct local_endpoint *near;
	uint8_t token[2][PL_TOKEN_MAX];
	size_t length[2] = { PL_TOKEN_MAX, PL_TOKEN_MAX };
	struct pl_remote *remotes[2];
	struct pl_error error;
	struct buffer far;

	environment_open(&environment, argument);
	near = local_endpoint_of(environment.near_peer->endpoint);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	for (unsigned i = 0; i < 2; i++) {
		check_ok(pl_region_share(far.region, NULL, token[i], &length[i], &error), &error);
		remotes[i] = import_token(&environment, environment.near_peer, token[i], length[i]);
	}
	for (unsigned i = 0; i < LOCAL_GATES_LEAST; i++) {
		struct local_gate *gate = &near->gates[i];

		/* Holds one of two consecutive gates by a slot, and the other by the counter. */
		if (i % 2)
			atomic_store(&gate->slots[LOCAL_HOLDER_SLOTS - 1], 1);
		else
			atomic_store(&gate->holders, UINT32_MAX - i);
		if (i > 1)
			atomic_store(&gate->open, i);
	}
	for (unsigned i = 0; i < 2; i++) {
		uint64_t began = clock_now();

		check_number(pl_region_revoke(far.region, token[i], length[i]), 0);
		check(clock_now() - began > SECOND / 2 && clock_now() - began < SLACK);
	}
	pl_remote_release(remotes[0]);
	pl_remote_release(remotes[1]);
	buffer_close(&far);
	environment_close(&environment);
}

#define GATES 36

/* Checks that several held gates delay a revocation by 1 s together, not by 1 s each. */
static void gates_held(void *argument)
{
	struct scenario_environment environment;
	uint8_t token[3][PL_TOKEN_MAX];
	size_t length[3] = { PL_TOKEN_MAX, PL_TOKEN_MAX, PL_TOKEN_MAX };
	struct pl_remote *remotes[GATES];
	_Atomic uint32_t *slots[GATES];
	struct pl_region *allocated;
	struct pl_error error;

	environment_open(&environment, argument);
	check_ok(pl_region_allocate(environment.far, SIZE, PL_ACCESS_ALL, &allocated, &error), &error);
	for (unsigned i = 0; i < 3; i++)
		check_ok(pl_region_share(allocated, NULL, token[i], &length[i], &error), &error);
	for (unsigned i = 0; i < GATES; i++) {
		const struct local_access *access;

		remotes[i] = import_token(&environment, environment.near_peer, token[i % 3], length[i % 3]);
		access = remotes[i]->fabric_data;
		slots[i] = local_gate_enter(access->gate, access->number);
		check(slots[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		uint64_t began = clock_now();

		check_number(i ? pl_region_deregister(allocated) : pl_region_revoke(allocated, token[0], length[0]), 0);
		check(clock_now() - began > SECOND / 2 && clock_now() - began < SECOND * GATES / 3);
	}
	for (unsigned i = 0; i < GATES; i++) {
		const struct local_access *access = remotes[i]->fabric_data;

		local_gate_leave(access->gate, slots[i]);
		pl_remote_release(remotes[i]);
	}
	environment_close(&environment);
}

/* Checks that the next key avoids a gate that a thread holds forever, because it ended during a copy. */
static void gate_left_held(void *argument)
{
	struct scenario_environment environment;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	const struct local_access *access;
	struct buffer source, far;
	struct pl_remote *remote;
	_Atomic uint32_t *slot;
	struct local_gate *gate;
	struct pl_error error;

	environment_open(&environment, argument);
	buffer_open(&source, environment.near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	check_ok(pl_region_share(far.region, NULL, token, &length, &error), &error);
	remote = import_token(&environment, environment.near_peer, token, length);
	access = remote->fabric_data;
	gate = access->gate;
	slot = local_gate_enter(gate, access->number);
	check(slot);
	check_number(pl_region_revoke(far.region, token, length), 0);
	check_number(write_some(&environment, remote, source.region, 8, NULL), -EACCES);
	pl_remote_release(remote);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_number(atomic_load(&gate->open), 0);
	check_reason(&environment, remote, source.region, "socket");
	pl_remote_release(remote);
	local_gate_leave(gate, slot);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check(atomic_load(&gate->open));
	check_reason(&environment, remote, source.region, "process_vm");
	pl_remote_release(remote);
	buffer_close(&source);
	buffer_close(&far);
	environment_close(&environment);
}

/*
 * Checks a hostile owner that revokes a key and marks its gate as free during a copy. The copy goes on into private
 * memory of the copying process.
 */
static void gate_emptied(void *argument)
{
	struct scenario_environment environment;
	struct local_endpoint *near, *far;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_region *allocated;
	struct pl_remote *remote;
	struct local_access *access;
	struct pl_error error;

	environment_open(&environment, argument);
	near = local_endpoint_of(environment.near_peer->endpoint);
	far = local_endpoint_of(environment.far_peer->endpoint);
	check_ok(pl_region_allocate(environment.far, SIZE, PL_ACCESS_ALL, &allocated, &error), &error);
	check_ok(pl_region_share(allocated, NULL, token, &length, &error), &error);
	remote = import_token(&environment, environment.near_peer, token, length);
	access = remote->fabric_data;
	check(access->path == &local_mapped_path);
	memset(access->base, 1, SIZE / 2);
	check(local_gate_enter(access->gate, access->number) == &access->gate->slots[0]);
	for (unsigned i = 0; i < LOCAL_GATES_LEAST; i++)
		atomic_store(&far->own_gates->gates[i].slots[0], 0);
	check_number(pl_region_revoke(allocated, token, length), 0);
	progress_until(&environment, !mapping_shared(access->mapping));
	/* The engine holds the lock while it replaces pages: ThreadSanitizer takes mmap() for a write. */
	pthread_mutex_lock(&near->state->lock);
	pthread_mutex_unlock(&near->state->lock);
	memset(access->base + SIZE / 2, 2, SIZE / 2);
	value_check(pl_region_address(allocated), SIZE / 2, 1);
	value_check((uint8_t *)pl_region_address(allocated) + SIZE / 2, SIZE / 2, 0);
	pl_remote_release(remote);
	check_number(pl_region_deregister(allocated), 0);
	environment_close(&environment);
}

/* Thread that revokes a grant whose gate is held. */
struct revoking {
	struct pl_region *region;
	uint8_t token[PL_TOKEN_MAX];
	size_t length;
	atomic_bool ended;
};

static void *revoke_held(void *argument)
{
	struct revoking *revoking = argument;

	check_number(pl_region_revoke(revoking->region, revoking->token, revoking->length), 0);
	atomic_store(&revoking->ended, true);
	return NULL;
}

/*
 * Revokes a grant whose gate is held, and imports another one meanwhile. Returns true if the import ended first. The
 * revocation waits 1 s at most.
 */
static bool import_beside_revocation(struct scenario_environment *environment, struct pl_region *region,
				     struct pl_region *more)
{
	struct revoking revoking = { .region = region, .length = PL_TOKEN_MAX };
	const struct local_access *access;
	struct pl_remote *held, *other;
	struct pl_error error;
	_Atomic uint32_t *slot;
	uint64_t began;
	pthread_t thread;
	bool first;

	check_ok(pl_region_share(region, NULL, revoking.token, &revoking.length, &error), &error);
	held = import_token(environment, environment->near_peer, revoking.token, revoking.length);
	access = held->fabric_data;
	slot = local_gate_enter(access->gate, access->number);
	check(slot);
	began = clock_now();
	check(!pthread_create(&thread, NULL, revoke_held, &revoking));
	while (atomic_load(&access->gate->open) == access->number)
		sleep_ms(1);
	other = share(environment, more, environment->near_peer, NULL);
	first = !atomic_load(&revoking.ended);
	check(first || clock_now() - began >= SECOND);
	local_gate_leave(access->gate, slot);
	check(!pthread_join(thread, NULL));
	pl_remote_release(other);
	pl_remote_release(held);
	return first;
}

/* Checks that a revocation which waits for a holder delays no other key, unless the machine is busy all the time. */
static void others_go_on(void *argument)
{
	struct scenario_environment environment;
	struct buffer far, more;
	unsigned tries = 10;

	environment_open(&environment, argument);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	buffer_open(&more, environment.far, SIZE, PL_ACCESS_ALL);
	while (!import_beside_revocation(&environment, far.region, more.region))
		check(--tries);
	buffer_close(&more);
	buffer_close(&far);
	environment_close(&environment);
}

/* Thread that closes a peer whose gate is held. */
struct closing {
	struct pl_peer *peer;
	atomic_bool ended;
};

static void *close_held(void *argument)
{
	struct closing *closing = argument;

	pl_peer_close(closing->peer);
	atomic_store(&closing->ended, true);
	return NULL;
}

/* Closes a peer whose gate is held. Returns true if the peer's engine was free before the wait for the holder ended. */
static bool engine_beside_close(void)
{
	struct scenario_environment environment;
	const struct local_access *access;
	struct closing closing = { 0 };
	struct pl_remote *remote;
	struct pl_engine *home;
	_Atomic uint32_t *slot;
	struct buffer far;
	pthread_t thread;
	uint64_t began;
	bool first;

	environment_open(&environment, &local_threads);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	access = remote->fabric_data;
	slot = local_gate_enter(access->gate, access->number);
	check(slot);
	closing.peer = environment.far_peer;
	home = closing.peer->home;
	environment.far_peer = NULL;
	began = clock_now();
	check(!pthread_create(&thread, NULL, close_held, &closing));
	while (atomic_load(&access->gate->open) == access->number)
		sleep_ms(1);
	pl_engine_lock(home);
	first = !atomic_load(&closing.ended) && clock_now() - began < SECOND;
	pl_engine_unlock(home);
	local_gate_leave(access->gate, slot);
	check(!pthread_join(thread, NULL));
	pl_remote_release(remote);
	buffer_close(&far);
	environment_close(&environment);
	return first;
}

/* Checks that a closed peer which does not leave its gate delays no other peer, unless the machine is busy all the time. */
static void others_go_on_beside_close(void *argument)
{
	unsigned tries = 10;

	(void)argument;
	while (!engine_beside_close())
		check(--tries);
}

/*
 * Loses a peer whose gate is held, then deregisters its region. Returns true if the loss kept the engine for less than
 * the wait for holders. The end of the region waits for the holder.
 */
static bool engine_after_loss(void)
{
	struct scenario_environment environment;
	const struct local_access *access;
	struct copying copying = { 0 };
	struct pl_remote *remote;
	struct pl_region *region;
	struct pl_error error;
	pthread_t thread;
	uint64_t began;
	bool soon;

	environment_open(&environment, &local_threads);
	check_ok(pl_region_allocate(environment.far, SIZE, PL_ACCESS_ALL, &region, &error), &error);
	remote = share(&environment, region, environment.near_peer, NULL);
	access = remote->fabric_data;
	copying.gate = access->gate;
	copying.slot = local_gate_enter(access->gate, access->number);
	check(copying.slot);
	pl_fail(&error, -EPROTO, "PROTOCOL", "test", NULL, NULL, "the test ends the connection");
	pl_engine_lock(environment.far_peer->home);
	began = clock_now();
	pl_peer_lose(environment.far_peer, &error);
	soon = clock_now() - began < SECOND;
	pl_engine_unlock(environment.far_peer->home);
	check_number(atomic_load(&access->gate->open), 0);
	check(!pthread_create(&thread, NULL, hold_gate_50_ms, &copying));
	check_number(pl_region_deregister(region), 0);
	check(atomic_load(&copying.ended) || clock_now() - began >= SECOND);
	check(!pthread_join(thread, NULL));
	pl_remote_release(remote);
	environment_close(&environment);
	return soon;
}

/* Checks that a lost peer which does not leave its gate delays no other peer, but the end of the region. */
static void others_go_on_after_loss(void *argument)
{
	unsigned tries = 10;

	(void)argument;
	while (!engine_after_loss())
		check(--tries);
}

#define MANY (LOCAL_GATES_LEAST + 2)

/* Checks that more keys than an earlier release has gates for are used without sockets, and are shut with the peer. */
static void many_keys(void *argument)
{
	struct pl_remote **remotes = calloc(MANY, sizeof(struct pl_remote *));
	const struct local_access *last;
	struct scenario_environment environment;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct buffer source, far;
	struct local_gate *gates;
	struct pl_error error;

	environment_open(&environment, argument);
	buffer_open(&source, environment.near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	check_ok(pl_region_share(far.region, NULL, token, &length, &error), &error);
	for (unsigned i = 0; i < MANY; i++)
		remotes[i] = import_token(&environment, environment.near_peer, token, length);
	check_reason(&environment, remotes[0], source.region, "process_vm");
	check_reason(&environment, remotes[MANY - 1], source.region, "process_vm");
	last = remotes[MANY - 1]->fabric_data;
	gates = local_endpoint_of(environment.near_peer->endpoint)->gates;
	check(last->gate >= gates + LOCAL_GATES_LEAST);
	check(atomic_load(&last->gate->open) == last->number);
	pl_peer_close(environment.far_peer);
	environment.far_peer = NULL;
	check_number(atomic_load(&last->gate->open), 0);
	for (unsigned i = 0; i < MANY; i++)
		pl_remote_release(remotes[i]);
	free(remotes);
	buffer_close(&source);
	buffer_close(&far);
	environment_close(&environment);
}

/* Peers of earlier releases, and small limits of file sizes, allow fewer gates. */
static void gate_counts(void *argument)
{
	struct pl_peer peer = { .many_gates = false };
	struct rlimit before, limit;

	(void)argument;
	check_number(local_gate_count(&peer), LOCAL_GATES_LEAST);
	peer.many_gates = true;
	check_number(local_gate_count(&peer), LOCAL_GATES_MOST);
	check(getrlimit(RLIMIT_FSIZE, &before) == 0);
	limit = (struct rlimit){ LOCAL_GATES_MOST * sizeof(struct local_gate) - 1, before.rlim_max };
	check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	check_number(local_gate_count(&peer), LOCAL_GATES_LEAST);
	check(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "revoked while copying", revoked_while_copying, &local_threads, 15 },
		{ "revoked while copying, manual", revoked_while_copying, &local_manual, 15 },
		{ "closed while copying", closed_while_copying, &local_threads, 15 },
		{ "closed while copying, manual", closed_while_copying, &local_manual, 15 },
		{ "gate crowded", gate_crowded, &local_threads, 15 },
		{ "gate crowded, manual", gate_crowded, &local_manual, 15 },
		{ "gate held", gate_held, &local_threads, 15 },
		{ "gate held, manual", gate_held, &local_manual, 15 },
		{ "gates held", gates_held, &local_threads, 15 },
		{ "gates held, manual", gates_held, &local_manual, 15 },
		{ "others go on", others_go_on, &local_threads, 15 },
		{ "others go on beside close", others_go_on_beside_close, NULL, 30 },
		{ "others go on after loss", others_go_on_after_loss, NULL, 30 },
		{ "gate emptied", gate_emptied, &local_threads, 15 },
		{ "gate emptied, manual", gate_emptied, &local_manual, 15 },
		{ "gate left held", gate_left_held, &local_threads, 15 },
		{ "many keys", many_keys, &local_threads, 30 },
		{ "many keys, manual", many_keys, &local_manual, 30 },
		{ "gate counts", gate_counts, NULL, 15 },
		{ "gate left held, manual", gate_left_held, &local_manual, 15 },
	};

	return cases_run("gates", cases, sizeof(cases) / sizeof(cases[0]));
}
