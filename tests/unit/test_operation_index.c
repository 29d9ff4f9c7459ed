/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pl_cancel_posted() looks at few of a peer's operations. Those that it has put into the index end, time out, are lost and are
 * cancelled as others.
 */
#include "core/fabric.h"
#include "core/operation_index.h"
#include "support/cases.h"
#include "support/pair.h"

#define RECEIVES 1000u

static const struct setting setting = {
	.name = "operation-index", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* Posts receives of tags and user_data that count from 0. */
static void receives_post(struct pair *pair, uint64_t timeout)
{
	const struct pl_buffer buffer = { pair->near.region, 0, 8 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.timeout = timeout;
	for (unsigned i = 0; i < RECEIVES; i++) {
		attributes.user_data = i;
		check_ok(pl_receive(pair->environment.near_peer, i, UINT64_MAX, &buffer, &attributes, NULL, &error),
			 &error);
	}
}

static void open_with_receives(struct pair *pair, uint64_t timeout)
{
	pair_open(pair, &setting, 8);
	receives_post(pair, timeout);
}

/* Collects this number of completions with that status, each with its own user_data. */
static void collect_each(struct pair *pair, unsigned count, int status)
{
	struct pl_completion completions[RECEIVES];
	bool seen[RECEIVES] = { false };

	collect(&pair->environment, pair->environment.near, completions, count);
	for (unsigned i = 0; i < count; i++) {
		check_completion(pair->environment.near, &completions[i], status);
		check(completions[i].user_data < RECEIVES && !seen[completions[i].user_data]);
		seen[completions[i].user_data] = true;
	}
}

/* Returns the number of operations that are looked at for a value. */
static unsigned count_looks(struct pl_peer *peer, uint64_t user_data)
{
	struct pl_list taken;
	unsigned count = 0;
	bool found = false;

	pl_list_init(&taken);
	pl_engine_lock(peer->home);
	pl_operations_take_of(peer, user_data, &taken);
	pl_list_for_each(at, &taken) {
		count++;
		found |= pl_list_entry(at, struct pl_operation, peer_link)->attributes.user_data == user_data;
	}
	pl_list_splice(&peer->operations, &taken);
	pl_engine_unlock(peer->home);
	check(found);
	return count;
}

static void few_looks(void *unused)
{
	unsigned looks = 0;
	struct pair pair;

	(void)unused;
	open_with_receives(&pair, UINT64_MAX);
	for (unsigned i = 0; i < RECEIVES; i++)
		looks += count_looks(pair.environment.near_peer, i);
	check(looks < 4 * RECEIVES);
	for (unsigned i = 0; i < RECEIVES; i++)
		check_number(pl_cancel_posted(pair.environment.near, i), 1);
	collect_each(&pair, RECEIVES, -ECANCELED);
	pair_close(&pair);
}

/* Equal values, in two rounds of posting, of which the second comes when the index exists. */
static void equal_values(void *unused)
{
	struct pl_completion completions[2];
	struct pair pair;

	(void)unused;
	open_with_receives(&pair, UINT64_MAX);
	check_number(pl_cancel_posted(pair.environment.near, RECEIVES), 0);
	receives_post(&pair, UINT64_MAX);
	for (unsigned i = RECEIVES; i-- > 0;) {
		check_number(pl_cancel_posted(pair.environment.near, i), 2);
		collect(&pair.environment, pair.environment.near, completions, 2);
		for (unsigned j = 0; j < 2; j++) {
			check_completion(pair.environment.near, &completions[j], -ECANCELED);
			check_number(completions[j].user_data, i);
		}
		check_number(pl_cancel_posted(pair.environment.near, i), 0);
	}
	pair_close(&pair);
}

/* Fills the index: all receives but the first are in it then. */
static void index_fill(struct pair *pair)
{
	check_number(pl_cancel_posted(pair->environment.near, 0), 1);
	check(pair->environment.near_peer->operation_index.added >= RECEIVES - 1);
	collect_each(pair, 1, -ECANCELED);
}

static void messages_arrive(void *unused)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	open_with_receives(&pair, UINT64_MAX);
	index_fill(&pair);
	for (unsigned i = 1; i < RECEIVES; i++) {
		check_ok(pl_send(pair.environment.far_peer, i, &(struct pl_buffer){ pair.far.region, 0, 8 }, NULL,
				 &operation, &error),
			 &error);
		complete(&pair.environment, operation, NULL);
	}
	collect_each(&pair, RECEIVES - 1, 0);
	check_number(pl_cancel_posted(pair.environment.near, 1), 0);
	pair_close(&pair);
}

static void others_canceled(void *unused)
{
	struct pair pair;

	(void)unused;
	open_with_receives(&pair, UINT64_MAX);
	index_fill(&pair);
	check_number(pl_cancel_several_posted(pair.environment.near, (const uint64_t[]){ 0, 1, 2 }, 3), 2);
	check_number(pl_cancel_all_posted(pair.environment.near), RECEIVES - 3);
	collect_each(&pair, RECEIVES - 1, -ECANCELED);
	pair_close(&pair);
}

static void peer_lost(void *unused)
{
	struct pl_completion completions[RECEIVES + 1];
	struct pair pair;
	unsigned losses = 0;

	(void)unused;
	open_with_receives(&pair, UINT64_MAX);
	index_fill(&pair);
	pl_peer_close(pair.environment.far_peer);
	pair.environment.far_peer = NULL;
	collect(&pair.environment, pair.environment.near, completions, RECEIVES);
	for (unsigned i = 0; i < RECEIVES; i++) {
		check(completions[i].status < 0 && completions[i].status != -ECANCELED);
		losses += completions[i].kind == PL_KIND_LOST;
	}
	check_number(losses, 1);
	pair_close(&pair);
}

static void time_over(void *unused)
{
	const struct pl_operation_index *index;
	struct pl_peer *peer;
	struct pair pair;

	(void)unused;
	open_with_receives(&pair, AMPLE_TIME);
	index_fill(&pair);
	peer = pair.environment.near_peer;
	index = &peer->operation_index;
	pl_engine_lock(peer->home);
	for (size_t i = 0; i < index->size; i++) {
		pl_list_for_each(at, &index->lists[i])
			pl_list_entry(at, struct pl_operation, peer_link)->deadline = 0;
	}
	pl_operations_expire(&peer->deadline);
	pl_engine_unlock(peer->home);
	collect_each(&pair, RECEIVES - 1, -ETIMEDOUT);
	pair_close(&pair);
}

static void *allocate_nothing(size_t size, void *user)
{
	(void)size;
	(void)user;
	return NULL;
}

static void no_memory(void *unused)
{
	struct pl_allocator *allocator, before;
	struct pair pair;

	(void)unused;
	open_with_receives(&pair, UINT64_MAX);
	allocator = &pair.environment.near->allocator;
	before = *allocator;
	allocator->allocate = allocate_nothing;
	check_number(pl_cancel_posted(pair.environment.near, 7), 1);
	check_number(pl_cancel_posted(pair.environment.near, 6), 1);
	*allocator = before;
	check_number(pl_cancel_posted(pair.environment.near, 5), 1);
	collect_each(&pair, 3, -ECANCELED);
	check_number(pl_cancel_all_posted(pair.environment.near), RECEIVES - 3);
	collect_each(&pair, RECEIVES - 3, -ECANCELED);
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "few-looks", few_looks, NULL, 60 },
	{ "equal-values", equal_values, NULL, 60 },
	{ "messages-arrive", messages_arrive, NULL, 60 },
	{ "others-canceled", others_canceled, NULL, 60 },
	{ "peer-lost", peer_lost, NULL, 60 },
	{ "time-over", time_over, NULL, 60 },
	{ "no-memory", no_memory, NULL, 60 },
};

int main(void)
{
	return cases_run("operation-index", cases, PL_ARRAY_SIZE(cases));
}
