/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/lane_auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "base/secret_pool.h"

/* Labels; their NULs are part of the bytes, so that none begins another. */
#define LABEL_ACCEPTOR "peerlane lane acceptor"
#define LABEL_INITIATOR "peerlane lane initiator"
#define LABEL_ACCEPTOR_SENDS "peerlane lane acceptor sends"
#define LABEL_INITIATOR_SENDS "peerlane lane initiator sends"
#define LABEL_FD_SOCKET "peerlane fd socket"
#define LABEL_MAX 32

/* In a lane hello, and in a challenge: bytes before the tag. */
#define HELLO_NONCE 16
#define CHALLENGE_TAG (PL_LANE_CHALLENGE - PL_TAG)

struct transcript {
	uint8_t bytes[LABEL_MAX + PL_LANE_HELLO + PL_LANE_CHALLENGE];
	size_t length;
};

static void add_bytes(struct transcript *transcript, const void *bytes, size_t length)
{
	memcpy(transcript->bytes + transcript->length, bytes, length);
	transcript->length += length;
}

static void begin_transcript(struct transcript *transcript, const char *label)
{
	transcript->length = 0;
	add_bytes(transcript, label, strlen(label) + 1);
}

static int sign_transcript(const struct pl_peer *peer, const struct transcript *transcript, uint8_t out[PL_SECRET])
{
	unsigned length = PL_SECRET;

	if (!peer->secret ||
	    !HMAC(EVP_sha256(), peer->secret, PL_SECRET, transcript->bytes, transcript->length, out, &length))
		return -EIO;
	return 0;
}

static int sign_lane(const struct pl_lane_auth *auth, const struct pl_peer *peer, const char *label, size_t challenge,
		     uint8_t out[PL_SECRET])
{
	struct transcript transcript;

	begin_transcript(&transcript, label);
	add_bytes(&transcript, auth->hello, sizeof(auth->hello));
	add_bytes(&transcript, auth->challenge, challenge);
	return sign_transcript(peer, &transcript, out);
}

int pl_peer_derive_secret(struct pl_peer *peer, const uint8_t initiator[PL_SECRET], const uint8_t acceptor[PL_SECRET])
{
	uint8_t hellos[2 * PL_SECRET], context[PL_SECRET];

	memcpy(hellos, initiator, PL_SECRET);
	memcpy(hellos + PL_SECRET, acceptor, PL_SECRET);
	SHA256(hellos, sizeof(hellos), context);
	if (!peer->secret)
		peer->secret = pl_secret_alloc(pl_tls_secrets(peer->context->tls));
	if (!peer->secret)
		return -ENOMEM;
	return pl_stream_export(&peer->channel.stream, PL_EXPORT_LANES, context, peer->secret);
}

int pl_lane_auth_hello(struct pl_lane_auth *auth, uint64_t peer_index, uint16_t lane)
{
	struct pl_lane_hello hello = { .version = PL_PROTOCOL_VERSION, .lane = lane, .peer_index = peer_index };

	if (pl_random(hello.nonce, sizeof(hello.nonce)) < 0)
		return -EIO;
	pl_lane_hello_encode(&hello, auth->hello);
	return 0;
}

int pl_lane_auth_challenge(struct pl_lane_auth *auth, const struct pl_peer *peer)
{
	struct pl_lane_challenge challenge = { .status = PL_WIRE_OK };
	uint8_t mac[PL_SECRET];

	if (pl_random(challenge.nonce, sizeof(challenge.nonce)) < 0 || pl_random(mac, sizeof(mac)) < 0)
		return -EIO;
	pl_lane_challenge_encode(&challenge, auth->challenge);
	if (peer && sign_lane(auth, peer, LABEL_ACCEPTOR, CHALLENGE_TAG, mac) < 0)
		return -EIO;
	memcpy(auth->challenge + CHALLENGE_TAG, mac, PL_TAG);
	return 0;
}

int pl_lane_auth_prove(const struct pl_lane_auth *auth, const struct pl_peer *peer, uint8_t proof[PL_TAG])
{
	struct pl_lane_challenge challenge;
	uint8_t mac[PL_SECRET];

	if (pl_lane_challenge_decode(auth->challenge, &challenge) < 0 || challenge.status != PL_WIRE_OK)
		return -EPROTO;
	if (sign_lane(auth, peer, LABEL_ACCEPTOR, CHALLENGE_TAG, mac) < 0)
		return -EIO;
	if (CRYPTO_memcmp(challenge.tag, mac, PL_TAG))
		return -EACCES;
	if (sign_lane(auth, peer, LABEL_INITIATOR, PL_LANE_CHALLENGE, mac) < 0)
		return -EIO;
	memcpy(proof, mac, PL_TAG);
	return 0;
}

bool pl_lane_auth_check(const struct pl_lane_auth *auth, const struct pl_peer *peer, const uint8_t proof[PL_TAG])
{
	uint8_t mac[PL_SECRET];

	return sign_lane(auth, peer, LABEL_INITIATOR, PL_LANE_CHALLENGE, mac) == 0 &&
	       CRYPTO_memcmp(proof, mac, PL_TAG) == 0;
}

int pl_lane_auth_seal(const struct pl_lane_auth *auth, const struct pl_peer *peer, struct pl_stream *stream)
{
	uint8_t secrets[2][PL_SECRET]; /* of the acceptor's direction, and of the initiator's */
	bool sends = peer->initiator;
	int rc = sign_lane(auth, peer, LABEL_ACCEPTOR_SENDS, PL_LANE_CHALLENGE, secrets[0]);

	if (rc == 0)
		rc = sign_lane(auth, peer, LABEL_INITIATOR_SENDS, PL_LANE_CHALLENGE, secrets[1]);
	if (rc == 0)
		rc = pl_stream_seal(stream, &peer->context->allocator, secrets[sends], secrets[!sends]);
	OPENSSL_cleanse(secrets, sizeof(secrets));
	return rc;
}

/* -- messages without a challenge ------------------------------------------------------------------ */

static int sign_message(const struct pl_peer *peer, const uint8_t *message, size_t length, uint8_t mac[PL_SECRET])
{
	static const uint8_t none[PL_NONCE];
	struct transcript transcript;

	begin_transcript(&transcript, LABEL_FD_SOCKET);
	add_bytes(&transcript, message, HELLO_NONCE);
	add_bytes(&transcript, none, sizeof(none));
	add_bytes(&transcript, message + HELLO_NONCE + PL_NONCE, length - HELLO_NONCE - PL_NONCE);
	return sign_transcript(peer, &transcript, mac);
}

int pl_lane_auth_sign(const struct pl_peer *peer, uint8_t *message, size_t length)
{
	uint8_t mac[PL_SECRET];
	int rc = sign_message(peer, message, length, mac);

	memcpy(message + HELLO_NONCE, mac, PL_TAG);
	return rc;
}

bool pl_lane_auth_signed(const struct pl_peer *peer, const uint8_t *message, size_t length)
{
	uint8_t mac[PL_SECRET];

	return sign_message(peer, message, length, mac) == 0 &&
	       CRYPTO_memcmp(message + HELLO_NONCE, mac, PL_TAG) == 0;
}
