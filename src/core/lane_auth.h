/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Proof that a socket comes from the other end of a peer.
 *
 * Both ends derive the peer's secret from the TLS stream of the control channel and from both hellos. The secret never
 * leaves a process: each end sends a tag, the beginning of an HMAC-SHA-256 over the messages so far. Nonces of both
 * ends make the tags of each lane different; labels tell the two ends' tags apart.
 *
 * An attacker on the path can pass a proof on and then use a lane in the clear. Only encryption prevents that.
 */
#ifndef PL_CORE_LANE_AUTH_H
#define PL_CORE_LANE_AUTH_H

#include "core/peer.h"

/* Messages that open a lane. */
struct pl_lane_auth {
	uint8_t hello[PL_LANE_HELLO];
	uint8_t challenge[PL_LANE_CHALLENGE];
};

/* Derives the peer's secret. Both digests are of the bodies of the hellos. Home. Returns 0, -ENOMEM or -EPROTO. */
int pl_peer_derive_secret(struct pl_peer *peer, const uint8_t initiator[PL_SECRET], const uint8_t acceptor[PL_SECRET]);

/* Initiator: fills the hello. Returns 0 or -EIO. */
int pl_lane_auth_hello(struct pl_lane_auth *auth, uint64_t peer_index, uint16_t lane);
/*
 * Acceptor: fills the challenge. `peer` NULL: there is no such peer, and the tag is random, so that strangers do not
 * learn which peers there are. Returns 0 or -EIO.
 */
int pl_lane_auth_challenge(struct pl_lane_auth *auth, const struct pl_peer *peer);
/* Initiator: checks the challenge and computes the proof. Returns 0, -EACCES, -EPROTO or -EIO. */
int pl_lane_auth_prove(const struct pl_lane_auth *auth, const struct pl_peer *peer, uint8_t proof[PL_TAG]);
/* Acceptor: returns true if the proof is right. */
bool pl_lane_auth_check(const struct pl_lane_auth *auth, const struct pl_peer *peer, const uint8_t proof[PL_TAG]);
/* After the proof: encrypts the lane's stream, with secrets of its own. Returns 0, -ENOMEM or -EIO. */
int pl_lane_auth_seal(const struct pl_lane_auth *auth, const struct pl_peer *peer, struct pl_stream *stream);

/*
 * Puts the tag of a message without a challenge, that of the fd socket, in place of the nonce in the lane hello at its
 * front. Returns 0 or -EIO.
 */
int pl_lane_auth_sign(const struct pl_peer *peer, uint8_t *message, size_t length);
/* Returns true if the tag is right. */
bool pl_lane_auth_signed(const struct pl_peer *peer, const uint8_t *message, size_t length);

#endif
