/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: a blob of regions. */
#include <stdlib.h>

#include "fuzz.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "wire/wire.h"

static void blob_round_trip(const uint8_t *data, size_t size)
{
	int count = pl_blob_decode(data, size);
	struct pl_blob_writer writer;
	uint8_t *again;

	REQUIRE(count > 0 || count == -EPROTO || count == -EBADMSG);
	if (count < 0)
		return;
	REQUIRE(size == PL_REGIONS_BLOB_SIZE(count));
	again = malloc(size);
	REQUIRE(again);
	pl_blob_begin(&writer, again, (size_t)count);
	for (size_t i = 0; i < (size_t)count; i++)
		pl_blob_add(&writer, pl_blob_address(data, i), pl_blob_token(data, i));
	REQUIRE(pl_blob_end(&writer) == size && memcmp(again, data, size) == 0);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *sealed;
	uint32_t sum;

	blob_round_trip(data, size);
	if (size < 4)
		return 0;
	/* The target also decodes the blob with a right checksum, which a fuzzer does not guess. */
	sealed = malloc(size);
	REQUIRE(sealed);
	memcpy(sealed, data, size);
	sum = htole32(XXH32(sealed, size - sizeof(sum), 0));
	memcpy(sealed + size - sizeof(sum), &sum, sizeof(sum));
	blob_round_trip(sealed, size);
	free(sealed);
	return 0;
}
