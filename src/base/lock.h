/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mutex for sections of a few instructions that are entered for every operation: taken and released
 * by one atomic instruction each while nobody waits, where the C library's takes calls and checks of
 * kinds that are not needed here.
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

#endif
