/* SPDX-License-Identifier: BSD-2-Clause */
/* Tokens, as the program presents them. */
#include "core/context.h"
#include "core/grant.h"

int pl_token_read(const void *data, size_t length, struct pl_token *token, struct pl_error *error)
{
	int rc = pl_token_decode(data, length, token);

	if (rc == -EBADMSG)
		return pl_fail(error, -EINVAL, "TOKEN-DAMAGED", "token", NULL, "transmit the token unchanged",
			       "the token's checksum is wrong");
	if (rc < 0)
		return pl_fail(error, -EINVAL, "TOKEN-MALFORMED", "token", NULL,
			       "pass the token as the call that made it wrote it, with its length",
			       "these %zu bytes are no token", length);
	return 0;
}

int pl_token_read_kind(const void *data, size_t length, enum pl_token_kind kind, struct pl_token *token,
		       struct pl_error *error)
{
	int rc = pl_token_read(data, length, token, error);

	if (rc < 0 || token->kind == kind)
		return rc;
	if (kind == PL_TOKEN_STREAM)
		return pl_fail(error, -EINVAL, "TOKEN-KIND", "token", NULL,
			       "import it by pl_remote_import(); tokens of streams come from pl_publisher_share()",
			       "the token is that of a region, not of a stream");
	return pl_fail(error, -EINVAL, "TOKEN-KIND", "token", NULL,
		       "subscribe with it: pl_subscriber_options.token, or `peerlane subscribe --token FILE`",
		       "the token is that of a stream, not of a region");
}

int pl_token_inspect(const void *data, size_t length, struct pl_token_info *info, struct pl_error *error)
{
	struct pl_token token;
	int rc = pl_token_read(data, length, &token, error);

	if (rc < 0)
		return rc;
	info->region_length = token.length;
	info->rights = token.rights;
	info->expires = token.expires;
	return 0;
}
