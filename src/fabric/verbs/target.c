/* SPDX-License-Identifier: BSD-2-Clause */
/* Remote keys, as this end uses them. */
#include "fabric/verbs/verbs.h"

static void forget(struct pl_remote *remote)
{
	pl_free(&remote->context->allocator, remote->way);
}

/* A key that is cut short reaches as many rails as it has keys for: none, in the worst case. */
static void decode(const struct pl_remote *remote, struct verbs_target *target)
{
	struct pl_reader reader;
	uint8_t present;

	pl_reader_init(&reader, remote->key, remote->key_length);
	pl_get_u64(&reader); /* the key's id, which its owner wants back */
	target->address = pl_get_u64(&reader);
	present = pl_get_u8(&reader);
	for (unsigned i = 0; i < VERBS_RAILS; i++) {
		target->rkeys[i] = pl_get_u32(&reader);
		if (!reader.bad)
			target->present |= present & (uint8_t)(1u << i);
	}
}

const struct verbs_target *verbs_target_make(struct pl_remote *remote)
{
	struct verbs_target *target = pl_zalloc(&remote->context->allocator, sizeof(*target));

	if (!target)
		return NULL;
	decode(remote, target);
	remote->way = target;
	remote->forget = forget;
	return target;
}
