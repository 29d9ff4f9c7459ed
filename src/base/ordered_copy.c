/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/ordered_copy.h"

#include "base/vector_bytes.h"

#define WORD sizeof(uint64_t)
#define LINE 128
/* Distance at which a long copy loads its destination: a core has stores of some lines under way, and waits for the others. */
#define AHEAD 1024

/* Keeps the compiler from joining or exchanging stores. */
static void keep_store_order(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void store_word(uint8_t *to, const uint8_t *from)
{
	uint64_t word;

	memcpy(&word, from, sizeof(word));
	__atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELEASE);
}

/* Stores the widest aligned part that fits. Returns its length. */
static size_t store_part(uint8_t *to, const uint8_t *from, size_t length)
{
	uint32_t word;
	uint16_t half;

	if (length >= sizeof(word) && (uintptr_t)to % sizeof(word) == 0) {
		memcpy(&word, from, sizeof(word));
		__atomic_store_n((uint32_t *)(void *)to, word, __ATOMIC_RELEASE);
		return sizeof(word);
	}
	if (length >= sizeof(half) && (uintptr_t)to % sizeof(half) == 0) {
		memcpy(&half, from, sizeof(half));
		__atomic_store_n((uint16_t *)(void *)to, half, __ATOMIC_RELEASE);
		return sizeof(half);
	}
	__atomic_store_n(to, *from, __ATOMIC_RELEASE);
	return 1;
}

/* Copies less than a word, before or after the aligned words. */
static void copy_rest(uint8_t *to, const uint8_t *from, size_t length)
{
	for (size_t at = 0; at < length;)
		at += store_part(to + at, from + at, length - at);
}

static void copy_words(uint8_t *to, const uint8_t *from, size_t length)
{
	for (size_t at = 0; at < length; at += WORD)
		store_word(to + at, from + at);
}

/* The last word is stored after the others, whatever the processor. */
static void copy_line(uint8_t *to, const uint8_t *from)
{
	size_t at = 0;

#pragma GCC unroll 8
	for (; at + sizeof(pl_vector_word) < LINE; at += sizeof(pl_vector_word)) {
		pl_vector_word words;

		memcpy(&words, from + at, sizeof(words));
		*(pl_vector_word *)(void *)(to + at) = words;
		keep_store_order();
	}
	copy_words(to + at, from + at, LINE - at);
}

void pl_copy_ordered(void *to, const void *from, size_t length)
{
	uint8_t *out = to;
	const uint8_t *in = from;
	size_t head = PL_MIN(length, -(uintptr_t)out % WORD), words;

	copy_rest(out, in, head);
	out += head;
	in += head;
	length -= head;
	words = PL_MIN(length / WORD * WORD, -(uintptr_t)out % LINE);
	copy_words(out, in, words);
	out += words;
	in += words;
	length -= words;
	for (; length >= LINE + AHEAD; length -= LINE, out += LINE, in += LINE) {
		__builtin_prefetch(out + AHEAD, 1);
		__builtin_prefetch(out + AHEAD + LINE / 2, 1);
		copy_line(out, in);
	}
	for (; length >= LINE; length -= LINE, out += LINE, in += LINE)
		copy_line(out, in);
	words = length / WORD * WORD;
	copy_words(out, in, words);
	copy_rest(out + words, in + words, length - words);
}
