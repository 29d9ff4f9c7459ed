/* SPDX-License-Identifier: BSD-2-Clause */
/* Trailing words over tcp: the word behind the bytes of a read, and frames of a stream that it judges. */
#include <stdio.h>

#include <peerlane/stream.h>

#include "core/peer.h"
#include "core/remote.h"
#include "core/stream_ops.h"
#include "stream/publisher.h"
#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define SLOTS 4u
#define LARGE ((size_t)3 << 20)
#define SPREAD ((size_t)16 << 20)

/* -- the word -------------------------------------------------------------------------------------------------------- */

/* Memory of `far` that `near` reads, with a trailing word. */
struct word_rig {
	struct scenario_environment environment;
	struct buffer source, destination;
	struct pl_remote *remote;
	uint64_t word;
};

static void store(struct word_rig *rig, uint64_t value)
{
	__atomic_store_n(&rig->word, htole64(value), __ATOMIC_RELEASE);
}

static void word_rig_open(struct word_rig *rig, const struct setting *setting, bool has_word)
{
	struct scenario_environment *environment = &rig->environment;
	uint8_t token[PL_TOKEN_SIZE];

	environment_open(environment, setting);
	buffer_open(&rig->source, environment->far, SPREAD, PL_ACCESS_READ);
	buffer_open(&rig->destination, environment->near, SPREAD, PL_ACCESS_LOCAL);
	pattern_fill(rig->source.bytes, SPREAD, 1, 0);
	store(rig, 1);
	pl_engine_lock(environment->far_peer->home);
	check_number(pl_grant_bind(rig->source.region, PL_ACCESS_READ, environment->far_peer, has_word ? &rig->word : NULL,
				   token),
		     0);
	pl_engine_unlock(environment->far_peer->home);
	rig->remote = import_token(environment, environment->near_peer, token, sizeof(token));
	rig->remote->trailing = true;
}

static void word_rig_close(struct word_rig *rig)
{
	pl_remote_release(rig->remote);
	buffer_close(&rig->source);
	buffer_close(&rig->destination);
	environment_close(&rig->environment);
}

static struct pl_operation *begin_read(struct word_rig *rig, size_t length)
{
	const struct pl_transfer transfer = { rig->remote, 0, rig->destination.region, 0, length };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_read(rig->environment.near_peer, &transfer, NULL, &operation, &error), &error);
	return operation;
}

/* Answers that are copied at once, answers that the kernel sends from their place, and chunks over several lanes. */
static void test_lengths(void *argument)
{
	static const size_t lengths[] = { 1, 64, PL_KEY_BLOB_MAX, PL_KEY_BLOB_MAX + 1, 65536, SPREAD };
	struct pl_completion receipt;
	struct word_rig rig;

	for (unsigned has_word = 0; has_word < 2; has_word++) {
		word_rig_open(&rig, argument, has_word);
		for (unsigned i = 0; i < PL_ARRAY_SIZE(lengths); i++) {
			store(&rig, 100 + i);
			bytes_set(rig.destination.bytes, POISON, SPREAD);
			complete(&rig.environment, begin_read(&rig, lengths[i]), &receipt);
			pattern_check(rig.destination.bytes, lengths[i], 1, 0);
			check_number(receipt.value, has_word ? 100 + i : 0);
		}
		word_rig_close(&rig);
	}
}

/* The word changes after the owner has got the requests, and before it has copied all bytes. */
static void test_word_is_loaded_behind_the_bytes(void *argument)
{
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct word_rig rig;

	word_rig_open(&rig, argument, true);
	operation = begin_read(&rig, SPREAD);
	/* Without a reader the sockets take less than that. */
	for (unsigned i = 0; i < 1000; i++)
		pl_poll(rig.environment.far, NULL, 0);
	store(&rig, 2);
	complete(&rig.environment, operation, &receipt);
	check_number(receipt.value, 2);
	pattern_check(rig.destination.bytes, SPREAD, 1, 0);
	word_rig_close(&rig);
}

/* -- frames ---------------------------------------------------------------------------------------------------------- */

struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct pump pump;
};

/* `old`: the subscriber's end believes that the publisher's is of an earlier release. */
static void rig_open(struct rig *rig, const struct setting *setting, enum pl_overflow overflow, bool old)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	rig->publisher = open_blocking_publisher(rig->environment.far, "cam0", LARGE, SLOTS);
	pl_engine_lock(rig->environment.near_peer->home);
	check(rig->environment.near_peer->trailing_words);
	rig->environment.near_peer->trailing_words = !old;
	pl_engine_unlock(rig->environment.near_peer->home);
	pump_start(&rig->environment, &rig->pump, rig->environment.far);
	options.overflow = overflow;
	options.queue = SLOTS;
	check_ok(pl_subscriber_open(rig->environment.near_peer, "cam0", &options, AMPLE_TIME, &rig->subscriber, &error),
		 &error);
}

static void rig_close(struct rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	pump_stop(&rig->pump);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static void take_whole(struct rig *rig, uint64_t sequence)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;

	check_number(pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error), 1);
	check(pl_frame_query(frame, &info) == 0 && info.sequence == sequence);
	pattern_check(info.data, info.length, info.sequence, 0);
	pl_frame_release(frame);
}

static uint64_t count_checks(const struct rig *rig)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;

	check(pl_subscriber_query(rig->subscriber, &info) == 0);
	return info.checks;
}

/* Frames whose descriptors came with announcements need no read of the cursors, unless the publisher's end is old. */
static void test_checks(void *argument)
{
	static const uint64_t lengths[] = { 1, 100, 161, 65536, LARGE, 3 };
	struct rig rig;

	for (unsigned old = 0; old < 2; old++) {
		rig_open(&rig, argument, PL_OVERFLOW_BLOCK, old);
		for (unsigned i = 0; i < PL_ARRAY_SIZE(lengths); i++) {
			publish_filled(rig.publisher, lengths[i]);
			take_whole(&rig, i);
		}
		check_number(count_checks(&rig), old ? PL_ARRAY_SIZE(lengths) : 0);
		rig_close(&rig);
	}
}

/* The publisher overwrites the slot after the subscriber has asked for its bytes. */
static void test_lapped(void *argument)
{
	struct pl_accounts accounts;
	struct rig rig;

	rig_open(&rig, argument, PL_OVERFLOW_DROP_OLDEST, false);
	pump_stop(&rig.pump);
	publish_filled(rig.publisher, LARGE);
	/* The engine of the publisher sends the announcement, and nothing else makes progress there. */
	do {
		pl_poll(rig.environment.far, NULL, 0);
		pl_poll(rig.environment.near, NULL, 0);
		accounts = exact_accounts(rig.subscriber);
	} while (accounts.pending == 0);
	for (unsigned i = 0; i < SLOTS; i++)
		publish_filled(rig.publisher, 10);
	progress_until(&rig.environment, exact_accounts(rig.subscriber).next == SLOTS + 1);
	pump_start(&rig.environment, &rig.pump, rig.environment.far);
	for (uint64_t sequence = 1; sequence <= SLOTS; sequence++)
		take_whole(&rig, sequence);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.lapped == 1 && accounts.delivered == SLOTS && count_checks(&rig) == 0);
	rig_close(&rig);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "lengths threads", test_lengths, (void *)&frames_tcp_threads, 20 },
		{ "lengths key", test_lengths, (void *)&frames_tcp_key, 20 },
		{ "lengths manual", test_lengths, (void *)&frames_tcp_manual, 20 },
		{ "behind the bytes", test_word_is_loaded_behind_the_bytes, (void *)&frames_tcp_manual, 20 },
		{ "checks threads", test_checks, (void *)&frames_tcp_threads, 20 },
		{ "checks key", test_checks, (void *)&frames_tcp_key, 20 },
		{ "checks manual", test_checks, (void *)&frames_tcp_manual, 20 },
		{ "lapped", test_lapped, (void *)&frames_tcp_manual, 20 },
	};

	return cases_run("stream_trailing", cases, PL_ARRAY_SIZE(cases));
}
