/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/wire.h"

/* Only 64 bytes are hashed, so the shared library is not needed. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#define TOKEN_MAGIC 0x31544c50u /* "PLT1" */
#define TOKEN_VERSION 1
#define TOKEN_HASHED (PL_TOKEN_SIZE - 4)

void pl_token_encode(const struct pl_token *token, uint8_t buffer[PL_TOKEN_SIZE])
{
	struct pl_writer writer;

	pl_writer_init(&writer, buffer, PL_TOKEN_SIZE);
	pl_put_u32(&writer, TOKEN_MAGIC);
	pl_put_u8(&writer, TOKEN_VERSION);
	pl_put_u8(&writer, token->rights);
	pl_put_u16(&writer, token->kind);
	pl_put_bytes(&writer, token->context_id, sizeof(token->context_id));
	pl_put_u64(&writer, token->grant);
	pl_put_bytes(&writer, token->secret, sizeof(token->secret));
	pl_put_u64(&writer, token->length);
	pl_put_u64(&writer, token->expires);
	pl_put_u32(&writer, XXH32(buffer, TOKEN_HASHED, 0));
}

int pl_token_decode(const void *data, size_t length, struct pl_token *token)
{
	struct pl_reader reader;

	pl_reader_init(&reader, data, length);
	if (length != PL_TOKEN_SIZE || pl_get_u32(&reader) != TOKEN_MAGIC || pl_get_u8(&reader) != TOKEN_VERSION)
		return -EPROTO;
	token->rights = pl_get_u8(&reader);
	token->kind = pl_get_u16(&reader);
	pl_get_bytes(&reader, token->context_id, sizeof(token->context_id));
	token->grant = pl_get_u64(&reader);
	pl_get_bytes(&reader, token->secret, sizeof(token->secret));
	token->length = pl_get_u64(&reader);
	token->expires = pl_get_u64(&reader);
	if (pl_get_u32(&reader) != XXH32(data, TOKEN_HASHED, 0))
		return -EBADMSG;
	if (token->kind >= PL_TOKEN_KIND_END || (token->rights & ~PL_ACCESS_ALL))
		return -EPROTO;
	return token->kind == PL_TOKEN_STREAM && (token->rights || token->length) ? -EPROTO : 0;
}
