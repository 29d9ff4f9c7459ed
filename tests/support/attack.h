/* SPDX-License-Identifier: BSD-2-Clause */
/* Handshake messages of attackers that pose as honest clients. */
#ifndef TEST_ATTACK_H
#define TEST_ATTACK_H

#include "wire/wire.h"

#define MESSAGE_MAX (PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX)

struct bytes {
	uint8_t data[MESSAGE_MAX + 8];
	size_t length;
};

struct bytes attack_encode(const struct pl_control *control);

/* Returns the hello of an honest client. */
struct pl_control attack_hello(void);

/*
 * Connects, completes an honest greeting and returns the socket.  Stores the listener's hello in *answer, if not NULL.
 */
int attack_greet(const char *address, struct pl_control *answer);

/* Greets and opens lane 0.  Returns the lane's socket; stores that of the control channel, to be closed after it. */
int attack_lane(const char *address, int *control);

#endif
