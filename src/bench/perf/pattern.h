/* SPDX-License-Identifier: BSD-2-Clause */
/* Content of messages, and markers by which a ping-pong receiver sees that a written message has arrived. */
#ifndef PL_BENCH_PERF_PATTERN_H
#define PL_BENCH_PERF_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

/* A marker ends each block of this size, and the message. */
#define BENCH_BLOCK 4096u

/* Content of `slots` messages of `size` bytes, in slots of `stride` bytes. */
struct bench_pattern {
	uint64_t size, stride, slots, seed;
	const uint32_t *order; /* slot of each message; NULL: message N has slot N */
	bool same;    /* all messages are equal, as any message may arrive in any slot */
	bool markers; /* skip the words that bench_markers_write() writes */
};

void bench_pattern_fill(const struct bench_pattern *pattern, void *memory);
bool bench_pattern_equal(const struct bench_pattern *pattern, const void *memory);

/* Word of a marker; the message's size decides its address, which may be unaligned. */
typedef uint64_t __attribute__((aligned(1), may_alias)) bench_word;

static inline volatile bench_word *bench_marker_before(const void *message, uint64_t end)
{
	return (volatile bench_word *)((uintptr_t)message + end - sizeof(bench_word));
}

static inline void bench_markers_write(void *message, uint64_t size, uint64_t value)
{
	for (uint64_t end = BENCH_BLOCK; end < size; end += BENCH_BLOCK)
		*bench_marker_before(message, end) = value;
	*bench_marker_before(message, size) = value;
}

/* Returns the marker at the end of a message. */
static inline uint64_t bench_marker_last(const void *message, uint64_t size)
{
	return *bench_marker_before(message, size);
}

/* True if all markers of a message have this value. */
bool bench_markers_equal(const void *message, uint64_t size, uint64_t value);

#endif
