/* SPDX-License-Identifier: BSD-2-Clause */
/* Loans of a publisher: from the claim of a slot to its publication. */
#include "stream/publisher.h"

static bool publisher_is_held(const struct pl_publisher *publisher, uint64_t end)
{
	pl_list_for_each(at, &publisher->subscriptions)
		if (pl_subscription_holds(pl_list_entry(at, struct pl_subscription, link), end))
			return true;
	return false;
}

void pl_publisher_set_gate(struct pl_publisher *publisher)
{
	uint64_t gate = PL_RING_SEQUENCE_MAX;

	pl_list_for_each(at, &publisher->subscriptions) {
		const struct pl_subscription *subscription = pl_list_entry(at, struct pl_subscription, link);

		if (subscription->blocks)
			gate = PL_MIN(gate, subscription->taken + publisher->header.geometry.slots);
	}
	publisher->gate = gate;
	if (!publisher_is_held(publisher, publisher->awaited))
		publisher->blocked_since = 0;
}

/* True if that was the context, and the identity. A peer says the id of its context, and proves its identity. */
static bool demotion_concerns(const struct pl_demotion *demotion, const uint8_t context_id[16], const char *fingerprint)
{
	return !memcmp(demotion->context_id, context_id, sizeof(demotion->context_id)) &&
	       !strcmp(demotion->fingerprint, fingerprint);
}

/* Remembers that the subscriber's context was demoted, in place of the demotion whose time is over first. */
static void remember_demotion(struct pl_publisher *publisher, const struct pl_subscription *subscription, uint64_t now)
{
	const uint8_t *context_id = subscription->peer->context_id;
	struct pl_demotion *demotion = publisher->demotions;

	for (unsigned i = 0; i < PL_DEMOTIONS_MAX; i++) {
		struct pl_demotion *other = &publisher->demotions[i];
		bool same = demotion_concerns(other, context_id, subscription->fingerprint);

		if (same || other->until < demotion->until)
			demotion = other;
		if (same)
			break;
	}
	memcpy(demotion->context_id, context_id, sizeof(demotion->context_id));
	memcpy(demotion->fingerprint, subscription->fingerprint, sizeof(demotion->fingerprint));
	demotion->until = pl_deadline(now, PL_MIN(publisher->patience, UINT64_MAX / PL_DEMOTION_PATIENCES) *
						   PL_DEMOTION_PATIENCES);
}

bool pl_publisher_has_demoted(const struct pl_publisher *publisher, const struct pl_peer *peer)
{
	uint64_t now = pl_now();

	for (unsigned i = 0; i < PL_DEMOTIONS_MAX; i++) {
		const struct pl_demotion *demotion = &publisher->demotions[i];

		if (now < demotion->until && demotion_concerns(demotion, peer->context_id, pl_peer_fingerprint(peer)))
			return true;
	}
	return false;
}

/* Demotes a subscription. Returns true if it still holds slots back, until `freeze_end`. */
static bool demote_subscription(struct pl_subscription *subscription, uint64_t now)
{
	if (!subscription->demoted)
		remember_demotion(subscription->publisher, subscription, now);
	if (subscription->in_place && !subscription->demoted)
		subscription->freeze_end = now + PL_FREEZE_TIME;
	subscription->demoted = true;
	subscription->blocks = subscription->in_place && now < subscription->freeze_end;
	return subscription->blocks;
}

/*
 * Makes the subscribers that hold the awaited slots back drop their oldest frames from now on, or once their frames in place
 * are frozen. Returns the time of the next change; UINT64_MAX: there will be none.
 */
static uint64_t demote_subscribers(struct pl_publisher *publisher, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	pl_list_for_each(at, &publisher->subscriptions) {
		struct pl_subscription *subscription = pl_list_entry(at, struct pl_subscription, link);

		if (pl_subscription_holds(subscription, publisher->awaited) && demote_subscription(subscription, now))
			next = PL_MIN(next, subscription->freeze_end);
	}
	pl_publisher_set_gate(publisher);
	return next;
}

/* Asks the subscribers that hold the awaited slots back for a report. They may have free slots that they did not tell of. */
static void ask_for_slots(struct pl_publisher *publisher)
{
	pl_list_for_each(at, &publisher->subscriptions) {
		struct pl_subscription *subscription = pl_list_entry(at, struct pl_subscription, link);

		bool asks = subscription->quiet || (pl_subscription_must_ask(subscription) && !subscription->asked);

		subscription->awaited |= asks && pl_subscription_holds(subscription, publisher->awaited);
	}
}

/*
 * Returns the time until which the caller may wait for the gate. Demotes subscribers whose time is over. `tell`: set if
 * subscribers must be told something.
 */
static uint64_t gate_deadline(struct pl_publisher *publisher, uint64_t deadline, bool *tell)
{
	uint64_t now = pl_now(), patient;

	if (!publisher->blocked_since || publisher->asked != publisher->awaited) {
		ask_for_slots(publisher);
		publisher->asked = publisher->awaited;
		*tell = true;
	}
	if (!publisher->blocked_since)
		publisher->blocked_since = now;
	patient = pl_deadline(publisher->blocked_since, publisher->patience);
	if (now >= patient) {
		patient = demote_subscribers(publisher, now);
		*tell = true;
	}
	return PL_MIN(deadline, patient);
}

/* Counts the sequences `begin` to `end - 1` at each subscription that wants some of them. */
static void count_skipped(struct pl_publisher *publisher, uint64_t begin, uint64_t end)
{
	pl_list_for_each(at, &publisher->subscriptions) {
		struct pl_subscription *subscription = pl_list_entry(at, struct pl_subscription, link);
		uint64_t from = PL_MAX(begin, subscription->first);

		if (from < end)
			subscription->skipped += pl_stream_wanted(end - subscription->base, subscription->every) -
						 pl_stream_wanted(from - subscription->base, subscription->every);
	}
}

static void skip_sequences(struct pl_publisher *publisher, uint64_t end, bool lost)
{
	uint64_t described = pl_ring_skip(&publisher->ring, publisher->claimed, end, lost);

	/* Lost sequences without a descriptor count as lapped. */
	if (!lost)
		count_skipped(publisher, publisher->claimed, described);
	publisher->claimed = publisher->published = end;
	publisher->blocked_since = 0;
}

/*
 * Frames before a loan at which its descriptor is fetched. Subscribers have read it last, and the way of a cache line between cores
 * takes as long as some small frames.
 */
#define PREPARE_AHEAD 8u

/* Fetches the descriptor of a later loan. A small ring has none that subscribers may not be reading. */
static void prepare_later_loan(const struct pl_publisher *publisher, uint64_t sequence)
{
	sequence += PREPARE_AHEAD;
	if (sequence < publisher->gate && publisher->header.geometry.slots >= 8 * PREPARE_AHEAD)
		pl_ring_prepare(&publisher->ring, sequence);
}

static struct pl_stream_frame *claim_slot(struct pl_publisher *publisher)
{
	uint64_t sequence = publisher->claimed;
	struct pl_stream_frame *frame = &publisher->loans[pl_ring_index(sequence, publisher->loan_count)];

	prepare_later_loan(publisher, sequence);
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

/* Claims sequences for a call of the program. */
struct claim {
	const char *call;
	uint64_t end;                  /* of a skip: the next sequence */
	bool lost;                     /* of a skip: the frames were lost before they came to the publisher */
	struct pl_stream_frame *frame; /* of a loan: the result */
};

bool pl_publisher_returns(const struct pl_publisher *publisher)
{
	/* Frames are published in their order, so later loans come back after the oldest one. */
	return publisher->claimed != publisher->published &&
	       publisher->loans[pl_ring_index(publisher->published, publisher->loan_count)].state == PL_FRAME_MARKED;
}

static int claim_skip(struct pl_publisher *publisher, struct claim *claim, struct pl_error *error)
{
	if (publisher->state != PL_STREAM_LIVE)
		return pl_fail(error, -ENODATA, "STREAM-ENDED", claim->call, publisher->header.name, NULL,
			       "the stream has ended");
	if (publisher->claimed != publisher->published)
		return pl_fail(error, -EBUSY, "STREAM-LOANED", claim->call, publisher->header.name,
			       "publish or discard the loans first", "loans are out");
	if (claim->end < publisher->claimed || claim->end > PL_RING_SEQUENCE_MAX)
		return pl_fail(error, -EINVAL, "OPTION", claim->call, publisher->header.name,
			       "sequences rise, and end at 2^62", "the next sequence is %llu, and not %llu",
			       (unsigned long long)publisher->claimed, (unsigned long long)claim->end);
	publisher->awaited = claim->end;
	if (publisher_is_held(publisher, claim->end))
		return -EAGAIN;
	if (claim->end > publisher->claimed)
		skip_sequences(publisher, claim->end, claim->lost);
	return 0;
}

/* True if nothing prevents a loan. publisher->lock is held. */
static bool may_loan(const struct pl_publisher *publisher)
{
	return publisher->state == PL_STREAM_LIVE && publisher->claimed < publisher->gate &&
	       publisher->claimed - publisher->published < publisher->loan_count;
}

/* Claims the next slot, or returns the reason. publisher->lock is held. */
static int claim_loan(struct pl_publisher *publisher, struct claim *claim, struct pl_error *error)
{
	bool returning = pl_publisher_returns(publisher);

	if (publisher->state != PL_STREAM_LIVE)
		return pl_fail(error, -ENODATA, "STREAM-ENDED", "pl_publisher_loan", publisher->header.name, NULL,
			       "the stream has ended");
	if (publisher->claimed >= PL_RING_SEQUENCE_MAX)
		return pl_fail(error, -ENODATA, "STREAM-ENDED", "pl_publisher_loan", publisher->header.name,
			       "open a publisher whose sequences begin lower", "the sequences of a stream end at 2^62");
	if (publisher->claimed - publisher->published == publisher->loan_count)
		return pl_fail(error, -EMLINK, "LOAN-LIMIT", "pl_publisher_loan", publisher->header.name,
			       returning ? "allow more time, or raise pl_publisher_options.loans"
					 : "publish or discard loans first, or raise pl_publisher_options.loans",
			       returning ? "%u loans are out, and CUDA streams have not come to them"
					 : "%u loans are out",
			       publisher->loan_count);
	publisher->awaited = publisher->claimed + 1;
	if (publisher->claimed >= publisher->gate)
		return -EAGAIN;
	claim->frame = claim_slot(publisher);
	return 0;
}

/* Claims sequences as soon as no subscriber holds their slots back, and no CUDA stream all loans. */
static int claim_in_time(struct pl_publisher *publisher, struct claim *claim, uint64_t timeout,
			 int (*claim_try)(struct pl_publisher *, struct claim *, struct pl_error *),
			 struct pl_error *error)
{
	uint64_t deadline = 0, until = 0;
	bool tell = false, waits;
	int rc;

	for (;;) {
		unsigned seen = pl_turn_read(&publisher->turn);

		pl_lock_take(&publisher->lock);
		rc = claim_try(publisher, claim, error);
		/* A claim that succeeds at once needs no clock. */
		if (rc < 0 && !deadline)
			until = deadline = pl_deadline(pl_now(), timeout);
		if (rc == -EAGAIN) {
			until = gate_deadline(publisher, deadline, &tell);
			if (tell)
				rc = claim_try(publisher, claim, error);
		}
		if (rc == -EAGAIN && pl_now() >= deadline) {
			publisher->refused++;
			pl_fail(error, rc, "STREAM-BUSY", claim->call, publisher->header.name,
				"allow more time, use more slots, or see pl_publisher_subscribers(3)",
				"subscribers hold all slots back");
			until = 0;
		}
		waits = (rc == -EAGAIN && until) ||
			(rc == -EMLINK && pl_publisher_returns(publisher) && pl_now() < deadline);
		pl_lock_release(&publisher->lock);
		if (tell)
			pl_publisher_announce(publisher);
		tell = false;
		if (!waits)
			break;
		pl_turn_wait(publisher->context, &publisher->turn, seen, until);
	}
	if (rc == 0 && !claim->frame)
		pl_publisher_announce(publisher);
	return rc;
}

int pl_publisher_loan(struct pl_publisher *publisher, uint64_t timeout, struct pl_stream_frame **frame,
		      struct pl_error *error)
{
	struct claim claim = { .call = "pl_publisher_loan" };
	int rc;

	/* The usual case, without a look at the reasons. */
	*frame = NULL;
	pl_lock_take(&publisher->lock);
	if (may_loan(publisher))
		*frame = claim_slot(publisher);
	pl_lock_release(&publisher->lock);
	if (*frame)
		return 0;
	rc = claim_in_time(publisher, &claim, timeout, claim_loan, error);
	*frame = claim.frame;
	return rc;
}

int pl_publisher_skip(struct pl_publisher *publisher, uint64_t sequence, uint64_t timeout, struct pl_error *error)
{
	struct claim claim = { .call = "pl_publisher_skip", .end = sequence };

	return claim_in_time(publisher, &claim, timeout, claim_skip, error);
}

int pl_publisher_skip_lost(struct pl_publisher *publisher, uint64_t sequence, uint64_t timeout, struct pl_error *error)
{
	struct claim claim = { .call = "pl_publisher_skip_lost", .end = sequence, .lost = true };

	return claim_in_time(publisher, &claim, timeout, claim_skip, error);
}

/* -- publication --------------------------------------------------------------------------------------------- */

/* Fills the descriptor of a frame that was lost before: pl_ring_descriptor_lost(). */
static int describe_lost(const struct pl_frame_options *options, struct pl_ring_descriptor *descriptor,
			 struct pl_error *error)
{
	if (options->length || options->metadata_length || options->layout)
		return pl_fail(error, -EINVAL, "OPTION", "pl_frame_publish", "flags",
			       "leave length, metadata and layout out", "a lost frame has no bytes");
	*descriptor = (struct pl_ring_descriptor){ .flags = PL_DESCRIPTOR_ABORTED };
	return 0;
}

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
	descriptor->captured = options->captured;
	if (options->flags == PL_FRAME_LOST)
		return describe_lost(options, descriptor, error);
	if (options->flags & ~(unsigned)PL_FRAME_REPLAY)
		return pl_fail(error, -EINVAL, "OPTION", "pl_frame_publish", "flags", "use bits of enum pl_frame_flag",
			       "unknown flags");
	if (options->flags & PL_FRAME_REPLAY)
		descriptor->flags |= PL_DESCRIPTOR_REPLAY;
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

	pl_lock_take(&publisher->lock);
	descriptor->sequence = frame->sequence;
	descriptor->published = pl_wall_now(&publisher->wall);
	/* By default a frame is captured when it is published. An aborted one without a time was lost. */
	if (!descriptor->captured && !(descriptor->flags & PL_DESCRIPTOR_ABORTED))
		descriptor->captured = descriptor->published;
	pl_ring_describe(&publisher->ring, descriptor, metadata);
	frame->state = PL_FRAME_DONE;
	published = publisher->published;
	while (published < publisher->claimed) {
		struct pl_stream_frame *next = &publisher->loans[pl_ring_index(published, publisher->loan_count)];

		if (next->state != PL_FRAME_DONE)
			break;
		next->state = PL_FRAME_FREE;
		published++;
	}
	if (published > publisher->published)
		pl_ring_publish(&publisher->ring, published);
	publisher->published = published;
	pl_lock_release(&publisher->lock);
	pl_publisher_announce_frames(publisher, descriptor->published);
}

/* Checks a frame to be published, and fills the descriptor. `options`: receives options of this version. */
static int check_publication(const struct pl_stream_frame *frame, const struct pl_frame_options **options,
			     struct pl_frame_options *copy, struct pl_ring_descriptor *descriptor,
			     struct pl_error *error)
{
	const struct pl_frame_options *given = *options;

	memset(descriptor, 0, sizeof(*descriptor));
	if (!given || given->size != sizeof(*given))
		*options = copy;
	if (*options == copy && pl_copy_versioned(copy, sizeof(*copy), given) < 0)
		return pl_fail(error, -EINVAL, "OPTION", "pl_frame_publish", "size", "use PL_FRAME_OPTIONS_INIT",
			       "options of a newer library, or not initialised");
	if (frame->state != PL_FRAME_LOANED)
		return pl_fail(error, -EINVAL, "FRAME-FOREIGN", "pl_frame_publish", NULL,
			       "publish a frame of pl_publisher_loan()", "the frame is not on loan");
	return describe_frame(frame->publisher, *options, descriptor, error);
}

int pl_frame_publish(struct pl_stream_frame *frame, const struct pl_frame_options *options, struct pl_error *error)
{
	struct pl_ring_descriptor descriptor;
	struct pl_frame_options copy;
	int rc = check_publication(frame, &options, &copy, &descriptor, error);

	if (rc < 0)
		return rc;
	finish_loan(frame, &descriptor, options->metadata);
	return 0;
}

int pl_frame_publish_on(struct pl_stream_frame *frame, const struct pl_frame_options *options, void *stream,
			struct pl_error *error)
{
	struct pl_ring_descriptor descriptor;
	struct pl_publisher *publisher;
	struct pl_frame_options copy;
	int rc = check_publication(frame, &options, &copy, &descriptor, error);

	if (rc < 0)
		return rc;
	publisher = frame->publisher;
	pl_lock_take(&publisher->lock);
	descriptor.sequence = frame->sequence;
	pl_ring_describe(&publisher->ring, &descriptor, options->metadata);
	frame->descriptor = descriptor;
	frame->state = PL_FRAME_MARKED;
	pl_lock_release(&publisher->lock);
	rc = pl_frame_marks_add(&publisher->marks, frame, stream, error);
	if (rc < 0) {
		pl_lock_take(&publisher->lock);
		frame->state = PL_FRAME_LOANED;
		pl_lock_release(&publisher->lock);
	}
	return rc;
}

void pl_publisher_marked(struct pl_stream_frame *frame, int status)
{
	struct pl_ring_descriptor *descriptor = &frame->descriptor;
	struct pl_publisher *publisher = frame->publisher;

	pl_frame_unmark(frame);
	if (status < 0)
		*descriptor =
			(struct pl_ring_descriptor){ .flags = PL_DESCRIPTOR_ABORTED, .captured = pl_wall_clock() };
	finish_loan(frame, descriptor, NULL);
	/* For threads that wait for a loan, or for the end of the stream. */
	pl_turn_next(publisher->context, &publisher->turn);
}

void pl_frame_discard(struct pl_stream_frame *frame)
{
	struct pl_ring_descriptor descriptor = { .flags = PL_DESCRIPTOR_ABORTED, .captured = pl_wall_clock() };

	if (!frame || frame->state != PL_FRAME_LOANED || pl_context_forked(frame->publisher->context))
		return;
	finish_loan(frame, &descriptor, NULL);
}
