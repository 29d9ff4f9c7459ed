/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys of grants, on cards whose drivers use a key again: a revoked token stays revoked. Grants that are longer than the
 * windows of a card. Registrations that fail at their begin or end.
 */
#include <stdlib.h>
#include <string.h>

#include "card/card.h"
#include "card/settings.h"
#include "core/remote.h"
#include "fabric/verbs/verbs.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/pair.h"

#define LENGTH 4096u
#define LONG (1u << 20)

struct reuse_case {
	const char *character;
	bool narrow, gpu;
	unsigned rights, rails;
	const char *cards, *foreign; /* STANDIN_CARDS, STANDIN_FOREIGN; NULL: not set */
};

static uint32_t rkey_of(const struct pl_remote *remote)
{
	struct pl_reader reader;

	pl_reader_init(&reader, remote->key + VERBS_KEY_RKEYS, sizeof(uint32_t));
	return pl_get_u32(&reader);
}

static uint64_t address_of(const struct pl_remote *remote)
{
	struct pl_reader reader;

	pl_reader_init(&reader, remote->key + sizeof(uint64_t), sizeof(uint64_t));
	return pl_get_u64(&reader);
}

static int write_by(struct pair *pair, struct pl_remote *remote, size_t length, struct pl_error *error)
{
	const struct pl_transfer transfer = { remote, 0, pair->near.region, 0, length };
	struct pl_operation *operation;
	int rc = pl_write(pair->environment.near_peer, &transfer, NULL, &operation, error);

	return rc < 0 ? rc : await(&pair->environment, operation, NULL, error);
}

/* The driver gives the second token's registration the key of the first token, which was revoked. */
static void revoked(void *argument)
{
	const struct reuse_case *test = argument;
	struct pl_grant_options options = { .size = sizeof(options), .rights = test->rights };
	uint8_t tokens[2][PL_TOKEN_MAX];
	size_t lengths[2] = { PL_TOKEN_MAX, PL_TOKEN_MAX };
	struct pl_remote *remotes[2];
	struct pl_error error;
	struct buffer buffer;
	struct pair pair;

	setenv("STANDIN_CARD", test->character, 1);
	if (test->cards)
		setenv("STANDIN_CARDS", test->cards, 1);
	if (test->foreign)
		setenv("STANDIN_FOREIGN", test->foreign, 1);
	rail_limit = test->rails;
	narrow_grants = test->narrow;
	pair_open(&pair, &card_manual, LENGTH);
	if (test->gpu)
		check(gpu_open("alloc"));
	buffer_open_bare(&buffer, LENGTH);
	check_ok(pl_region_register(pair.environment.far, buffer.address, LENGTH, test->rights, &buffer.region, &error),
		 &error);
	pattern_fill(buffer.bytes, LENGTH, 1, 0);
	pattern_fill(pair.near.bytes, LENGTH, 2, 0);
	for (unsigned i = 0; i < 2; i++) {
		check_ok(pl_region_share(buffer.region, &options, tokens[i], &lengths[i], &error), &error);
		remotes[i] = import_token(&pair.environment, pair.environment.near_peer, tokens[i], lengths[i]);
		if (i == 0)
			check_number(pl_region_revoke(buffer.region, tokens[0], lengths[0]), 0);
	}
	check_number(rkey_of(remotes[0]), rkey_of(remotes[1]));
	check_number(write_by(&pair, remotes[0], 8, &error), -EACCES);
	check_text(error.id, "RDMA-REMOTE-ACCESS");
	pattern_check(buffer.bytes, LENGTH, 1, 0);
	check_ok(write_by(&pair, remotes[1], 8, &error), &error);
	pattern_check(buffer.bytes, 8, 2, 0);
	pl_remote_release(remotes[0]);
	pl_remote_release(remotes[1]);
	buffer_close(&buffer);
	gpu_kind = NULL;
	pair_close(&pair);
}

/* Memory near no card goes over all rails: one address must serve all drivers. */
static void common_address(void *argument)
{
	struct pl_error error;
	struct pair pair;

	(void)argument;
	setenv("STANDIN_CARDS", "2", 1);
	setenv("STANDIN_FOREIGN", "2", 1);
	rail_limit = 2;
	narrow_grants = false;
	pair_open(&pair, &card_manual, LONG);
	check(address_of(pair.remote) == (uintptr_t)pair.far.bytes);
	pair_spread(&pair, 2);
	pattern_fill(pair.near.bytes, LONG, 1, 0);
	check_ok(write_by(&pair, pair.remote, LONG, &error), &error);
	pattern_check(pair.far.bytes, LONG, 1, 0);
	pair_close(&pair);
}

/* A peer that knows the addresses of its grants cannot tell those of the next one. */
static void gaps(void *argument)
{
	uint64_t before = 0, step = 0;
	bool varied = false;
	struct pair pair;

	(void)argument;
	narrow_grants = false;
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned i = 0; i < 6; i++) {
		struct pl_remote *remote = share(&pair.environment, pair.far.region, pair.environment.near_peer, NULL);
		const uint64_t address = address_of(remote);

		check(address > before);
		varied |= i > 1 && address - before != step;
		step = address - before;
		before = address;
		pl_remote_release(remote);
	}
	check(varied);
	pair_close(&pair);
}

/* Shares a region, and returns the number of windows that the import bound. */
static unsigned windows_of(struct pair *pair, struct pl_region *region, struct pl_remote **remote)
{
	const unsigned bound = card_counts_now().bound;

	*remote = share(&pair->environment, region, pair->environment.near_peer, NULL);
	return card_counts_now().bound - bound;
}

/* True if the owner's log has a grant with this reason. */
static bool is_granted(struct pl_peer *peer, const char *reason)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record records[64];
	int count = pl_peer_events(peer, &query, records, 64);
	bool found = false;

	for (int i = 0; i < count; i++)
		found |= records[i].event == PL_EVENT_GRANTED && strstr(records[i].text, reason);
	return found;
}

/* A grant that is too long for a window costs no other grant its window. */
static void too_long(void *argument)
{
	struct pl_remote *remotes[4];
	struct buffer large;
	struct pl_error error;
	struct pair pair;

	(void)argument;
	narrow_grants = true;
	setenv("STANDIN_WINDOW_MAX", "524288", 1);
	pair_open(&pair, &card_manual, LENGTH);
	buffer_open(&large, pair.environment.far, LONG, PL_ACCESS_READ | PL_ACCESS_WRITE);
	/* The driver refuses the first long window; after that none is tried. */
	for (unsigned i = 0; i < 2; i++) {
		check_number(windows_of(&pair, large.region, &remotes[2 * i]), 0);
		check(is_granted(pair.environment.far_peer, "memory windows are not that long"));
		check_ok(write_by(&pair, remotes[2 * i], 8, &error), &error);
		check_number(windows_of(&pair, pair.far.region, &remotes[2 * i + 1]), 1);
		check_ok(write_by(&pair, remotes[2 * i + 1], 8, &error), &error);
	}
	check_number(card_counts_now().refused, 1);
	for (unsigned i = 0; i < 4; i++)
		pl_remote_release(remotes[i]);
	buffer_close(&large);
	pair_close(&pair);
}

/*
 * The driver does not end a revoked registration, or a window if `argument` is true: the token does not work any more, and
 * later ones do.
 */
static void stuck(void *argument)
{
	const bool windows = *(const bool *)argument;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_remote *remote;
	struct pl_error error;
	unsigned connects;
	struct pair pair;

	narrow_grants = windows;
	pair_open(&pair, &card_manual, LENGTH);
	check_ok(pl_region_share(pair.far.region, NULL, token, &length, &error), &error);
	remote = import_token(&pair.environment, pair.environment.near_peer, token, length);
	pattern_fill(pair.far.bytes, LENGTH, 1, 0);
	pattern_fill(pair.near.bytes, LENGTH, 2, 0);
	connects = card_counts_now().connects;
	card_fault_next(windows ? CARD_DEALLOC : CARD_DEREG);
	check_number(pl_region_revoke(pair.far.region, token, length), 0);
	progress_until(&pair.environment, card_counts_now().connects > connects);
	check(write_by(&pair, remote, 8, &error) < 0);
	pattern_check(pair.far.bytes, LENGTH, 1, 0);
	pl_remote_release(remote);
	remote = share(&pair.environment, pair.far.region, pair.environment.near_peer, NULL);
	check_ok(write_by(&pair, remote, 8, &error), &error);
	pattern_check(pair.far.bytes, 8, 2, 0);
	pl_remote_release(remote);
	pair_close(&pair);
}

/* Call of the driver that fails while a failed queue pair ends. */
struct failed_end {
	bool narrow_grants; /* a window is bound through the queue pair */
	enum card_fault fault;
};
static struct failed_end destroying = { false, CARD_DESTROY }, deallocating = { true, CARD_DEALLOC };

/* The driver keeps the queue pair of one rail, or its window: the device is opened anew, and so is the other rail. */
static void not_released(void *argument)
{
	const struct failed_end *end = argument;
	struct pl_error error;
	unsigned made;
	struct pair pair;

	narrow_grants = end->narrow_grants;
	rail_limit = 2;
	pair_open(&pair, &card_manual, LONG);
	pair_spread(&pair, 2);
	made = card_counts_now().made_qps;
	card_fault_next(end->fault);
	card_fault_next(CARD_UNDELIVERED);
	check_ok(write_by(&pair, pair.remote, 8, &error), &error);
	progress_until(&pair.environment, card_counts_now().made_qps >= made + 4);
	check_ok(write_by(&pair, pair.remote, 8, &error), &error);
	pair_close(&pair);
}

/* A limit of the cgroup is a lack of memory, which may end. */
static void cgroup(void *argument)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;
	struct pair pair;

	(void)argument;
	narrow_grants = false;
	pair_open(&pair, &card_manual, LENGTH);
	/* Neither the region nor buffers to stage it can be registered. */
	card_faults_next(CARD_CGROUP, 1000);
	check_number(write_by(&pair, pair.remote, 8, &error), -ENOMEM);
	check_text(error.id, "RDMA-REGISTER");
	check(strstr(error.hint, "rdma.max"));
	card_faults_next(CARD_CGROUP, 0);
	check_ok(write_by(&pair, pair.remote, 8, &error), &error);
	check_ok(pl_region_share(pair.far.region, NULL, token, &length, &error), &error);
	card_fault_next(CARD_CGROUP);
	check_number(import_status(&pair.environment, pair.environment.near_peer, token, length), -EBUSY);
	pl_remote_release(import_token(&pair.environment, pair.environment.near_peer, token, length));
	pair_close(&pair);
}

#define WRITABLE (PL_ACCESS_READ | PL_ACCESS_WRITE)

static const struct reuse_case stack = { "cx7-roce", .rights = WRITABLE };
static const struct reuse_case atomics = { "cx7-roce", .narrow = true, .rights = WRITABLE | PL_ACCESS_ATOMIC };
static const struct reuse_case gpu_memory = { "cx7-roce", .narrow = true, .gpu = true, .rights = WRITABLE };
static const struct reuse_case qlogic = { "qedr", .narrow = true, .rights = WRITABLE };
static const struct reuse_case other_card = { "cx7-roce", .rights = WRITABLE, .rails = 1, .cards = "2",
					      .foreign = "2" };
static const struct reuse_case lowest = { "hns", .narrow = true, .rights = WRITABLE };

static const bool no = false, yes = true;

static const struct test_case cases[] = {
	{ "key of a stack", revoked, &stack, 30 },
	{ "key of a grant with atomics", revoked, &atomics, 30 },
	{ "key of GPU memory", revoked, &gpu_memory, 30 },
	{ "lowest key", revoked, &lowest, 30 },
	{ "lowest key of qedr", revoked, &qlogic, 30 },
	{ "key beside another driver's card", revoked, &other_card, 30 },
	{ "one address for two drivers", common_address, NULL, 30 },
	{ "gaps between addresses", gaps, NULL, 30 },
	{ "grant longer than a window", too_long, NULL, 30 },
	{ "registration that does not end", stuck, (void *)&no, 30 },
	{ "window that does not end", stuck, (void *)&yes, 30 },
	{ "queue pair that does not end", not_released, &destroying, 30 },
	{ "window of a queue pair that failed", not_released, &deallocating, 30 },
	{ "limit of the cgroup", cgroup, NULL, 30 },
};

int main(void)
{
	return cases_run("card keys", cases, sizeof(cases) / sizeof(cases[0]));
}
