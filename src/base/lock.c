/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Polls of a latch before its holder is assumed to be preempted; then the pause in nanoseconds. */
#define LOOKS 200
#define PAUSE 20000
/* Polls of a lock before its thread sleeps. A sleep and its wake-up take longer than most sections under a lock. */
#define POLLS 50

/* Takes the lock if it becomes free soon. */
static bool poll_lock(struct pl_lock *lock)
{
	for (int i = 0; i < POLLS; i++) {
		if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 && pl_lock_try(lock))
			return true;
		pl_relax();
	}
	return false;
}

void pl_lock_await(struct pl_lock *lock)
{
	if (poll_lock(lock))
		return;
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

void pl_mutex_init_short(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
	pthread_mutex_init(mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
}
