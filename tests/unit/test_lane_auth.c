/* SPDX-License-Identifier: BSD-2-Clause */
/* Tags of lanes: each changed bit, another secret and another label are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/lane_auth.h"

#define STATUS_AT 4

/* Returns a peer that has only a secret; pl_lane_auth_*() need no more. */
static struct pl_peer *new_peer(uint8_t first)
{
	struct pl_peer *peer = calloc(1, sizeof(*peer));

	assert_non_null(peer);
	peer->secret = calloc(1, PL_SECRET);
	assert_non_null(peer->secret);
	for (unsigned i = 0; i < PL_SECRET; i++)
		peer->secret[i] = (uint8_t)(first + i);
	return peer;
}

static int set_up_peers(void **state)
{
	static struct pl_peer *peers[2];

	peers[0] = new_peer(1);
	peers[1] = new_peer(2);
	*state = peers;
	return 0;
}

static int free_peers(void **state)
{
	struct pl_peer **peers = *state;

	for (unsigned i = 0; i < 2; i++) {
		free(peers[i]->secret);
		free(peers[i]);
	}
	return 0;
}

static void test_signed_messages(void **state)
{
	struct pl_peer **peers = *state;
	const struct pl_lane_hello hello = { .version = 2, .lane = PL_LANE_FD_SOCKET, .peer_index = 9 };
	uint8_t message[PL_LANE_HELLO + 3] = { 0 };
	const size_t length = sizeof(message);

	/* The tag covers bytes behind the hello too. */
	pl_lane_hello_encode(&hello, message);
	assert_false(pl_lane_auth_signed(peers[0], message, length));
	assert_int_equal(pl_lane_auth_sign(peers[0], message, length), 0);
	assert_true(pl_lane_auth_signed(peers[0], message, length));
	assert_false(pl_lane_auth_signed(peers[1], message, length));
	assert_false(pl_lane_auth_signed(peers[0], message, length - 1));
	for (size_t bit = 0; bit < 8 * length; bit++) {
		message[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(pl_lane_auth_signed(peers[0], message, length));
		message[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void test_proofs(void **state)
{
	struct pl_peer **peers = *state;
	struct pl_lane_auth auth;
	uint8_t proof[PL_TAG];

	assert_int_equal(pl_lane_auth_hello(&auth, 9, 1), 0);
	assert_int_equal(pl_lane_auth_challenge(&auth, peers[0]), 0);
	assert_int_equal(pl_lane_auth_prove(&auth, peers[1], proof), -EACCES);
	assert_int_equal(pl_lane_auth_prove(&auth, peers[0], proof), 0);
	assert_true(pl_lane_auth_check(&auth, peers[0], proof));
	assert_false(pl_lane_auth_check(&auth, peers[1], proof));
	for (size_t bit = 0; bit < 8 * PL_TAG; bit++) {
		proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(pl_lane_auth_check(&auth, peers[0], proof));
		proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t bit = 0; bit < 8 * PL_LANE_CHALLENGE; bit++) {
		/* The head has a magic number and a status; the nonce and the tag follow. */
		int expected = bit < 8 * 8 ? -EPROTO : -EACCES;

		auth.challenge[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(pl_lane_auth_prove(&auth, peers[0], proof), expected);
		auth.challenge[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(pl_lane_auth_prove(&auth, peers[0], proof), 0);
}

/* A challenge for an unknown peer has a random tag, which does not tell that the peer is unknown. */
static void test_challenge_without_peer(void **state)
{
	static const uint8_t zeros[PL_TAG];
	struct pl_lane_auth auths[2];

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(pl_lane_auth_hello(&auths[i], 9, 1), 0);
		assert_int_equal(pl_lane_auth_challenge(&auths[i], NULL), 0);
		assert_memory_equal(auths[i].challenge + STATUS_AT, zeros, 4);
	}
	assert_memory_not_equal(auths[0].challenge + PL_LANE_CHALLENGE - PL_TAG,
				auths[1].challenge + PL_LANE_CHALLENGE - PL_TAG, PL_TAG);
	assert_memory_not_equal(auths[0].challenge + PL_LANE_CHALLENGE - PL_TAG, zeros, PL_TAG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signed_messages),
		cmocka_unit_test(test_proofs),
		cmocka_unit_test(test_challenge_without_peer),
	};

	return cmocka_run_group_tests(tests, set_up_peers, free_peers);
}
