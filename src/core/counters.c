/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/counters.h"

#include <stdio.h>

#include "core/fabric.h"
#include "core/thread_state.h"

/* -- counting ------------------------------------------------------------------------------------------- */

void pl_counters_open(struct pl_counters *counters, const struct pl_allocator *allocator)
{
	counters->allocator = allocator;
	pthread_mutex_init(&counters->lock, NULL);
}

void pl_counters_close(struct pl_counters *counters)
{
	pl_free(counters->allocator, counters->engines);
	pthread_mutex_destroy(&counters->lock);
}

int pl_counters_add_engines(struct pl_counters *counters, unsigned count, struct pl_error *error)
{
	counters->engines = pl_zalloc(counters->allocator, count * sizeof(*counters->engines));
	if (!counters->engines)
		return pl_fail_memory(error, "pl_open");
	counters->engine_count = count;
	return 0;
}

void pl_count_shared(struct pl_counters *counters, unsigned fabric, const struct pl_completion *completion)
{
	struct pl_count *count = &counters->shared.counts[fabric][completion->kind];
	uint64_t time = completion->completed - completion->posted;

	atomic_fetch_add(&count->direct, completion->bytes);
	atomic_fetch_add(&count->time, time);
	atomic_fetch_add(&count->times[pl_time_bucket(time)], 1);
}

/* The caller holds the lock. */
static void count_error_id(struct pl_counters *counters, const char *id, uint64_t count)
{
	unsigned i = 0;

	while (i < counters->error_count && strcmp(counters->errors[i].id, id) != 0)
		i++;
	if (i == PL_ERROR_COUNTS) {
		counters->errors_other += count;
		return;
	}
	if (i == counters->error_count) {
		snprintf(counters->errors[i].id, sizeof(counters->errors[i].id), "%s", id);
		counters->error_count++;
	}
	counters->errors[i].count += count;
}

void pl_count_error(struct pl_counters *counters, const struct pl_error *error)
{
	pthread_mutex_lock(&counters->lock);
	count_error_id(counters, error ? error->id : "OPERATION-FAILED", 1);
	pthread_mutex_unlock(&counters->lock);
}

void pl_count_lost_events(struct pl_counters *counters, uint64_t count)
{
	if (!count)
		return;
	pthread_mutex_lock(&counters->lock);
	count_error_id(counters, "EVENTS-DROPPED", count);
	pthread_mutex_unlock(&counters->lock);
}

uint64_t pl_counters_errors(struct pl_counters *counters)
{
	uint64_t errors;

	pthread_mutex_lock(&counters->lock);
	errors = counters->errors_other;
	for (unsigned i = 0; i < counters->error_count; i++)
		errors += counters->errors[i].count;
	pthread_mutex_unlock(&counters->lock);
	return errors;
}

/* -- queries -------------------------------------------------------------------------------------------- */

static void add_counts(struct pl_traffic *traffic, struct pl_counts *counts, unsigned fabric, enum pl_kind kind)
{
	struct pl_count *count = &counts->counts[fabric][kind];
	uint64_t staged = atomic_load_explicit(&count->staged, memory_order_relaxed);

	traffic->failed += atomic_load_explicit(&count->failed, memory_order_relaxed);
	traffic->bytes += atomic_load_explicit(&count->direct, memory_order_relaxed) + staged;
	traffic->staged += staged;
	traffic->time += atomic_load_explicit(&count->time, memory_order_relaxed);
	for (unsigned i = 0; i < PL_TIME_BUCKETS; i++) {
		uint64_t number = atomic_load_explicit(&count->times[i], memory_order_relaxed);

		traffic->times[i] += number;
		traffic->done += number;
	}
}

static void add_fabric(struct pl_traffic *traffic, struct pl_context *context, unsigned fabric, enum pl_kind kind)
{
	struct pl_counters *counters = &context->counters;

	for (unsigned i = 0; i < counters->engine_count; i++)
		add_counts(traffic, &counters->engines[i], fabric, kind);
	add_counts(traffic, &counters->shared, fabric, kind);
	for (unsigned i = 0; i < PL_THREADS_MAX; i++) {
		struct pl_thread_state *own = atomic_load_explicit(&context->threads[i], memory_order_acquire);

		if (own)
			add_counts(traffic, &own->counts, fabric, kind);
	}
}

/* Refuses a name that no fabric has; NULL stands for all fabrics. */
static int check_fabric(const char *name, const char *call, struct pl_error *error)
{
	for (unsigned i = 0; name && pl_fabrics[i]; i++)
		if (!strcmp(pl_fabrics[i]->name, name))
			return 0;
	return name ? pl_fail(error, -EINVAL, "OPTION", call, name, "ask for local, verbs or tcp",
			      "there is no such fabric")
		    : 0;
}

int pl_context_traffic(struct pl_context *context, enum pl_kind kind, const char *fabric, struct pl_traffic *traffic,
		       struct pl_error *error)
{
	const char *call = "pl_context_traffic";

	if (traffic->size != sizeof(*traffic))
		return pl_fail(error, -EINVAL, "OPTION", call, "size", "initialise with PL_TRAFFIC_INIT",
			       "this library knows no such structure");
	if (kind < PL_KIND_WRITE || kind >= PL_COUNTED_KINDS)
		return pl_fail(error, -EINVAL, "OPTION", call, "kind", "ask for PL_KIND_WRITE to PL_KIND_NOTIFY",
			       "operations of kind %d are not counted", (int)kind);
	if (check_fabric(fabric, call, error) < 0)
		return -EINVAL;
	*traffic = (struct pl_traffic)PL_TRAFFIC_INIT;
	for (unsigned i = 0; i < context->fabric_count; i++)
		if (!fabric || !strcmp(context->fabrics[i]->name, fabric))
			add_fabric(traffic, context, i, kind);
	return 0;
}

int pl_context_error_count(struct pl_context *context, unsigned number, struct pl_error_count *count,
			   struct pl_error *error)
{
	struct pl_counters *counters = &context->counters;
	int rc = 0;

	if (count->size != sizeof(*count))
		return pl_fail(error, -EINVAL, "OPTION", "pl_context_error_count", "size",
			       "initialise with PL_ERROR_COUNT_INIT", "this library knows no such structure");
	*count = (struct pl_error_count)PL_ERROR_COUNT_INIT;
	pthread_mutex_lock(&counters->lock);
	if (number < counters->error_count) {
		*count = counters->errors[number];
		count->size = sizeof(*count);
	} else if (number == PL_ERROR_COUNTS && counters->errors_other) {
		count->count = counters->errors_other;
	} else {
		rc = -ENOENT;
	}
	pthread_mutex_unlock(&counters->lock);
	if (rc < 0)
		pl_fail(error, rc, "OPTION", "pl_context_error_count", "number", NULL,
			"fewer than %u different errors have occurred", number + 1);
	return rc;
}

static unsigned list_length(const struct pl_list *list)
{
	unsigned length = 0;

	pl_list_for_each(at, list)
		length++;
	return length;
}

/* Counts the peers of one engine. */
static void count_peers(struct pl_context *context, unsigned engine, struct pl_context_info *info)
{
	pl_engine_lock(context->engines[engine]);
	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &context->home_peers[engine]) {
		const struct pl_peer *peer = pl_list_entry(at, struct pl_peer, home_link);
		int state = atomic_load(&peer->state);

		info->peers += state == PL_PEER_UP;
		info->lost += state == PL_PEER_LOST;
		info->running += peer->running;
	}
	pthread_mutex_unlock(&context->lock);
	pl_engine_unlock(context->engines[engine]);
}

int pl_context_query(struct pl_context *context, struct pl_context_info *info, struct pl_error *error)
{
	struct pl_context_info full = PL_CONTEXT_INFO_INIT;
	size_t size = info->size;

	/* Programs that were built with an earlier header have no poll_time. */
	if (size != sizeof(full) && size != offsetof(struct pl_context_info, poll_time))
		return pl_fail(error, -EINVAL, "OPTION", "pl_context_query", "size",
			       "initialise with PL_CONTEXT_INFO_INIT", "this library knows no such structure");
	full.engines = context->engine_count;
	for (unsigned i = 0; i < context->engine_count; i++)
		count_peers(context, i, &full);
	pthread_mutex_lock(&context->lock);
	full.regions = list_length(&context->regions);
	full.remotes = list_length(&context->remotes);
	pthread_mutex_unlock(&context->lock);
	full.errors = pl_counters_errors(&context->counters);
	full.poll_time = context->engines[0]->poll_time;
	full.size = size;
	memcpy(info, &full, size);
	return 0;
}

/* Adds the queues of an engine's peers. */
static void add_queues(struct pl_context *context, unsigned engine, const char *fabric, struct pl_queues *queues)
{
	pl_engine_lock(context->engines[engine]);
	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &context->home_peers[engine]) {
		const struct pl_peer *peer = pl_list_entry(at, struct pl_peer, home_link);

		/* A peer that is connecting has no fabric yet. */
		if (!peer->ops || (fabric && strcmp(peer->ops->name, fabric) != 0))
			continue;
		queues->peers += atomic_load(&peer->state) == PL_PEER_UP;
		queues->running += peer->running;
		queues->fenced += list_length(&peer->fenced);
		queues->receives += list_length(&peer->receives);
		queues->unexpected += list_length(&peer->unexpected);
	}
	pthread_mutex_unlock(&context->lock);
	pl_engine_unlock(context->engines[engine]);
}

int pl_context_queues(struct pl_context *context, const char *fabric, struct pl_queues *queues, struct pl_error *error)
{
	const char *call = "pl_context_queues";

	if (queues->size != sizeof(*queues))
		return pl_fail(error, -EINVAL, "OPTION", call, "size", "initialise with PL_QUEUES_INIT",
			       "this library knows no such structure");
	if (check_fabric(fabric, call, error) < 0)
		return -EINVAL;
	*queues = (struct pl_queues)PL_QUEUES_INIT;
	for (unsigned i = 0; i < context->engine_count; i++)
		add_queues(context, i, fabric, queues);
	return 0;
}
