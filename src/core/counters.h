/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters of the operations that have ended. Each is written by one thread at a time, so that adding takes a load and a store:
 * an atomic addition would wait until the bytes that the operation copied have left the processor's store buffers.
 *
 * Operations that end at their home are counted under its lock. A thread that completes an operation itself has counters of its
 * own.
 */
#ifndef PL_CORE_COUNTERS_H
#define PL_CORE_COUNTERS_H

#include <pthread.h>
#include <stdatomic.h>

#include <peerlane/counters.h>

#include "base/base.h"
#include "engine/engine.h"
#include "wire/wire.h"

#define PL_COUNTED_KINDS (PL_KIND_NOTIFY + 1)

/* Counters of one kind of operation over one fabric. */
struct pl_count {
	_Atomic uint64_t failed, direct, staged, time; /* direct, staged: bytes by route */
	_Atomic uint64_t times[PL_TIME_BUCKETS];
};

/* Counters of one writer, of all fabrics of the context and all kinds. */
struct pl_counts {
	struct pl_count counts[PL_FABRICS_MAX][PL_COUNTED_KINDS];
};

struct pl_counters {
	const struct pl_allocator *allocator;
	struct pl_counts *engines; /* of each engine, in the order of context->engines */
	unsigned engine_count;
	struct pl_counts shared; /* of threads without a state of their own, by atomic additions */
	pthread_mutex_t lock; /* protects the members below */
	struct pl_error_count errors[PL_ERROR_COUNTS];
	unsigned error_count;
	uint64_t errors_other;
};

void pl_counters_open(struct pl_counters *counters, const struct pl_allocator *allocator);
void pl_counters_close(struct pl_counters *counters);
/* Makes the counters of engines. */
int pl_counters_add_engines(struct pl_counters *counters, unsigned count, struct pl_error *error);
/* Counts an error of an operation; NULL: a general one. Any thread. */
void pl_count_error(struct pl_counters *counters, const struct pl_error *error);
/* Counts events that the context has dropped, as EVENTS-DROPPED. Any thread. */
void pl_count_lost_events(struct pl_counters *counters, uint64_t count);
/* Returns the number of errors counted so far. Any thread. */
uint64_t pl_counters_errors(struct pl_counters *counters);
/* Counts an operation that succeeded, of a thread without counters of its own. */
void pl_count_shared(struct pl_counters *counters, unsigned fabric, const struct pl_completion *completion);

static inline unsigned pl_time_bucket(uint64_t time)
{
	unsigned bucket = 58 - (unsigned)__builtin_clzll(time | 63);

	return PL_MIN(bucket, PL_TIME_BUCKETS - 1u);
}

PL_ALWAYS_INLINE void pl_count_add(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + value,
			      memory_order_relaxed);
}

/* Counts an operation that succeeded, with its direct bytes. The writer of `count` calls it. */
PL_ALWAYS_INLINE void pl_count_done(struct pl_count *count, uint64_t direct, uint64_t time)
{
	pl_count_add(&count->direct, direct);
	pl_count_add(&count->time, time);
	pl_count_add(&count->times[pl_time_bucket(time)], 1);
}

#endif
