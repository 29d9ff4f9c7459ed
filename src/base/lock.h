/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mutex for sections of a few instructions on the path of every operation. Without waiters, one atomic instruction
 * takes it and one releases it; pthread_mutex_lock() adds calls and checks of mutex types.
 *
 * Latch: released by a store, for sections that call nothing and never wait. A thread that finds it taken polls,
 * and nothing wakes a sleeper.
 */
#ifndef PL_LOCK_H
#define PL_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Bytes of a cache line of most processors. Members that different threads write for each operation lie so far apart. */
#define PL_CACHE_LINE 64

struct pl_lock {
	atomic_uint word; /* 0: free, 1: taken, 2: taken, and a thread may sleep */
};

/* Slow paths of the functions below: waits for the lock; wakes one sleeper. */
void pl_lock_await(struct pl_lock *lock);
void pl_lock_wake(struct pl_lock *lock);

/*
 * Initializes a mutex for sections of a few instructions that a condition variable or other files use as a pthread_mutex_t: a
 * thread that finds it taken polls before it sleeps, if the C library can. pthread_mutex_destroy() ends its use.
 */
void pl_mutex_init_short(pthread_mutex_t *mutex);

struct pl_latch {
	atomic_bool taken;
};

/* Waits for the latch. */
void pl_latch_await(struct pl_latch *latch);

/* Tells the processor that this thread polls: its sibling gets the execution units meanwhile. */
static inline void pl_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

static inline void pl_lock_init(struct pl_lock *lock)
{
	atomic_init(&lock->word, 0);
}

/*
 * Takes the lock if it is free. A try and a release are sequentially consistent, also if the try fails: a thread that
 * publishes work and then fails to take the lock leaves the work to the holder, which looks for work after its release.
 * So the thread finds the lock free, or the holder finds the work.
 */
static inline bool pl_lock_try(struct pl_lock *lock)
{
	unsigned free = 0;

	return atomic_compare_exchange_strong(&lock->word, &free, 1);
}

static inline void pl_lock_take(struct pl_lock *lock)
{
	if (!pl_lock_try(lock))
		pl_lock_await(lock);
}

static inline void pl_lock_release(struct pl_lock *lock)
{
	if (atomic_exchange(&lock->word, 0) == 2)
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
