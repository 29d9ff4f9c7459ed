/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: the greeting or the welcome of a data socket, told apart by its length. */
#include "fuzz.h"

#include "wire/wire.h"

static void hello(const uint8_t *data)
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

static void welcome(const uint8_t *data)
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
	if (size >= PL_LANE_HELLO)
		hello(data);
	else if (size >= PL_LANE_WELCOME)
		welcome(data);
	return 0;
}
