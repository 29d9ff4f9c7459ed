/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

void pl_lock_await(struct pl_lock *lock)
{
	/* Whoever slept cannot know whether others still do, so it takes the lock as if they did. */
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
		syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void pl_lock_wake(struct pl_lock *lock)
{
	syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
