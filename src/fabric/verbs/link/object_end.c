/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of a device's objects. The driver may never return from such a call. While the context works, that call waits. At its
 * end a thread makes the call, and the device is given up after a limit: its objects, and the memory that it
 * may access, stay until the process ends.
 */
#include "fabric/verbs/verbs.h"

struct end {
	struct rdma_call call;
	const struct verbs_library *library;
	enum verbs_object kind;
	void *object;
	int rc;
};

static int end_object(const struct verbs_library *library, enum verbs_object kind, void *object)
{
	struct ibv_qp_attr failed = { .qp_state = IBV_QPS_ERR };

	switch (kind) {
	case VERBS_QP_WORK:
		return verbs_result(library->ibv_modify_qp(object, &failed, IBV_QP_STATE));
	case VERBS_QP:
		return verbs_result(library->ibv_destroy_qp(object));
	case VERBS_MW:
		return verbs_result(ibv_dealloc_mw(object));
	case VERBS_MR:
		return verbs_result(library->ibv_dereg_mr(object));
	case VERBS_SRQ:
		return verbs_result(library->ibv_destroy_srq(object));
	case VERBS_CQ:
		return verbs_result(library->ibv_destroy_cq(object));
	case VERBS_CHANNEL:
		return verbs_result(library->ibv_destroy_comp_channel(object));
	case VERBS_PD:
		return verbs_result(library->ibv_dealloc_pd(object));
	case VERBS_CONTEXT:
		return verbs_result(library->ibv_close_device(object));
	}
	return -EINVAL;
}

static void run_end(struct rdma_call *call)
{
	struct end *end = pl_container_of(call, struct end, call);

	end->rc = end_object(end->library, end->kind, end->object);
}

static void drop_end(struct rdma_call *call)
{
	pl_free(&pl_system_allocator, pl_container_of(call, struct end, call));
}

void verbs_device_give_up(struct verbs_device *device)
{
	atomic_store(&device->silent, true);
	atomic_store(&device->state->context->given_up, true);
}

int verbs_object_end(struct verbs_device *device, enum verbs_object kind, void *object)
{
	const struct verbs_library *library = device->state->library;
	struct end *end;
	int rc;

	if (atomic_load(&device->silent))
		return -ETIMEDOUT;
	end = atomic_load(&device->state->context->closing) ? pl_zalloc(&pl_system_allocator, sizeof(*end)) : NULL;
	if (!end)
		return end_object(library, kind, object);
	*end = (struct end){ .call = { .run = run_end, .drop = drop_end }, library, kind, object, 0 };
	rdma_call_start(&end->call);
	if (!rdma_call_await(&end->call, pl_deadline(end->call.since, device->state->silence)))
		verbs_device_give_up(device);
	rc = atomic_load(&device->silent) ? -ETIMEDOUT : end->rc;
	rdma_call_leave(&end->call);
	return rc;
}
