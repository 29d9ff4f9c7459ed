/* SPDX-License-Identifier: BSD-2-Clause */
#include "staging/staging.h"

/* Batches of small copies in one direction, each copy with its range of a slot. */
#define BATCHES 4u
#define BATCH_COPIES (PL_SLOT_SIZE / BATCHES / PL_SMALL_MAX)
/* A second copy within this time suggests more to come; three copies in a batch take as long as one. */
#define SOON (PL_NS_PER_MS / 50)

struct batch {
	struct pl_copy copy;
	struct smalls *smalls;
	struct pl_memory_piece pieces[BATCH_COPIES];
	struct pl_small *owners[BATCH_COPIES];
	void *ends[BATCH_COPIES]; /* destinations of bytes from device memory */
	unsigned count;
	bool begun;
};

struct smalls {
	struct pl_slots *pool;
	bool into;
	struct pl_slot *slot; /* NULL: the batch is empty */
	unsigned used;        /* bitmap of batches with copies */
	unsigned latest;      /* batch that gets new copies */
	struct batch batches[BATCHES];
};

struct device {
	struct pl_list link;
	const struct pl_memory_ops *ops;
	uint64_t device;
	struct pl_copy_queue *queue;
	struct pl_list copies[2]; /* out of device memory and into it, each in order */
	struct smalls *smalls[2]; /* NULL: none yet */
};

struct pl_copier {
	struct pl_poller poller;
	struct pl_engine *engine;
	struct pl_list devices;
	struct pl_list gathers; /* struct pl_gather_copy, in the order of their starts */
	struct pl_list watches;
	struct pl_list blocking;     /* watches that wait for a turn to block, in their order */
	const struct pl_watch *turn; /* the one whose turn it is */
	size_t blocked;              /* bytes for which the engine's lock was blocked in this round */
	unsigned under_way;
	uint64_t begun;
	uint64_t alone; /* time of the last small copy without a batch */
	bool waiting;   /* small copies wait to be started */
};

static struct pl_copier *copier_of_poller(struct pl_poller *poller)
{
	return pl_container_of(poller, struct pl_copier, poller);
}

/* Removes the first copy if it is done. Returns true if it was. */
static bool finish_first(struct pl_copier *copier, struct device *device, bool into, bool wait)
{
	struct pl_list *copies = &device->copies[into];
	struct pl_copy *copy;
	int rc;

	if (pl_list_empty(copies))
		return false;
	copy = pl_list_first(copies, struct pl_copy, link);
	rc = device->ops->queue_done(device->queue, into, copy->sequence, wait);
	if (rc == 0)
		return false;
	pl_list_remove(&copy->link);
	copier->under_way--;
	copy->done(copy, rc < 0 ? rc : 0);
	return true;
}

/* Returns the number of the oldest copy, or UINT64_MAX if there is none. */
static uint64_t first_copy_number(const struct device *device, bool into)
{
	const struct pl_list *copies = &device->copies[into];

	return pl_list_empty(copies) ? UINT64_MAX : pl_list_first(copies, struct pl_copy, link)->number;
}

static struct device *device_of(struct pl_copier *copier, const struct pl_memory *memory)
{
	struct device *device;

	pl_list_for_each(at, &copier->devices) {
		device = pl_list_entry(at, struct device, link);
		if (device->device == memory->device && device->ops == memory->ops)
			return device;
	}
	device = pl_zalloc(copier->engine->allocator, sizeof(*device));
	if (!device)
		return NULL;
	if (!memory->ops->queue_open || memory->ops->queue_open(memory, &device->queue, NULL) < 0) {
		pl_free(copier->engine->allocator, device);
		return NULL;
	}
	device->ops = memory->ops;
	device->device = memory->device;
	pl_list_init(&device->copies[0]);
	pl_list_init(&device->copies[1]);
	pl_list_append(&copier->devices, &device->link);
	return device;
}

void pl_copier_prepare(struct pl_copier *copier, const struct pl_memory *memory)
{
	device_of(copier, memory);
}

static void begin_staged_copy(struct pl_copier *copier, struct device *device, struct pl_copy *copy, bool into)
{
	copy->number = ++copier->begun;
	pl_list_append(&device->copies[into], &copy->link);
	copier->under_way++;
	pl_engine_polling(copier->engine, true);
}

/* -- small copies --------------------------------------------------------------------------------- */

static void batch_done(struct pl_copy *copy, int status)
{
	struct batch *batch = pl_container_of(copy, struct batch, copy);
	struct smalls *smalls = batch->smalls;

	/* done() may start other copies, which must not join this batch yet. */
	for (unsigned i = 0; i < batch->count; i++) {
		const struct pl_memory_piece *piece = &batch->pieces[i];
		int failed = piece->status ? piece->status : status;

		if (!smalls->into && !failed)
			memcpy(batch->ends[i], piece->host, piece->length);
		batch->owners[i]->done(batch->owners[i], failed);
	}
	batch->count = 0;
	batch->begun = false;
	if (--smalls->used == 0) {
		pl_slots_give(smalls->pool, smalls->slot);
		smalls->slot = NULL;
	}
}

static void batch_begin(struct pl_copier *copier, struct device *device, struct batch *batch)
{
	bool into = batch->smalls->into;

	batch->begun = true;
	if (device->ops->queue_list(device->queue, batch->pieces, batch->count, into, &batch->copy.sequence) < 0)
		batch_done(&batch->copy, -EFAULT);
	else
		begin_staged_copy(copier, device, &batch->copy, into);
}

static void begin_latest(struct pl_copier *copier, struct device *device, bool into)
{
	struct smalls *smalls = device->smalls[into];
	struct batch *batch = smalls ? &smalls->batches[smalls->latest] : NULL;
	bool alone = pl_list_empty(&device->copies[into]);

	if (!batch || !batch->count || batch->begun)
		return;
	batch_begin(copier, device, batch);
	/* A lone copy takes no longer than a few polls; a blocking wait leaves the processor to others. */
	if (alone)
		finish_first(copier, device, into, true);
}

static void begin_waiting(struct pl_copier *copier)
{
	if (!copier->waiting)
		return;
	copier->waiting = false;
	pl_list_for_each(at, &copier->devices)
		for (unsigned into = 0; into < 2; into++)
			begin_latest(copier, pl_list_entry(at, struct device, link), into);
}

/* Returns a batch with room for one more copy, and with a slot. NULL: none. */
static struct batch *batch_find(struct pl_copier *copier, struct device *device, bool into, struct pl_slots *pool,
				const struct pl_memory *memory)
{
	struct smalls *smalls = device->smalls[into];
	struct batch *batch = &smalls->batches[smalls->latest];

	if (batch->count == BATCH_COPIES && !batch->begun)
		batch_begin(copier, device, batch);
	if (batch->begun) {
		smalls->latest = (smalls->latest + 1) % BATCHES;
		batch = &smalls->batches[smalls->latest];
	}
	while (batch->begun)
		if (!finish_first(copier, device, into, true))
			return NULL;
	if (!smalls->slot) {
		smalls->pool = pool;
		smalls->slot = pl_slots_take(pool, memory);
	}
	/* Copies through ordinary memory are synchronous. */
	if (smalls->slot && !smalls->slot->pinned) {
		pl_slots_give(pool, smalls->slot);
		smalls->slot = NULL;
	}
	return smalls->slot && batch->count < BATCH_COPIES ? batch : NULL;
}

static struct smalls *small_batches_of(struct pl_copier *copier, struct device *device, bool into)
{
	struct smalls **smalls = &device->smalls[into];

	if (!*smalls) {
		*smalls = pl_zalloc(copier->engine->allocator, sizeof(**smalls));
		if (*smalls)
			(*smalls)->into = into;
	}
	return *smalls;
}

bool pl_copier_small(struct pl_copier *copier, struct pl_slots *pool, struct pl_small *small, struct pl_memory *memory,
		     size_t offset, void *bytes, size_t length, bool into)
{
	struct device *device;
	struct smalls *smalls;
	struct batch *batch;
	uint8_t *host;

	if (!memory->ops->queue_list || length > PL_SMALL_MAX)
		return false;
	device = device_of(copier, memory);
	smalls = device ? small_batches_of(copier, device, into) : NULL;
	batch = smalls ? batch_find(copier, device, into, pool, memory) : NULL;
	if (!batch)
		return false;
	if (batch->count == 0) {
		batch->smalls = smalls;
		batch->copy.done = batch_done;
		smalls->used++;
	}
	host = smalls->slot->bytes + ((size_t)(batch - smalls->batches) * BATCH_COPIES + batch->count) * PL_SMALL_MAX;
	if (into)
		memcpy(host, bytes, length);
	batch->pieces[batch->count] =
		(struct pl_memory_piece){ .memory = memory, .offset = offset, .host = host, .length = length };
	batch->ends[batch->count] = bytes;
	batch->owners[batch->count++] = small;
	copier->waiting = true;
	pl_engine_polling(copier->engine, true);
	return true;
}

int pl_copier_alone(struct pl_copier *copier, struct pl_memory *memory, size_t offset, void *bytes, size_t length)
{
	int rc;

	if (copier->waiting || pl_now() - copier->alone < SOON)
		return 0;
	rc = pl_memory_copy_out(memory, offset, bytes, length);
	copier->alone = pl_now();
	return rc < 0 ? rc : 1;
}

/* -- all copies ----------------------------------------------------------------------------------- */

void pl_watch_add(struct pl_copier *copier, struct pl_watch *watch)
{
	if (!pl_list_empty(&watch->link))
		return;
	pl_list_append(&copier->watches, &watch->link);
	pl_engine_polling(copier->engine, true);
}

/* -- gathers -------------------------------------------------------------------------------------- */

static void gather_end(struct pl_gather_copy *copy, int rc)
{
	copy->gather->ops->gather_give(copy->gather);
	copy->copy.done(&copy->copy, rc < 0 ? rc : 0);
}

void pl_copier_gather(struct pl_copier *copier, struct pl_gather_copy *copy, unsigned blocks)
{
	if (copy->gather->ops->gather_start(copy->gather, blocks) < 0) {
		gather_end(copy, -ECANCELED);
		return;
	}
	copy->copy.number = ++copier->begun;
	pl_list_append(&copier->gathers, &copy->copy.link);
	copier->under_way++;
	pl_engine_polling(copier->engine, true);
}

/* Ends the oldest gather if it is done. Returns false if it is not, or there is none. */
static bool finish_gather(struct pl_copier *copier)
{
	struct pl_gather_copy *copy;
	int rc;

	if (pl_list_empty(&copier->gathers))
		return false;
	copy = pl_list_first(&copier->gathers, struct pl_gather_copy, copy.link);
	rc = copy->gather->ops->gather_done(copy->gather);
	if (rc == 0)
		return false;
	pl_list_remove(&copy->copy.link);
	copier->under_way--;
	gather_end(copy, rc);
	return true;
}

/* Waits for the gathers up to that number: each ends, because a kernel that does not begin is withdrawn. */
static void drain_gathers(struct pl_copier *copier, uint64_t last)
{
	while (!pl_list_empty(&copier->gathers) &&
	       pl_list_first(&copier->gathers, struct pl_gather_copy, copy.link)->copy.number <= last)
		finish_gather(copier);
}

/* A watch may add or remove any watch. */
static bool poll_watches(struct pl_copier *copier)
{
	struct pl_list all;
	bool any = false;

	pl_list_init(&all);
	pl_list_splice(&all, &copier->watches);
	while (!pl_list_empty(&all)) {
		struct pl_watch *watch = pl_list_first(&all, struct pl_watch, link);

		pl_list_remove(&watch->link);
		pl_list_append(&copier->watches, &watch->link);
		any |= watch->poll(watch);
	}
	return any;
}

bool pl_copier_may_block(struct pl_copier *copier, struct pl_watch *watch, size_t length)
{
	bool has_turn = copier->turn ? copier->turn == watch : pl_list_empty(&copier->blocking);

	if (has_turn && copier->blocked < PL_BLOCKING_MAX) {
		copier->blocked += length;
		return true;
	}
	if (pl_list_empty(&watch->link))
		pl_list_append(&copier->blocking, &watch->link);
	pl_engine_polling(copier->engine, true);
	return false;
}

/* Calls the watches of a list, in their order: with turns to block, while there are some. Without, cancelled operations end. */
static bool ask_blocking(struct pl_copier *copier, struct pl_list *waiting, bool turns)
{
	bool any = false;

	while (!pl_list_empty(waiting) && (!turns || copier->blocked < PL_BLOCKING_MAX)) {
		struct pl_watch *watch = pl_list_first(waiting, struct pl_watch, link);

		pl_list_remove(&watch->link);
		copier->turn = turns ? watch : NULL;
		any |= watch->poll(watch);
		copier->turn = NULL;
	}
	return any;
}

static bool copier_poll(struct pl_poller *poller)
{
	struct pl_copier *copier = copier_of_poller(poller);
	bool any = false;

	copier->blocked = 0;
	begin_waiting(copier);
	pl_list_for_each(at, &copier->devices) {
		struct device *device = pl_list_entry(at, struct device, link);

		for (unsigned into = 0; into < 2; into++)
			while (finish_first(copier, device, into, false))
				any = true;
	}
	while (finish_gather(copier))
		any = true;
	any |= poll_watches(copier);
	any |= ask_blocking(copier, &copier->blocking, true);
	if (!copier->under_way && !copier->waiting && pl_list_empty(&copier->watches) &&
	    pl_list_empty(&copier->blocking)) {
		copier->blocked = 0;
		pl_engine_polling(copier->engine, false);
	}
	return any;
}

void pl_copier_drain(struct pl_copier *copier)
{
	struct pl_list waiting;
	uint64_t last;

	begin_waiting(copier);
	last = copier->begun;
	drain_gathers(copier, last);
	/* A finished copy may start more. */
	pl_list_for_each(at, &copier->devices) {
		struct device *device = pl_list_entry(at, struct device, link);

		for (unsigned into = 0; into < 2; into++)
			while (first_copy_number(device, into) <= last)
				finish_first(copier, device, into, true);
	}
	pl_list_init(&waiting);
	pl_list_splice(&waiting, &copier->blocking);
	ask_blocking(copier, &waiting, false);
}

void pl_copier_finish(struct pl_copier *copier, bool into)
{
	pl_list_for_each(at, &copier->devices)
		while (finish_first(copier, pl_list_entry(at, struct device, link), into, false))
			;
}

void pl_copier_wait_one(struct pl_copier *copier, bool into)
{
	pl_list_for_each(at, &copier->devices)
		if (finish_first(copier, pl_list_entry(at, struct device, link), into, true))
			return;
}

static void drain_device(struct pl_poller *poller)
{
	pl_copier_drain(copier_of_poller(poller));
}

int pl_copier_open(struct pl_engine *engine, struct pl_copier **result)
{
	struct pl_copier *copier = pl_zalloc(engine->allocator, sizeof(*copier));

	if (!copier)
		return -ENOMEM;
	copier->engine = engine;
	copier->poller.poll = copier_poll;
	copier->poller.drain = drain_device;
	pl_list_init(&copier->devices);
	pl_list_init(&copier->gathers);
	pl_list_init(&copier->watches);
	pl_list_init(&copier->blocking);
	engine->poller = &copier->poller;
	*result = copier;
	return 0;
}

void pl_copier_close(struct pl_copier *copier)
{
	if (!copier)
		return;
	while (!pl_list_empty(&copier->devices)) {
		struct device *device = pl_list_first(&copier->devices, struct device, link);

		pl_list_remove(&device->link);
		device->ops->queue_close(device->queue);
		pl_free(copier->engine->allocator, device->smalls[0]);
		pl_free(copier->engine->allocator, device->smalls[1]);
		pl_free(copier->engine->allocator, device);
	}
	copier->engine->poller = NULL;
	pl_free(copier->engine->allocator, copier);
}

void pl_copier_host(struct pl_copier *copier, struct pl_copy *copy, struct pl_memory *memory, size_t offset, void *host,
		    size_t length, bool into)
{
	struct device *device = device_of(copier, memory);

	if (!device)
		copy->done(copy, into ? pl_memory_copy_in(memory, offset, host, length)
				      : pl_memory_copy_out(memory, offset, host, length));
	else if (device->ops->queue_begin(device->queue, memory, offset, host, length, into, &copy->sequence) < 0)
		copy->done(copy, -EFAULT);
	else
		begin_staged_copy(copier, device, copy, into);
}

void pl_copier_across(struct pl_copier *copier, struct pl_copy *copy, const struct pl_across *across)
{
	struct device *device = device_of(copier, across->into ? across->to : across->from);

	if (!device || !device->ops->queue_across)
		copy->done(copy, pl_memory_copy_across(across->to, across->to_offset, across->from, across->from_offset,
						       across->length));
	else if (device->ops->queue_across(device->queue, across->to, across->to_offset, across->from,
					   across->from_offset, across->length, across->into, &copy->sequence) < 0)
		copy->done(copy, -EFAULT);
	else
		begin_staged_copy(copier, device, copy, across->into);
}
