/* SPDX-License-Identifier: BSD-2-Clause */
/* Arguments of the public calls that post operations. */
#ifndef PL_CORE_CALL_H
#define PL_CORE_CALL_H

#include "core/fabric.h"

/* Flags of all kinds of operations. */
#define PL_CALL_FLAGS (PL_REQUIRE_DIRECT | PL_FENCE | PL_MORE)

/* Copies attributes that are not usual. Returns 0 or -EINVAL. */
int pl_call_copy_attributes(struct pl_attributes *copy, const struct pl_attributes *given, enum pl_kind kind,
			    const char *call, struct pl_error *error);
/* Reports attributes that are wrong. */
int pl_call_bad_attributes(struct pl_error *error, const char *call, const char *fact);
int pl_call_check_notify_data(const struct pl_peer *peer, const void *data, size_t length, const char *call,
			      struct pl_error *error);
/* Reports elements of a vector whose lengths have a sum that does not fit 64 bits. */
int pl_call_fail_length(struct pl_error *error, const char *call);
/* Report the reason that the peer, region or remote region does not fit. */
int pl_call_check_peer(const struct pl_peer *peer, const char *call, struct pl_error *error);
int pl_call_check_local(const struct pl_context *context, const struct pl_region *region, uint64_t offset,
			uint64_t length, const char *call, struct pl_error *error);
int pl_call_check_remote(const struct pl_peer *peer, const struct pl_remote *remote, uint64_t offset, uint64_t length,
			 unsigned right, const char *call, struct pl_error *error);

/* Returns attributes that can be used in place; NULL: they must be copied. */
PL_ALWAYS_INLINE const struct pl_attributes *pl_call_usual(const struct pl_attributes *given)
{
	static const struct pl_attributes usual = PL_ATTRIBUTES_INIT;

	if (!given)
		return &usual;
	return given->size == sizeof(*given) && !(given->flags & ~(unsigned)PL_CALL_FLAGS) &&
			       given->visible <= PL_VISIBLE_GPU_VISIBLE
		       ? given
		       : NULL;
}

/* Usual attributes are used in place; others are copied. */
PL_ALWAYS_INLINE int pl_call_attributes(const struct pl_attributes **attributes, struct pl_attributes *copy,
					const struct pl_attributes *given, enum pl_kind kind, const char *call,
					struct pl_error *error)
{
	*attributes = pl_call_usual(given);
	if (*attributes)
		return 0;
	*attributes = copy;
	return pl_call_copy_attributes(copy, given, kind, call, error);
}

static inline bool pl_call_peer_fits(const struct pl_peer *peer)
{
	return atomic_load_explicit(&peer->state, memory_order_relaxed) == PL_PEER_UP;
}

static inline bool pl_call_local_fits(const struct pl_peer *peer, const struct pl_region *region, uint64_t offset,
				      uint64_t length)
{
	return region && region->context == peer->context && !pl_outside(offset, length, region->memory.length);
}

static inline bool pl_call_remote_fits(const struct pl_peer *peer, const struct pl_remote *remote, uint64_t offset,
				       uint64_t length, unsigned right)
{
	return remote && remote->peer == peer && !pl_outside(offset, length, remote->length) &&
	       (remote->rights & right);
}

#endif
