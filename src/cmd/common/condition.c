/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/condition.h"

#include <time.h>

#include "cmd/common/cli.h"

void cli_condition_init(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

bool cli_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until)
{
	struct timespec end = { .tv_sec = (time_t)(until / CLI_NS_PER_S), .tv_nsec = (long)(until % CLI_NS_PER_S) };

	return pthread_cond_timedwait(condition, lock, &end) == 0;
}
