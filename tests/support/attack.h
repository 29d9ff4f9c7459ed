/* SPDX-License-Identifier: BSD-2-Clause */
/* Handshake messages of attackers that pose as honest clients. */
#ifndef TEST_ATTACK_H
#define TEST_ATTACK_H

#include "control/stream.h"
#include "wire/wire.h"

#define MESSAGE_MAX (PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX)

struct bytes {
	uint8_t data[MESSAGE_MAX + 8];
	size_t length;
};

struct bytes attack_encode(const struct pl_control *control);

/* Returns the hello of an honest client. */
struct pl_control attack_hello(void);

/* How to open lanes of a peer that greeted. */
struct attack_target {
	uint64_t peer_index;
	uint8_t secret[PL_SECRET];
};

/*
 * Connects and completes an honest greeting.  Returns a socket for further control messages, which pass over TLS.
 * `target` may be NULL.
 */
int attack_greet(const char *address, struct attack_target *target);

/* Opens a lane.  Returns its socket. */
int attack_lane(const char *address, const struct attack_target *target, uint16_t lane);

/* Greets and opens lane 0.  Returns the lane's socket; stores that of the control channel, to be closed after it. */
int attack_first_lane(const char *address, int *control);

#endif
