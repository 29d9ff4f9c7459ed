/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/ordered_copy.h"

#include "base/vector_bytes.h"

#define WORD sizeof(uint64_t)
#define LINE 128

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

static void copy_bytes(uint8_t *to, const uint8_t *from, size_t length)
{
	for (size_t at = 0; at < length; at++)
		__atomic_store_n(to + at, from[at], __ATOMIC_RELEASE);
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

	copy_bytes(out, in, head);
	out += head;
	in += head;
	length -= head;
	words = PL_MIN(length / WORD * WORD, -(uintptr_t)out % LINE);
	copy_words(out, in, words);
	out += words;
	in += words;
	length -= words;
	for (; length >= LINE; length -= LINE, out += LINE, in += LINE)
		copy_line(out, in);
	words = length / WORD * WORD;
	copy_words(out, in, words);
	copy_bytes(out + words, in + words, length - words);
}
