/* SPDX-License-Identifier: BSD-2-Clause */
/* Control channels that have not identified themselves: TLS handshake, judgement, proof of the key. */
#include "core/fabric.h"
#include "core/greeting.h"

/* Describes the other end. `address` has room for its address. */
static struct pl_candidate greeting_candidate(const struct greeting *greeting, struct sockaddr_storage *address)
{
	socklen_t length = sizeof(*address);

	memset(address, 0, sizeof(*address));
	getpeername(greeting->source.fd, (struct sockaddr *)address, &length);
	return (struct pl_candidate){ .stream = &greeting->stream, .address = (struct sockaddr *)address };
}

/* Takes the turn of the callbacks. Returns false if the connection waits for it. */
static bool greeting_begin_turn(struct greeting *greeting)
{
	if (pl_callback_turn_begin(&greeting->listener->context->callback_turns.queues[greeting->engine],
				   &greeting->turn))
		return true;
	/* Bytes and the end of the connection wait too: epoll would report them over and over. */
	pl_source_remove(&greeting->source);
	return false;
}

/* Ends a connection that is refused: returns the next step's result as the steps do. */
static int greeting_end_refused(struct greeting *greeting, enum pl_wire_status status)
{
	if (status == PL_WIRE_OK)
		return -ECONNRESET;
	/* Waits until the other end has read it. */
	pl_greeting_refuse(greeting, status);
	return -EAGAIN;
}

int pl_greeting_report(struct greeting *greeting)
{
	struct pl_context *context = greeting->listener->context;
	struct sockaddr_storage address;
	const struct pl_candidate candidate = greeting_candidate(greeting, &address);

	if (!greeting_begin_turn(greeting))
		return -EAGAIN;
	pl_trust_report_refused(context, &candidate, &greeting->refusal);
	pl_callback_turn_end(&context->callback_turns);
	return greeting_end_refused(greeting, greeting->refusal_status);
}

/* Tells the program, and then the other end, why a connection is refused. PL_WIRE_OK: the other end is not told. */
static int greeting_refuse_reported(struct greeting *greeting, enum pl_wire_status status, const struct pl_error *error)
{
	if (!greeting->listener->context->options.refused)
		return greeting_end_refused(greeting, status);
	greeting->refusal = *error;
	greeting->refusal_status = status;
	greeting->step = REPORT;
	return 0;
}

/* Refuses an end for a reason that it also learns, such as a wrong key. */
static int greeting_refuse_by(struct greeting *greeting, enum pl_wire_status status)
{
	struct pl_error error;

	pl_wire_fail(&error, status, "accept", NULL);
	return greeting_refuse_reported(greeting, status, &error);
}

int pl_greeting_authenticate(struct greeting *greeting)
{
	struct pl_error error;
	int rc = -EAGAIN;

	if (pl_engine_may_compute(pl_greeting_engine(greeting)))
		rc = pl_greeting_handshake(greeting, &error);
	if (rc < 0 && rc != -EAGAIN)
		return greeting_refuse_reported(greeting, PL_WIRE_OK, &error);
	if (rc == 0)
		greeting->step = JUDGE;
	return rc;
}

int pl_greeting_judge(struct greeting *greeting)
{
	struct pl_context *context = greeting->listener->context;
	const bool asks = pl_trust_asks_program(context);
	struct sockaddr_storage address;
	const struct pl_candidate candidate = greeting_candidate(greeting, &address);
	struct pl_error error;
	int rc;

	if (asks && !greeting_begin_turn(greeting))
		return -EAGAIN;
	rc = pl_trust_judge(context, &candidate, &greeting->admission, &error);
	if (asks)
		pl_callback_turn_end(&context->callback_turns);
	if (rc < 0)
		return greeting_refuse_reported(greeting, PL_WIRE_REFUSED, &error);
	greeting->step = CONTROL;
	return 0;
}

/* True if ends that connect must prove the key after the handshake. */
static bool wants_key_proof(const struct greeting *greeting)
{
	const struct pl_tls *tls = greeting->listener->context->tls;

	return pl_tls_has_key(tls) && pl_tls_uses_certificates(tls);
}

int pl_greeting_check_key(struct greeting *greeting)
{
	struct pl_tls *tls = greeting->listener->context->tls;
	struct iovec vector = { .iov_base = greeting->bytes, .iov_len = PL_KEY_PROOF };
	int key, rc = pl_greeting_read(greeting, greeting->bytes, PL_KEY_PROOF);

	if (rc < 0)
		return rc;
	key = pl_key_proof_check(&greeting->stream, tls, true, greeting->bytes, greeting->admission->identity.key_id);
	if (key < 0)
		return greeting_refuse_by(greeting, PL_WIRE_WRONG_KEY);
	rc = pl_key_proof_make(&greeting->stream, tls, (unsigned)key, false, greeting->bytes);
	if (rc == 0 && pl_stream_write(&greeting->stream, &vector, 1) != PL_KEY_PROOF)
		rc = -ECONNRESET;
	greeting->key_proven = true;
	greeting->step = CONTROL;
	return rc;
}

/* Counts a peer that the context accepts. Returns false if peers_max does not allow one more. */
static bool count_accepted_peer(struct pl_context *context)
{
	const unsigned most = context->options.peers_max;

	if (atomic_fetch_add(&context->accepted, 1) < most || !most)
		return true;
	atomic_fetch_sub(&context->accepted, 1);
	return false;
}

int pl_greeting_control(struct greeting *greeting)
{
	struct pl_context *context = greeting->listener->context;
	struct pl_stream stream;
	struct pl_reader reader;
	uint32_t magic;
	int rc = pl_greeting_read(greeting, greeting->bytes, 4);

	if (rc < 0)
		return rc;
	pl_reader_init(&reader, greeting->bytes, 4);
	magic = pl_get_u32(&reader);
	if (magic == PL_MAGIC_KEY_PROOF && !greeting->key_proven) {
		if (!wants_key_proof(greeting))
			return greeting_refuse_by(greeting, PL_WIRE_NO_KEY);
		greeting->have = 4; /* the proof begins with them */
		greeting->step = KEY_PROOF;
		return 0;
	}
	if (magic != PL_MAGIC_CONTROL)
		return -EPROTO;
	if (wants_key_proof(greeting) && !greeting->key_proven)
		return greeting_refuse_by(greeting, PL_WIRE_NEEDS_KEY);
	if (!count_accepted_peer(context))
		return greeting_refuse_by(greeting, PL_WIRE_BUSY);
	rc = pl_greeting_take_stream(greeting, &stream);
	if (rc < 0) {
		atomic_fetch_sub(&context->accepted, 1);
		return rc;
	}
	pl_peer_accept_stream(greeting->listener, &stream, greeting->bytes, greeting->admission);
	greeting->admission = NULL;
	pl_greeting_free(greeting);
	return 1;
}
