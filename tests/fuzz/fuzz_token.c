/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: a token. */
#include "fuzz.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "wire/wire.h"

static void token_round_trip(const uint8_t *data, size_t size)
{
	uint8_t again[PL_TOKEN_SIZE];
	struct pl_token token;
	int rc = pl_token_decode(data, size, &token);

	REQUIRE(rc == 0 || rc == -EPROTO || rc == -EBADMSG);
	if (rc)
		return;
	REQUIRE(size == PL_TOKEN_SIZE && token.rights <= PL_ACCESS_ALL && token.kind < PL_TOKEN_KIND_END);
	pl_token_encode(&token, again);
	REQUIRE(memcmp(again, data, sizeof(again)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t sealed[PL_TOKEN_SIZE];
	uint32_t sum;

	token_round_trip(data, size);
	if (size != PL_TOKEN_SIZE)
		return 0;
	/* The target also decodes the token with a right checksum, which a fuzzer does not guess. */
	memcpy(sealed, data, sizeof(sealed));
	sum = htole32(XXH32(sealed, PL_TOKEN_SIZE - sizeof(sum), 0));
	memcpy(sealed + PL_TOKEN_SIZE - sizeof(sum), &sum, sizeof(sum));
	token_round_trip(sealed, sizeof(sealed));
	return 0;
}
