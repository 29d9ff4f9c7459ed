/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: frame headers, one after the other. */
#include "fuzz.h"

#include "wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (; size >= PL_FRAME_HEADER; data += PL_FRAME_HEADER, size -= PL_FRAME_HEADER) {
		uint8_t again[PL_FRAME_HEADER];
		struct pl_frame frame;
		int rc = pl_frame_decode(data, &frame);

		REQUIRE(rc == 0 || rc == -EPROTO || rc == -EMSGSIZE);
		if (rc)
			continue;
		REQUIRE(frame.length <= PL_FRAME_BULK_MAX);
		REQUIRE(pl_frame_payload(&frame) == 0 || pl_frame_payload(&frame) == frame.length);
		pl_frame_encode(&frame, again);
		REQUIRE(memcmp(again, data, sizeof(again)) == 0);
	}
	return 0;
}
