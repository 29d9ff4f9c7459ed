/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Manual progress: one thread sleeps on the descriptor of the far end's engine as the leader of the waiting threads, and
 * another one makes progress and then stops.
 */
#ifndef TEST_LEADER_H
#define TEST_LEADER_H

#include "support/environment.h"

/* A write that the other thread has read is acknowledged although that thread stops. `argument`: struct setting. */
void leader_acknowledges(void *argument);
/* A message for the leader makes the descriptor readable although the other thread took one before. */
void leader_is_woken(void *argument);

#endif
