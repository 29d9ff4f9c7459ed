/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conditions with waits by the clock of cli_now().  By default they go by CLOCK_REALTIME: after that clock was set back, a wait of a
 * second lasts as long as it was set back.
 */
#ifndef PL_CMD_COMMON_CONDITION_H
#define PL_CMD_COMMON_CONDITION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

void cli_condition_init(pthread_cond_t *condition);
/* Waits for a signal until a time of cli_now().  Returns false if the time has come.  The lock is held. */
bool cli_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until);

#endif
