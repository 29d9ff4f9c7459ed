/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Accepted connection that has not identified itself; for greeting*.c.
 *
 * One engine of the context runs it, so that TLS handshakes use all engines; that engine's lock protects it. The listener's
 * engine accepts it, and evicts it: it takes the connection out of the list, and posts a task that frees it.
 */
#ifndef PL_CORE_GREETING_H
#define PL_CORE_GREETING_H

#include "core/lane_auth.h"
#include "core/listener.h"
#include "core/trust.h"

struct greeting {
	struct pl_source source;
	struct pl_timer timer; /* ends it after a refusal */
	struct pl_task evicted_task;
	struct pl_callback_wait turn; /* to call the program; meanwhile the engine does not watch the socket */
	struct pl_list link; /* of listener->greetings; listener->lock */
	bool evicted;        /* true if evicted_task frees it; listener->lock */
	struct pl_listener *listener;
	unsigned engine; /* index in context->engines */
	struct pl_stream stream;
	enum {
		FIRST_BYTE,
		CONTROL_TLS,
		JUDGE,
		CONTROL,
		KEY_PROOF,
		LANE_MAGIC,
		LANE_HELLO,
		LANE_PROOF,
		REPORT,
		REFUSED
	} step;
	uint64_t since;          /* time of its arrival */
	_Atomic uint64_t active; /* time of its last bytes; the listener's engine reads it */
	uint64_t network;        /* the address, or the first half of an IPv6 address */
	size_t have;             /* bytes of the message that is being read */
	uint8_t bytes[PL_KEY_PROOF];
	struct pl_admission *admission; /* after the handshake; NULL: the context judges nobody */
	bool key_proven;                /* by a proof after the handshake */
	struct pl_lane_auth auth;
	/* Step REPORT: the reason for the program, and for the other end; PL_WIRE_OK: that end is not told. */
	struct pl_error refusal;
	enum pl_wire_status refusal_status;
};

static inline struct pl_engine *pl_greeting_engine(const struct greeting *greeting)
{
	return greeting->listener->context->engines[greeting->engine];
}

/* greeting_list.c */
/* Takes the connection out of the listener's list. Returns false if it has been evicted: then a task frees it. */
bool pl_greeting_leave_list(struct greeting *greeting);
/* Closes the connection. Frees it, unless it has been evicted. */
void pl_greeting_free(struct greeting *greeting);

/* greeting.c */
/* Event of the connection's socket: takes as many steps as its bytes allow. */
bool pl_greeting_ready(struct pl_source *source, uint32_t events);
/* The turn of the callbacks may be free: goes on with the step that waits for it. */
void pl_greeting_turn_came(struct pl_callback_wait *wait);
/* Sends the reason, and lingers so that a reset does not discard it. */
void pl_greeting_refuse(struct greeting *greeting, enum pl_wire_status status);
/* Reads until `want` bytes are there. Returns 0, -EAGAIN, or the stream's error. */
int pl_greeting_read(struct greeting *greeting, void *bytes, size_t want);
/* Takes the stream out of the greeting, which the caller frees. Returns 0, or -ECANCELED if it has been evicted. */
int pl_greeting_take_stream(struct greeting *greeting, struct pl_stream *stream);
/* Continues the TLS handshake; results of pl_stream_handshake(). */
int pl_greeting_handshake(struct greeting *greeting, struct pl_error *error);

/*
 * greeting_control.c: steps of a control channel. They return 1 if the connection is finished, 0 to go on, -EAGAIN to
 * wait, another negative errno to give up.
 */
/* Finishes the TLS handshake. */
int pl_greeting_authenticate(struct greeting *greeting);
/* Judges the other end, in its turn if the program decides. */
int pl_greeting_judge(struct greeting *greeting);
/* Tells the program, in its turn, why the connection is refused; then the other end. */
int pl_greeting_report(struct greeting *greeting);
/* Reads the magic of the next message: a proof of the key, or the first control message, which makes a peer. */
int pl_greeting_control(struct greeting *greeting);
/* Checks the proof of the key and answers with this end's, made with the same key. */
int pl_greeting_check_key(struct greeting *greeting);

#endif
