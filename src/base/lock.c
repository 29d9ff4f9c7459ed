/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Polls of a latch before its holder is assumed to be preempted; then the pause in nanoseconds. */
#define LOOKS 200
#define PAUSE 20000

void pl_lock_await(struct pl_lock *lock)
{
	/* A thread that slept does not know whether others still sleep, so it sets the state for sleepers. */
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
		syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void pl_lock_wake(struct pl_lock *lock)
{
	syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void pl_latch_await(struct pl_latch *latch)
{
	const struct timespec pause = { .tv_nsec = PAUSE };

	for (unsigned looks = 1;; looks++) {
		if (!atomic_load_explicit(&latch->taken, memory_order_relaxed) && pl_latch_try(latch))
			return;
		if (looks % LOOKS == 0)
			nanosleep(&pause, NULL);
	}
}
