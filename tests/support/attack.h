/* SPDX-License-Identifier: BSD-2-Clause */
/* What attackers say first, to be believed. */
#ifndef TEST_ATTACK_H
#define TEST_ATTACK_H

#include "wire/wire.h"

#define MESSAGE_MAX (PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX)

struct bytes {
	uint8_t data[MESSAGE_MAX + 8];
	size_t length;
};

struct bytes attack_encode(const struct pl_control *control);

/* The hello of an honest client. */
struct pl_control attack_hello(void);

/* Connects and greets well; returns the socket.  *answer (or NULL) is the listener's hello. */
int attack_greet(const char *address, struct pl_control *answer);

#endif
