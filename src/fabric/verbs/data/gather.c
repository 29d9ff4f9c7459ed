/* SPDX-License-Identifier: BSD-2-Clause */
/* Small messages from memory that the processor cannot reach: the card reads their bytes behind the header. */
#include "fabric/verbs/data/request.h"

bool verbs_gathers(struct pl_endpoint *base, struct pl_operation *operation)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	const struct pl_segment *segment = operation->segments;
	struct verbs_device *device = endpoint->rails[0].device;
	const char *refusal;
	uint32_t lkey;
	int rc;

	if (!device || !verbs_device_gathers(device))
		return false;
	rc = verbs_local_key(endpoint->state, device, segment->region, false, &lkey);
	/* The memory is being registered, for which only a message that must not be copied waits. */
	if (rc == -EINPROGRESS)
		return operation->attributes.flags & PL_REQUIRE_DIRECT;
	return rc == 0 && verbs_is_advised(device, operation, segment, false, &refusal);
}

void verbs_gather(struct verbs_endpoint *endpoint, struct verbs_work *work, struct pl_operation *operation)
{
	const struct pl_segment *segment = operation->segments;
	struct verbs_device *device = endpoint->rails[0].device;

	work->gathered = true;
	work->region = segment->region;
	work->offset = segment->offset;
	if (device && verbs_local_key(endpoint->state, device, segment->region, false, &work->lkey) == 0)
		work->lkey_device = device;
	work->operation = operation;
	atomic_fetch_add(&operation->pending, 1);
}

int verbs_gather_not(struct verbs_work *work)
{
	struct pl_operation *operation = work->operation;
	const struct pl_segment *segment = operation->segments;
	uint8_t *copy;
	int rc;

	if (operation->attributes.flags & PL_REQUIRE_DIRECT) {
		pl_operation_not_direct(operation, pl_message_staging_reason);
		return -ENOTSUP;
	}
	copy = pl_alloc(&operation->context->allocator, operation->total);
	rc = copy ? pl_memory_copy_out(&segment->region->memory, segment->offset, copy, operation->total) : -ENOMEM;
	if (rc < 0) {
		pl_free(&operation->context->allocator, copy);
		return rc;
	}
	work->payload = operation->copy = copy;
	pl_operation_staged(operation, operation->total, pl_message_staging_reason);
	/* The frame is built again, and keeps its number. */
	work->counted |= work->built;
	work->gathered = work->built = false;
	return 0;
}
