/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/verbs/data/flush.h"

/* Most unanswered flush requests of a peer. */
#define FLUSHES_MAX 65536
/* A device may hold back writes of a queue pair for this time after its end. PCI Express delivers them far earlier. */
#define HELD_BACK_TIME (10 * PL_NS_PER_S)

static const char native[] = "verbs: this GPU sees what a card wrote, without a flush";
static const char own_driver[] = "verbs: this GPU's driver flushed them: cuFlushGPUDirectRDMAWrites";
static const char own_read[] = "verbs: this end's device read there, over a queue pair connected to itself";
static const char own_host[] = "verbs: they are in this host's memory when the device says so";
static const char copied[] = "verbs: copied to their place, which was waited for";
static const char back[] = "verbs: the peer's device read there, for this end, over the same connection";

/* Answers of an owner that tell how it flushed. */
static const char *const answers[PL_FLUSH_END] = {
	[PL_FLUSH_READ] = "verbs: the peer's device read there, over a queue pair connected to itself",
	[PL_FLUSH_DRIVER] = "verbs: the peer's GPU's driver flushed them: cuFlushGPUDirectRDMAWrites",
	[PL_FLUSH_NATIVE] = "verbs: the peer's device read there, and its GPU sees what is there without a flush",
	[PL_FLUSH_ORDER] = "verbs: a message that was sent after them arrived",
};

static struct verbs_settling *settling_of(struct pl_operation *operation)
{
	_Static_assert(sizeof(struct verbs_settling) <= PL_OPERATION_FABRIC_SPACE, "no room");
	return (struct verbs_settling *)operation->fabric;
}

static void settled(struct pl_operation *operation, enum pl_visible visible, const char *how)
{
	operation->completion.visible = visible;
	operation->completion.visibility = how;
}

/* Adds one pending count, which ends after `count` answers. */
static void wait_for(struct verbs_endpoint *endpoint, struct pl_operation *operation, uint32_t cookie, unsigned count)
{
	*settling_of(operation) = (struct verbs_settling){ .cookie = cookie, .answers = count };
	atomic_fetch_add(&operation->pending, 1);
	pl_list_append(&endpoint->settling, &operation->queue_link);
}

static void answered(struct verbs_endpoint *endpoint, uint32_t cookie, uint32_t status, const char *how)
{
	pl_list_for_each(at, &endpoint->settling) {
		struct pl_operation *operation = pl_list_entry(at, struct pl_operation, queue_link);
		struct pl_error error;

		if (settling_of(operation)->cookie != cookie)
			continue;
		if (status == PL_WIRE_OK) {
			operation->completion.visibility = how;
		} else {
			pl_wire_fail(&error, status, "flush", NULL);
			pl_operation_fail(operation, error.code, &error);
		}
		if (--settling_of(operation)->answers == 0) {
			pl_list_remove(&operation->queue_link);
			pl_operation_pending_done(operation);
		}
		return;
	}
	/* The operation was cancelled. */
}

/* -- flushing after a write, at the writer --------------------------------------------------------- */

/* Strongest flush that the regions of an operation need. */
struct need {
	enum pl_visible visible;
	bool readable, driver;
};

static enum pl_memory_order order_of(const struct pl_segment *segment)
{
	const struct verbs_remote_key *target = segment->remote->fabric_data;

	return target ? target->order : PL_ORDER_HOST;
}

static struct need need_of(const struct pl_operation *operation)
{
	struct need need = { .visible = operation->attributes.visible, .readable = true };

	for (unsigned i = 0; i < operation->segment_count; i++) {
		enum pl_memory_order order = order_of(&operation->segments[i]);

		/* A notified program may start kernels. */
		if ((operation->attributes.flags & PL_NOTIFY) && order > PL_ORDER_NATIVE)
			need.visible = PL_VISIBLE_GPU_VISIBLE;
		need.driver |= order == PL_ORDER_DRIVER;
		need.readable &= (operation->segments[i].remote->rights & PL_ACCESS_READ) != 0;
	}
	need.driver &= need.visible == PL_VISIBLE_GPU_VISIBLE;
	return need;
}

bool verbs_needs_more(const struct pl_operation *operation)
{
	return pl_visible_more(need_of(operation).visible);
}

/* Returns one address in each remote region: the last one written there. */
static bool next_last_written(const struct pl_operation *operation, unsigned *index, const struct pl_segment **segment)
{
	while (*index < operation->segment_count) {
		const struct pl_segment *at = &operation->segments[(*index)++];

		if (at->length == 0 ||
		    (*index < operation->segment_count && operation->segments[*index].remote == at->remote &&
		     operation->segments[*index].length))
			continue;
		*segment = at;
		return true;
	}
	return false;
}

static int read_back(struct verbs_endpoint *endpoint, struct pl_operation *operation, enum pl_visible visible)
{
	const struct pl_segment *segment;
	unsigned index = 0;
	int rc = 0;

	while (rc == 0 && next_last_written(operation, &index, &segment))
		rc = verbs_post_back(endpoint, operation, segment);
	settled(operation, visible, back);
	return rc;
}

int verbs_read_behind(struct verbs_endpoint *endpoint, struct pl_operation *operation)
{
	struct need need;

	if (operation->completion.kind != PL_KIND_WRITE ||
	    (!pl_visible_more(operation->attributes.visible) && !(operation->attributes.flags & PL_NOTIFY)) ||
	    atomic_load(&operation->status))
		return 0;
	need = need_of(operation);
	if (!pl_visible_more(need.visible) || !need.readable || need.driver)
		return 0;
	operation->settled = true;
	return read_back(endpoint, operation, need.visible);
}

static int ask_owner(struct verbs_endpoint *endpoint, struct pl_operation *operation, enum pl_visible visible)
{
	struct pl_frame frame = {
		.type = PL_FRAME_FLUSH,
		.flags = visible == PL_VISIBLE_GPU_VISIBLE ? PL_LEVEL_GPU : PL_LEVEL_PLACED,
		.cookie = ++endpoint->next_cookie,
	};
	const struct pl_segment *segment;
	unsigned index = 0, count = 0;
	int rc = 0;

	while (next_last_written(operation, &index, &segment))
		count++;
	if (count)
		wait_for(endpoint, operation, frame.cookie, count);
	index = 0;
	while (rc == 0 && next_last_written(operation, &index, &segment)) {
		frame.key = ((const struct verbs_remote_key *)segment->remote->fabric_data)->id;
		rc = verbs_message(&endpoint->base, &frame, NULL, NULL);
	}
	if (rc < 0 && !pl_list_empty(&operation->queue_link)) {
		pl_list_remove(&operation->queue_link);
		pl_operation_pending_done(operation);
	}
	settled(operation, visible, NULL);
	return rc;
}

static bool settle_there(struct verbs_endpoint *endpoint, struct pl_operation *operation)
{
	struct need need = need_of(operation);
	struct pl_error error;
	int rc;

	if (!pl_visible_more(need.visible) || !operation->total)
		return false;
	atomic_store(&operation->pending, 1);
	if (need.readable && !need.driver && verbs_reads_back(endpoint, operation)) {
		rc = read_back(endpoint, operation, need.visible);
	} else if (endpoint->base.peer->flushes) {
		rc = ask_owner(endpoint, operation, need.visible);
	} else {
		rc = pl_fail(&error, -ENOTSUP, "NOT-VISIBLE", "flush", NULL,
			     "use the same release at both ends, or a grant that may be read",
			     "the peer's release cannot make the bytes visible, and they cannot be read back");
		pl_operation_fail(operation, rc, &error);
		rc = 0;
	}
	if (rc < 0)
		pl_operation_fail(operation, rc, NULL);
	pl_operation_pending_done(operation);
	return true;
}

/* -- flushing after a read, at the reader ---------------------------------------------------------- */

static struct verbs_flush *flush_new(struct verbs_endpoint *endpoint, struct pl_key *key, uint32_t cookie, uint8_t how)
{
	struct verbs_state *state = endpoint->state;
	struct verbs_flush *flush = pl_pool_take(&state->flushes, &state->context->allocator, sizeof(*flush));

	if (!flush)
		return NULL;
	*flush = (struct verbs_flush){
		.endpoint = endpoint, .state = state, .key = key, .cookie = cookie, .how = how, .reads = 1
	};
	pl_list_append(&endpoint->flushes, &flush->link);
	endpoint->flush_count++;
	return flush;
}

/* Ends the pending count that the flush was created with. */
static void flush_begun(struct verbs_flush *flush)
{
	if (--flush->reads == 0)
		verbs_flush_done(flush);
}

/* True if a peer got a key by which the rail's port writes to the region. */
static bool writes_through(const struct verbs_rail *rail, struct pl_region *region)
{
	unsigned exported = atomic_load(&region->exported);

	return !exported || rail->port->place == VERBS_PLACES || exported & 1u << rail->port->place;
}

/* True if the rail's device may hold back bytes for the region: the rail is connected, or was until now. */
static bool may_hold_back(const struct verbs_rail *rail, struct pl_region *region)
{
	if (!writes_through(rail, region))
		return false;
	return rail->qp ||
	       (rail->ended && pl_now() - rail->ended < HELD_BACK_TIME && !atomic_load(&rail->device->gone));
}

/* Returns the fitness of a rail to read through its device: it is up, has a queue pair, or had one until now. */
static unsigned rank_reader(const struct verbs_rail *rail)
{
	return rail->link == VERBS_UP ? 2 : rail->qp ? 1 : 0;
}

/* True if another rail reads through the same device: a fitter one, or an earlier one. */
static bool is_read_by_other(const struct verbs_endpoint *endpoint, unsigned index, struct pl_region *region)
{
	const struct verbs_rail *rail = &endpoint->rails[index];

	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		const struct verbs_rail *other = &endpoint->rails[i];

		if (i == index || other->device != rail->device || !may_hold_back(other, region))
			continue;
		/* The port of a rail that is not up may be down. */
		if (rank_reader(other) > rank_reader(rail) || (rank_reader(other) == rank_reader(rail) && i < index))
			return true;
	}
	return false;
}

/* Reads back through each device that can have written. */
static void read_by_all(struct verbs_endpoint *endpoint, struct pl_region *region, struct verbs_flush *flush)
{
	unsigned before = flush->reads;

	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];

		if (!may_hold_back(rail, region) || is_read_by_other(endpoint, i, region))
			continue;
		/* The port of a rail that ended may be down: then time alone delivers the bytes. */
		if (verbs_loopback_read(rail, region, flush) < 0 && rail->qp)
			flush->failed = true;
	}
	flush->failed |= flush->reads == before;
}

/* Starts the flush of the operation's next region. Returns false if none is needed. */
static bool settle_region(struct verbs_endpoint *endpoint, struct pl_operation *operation, struct pl_region *region,
			  struct verbs_flush **flush)
{
	enum pl_memory_order order = pl_memory_order(&region->memory);

	/* Kernels of the GPU see the bytes; other readers need a flush. */
	if (order == PL_ORDER_NATIVE && operation->attributes.visible == PL_VISIBLE_PLACED)
		order = PL_ORDER_READ;
	switch (order) {
	case PL_ORDER_HOST:
		settled(operation, operation->attributes.visible, own_host);
		return true;
	case PL_ORDER_NATIVE:
		settled(operation, operation->attributes.visible, native);
		return true;
	case PL_ORDER_DRIVER:
		settled(operation, operation->attributes.visible, own_driver);
		return pl_memory_flush(&region->memory) == 0;
	case PL_ORDER_READ:
		settled(operation, operation->attributes.visible, own_read);
		if (!*flush)
			*flush = flush_new(endpoint, NULL, ++endpoint->next_cookie, PL_FLUSH_READ);
		if (*flush)
			read_by_all(endpoint, region, *flush);
		return *flush;
	}
	return false;
}

static bool settle_here(struct verbs_endpoint *endpoint, struct pl_operation *operation)
{
	struct pl_region *last = NULL;
	struct verbs_flush *flush = NULL;
	struct pl_error error;
	bool fine = true;

	if (!pl_visible_more(operation->attributes.visible) || !operation->total)
		return false;
	if (atomic_load(&operation->staged)) {
		settled(operation, operation->attributes.visible, copied);
		return false;
	}
	for (unsigned i = 0; fine && i < operation->segment_count; i++) {
		struct pl_region *region = operation->segments[i].region;

		if (region != last)
			fine = settle_region(endpoint, operation, region, &flush);
		last = region;
	}
	if (!fine) {
		pl_fail(&error, -ENOTSUP, "NOT-VISIBLE", "flush", NULL,
			"see `peerlane check`: it looks at the GPU's order",
			"the GPU's driver could not flush the device's writes");
		pl_operation_fail(operation, -ENOTSUP, &error);
	}
	if (!flush)
		return false;
	atomic_store(&operation->pending, 1);
	wait_for(endpoint, operation, flush->cookie, 1);
	flush_begun(flush);
	pl_operation_pending_done(operation);
	return true;
}

bool verbs_settle(struct pl_endpoint *base, struct pl_operation *operation)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);

	return operation->completion.kind == PL_KIND_READ ? settle_here(endpoint, operation)
							  : settle_there(endpoint, operation);
}

/* -- flushing at the owner of the memory ----------------------------------------------------------- */

static void answer_flush(struct verbs_endpoint *endpoint, uint32_t cookie, enum pl_wire_status status, uint8_t how)
{
	const struct pl_frame frame = { .type = PL_FRAME_FLUSHED, .cookie = cookie, .offset = status, .flags = how };

	/* Without memory the asking peer waits until its operation times out. */
	verbs_message(&endpoint->base, &frame, NULL, NULL);
}

void verbs_flush_done(struct verbs_flush *flush)
{
	struct verbs_endpoint *endpoint = flush->endpoint;

	if (endpoint) {
		pl_list_remove(&flush->link);
		endpoint->flush_count--;
	}
	if (endpoint && flush->key) {
		bool gone = atomic_load(&flush->key->revoked);

		answer_flush(endpoint, flush->cookie,
			     !flush->failed ? PL_WIRE_OK
			     : gone         ? PL_WIRE_UNKNOWN_KEY
					    : PL_WIRE_UNSUPPORTED,
			     flush->how);
		pl_key_release(flush->key);
	} else if (endpoint) {
		answered(endpoint, flush->cookie, flush->failed ? PL_WIRE_UNSUPPORTED : PL_WIRE_OK, own_read);
	}
	pl_pool_give(&flush->state->flushes, &flush->state->context->allocator, flush);
}

/* True if it is enough that the request came after the writes: one device wrote all bytes, and no GPU must see them. */
static bool order_is_enough(const struct verbs_endpoint *endpoint, enum pl_memory_order order, uint8_t level)
{
	for (unsigned i = 1; i < endpoint->rail_count; i++)
		if (endpoint->rails[i].device != endpoint->rails[0].device)
			return false;
	return order == PL_ORDER_HOST || (order == PL_ORDER_NATIVE && level == PL_LEVEL_GPU);
}

static int flush_asked(struct verbs_endpoint *endpoint, const struct pl_frame *frame)
{
	struct pl_peer *peer = endpoint->base.peer;
	enum pl_memory_order order;
	enum pl_wire_status status;
	struct verbs_flush *flush;
	struct pl_key *key;

	if ((frame->flags != PL_LEVEL_PLACED && frame->flags != PL_LEVEL_GPU) || endpoint->flush_count >= FLUSHES_MAX ||
	    !verbs_takes_question(endpoint))
		return -EPROTO;
	key = pl_key_acquire(peer, frame->key, 0, 0, PL_ACCESS_WRITE | PL_ACCESS_ATOMIC, &status);
	if (!key) {
		answer_flush(endpoint, frame->cookie, status, 0);
		return 0;
	}
	order = pl_memory_order(key->memory);
	if (order == PL_ORDER_DRIVER && frame->flags == PL_LEVEL_GPU) {
		status = pl_memory_flush(key->memory) == 0 ? PL_WIRE_OK : PL_WIRE_UNSUPPORTED;
		answer_flush(endpoint, frame->cookie, status, PL_FLUSH_DRIVER);
		pl_key_release(key);
		return 0;
	}
	flush = flush_new(endpoint, key, frame->cookie, order == PL_ORDER_NATIVE ? PL_FLUSH_NATIVE : PL_FLUSH_READ);
	if (!flush) {
		pl_key_release(key);
		return -ENOMEM;
	}
	read_by_all(endpoint, pl_container_of(key->memory, struct pl_region, memory), flush);
	if (flush->failed && flush->reads == 1 && order_is_enough(endpoint, order, frame->flags)) {
		flush->failed = false;
		flush->how = PL_FLUSH_ORDER;
	}
	flush_begun(flush);
	return 0;
}

int verbs_flush_arrived(struct verbs_endpoint *endpoint, const struct pl_frame *frame)
{
	if (frame->type == PL_FRAME_FLUSH)
		return flush_asked(endpoint, frame);
	if (frame->offset > UINT32_MAX ||
	    (frame->offset == PL_WIRE_OK && (frame->flags == 0 || frame->flags >= PL_FLUSH_END)))
		return -EPROTO;
	answered(endpoint, frame->cookie, (uint32_t)frame->offset,
		 frame->flags < PL_FLUSH_END ? answers[frame->flags] : NULL);
	return 0;
}

void verbs_flushes_forget(struct verbs_endpoint *endpoint)
{
	while (!pl_list_empty(&endpoint->flushes)) {
		struct verbs_flush *flush = pl_list_first(&endpoint->flushes, struct verbs_flush, link);

		pl_list_remove(&flush->link);
		pl_key_release(flush->key);
		flush->key = NULL;
		flush->endpoint = NULL;
	}
	endpoint->flush_count = 0;
}
