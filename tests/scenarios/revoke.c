/* SPDX-License-Identifier: BSD-2-Clause */
/* Revocation of grants and deregistration of regions, before and during transfers. */
#include <stdlib.h>
#include <string.h>

#include "scenarios/scenario.h"
#include "support/gpu.h"

struct revocable {
	struct buffer near, far;
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
	struct pl_remote *remote;
};

static void revocable_open(struct scenario_environment *environment, struct revocable *revocable, size_t size)
{
	struct pl_error error;

	buffer_open(&revocable->near, environment->near, size, PL_ACCESS_LOCAL);
	buffer_open(&revocable->far, environment->far, size, PL_ACCESS_ALL);
	revocable->token_length = PL_TOKEN_MAX;
	check_ok(pl_region_share(revocable->far.region, NULL, revocable->token, &revocable->token_length, &error),
		 &error);
	revocable->remote =
		import_token(environment, environment->near_peer, revocable->token, revocable->token_length);
}

static void revocable_close(struct revocable *revocable)
{
	pl_remote_release(revocable->remote);
	buffer_close(&revocable->near);
	buffer_close(&revocable->far);
}

static int revoke(struct revocable *revocable)
{
	return pl_region_revoke(revocable->far.region, revocable->token, revocable->token_length);
}

static void check_grant_refused(struct scenario_environment *environment, struct revocable *revocable)
{
	struct pl_peer *peer = environment->near_peer;
	struct pl_operation *operation;
	struct pl_error error;
	int status;

	for (unsigned kind = 0; kind < 3; kind++) {
		if (kind == 0)
			status = pl_write(peer,
					  &(struct pl_transfer){ revocable->remote, 0, revocable->near.region, 0, 8 },
					  NULL, &operation, &error);
		else if (kind == 1)
			status = pl_read(peer,
					 &(struct pl_transfer){ revocable->remote, 0, revocable->near.region, 0, 8 },
					 NULL, &operation, &error);
		else
			status = pl_fetch_add(
				peer,
				&(struct pl_atomic){ .remote = revocable->remote, .remote_offset = 0, .operand = 1 },
				NULL, &operation, &error);
		if (!status)
			status = await(environment, operation, NULL, &error);
		check_status(status, -EACCES, &error);
	}
}

static void revoke_before(struct scenario_environment *environment)
{
	struct revocable one, other;

	revocable_open(environment, &one, 64);
	revocable_open(environment, &other, 64);
	check_number(pl_region_revoke(other.far.region, one.token, one.token_length), -ENOENT);
	check_number(revoke(&one), 0);
	check_number(revoke(&one), -ENOENT);
	check_number(pl_region_revoke(one.far.region, "no token", 8), -EINVAL);
	bytes_set(one.near.bytes, 1, 64);
	check_grant_refused(environment, &one);
	value_check(one.far.bytes, 64, POISON);
	value_check(one.near.bytes, 64, 1);
	check_number(import_status(environment, environment->near_peer, one.token, one.token_length), -EACCES);
	/* The other grant still works. */
	pl_remote_release(import_token(environment, environment->near_peer, other.token, other.token_length));
	revocable_close(&one);
	revocable_close(&other);
}

static void revoke_all(struct scenario_environment *environment)
{
	size_t length = PL_TOKEN_MAX;
	uint8_t second[PL_TOKEN_MAX];
	struct revocable one, other;
	struct pl_error error;

	revocable_open(environment, &one, 64);
	revocable_open(environment, &other, 64);
	check_ok(pl_region_share(one.far.region, NULL, second, &length, &error), &error);
	check_number(pl_region_revoke(one.far.region, NULL, 0), 0);
	check_number(pl_region_revoke(one.far.region, NULL, 8), -EINVAL);
	check_number(revoke(&one), -ENOENT);
	check_grant_refused(environment, &one);
	check_number(import_status(environment, environment->near_peer, one.token, one.token_length), -EACCES);
	check_number(import_status(environment, environment->near_peer, second, length), -EACCES);
	/* Without tokens, too. The region can be shared again, and the other region still works. */
	check_number(pl_region_revoke(one.far.region, NULL, 0), 0);
	check_ok(pl_region_share(one.far.region, NULL, second, &length, &error), &error);
	pl_remote_release(import_token(environment, environment->near_peer, second, length));
	pl_remote_release(import_token(environment, environment->near_peer, other.token, other.token_length));
	revocable_close(&one);
	revocable_close(&other);
}

/*
 * Reads a byte.  One-sided data arrives without synchronization, as from a card, so ThreadSanitizer must ignore this
 * read.
 */
__attribute__((noinline, no_sanitize("thread"))) static uint8_t read_unsynchronized(const uint8_t *byte)
{
	mirror_fetch(byte, 1);
	return *(const volatile uint8_t *)byte;
}

/* Returns a transfer size that is large enough to be revoked in the middle. */
static size_t large_size(const struct scenario_environment *environment)
{
	/* Between GPUs, two chunks of 64 MiB are always at the driver. */
	if (gpu_kind && !strcmp(environment->setting->fabric, "local"))
		return 144u << 20;
	return environment->setting->slow ? 24u << 20 : 64u << 20;
}

/*
 * Waits until a packet of Soft-RoCE is copied.
 * Soft-RoCE checks a memory window first and then copies a packet's bytes (read_reply() in rxe_resp.c of Linux).  The
 * copy may thus follow the invalidation of the window.  Cards do not.
 */
static void await_packet(struct scenario_environment *environment)
{
	if (narrow_grants)
		settle(environment, 50);
}

/*
 * Revokes during a large write and checks that the target's memory does not change after the call returns.
 * Returns true if the revocation cut the write short.
 */
static bool cut_write(struct scenario_environment *environment, bool deregister)
{
	const size_t size = large_size(environment);
	struct revocable revocable;
	const uint8_t *first;
	struct pl_operation *operation;
	struct pl_error error;
	uint64_t digest;
	int status;

	revocable_open(environment, &revocable, size);
	bytes_set(revocable.near.bytes, 1, size);
	first = revocable.far.bytes;
	check_ok(pl_write(environment->near_peer,
			  &(struct pl_transfer){ revocable.remote, 0, revocable.near.region, 0, size }, NULL,
			  &operation, &error),
		 &error);
	progress_until(environment, read_unsynchronized(first) != POISON);
	if (deregister)
		check_number(pl_region_deregister(revocable.far.region), 0);
	else
		check_number(revoke(&revocable), 0);
	await_packet(environment);
	digest = bytes_digest(revocable.far.bytes, size);
	status = await(environment, operation, NULL, &error);
	check_one_of(status, 0, -EACCES);
	settle(environment, 20);
	check(bytes_digest(revocable.far.bytes, size) == digest);
	if (deregister) {
		revocable.far.region = NULL;
		check_grant_refused(environment, &revocable);
	}
	revocable_close(&revocable);
	return status == -EACCES;
}

static bool revoke_write_once(struct scenario_environment *environment)
{
	return cut_write(environment, false);
}

static bool deregister_write_once(struct scenario_environment *environment)
{
	return cut_write(environment, true);
}

/* Checks that no read returns data that the owner writes after the revocation returns. */
static bool revoke_read_once(struct scenario_environment *environment)
{
	const size_t size = large_size(environment);
	struct revocable revocable;
	const uint8_t *first;
	struct pl_operation *operation;
	struct pl_error error;
	int status;

	revocable_open(environment, &revocable, size);
	bytes_set(revocable.far.bytes, 1, size);
	bytes_set(revocable.near.bytes, 0, size);
	first = revocable.near.bytes;
	check_ok(pl_read(environment->near_peer,
			 &(struct pl_transfer){ revocable.remote, 0, revocable.near.region, 0, size }, NULL, &operation,
			 &error),
		 &error);
	progress_until(environment, read_unsynchronized(first) == 1);
	check_number(revoke(&revocable), 0);
	await_packet(environment);
	bytes_set(revocable.far.bytes, POISON, size);
	status = await(environment, operation, NULL, &error);
	check_one_of(status, 0, -EACCES);
	check(!bytes_contain(revocable.near.bytes, size, POISON));
	revocable_close(&revocable);
	return status == -EACCES;
}

/* Time for attempts: on a busy machine many transfers may end before the revoking thread runs. */
static void repeat_until_cut(struct scenario_environment *environment,
			     bool (*once)(struct scenario_environment *environment))
{
	const uint64_t end = clock_now() + AMPLE_TIME;
	bool cut;

	do
		cut = once(environment);
	while (!cut && clock_now() < end);
	check(cut);
}

static void revoke_while_writing(struct scenario_environment *environment)
{
	repeat_until_cut(environment, revoke_write_once);
}

static void deregister_while_writing(struct scenario_environment *environment)
{
	repeat_until_cut(environment, deregister_write_once);
}

static void revoke_while_reading(struct scenario_environment *environment)
{
	repeat_until_cut(environment, revoke_read_once);
}

/* Streams small writes through two grants and checks that revoking one leaves the other alone. */
static void revoke_one_of_two(struct scenario_environment *environment)
{
	enum { COUNT = 400, SIZE = 5000 };
	struct revocable one, other;
	struct pl_completion completion;
	struct pl_error error;
	uint64_t digest = 0;

	revocable_open(environment, &one, (size_t)COUNT * SIZE);
	revocable_open(environment, &other, (size_t)COUNT * SIZE);
	pattern_fill(one.near.bytes, one.near.length, 1, 0);
	pattern_fill(other.near.bytes, other.near.length, 2, 0);
	for (unsigned i = 0; i < COUNT; i++) {
		struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
		uint64_t at = i * (uint64_t)SIZE;

		attributes.user_data = 1;
		check_ok(pl_write(environment->near_peer,
				  &(struct pl_transfer){ one.remote, at, one.near.region, at, SIZE }, &attributes, NULL,
				  &error),
			 &error);
		attributes.user_data = 2;
		check_ok(pl_write(environment->near_peer,
				  &(struct pl_transfer){ other.remote, at, other.near.region, at, SIZE }, &attributes,
				  NULL, &error),
			 &error);
		if (i == COUNT / 2) {
			check_number(revoke(&one), 0);
			await_packet(environment);
			digest = bytes_digest(one.far.bytes, one.far.length);
		}
	}
	for (unsigned i = 0; i < 2 * COUNT; i++) {
		collect(environment, environment->near, &completion, 1);
		if (completion.user_data == 2)
			check_completion(environment->near, &completion, 0);
		else
			check_one_of(completion.status, 0, -EACCES);
	}
	check(bytes_digest(one.far.bytes, one.far.length) == digest);
	pattern_check(other.far.bytes, other.far.length, 2, 0);
	revocable_close(&one);
	revocable_close(&other);
}

static void deregister_busy(struct scenario_environment *environment)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct buffer near;

	buffer_open(&near, environment->near, 64, PL_ACCESS_LOCAL);
	check_ok(pl_receive(environment->near_peer, 1, 0, &(struct pl_buffer){ near.region, 0, 64 }, NULL, &operation,
			    &error),
		 &error);
	check_number(pl_region_deregister(near.region), -EBUSY);
	check_number(pl_region_length(near.region), 64);
	pl_cancel(operation);
	fail_with(environment, operation, -ECANCELED);
	buffer_close(&near);
	check_number(pl_region_deregister(NULL), 0);
}

const struct scenario revoke_scenarios[] = {
	{ "revoke-before", revoke_before, SCENARIO_SETTING },
	{ "revoke-all", revoke_all, SCENARIO_SETTING },
	{ "revoke-while-writing", revoke_while_writing, SCENARIO_HEAVY },
	{ "revoke-while-reading", revoke_while_reading, SCENARIO_HEAVY },
	{ "revoke-one-of-two", revoke_one_of_two, 0 },
	{ "deregister-while-writing", deregister_while_writing, SCENARIO_HEAVY | SCENARIO_OUTLIVES },
	{ "deregister-busy", deregister_busy, SCENARIO_SETTING },
	{ NULL, NULL, 0 },
};
