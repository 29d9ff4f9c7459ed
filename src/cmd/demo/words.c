/* SPDX-License-Identifier: BSD-2-Clause */
/* Latency of the demonstration: single transfers of 8 bytes. */
#include <stdlib.h>
#include <string.h>

#include "cmd/demo/demo.h"

#define WORDS_WARM 200

/* Measurement on a connection of its own. */
struct writing {
	const struct demo_words *words;
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_remote *writable, *readable; /* the same memory, with different rights */
	struct pl_region *region;              /* all words, then the same number of words that come back */
	uint64_t *sent;                        /* content of the words */
	uint64_t *times;                       /* latency of each word in ns */
};

static int compare_times(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static uint64_t demo_words_length(const struct demo_words *words)
{
	return words->count * sizeof(uint64_t);
}

/* Writes words to the server, or reads them back into the second half of the region. */
static int move_demo_words(struct writing *writing, bool write, uint64_t offset, uint64_t length,
			   struct pl_completion *receipt, struct pl_error *error)
{
	struct pl_transfer transfer = { write ? writing->writable : writing->readable, offset, writing->region,
					write ? offset : demo_words_length(writing->words) + offset, length };
	struct pl_operation *operation;
	int rc = (write ? pl_write : pl_read)(writing->peer, &transfer, NULL, &operation, error);

	return rc == 0 ? pl_wait(operation, UINT64_MAX, receipt, error) : rc;
}

static void add_word_receipt(struct pipeline_result *result, const struct pl_completion *receipt)
{
	result->staged += receipt->bytes_staged;
	result->route = receipt->route;
	result->fabric = receipt->fabric;
	result->reason = receipt->reason;
	result->lanes = receipt->lanes;
}

static int time_demo_word(struct writing *writing, unsigned index, struct pipeline_result *result,
			  struct pl_error *error)
{
	uint64_t offset = index * sizeof(uint64_t), begin = cli_now();
	struct pl_completion there, back;
	int rc = move_demo_words(writing, true, offset, sizeof(uint64_t), &there, error);

	if (rc == 0 && writing->words->back)
		rc = move_demo_words(writing, false, offset, sizeof(uint64_t), &back, error);
	if (rc < 0)
		return rc;
	writing->times[index] = cli_now() - begin;
	result->nanoseconds += writing->times[index];
	result->bytes += there.bytes;
	add_word_receipt(result, &there);
	if (writing->words->back && back.route == PL_ROUTE_STAGED)
		add_word_receipt(result, &back);
	return 0;
}

/* Compares the words that came back with those sent. */
static int check_demo_words(struct writing *writing, struct pl_error *error)
{
	const struct demo_words *words = writing->words;
	uint64_t length = demo_words_length(words);
	const uint64_t *received = pl_region_address(writing->region);

	if (words->verifier)
		return demo_gpu_verify(words->verifier, words->step, writing->region, length, writing->sent, length,
				       error);
	received += words->count;
	for (unsigned i = 0; i < words->count; i++)
		if (received[i] != writing->sent[i])
			return demo_fail_verification(error, words->memory, i * sizeof(*received));
	return 0;
}

static int time_demo_words(struct writing *writing, struct demo_step *step, struct pl_error *error)
{
	const struct demo_words *words = writing->words;
	struct pipeline_result warm_up = { 0 };
	uint64_t length = demo_words_length(words), state = cli_now();
	int rc;

	for (unsigned i = 0; i < words->count; i++)
		writing->sent[i] = demo_next_random(&state);
	rc = pl_region_copy_in(writing->region, 0, writing->sent, length, error);
	for (unsigned i = 0; i < WORDS_WARM && rc == 0; i++)
		rc = time_demo_word(writing, 0, &warm_up, error);
	for (unsigned i = 0; i < words->count && rc == 0; i++)
		rc = time_demo_word(writing, i, &step->result, error);
	if (rc == 0 && !words->back)
		rc = move_demo_words(writing, false, 0, length, NULL, error);
	if (rc == 0)
		rc = check_demo_words(writing, error);
	if (rc < 0)
		return rc;
	qsort(writing->times, words->count, sizeof(*writing->times), compare_times);
	step->count = words->count;
	step->verified = length;
	step->min = writing->times[0];
	step->median = writing->times[words->count / 2];
	step->p99 = writing->times[words->count / 100 * 99];
	return 0;
}

static int import_demo_words(struct demo *demo, struct writing *writing, uint64_t size, struct pl_remote **remote,
			     struct pl_error *error)
{
	struct service_message memory;
	int rc = demo_open_memory(demo, writing->words->memory, size, &memory, error);

	return rc == 0 ? pl_remote_import(writing->peer, memory.token, memory.token_length, 0, remote, error) : rc;
}

/* Opens a second connection without progress threads, for the lowest latency. */
static int connect_for_latency(struct demo *demo, struct writing *writing, struct pl_error *error)
{
	const struct demo_words *words = writing->words;
	int rc = cli_open(&writing->context, &demo->common, PL_PROGRESS_MANUAL, error);

	if (rc == 0)
		rc = pl_connect(writing->context, demo->server.address, 0, &writing->peer, error);
	if (rc == 0)
		rc = pl_region_allocate_in(writing->context, words->kind, 2 * demo_words_length(words), PL_ACCESS_LOCAL,
					   &writing->region, error);
	if (rc == 0)
		rc = import_demo_words(demo, writing, words->size, &writing->writable, error);
	return rc == 0 ? import_demo_words(demo, writing, 0, &writing->readable, error) : rc;
}

int demo_time_words(struct demo *demo, const struct demo_words *words, struct demo_step *step, struct pl_error *error)
{
	struct writing writing = {
		.words = words,
		.sent = calloc(words->count, sizeof(*writing.sent)),
		.times = calloc(words->count, sizeof(*writing.times)),
	};
	int rc = writing.sent && writing.times ? 0 : cli_fail_errno(error, -ENOMEM, "malloc", NULL);

	if (rc == 0)
		rc = connect_for_latency(demo, &writing, error);
	if (rc == 0)
		rc = time_demo_words(&writing, step, error);
	pl_close(writing.context);
	free(writing.sent);
	free(writing.times);
	return rc;
}

int demo_write(struct demo *demo, struct pl_error *error)
{
	const struct demo_words words = {
		.step = "write",
		.memory = DEMO_MEMORY,
		.size = DEMO_SLOTS * DEMO_FRAME,
		.kind = "host",
		.count = DEMO_WORDS,
	};

	return demo_time_words(demo, &words, &demo->write, error);
}
