/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/call.h"

int pl_call_bad_attributes(struct pl_error *error, const char *call, const char *fact)
{
	return pl_fail(error, -EINVAL, "OPTION", call, "attributes", "start from PL_ATTRIBUTES_INIT", "%s", fact);
}

int pl_call_check_notify_data(const struct pl_peer *peer, const void *data, size_t length, const char *call,
			      struct pl_error *error)
{
	if (length && !data)
		return pl_call_bad_attributes(error, call, "a length of notification data without data");
	if (length > PL_NOTIFY_DATA_MAX)
		return pl_fail(error, -EMSGSIZE, "NOTIFY-DATA-LONG", call, NULL, "send a message with pl_send()",
			       "%zu bytes of notification data, at most %d are possible", length, PL_NOTIFY_DATA_MAX);
	if (length && !peer->notify_data)
		return pl_fail(error, -ENOTSUP, "NOTIFY-DATA-OLD", call, NULL, "update Peerlane at the other end",
			       "the other end (%s) accepts no data with notifications", peer->software);
	return 0;
}

/* Flags of some kinds of operations only. */
static unsigned special_flags(enum pl_kind kind)
{
	switch (kind) {
	case PL_KIND_WRITE:
	case PL_KIND_READ:
		return PL_NOTIFY | PL_AFTER_STREAM | PL_NO_WAIT;
	case PL_KIND_RECEIVE:
		return 0;
	case PL_KIND_SEND:
		return PL_AFTER_STREAM | PL_CONFIDENTIAL;
	default:
		return PL_AFTER_STREAM;
	}
}

int pl_call_copy_attributes(struct pl_attributes *attributes, const struct pl_attributes *given, enum pl_kind kind,
			    const char *call, struct pl_error *error)
{
	if (pl_copy_versioned(attributes, sizeof(*attributes), given) < 0)
		return pl_call_bad_attributes(error, call, "attributes of a newer library, or not initialised");
	if (attributes->flags & ~(PL_CALL_FLAGS | special_flags(kind)))
		return pl_call_bad_attributes(error, call, "flags that this operation does not have");
	if (attributes->visible > PL_VISIBLE_GPU_VISIBLE)
		return pl_call_bad_attributes(error, call, "unknown visibility");
	if (!(attributes->flags & PL_NOTIFY))
		attributes->notify_length = 0;
	/* A notification promises placed bytes, so the write must be acknowledged. */
	if ((attributes->flags & PL_NOTIFY) && attributes->visible == PL_VISIBLE_ON_WIRE)
		attributes->visible = PL_VISIBLE_ACKNOWLEDGED;
	return 0;
}

int pl_call_check_peer(const struct pl_peer *peer, const char *call, struct pl_error *error)
{
	if (pl_call_peer_fits(peer))
		return 0;
	return pl_fail(error, -ENOTCONN, "PEER-LOST", call, NULL, "connect again", "the connection is lost");
}

int pl_call_check_local(const struct pl_context *context, const struct pl_region *region, uint64_t offset,
			uint64_t length, const char *call, struct pl_error *error)
{
	if (!region || region->context != context)
		return pl_fail(error, -EINVAL, "REGION-FOREIGN", call, NULL, "use a region of the peer's context",
			       "no region, or one of another context");
	if (pl_outside(offset, length, region->memory.length))
		return pl_fail(error, -ERANGE, "REGION-RANGE", call, NULL, "stay within the region",
			       "%llu bytes at %llu of a region of %zu", (unsigned long long)length,
			       (unsigned long long)offset, region->memory.length);
	return 0;
}

int pl_call_check_remote(const struct pl_peer *peer, const struct pl_remote *remote, uint64_t offset, uint64_t length,
			 unsigned right, const char *call, struct pl_error *error)
{
	if (!remote || remote->peer != peer)
		return pl_fail(error, -EINVAL, "REMOTE-FOREIGN", call, NULL,
			       "use a remote region imported from this peer",
			       "no remote region, or one of another peer");
	if (pl_outside(offset, length, remote->length))
		return pl_fail(error, -ERANGE, "REMOTE-RANGE", call, NULL, "stay within the remote region",
			       "%llu bytes at %llu of a remote region of %llu", (unsigned long long)length,
			       (unsigned long long)offset, (unsigned long long)remote->length);
	if (!(remote->rights & right))
		return pl_fail(error, -EACCES, "REMOTE-RIGHTS", call, NULL, "ask the peer for a token with this right",
			       "the remote region does not allow this");
	return 0;
}

int pl_call_fail_length(struct pl_error *error, const char *call)
{
	return pl_fail(error, -EINVAL, "TRANSFER-LENGTH", call, NULL, "post several operations",
		       "the elements have 2^64 bytes or more together");
}
