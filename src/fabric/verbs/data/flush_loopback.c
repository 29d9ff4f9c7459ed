/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loopback queue pairs: each is connected to itself, so its device reads memory of this host. The read flushes earlier
 * writes of the device. They have a protection domain of their own: memory registered here can be read by every queue
 * pair of the same domain. A queue has one loopback queue pair for each path (port, addresses, P_Key) of its rails: the
 * port of another rail may be down, and an address or P_Key that moved in its table makes an earlier path useless.
 */
#include "fabric/verbs/data/flush.h"
#include "rdma/loopback_qp.h"

/* A byte would do. */
#define READ_LENGTH 8

struct verbs_loopback {
	struct pl_list link; /* queue->loops */
	struct ibv_pd *pd;
	struct ibv_qp *qp; /* NULL: none now */
	struct ibv_mr *mr; /* memory region of the scratch buffer */
	uint64_t scratch[READ_LENGTH / sizeof(uint64_t)];
	unsigned posted;
	bool broken; /* the queue pair is in the error state */
	struct rdma_loopback_path path;
	uint16_t lid; /* of the port when the rail of the path was connected */
	struct pl_list reads, waiting;
};

struct read {
	struct pl_list link;
	struct verbs_flush *flush;
	uint64_t address;
	uint32_t length, rkey;
	bool optional; /* its failure is not the flush's */
};

/* -- memory regions for reads ---------------------------------------------------------------------- */

struct registration {
	struct pl_registration base; /* device: holds the loopback protection domain */
	struct pl_list device_link;
	struct verbs_device *device;
	const struct pl_allocator *allocator;
	struct ibv_mr *mr; /* NULL: the device is gone */
};

static void release_loopback_mr(struct pl_registration *base)
{
	struct registration *registration = pl_container_of(base, struct registration, base);

	if (registration->mr)
		verbs_object_end(registration->device, VERBS_MR, registration->mr);
	pl_list_remove(&registration->device_link);
	pl_free(registration->allocator, registration);
}

void verbs_loopbacks_end(struct verbs_device *device)
{
	while (!pl_list_empty(&device->loop_registrations)) {
		struct registration *registration =
			pl_list_first(&device->loop_registrations, struct registration, device_link);

		pl_list_remove(&registration->device_link);
		verbs_object_end(device, VERBS_MR, registration->mr);
		registration->mr = NULL;
	}
	if (device->loop_pd)
		verbs_object_end(device, VERBS_PD, device->loop_pd);
	device->loop_pd = NULL;
}

/* The caller holds grant_lock. */
static int find_or_make_loopback_mr(struct verbs_state *state, struct verbs_device *device, struct pl_region *region,
				    struct ibv_mr **mr)
{
	const struct rdma_domain domain = { state->library, device->loop_pd, verbs_device_has_data_direct(device) };
	const struct pl_allocator *allocator = &state->context->allocator;
	struct pl_registration *found = pl_registration_find(&region->registrations, &device->loop_pd);
	const struct rdma_range range = { &region->memory, 0, PL_MIN(region->memory.length, (size_t)READ_LENGTH),
					  (uintptr_t)region->memory.address };
	struct registration *registration;
	const char *reason;
	int rc;

	if (found) {
		*mr = pl_container_of(found, struct registration, base)->mr;
		return *mr ? 0 : -ENODEV;
	}
	if (!domain.pd || atomic_load(&device->gone))
		return -ENODEV;
	rc = verbs_reg_memory(&domain, &range, IBV_ACCESS_REMOTE_READ, false, mr, &reason);
	registration = rc == 0 ? pl_alloc(allocator, sizeof(*registration)) : NULL;
	if (rc == 0 && !registration) {
		verbs_object_end(device, VERBS_MR, *mr);
		rc = -ENOMEM;
	}
	if (rc < 0)
		return rc;
	*registration = (struct registration){
		.base = { .device = &device->loop_pd, .release = release_loopback_mr },
		.device = device,
		.allocator = allocator,
		.mr = *mr,
	};
	pl_list_append(&region->registrations, &registration->base.link);
	pl_list_append(&device->loop_registrations, &registration->device_link);
	return 0;
}

/* -- the queue pair -------------------------------------------------------------------------------- */

static void drop_pair(const struct verbs_cq *queue, struct verbs_loopback *loop)
{
	if (loop->qp)
		verbs_object_end(queue->device, VERBS_QP, loop->qp);
	loop->qp = NULL;
	loop->broken = false;
}

static int make_pair(struct verbs_cq *queue, struct verbs_loopback *loop)
{
	const struct verbs_library *library = queue->state->library;
	struct ibv_qp_init_attr attributes = {
		.send_cq = queue->cq,
		.recv_cq = queue->cq,
		.cap = { .max_send_wr = VERBS_LOOPBACK_DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	const char *what;
	int rc;

	loop->qp = library->ibv_create_qp(loop->pd, &attributes);
	rc = verbs_made(loop->qp);
	if (rc == 0)
		rc = rdma_loopback_qp_connect(library, loop->qp, &loop->path, IBV_ACCESS_REMOTE_READ, &what);
	if (rc < 0)
		drop_pair(queue, loop);
	return rc;
}

static void loop_free(struct verbs_cq *queue, struct verbs_loopback *loop)
{
	pl_list_remove(&loop->link);
	drop_pair(queue, loop);
	if (loop->mr)
		verbs_object_end(queue->device, VERBS_MR, loop->mr);
	/* The card may still write into it. */
	if (!atomic_load(&queue->device->silent))
		pl_free(&queue->state->context->allocator, loop);
}

/* True if the rail was connected last over the path of the loopback queue pair. */
static bool has_path_of(const struct verbs_loopback *loop, const struct verbs_rail *rail)
{
	return loop->path.port == rail->port->number && loop->path.pkey_index == rail->own.pkey_index &&
	       loop->path.gid_index == rail->own.gid_index && loop->lid == rail->own.lid &&
	       verbs_gid_same(&loop->path.gid, &rail->gid);
}

static bool is_path_in_use(const struct verbs_cq *queue, const struct verbs_loopback *loop)
{
	for (size_t i = 0; i < PL_ARRAY_SIZE(queue->rails); i++)
		pl_list_for_each(at, &queue->rails[i])
			if (has_path_of(loop, pl_list_entry(at, struct verbs_rail, queue_link)))
				return true;
	return false;
}

/* Frees idle loopback queue pairs of paths that no rail has any more. */
static void sweep_loops(struct verbs_cq *queue)
{
	pl_list_for_each_safe(at, next, &queue->loops) {
		struct verbs_loopback *loop = pl_list_entry(at, struct verbs_loopback, link);

		if (pl_list_empty(&loop->reads) && pl_list_empty(&loop->waiting) && !is_path_in_use(queue, loop))
			loop_free(queue, loop);
	}
}

static int loop_new(struct verbs_cq *queue, const struct verbs_rail *rail, struct verbs_loopback **result)
{
	struct verbs_loopback *loop = pl_zalloc(&queue->state->context->allocator, sizeof(*loop));
	int rc;

	if (!loop)
		return -ENOMEM;
	loop->pd = queue->device->loop_pd;
	loop->lid = rail->own.lid;
	loop->path = (struct rdma_loopback_path){
		.port = rail->port->number,
		.gid = rail->gid,
		.gid_index = rail->own.gid_index,
		.pkey_index = rail->own.pkey_index,
	};
	pl_list_init(&loop->reads);
	pl_list_init(&loop->waiting);
	pl_list_init(&loop->link);
	rc = verbs_reg_buffers(queue->state->library, loop->pd, loop->scratch, sizeof(loop->scratch), &loop->mr);
	if (rc < 0) {
		loop_free(queue, loop);
		return rc;
	}
	sweep_loops(queue);
	pl_list_append(&queue->loops, &loop->link);
	*result = loop;
	return 0;
}

/* Finds or makes the loopback queue pair of the rail's path. */
static int loop_get(struct verbs_cq *queue, const struct verbs_rail *rail, struct verbs_loopback **result)
{
	struct verbs_loopback *loop = NULL;
	int rc = 0;

	if (!queue->device->loop_pd)
		return -ENOTSUP;
	pl_list_for_each(at, &queue->loops) {
		struct verbs_loopback *one = pl_list_entry(at, struct verbs_loopback, link);

		if (has_path_of(one, rail))
			loop = one;
	}
	if (!loop)
		rc = loop_new(queue, rail, &loop);
	if (rc == 0 && !loop->qp)
		rc = make_pair(queue, loop);
	*result = loop;
	return rc;
}

/* -- reads ----------------------------------------------------------------------------------------- */

static void read_done(struct read *read, bool failed)
{
	struct verbs_flush *flush = read->flush;
	struct verbs_state *state = flush->state;

	pl_list_remove(&read->link);
	flush->failed |= failed && !read->optional;
	pl_pool_give(&state->flush_reads, &state->context->allocator, read);
	if (--flush->reads == 0)
		verbs_flush_done(flush);
}

static int post_loopback_read(struct verbs_loopback *loop, struct read *read)
{
	struct ibv_sge piece = { .addr = (uintptr_t)loop->scratch, .length = read->length, .lkey = loop->mr->lkey };
	struct ibv_send_wr *bad, request = {
		.wr_id = (uintptr_t)read | VERBS_LOOPBACK_READ,
		.sg_list = &piece,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = read->address, .rkey = read->rkey },
	};

	return verbs_result(ibv_post_send(loop->qp, &request, &bad));
}

/* Returns the queue pair with the fewest posted reads, of those that can post a waiting one; NULL: none. */
static struct verbs_loopback *next_to_post(const struct verbs_cq *queue)
{
	struct verbs_loopback *next = NULL;

	pl_list_for_each(at, &queue->loops) {
		struct verbs_loopback *loop = pl_list_entry(at, struct verbs_loopback, link);

		if (!pl_list_empty(&loop->waiting) && !loop->broken && (!next || loop->posted < next->posted))
			next = loop;
	}
	return next;
}

/*
 * Posts waiting reads, as many as the queue has room for completions. The end of a flush may begin another one, which may add
 * queue pairs, and free idle ones: so the next queue pair is looked for each time.
 */
static void pump_loops(struct verbs_cq *queue)
{
	struct verbs_loopback *loop;

	while (queue->loop_posted < VERBS_LOOPBACK_DEPTH && (loop = next_to_post(queue))) {
		struct read *read = pl_list_first(&loop->waiting, struct read, link);

		if ((!loop->qp && make_pair(queue, loop) < 0) || post_loopback_read(loop, read) < 0) {
			read_done(read, true);
			continue;
		}
		pl_list_remove(&read->link);
		pl_list_append(&loop->reads, &read->link);
		loop->posted++;
		queue->loop_posted++;
	}
}

/* Returns the queue of a rail's device, of a rail without a queue pair, too; NULL: none. */
static struct verbs_cq *queue_of_rail(const struct verbs_rail *rail)
{
	struct verbs_failure failure;

	if (rail->queue)
		return rail->queue;
	return verbs_cq_get(rail->endpoint->state, rail->device, rail->endpoint->base.peer->home, &failure);
}

int verbs_loopback_read(struct verbs_rail *rail, struct pl_region *region, struct verbs_flush *flush)
{
	struct verbs_cq *queue = queue_of_rail(rail);
	struct verbs_state *state = rail->endpoint->state;
	struct verbs_loopback *loop;
	struct read *read;
	struct ibv_mr *mr;
	int rc = queue ? loop_get(queue, rail, &loop) : -ENODEV;

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&state->context->grant_lock);
	/* A revoked key's region may go once this engine's lock was free. */
	rc = flush->key && atomic_load(&flush->key->revoked)
		     ? -EACCES
		     : find_or_make_loopback_mr(state, queue->device, region, &mr);
	pthread_mutex_unlock(&state->context->grant_lock);
	read = rc == 0 ? pl_pool_take(&state->flush_reads, &state->context->allocator, sizeof(*read)) : NULL;
	if (rc < 0 || !read)
		return rc < 0 ? rc : -ENOMEM;
	*read = (struct read){
		.flush = flush,
		.address = (uintptr_t)region->memory.address,
		.length = (uint32_t)PL_MIN(region->memory.length, (size_t)READ_LENGTH),
		.rkey = mr->rkey,
		.optional = !rail->qp,
	};
	flush->reads++;
	pl_list_append(&loop->waiting, &read->link);
	pump_loops(queue);
	return 0;
}

/* Returns the queue pair of a read that is under way, or NULL: a device may repeat the completion of a freed one. */
static struct verbs_loopback *find_loop_of(const struct verbs_cq *queue, const struct read *read)
{
	pl_list_for_each(at, &queue->loops) {
		struct verbs_loopback *loop = pl_list_entry(at, struct verbs_loopback, link);

		pl_list_for_each(one, &loop->reads)
			if (pl_list_entry(one, struct read, link) == read)
				return loop;
	}
	return NULL;
}

void verbs_loopback_done(struct verbs_cq *queue, const struct ibv_wc *completion)
{
	struct read *read = (struct read *)(uintptr_t)(completion->wr_id & ~(uint64_t)VERBS_LOOPBACK_READ);
	struct verbs_loopback *loop = find_loop_of(queue, read);
	bool failed = completion->status != IBV_WC_SUCCESS;

	if (!loop)
		return;
	loop->posted--;
	queue->loop_posted--;
	loop->broken |= failed;
	if (loop->broken && !loop->posted)
		drop_pair(queue, loop);
	read_done(read, failed);
	pump_loops(queue);
}

static void forget_loopback_mr(struct pl_list *reads)
{
	while (!pl_list_empty(reads))
		read_done(pl_list_first(reads, struct read, link), true);
}

/* Endpoints are gone, so no answer is sent. */
void verbs_loopbacks_close(struct verbs_cq *queue)
{
	while (!pl_list_empty(&queue->loops)) {
		struct verbs_loopback *loop = pl_list_first(&queue->loops, struct verbs_loopback, link);

		forget_loopback_mr(&loop->reads);
		forget_loopback_mr(&loop->waiting);
		loop_free(queue, loop);
	}
}
