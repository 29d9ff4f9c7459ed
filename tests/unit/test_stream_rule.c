/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lap rule of streams, by exhaustive enumeration: all interleavings of a publisher that fills its ring with a subscriber
 * that reads one frame. The rule accepts no torn frame. Each mutation of the rule or of the memory order accepts some.
 *
 * The model has a ring of `slots` slots of `words` words. The publisher's steps for a frame are the claim, a store of each
 * word in any order, and the publication. The subscriber reads `published`, the words in any order, and `claimed`.
 *
 * A second model has a subscriber that reads two frames at a time. It reads `claimed` for each frame, in a check that is posted after
 * the words of that frame were read, and the publisher answers the check at any later time.
 *
 * A third model has trailing words: several servers read the pieces of one frame, each piece once. Each server reads its words in any
 * order, and then `claimed`. The subscriber judges the frame by the greatest of these values.
 *
 * A fourth model has a publisher that marks the slot behind the claim, and stamps it behind the words. The subscriber reads the stamp
 * after the words, and reads no cursor then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "stream/ring.h"

#define WORDS_MAX 3
#define SLOTS_MAX 3
#define FRAMES_MAX 2
/* Reads of a subscriber in any order: words, and cursors. */
#define READS_MAX (FRAMES_MAX * (WORDS_MAX + 1))
#define PIECES_MAX 2
#define STEPS_MAX 64

/* The rule, and its mutations. SPLIT halves have base 2, so that every second frame carries into the upper half. */
enum mutation {
	RIGHT,
	LIMIT,    /* the limit accepts one frame too many */
	TOGETHER, /* the cursor is read in the same request as the words, at any time */
	NO_FENCE, /* the claim becomes visible behind stores of words */
	LATE,     /* the claim is stored after the words */
	TWO_ENDS, /* two servers read the words; the subscriber waits for the first server only */
	SPLIT,    /* the cursor is read in two halves */
	POSTED,   /* of two frames: the first check judges a frame whose reads ended after it was posted, too */
	EARLY,    /* of trailing words: a server reads the cursor before the last word of its piece */
	FIRST,    /* of trailing words: the first server's value judges the frame */
	LEAST,    /* of trailing words: the least value judges the frame */
	UNMARKED, /* of stamps: the publisher does not mark the slot */
	BEHIND,   /* of stamps: the mark becomes visible behind stores of words */
	BEFORE,   /* of stamps: the subscriber reads the stamp before the last word */
};

enum step_kind { CLAIM, MARK, WORD, STAMP, PUBLISH, READ_PUBLISHED, READ_WORD, READ_CLAIMED, READ_UPPER, READ_STAMP };

struct step {
	enum step_kind kind;
	unsigned word;
	unsigned sequence; /* of the publisher; of the subscriber: number of the frame, or of its check */
};

struct model {
	enum mutation mutation;
	unsigned slots, words;
	struct step writer[STEPS_MAX], reader[STEPS_MAX];
	unsigned writer_count, reader_count;
	unsigned sequence; /* first frame that the subscriber reads */
	unsigned frames;   /* that it reads */
	unsigned pieces;   /* with a trailing word each; 0: none has one */
	bool stamps;       /* a stamp judges the frame */
	unsigned long interleavings, accepted, torn;
};

/* Memory of the publisher, and the subscriber's copies. */
struct memory {
	uint8_t claimed, published, stamp[SLOTS_MAX], slot[SLOTS_MAX][WORDS_MAX];
	uint8_t seen_published, seen_stamp, seen_claimed[FRAMES_MAX], seen[FRAMES_MAX][WORDS_MAX], trailing[PIECES_MAX];
};

/* Stores permutation number `index` of 0 to count - 1. Returns false after the last one. */
static bool permutation(unsigned index, unsigned count, unsigned *order)
{
	bool used[READS_MAX] = { false };
	unsigned permutations = 1;

	for (unsigned i = 2; i <= count; i++)
		permutations *= i;
	if (index >= permutations)
		return false;
	for (unsigned i = 0; i < count; i++) {
		unsigned rank, at = 0;

		permutations /= count - i;
		rank = index / permutations;
		index %= permutations;
		while (used[at] || rank) {
			rank -= !used[at];
			at++;
		}
		used[at] = true;
		order[i] = at;
	}
	return true;
}

static void add(struct step *steps, unsigned *count, enum step_kind kind, unsigned word, unsigned sequence)
{
	steps[(*count)++] = (struct step){ kind, word, sequence };
}

static void write_word(struct model *model, unsigned sequence, unsigned word)
{
	add(model->writer, &model->writer_count, WORD, word, sequence);
}

/* Builds the publisher's steps. `behind`: stores that become visible before the claim. */
static void build_writer(struct model *model, const unsigned *order, unsigned behind)
{
	/* Two halves differ from the number only after a second carry. */
	unsigned frames = model->slots + (model->mutation == SPLIT ? 3 : 2);

	model->writer_count = 0;
	for (unsigned sequence = 0; sequence < frames; sequence++) {
		for (unsigned i = 0; i < behind; i++)
			write_word(model, sequence, order[i]);
		add(model->writer, &model->writer_count, CLAIM, 0, sequence);
		for (unsigned i = behind; i < model->words; i++)
			write_word(model, sequence, order[i]);
		add(model->writer, &model->writer_count, PUBLISH, 0, sequence);
	}
}

static void read_step(struct model *model, unsigned index)
{
	if (index < model->words)
		add(model->reader, &model->reader_count, READ_WORD, index, 0);
	else
		add(model->reader, &model->reader_count, READ_CLAIMED, 0, 0);
}

/* Builds the subscriber's steps. Returns false if the mutation does not have this order of reads. */
static bool build_reader(struct model *model, const unsigned *order, unsigned count)
{
	unsigned cursor = 0, first_end = 0;

	model->reader_count = 0;
	add(model->reader, &model->reader_count, READ_PUBLISHED, 0, 0);
	for (unsigned i = 0; i < count; i++) {
		if (order[i] == model->words)
			cursor = i;
		if (order[i] == 0)
			first_end = i;
		read_step(model, order[i]);
	}
	if (model->mutation == TWO_ENDS)
		return cursor > first_end;
	if (model->mutation == SPLIT)
		add(model->reader, &model->reader_count, READ_UPPER, 0, 0);
	if (model->mutation != TOGETHER)
		read_step(model, model->words);
	return true;
}

static void run_step(const struct model *model, struct memory *memory, const struct step *step)
{
	switch (step->kind) {
	case CLAIM:
		memory->claimed = (uint8_t)(step->sequence + 1);
		break;
	case MARK:
		memory->stamp[step->sequence % model->slots] = 0;
		break;
	case STAMP:
		memory->stamp[step->sequence % model->slots] = (uint8_t)(step->sequence + 1);
		break;
	case READ_STAMP:
		memory->seen_stamp = memory->stamp[model->sequence % model->slots];
		break;
	case WORD:
		memory->slot[step->sequence % model->slots][step->word] = (uint8_t)(step->sequence + 1);
		break;
	case PUBLISH:
		memory->published = (uint8_t)(step->sequence + 1);
		break;
	case READ_PUBLISHED:
		memory->seen_published = memory->published;
		break;
	case READ_WORD:
		memory->seen[step->sequence][step->word] =
			memory->slot[(model->sequence + step->sequence) % model->slots][step->word];
		break;
	case READ_UPPER:
		memory->seen_claimed[step->sequence] = (uint8_t)(memory->claimed / 2 * 2);
		break;
	case READ_CLAIMED:
		if (model->pieces)
			memory->trailing[step->word] = memory->claimed;
		else if (model->mutation == SPLIT)
			memory->seen_claimed[step->sequence] =
				(uint8_t)(memory->seen_claimed[step->sequence] + memory->claimed % 2);
		else
			memory->seen_claimed[step->sequence] = memory->claimed;
		break;
	}
}

/* Returns the value of `claimed` that judges a frame. */
static uint64_t judging_value(const struct model *model, const struct memory *memory, unsigned frame)
{
	const uint8_t *words = memory->trailing;

	if (model->pieces == 0)
		return memory->seen_claimed[model->mutation == POSTED ? 0 : frame];
	if (model->mutation == FIRST)
		return words[0];
	return model->mutation == LEAST ? PL_MIN(words[0], words[1]) : PL_MAX(words[0], words[1]);
}

static void judge_frame(struct model *model, const struct memory *memory, unsigned frame)
{
	uint64_t claimed = judging_value(model, memory, frame);
	unsigned sequence = model->sequence + frame;
	bool torn = false;

	if (model->mutation == LIMIT)
		claimed -= claimed > 0;
	if (model->stamps ? memory->seen_stamp != sequence + 1 : !pl_ring_whole(claimed, sequence, model->slots))
		return;
	model->accepted++;
	for (unsigned i = 0; i < model->words; i++)
		torn |= memory->seen[frame][i] != sequence + 1;
	model->torn += torn;
}

/* Judges an interleaving as a subscriber does. */
static void judge(struct model *model, const struct memory *memory)
{
	model->interleavings++;
	for (unsigned frame = 0; frame < model->frames; frame++)
		judge_frame(model, memory, frame);
}

static void interleave(struct model *model, struct memory memory, unsigned writer, unsigned reader)
{
	struct memory after = memory;

	if (reader == model->reader_count) {
		judge(model, &memory);
		return;
	}
	run_step(model, &after, &model->reader[reader]);
	/* A subscriber that did not find its frames published reads nothing. */
	if (reader || after.seen_published >= model->sequence + model->frames)
		interleave(model, after, writer, reader + 1);
	else
		model->interleavings++;
	if (writer == model->writer_count)
		return;
	run_step(model, &memory, &model->writer[writer]);
	interleave(model, memory, writer + 1, reader);
}

static void interleave_from_empty(struct model *model)
{
	const struct memory empty = { 0 };

	for (model->sequence = 0; model->sequence < 2; model->sequence++)
		interleave(model, empty, 0, 0);
}

/* Enumerates all orders of the publisher's stores and of the subscriber's reads, and all interleavings of both. */
static void enumerate(struct model *model)
{
	unsigned free_reads = model->words + (model->mutation == TOGETHER || model->mutation == TWO_ENDS);
	unsigned stores[WORDS_MAX + 1], reads[WORDS_MAX + 1];

	for (unsigned i = 0; permutation(i, model->words, stores); i++) {
		unsigned least = model->mutation == LATE ? model->words : model->mutation == NO_FENCE ? 1 : 0;
		unsigned most = model->mutation == LATE || model->mutation == NO_FENCE ? model->words : 0;

		for (unsigned behind = least; behind <= most; behind++) {
			build_writer(model, stores, behind);
			for (unsigned j = 0; permutation(j, free_reads, reads); j++)
				if (build_reader(model, reads, free_reads))
					interleave_from_empty(model);
		}
	}
}

static void check_rings(enum mutation mutation, const char *name)
{
	static const unsigned sizes[][2] = { { 2, 2 }, { 3, 2 }, { 2, 3 } };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct model model = { .mutation = mutation, .frames = 1, .slots = sizes[i][0], .words = sizes[i][1] };

		enumerate(&model);
		print_message("%-9s slots %u words %u: interleavings %lu accepted %lu torn %lu\n", name, model.slots,
			      model.words, model.interleavings, model.accepted, model.torn);
		assert_true(model.accepted > 0);
		if (mutation == RIGHT)
			assert_int_equal(model.torn, 0);
		else
			assert_true(model.torn > 0);
	}
}

static void test_right_rule(void **state)
{
	(void)state;
	check_rings(RIGHT, "right");
}

static void test_mutations(void **state)
{
	static const char *const names[] = { "right", "limit", "together", "no fence", "late", "two ends", "split" };

	(void)state;
	for (unsigned i = LIMIT; i <= SPLIT; i++)
		check_rings((enum mutation)i, names[i]);
}

/* Builds the steps of a subscriber that reads two frames. Returns false if a check is answered before it is posted. */
static bool build_reader_of_two(struct model *model, const unsigned *order)
{
	unsigned read[FRAMES_MAX] = { 0 }, reads = model->words + 1;

	model->reader_count = 0;
	add(model->reader, &model->reader_count, READ_PUBLISHED, 0, 0);
	for (unsigned i = 0; i < FRAMES_MAX * reads; i++) {
		unsigned frame = order[i] / reads, word = order[i] % reads;

		if (word == model->words && read[frame] < model->words)
			return false;
		read[frame]++;
		add(model->reader, &model->reader_count, word == model->words ? READ_CLAIMED : READ_WORD, word, frame);
	}
	return true;
}

static void check_two_frames(enum mutation mutation, unsigned slots, const char *name)
{
	struct model model = { .mutation = mutation, .frames = FRAMES_MAX, .slots = slots, .words = 2 };
	unsigned stores[WORDS_MAX], reads[READS_MAX];

	for (unsigned i = 0; permutation(i, model.words, stores); i++) {
		build_writer(&model, stores, 0);
		for (unsigned j = 0; permutation(j, FRAMES_MAX * (model.words + 1), reads); j++)
			if (build_reader_of_two(&model, reads))
				interleave(&model, (struct memory){ 0 }, 0, 0);
	}
	print_message("%-9s slots %u, two frames: interleavings %lu accepted %lu torn %lu\n", name, slots,
		      model.interleavings, model.accepted, model.torn);
	assert_true(model.accepted > 0);
	if (mutation == RIGHT)
		assert_int_equal(model.torn, 0);
	else
		assert_true(model.torn > 0);
}

/* Several checks are under way. Each judges the frames whose reads ended before it was posted, and no others. */
static void test_two_checks(void **state)
{
	(void)state;
	for (unsigned slots = 2; slots <= SLOTS_MAX; slots++) {
		check_two_frames(RIGHT, slots, "right");
		check_two_frames(POSTED, slots, "posted");
	}
}

/*
 * Builds the steps of a read of two pieces with trailing words: the first word, and all others. The last `pieces` numbers of the order are the
 * reads of the cursor. Returns false if a server reads the cursor too early.
 */
static bool build_trailing_reader(struct model *model, const unsigned *order)
{
	unsigned left[PIECES_MAX] = { 1, model->words - 1 };

	model->reader_count = 0;
	add(model->reader, &model->reader_count, READ_PUBLISHED, 0, 0);
	for (unsigned i = 0; i < model->words + PIECES_MAX; i++) {
		bool cursor = order[i] >= model->words;
		unsigned piece = cursor ? order[i] - model->words : order[i] > 0;

		if (cursor && left[piece] > (model->mutation == EARLY))
			return false;
		left[piece] -= !cursor;
		add(model->reader, &model->reader_count, cursor ? READ_CLAIMED : READ_WORD, cursor ? piece : order[i],
		    0);
	}
	return true;
}

static void check_trailing(enum mutation mutation, unsigned slots, unsigned words, const char *name)
{
	struct model model = {
		.mutation = mutation, .frames = 1, .slots = slots, .words = words, .pieces = PIECES_MAX
	};
	unsigned stores[WORDS_MAX], reads[READS_MAX];

	for (unsigned i = 0; permutation(i, words, stores); i++) {
		build_writer(&model, stores, 0);
		for (unsigned j = 0; permutation(j, words + PIECES_MAX, reads); j++)
			if (build_trailing_reader(&model, reads))
				interleave_from_empty(&model);
	}
	print_message("%-9s slots %u words %u, trailing: interleavings %lu accepted %lu torn %lu\n", name, slots, words,
		      model.interleavings, model.accepted, model.torn);
	assert_true(model.accepted > 0);
	if (mutation == RIGHT)
		assert_int_equal(model.torn, 0);
	else
		assert_true(model.torn > 0);
}

/* Each server of a piece reads the cursor after its words, and the greatest value judges the frame. */
static void test_trailing_words(void **state)
{
	static const unsigned sizes[][2] = { { 2, 2 }, { 3, 2 }, { 2, 3 } };

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		check_trailing(RIGHT, sizes[i][0], sizes[i][1], "right");
		check_trailing(LIMIT, sizes[i][0], sizes[i][1], "limit");
		check_trailing(EARLY, sizes[i][0], sizes[i][1], "early");
		check_trailing(FIRST, sizes[i][0], sizes[i][1], "first");
		check_trailing(LEAST, sizes[i][0], sizes[i][1], "least");
	}
}

/* Builds the steps of a publisher that marks and stamps. `behind`: stores that become visible before the mark. */
static void build_marking_writer(struct model *model, const unsigned *order, unsigned behind)
{
	model->writer_count = 0;
	for (unsigned sequence = 0; sequence < model->slots + 2; sequence++) {
		add(model->writer, &model->writer_count, CLAIM, 0, sequence);
		for (unsigned i = 0; i < model->words; i++) {
			if (i == behind)
				add(model->writer, &model->writer_count, MARK, 0, sequence);
			write_word(model, sequence, order[i]);
		}
		add(model->writer, &model->writer_count, STAMP, 0, sequence);
		add(model->writer, &model->writer_count, PUBLISH, 0, sequence);
	}
}

static void check_stamps(enum mutation mutation, unsigned slots, unsigned words, const char *name)
{
	struct model model = { .mutation = mutation, .frames = 1, .slots = slots, .words = words, .stamps = true };
	unsigned behind = mutation == BEHIND ? 1 : mutation == UNMARKED ? words : 0;
	unsigned stores[WORDS_MAX], reads[WORDS_MAX];

	for (unsigned i = 0; permutation(i, words, stores); i++) {
		build_marking_writer(&model, stores, behind);
		for (unsigned j = 0; permutation(j, words, reads); j++) {
			model.reader_count = 0;
			add(model.reader, &model.reader_count, READ_PUBLISHED, 0, 0);
			for (unsigned k = 0; k < words; k++) {
				if (mutation == BEFORE && k == words - 1)
					add(model.reader, &model.reader_count, READ_STAMP, 0, 0);
				read_step(&model, reads[k]);
			}
			if (mutation != BEFORE)
				add(model.reader, &model.reader_count, READ_STAMP, 0, 0);
			interleave_from_empty(&model);
		}
	}
	print_message("%-9s slots %u words %u, stamps: interleavings %lu accepted %lu torn %lu\n", name, slots, words,
		      model.interleavings, model.accepted, model.torn);
	assert_true(model.accepted > 0);
	assert_true(mutation == RIGHT ? model.torn == 0 : model.torn > 0);
}

/* A stamp that is read after the words judges the frame, if its slot is marked before anything is stored there. */
static void test_stamps(void **state)
{
	static const unsigned sizes[][2] = { { 2, 2 }, { 3, 2 }, { 2, 3 } };

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		check_stamps(RIGHT, sizes[i][0], sizes[i][1], "right");
		check_stamps(UNMARKED, sizes[i][0], sizes[i][1], "unmarked");
		check_stamps(BEHIND, sizes[i][0], sizes[i][1], "behind");
		check_stamps(BEFORE, sizes[i][0], sizes[i][1], "before");
	}
}

/* Numbers far from 0 and from the end of 64 bits follow the same rule. */
static void test_large_numbers(void **state)
{
	const uint64_t sequence = PL_RING_SEQUENCE_MAX - 1;

	(void)state;
	assert_true(pl_ring_whole(sequence + 1, sequence, 2));
	assert_true(pl_ring_whole(sequence + 2, sequence, 2));
	assert_false(pl_ring_whole(sequence + 3, sequence, 2));
	assert_int_equal(pl_ring_oldest(sequence + 2, 2), sequence);
	assert_int_equal(pl_ring_oldest(1, 2), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right_rule), cmocka_unit_test(test_mutations),
		cmocka_unit_test(test_two_checks), cmocka_unit_test(test_trailing_words),
		cmocka_unit_test(test_stamps),     cmocka_unit_test(test_large_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
