/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers of one range: writes, reads, visibility. */
#include <stdlib.h>
#include <unistd.h>

#include "scenarios/scenario.h"

static const size_t sizes[] = { 0, 1, 7, 8, 4095, 4096, 65537, (1 << 20) + 3, 64 << 20 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Offsets that are odd and differ at both ends, so that a misaligned or exchanged offset shows. */
#define NEAR_OFFSET 3
#define FAR_OFFSET 13
#define MARGIN 32

/* Writes or reads `size` bytes and checks the receipt, the bytes and the memory around them. */
static void one_transfer(struct scenario_environment *environment, bool write, size_t size, uint64_t seed)
{
	const size_t from = write ? NEAR_OFFSET : FAR_OFFSET, to = write ? FAR_OFFSET : NEAR_OFFSET;
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct buffer near, far;
	const struct buffer *source = write ? &near : &far, *target = write ? &far : &near;
	struct pl_remote *remote;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	buffer_open(&near, environment->near, size + MARGIN, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, size + MARGIN, write ? PL_ACCESS_WRITE : PL_ACCESS_READ);
	remote = share(environment, far.region, environment->near_peer, NULL);
	pattern_fill(source->bytes, source->length, seed, 0);
	attributes.user_data = 1000 + seed;
	check_ok((write ? pl_write
			: pl_read)(environment->near_peer,
				   &(struct pl_transfer){ remote, FAR_OFFSET, near.region, NEAR_OFFSET, size },
				   &attributes, &operation, &error),
		 &error);
	complete(environment, operation, &receipt);
	receipt_check(environment, &receipt, write ? PL_KIND_WRITE : PL_KIND_READ, size);
	check_number(receipt.user_data, 1000 + seed);
	check(receipt.peer == environment->near_peer);
	value_check(target->bytes, to, POISON);
	pattern_check(target->bytes + to, size, seed, from);
	value_check(target->bytes + to + size, MARGIN - to, POISON);
	pattern_check(source->bytes, source->length, seed, 0);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

static void write_sizes(struct scenario_environment *environment)
{
	for (size_t i = 0; i < SIZES; i++)
		one_transfer(environment, true, sizes[i], i);
}

static void read_sizes(struct scenario_environment *environment)
{
	for (size_t i = 0; i < SIZES; i++)
		one_transfer(environment, false, sizes[i], i);
}

/* Both ends write to and read from each other at once: the accepting end can do all that the connecting end can. */
static void both_directions(struct scenario_environment *environment)
{
	enum { SIZE = 3 << 20 };
	struct pl_peer *peers[2] = { environment->near_peer, environment->far_peer };
	struct pl_context *contexts[2] = { environment->near, environment->far };
	struct buffer shared[2], own[2], back[2];
	struct pl_remote *remotes[2];
	struct pl_operation *writes[2], *reads[2];
	struct pl_error error;

	for (int i = 0; i < 2; i++) {
		buffer_open(&shared[i], contexts[i], 2 * SIZE, PL_ACCESS_ALL);
		buffer_open(&own[i], contexts[i], SIZE, PL_ACCESS_LOCAL);
		buffer_open(&back[i], contexts[i], SIZE, PL_ACCESS_LOCAL);
		pattern_fill(shared[i].bytes + SIZE, SIZE, 30 + (unsigned)i, 0);
		pattern_fill(own[i].bytes, SIZE, 40 + (unsigned)i, 0);
	}
	for (int i = 0; i < 2; i++)
		remotes[i] = share(environment, shared[!i].region, peers[i], NULL);
	for (int i = 0; i < 2; i++) {
		check_ok(pl_write(peers[i], &(struct pl_transfer){ remotes[i], 0, own[i].region, 0, SIZE }, NULL,
				  &writes[i], &error),
			 &error);
		check_ok(pl_read(peers[i], &(struct pl_transfer){ remotes[i], SIZE, back[i].region, 0, SIZE }, NULL,
				 &reads[i], &error),
			 &error);
	}
	for (int i = 0; i < 2; i++) {
		complete(environment, writes[i], NULL);
		complete(environment, reads[i], NULL);
	}
	for (int i = 0; i < 2; i++) {
		pattern_check(shared[i].bytes, SIZE, 40 + (unsigned)!i, 0);
		pattern_check(back[i].bytes, SIZE, 30 + (unsigned)!i, 0);
		pl_remote_release(remotes[i]);
		buffer_close(&own[i]);
		buffer_close(&back[i]);
	}
	buffer_close(&shared[0]);
	buffer_close(&shared[1]);
}

static void allocated_regions(struct scenario_environment *environment)
{
	enum { SIZE = (1 << 20) + 11 };
	struct pl_region *source, *target;
	struct pl_remote *remote;
	struct pl_operation *operation;
	struct pl_error error;
	uint8_t *from, *to;

	check_ok(pl_region_allocate(environment->near, SIZE, PL_ACCESS_LOCAL, &source, &error), &error);
	check_ok(pl_region_allocate(environment->far, SIZE, PL_ACCESS_ALL, &target, &error), &error);
	from = pl_region_address(source);
	to = pl_region_address(target);
	check_number(pl_region_length(source), SIZE);
	check_text(pl_region_memory(target), "host");
	check_number((uintptr_t)to % (size_t)sysconf(_SC_PAGESIZE), 0);
	value_check(from, SIZE, 0);
	value_check(to, SIZE, 0);
	pattern_fill(from, SIZE, 9, 0);
	remote = share(environment, target, environment->near_peer, NULL);
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, source, 0, SIZE }, NULL, &operation,
			  &error),
		 &error);
	complete(environment, operation, NULL);
	pattern_check(to, SIZE, 9, 0);
	memset(from, 0, SIZE);
	check_ok(pl_read(environment->near_peer, &(struct pl_transfer){ remote, 0, source, 0, SIZE }, NULL, &operation,
			 &error),
		 &error);
	complete(environment, operation, NULL);
	pattern_check(from, SIZE, 9, 0);
	pl_remote_release(remote);
	check_number(pl_region_deregister(source), 0);
	check_number(pl_region_deregister(target), 0);
}

#define MANY 1000
#define MANY_SLOT 3001

struct many {
	struct buffer from, into, far;
	struct pl_remote *remote;
	uint64_t sum;
};

/* Posts operation number i: a write of slot i, a read of slot i, or an addition to a common counter. */
static void many_post(struct scenario_environment *environment, struct many *many, size_t i)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_peer *peer = environment->near_peer;
	struct pl_error error;
	uint64_t slot = i * MANY_SLOT;

	attributes.user_data = i;
	if (i % 3 == 0) {
		check_ok(pl_write(peer, &(struct pl_transfer){ many->remote, 8 + slot, many->from.region, slot, i },
				  &attributes, NULL, &error),
			 &error);
	} else if (i % 3 == 1) {
		check_ok(pl_read(peer, &(struct pl_transfer){ many->remote, 8 + slot, many->into.region, slot, i },
				 &attributes, NULL, &error),
			 &error);
	} else {
		check_ok(pl_fetch_add(peer,
				      &(struct pl_atomic){ .remote = many->remote, .remote_offset = 0, .operand = i },
				      &attributes, NULL, &error),
			 &error);
		many->sum += i;
	}
}

static void many_check(const struct many *many)
{
	uint64_t word;

	bytes_get(many->far.bytes, &word, 8);
	check_number(word, many->sum);
	for (size_t i = 0; i < MANY; i++) {
		size_t slot = i * MANY_SLOT;

		if (i % 3 == 0) {
			pattern_check(many->far.bytes + 8 + slot, i, 50, slot);
			pattern_check(many->far.bytes + 8 + slot + i, MANY_SLOT - i, 51, 8 + slot + i);
		} else if (i % 3 == 1) {
			pattern_check(many->into.bytes + slot, i, 51, 8 + slot);
			value_check(many->into.bytes + slot + i, MANY_SLOT - i, POISON);
		}
	}
}

static void many_concurrent(struct scenario_environment *environment)
{
	static const enum pl_kind kinds[3] = { PL_KIND_WRITE, PL_KIND_READ, PL_KIND_FETCH_ADD };
	struct pl_completion *completions = calloc(MANY, sizeof(*completions));
	bool seen[MANY] = { false };
	struct many many = { .sum = 0 };

	buffer_open(&many.from, environment->near, MANY * MANY_SLOT, PL_ACCESS_LOCAL);
	buffer_open(&many.into, environment->near, MANY * MANY_SLOT, PL_ACCESS_LOCAL);
	buffer_open(&many.far, environment->far, 8 + MANY * MANY_SLOT, PL_ACCESS_ALL);
	pattern_fill(many.from.bytes, many.from.length, 50, 0);
	pattern_fill(many.far.bytes, many.far.length, 51, 0);
	bytes_set(many.far.bytes, 0, 8);
	many.remote = share(environment, many.far.region, environment->near_peer, NULL);
	for (size_t i = 0; i < MANY; i++)
		many_post(environment, &many, i);
	collect(environment, environment->near, completions, MANY);
	for (size_t i = 0; i < MANY; i++) {
		const struct pl_completion *receipt = &completions[i];

		check(receipt->user_data < MANY && !seen[receipt->user_data]);
		seen[receipt->user_data] = true;
		check_completion(environment->near, receipt, 0);
		check_number(receipt->kind, kinds[receipt->user_data % 3]);
		if (receipt->kind != PL_KIND_FETCH_ADD)
			receipt_check(environment, receipt, receipt->kind, receipt->user_data);
	}
	check_number(pl_poll(environment->near, completions, MANY), 0);
	many_check(&many);
	pl_remote_release(many.remote);
	buffer_close(&many.from);
	buffer_close(&many.into);
	buffer_close(&many.far);
	free(completions);
}

#define HELD 5
#define HELD_SIZE 64

/* Collects handles in an arbitrary order and checks that each belongs to its own operation. */
static void handles_in_any_order(struct scenario_environment *environment)
{
	struct pl_operation *operations[HELD];
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_remote *remote;
	struct pl_completion receipt;
	struct pl_error error;
	struct buffer near, far;

	buffer_open(&near, environment->near, HELD * HELD_SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, HELD * HELD_SIZE, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	for (unsigned round = 0; round < 60; round++) {
		unsigned count = 1 + round % HELD, first = round % 7;

		pattern_fill(near.bytes, near.length, round, 0);
		for (unsigned i = 0; i < count; i++) {
			attributes.user_data = i;
			check_ok(pl_write(environment->near_peer,
					  &(struct pl_transfer){ remote, i * HELD_SIZE, near.region, i * HELD_SIZE,
								 i + 1 },
					  &attributes, &operations[i], &error),
				 &error);
			for (unsigned j = 0; j < i; j++)
				check(operations[j] != operations[i]);
		}
		for (unsigned i = 0; i < count; i++) {
			unsigned turn = (first + i) % count;

			complete(environment, operations[turn], &receipt);
			receipt_check(environment, &receipt, PL_KIND_WRITE, turn + 1);
			check_number(receipt.user_data, turn);
			check(receipt.peer == environment->near_peer);
			pattern_check(far.bytes + turn * HELD_SIZE, turn + 1, round, turn * HELD_SIZE);
		}
	}
	/* Most of these operations are never collected.  The last one is fenced and waits for them. */
	for (unsigned i = 0; i < HELD; i++) {
		attributes.flags = i == HELD - 1 ? PL_FENCE : 0;
		check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 8 },
				  &attributes, &operations[i], &error),
			 &error);
	}
	complete(environment, operations[HELD - 1], NULL);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

/* Returns the rank of a level of visibility, from the weakest to the strongest. */
static unsigned rank(enum pl_visible visible)
{
	static const unsigned ranks[] = { [PL_VISIBLE_ON_WIRE] = 0,
					  [PL_VISIBLE_ACKNOWLEDGED] = 1,
					  [PL_VISIBLE_PLACED] = 2,
					  [PL_VISIBLE_GPU_VISIBLE] = 3 };

	check(visible < sizeof(ranks) / sizeof(ranks[0]));
	return ranks[visible];
}

static void check_visible(const struct pl_completion *receipt, enum pl_visible wanted)
{
	check(rank(receipt->visible) >= rank(wanted));
	check(receipt->visibility && *receipt->visibility);
}

/* Writes with each visibility, to one or two regions, through grants with and without read access. */
static void visibility_of_all(struct scenario_environment *environment)
{
	static const unsigned rights[] = { PL_ACCESS_WRITE | PL_ACCESS_READ, PL_ACCESS_WRITE };
	enum { SIZE = 100000, ROUNDS = 6 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct buffer near, far[2];
	struct pl_error error;

	attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	buffer_open(&near, environment->near, 2 * SIZE, PL_ACCESS_ALL);
	for (unsigned i = 0; i < 2; i++)
		buffer_open(&far[i], environment->far, SIZE, PL_ACCESS_ALL);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct pl_grant_options grant = PL_GRANT_OPTIONS_INIT;
		struct pl_operation *operations[8];
		struct pl_transfer transfers[3];
		struct pl_remote *remotes[2];
		struct pl_completion receipt;

		attributes.visible = round % 3 ? PL_VISIBLE_PLACED : PL_VISIBLE_GPU_VISIBLE;
		grant.rights = rights[round % 2];
		for (unsigned i = 0; i < 2; i++)
			remotes[i] = share(environment, far[i].region, environment->near_peer, &grant);
		pattern_fill(near.bytes, 2 * SIZE, 70 + round, 0);
		transfers[0] = (struct pl_transfer){ remotes[0], 0, near.region, 0, SIZE - 10 };
		transfers[1] = (struct pl_transfer){ remotes[0], SIZE - 10, near.region, SIZE - 10, 10 };
		transfers[2] = (struct pl_transfer){ remotes[1], 0, near.region, SIZE, SIZE };
		for (unsigned i = 0; i < 8; i++)
			check_ok(pl_writev(environment->near_peer, transfers, 3, &attributes, &operations[i], &error),
				 &error);
		for (unsigned i = 0; i < 8; i++) {
			complete(environment, operations[i], &receipt);
			receipt_check(environment, &receipt, PL_KIND_WRITE, 2 * SIZE);
			check_visible(&receipt, attributes.visible);
		}
		for (unsigned i = 0; i < 2; i++)
			pattern_check(far[i].bytes, SIZE, 70 + round, i * SIZE);
		if (round % 2 == 0) {
			check_ok(pl_read(environment->near_peer,
					 &(struct pl_transfer){ remotes[1], 0, near.region, 0, SIZE }, &attributes,
					 &operations[0], &error),
				 &error);
			complete(environment, operations[0], &receipt);
			check_visible(&receipt, attributes.visible);
			pattern_check(near.bytes, SIZE, 70 + round, SIZE);
		}
		for (unsigned i = 0; i < 2; i++)
			pl_remote_release(remotes[i]);
	}
	buffer_close(&near);
	for (unsigned i = 0; i < 2; i++)
		buffer_close(&far[i]);
}

/* Checks that the requested visibility does not change the bytes that arrive. */
static void visibility(struct scenario_environment *environment)
{
	static const enum pl_visible levels[] = { PL_VISIBLE_ON_WIRE, PL_VISIBLE_ACKNOWLEDGED, PL_VISIBLE_PLACED,
						  PL_VISIBLE_GPU_VISIBLE };
	enum { SIZE = 300000 };
	struct buffer source, target;
	struct pl_remote *remote;
	struct pl_error error;

	buffer_open(&source, environment->near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&target, environment->far, SIZE, PL_ACCESS_ALL);
	remote = share(environment, target.region, environment->near_peer, NULL);
	for (unsigned i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
		struct pl_operation *operation;
		struct pl_completion receipt;

		attributes.visible = levels[i];
		pattern_fill(source.bytes, SIZE, 60 + i, 0);
		check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, source.region, 0, SIZE },
				  &attributes, &operation, &error),
			 &error);
		complete(environment, operation, &receipt);
		receipt_check(environment, &receipt, PL_KIND_WRITE, SIZE);
		check_visible(&receipt, levels[i]);
		if (levels[i] == PL_VISIBLE_ON_WIRE) {
			bytes_set(source.bytes, POISON, SIZE);
			progress_until(environment, pattern_matches(target.bytes, SIZE, 60 + i, 0));
		}
		pattern_check(target.bytes, SIZE, 60 + i, 0);
	}
	pl_remote_release(remote);
	buffer_close(&source);
	buffer_close(&target);
}

const struct scenario transfer_scenarios[] = {
	{ "write-sizes", write_sizes, SCENARIO_HEAVY },
	{ "read-sizes", read_sizes, SCENARIO_HEAVY },
	{ "both-directions", both_directions, 0 },
	{ "allocated-regions", allocated_regions, 0 },
	{ "many-concurrent", many_concurrent, 0 },
	{ "handles-in-any-order", handles_in_any_order, 0 },
	{ "visibility", visibility, 0 },
	{ "visibility-of-all", visibility_of_all, 0 },
	{ NULL, NULL, 0 },
};
