/* SPDX-License-Identifier: BSD-2-Clause */
/* Grants that only one peer can import. */
#include "core/grant.h"
#include "core/stream_ops.h"

int pl_grant_bind(struct pl_region *region, unsigned rights, const struct pl_peer *peer, uint8_t data[PL_TOKEN_SIZE])
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct pl_context *context = region->context;
	size_t length = PL_TOKEN_SIZE;
	struct pl_token token;
	struct pl_grant *grant;
	int rc;

	options.rights = rights;
	rc = pl_region_share(region, &options, data, &length, NULL);
	if (rc == 0)
		rc = pl_token_decode(data, length, &token);
	if (rc < 0)
		return rc;
	/* Nobody has the token yet, so no other peer has imported it. */
	pthread_mutex_lock(&context->grant_lock);
	grant = pl_index_table_get(&context->grants, (uint32_t)token.grant);
	grant->only = peer;
	pthread_mutex_unlock(&context->grant_lock);
	return 0;
}
