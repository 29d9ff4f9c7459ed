/* SPDX-License-Identifier: BSD-2-Clause */
/* Accounts of `peerlane subscribe`: frames behind the last one that was taken, restarts, and frames that were gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The command is not part of the library, so its sources are included. */
#include "cmd/stream/stream_accounts.c"
#include "cmd/stream/subscribe_accounts.c"

static struct subscribe *begin_subscribe(struct subscribe_options *options, const struct pl_accounts *accounts,
					 const struct stream_used *used)
{
	struct subscribe *subscribe = calloc(1, sizeof(*subscribe));

	assert_non_null(subscribe);
	subscribe->options = options;
	subscribe->info.accounts = *accounts;
	subscribe->used = *used;
	return subscribe;
}

static uint64_t sum_of(const struct pl_accounts *accounts)
{
	return stream_accounts_lost(accounts) + accounts->delivered + accounts->aborted + accounts->unwanted +
	       accounts->pending;
}

/* Sequences 100 to 119: 10 were taken up to 114, after a loss of 5; of the 5 behind, 2 are ready and 3 were dropped. */
static void test_frames_behind_the_last_are_left_out(void **state)
{
	struct subscribe_options options = { .count = 10 };
	struct pl_accounts accounts = {
		.first = 100, .next = 120, .delivered = 10, .lapped = 4, .dropped = 4, .pending = 2
	};
	const struct stream_used used = { .frames = 10, .next = 115, .lost = 5 };
	struct subscribe *subscribe = begin_subscribe(&options, &accounts, &used);
	struct pl_accounts all, cut;

	(void)state;
	all = subscribe_accounts(subscribe, false);
	assert_int_equal(stream_accounts_lost(&all), 8);
	assert_int_equal(sum_of(&all), all.next - all.first);
	cut = subscribe_accounts(subscribe, true);
	assert_int_equal(stream_accounts_lost(&cut), 5);
	assert_int_equal(cut.dropped, 1);
	assert_int_equal(cut.lapped, 4);
	assert_int_equal(cut.next, 115);
	assert_int_equal(sum_of(&cut), cut.next - cut.first);
	free(subscribe);
}

/* Sequences 0 to 21: 3 were taken up to 7, 4 before were lost and one aborted; of those behind, 4 are ready and 10 aborted. */
static void test_aborted_sequences_hide_no_loss(void **state)
{
	struct subscribe_options options = { .count = 3 };
	struct pl_accounts accounts = { .next = 22, .delivered = 3, .lapped = 4, .aborted = 11, .pending = 4 };
	const struct stream_used used = { .frames = 3, .next = 8, .lost = 4 };
	struct subscribe *subscribe = begin_subscribe(&options, &accounts, &used);
	struct pl_accounts cut = subscribe_accounts(subscribe, true);

	(void)state;
	assert_int_equal(stream_accounts_lost(&cut), 4);
	assert_int_equal(cut.aborted, 1);
	assert_int_equal(sum_of(&cut), cut.next - cut.first);
	free(subscribe);
}

/* Each third frame of 10 to 29 is wanted: 10, 13, ... 28.  Up to 16 were taken, without a loss; 19 was rejected. */
static void test_frames_that_every_leaves_out(void **state)
{
	struct subscribe_options options = { .source.stream.every = 3 };
	struct pl_accounts accounts = {
		.first = 10, .next = 30, .delivered = 3, .rejected = 1, .unwanted = 13, .pending = 3
	};
	const struct stream_used used = { .frames = 3, .next = 17 };
	struct subscribe *subscribe = begin_subscribe(&options, &accounts, &used);
	struct pl_accounts cut = subscribe_accounts(subscribe, true);

	(void)state;
	assert_int_equal(stream_accounts_lost(&cut), 0);
	assert_int_equal(cut.unwanted, 4);
	assert_int_equal(cut.next, 17);
	assert_int_equal(sum_of(&cut), cut.next - cut.first);
	free(subscribe);
}

/* Without a frame, nothing is known to be lost. */
static void test_nothing_was_taken(void **state)
{
	struct subscribe_options options = { .count = 1 };
	struct pl_accounts accounts = { .first = 7, .next = 20, .dropped = 9, .pending = 4 };
	const struct stream_used used = { 0 };
	struct subscribe *subscribe = begin_subscribe(&options, &accounts, &used);
	struct pl_accounts cut = subscribe_accounts(subscribe, true);

	(void)state;
	assert_int_equal(sum_of(&cut), 0);
	assert_int_equal(cut.next, 7);
	free(subscribe);
}

static void test_restart_and_frames_that_were_gone(void **state)
{
	struct subscribe_options options = { .count = 1 };
	struct pl_accounts accounts = { .first = 50, .next = 60, .delivered = 8, .missed = 2 };
	const struct stream_used used = { .frames = 8, .next = 60, .lost = 2 };
	struct subscribe *subscribe = begin_subscribe(&options, &accounts, &used);
	struct pl_accounts sum;

	(void)state;
	subscribe->gone = 20;
	sum = subscribe_accounts(subscribe, true);
	assert_int_equal(sum.first, 30);
	assert_int_equal(sum.missed, 22);
	assert_int_equal(sum_of(&sum), sum.next - sum.first);
	subscribe_keep_accounts(subscribe);
	subscribe->restarts = 1;
	subscribe->info.accounts = (struct pl_accounts){ .first = 3, .next = 5, .delivered = 1, .lapped = 1 };
	subscribe->used = (struct stream_used){ .frames = 1, .next = 5, .lost = 1 };
	sum = subscribe_accounts(subscribe, true);
	assert_int_equal(sum.delivered, 9);
	assert_int_equal(stream_accounts_lost(&sum), 23);
	free(subscribe);
}

/* Each third sequence is wanted: of 20 that were gone, the first and 6 more. */
static void test_frames_that_were_gone_and_unwanted(void **state)
{
	struct subscribe_options options = { .source.stream.every = 3 };
	struct pl_accounts accounts = { .first = 50, .next = 51, .delivered = 1 };
	const struct stream_used used = { .frames = 1, .next = 51 };
	struct subscribe *subscribe = begin_subscribe(&options, &accounts, &used);
	struct pl_accounts sum;

	(void)state;
	subscribe->gone = 20;
	sum = subscribe_accounts(subscribe, true);
	assert_int_equal(stream_accounts_lost(&sum), 7);
	assert_int_equal(sum.unwanted, 13);
	assert_int_equal(sum_of(&sum), sum.next - sum.first);
	free(subscribe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_behind_the_last_are_left_out),
		cmocka_unit_test(test_aborted_sequences_hide_no_loss),
		cmocka_unit_test(test_frames_that_every_leaves_out),
		cmocka_unit_test(test_nothing_was_taken),
		cmocka_unit_test(test_restart_and_frames_that_were_gone),
		cmocka_unit_test(test_frames_that_were_gone_and_unwanted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
