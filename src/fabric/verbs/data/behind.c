/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work behind the data of a write: its notification, or a read that flushes. It saves a round trip, because it does not
 * wait for the completions of the data. That needs the order of one queue pair:
 *
 * - A receive completes after the writes before it on the same queue pair (InfiniBand, o9-20). So the notification
 *   follows its data if the rail of the frames carries all of both. Data of other rails must have completed before.
 *
 * - A read flushes earlier writes of the same device. So each rail that carried data reads back behind it.
 *
 * Requests that a broken connection returns may move to another rail. Therefore the order is checked whenever such work
 * is posted. A notification without a number is left to core, which sends it after the completion. One with a number
 * may have arrived already, so it keeps its number and waits for the data of other rails. A read is done again after the
 * completion.
 */
#include "fabric/verbs/data/flush.h"
#include "fabric/verbs/data/request.h"

/* -- notifications --------------------------------------------------------------------------------- */

/* True if the notification can be the immediate data of a write. */
static bool fits_immediate(const struct verbs_endpoint *endpoint, const struct pl_operation *operation)
{
	const struct pl_peer *peer = endpoint->base.peer;

	return (operation->attributes.flags & PL_NOTIFY) && operation->attributes.notify <= VERBS_NOTIFY_MAX &&
	       !operation->attributes.notify_length && (endpoint->rail_count == 1 || peer->notify_rails);
}

/* Adds an empty write behind the last data. NULL: no memory. */
static struct verbs_work *add_empty_write(struct verbs_endpoint *endpoint, const struct verbs_work *last)
{
	struct verbs_work *work = verbs_work_new(endpoint, VERBS_WRITE, last->operation);

	if (!work)
		return NULL;
	work->target = last->target;
	work->remote = last->remote;
	pl_list_append(&endpoint->waiting, &work->link);
	return work;
}

/* Keeps data on the rail of the frames if it is so small that it would not be divided between rails. */
static void keep_with_frames(struct verbs_endpoint *endpoint, const struct pl_operation *operation)
{
	if (endpoint->rail_count == 1 || operation->total >= 2 * VERBS_SLICE)
		return;
	for (struct pl_list *at = endpoint->waiting.prev; at != &endpoint->waiting; at = at->prev) {
		struct verbs_work *work = pl_list_entry(at, struct verbs_work, link);

		if (work->operation != operation)
			return;
		work->framed = !work->notify;
	}
}

int verbs_notify_behind(struct verbs_endpoint *endpoint, struct pl_operation *operation)
{
	struct verbs_work *last;

	if (!fits_immediate(endpoint, operation) || operation->settled || pl_list_empty(&endpoint->waiting) ||
	    atomic_load(&operation->status) || verbs_needs_more(operation))
		return 0;
	last = pl_list_entry(endpoint->waiting.prev, struct verbs_work, link);
	if (last->operation != operation || last->kind != VERBS_WRITE || last->rest ||
	    !pl_message_take_turn(endpoint->base.peer))
		return 0;
	if (last->length > VERBS_NOTIFY_BYTES)
		last = add_empty_write(endpoint, last);
	if (!last) {
		pl_message_dropped(endpoint->base.peer, PL_FRAME_NOTIFY);
		return -ENOMEM;
	}
	operation->attributes.flags &= ~(unsigned)PL_NOTIFY;
	last->notify = true;
	last->frame = (struct pl_frame){ .type = PL_FRAME_NOTIFY, .offset = operation->attributes.notify };
	keep_with_frames(endpoint, operation);
	return 0;
}

/* Ends work that has moved no bytes. */
static void drop_work(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct pl_operation *operation = work->operation;

	pl_list_remove(&work->link);
	verbs_work_free(endpoint, work);
	pl_operation_pending_done(operation);
}

/* Core sends the notification when the operation has completed. */
static void notify_later(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	work->notify = false;
	work->operation->attributes.flags |= PL_NOTIFY;
	if (!work->length)
		drop_work(endpoint, work);
	/* Its turn is over; others may go. */
	pl_message_dropped(endpoint->base.peer, PL_FRAME_NOTIFY);
}

/* True if the list has other work of the same operation. */
static bool has_data_of(const struct pl_list *list, const struct verbs_work *behind)
{
	pl_list_for_each(at, list) {
		const struct verbs_work *work = pl_list_entry(at, struct verbs_work, link);

		if (work != behind && work->operation == behind->operation)
			return true;
	}
	return false;
}

/* True if data before the notification is neither done nor posted on this rail. */
static bool is_data_elsewhere(const struct verbs_endpoint *endpoint, const struct verbs_work *notification,
			      const struct verbs_rail *rail)
{
	unsigned rails = atomic_load(&notification->operation->rails);

	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		const struct verbs_rail *other = &endpoint->rails[i];

		if ((rails & 1u << i) && (has_data_of(&other->held, notification) ||
					  (other != rail && has_data_of(&other->posted, notification))))
			return true;
	}
	return has_data_of(&endpoint->again, notification) || has_data_of(&endpoint->parked, notification);
}

static enum verbs_behind decide_notification(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	const struct verbs_rail *rail = verbs_frame_rail(endpoint);

	if (!rail)
		return VERBS_BEHIND_WAITS;
	if (work->length && !verbs_rail_takes(rail, work)) {
		/* Other rails carry the data. */
		if (!work->counted)
			notify_later(endpoint, work);
		else
			verbs_work_cut(endpoint, work, work->length);
		return work->notify ? VERBS_BEHIND_WAITS : VERBS_BEHIND_CHANGED;
	}
	if (!is_data_elsewhere(endpoint, work, rail))
		return VERBS_BEHIND_GOES;
	if (work->counted)
		return VERBS_BEHIND_WAITS;
	notify_later(endpoint, work);
	return VERBS_BEHIND_CHANGED;
}

/* -- reads that flush ------------------------------------------------------------------------------ */

/* True if the rail can read back from the target now, or no byte of the target went over it. */
static bool can_read_back(const struct verbs_rail *rail, const struct verbs_remote_key *target)
{
	return rail->link == VERBS_UP && (verbs_reaches(target, rail->index) || !(target->windows & 1u << rail->index));
}

bool verbs_reads_back(const struct verbs_endpoint *endpoint, const struct pl_operation *operation)
{
	unsigned rails = atomic_load(&operation->rails);

	if (endpoint->rail_count == 1)
		return rails == 1;
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		for (unsigned j = 0; (rails & 1u << i) && j < operation->segment_count; j++) {
			const struct pl_remote *remote = operation->segments[j].remote;

			if (remote->fabric_data && !can_read_back(&endpoint->rails[i], remote->fabric_data))
				return false;
		}
	return rails;
}

static void set_behind(struct verbs_work *read, struct verbs_rail *rail)
{
	read->behind = rail;
	read->behind_generation = rail->generation;
}

/* Adds another read behind this one, for another rail. Returns false without memory. */
static bool add_read(struct verbs_endpoint *endpoint, struct verbs_work *read, struct verbs_rail *rail)
{
	struct verbs_work *work = verbs_work_new(endpoint, VERBS_READ, read->operation);

	if (!work)
		return false;
	work->back = true;
	set_behind(work, rail);
	work->target = read->target;
	work->length = read->length;
	work->remote = read->remote;
	pl_list_append(read->link.next, &work->link);
	return true;
}

/* Assigns one read to each rail that carried bytes of the operation. Returns false if one cannot read now. */
static bool assign_reads(struct verbs_endpoint *endpoint, struct verbs_work *read)
{
	unsigned rails = atomic_load(&read->operation->rails) & read->target->present;

	if (!verbs_reads_back(endpoint, read->operation) || has_data_of(&endpoint->parked, read))
		return false;
	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		if (!(rails & 1u << i))
			continue;
		if (!read->behind)
			set_behind(read, &endpoint->rails[i]);
		else if (!add_read(endpoint, read, &endpoint->rails[i]))
			return false;
	}
	return read->behind;
}

/* True if the connection of the writes is still up: they may move to another rail after it. */
static bool is_still_behind(const struct verbs_work *read)
{
	return read->behind->link == VERBS_UP && read->behind->generation == read->behind_generation;
}

static enum verbs_behind decide_read(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	if (work->behind ? is_still_behind(work) : assign_reads(endpoint, work))
		return VERBS_BEHIND_GOES;
	/* The flush follows the completion. */
	work->operation->settled = false;
	drop_work(endpoint, work);
	return VERBS_BEHIND_CHANGED;
}

enum verbs_behind verbs_behind_first(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	return work->notify ? decide_notification(endpoint, work) : decide_read(endpoint, work);
}
