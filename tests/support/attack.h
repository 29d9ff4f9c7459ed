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

/* The same with another hello, such as one for another fabric. */
int attack_greet_as(const char *address, const struct pl_control *hello, struct pl_control *answer);

/* Opens a lane.  Returns its socket. */
int attack_lane(const char *address, const struct attack_target *target, uint16_t lane);

/*
 * The same as acceptor: accepts the control channel of a context that connects to the listening socket, and answers its
 * greeting; accepts a lane.
 */
int attack_serve(int listener, struct attack_target *target);
int attack_serve_as(int listener, const struct pl_control *answer);
int attack_serve_lane(int listener, const struct attack_target *target);

struct victim;

/* Connection of an attacker with its first lane. */
struct attack_link {
	int control, lane, listener; /* listener: -1 if the victim accepted */
	struct pl_peer *peer;        /* the attacker, at the victim */
	struct attack_target target;
};

/* Opens a connection, from the attacker or, if `connects`, from the victim by pl_connect(). */
void attack_open(struct attack_link *link, struct victim *victim, bool connects);
void attack_close(struct attack_link *link);

#endif
