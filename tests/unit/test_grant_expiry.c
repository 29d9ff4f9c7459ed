/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that a device keeps for a grant end with the grant's time, and tokens are revoked.  The devices here are counters; the
 * context and its grants are real.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/grant.h"
#include "core/stream_ops.h"

#define SIZE 4096
#define LIFETIME (100 * PL_NS_PER_MS)
/* Grants of a program that shares for a short time and revokes nothing; most grants that its context keeps. */
#define SHORT_GRANTS 20000
#define KEPT_GRANTS 1100
/* Grants of which two of three do not expire: enough for a look at a table with free places. */
#define MIXED_GRANTS 4500

struct counter {
	struct pl_registration base;
	unsigned released, finished;
};

static void release_counter(struct pl_registration *registration)
{
	pl_container_of(registration, struct counter, base)->released++;
}

static void finish_counter(struct pl_registration *registration)
{
	pl_container_of(registration, struct counter, base)->finished++;
}

/* Context whose only region has grants. */
struct rig {
	struct pl_context *context;
	struct pl_region *region;
	uint8_t memory[SIZE], token[PL_TOKEN_MAX];
	size_t length;
};

static void rig_open(struct rig *rig)
{
	struct pl_options options = PL_OPTIONS_INIT;

	options.progress = PL_PROGRESS_MANUAL;
	assert_int_equal(pl_open(&rig->context, &options, NULL), 0);
	assert_int_equal(pl_region_register(rig->context, rig->memory, SIZE, PL_ACCESS_ALL, &rig->region, NULL), 0);
}

static void rig_close(struct rig *rig)
{
	assert_int_equal(pl_region_deregister(rig->region), 0);
	pl_close(rig->context);
}

/* Shares the region.  Returns the grant. */
static struct pl_grant *share_for(struct rig *rig, uint64_t lifetime)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct pl_grant *grant;
	struct pl_token token;

	options.lifetime = lifetime;
	rig->length = sizeof(rig->token);
	assert_int_equal(pl_region_share(rig->region, &options, rig->token, &rig->length, NULL), 0);
	assert_int_equal(pl_token_decode(rig->token, rig->length, &token), 0);
	grant = pl_index_table_get(&rig->context->grants, (uint32_t)token.grant);
	assert_non_null(grant);
	assert_true(grant->id == token.grant);
	return grant;
}

static void add_counter(struct rig *rig, struct pl_list *registrations, struct counter *counter, bool timeless)
{
	*counter = (struct counter){ .base = { .device = counter,
					       .release = release_counter,
					       .finish = finish_counter,
					       .timeless = timeless } };
	pthread_mutex_lock(&rig->context->grant_lock);
	pl_list_append(registrations, &counter->base.link);
	pthread_mutex_unlock(&rig->context->grant_lock);
	pl_expiry_watch(rig->context);
}

/* Drives the context until a time, or until the counter is finished. */
static void drive_until(struct rig *rig, uint64_t end, const struct counter *counter)
{
	struct pl_completion completion;

	do {
		pl_poll(rig->context, &completion, 1);
		usleep(1000);
	} while (pl_now() < end && !(counter && counter->finished));
}

static void test_grant(void **state)
{
	struct counter expiring, lasting;
	uint64_t began;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	/* Leaves an unused place in the table of grants. */
	share_for(&rig, 0);
	assert_int_equal(pl_region_revoke(rig.region, rig.token, rig.length), 0);
	add_counter(&rig, &share_for(&rig, 0)->registrations, &lasting, true);
	began = pl_now();
	add_counter(&rig, &share_for(&rig, LIFETIME)->registrations, &expiring, true);
	drive_until(&rig, began + LIFETIME / 2, &expiring);
	if (pl_now() < began + LIFETIME)
		assert_int_equal(expiring.released, 0);
	drive_until(&rig, began + 20 * PL_NS_PER_S, &expiring);
	assert_true(pl_now() >= began + LIFETIME);
	assert_int_equal(expiring.released, 1);
	assert_int_equal(expiring.finished, 1);
	assert_int_equal(lasting.released, 0);
	rig_close(&rig);
	assert_int_equal(lasting.released, 1);
	assert_int_equal(expiring.released, 1);
}

/* Of the registrations for one peer, those end whose device does not know the time. */
static void test_key(void **state)
{
	struct counter timeless, timed;
	struct pl_grant *grant;
	struct pl_key key = { .id = 1 };
	struct rig rig;

	(void)state;
	rig_open(&rig);
	grant = share_for(&rig, LIFETIME);
	pl_list_init(&key.registrations);
	pthread_mutex_lock(&rig.context->grant_lock);
	pl_list_append(&grant->keys, &key.grant_link);
	assert_false(pl_grant_timeless(grant));
	pthread_mutex_unlock(&rig.context->grant_lock);
	add_counter(&rig, &key.registrations, &timed, false);
	assert_false(pl_grant_timeless(grant));
	add_counter(&rig, &key.registrations, &timeless, true);
	assert_true(pl_grant_timeless(grant));
	drive_until(&rig, pl_now() + 20 * PL_NS_PER_S, &timeless);
	assert_int_equal(timeless.finished, 1);
	assert_int_equal(timed.released, 0);
	pthread_mutex_lock(&rig.context->grant_lock);
	pl_list_remove(&timed.base.link);
	pl_list_remove(&key.grant_link);
	pthread_mutex_unlock(&rig.context->grant_lock);
	rig_close(&rig);
}

static size_t grants_of(struct rig *rig)
{
	return pl_index_table_used(&rig->context->grants);
}

/* A context with many grants frees the expired ones, unless a peer has a key of them, and no others. */
static void test_expired_grants_are_freed(void **state)
{
	struct counter registered;
	uint8_t lasting[PL_TOKEN_MAX], used[PL_TOKEN_MAX];
	struct pl_key key = { .id = 1 };
	struct pl_grant *in_use;
	size_t length;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	share_for(&rig, 0);
	length = rig.length;
	memcpy(lasting, rig.token, length);
	in_use = share_for(&rig, 1);
	memcpy(used, rig.token, length);
	pl_list_init(&key.registrations);
	pthread_mutex_lock(&rig.context->grant_lock);
	pl_list_append(&in_use->keys, &key.grant_link);
	pthread_mutex_unlock(&rig.context->grant_lock);
	add_counter(&rig, &share_for(&rig, 1)->registrations, &registered, false);
	share_for(&rig, 0);
	/* Few grants are kept: a peer that imports one of them learns that it has expired. */
	assert_int_equal(grants_of(&rig), 4);
	for (unsigned i = 0; i < SHORT_GRANTS; i++)
		share_for(&rig, 1);
	assert_true(grants_of(&rig) < KEPT_GRANTS);
	assert_int_equal(registered.finished, 1);
	for (unsigned i = 0; i < MIXED_GRANTS; i += 3) {
		share_for(&rig, 0);
		share_for(&rig, 3600 * PL_NS_PER_S);
		share_for(&rig, 1);
	}
	assert_true(grants_of(&rig) > MIXED_GRANTS / 3 * 2);
	pl_list_remove(&key.grant_link);
	assert_int_equal(pl_region_revoke(rig.region, used, length), 0);
	assert_int_equal(pl_region_revoke(rig.region, lasting, length), 0);
	rig_close(&rig);
}

/* Only no token at all revokes all, and leaves those alone that the library has bound to a peer. */
static void test_all_are_revoked(void **state)
{
	struct pl_key key = { .id = 1 };
	uint8_t bound[PL_TOKEN_SIZE];
	struct pl_token token;
	struct pl_grant *grant;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_int_equal(pl_grant_bind(rig.region, PL_ACCESS_READ, (struct pl_peer *)&rig, NULL, bound), 0);
	assert_int_equal(pl_token_decode(bound, sizeof(bound), &token), 0);
	grant = pl_index_table_get(&rig.context->grants, (uint32_t)token.grant);
	pl_list_init(&key.registrations);
	pl_list_append(&grant->keys, &key.grant_link);
	share_for(&rig, 0);
	share_for(&rig, 0);
	assert_int_equal(pl_region_revoke(rig.region, rig.token, 0), -EINVAL);
	assert_int_equal(pl_region_revoke(rig.region, NULL, 1), -EINVAL);
	assert_int_equal(grants_of(&rig), 3);
	assert_int_equal(pl_region_revoke(rig.region, NULL, 0), 0);
	assert_int_equal(grants_of(&rig), 1);
	assert_false(key.revoked);
	pl_list_remove(&key.grant_link);
	assert_true(pl_grant_revoke(rig.context, rig.region, bound));
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_are_revoked),
		cmocka_unit_test(test_expired_grants_are_freed),
		cmocka_unit_test(test_grant),
		cmocka_unit_test(test_key),
	};

	return cmocka_run_group_tests_name("grant expiry", tests, NULL, NULL);
}
