/* SPDX-License-Identifier: BSD-2-Clause */
/* Loans of a publisher: from the claim of a slot to its publication. */
#include "stream/publisher.h"

void pl_publisher_set_gate(struct pl_publisher *publisher)
{
	uint64_t gate = UINT64_MAX;

	pl_list_for_each(at, &publisher->subscriptions) {
		const struct pl_subscription *subscription = pl_list_entry(at, struct pl_subscription, link);

		if (subscription->blocks)
			gate = PL_MIN(gate, subscription->taken + publisher->header.geometry.slots);
	}
	publisher->gate = gate;
	if (publisher->claimed < gate)
		publisher->blocked_since = 0;
}

/* Makes the subscribers that hold the next slot back drop their oldest frames from now on. */
static void demote_subscribers(struct pl_publisher *publisher)
{
	pl_list_for_each(at, &publisher->subscriptions) {
		struct pl_subscription *subscription = pl_list_entry(at, struct pl_subscription, link);

		if (!subscription->blocks ||
		    subscription->taken + publisher->header.geometry.slots > publisher->claimed)
			continue;
		subscription->blocks = false;
		subscription->demoted = true;
	}
	pl_publisher_set_gate(publisher);
}

/* Returns the time until which the caller may wait for the gate. Demotes subscribers whose time is over. */
static uint64_t gate_deadline(struct pl_publisher *publisher, uint64_t deadline, bool *demoted)
{
	uint64_t now = pl_now(), patient;

	if (!publisher->blocked_since)
		publisher->blocked_since = now;
	patient = pl_deadline(publisher->blocked_since, publisher->patience);
	if (now >= patient) {
		demote_subscribers(publisher);
		*demoted = true;
	}
	return PL_MIN(deadline, patient);
}

static struct pl_stream_frame *claim_slot(struct pl_publisher *publisher)
{
	uint64_t sequence = publisher->claimed;
	struct pl_stream_frame *frame = &publisher->loans[sequence % publisher->loan_count];

	pl_ring_claim(&publisher->ring, sequence);
	publisher->claimed = sequence + 1;
	publisher->blocked_since = 0;
	frame->publisher = publisher;
	frame->state = PL_FRAME_LOANED;
	frame->sequence = sequence;
	frame->data = (char *)pl_region_address(publisher->payload) +
		      pl_ring_slot_offset(&publisher->header.geometry, sequence);
	return frame;
}

/* Claims the next slot, or returns the reason. publisher->lock is held. */
static int try_loan(struct pl_publisher *publisher, struct pl_stream_frame **frame, struct pl_error *error)
{
	if (publisher->state != PL_STREAM_LIVE)
		return pl_fail(error, -ENODATA, "STREAM-ENDED", "pl_publisher_loan", publisher->header.name, NULL,
			       "the stream has ended");
	if (publisher->claimed - publisher->published == publisher->loan_count)
		return pl_fail(error, -EMLINK, "LOAN-LIMIT", "pl_publisher_loan", publisher->header.name,
			       "publish or discard loans first, or raise pl_publisher_options.loans",
			       "%u loans are out", publisher->loan_count);
	if (publisher->claimed >= publisher->gate)
		return -EAGAIN;
	*frame = claim_slot(publisher);
	return 0;
}

int pl_publisher_loan(struct pl_publisher *publisher, uint64_t timeout, struct pl_stream_frame **frame,
		      struct pl_error *error)
{
	uint64_t deadline = pl_deadline(pl_now(), timeout), until = deadline;
	bool demoted = false;
	int rc;

	*frame = NULL;
	for (;;) {
		unsigned seen = pl_turn_read(&publisher->turn);

		pthread_mutex_lock(&publisher->lock);
		rc = try_loan(publisher, frame, error);
		if (rc == -EAGAIN) {
			until = gate_deadline(publisher, deadline, &demoted);
			if (demoted)
				rc = try_loan(publisher, frame, error);
		}
		if (rc == -EAGAIN && pl_now() >= deadline) {
			publisher->refused++;
			pl_fail(error, rc, "STREAM-BUSY", "pl_publisher_loan", publisher->header.name,
				"allow more time, use more slots, or see pl_publisher_subscribers(3)",
				"subscribers hold all slots back");
			until = 0;
		}
		pthread_mutex_unlock(&publisher->lock);
		if (rc != -EAGAIN || !until)
			break;
		pl_turn_wait(publisher->context, &publisher->turn, seen, until);
	}
	if (demoted)
		pl_publisher_announce(publisher);
	return rc;
}

/* -- publication --------------------------------------------------------------------------------------------- */

/* Fills the descriptor of a frame. */
static int describe_frame(const struct pl_publisher *publisher, const struct pl_frame_options *options,
			  struct pl_ring_descriptor *descriptor, struct pl_error *error)
{
	const struct pl_ring_geometry *geometry = &publisher->header.geometry;
	const char *name = publisher->header.name;

	if (options->length > geometry->slot_bytes || options->metadata_length > geometry->metadata_bytes)
		return pl_fail(error, -EMSGSIZE, "FRAME-LONG", "pl_frame_publish", name,
			       "raise slot_bytes or metadata_bytes of pl_publisher_options",
			       "%llu bytes and %zu of metadata, at most %llu and %u are possible",
			       (unsigned long long)options->length, options->metadata_length,
			       (unsigned long long)geometry->slot_bytes, geometry->metadata_bytes);
	if (options->metadata_length && !options->metadata)
		return pl_fail(error, -EINVAL, "OPTION", "pl_frame_publish", "metadata", "pass the bytes",
			       "a length of metadata without metadata");
	descriptor->length = options->length;
	descriptor->metadata_length = (uint16_t)options->metadata_length;
	descriptor->published = pl_wall_clock();
	descriptor->captured = options->captured ? options->captured : descriptor->published;
	if (!options->layout || options->layout->bits == 0)
		return 0;
	if (!pl_layout_valid(options->layout) || pl_layout_bytes(options->layout) > options->length)
		return pl_fail(error, -EINVAL, "FRAME-LAYOUT", "pl_frame_publish", name,
			       "give a layout whose elements fit the length",
			       "the layout is not valid, or larger than the frame");
	descriptor->layout = *options->layout;
	descriptor->flags |= PL_DESCRIPTOR_LAYOUT;
	return 0;
}

/* Writes the descriptor, uses the loan up, and publishes all frames that have no earlier loan. */
static void finish_loan(struct pl_stream_frame *frame, struct pl_ring_descriptor *descriptor, const void *metadata)
{
	struct pl_publisher *publisher = frame->publisher;
	uint64_t published;

	pthread_mutex_lock(&publisher->lock);
	descriptor->sequence = frame->sequence;
	pl_ring_describe(&publisher->ring, descriptor, metadata);
	frame->state = PL_FRAME_DONE;
	published = publisher->published;
	while (published < publisher->claimed &&
	       publisher->loans[published % publisher->loan_count].state == PL_FRAME_DONE)
		publisher->loans[published++ % publisher->loan_count].state = PL_FRAME_FREE;
	if (published > publisher->published)
		pl_ring_publish(&publisher->ring, published);
	publisher->published = published;
	pthread_mutex_unlock(&publisher->lock);
	pl_publisher_announce(publisher);
}

int pl_frame_publish(struct pl_stream_frame *frame, const struct pl_frame_options *given, struct pl_error *error)
{
	struct pl_ring_descriptor descriptor = { 0 };
	struct pl_frame_options options;
	int rc;

	if (pl_copy_versioned(&options, sizeof(options), given) < 0)
		return pl_fail(error, -EINVAL, "OPTION", "pl_frame_publish", "size", "use PL_FRAME_OPTIONS_INIT",
			       "options of a newer library, or not initialised");
	if (!frame->publisher || frame->state != PL_FRAME_LOANED)
		return pl_fail(error, -EINVAL, "FRAME-FOREIGN", "pl_frame_publish", NULL,
			       "publish a frame of pl_publisher_loan()", "the frame is not on loan");
	rc = describe_frame(frame->publisher, &options, &descriptor, error);
	if (rc < 0)
		return rc;
	finish_loan(frame, &descriptor, options.metadata);
	return 0;
}

void pl_frame_discard(struct pl_stream_frame *frame)
{
	struct pl_ring_descriptor descriptor = { .flags = PL_DESCRIPTOR_ABORTED };

	if (!frame || !frame->publisher || frame->state != PL_FRAME_LOANED)
		return;
	descriptor.published = descriptor.captured = pl_wall_clock();
	finish_loan(frame, &descriptor, NULL);
}
