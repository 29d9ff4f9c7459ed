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
			       "pass the token as pl_region_share() wrote it, with its length",
			       "these %zu bytes are no token", length);
	return 0;
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
