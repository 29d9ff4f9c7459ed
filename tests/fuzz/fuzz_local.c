/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: messages to an endpoint of the local fabric: a record of the descriptor socket, an invitation, a key and a COPY. */
#include "fuzz.h"

#include "fabric/local/record.h"

static void local_record_round_trip(const uint8_t *data)
{
	uint8_t again[LOCAL_RECORD];
	struct local_record decoded;
	int rc = local_record_decode(data, &decoded);

	REQUIRE(rc == 0 || rc == -EPROTO);
	if (rc)
		return;
	REQUIRE(decoded.type >= LOCAL_RECORD_GATES && decoded.type < LOCAL_RECORD_END && decoded.size > 0);
	local_record_encode(&decoded, again);
	REQUIRE(memcmp(again, data, sizeof(again)) == 0);
}

static void local_invitation_round_trip(const uint8_t *data, size_t size)
{
	uint8_t again[LOCAL_INVITATION];
	struct local_invitation decoded;
	int rc = local_invitation_decode(data, size, &decoded);

	REQUIRE(rc == 0 || rc == -EPROTO);
	REQUIRE(rc || size >= LOCAL_INVITATION);
	if (rc)
		return;
	local_invitation_encode(&decoded, again);
	REQUIRE(memcmp(again, data, sizeof(again)) == 0);
}

static void local_key_round_trip(const uint8_t *data, size_t size)
{
	uint8_t again[PL_KEY_BLOB_MAX];
	struct local_key decoded;
	int rc = local_key_decode(data, size, &decoded);

	REQUIRE(rc == 0 || rc == -EPROTO);
	if (rc)
		return;
	REQUIRE(decoded.ipc_handle_length <= sizeof(decoded.ipc_handle) &&
		size == LOCAL_KEY + decoded.ipc_handle_length);
	REQUIRE(local_key_encode(&decoded, again) == (int)size);
	REQUIRE(memcmp(again, data, size) == 0);
}

static void local_copy_round_trip(const uint8_t *data, size_t size)
{
	static struct local_copy_request decoded;
	uint8_t again[PL_FRAME_SMALL_MAX];
	int rc = local_copy_request_decode(data, size, &decoded);

	REQUIRE(rc == 0 || rc == -EPROTO);
	if (rc)
		return;
	REQUIRE(decoded.count > 0 && decoded.count <= LOCAL_COPY_RANGES && decoded.key_length <= PL_KEY_BLOB_MAX);
	REQUIRE(local_copy_request_encode(&decoded, again) == size);
	REQUIRE(memcmp(again, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size >= LOCAL_RECORD)
		local_record_round_trip(data);
	local_invitation_round_trip(data, size);
	local_key_round_trip(data, size);
	local_copy_round_trip(data, size);
	return 0;
}
