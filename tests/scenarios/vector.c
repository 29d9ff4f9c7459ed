/* SPDX-License-Identifier: BSD-2-Clause */
/* Vector transfers: many ranges as one operation. */
#include <stdlib.h>

#include "scenarios/scenario.h"
#include "support/gpu.h"

#define SLOT 128
#define REGIONS 3

struct vectors {
	struct buffer near[REGIONS], far[REGIONS];
	struct pl_remote *remotes[REGIONS];
	struct pl_transfer *transfers;
	size_t count;
	uint64_t bytes;
};

/*
 * Opens vectors.  Element i moves i % 113 bytes between slot i at `near` and a distant slot at `far`, of another
 * region.
 */
static void vectors_open(struct scenario_environment *environment, struct vectors *vectors, size_t count)
{
	size_t slots = count / REGIONS + 1;

	vectors->count = count;
	vectors->bytes = 0;
	vectors->transfers = calloc(count, sizeof(*vectors->transfers));
	check(vectors->transfers);
	for (unsigned r = 0; r < REGIONS; r++) {
		buffer_open(&vectors->near[r], environment->near, slots * SLOT, PL_ACCESS_LOCAL);
		buffer_open(&vectors->far[r], environment->far, slots * SLOT, PL_ACCESS_ALL);
		vectors->remotes[r] = share(environment, vectors->far[r].region, environment->near_peer, NULL);
	}
	for (size_t i = 0; i < count; i++) {
		size_t slot = i / REGIONS;

		vectors->transfers[i] = (struct pl_transfer){
			.remote = vectors->remotes[(i + 1) % REGIONS],
			.remote_offset = (slots - 1 - slot) * SLOT + i % 5,
			.region = vectors->near[i % REGIONS].region,
			.offset = slot * SLOT + i % 7,
			.length = count == 1 ? 113 : i % 113,
		};
		vectors->bytes += vectors->transfers[i].length;
	}
}

static void vectors_close(struct vectors *vectors)
{
	for (unsigned r = 0; r < REGIONS; r++) {
		pl_remote_release(vectors->remotes[r]);
		buffer_close(&vectors->near[r]);
		buffer_close(&vectors->far[r]);
	}
	free(vectors->transfers);
}

/* Fills one end with patterns and the other with POISON. */
static void vectors_fill(struct buffer *from, struct buffer *to)
{
	for (unsigned r = 0; r < REGIONS; r++) {
		pattern_fill(from[r].bytes, from[r].length, 70 + r, 0);
		bytes_set(to[r].bytes, POISON, to[r].length);
	}
}

static void vectors_check(const struct vectors *vectors, bool written)
{
	const struct buffer *to = written ? vectors->far : vectors->near;
	size_t touched = 0;

	for (size_t i = 0; i < vectors->count; i++) {
		const struct pl_transfer *transfer = &vectors->transfers[i];
		unsigned near = i % REGIONS, far = (i + 1) % REGIONS;

		if (written)
			pattern_check(vectors->far[far].bytes + transfer->remote_offset, transfer->length, 70 + near,
				      transfer->offset);
		else
			pattern_check(vectors->near[near].bytes + transfer->offset, transfer->length, 70 + far,
				      transfer->remote_offset);
	}
	/* No pattern byte equals POISON, so every other byte was written. */
	for (unsigned r = 0; r < REGIONS; r++) {
		mirror_fetch(to[r].bytes, to[r].length);
		for (size_t i = 0; i < to[r].length; i++)
			touched += to[r].bytes[i] != POISON;
	}
	check_number(touched, vectors->bytes);
}

static void vector_counts(struct scenario_environment *environment)
{
	static const size_t counts[] = { 1, 2, 100, 4096 };

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct vectors vectors;
		struct pl_operation *operation;
		struct pl_completion receipt;
		struct pl_error error;
		struct pl_transfer *copy;

		vectors_open(environment, &vectors, counts[i]);
		copy = calloc(counts[i], sizeof(*copy));
		memcpy(copy, vectors.transfers, counts[i] * sizeof(*copy));
		vectors_fill(vectors.near, vectors.far);
		check_ok(pl_writev(environment->near_peer, copy, counts[i], NULL, &operation, &error), &error);
		/* The array belongs to the caller again once the call returns. */
		memset(copy, 0xff, counts[i] * sizeof(*copy));
		complete(environment, operation, &receipt);
		receipt_check(environment, &receipt, PL_KIND_WRITE, vectors.bytes);
		vectors_check(&vectors, true);

		memcpy(copy, vectors.transfers, counts[i] * sizeof(*copy));
		vectors_fill(vectors.far, vectors.near);
		check_ok(pl_readv(environment->near_peer, copy, counts[i], NULL, &operation, &error), &error);
		memset(copy, 0xff, counts[i] * sizeof(*copy));
		complete(environment, operation, &receipt);
		receipt_check(environment, &receipt, PL_KIND_READ, vectors.bytes);
		vectors_check(&vectors, false);
		free(copy);
		vectors_close(&vectors);
	}
}

/* Checks the largest vector: words in another order, one completion, one notification. */
static void vector_of_a_million_words(struct scenario_environment *environment)
{
	/* Sanitizers take long for a million. */
	const size_t count = slowness() > 2 ? PL_TRANSFERS_MAX / 16 : PL_TRANSFERS_MAX;
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_transfer *words = calloc(count, sizeof(*words));
	struct pl_completion completion;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct buffer near, far;
	struct pl_error error;

	check(words);
	buffer_open(&near, environment->near, count * 8, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, count * 8, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	/* Each copy of a word by a GPU is a call of its driver, which would take too long here. */
	if (!strcmp(pl_region_memory(near.region), "host")) {
		pattern_fill(near.bytes, count * 8, 3, 0);
		for (size_t i = 0; i < count; i++)
			words[i] = (struct pl_transfer){ remote, (i ^ 1) * 8, near.region, i * 8, 8 };
		attributes.flags = PL_NOTIFY;
		attributes.notify = 5;
		if (environment->setting->slow)
			attributes.timeout = 80 * SECOND;
		check_ok(pl_writev(environment->near_peer, words, count, &attributes, &operation, &error), &error);
		complete(environment, operation, &completion);
		check_number(completion.bytes, count * 8);
		for (size_t i = 0; i < count; i++)
			check(!memcmp(far.bytes + (i ^ 1) * 8, near.bytes + i * 8, 8));
		collect(environment, environment->far, &completion, 1);
		check_number(completion.kind, PL_KIND_NOTIFIED);
		check_number(completion.value, 5);
	}
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	free(words);
}

static void vector_of_nothing(struct scenario_environment *environment)
{
	struct vectors vectors;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	vectors_open(environment, &vectors, 5);
	for (unsigned i = 0; i < 5; i++)
		vectors.transfers[i].length = 0;
	vectors.bytes = 0;
	vectors_fill(vectors.near, vectors.far);
	check_ok(pl_writev(environment->near_peer, vectors.transfers, 5, NULL, &operation, &error), &error);
	complete(environment, operation, &receipt);
	receipt_check(environment, &receipt, PL_KIND_WRITE, 0);
	vectors_check(&vectors, true);
	vectors_fill(vectors.far, vectors.near);
	check_ok(pl_readv(environment->near_peer, vectors.transfers, 5, NULL, &operation, &error), &error);
	complete(environment, operation, &receipt);
	receipt_check(environment, &receipt, PL_KIND_READ, 0);
	vectors_check(&vectors, false);
	vectors_close(&vectors);
}

/* Checks that one bad element among good ones prevents the whole operation. */
static void vector_refused(struct scenario_environment *environment)
{
	struct vectors vectors;
	struct pl_operation *operation;
	struct pl_error error;
	struct pl_transfer *many = calloc(PL_TRANSFERS_MAX + 1, sizeof(*many));

	vectors_open(environment, &vectors, 10);
	vectors_fill(vectors.near, vectors.far);
	for (unsigned i = 0; i <= PL_TRANSFERS_MAX; i++)
		many[i] = vectors.transfers[0];
	check_status(pl_writev(environment->near_peer, many, PL_TRANSFERS_MAX + 1, NULL, &operation, &error), -EINVAL,
		     &error);
	check_status(pl_readv(environment->near_peer, many, PL_TRANSFERS_MAX + 1, NULL, &operation, &error), -EINVAL,
		     &error);
	vectors.transfers[9].remote_offset = vectors.far[0].length - 1;
	vectors.transfers[9].length = 2;
	check_status(pl_writev(environment->near_peer, vectors.transfers, 10, NULL, &operation, &error), -ERANGE,
		     &error);
	vectors.transfers[9].remote_offset = 0;
	vectors.transfers[9].offset = UINT64_MAX;
	check_status(pl_writev(environment->near_peer, vectors.transfers, 10, NULL, &operation, &error), -ERANGE,
		     &error);
	check_status(pl_readv(environment->near_peer, vectors.transfers, 10, NULL, &operation, &error), -ERANGE,
		     &error);
	settle(environment, 20);
	for (unsigned r = 0; r < REGIONS; r++)
		value_check(vectors.far[r].bytes, vectors.far[r].length, POISON);
	vectors_close(&vectors);
	free(many);
}

/* Moves elements that are large enough to be divided among all streams. */
static void vector_large(struct scenario_environment *environment)
{
	enum { COUNT = 9, SIZE = (1 << 20) + 77 };
	struct pl_transfer transfers[COUNT];
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	buffer_open(&near, environment->near, COUNT * SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, COUNT * SIZE, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	pattern_fill(near.bytes, near.length, 80, 0);
	for (unsigned i = 0; i < COUNT; i++)
		transfers[i] = (struct pl_transfer){ remote, (COUNT - 1 - i) * (uint64_t)SIZE, near.region,
						     i * (uint64_t)SIZE, SIZE };
	check_ok(pl_writev(environment->near_peer, transfers, COUNT, NULL, &operation, &error), &error);
	complete(environment, operation, &receipt);
	receipt_check(environment, &receipt, PL_KIND_WRITE, COUNT * SIZE);
	for (unsigned i = 0; i < COUNT; i++)
		pattern_check(far.bytes + (COUNT - 1 - i) * (size_t)SIZE, SIZE, 80, i * (size_t)SIZE);
	bytes_set(near.bytes, POISON, near.length);
	check_ok(pl_readv(environment->near_peer, transfers, COUNT, NULL, &operation, &error), &error);
	complete(environment, operation, &receipt);
	receipt_check(environment, &receipt, PL_KIND_READ, COUNT * SIZE);
	pattern_check(near.bytes, near.length, 80, 0);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

/* Posts a prepared vector with several offsets, several times at once. */
static void vector_prepared(struct scenario_environment *environment)
{
	enum { ROWS = 8, ROW = 1024, PIECE = 100 };
	struct pl_transfer transfers[10];
	struct pl_operation *operations[ROWS];
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_vector *vector;
	struct pl_error error;

	buffer_open(&near, environment->near, ROWS * ROW, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, ROWS * ROW, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	for (unsigned i = 0; i < 10; i++)
		transfers[i] = (struct pl_transfer){ remote, (9 - i) * PIECE, near.region, i * PIECE, PIECE };
	check_status(pl_vector_prepare(environment->near_peer, PL_KIND_SEND, transfers, 10, &vector, &error), -EINVAL,
		     &error);
	transfers[4].remote_offset = ROWS * ROW;
	check_status(pl_vector_prepare(environment->near_peer, PL_KIND_WRITE, transfers, 10, &vector, &error), -ERANGE,
		     &error);
	check_text(error.object, "element 4");
	transfers[4].remote_offset = 5 * PIECE;
	check_ok(pl_vector_prepare(environment->near_peer, PL_KIND_WRITE, transfers, 10, &vector, &error), &error);
	check_number(pl_region_deregister(near.region), -EBUSY);
	pattern_fill(near.bytes, ROWS * ROW, 1, 0);
	for (unsigned i = 0; i < ROWS; i++)
		check_ok(pl_vector_post(vector, (ROWS - 1 - i) * ROW, i * ROW, NULL, &operations[i], &error), &error);
	for (unsigned i = 0; i < ROWS; i++)
		complete(environment, operations[i], NULL);
	for (unsigned i = 0; i < ROWS * 10; i++) {
		uint8_t piece[PIECE];

		bytes_get(near.bytes + (i / 10) * ROW + (i % 10) * PIECE, piece, PIECE);
		check(bytes_equal(far.bytes + (ROWS - 1 - i / 10) * ROW + (9 - i % 10) * PIECE, piece, PIECE));
	}
	check_status(pl_vector_post(vector, ROWS * ROW - 10 * PIECE + 1, 0, NULL, &operations[0], &error), -ERANGE,
		     &error);
	check_status(pl_vector_post(vector, 0, UINT64_MAX, NULL, &operations[0], &error), -ERANGE, &error);
	check_ok(pl_vector_post(vector, 0, 0, NULL, &operations[0], &error), &error);
	pl_vector_free(vector);
	complete(environment, operations[0], NULL);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

/* Checks that pl_close() frees prepared vectors. */
static void vector_prepared_and_left(struct scenario_environment *environment)
{
	static uint8_t bytes[64];
	struct pl_transfer transfer;
	struct pl_region *region;
	struct pl_remote *remote;
	struct pl_vector *vector;
	struct buffer far;
	struct pl_error error;

	check_ok(pl_region_register(environment->near, bytes, sizeof(bytes), PL_ACCESS_LOCAL, &region, &error), &error);
	buffer_open(&far, environment->far, 64, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	transfer = (struct pl_transfer){ remote, 0, region, 0, 64 };
	check_ok(pl_vector_prepare(environment->near_peer, PL_KIND_READ, &transfer, 1, &vector, &error), &error);
	buffer_close(&far);
	drive_no_more(environment, environment->near);
	pl_close(environment->near);
	environment->near = NULL;
	environment->near_peer = NULL;
}

const struct scenario vector_scenarios[] = {
	{ "vector-counts", vector_counts, 0 },
	{ "vector-prepared", vector_prepared, 0 },
	{ "vector-prepared-and-left", vector_prepared_and_left, SCENARIO_SETTING },
	{ "vector-of-a-million-words", vector_of_a_million_words, SCENARIO_HEAVY | SCENARIO_SETTING },
	{ "vector-of-nothing", vector_of_nothing, 0 },
	{ "vector-refused", vector_refused, SCENARIO_SETTING },
	{ "vector-large", vector_large, 0 },
	{ NULL, NULL, 0 },
};
