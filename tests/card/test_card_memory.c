/* SPDX-License-Identifier: BSD-2-Clause */
/* Registrations of the stand-in card: their ordering, their number for several peers, and a full BAR1. */
#include <stdio.h>
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/pair.h"

#define LENGTH 65536u

static struct pl_operation *post_write(struct pair *pair, const struct buffer *from, struct pl_remote *to, unsigned flags)
{
	const struct pl_transfer transfer = { to, 0, from->region, 0, LENGTH };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.flags = flags;
	check_ok(pl_write(pair->environment.near_peer, &transfer, &attributes, &operation, &error), &error);
	return operation;
}

/* Opens a region of other memory with the same access at both ends. */
static void strict_open(struct buffer *buffer, struct pl_context *context, unsigned access)
{
	struct pl_error error;

	buffer_open_bare(buffer, LENGTH);
	check_ok(pl_region_register(context, buffer->address, LENGTH, access, &buffer->region, &error), &error);
}

/* Registers no strict region with relaxed ordering, neither for this end nor for a peer. */
static void strict(void *argument)
{
	const bool narrow = *(const bool *)argument;
	struct buffer from, to, same;
	struct pl_remote *remote;
	unsigned relaxed, regions;
	struct pl_error error;
	struct pair pair;

	narrow_grants = narrow;
	pair_open(&pair, &card_manual, LENGTH);
	complete(&pair.environment, post_write(&pair, &pair.near, pair.remote, 0), NULL);
	relaxed = card_counts_now().relaxed;
	regions = card_counts_now().mrs;
	check(relaxed >= 1);
	strict_open(&from, pair.environment.near, PL_ACCESS_LOCAL | PL_ACCESS_STRICT);
	strict_open(&to, pair.environment.far, PL_ACCESS_READ | PL_ACCESS_WRITE | PL_ACCESS_STRICT);
	remote = share(&pair.environment, to.region, pair.environment.near_peer, NULL);
	check_number(pl_remote_rights(remote), PL_ACCESS_READ | PL_ACCESS_WRITE);
	pattern_fill(from.bytes, LENGTH, 1, 0);
	complete(&pair.environment, post_write(&pair, &from, remote, 0), NULL);
	pattern_check(to.bytes, LENGTH, 1, 0);
	check_number(card_counts_now().mrs, regions + 2);
	check_number(card_counts_now().relaxed, relaxed);
	/* Another region of the memory does not share a registration of the other order. */
	same = from;
	check_ok(pl_region_register(pair.environment.near, from.address, LENGTH, 0, &same.region, &error), &error);
	complete(&pair.environment, post_write(&pair, &same, remote, 0), NULL);
	check_number(card_counts_now().relaxed, relaxed + 1);
	check_number(pl_region_deregister(same.region), 0);
	/* The flag is no right that a token gives. */
	check_number(pl_region_share(to.region, &(struct pl_grant_options){ .size = sizeof(struct pl_grant_options),
									    .rights = PL_ACCESS_STRICT },
				     (uint8_t[PL_TOKEN_MAX]){ 0 }, &(size_t){ PL_TOKEN_MAX }, &error),
		     -EACCES);
	pl_remote_release(remote);
	buffer_close(&from);
	buffer_close(&to);
	pair_close(&pair);
}

/* Peers that import one token share its registration; each token has one of its own. */
static void tokens(void *argument)
{
	struct pl_peer *beside, *beside_far;
	struct pl_remote *remotes[4];
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;
	struct pair pair;
	unsigned mrs;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	connect_pair(&pair.environment, pair.environment.near, pair.environment.listener, &beside, &beside_far);
	check_ok(pl_region_share(pair.far.region, NULL, token, &length, &error), &error);
	mrs = card_counts_now().mrs;
	remotes[0] = import_token(&pair.environment, pair.environment.near_peer, token, length);
	remotes[1] = import_token(&pair.environment, beside, token, length);
	check_number(card_counts_now().mrs, mrs + 1);
	remotes[2] = share(&pair.environment, pair.far.region, pair.environment.near_peer, NULL);
	remotes[3] = share(&pair.environment, pair.far.region, beside, NULL);
	check_number(card_counts_now().mrs, mrs + 3);
	check_number(pl_region_revoke(pair.far.region, token, length), 0);
	check_number(card_counts_now().mrs, mrs + 2);
	complete(&pair.environment, post_write(&pair, &pair.near, remotes[2], 0), NULL);
	for (unsigned i = 0; i < 4; i++)
		pl_remote_release(remotes[i]);
	pl_peer_close(beside);
	pl_peer_close(beside_far);
	pair_close(&pair);
}

/* A full BAR1 is named: by the completion of a staged write, by the error of a direct one, and to an importing peer. */
static void bar1(void *argument)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_completion receipt;
	struct pl_error error;
	struct buffer gpu;
	struct pair pair;

	/* A registration of a dma-buf has no windows in either case. */
	narrow_grants = *(const bool *)argument;
	pair_open(&pair, &card_manual, LENGTH);
	check(gpu_open("alloc"));
	buffer_open(&gpu, pair.environment.near, LENGTH, PL_ACCESS_ALL);
	pattern_fill(gpu.bytes, LENGTH, 2, 0);
	check_ok(pl_region_share(gpu.region, NULL, token, &length, &error), &error);
	setenv("STANDIN_BAR1", "1000", 1);
	complete(&pair.environment, post_write(&pair, &gpu, pair.remote, 0), &receipt);
	check_number(receipt.route, PL_ROUTE_STAGED);
	check(strstr(receipt.reason, "BAR1") && strstr(receipt.reason, "gpu-bar1"));
	check_number(await(&pair.environment, post_write(&pair, &gpu, pair.remote, PL_REQUIRE_DIRECT), NULL, &error),
		     -ENOTSUP);
	check(!strcmp(error.id, "NOT-DIRECT") && strstr(error.message, "BAR1"));
	check_number(import_status(&pair.environment, pair.environment.far_peer, token, length), -EBUSY);
	/* There is room again, which is found after 1 s. */
	unsetenv("STANDIN_BAR1");
	settle(&pair.environment, 1100);
	complete(&pair.environment, post_write(&pair, &gpu, pair.remote, PL_REQUIRE_DIRECT), &receipt);
	check_number(receipt.route, PL_ROUTE_DIRECT);
	pattern_check(pair.far.bytes, LENGTH, 2, 0);
	pl_remote_release(import_token(&pair.environment, pair.environment.far_peer, token, length));
	buffer_close(&gpu);
	gpu_kind = NULL;
	pair_close(&pair);
}

/* Cards that register memory with relaxed ordering only: they serve all but words that need another order. */
static void relaxed_only(void *argument)
{
	const struct pl_grant_options options = { .size = sizeof(options),
						  .rights = PL_ACCESS_READ | PL_ACCESS_ATOMIC };
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;
	struct pair pair = { 0 };

	(void)argument;
	narrow_grants = false;
	setenv("STANDIN_RELAXED_ONLY", "1", 1);
	environment_open(&pair.environment, &card_manual);
	buffer_open(&pair.near, pair.environment.near, LENGTH, PL_ACCESS_READ | PL_ACCESS_WRITE);
	buffer_open(&pair.far, pair.environment.far, LENGTH, PL_ACCESS_ALL);
	check_ok(pl_region_share(pair.far.region, &options, token, &length, &error), &error);
	check(import_status(&pair.environment, pair.environment.near_peer, token, length) < 0);
	buffer_close(&pair.far);
	buffer_open(&pair.far, pair.environment.far, LENGTH, PL_ACCESS_READ | PL_ACCESS_WRITE);
	pair.remote = share(&pair.environment, pair.far.region, pair.environment.near_peer, NULL);
	pattern_fill(pair.near.bytes, LENGTH, 1, 0);
	complete(&pair.environment, post_write(&pair, &pair.near, pair.remote, 0), NULL);
	pattern_check(pair.far.bytes, LENGTH, 1, 0);
	pair_close(&pair);
}

/* A limit of the cgroup is named, and not the GPU's BAR1. */
static void limited(void *argument)
{
	struct pl_completion receipt;
	struct buffer gpu;
	struct pair pair;

	(void)argument;
	narrow_grants = false;
	pair_open(&pair, &card_manual, LENGTH);
	check(gpu_open("alloc"));
	buffer_open(&gpu, pair.environment.near, LENGTH, PL_ACCESS_ALL);
	card_fault_next(CARD_CGROUP);
	complete(&pair.environment, post_write(&pair, &gpu, pair.remote, 0), &receipt);
	check_number(receipt.route, PL_ROUTE_STAGED);
	check(strstr(receipt.reason, "rdma.max") && !strstr(receipt.reason, "BAR1"));
	/* It may end. */
	settle(&pair.environment, 1100);
	complete(&pair.environment, post_write(&pair, &gpu, pair.remote, PL_REQUIRE_DIRECT), &receipt);
	check_number(receipt.route, PL_ROUTE_DIRECT);
	buffer_close(&gpu);
	gpu_kind = NULL;
	pair_close(&pair);
}

static const bool yes = true, no = false;

static const struct test_case cases[] = {
	{ "strict ordering", strict, &no, 30 },
	{ "strict ordering with windows", strict, &yes, 30 },
	{ "registrations of tokens", tokens, NULL, 30 },
	{ "full BAR1", bar1, &no, 30 },
	{ "relaxed ordering only", relaxed_only, NULL, 30 },
	{ "full BAR1 with windows", bar1, &yes, 30 },
	{ "limit of the cgroup", limited, NULL, 30 },
};

int main(void)
{
	return cases_run("card memory", cases, sizeof(cases) / sizeof(cases[0]));
}
