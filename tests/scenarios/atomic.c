/* SPDX-License-Identifier: BSD-2-Clause */
/* Atomic operations: results, refusals, concurrency. */
#include <stdlib.h>

#include "scenarios/scenario.h"

static uint64_t word_at(const struct buffer *buffer, size_t offset)
{
	uint64_t word;

	bytes_get(buffer->bytes + offset, &word, 8);
	return word;
}

static void put_word(struct buffer *buffer, size_t offset, uint64_t word)
{
	bytes_put(buffer->bytes + offset, &word, 8);
}

static void atomic_values(struct scenario_environment *environment)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_peer *peer = environment->near_peer;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_completion receipt;
	struct pl_error error;
	struct buffer far;
	uint64_t old = 0;

	buffer_open(&far, environment->far, 64, PL_ACCESS_ATOMIC);
	put_word(&far, 8, 40);
	remote = share(environment, far.region, peer, NULL);
	attributes.user_data = 9;
	check_ok(pl_fetch_add(peer,
			      &(struct pl_atomic){ .remote = remote, .remote_offset = 8, .operand = 2, .old = &old },
			      &attributes, &operation, &error),
		 &error);
	complete(environment, operation, &receipt);
	check_number(receipt.kind, PL_KIND_FETCH_ADD);
	check_number(receipt.value, 40);
	receipt_check(environment, &receipt, PL_KIND_FETCH_ADD, 8);
	check_number(receipt.user_data, 9);
	check(receipt.peer == peer);
	check_text(receipt.fabric, environment->setting->fabric);
	check_number(old, 40);
	check_number(word_at(&far, 8), 42);
	/* Wraps around.  This call passes NULL for `old`. */
	check_ok(pl_fetch_add(peer,
			      &(struct pl_atomic){ .remote = remote, .remote_offset = 8, .operand = UINT64_MAX - 40 },
			      NULL, &operation, &error),
		 &error);
	complete(environment, operation, &receipt);
	check_number(receipt.value, 42);
	check_number(word_at(&far, 8), 1);
	check_ok(pl_compare_swap(
			 peer,
			 &(struct pl_atomic){
				 .remote = remote, .remote_offset = 8, .operand = 99, .compare = 2, .old = &old },
			 NULL, &operation, &error),
		 &error);
	complete(environment, operation, &receipt);
	check_number(receipt.kind, PL_KIND_COMPARE_SWAP);
	check_number(old, 1);
	check_number(word_at(&far, 8), 1);
	check_ok(pl_compare_swap(peer,
				 &(struct pl_atomic){ .remote = remote,
						      .remote_offset = 8,
						      .operand = 0x8877665544332211ull,
						      .compare = 1,
						      .old = &old },
				 NULL, &operation, &error),
		 &error);
	complete(environment, operation, &receipt);
	check_number(receipt.value, 1);
	check_number(word_at(&far, 8), 0x8877665544332211ull);
	value_check(far.bytes, 8, POISON);
	value_check(far.bytes + 16, 48, POISON);
	pl_remote_release(remote);
	buffer_close(&far);
}

/* Checks that a misaligned atomic is refused, at posting or by the target, which alone knows the address. */
static void check_atomic_refused(struct scenario_environment *environment, struct pl_remote *remote, uint64_t offset,
				 bool add)
{
	struct pl_peer *peer = environment->near_peer;
	struct pl_operation *operation;
	struct pl_error error;
	int status;

	if (add)
		status = pl_fetch_add(peer,
				      &(struct pl_atomic){ .remote = remote, .remote_offset = offset, .operand = 1 },
				      NULL, &operation, &error);
	else
		status = pl_compare_swap(
			peer,
			&(struct pl_atomic){ .remote = remote, .remote_offset = offset, .operand = 1, .compare = 0 },
			NULL, &operation, &error);
	if (!status)
		status = await(environment, operation, NULL, &error);
	check_status(status, -EINVAL, &error);
}

static void atomic_refusals(struct scenario_environment *environment)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct pl_peer *peer = environment->near_peer;
	struct pl_operation *operation;
	struct pl_remote *remote, *shifted;
	struct pl_error error;
	struct buffer far;

	buffer_open(&far, environment->far, 64, PL_ACCESS_ALL);
	bytes_set(far.bytes, 0, 64);
	remote = share(environment, far.region, peer, NULL);
	for (uint64_t offset = 1; offset < 8; offset++) {
		check_atomic_refused(environment, remote, offset, true);
		check_atomic_refused(environment, remote, offset, false);
	}
	check_status(pl_fetch_add(peer, &(struct pl_atomic){ .remote = remote, .remote_offset = 64, .operand = 1 },
				  NULL, &operation, &error),
		     -ERANGE, &error);
	check_status(
		pl_fetch_add(peer,
			     &(struct pl_atomic){ .remote = remote, .remote_offset = UINT64_MAX - 7, .operand = 1 },
			     NULL, &operation, &error),
		-ERANGE, &error);
	check_ok(pl_fetch_add(peer, &(struct pl_atomic){ .remote = remote, .remote_offset = 56, .operand = 1 }, NULL,
			      &operation, &error),
		 &error);
	complete(environment, operation, NULL);
	/* Only the target knows that this offset is no multiple of 8. */
	options.offset = 4;
	options.length = 32;
	shifted = share(environment, far.region, peer, &options);
	check_atomic_refused(environment, shifted, 0, true);
	value_check(far.bytes, 56, 0);
	check_number(word_at(&far, 56), 1);
	pl_remote_release(remote);
	pl_remote_release(shifted);
	buffer_close(&far);
}

#define THREADS 4
#define ADDS 400
#define SWAPS 100

struct adder {
	struct pl_peer *peer;
	struct pl_remote *remote;
	pthread_t thread;
	uint64_t olds[ADDS];
	uint64_t olds_of_swaps[SWAPS];
};

static uint64_t wait_for_atomic(struct pl_operation *operation)
{
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(pl_wait(operation, UINT64_MAX, &receipt, &error), &error);
	return receipt.value;
}

static void *add_run(void *argument)
{
	struct adder *adder = argument;
	struct pl_operation *operation;
	struct pl_error error;

	for (unsigned i = 0; i < ADDS; i++) {
		check_ok(pl_fetch_add(adder->peer,
				      &(struct pl_atomic){ .remote = adder->remote,
							   .remote_offset = 0,
							   .operand = 1,
							   .old = &adder->olds[i] },
				      NULL, &operation, &error),
			 &error);
		check_number(wait_for_atomic(operation), adder->olds[i]);
	}
	for (unsigned i = 0; i < SWAPS; i++) {
		uint64_t seen = 0, old;

		for (;;) {
			check_ok(pl_compare_swap(adder->peer,
						 &(struct pl_atomic){ .remote = adder->remote,
								      .remote_offset = 8,
								      .operand = seen + 1,
								      .compare = seen,
								      .old = &old },
						 NULL, &operation, &error),
				 &error);
			wait_for_atomic(operation);
			if (old == seen)
				break;
			seen = old;
		}
		adder->olds_of_swaps[i] = seen;
	}
	return NULL;
}

/* Checks that each old value came back exactly once: no addition was lost or repeated. */
static void check_all_seen(const uint64_t *values, size_t count, bool *seen, size_t total)
{
	for (size_t i = 0; i < count; i++) {
		check(values[i] < total && !seen[values[i]]);
		seen[values[i]] = true;
	}
}

static void atomic_threads(struct scenario_environment *environment)
{
	struct adder *adders = calloc(THREADS, sizeof(*adders));
	bool added[THREADS * ADDS] = { false }, swapped[THREADS * SWAPS] = { false };
	struct pl_remote *remote;
	struct buffer far;
	struct pump pump;

	buffer_open(&far, environment->far, 16, PL_ACCESS_ATOMIC);
	bytes_set(far.bytes, 0, 16);
	remote = share(environment, far.region, environment->near_peer, NULL);
	pump_start(environment, &pump, environment->far);
	for (unsigned i = 0; i < THREADS; i++) {
		adders[i].peer = environment->near_peer;
		adders[i].remote = remote;
		check_number(pthread_create(&adders[i].thread, NULL, add_run, &adders[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(adders[i].thread, NULL);
	pump_stop(&pump);
	check_number(word_at(&far, 0), THREADS * ADDS);
	check_number(word_at(&far, 8), THREADS * SWAPS);
	for (unsigned i = 0; i < THREADS; i++) {
		check_all_seen(adders[i].olds, ADDS, added, THREADS * ADDS);
		check_all_seen(adders[i].olds_of_swaps, SWAPS, swapped, THREADS * SWAPS);
	}
	pl_remote_release(remote);
	buffer_close(&far);
	free(adders);
}

/* Adds to one word through three peers. */
static void atomic_peers(struct scenario_environment *environment)
{
	enum { PEERS = 3, COUNT = 200 };
	struct pl_peer *near[PEERS], *far[PEERS];
	struct pl_remote *remotes[PEERS];
	struct pl_completion completion;
	struct pl_error error;
	struct buffer word;

	buffer_open(&word, environment->far, 8, PL_ACCESS_ATOMIC);
	put_word(&word, 0, 5);
	for (unsigned i = 0; i < PEERS; i++) {
		connect_pair(environment, environment->near, environment->listener, &near[i], &far[i]);
		remotes[i] = share(environment, word.region, near[i], NULL);
	}
	for (unsigned i = 0; i < PEERS * COUNT; i++)
		check_ok(pl_fetch_add(
				 near[i % PEERS],
				 &(struct pl_atomic){ .remote = remotes[i % PEERS], .remote_offset = 0, .operand = i },
				 NULL, NULL, &error),
			 &error);
	for (unsigned i = 0; i < PEERS * COUNT; i++) {
		collect(environment, environment->near, &completion, 1);
		check_completion(environment->near, &completion, 0);
	}
	check_number(word_at(&word, 0), 5 + PEERS * COUNT * (PEERS * COUNT - 1) / 2);
	for (unsigned i = 0; i < PEERS; i++) {
		pl_remote_release(remotes[i]);
		pl_peer_close(near[i]);
		pl_peer_close(far[i]);
	}
	buffer_close(&word);
}

const struct scenario atomic_scenarios[] = {
	{ "atomic-values", atomic_values, 0 },
	{ "atomic-refusals", atomic_refusals, SCENARIO_SETTING },
	{ "atomic-threads", atomic_threads, 0 },
	{ "atomic-peers", atomic_peers, 0 },
	{ NULL, NULL, 0 },
};
