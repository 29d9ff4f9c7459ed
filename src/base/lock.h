/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mutex for sections of a few instructions that are entered for every operation: taken and released
 * by one atomic instruction each while nobody waits, where the C library's takes calls and checks of
 * kinds that are not needed here.
 * And a latch, which is left by a plain store: for sections that call nothing and never wait, since who finds
 * it taken looks again and again, and nobody wakes whoever sleeps meanwhile.
 */
#ifndef PL_LOCK_H
#define PL_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

struct pl_lock {
	atomic_uint word; /* 0: free, 1: taken, 2: taken, and somebody may sleep */
};

/* The ways that the others below do not take themselves: until it is taken; one sleeper. */
void pl_lock_await(struct pl_lock *lock);
void pl_lock_wake(struct pl_lock *lock);

struct pl_latch {
	atomic_bool taken;
};

/* Until it is taken. */
void pl_latch_await(struct pl_latch *latch);

static inline void pl_lock_init(struct pl_lock *lock)
{
	atomic_init(&lock->word, 0);
}

static inline bool pl_lock_try(struct pl_lock *lock)
{
	unsigned free = 0;

	return atomic_compare_exchange_strong_explicit(&lock->word, &free, 1, memory_order_acquire,
						       memory_order_relaxed);
}

static inline void pl_lock_take(struct pl_lock *lock)
{
	if (!pl_lock_try(lock))
		pl_lock_await(lock);
}

static inline void pl_lock_release(struct pl_lock *lock)
{
	if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
		pl_lock_wake(lock);
}

static inline bool pl_latch_try(struct pl_latch *latch)
{
	return !atomic_exchange_explicit(&latch->taken, true, memory_order_acquire);
}

static inline void pl_latch_take(struct pl_latch *latch)
{
	if (!pl_latch_try(latch))
		pl_latch_await(latch);
}

static inline void pl_latch_release(struct pl_latch *latch)
{
	atomic_store_explicit(&latch->taken, false, memory_order_release);
}

#endif
