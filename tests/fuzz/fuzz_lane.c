/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: the hello, challenge or welcome of a data socket.  The length tells them apart. */
#include "fuzz.h"

#include "wire/wire.h"

static void lane_hello_round_trip(const uint8_t *data)
{
	uint8_t again[PL_LANE_HELLO];
	struct pl_lane_hello decoded;
	int rc = pl_lane_hello_decode(data, &decoded);

	REQUIRE(rc == 0 || rc == -EPROTO);
	if (rc)
		return;
	pl_lane_hello_encode(&decoded, again);
	REQUIRE(memcmp(again, data, sizeof(again)) == 0);
}

static void lane_challenge_round_trip(const uint8_t *data)
{
	uint8_t again[PL_LANE_CHALLENGE];
	struct pl_lane_challenge decoded;

	if (pl_lane_challenge_decode(data, &decoded) < 0)
		return;
	pl_lane_challenge_encode(&decoded, again);
	REQUIRE(memcmp(again, data, sizeof(again)) == 0);
}

static void lane_welcome_round_trip(const uint8_t *data)
{
	uint8_t again[PL_LANE_WELCOME];
	struct pl_error error;
	uint32_t status;
	int rc = pl_lane_welcome_decode(data, &status);

	REQUIRE(rc == 0 || rc == -EPROTO);
	if (rc)
		return;
	pl_lane_welcome_encode(status, again);
	REQUIRE(memcmp(again, data, sizeof(again)) == 0);
	REQUIRE((pl_wire_errno(status) == 0) == (status == PL_WIRE_OK));
	REQUIRE(pl_wire_fail(&error, status, "connect", NULL) < 0);
	REQUIRE(error.code < 0 && error.id[0] && error.message[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size >= PL_LANE_CHALLENGE && size % 2)
		lane_challenge_round_trip(data);
	else if (size >= PL_LANE_HELLO)
		lane_hello_round_trip(data);
	else if (size >= PL_LANE_WELCOME)
		lane_welcome_round_trip(data);
	return 0;
}
