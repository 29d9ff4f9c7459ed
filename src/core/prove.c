/* SPDX-License-Identifier: BSD-2-Clause */
/* Initiator: judges the acceptor after the TLS handshake, and exchanges proofs of the key if that used certificates. */
#include <sys/epoll.h>

#include "core/fabric.h"
#include "core/trust.h"

static int fail_proof_stream(int rc, struct pl_error *error)
{
	if (rc == -EPIPE)
		rc = -ECONNRESET;
	return pl_fail(error, rc, rc == -ECONNRESET ? "PEER-LOST" : "CONNECT-FAILED", "connect", NULL,
		       "see why the other end gave up", "the other end hung up while the key was proved");
}

static int send_own_proof(struct pl_peer *peer, struct pl_error *error)
{
	uint8_t message[PL_KEY_PROOF];
	struct iovec vector = { .iov_base = message, .iov_len = sizeof(message) };
	ssize_t sent;

	/* A repeated call makes the same bytes, as TLS demands. */
	if (pl_key_proof_make(&peer->incoming, peer->context->tls, 0, true, message) < 0)
		return pl_fail(error, -EIO, "TLS-FAILED", "connect", NULL, NULL, "the proof of the key cannot be made");
	sent = pl_stream_write(&peer->incoming, &vector, 1);
	if (sent == -EAGAIN)
		return -EAGAIN;
	return sent == PL_KEY_PROOF ? 0 : fail_proof_stream(sent < 0 ? (int)sent : -EIO, error);
}

static int read_proof_bytes(struct pl_peer *peer, size_t want, struct pl_error *error)
{
	while (peer->proof_have < want) {
		struct iovec vector = { .iov_base = peer->proof + peer->proof_have,
					.iov_len = want - peer->proof_have };
		ssize_t got = pl_stream_read(&peer->incoming, &vector, 1);

		if (got == -EAGAIN)
			return -EAGAIN;
		if (got < 0)
			return fail_proof_stream((int)got, error);
		peer->proof_have += (size_t)got;
	}
	return 0;
}

/* Reads the acceptor's proof, or the beginning of a control message, by which it refuses. */
static int read_other_proof(struct pl_peer *peer, struct pl_error *error)
{
	struct pl_reader reader;
	uint32_t magic;
	int rc = read_proof_bytes(peer, 4, error);

	if (rc < 0)
		return rc;
	pl_reader_init(&reader, peer->proof, 4);
	magic = pl_get_u32(&reader);
	if (magic == PL_MAGIC_CONTROL) {
		memcpy(peer->incoming_prefix, peer->proof, 4);
		peer->proving = PL_PROOF_REFUSED;
		return 0;
	}
	if (magic != PL_MAGIC_KEY_PROOF)
		return pl_fail(error, -EPROTO, "PROTOCOL", "connect", NULL, NULL,
			       "the other end sent no proof of the key");
	rc = read_proof_bytes(peer, PL_KEY_PROOF, error);
	if (rc < 0)
		return rc;
	if (pl_key_proof_check(&peer->incoming, peer->context->tls, false, peer->proof,
			       peer->admission->identity.key_id) < 0)
		return pl_wire_fail(error, PL_WIRE_WRONG_KEY, "connect", NULL);
	peer->proving = PL_PROOF_DONE;
	return 0;
}

int pl_peer_judge(struct pl_peer *peer, struct pl_error *error)
{
	struct pl_tls *tls = peer->context->tls;
	const struct pl_candidate candidate = { .stream = &peer->incoming,
						.address = (struct sockaddr *)&peer->address,
						.server = peer->server_name };

	int rc = pl_trust_judge(peer->context, &candidate, &peer->admission, error);

	if (rc == 0)
		peer->proving = pl_tls_has_key(tls) && pl_tls_uses_certificates(tls) ? PL_PROOF_SEND : PL_PROOF_DONE;
	return rc;
}

int pl_peer_prove(struct pl_peer *peer, struct pl_error *error)
{
	if (peer->proving == PL_PROOF_SEND) {
		int rc = send_own_proof(peer, error);

		if (rc < 0)
			return rc;
		peer->proving = PL_PROOF_READ;
	}
	if (peer->proving == PL_PROOF_READ)
		return read_other_proof(peer, error);
	return 0;
}
