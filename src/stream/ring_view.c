/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream/ring_view.h"

#include <endian.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/page_replace.h"
#include "stream/subscriber.h"

struct pl_ring_view {
	const struct pl_allocator *allocator;
	atomic_uint references;     /* of the subscriber, or else of the frames together; and of waiting threads */
	unsigned frames;            /* in the view; subscriber->lock */
	uint8_t *control, *payload; /* mappings, for reading only; NULL: none */
	size_t control_length, payload_length;
	bool torn;   /* a part of `payload` may belong to other memory of the process */
	bool marked; /* the publisher marks the descriptors of slots that it claims */
	struct pl_ring_geometry geometry;
};

/* -- life -------------------------------------------------------------------------------------------------------------- */

static int fail_place(struct pl_error *error, const char *name, const char *fact)
{
	return pl_fail(error, -ENOTSUP, "STREAM-PLACE", "pl_subscriber_open", name,
		       "subscribe without pl_subscriber_options.in_place", "%s", fact);
}

static int ring_view_map(struct pl_ring_view *view, struct pl_peer *peer, struct pl_remote *control,
			 struct pl_remote *payload, const char *name, struct pl_error *error)
{
	const struct pl_ring_geometry *geometry = &view->geometry;

	/* Pages are replaced slot by slot. */
	if (geometry->slot_stride % (uint64_t)sysconf(_SC_PAGESIZE))
		return fail_place(error, name, "the slots are no multiples of this host's pages");
	view->control = peer->ops->map(peer->endpoint, control, &view->control_length);
	view->payload = peer->ops->map(peer->endpoint, payload, &view->payload_length);
	if (!view->control || !view->payload || view->control_length < pl_ring_control_size(geometry) ||
	    view->payload_length < pl_ring_payload_size(geometry))
		return fail_place(error, name, "this process cannot map the ring");
	view->marked = pl_ring_marks_claims(view->control + PL_RING_HEADER);
	return 0;
}

int pl_ring_view_open(struct pl_peer *peer, struct pl_remote *control, struct pl_remote *payload,
		      const struct pl_ring_geometry *geometry, const char *name, struct pl_ring_view **result,
		      struct pl_error *error)
{
	const struct pl_allocator *allocator = &peer->context->allocator;
	struct pl_ring_view *view;
	int rc;

	if (!peer->ops->map)
		return fail_place(error, name, "the fabric of the connection maps no memory of the other end");
	view = pl_zalloc(allocator, sizeof(*view));
	if (!view)
		return pl_fail_memory(error, "pl_subscriber_open");
	view->allocator = allocator;
	view->geometry = *geometry;
	atomic_init(&view->references, 1);
	rc = ring_view_map(view, peer, control, payload, name, error);
	if (rc < 0) {
		pl_ring_view_put(view);
		return rc;
	}
	*result = view;
	return 0;
}

struct pl_ring_view *pl_ring_view_get(struct pl_ring_view *view)
{
	if (view)
		atomic_fetch_add(&view->references, 1);
	return view;
}

const uint64_t *pl_ring_view_published(const struct pl_ring_view *view)
{
	return (const uint64_t *)(const void *)(view->control + PL_RING_HEADER + 8);
}

static uint64_t ring_view_claimed(const struct pl_ring_view *view)
{
	const uint64_t *claimed = (const uint64_t *)(const void *)(view->control + PL_RING_HEADER);

	return le64toh(__atomic_load_n(claimed, __ATOMIC_ACQUIRE));
}

void pl_ring_view_cursors(const struct pl_ring_view *view, uint64_t *claimed, uint64_t *published)
{
	*claimed = ring_view_claimed(view);
	*published = le64toh(__atomic_load_n(pl_ring_view_published(view), __ATOMIC_ACQUIRE));
}

void pl_ring_view_put(struct pl_ring_view *view)
{
	if (!view || atomic_fetch_sub(&view->references, 1) != 1)
		return;
	if (view->control)
		munmap(view->control, view->control_length);
	if (view->payload && !view->torn)
		munmap(view->payload, view->payload_length);
	pl_free(view->allocator, view);
}

/* -- frames ---------------------------------------------------------------------------------------------------------------- */

/* True if the slot of a sequence had not been claimed again after all that the caller has read of it. */
static bool ring_view_holds(const struct pl_ring_view *view, uint64_t sequence)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return pl_ring_whole(ring_view_claimed(view), sequence, view->geometry.slots);
}

/* Returns the descriptor of a sequence in the ring. */
static const uint8_t *ring_view_descriptor(const struct pl_ring_view *view, uint64_t sequence)
{
	return view->control + pl_ring_descriptor_offset(&view->geometry, sequence);
}

/*
 * The same as ring_view_holds() for a frame with a payload. A mark costs no way of a cache line: the publisher writes the cursors for
 * each frame, and this descriptor next when it claims the slot.
 */
static bool ring_view_holds_frame(const struct pl_ring_view *view, uint64_t sequence)
{
	return view->marked ? pl_ring_stamp_holds(ring_view_descriptor(view, sequence), sequence)
			    : ring_view_holds(view, sequence);
}

bool pl_frame_unchanged(const struct pl_stream_frame *frame)
{
	return atomic_load(&frame->place) != PL_PLACE_RING || ring_view_holds_frame(frame->view, frame->sequence);
}

bool pl_frame_unchanged_at(const struct pl_stream_frame *frame, struct pl_ring_look *look)
{
	if (atomic_load(&frame->place) != PL_PLACE_RING)
		return true;
	if (frame->view->marked)
		return ring_view_holds_frame(frame->view, frame->sequence);
	if (look->view != frame->view) {
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		*look = (struct pl_ring_look){ frame->view, ring_view_claimed(frame->view) };
	}
	return pl_ring_whole(look->claimed, frame->sequence, frame->view->geometry.slots);
}

/* Frames before the admission of a frame at which its descriptor is fetched from the cache of the publisher's core. */
#define FETCH_AHEAD 8u

bool pl_frame_describe_in_place(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	const struct pl_ring_geometry *geometry = &subscriber->geometry;
	const struct pl_ring_descriptor *descriptor = &frame->descriptor;
	const struct pl_ring_view *view = subscriber->view;
	uint8_t *to = (uint8_t *)pl_region_address(subscriber->memory.control) + frame->descriptor_offset;

	if (!view)
		return false;
	if (frame->sequence + FETCH_AHEAD < subscriber->view_published)
		__builtin_prefetch(ring_view_descriptor(view, frame->sequence + FETCH_AHEAD));
	memcpy(to, ring_view_descriptor(view, frame->sequence), geometry->descriptor_stride);
	frame->described = pl_ring_descriptor_decode(to, geometry, frame->sequence, &frame->descriptor) == 0;
	/* A look at `claimed` costs the way of a cache line. The take of a frame with a payload looks at it anyway. */
	frame->described = frame->described && (descriptor->length || ring_view_holds(view, frame->sequence));
	return frame->described;
}

bool pl_frame_place(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	struct pl_ring_view *view = subscriber->view;

	if (!view)
		return false;
	view->frames++;
	frame->view = view;
	frame->data = view->payload + pl_ring_slot_offset(&view->geometry, frame->sequence);
	atomic_store_explicit(&frame->place, PL_PLACE_RING, memory_order_release);
	return true;
}

void pl_frame_unplace(struct pl_stream_frame *frame)
{
	struct pl_ring_view *view = frame->view;

	if (!view)
		return;
	atomic_store_explicit(&frame->place, PL_PLACE_OWN, memory_order_release);
	frame->data = (char *)pl_region_address(frame->subscriber->memory.payloads) + frame->offset;
	frame->view = NULL;
	if (--view->frames == 0 && view != frame->subscriber->view)
		pl_ring_view_put(view);
}

/* -- freezing --------------------------------------------------------------------------------------------------------------- */

/*
 * Replaces the pages of a frame by a copy, unless the publisher has claimed the slot or there is no memory. Threads that read
 * the frame meanwhile see the same bytes: the kernel replaces the pages in one step.
 */
static void freeze_frame(struct pl_stream_frame *frame)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (frame->descriptor.length + page - 1) / page * page;
	enum pl_pages pages;
	void *copy;

	if (atomic_load(&frame->place) != PL_PLACE_RING)
		return;
	copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return;
	memcpy(copy, frame->data, frame->descriptor.length);
	if (!ring_view_holds(frame->view, frame->sequence)) {
		munmap(copy, size);
		return;
	}
	pages = pl_pages_replace(frame->data, copy, size, frame->descriptor.length, PROT_READ);
	if (pages == PL_PAGES_REPLACED)
		atomic_store(&frame->place, PL_PLACE_FROZEN);
	else if (pages == PL_PAGES_TORN)
		frame->view->torn = true;
}

void pl_subscriber_freeze(struct pl_subscriber *subscriber)
{
	struct pl_list *const lists[] = { &subscriber->placed, &subscriber->window };

	if (!subscriber->view)
		return;
	for (unsigned i = 0; !subscriber->closing && i < PL_ARRAY_SIZE(lists); i++)
		pl_list_for_each(at, lists[i])
			freeze_frame(pl_list_entry(at, struct pl_stream_frame, link));
	/* The last frame in the view gives it up. */
	if (subscriber->view->frames == 0)
		pl_ring_view_put(subscriber->view);
	subscriber->view = NULL;
}

void pl_subscriber_follow_lost(struct pl_subscriber *subscriber)
{
	struct pl_peer *peer = subscriber->peer;
	struct pl_ring_view view = { .control = NULL };
	uint64_t claimed, published;

	if (!subscriber->control || !peer->ops->map)
		return;
	view.control = peer->ops->map(peer->endpoint, subscriber->control, &view.control_length);
	if (!view.control)
		return;
	if (view.control_length >= PL_RING_HEADER + PL_RING_CURSORS) {
		pl_ring_view_cursors(&view, &claimed, &published);
		pl_lock_take(&subscriber->lock);
		/* Wrong values tell nothing. The publisher cannot be asked any more. */
		if (subscriber->phase == PL_SUBSCRIBER_LIVE && published <= PL_RING_SEQUENCE_MAX &&
		    claimed <= PL_RING_SEQUENCE_MAX) {
			subscriber->published = PL_MAX(subscriber->published, published);
			subscriber->claimed = PL_MAX(subscriber->claimed, PL_MAX(claimed, published));
		}
		pl_lock_release(&subscriber->lock);
	}
	munmap(view.control, view.control_length);
}

uint64_t pl_subscriber_first_placed(const struct pl_subscriber *subscriber, uint64_t sequence)
{
	const struct pl_list *const lists[] = { &subscriber->placed, &subscriber->window };

	for (unsigned i = 0; subscriber->view && i < PL_ARRAY_SIZE(lists); i++) {
		pl_list_for_each(at, lists[i]) {
			const struct pl_stream_frame *frame = pl_list_entry(at, struct pl_stream_frame, link);

			if (frame->view != subscriber->view)
				continue;
			sequence = PL_MIN(sequence, frame->sequence);
			break;
		}
	}
	return sequence;
}
