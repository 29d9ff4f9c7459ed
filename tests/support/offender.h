/* SPDX-License-Identifier: BSD-2-Clause */
/* Peer of a victim that speaks the protocol without the library: one control channel and one lane. */
#ifndef TEST_OFFENDER_H
#define TEST_OFFENDER_H

#include "support/attack.h"
#include "support/victim.h"

/* Setting of the victim, in the clear. */
extern const struct setting offender_setting;

struct offender {
	struct victim victim;
	struct attack_link link;
	int control, lane;    /* of the link */
	struct pl_peer *peer; /* at the victim */
};

/* Opens a victim, and connects to it; or, if `connects`, lets the victim connect. */
void offender_open(struct offender *offender);
void offender_open_as(struct offender *offender, bool connects);
/* Connects to the victim, which is open. */
void offender_connect(struct offender *offender);
void offender_leave(struct offender *offender);
void offender_close(struct offender *offender);

bool offender_is_connected(const struct offender *offender);
/* Waits until the victim has closed the connection. */
void offender_expect_end(const struct offender *offender);

/* Receives control messages up to one of this type. */
void offender_receive_control(const struct offender *offender, enum pl_control_type type, struct pl_control *message);
/* Imports a token over the control channel.  Returns the key. */
uint64_t offender_import(const struct offender *offender, const uint8_t *bytes, size_t length);
/* Lets the victim import memory that the offender pretends to have, with the key 1. The caller releases the result. */
struct pl_remote *offender_share(const struct offender *offender, uint64_t length);

#endif
