/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input: a control message with its header.  The target ignores the header's length and so reaches bodies more often.
 */
#include "fuzz.h"

#include "wire/wire.h"

#define BUFFER_SIZE (PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t zero[16];
	uint8_t first[BUFFER_SIZE], second[BUFFER_SIZE];
	struct pl_control message;
	uint32_t length;
	uint16_t type;
	int rc, encoded;

	if (size < PL_CONTROL_HEADER)
		return 0;
	rc = pl_control_header_decode(data, &type, &length);
	REQUIRE(rc == 0 || rc == -EPROTO || rc == -EMSGSIZE);
	if (rc == -EPROTO)
		return 0;
	rc = pl_control_decode(type, data + PL_CONTROL_HEADER, size - PL_CONTROL_HEADER, &message);
	REQUIRE(rc == 0 || rc == -EPROTO || rc == -EMSGSIZE || rc == -ENOMSG);
	if (rc)
		return 0;

	/* Every field has one encoding.  Only replaced bytes of texts, and extensions of a HELLO, may differ. */
	encoded = pl_control_encode(&message, first, sizeof(first));
	REQUIRE(encoded >= 0 && ((size_t)encoded == size || (type == PL_CONTROL_HELLO && (size_t)encoded < size)));
	size = (size_t)encoded;
	REQUIRE(pl_control_encode(&message, second, size - 1) == -ENOBUFS);
	REQUIRE(pl_control_header_decode(first, &type, &length) == 0);
	REQUIRE(type == message.type && length == size - PL_CONTROL_HEADER);
	REQUIRE(pl_control_decode(type, first + PL_CONTROL_HEADER, length, &message) == 0);
	REQUIRE(pl_control_encode(&message, second, sizeof(second)) == encoded);
	REQUIRE(memcmp(first, second, size) == 0);
	if (type != PL_CONTROL_HELLO && type != PL_CONTROL_REJECT)
		REQUIRE(memcmp(first + PL_CONTROL_HEADER, data + PL_CONTROL_HEADER, length) == 0);
	if (type == PL_CONTROL_IMPORTED && message.imported.status != PL_WIRE_OK)
		REQUIRE(memcmp(message.imported.key, zero, sizeof(zero)) == 0);
	return 0;
}
