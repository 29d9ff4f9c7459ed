/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Accepted connections that have not identified themselves: a control channel, which begins with a TLS handshake, or a
 * data socket of a known peer, which proves that. The other end is not trusted, so each connection has a small buffer
 * and a deadline.
 */
#include <unistd.h>

#include "core/fabric.h"
#include "core/greeting.h"

#define TLS_HANDSHAKE_RECORD 0x16
/* Time for the other end to read a refusal. */
#define REFUSAL_TIME PL_NS_PER_S
/* Reads of one visit to a refused connection: then other sockets get their turn. */
#define DRAINS_A_VISIT 16

void pl_greeting_refuse(struct greeting *greeting, enum pl_wire_status status)
{
	struct pl_control message = { .type = PL_CONTROL_REJECT };
	uint8_t buffer[PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX];
	struct pl_error error;
	struct iovec vector;
	int length;

	pl_wire_fail(&error, status, "hello", NULL);
	message.reject.code = (int32_t)status;
	memcpy(message.reject.id, error.id, sizeof(message.reject.id));
	memcpy(message.reject.message, error.message, sizeof(message.reject.message));
	length = pl_control_encode(&message, buffer, sizeof(buffer));
	vector = (struct iovec){ .iov_base = buffer, .iov_len = length > 0 ? (size_t)length : 0 };
	pl_stream_write(&greeting->stream, &vector, 1);
	shutdown(greeting->stream.fd, SHUT_WR);
	greeting->step = REFUSED;
	pl_timer_set(pl_greeting_engine(greeting), &greeting->timer, pl_now() + REFUSAL_TIME);
}

int pl_greeting_read(struct greeting *greeting, void *bytes, size_t want)
{
	while (greeting->have < want) {
		struct iovec vector = { .iov_base = (char *)bytes + greeting->have, .iov_len = want - greeting->have };
		ssize_t got = pl_stream_read(&greeting->stream, &vector, 1);

		if (got < 0)
			return (int)got;
		greeting->have += (size_t)got;
	}
	greeting->have = 0;
	return 0;
}

/* Looks at the first byte without consuming it: a TLS record, or a magic of the protocol. */
static int greeting_identify(struct greeting *greeting)
{
	struct pl_listener *listener = greeting->listener;
	uint8_t first;
	ssize_t got = recv(greeting->source.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
	if (got == 0)
		return -EPIPE;
	if (first != TLS_HANDSHAKE_RECORD) {
		greeting->step = LANE_MAGIC;
		return 0;
	}
	if (listener->lanes_only)
		return -EPROTO;
	greeting->step = CONTROL_TLS;
	return pl_stream_open(&greeting->stream, greeting->source.fd, listener->context->tls, true, NULL);
}

int pl_greeting_take_stream(struct greeting *greeting, struct pl_stream *stream)
{
	if (!pl_greeting_leave_list(greeting))
		return -ECANCELED;
	pl_source_remove(&greeting->source);
	*stream = greeting->stream;
	greeting->stream.fd = -1;
	greeting->stream.ssl = NULL;
	greeting->stream.sealed = NULL;
	return 0;
}

int pl_greeting_handshake(struct greeting *greeting, struct pl_error *error)
{
	int rc = pl_stream_handshake(&greeting->stream, NULL, error);

	if (rc == -EAGAIN)
		pl_source_watch(&greeting->source, greeting->stream.want);
	else if (rc == 0)
		pl_source_watch(&greeting->source, EPOLLIN);
	return rc;
}

/* -- data sockets ---------------------------------------------------------------------------------- */

/* Finds the peer that the hello names, and pins it. NULL: there is none. */
static struct pl_peer *find_peer(const struct greeting *greeting, struct pl_lane_hello *hello)
{
	if (pl_lane_hello_decode(greeting->auth.hello, hello) < 0 || hello->version != PL_PROTOCOL_VERSION)
		return NULL;
	return pl_peer_by_index(greeting->listener->context, hello->peer_index);
}

/* Hands the socket over to the peer. Returns 1, or -ECANCELED if the listener has given the connection up. */
static int join_peer(struct greeting *greeting, struct pl_peer *peer)
{
	struct pl_stream stream;
	int rc = pl_greeting_take_stream(greeting, &stream);

	if (rc < 0)
		return rc;
	peer->ops->join(peer->endpoint, &stream, greeting->auth.hello);
	pl_greeting_free(greeting);
	return 1;
}

/* Tells a lane from a control channel of a release without TLS. */
static int greeting_recognise(struct greeting *greeting)
{
	static const char older[] = "PLC1";
	struct pl_reader reader;
	int rc = pl_greeting_read(greeting, greeting->auth.hello, 4);

	if (rc < 0)
		return rc;
	pl_reader_init(&reader, greeting->auth.hello, 4);
	if (pl_get_u32(&reader) == PL_MAGIC_LANE) {
		greeting->have = 4; /* the hello begins with them */
		greeting->step = LANE_HELLO;
		return 0;
	}
	if (memcmp(greeting->auth.hello, older, 4) || greeting->listener->lanes_only)
		return -EPROTO;
	pl_greeting_refuse(greeting, PL_WIRE_VERSION);
	return -EAGAIN;
}

/* Answers the hello by a challenge. The socket for descriptors has none: its hello has a tag. */
static int greeting_challenge(struct greeting *greeting)
{
	struct iovec vector = { .iov_base = greeting->auth.challenge, .iov_len = sizeof(greeting->auth.challenge) };
	struct pl_lane_hello hello = { 0 };
	struct pl_peer *peer;
	int rc = pl_greeting_read(greeting, greeting->auth.hello, PL_LANE_HELLO);

	if (rc < 0)
		return rc;
	peer = find_peer(greeting, &hello);
	if (peer && hello.lane == PL_LANE_FD_SOCKET) {
		if (pl_lane_auth_signed(peer, greeting->auth.hello, PL_LANE_HELLO))
			rc = join_peer(greeting, peer);
		else
			rc = -EACCES;
	} else {
		rc = pl_lane_auth_challenge(&greeting->auth, peer);
		if (rc == 0 && pl_stream_write(&greeting->stream, &vector, 1) != PL_LANE_CHALLENGE)
			rc = -ECONNRESET;
		greeting->step = LANE_PROOF;
	}
	if (peer)
		pl_peer_unpin(peer);
	return rc;
}

/* Checks the proof, then seals the stream if the peer's data is encrypted. */
static int greeting_check_proof(struct greeting *greeting)
{
	struct pl_lane_hello hello;
	struct pl_peer *peer;
	int rc = pl_greeting_read(greeting, greeting->bytes, PL_TAG);

	if (rc < 0)
		return rc;
	peer = find_peer(greeting, &hello);
	if (!peer)
		return -EACCES;
	if (!pl_lane_auth_check(&greeting->auth, peer, greeting->bytes))
		rc = -EACCES;
	else if (peer->encrypt)
		rc = pl_lane_auth_seal(&greeting->auth, peer, &greeting->stream);
	if (rc == 0)
		rc = join_peer(greeting, peer);
	pl_peer_unpin(peer);
	return rc;
}

/* -- both ------------------------------------------------------------------------------------------ */

/* Discards bytes until the other end closes. */
static int greeting_drain(struct greeting *greeting)
{
	uint8_t buffer[4096];
	ssize_t got = 1;

	for (unsigned i = 0; got > 0 && i < DRAINS_A_VISIT; i++)
		got = recv(greeting->source.fd, buffer, sizeof(buffer), MSG_DONTWAIT);
	return got > 0 || (got < 0 && errno == EAGAIN) ? -EAGAIN : -EPIPE;
}

/* Takes the next step. Returns 1 if the connection is finished, -EAGAIN to wait, another negative errno to give up. */
static int greeting_advance(struct greeting *greeting)
{
	switch (greeting->step) {
	case FIRST_BYTE:
		return greeting_identify(greeting);
	case CONTROL_TLS:
		return pl_greeting_authenticate(greeting);
	case JUDGE:
		return pl_greeting_judge(greeting);
	case CONTROL:
		return pl_greeting_control(greeting);
	case KEY_PROOF:
		return pl_greeting_check_key(greeting);
	case LANE_MAGIC:
		return greeting_recognise(greeting);
	case LANE_HELLO:
		return greeting_challenge(greeting);
	case LANE_PROOF:
		return greeting_check_proof(greeting);
	case REPORT:
		return pl_greeting_report(greeting);
	case REFUSED:
		break;
	}
	return greeting_drain(greeting);
}

/* Takes steps until the connection waits, or is finished. */
static void greeting_run(struct greeting *greeting)
{
	int rc;

	do
		rc = greeting_advance(greeting);
	while (rc == 0);
	if (rc < 0 && rc != -EAGAIN)
		pl_greeting_free(greeting);
}

bool pl_greeting_ready(struct pl_source *source, uint32_t events)
{
	struct greeting *greeting = pl_container_of(source, struct greeting, source);

	(void)events;
	atomic_store_explicit(&greeting->active, pl_now(), memory_order_relaxed);
	greeting_run(greeting);
	return true;
}

void pl_greeting_turn_came(struct pl_callback_wait *wait)
{
	struct greeting *greeting = pl_container_of(wait, struct greeting, turn);

	if (pl_source_add(pl_greeting_engine(greeting), &greeting->source, EPOLLIN) < 0)
		pl_greeting_free(greeting);
	else
		greeting_run(greeting);
}
