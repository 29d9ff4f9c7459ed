/* SPDX-License-Identifier: BSD-2-Clause */
/* Errors of a subscriber that its publisher has refused. */
#include "stream/connect.h"

int pl_fail_subscribe_status(enum pl_subscribe_status status, const char *name, struct pl_error *error)
{
	const char *call = "pl_subscriber_open";

	switch (status) {
	case PL_SUBSCRIBE_UNKNOWN:
		return pl_fail(error, -ENOENT, "STREAM-UNKNOWN", call, name,
			       "see pl_peer_publishers(3) for its streams", "the other end has no stream of that name");
	case PL_SUBSCRIBE_NO_BLOCK:
		return pl_fail(error, -EPERM, "STREAM-NO-BLOCK", call, name,
			       "set pl_publisher_options.allow_block, or use another overflow",
			       "the publisher does not allow subscribers to hold slots back");
	case PL_SUBSCRIBE_FULL:
		return pl_fail(error, -EMLINK, "STREAM-FULL", call, name,
			       "close subscribers, or raise the publisher's limit",
			       "the publisher, or this connection, has its most subscribers");
	case PL_SUBSCRIBE_PLACES:
		return pl_fail(error, -EMLINK, "STREAM-PLACES", call, name,
			       "close subscribers, use another connection, or raise the publisher's limit",
			       "this connection has its most subscribers of the publisher");
	case PL_SUBSCRIBE_OFTEN:
		return pl_fail(error, -EBUSY, "STREAM-OFTEN", call, name, "wait for a second, and subscribe less often",
			       "this connection has subscribed too often");
	case PL_SUBSCRIBE_ENDED:
		return pl_fail(error, -ENODATA, "STREAM-ENDED", call, name, NULL, "the stream has ended");
	case PL_SUBSCRIBE_NEEDS_TOKEN:
	case PL_SUBSCRIBE_WRONG_TOKEN:
	case PL_SUBSCRIBE_EXPIRED_TOKEN:
	case PL_SUBSCRIBE_TOKEN_RATE:
		return pl_fail_token_status(status, call, name, error);
	default:
		return pl_fail(error, -EREMOTEIO, "STREAM-REFUSED", call, name, "see the memory of the other end",
			       "the other end could not make the keys");
	}
}
