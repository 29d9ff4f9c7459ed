/* SPDX-License-Identifier: BSD-2-Clause */
/* Accepted connection that has not identified itself; for greeting.c and greeting_control.c. Listener's engine. */
#ifndef PL_CORE_GREETING_H
#define PL_CORE_GREETING_H

#include "core/lane_auth.h"
#include "core/listener.h"
#include "core/trust.h"

struct greeting {
	struct pl_source source;
	struct pl_timer timer;
	struct pl_list link;
	struct pl_listener *listener;
	struct pl_stream stream;
	enum { FIRST_BYTE, CONTROL_TLS, CONTROL, KEY_PROOF, LANE_MAGIC, LANE_HELLO, LANE_PROOF, REFUSED } step;
	uint64_t since;   /* time of its arrival */
	uint64_t active;  /* time of its last bytes */
	uint64_t network; /* the address, or the first half of an IPv6 address */
	size_t have;      /* bytes of the message that is being read */
	uint8_t bytes[PL_KEY_PROOF];
	struct pl_admission *admission; /* after the handshake; NULL: the context judges nobody */
	bool key_proven;                /* by a proof after the handshake */
	struct pl_lane_auth auth;
};

/* greeting.c */
void pl_greeting_free(struct greeting *greeting);
/* Sends the reason, and lingers so that a reset does not discard it. */
void pl_greeting_refuse(struct greeting *greeting, enum pl_wire_status status);
/* Reads until `want` bytes are there. Returns 0, -EAGAIN, or the stream's error. */
int pl_greeting_read(struct greeting *greeting, void *bytes, size_t want);
/* Takes the stream out of the greeting, which is freed afterwards. */
struct pl_stream pl_greeting_take_stream(struct greeting *greeting);
/* Continues the TLS handshake; results of pl_stream_handshake(). */
int pl_greeting_handshake(struct greeting *greeting, struct pl_error *error);

/*
 * greeting_control.c: steps of a control channel. They return 1 if the connection is finished, 0 to go on, -EAGAIN to
 * wait, another negative errno to give up.
 */
/* Finishes the TLS handshake, and judges the other end. */
int pl_greeting_authenticate(struct greeting *greeting);
/* Reads the magic of the next message: a proof of the key, or the first control message, which makes a peer. */
int pl_greeting_control(struct greeting *greeting);
/* Checks the proof of the key and answers with this end's, made with the same key. */
int pl_greeting_check_key(struct greeting *greeting);

#endif
