/* SPDX-License-Identifier: BSD-2-Clause */
/* Life of a publisher. */
#include <stdio.h>

#include "stream/publisher.h"

#define SLOTS_DEFAULT 16
#define PATIENCE_DEFAULT PL_NS_PER_S
/* Longest wait for pushed writes at the close, before they are cancelled. */
#define WRITE_PATIENCE PL_NS_PER_S

static int bad_publisher_option(struct pl_error *error, const char *object, const char *fact)
{
	return pl_fail(error, -EINVAL, "OPTION", "pl_publisher_open", object, "see pl_publisher_open(3)", "%s", fact);
}

struct pl_publisher *pl_publisher_find(struct pl_context *context, const char *name)
{
	pl_list_for_each(at, &context->publishers) {
		struct pl_publisher *publisher = pl_list_entry(at, struct pl_publisher, link);

		if (!strcmp(publisher->header.name, name))
			return publisher;
	}
	return NULL;
}

/* Checks the options that are numbers. `options` has its defaults. */
static int publisher_check_limits(const struct pl_publisher_options *options, struct pl_error *error)
{
	const struct {
		const char *id, *option;
		uint64_t value, least, most;
	} limits[] = {
		{ "STREAM-SLOTS", "slots", options->slots, 2, PL_STREAM_SLOTS_MAX },
		{ "STREAM-SLOT-BYTES", "slot_bytes", options->slot_bytes, 1, PL_RING_SLOT_MAX },
		{ "STREAM-METADATA", "metadata_bytes", options->metadata_bytes, 0, PL_STREAM_METADATA_MAX },
		{ "STREAM-LOANS", "loans", options->loans, 1, (uint64_t)options->slots - 1 },
		{ "STREAM-SUBSCRIBERS", "subscribers", options->subscribers, 1, PL_SUBSCRIBERS_MAX },
		{ "STREAM-FIRST", "first", options->first, 0, PL_RING_SEQUENCE_MAX },
	};

	for (unsigned i = 0; i < PL_ARRAY_SIZE(limits); i++)
		if (limits[i].value < limits[i].least || limits[i].value > limits[i].most)
			return pl_fail(error, -EINVAL, limits[i].id, "pl_publisher_open", limits[i].option,
				       "see pl_publisher_open(3)", "%llu is not within %llu to %llu",
				       (unsigned long long)limits[i].value, (unsigned long long)limits[i].least,
				       (unsigned long long)limits[i].most);
	return 0;
}

/* Checks the options, which have their defaults, and fills header and limits. */
static int publisher_configure(struct pl_publisher *publisher, const char *name,
			       const struct pl_publisher_options *options, struct pl_error *error)
{
	struct pl_ring_header *header = &publisher->header;
	int rc;

	if (!pl_stream_name_valid(name))
		return pl_fail(error, -EINVAL, "STREAM-NAME", "pl_publisher_open", NULL,
			       "use 1 to 63 characters of A-Z a-z 0-9 . _ -", "the name of the stream is not valid");
	if (options->content_type && !pl_content_type_valid(options->content_type))
		return bad_publisher_option(error, "content_type",
					    "a content type has up to 63 visible ASCII characters");
	rc = publisher_check_limits(options, error);
	if (rc < 0)
		return rc;
	header->geometry.slots = options->slots;
	header->geometry.slot_bytes = options->slot_bytes;
	header->geometry.metadata_bytes = (uint32_t)options->metadata_bytes;
	pl_ring_geometry_init(&header->geometry);
	if (!pl_layout_valid(&options->layout) || pl_layout_bytes(&options->layout) > options->slot_bytes)
		return bad_publisher_option(error, "layout", "the layout is not valid, or larger than a slot");
	publisher->loan_count = options->loans;
	publisher->subscriber_limit = options->subscribers;
	publisher->allow_block = options->allow_block;
	publisher->needs_token = options->needs_token;
	publisher->patience = options->patience;
	publisher->first = publisher->claimed = publisher->published = options->first;
	header->layout = options->layout;
	header->created = pl_wall_clock();
	snprintf(header->name, sizeof(header->name), "%s", name);
	snprintf(header->content_type, sizeof(header->content_type), "%s",
		 options->content_type ? options->content_type : "");
	if (pl_random(header->instance, sizeof(header->instance)) < 0)
		return pl_fail_errno(error, -EIO, "SYSTEM", "getrandom", NULL);
	return 0;
}

static int publisher_allocate(struct pl_publisher *publisher, const char *memory, struct pl_error *error)
{
	const struct pl_ring_geometry *geometry = &publisher->header.geometry;
	struct pl_context *context = publisher->context;
	int rc =
		pl_region_allocate(context, pl_ring_control_size(geometry), PL_ACCESS_READ, &publisher->control, error);

	if (rc == 0)
		rc = pl_region_allocate_in(context, memory ? memory : "host", pl_ring_payload_size(geometry),
					   PL_ACCESS_READ, &publisher->payload, error);
	if (rc < 0)
		return rc;
	publisher->header.gpu = pl_memory_staged(&publisher->payload->memory);
	publisher->loans = pl_zalloc(&context->allocator, publisher->loan_count * sizeof(*publisher->loans));
	publisher->announcers = pl_zalloc(&context->allocator, context->engine_count * sizeof(*publisher->announcers));
	if (!publisher->loans || !publisher->announcers)
		return pl_fail_memory(error, "pl_publisher_open");
	for (unsigned i = 0; i < context->engine_count; i++)
		pl_announcer_init(&publisher->announcers[i], publisher, context->engines[i]);
	pl_ring_init(&publisher->ring, pl_region_address(publisher->control), &publisher->header);
	if (publisher->first) {
		pl_ring_claim_below(&publisher->ring, publisher->first);
		pl_ring_publish(&publisher->ring, publisher->first);
	}
	return 0;
}

static void publisher_free(struct pl_publisher *publisher)
{
	struct pl_context *context = publisher->context;

	while (!pl_list_empty(&publisher->ended)) {
		struct pl_subscription *ended = pl_list_first(&publisher->ended, struct pl_subscription, link);

		pl_list_remove(&ended->link);
		pl_free(&context->allocator, ended);
	}
	if (publisher->control)
		pl_region_deregister(publisher->control);
	if (publisher->payload)
		pl_region_deregister(publisher->payload);
	pl_stream_tokens_free(publisher);
	pl_free(&context->allocator, publisher->loans);
	pl_free(&context->allocator, publisher->announcers);
	pl_free(&context->allocator, publisher);
}

/* Adds the publisher to the context, under a name that no other one has. */
static int publisher_list(struct pl_publisher *publisher, struct pl_error *error)
{
	struct pl_context *context = publisher->context;
	unsigned count = 0;
	bool exists;

	pthread_mutex_lock(&context->lock);
	exists = pl_publisher_find(context, publisher->header.name);
	pl_list_for_each(at, &context->publishers)
		count++;
	if (!exists && count < PL_PUBLISHERS_MAX)
		pl_list_append(&context->publishers, &publisher->link);
	pthread_mutex_unlock(&context->lock);
	if (exists)
		return pl_fail(error, -EEXIST, "STREAM-EXISTS", "pl_publisher_open", publisher->header.name,
			       "close the other publisher, or choose another name",
			       "the context has a publisher of that name");
	if (count >= PL_PUBLISHERS_MAX)
		return pl_fail(error, -ENOSPC, "STREAM-LIMIT", "pl_publisher_open", publisher->header.name,
			       "close publishers, or use another context", "the context has %d publishers",
			       PL_PUBLISHERS_MAX);
	return 0;
}

int pl_publisher_open(struct pl_context *context, const char *name, const struct pl_publisher_options *given,
		      struct pl_publisher **result, struct pl_error *error)
{
	struct pl_publisher_options options;
	struct pl_publisher *publisher;
	int rc;

	*result = NULL;
	if (pl_copy_versioned(&options, sizeof(options), given) < 0)
		return bad_publisher_option(error, "size", "options of a newer library, or not initialised");
	options.slots = options.slots ? options.slots : SLOTS_DEFAULT;
	options.loans = options.loans ? options.loans : 1;
	options.subscribers = options.subscribers ? options.subscribers : PL_SUBSCRIBERS_MAX;
	options.patience = options.patience ? options.patience : PATIENCE_DEFAULT;
	publisher = pl_zalloc(&context->allocator, sizeof(*publisher));
	if (!publisher)
		return pl_fail_memory(error, "pl_publisher_open");
	publisher->context = context;
	publisher->state = PL_STREAM_LIVE;
	publisher->gate = PL_RING_SEQUENCE_MAX;
	pl_list_init(&publisher->link);
	pl_list_init(&publisher->prepared);
	pl_list_init(&publisher->subscriptions);
	pl_list_init(&publisher->ended);
	pl_lock_init(&publisher->lock);
	pl_wall_open(&publisher->wall);
	pl_frame_marks_init(&publisher->marks, context, &publisher->lock, pl_publisher_marked);
	rc = publisher_configure(publisher, name, &options, error);
	if (rc == 0)
		rc = publisher_allocate(publisher, options.memory, error);
	if (rc == 0)
		rc = publisher_list(publisher, error);
	if (rc < 0) {
		publisher_free(publisher);
		return rc;
	}
	*result = publisher;
	return 0;
}

/* -- end and close ---------------------------------------------------------------------------------------- */

/* True if each subscriber has reported a fate for each frame. publisher->lock is held. */
static bool publisher_drained(const struct pl_publisher *publisher)
{
	pl_list_for_each(at, &publisher->subscriptions) {
		const struct pl_subscription *subscription = pl_list_entry(at, struct pl_subscription, link);

		if (subscription->accounts.next < publisher->published || subscription->accounts.pending)
			return false;
	}
	return true;
}

/*
 * Sets the state once all loans are published; waits for those that a CUDA stream publishes. Returns false if loans are
 * out at the deadline, or with the program.
 */
static bool publisher_stop(struct pl_publisher *publisher, uint64_t deadline)
{
	bool loaned, returning;
	unsigned seen;

	do {
		seen = pl_turn_read(&publisher->turn);
		pl_lock_take(&publisher->lock);
		loaned = publisher->claimed != publisher->published;
		returning = pl_publisher_returns(publisher);
		if (!loaned && publisher->state == PL_STREAM_LIVE) {
			publisher->state = PL_STREAM_ENDED;
			pl_ring_set_state(&publisher->ring, PL_STREAM_ENDED);
		}
		pl_lock_release(&publisher->lock);
	} while (returning && pl_turn_wait(publisher->context, &publisher->turn, seen, deadline));
	return !loaned;
}

int pl_publisher_end(struct pl_publisher *publisher, uint64_t timeout, struct pl_error *error)
{
	uint64_t deadline = pl_deadline(pl_now(), timeout);
	unsigned seen;
	bool drained;

	if (!publisher_stop(publisher, deadline))
		return pl_fail(error, -EBUSY, "STREAM-LOANED", "pl_publisher_end", publisher->header.name,
			       "publish or discard the loans first", "loans are out");
	pl_publisher_announce(publisher);
	do {
		seen = pl_turn_read(&publisher->turn);
		pl_lock_take(&publisher->lock);
		drained = publisher_drained(publisher);
		pl_lock_release(&publisher->lock);
	} while (!drained && timeout && pl_turn_wait(publisher->context, &publisher->turn, seen, deadline));
	if (drained || !timeout)
		return 0;
	return pl_fail(error, -ETIMEDOUT, "STREAM-UNREPORTED", "pl_publisher_end", publisher->header.name,
		       "allow more time, or see pl_publisher_subscribers(3)",
		       "the stream has ended, and some subscribers have not taken all its frames");
}

/* Stops the announcer to run others. */
static void announcer_quiesce(struct pl_announcer *announcer)
{
	pl_engine_lock(announcer->engine);
	pl_engine_withdraw(announcer->engine, &announcer->spread_task);
	pl_engine_unlock(announcer->engine);
}

/* Ends all subscriptions of an engine's peers. Nobody can subscribe any longer. */
static void announcer_close(struct pl_announcer *announcer)
{
	pl_engine_lock(announcer->engine);
	pl_engine_withdraw(announcer->engine, &announcer->task);
	pl_timer_clear(announcer->engine, &announcer->token_timer);
	while (!pl_list_empty(&announcer->subscriptions)) {
		struct pl_subscription *subscription =
			pl_list_first(&announcer->subscriptions, struct pl_subscription, home_link);

		pl_subscription_dismiss(subscription);
	}
	/* Last: a subscription that cannot be told of all frames sets it. */
	pl_timer_clear(announcer->engine, &announcer->timer);
	pl_engine_unlock(announcer->engine);
}

/* Waits for pushed writes, which read the ring. Returns false if some go on at the deadline. */
static bool await_writes(struct pl_publisher *publisher, uint64_t deadline)
{
	unsigned writing;

	for (;;) {
		unsigned seen = pl_turn_read(&publisher->turn);

		pl_lock_take(&publisher->lock);
		publisher->closing = true;
		writing = publisher->writing;
		pl_lock_release(&publisher->lock);
		if (!writing)
			return true;
		if (!pl_turn_wait(publisher->context, &publisher->turn, seen, deadline))
			return false;
	}
}

void pl_publisher_close(struct pl_publisher *publisher)
{
	struct pl_context *context;

	if (!publisher || pl_context_forked(publisher->context))
		return;
	context = publisher->context;
	pthread_mutex_lock(&context->lock);
	pl_list_remove(&publisher->link);
	pthread_mutex_unlock(&context->lock);
	pl_frame_marks_close(&publisher->marks);
	/* To cancel a write costs a card its queue pair. */
	await_writes(publisher, pl_now() + WRITE_PATIENCE);
	/* Before any announcer is closed: a closed one must not run again. */
	for (unsigned i = 0; i < context->engine_count; i++)
		announcer_quiesce(&publisher->announcers[i]);
	for (unsigned i = 0; i < context->engine_count; i++)
		announcer_close(&publisher->announcers[i]);
	/* Cancelled writes end soon, and all end by their time limit. */
	await_writes(publisher, UINT64_MAX);
	publisher_free(publisher);
}

void pl_publisher_close_all(struct pl_context *context)
{
	for (;;) {
		struct pl_publisher *publisher = NULL;

		pthread_mutex_lock(&context->lock);
		if (!pl_list_empty(&context->publishers))
			publisher = pl_list_first(&context->publishers, struct pl_publisher, link);
		pthread_mutex_unlock(&context->lock);
		if (!publisher)
			return;
		pl_publisher_close(publisher);
	}
}

/* -- queries ------------------------------------------------------------------------------------------------- */

void pl_publisher_describe(const struct pl_publisher *publisher, struct pl_stream_entry *entry)
{
	const struct pl_ring_header *header = &publisher->header;

	memset(entry, 0, sizeof(*entry));
	memcpy(entry->name, header->name, sizeof(entry->name));
	memcpy(entry->content_type, header->content_type, sizeof(entry->content_type));
	memcpy(entry->instance, header->instance, sizeof(entry->instance));
	entry->created = header->created;
	entry->slots = header->geometry.slots;
	entry->metadata_bytes = header->geometry.metadata_bytes;
	entry->slot_bytes = header->geometry.slot_bytes;
	entry->layout = header->layout;
	entry->allow_block = publisher->allow_block;
	entry->needs_token = publisher->needs_token;
	entry->gpu = header->gpu;
	entry->claimed = publisher->claimed;
	entry->published = publisher->published;
	entry->state = publisher->state;
	entry->subscribers = publisher->subscription_count;
	pl_list_for_each(at, &publisher->subscriptions)
		entry->blocking += pl_list_entry(at, struct pl_subscription, link)->blocks;
}

void pl_stream_entry_info(const struct pl_stream_entry *entry, struct pl_publisher_info *info)
{
	memcpy(info->name, entry->name, sizeof(info->name));
	memcpy(info->content_type, entry->content_type, sizeof(info->content_type));
	memcpy(info->instance, entry->instance, sizeof(info->instance));
	info->created = entry->created;
	info->layout = entry->layout;
	info->slots = entry->slots;
	info->slot_bytes = entry->slot_bytes;
	info->metadata_bytes = entry->metadata_bytes;
	info->claimed = entry->claimed;
	info->published = entry->published;
	info->subscribers = entry->subscribers;
	info->blocking = entry->blocking;
	info->allow_block = entry->allow_block;
	info->needs_token = entry->needs_token;
	info->state = entry->state;
	info->memory = entry->gpu ? "cuda" : "host";
}

int pl_publisher_query(struct pl_publisher *publisher, struct pl_publisher_info *info)
{
	struct pl_publisher_info full = PL_PUBLISHER_INFO_INIT;
	struct pl_stream_entry entry;
	size_t size = info->size;

	if (size < sizeof(size) || size > sizeof(full))
		return -EINVAL;
	pl_lock_take(&publisher->lock);
	pl_publisher_describe(publisher, &entry);
	full.refused = publisher->refused;
	pl_lock_release(&publisher->lock);
	pl_stream_entry_info(&entry, &full);
	memcpy(info, &full, size);
	info->size = size;
	return 0;
}

static void subscription_describe(const struct pl_subscription *subscription, struct pl_subscription_info *info)
{
	info->peer = subscription->peer;
	info->blocks = subscription->blocks;
	info->demoted = subscription->demoted;
	info->ended = subscription->ended;
	info->announced = subscription->quiet && !subscription->ended
				  ? PL_MAX(subscription->publisher->published, subscription->first)
				  : subscription->announced;
	info->accounts = subscription->accounts;
}

int pl_publisher_subscribers(struct pl_publisher *publisher, struct pl_subscription_info *infos, unsigned n)
{
	const struct pl_list *lists[] = { &publisher->subscriptions, &publisher->ended };
	size_t size = n ? infos[0].size : sizeof(*infos);
	unsigned count = 0;

	if (size < sizeof(size) || size > sizeof(*infos))
		return -EINVAL;
	pl_lock_take(&publisher->lock);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(lists); i++) {
		pl_list_for_each(at, lists[i]) {
			struct pl_subscription_info full = PL_SUBSCRIPTION_INFO_INIT;

			if (count == n)
				break;
			subscription_describe(pl_list_entry(at, struct pl_subscription, link), &full);
			full.size = size;
			memcpy((char *)infos + count++ * size, &full, size);
		}
	}
	pl_lock_release(&publisher->lock);
	return (int)count;
}
