/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/wire.h"

struct status_text {
	int code;
	const char *id, *fact, *hint;
};

static const struct status_text texts[] = {
	[PL_WIRE_UNKNOWN_KEY] = { -EACCES, "GRANT-UNKNOWN", "the peer does not know this grant, or has revoked it",
				  "ask the owner of the region to share it again" },
	[PL_WIRE_EXPIRED] = { -EACCES, "GRANT-EXPIRED", "the grant has expired at the peer",
			      "share the region again with a later expiry; check that the clocks of both hosts agree" },
	[PL_WIRE_RANGE] = { -EACCES, "GRANT-RANGE", "the access is outside the range that the peer granted",
			    "keep offset + length within pl_remote_length()" },
	[PL_WIRE_RIGHTS] = { -EACCES, "GRANT-RIGHTS", "the grant does not allow this kind of access",
			     "share the region with the right that is missing; see pl_remote_rights()" },
	[PL_WIRE_MISALIGNED] = { -EINVAL, "ATOMIC-MISALIGNED", "the word is not aligned to 8 bytes at the peer",
				 "choose a remote offset that makes the address in the peer's memory a multiple of 8" },
	[PL_WIRE_UNSUPPORTED] = { -ENOTSUP, "PEER-UNSUPPORTED", "the peer does not support this",
				  "use the same version of Peerlane at both ends" },
	[PL_WIRE_CANCELED] = { -ECANCELED, "PEER-CANCELED", "the peer cancelled its part of the operation",
			       "see at the peer why it gave up" },
	[PL_WIRE_TOO_LONG] = { -EMSGSIZE, "MESSAGE-TOO-LONG", "the message is longer than the buffer posted for it",
			       "post a larger buffer, or send less at a time" },
	[PL_WIRE_NEEDS_KEY] = { -EACCES, "AUTH-NEEDS-KEY", "the peer wants a pre-shared key and this end has none",
				"give this end the same key as the peer" },
	[PL_WIRE_VERSION] = { -EPROTO, "PROTOCOL-VERSION", "the two ends have no protocol version in common",
			      "update the older of the two ends" },
	[PL_WIRE_NO_FABRIC] = { -EPROTO, "FABRIC-NONE", "the two ends have no fabric in common",
				"let both ends choose their fabric with \"auto\", or name the same one" },
	[PL_WIRE_BUSY] = { -EBUSY, "PEER-BUSY", "the peer has too many of these already",
			   "try again later, or close connections and grants that are no longer used" },
	[PL_WIRE_INTERNAL] = { -EPROTO, "PEER-INTERNAL", "the peer failed in a way that it does not explain",
			       "see the errors that the peer's program reports" },
	[PL_WIRE_MEMORY] = { -EFAULT, "PEER-MEMORY", "the memory behind the peer's region cannot be read or written",
			     "the peer must keep the region mapped, and files behind it whole; if its card refuses it, "
			     "tcp will do" },
	[PL_WIRE_NO_KEY] = { -EACCES, "AUTH-NO-KEY", "this end has a pre-shared key and the other end has none",
			     "give both ends the same --key file, or neither a key" },
	[PL_WIRE_WRONG_KEY] = { -EACCES, "AUTH-KEY-MISMATCH", "the two ends have different keys",
				"give both ends the same --key file, byte for byte (compare: sha256sum FILE)" },
	[PL_WIRE_REFUSED] = { -EACCES, "IDENTITY-REFUSED", "the other end does not admit this end's identity",
			      "have a line with this end's fingerprint added to the other end's --authorized file" },
	[PL_WIRE_SELF] = { -EPERM, "SELF-CONNECTION", "the connection leads back to the context that began it",
			   "check the address; a context with a key or an identity cannot connect to itself" },
	[PL_WIRE_TOKEN_RIGHTS] = { -EACCES, "IDENTITY-RIGHTS", "the token allows more than this end's identity may",
				   "use a token with fewer rights, or have the --authorized file changed" },
	[PL_WIRE_IMPORTS] = { -EBUSY, "IDENTITY-IMPORTS", "this end's identity may not hold more imports at a time",
			      "destroy remote regions that are no longer used, or have imports= raised in the other "
			      "end's --authorized file" },
};

int pl_wire_errno(uint32_t status)
{
	if (status == PL_WIRE_OK)
		return 0;
	return status < PL_ARRAY_SIZE(texts) ? texts[status].code : -EPROTO;
}

int pl_wire_fail(struct pl_error *error, uint32_t status, const char *call, const char *object)
{
	const struct status_text *text;

	if (status == PL_WIRE_OK || status >= PL_ARRAY_SIZE(texts))
		return pl_fail(error, -EPROTO, texts[PL_WIRE_INTERNAL].id, call, object,
			       "use the same version of Peerlane at both ends",
			       "the peer failed with status %u, which is not known here", status);
	text = &texts[status];
	return pl_fail(error, text->code, text->id, call, object, text->hint, "%s", text->fact);
}
