/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of a listener that have not identified themselves: their engines, their limits, their end. */
#include <limits.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/fabric.h"
#include "core/greeting.h"

/*
 * Most connections of a listener: one in eight of the process's descriptors, within these limits. Beyond that number
 * the address that has most of them loses one, so that strangers cannot keep peers out.
 */
#define GREETINGS_LEAST 16u
#define GREETINGS_MAX 256u
#define DESCRIPTORS_FOR_ONE 8u
/*
 * Many processes of a job connect at the same time: connections younger than this may exceed the number by this factor. Beyond
 * that, more wait in the kernel's queue until others have finished, or have been silent for a time.
 */
#define YOUNG (3 * PL_NS_PER_S)
#define YOUNG_FACTOR 4u
#define SILENCE (500 * PL_NS_PER_MS)
/* Bytes protect a connection for this time after its arrival, so that strangers cannot keep others out by single bytes. */
#define PROTECTION PL_NS_PER_S
/* Most evicted connections that busy engines have not freed. */
#define EVICTED_MAX 64u

/* Connections of some addresses together: enough to tell an address with many from one with few. */
static unsigned *count_of_network(struct pl_listener *listener, uint64_t network)
{
	const uint64_t hash = (network ^ (uintptr_t)listener) * 0x9e3779b97f4a7c15ull;

	return &listener->greeting_counts[hash >> 32 & (PL_ARRAY_SIZE(listener->greeting_counts) - 1)];
}

/* -- the list ----------------------------------------------------------------------------------------------------- */

static void greeting_enter_list(struct greeting *greeting)
{
	struct pl_listener *listener = greeting->listener;

	pthread_mutex_lock(&listener->lock);
	pl_list_append(&listener->greetings, &greeting->link);
	listener->greeting_count++;
	++*count_of_network(listener, greeting->network);
	pthread_mutex_unlock(&listener->lock);
}

/* Under listener->lock. */
static void greeting_unlist(struct greeting *greeting)
{
	struct pl_listener *listener = greeting->listener;

	if (pl_list_empty(&greeting->link))
		return;
	pl_list_remove(&greeting->link);
	if (listener->victim == greeting)
		listener->victim = NULL;
	listener->greeting_count--;
	--*count_of_network(listener, greeting->network);
}

bool pl_greeting_leave_list(struct greeting *greeting)
{
	bool evicted;

	pthread_mutex_lock(&greeting->listener->lock);
	evicted = greeting->evicted;
	greeting_unlist(greeting);
	pthread_mutex_unlock(&greeting->listener->lock);
	return !evicted;
}

/* Frees a connection that is in no list. */
static void greeting_destroy(struct greeting *greeting)
{
	struct pl_context *context = greeting->listener->context;

	pl_source_remove(&greeting->source);
	pl_timer_clear(pl_greeting_engine(greeting), &greeting->timer);
	pl_callback_turn_leave(&greeting->turn);
	pl_stream_close(&greeting->stream);
	atomic_fetch_sub(&context->greetings[greeting->engine], 1);
	pl_free(&context->allocator, greeting->admission);
	pl_free(&context->allocator, greeting);
}

void pl_greeting_free(struct greeting *greeting)
{
	pl_source_remove(&greeting->source);
	if (pl_greeting_leave_list(greeting))
		greeting_destroy(greeting);
}

static void greeting_expire(struct pl_timer *timer)
{
	pl_greeting_free(pl_container_of(timer, struct greeting, timer));
}

/* -- eviction ----------------------------------------------------------------------------------------------------- */

static void free_evicted_greeting(struct pl_task *task)
{
	struct greeting *greeting = pl_container_of(task, struct greeting, evicted_task);
	struct pl_listener *listener = greeting->listener;

	/* The count falls after the descriptor is free. The listener stays: pl_greetings_clear() takes this engine's lock. */
	greeting_destroy(greeting);
	atomic_fetch_sub(&listener->evicted, 1);
}

/* Frees a connection that the caller has marked. Its engine does so if that is another one. */
static void free_marked_greeting(struct greeting *greeting)
{
	struct pl_engine *engine = pl_greeting_engine(greeting);

	if (pl_engine_held(engine))
		free_evicted_greeting(&greeting->evicted_task);
	else
		pl_engine_post(engine, &greeting->evicted_task);
}

/* Takes a connection out of the list. From then on its engine frees it only by the task. Under listener->lock. */
static void mark_evicted(struct greeting *greeting)
{
	greeting_unlist(greeting);
	greeting->evicted = true;
	atomic_fetch_add(&greeting->listener->evicted, 1);
}

static bool has_unread_bytes(const struct greeting *greeting)
{
	uint8_t byte;

	return recv(greeting->source.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* True if the other end is at work, or this end has not read what it sent. */
static bool is_protected(const struct greeting *greeting, uint64_t now, uint64_t idle)
{
	if (greeting->since <= now - PROTECTION)
		return false;
	return atomic_load_explicit(&greeting->active, memory_order_relaxed) > now - idle || has_unread_bytes(greeting);
}

/* Returns the oldest connection, as described at pl_greeting_evict(); NULL: none. Under listener->lock. */
static struct greeting *find_victim(struct pl_listener *listener, uint64_t age, uint64_t idle)
{
	const uint64_t now = pl_now();
	struct greeting *victim = NULL;
	unsigned most = 0;

	/* The list is in the order of arrival, so the first one found is the oldest of its address. */
	pl_list_for_each(at, &listener->greetings) {
		struct greeting *greeting = pl_list_entry(at, struct greeting, link);

		if (greeting->since > now - age)
			break;
		if (*count_of_network(listener, greeting->network) <= most ||
		    (idle && is_protected(greeting, now, idle)))
			continue;
		most = *count_of_network(listener, greeting->network);
		victim = greeting;
	}
	return victim;
}

/* Takes the connection out of the list, and frees it. Called with listener->lock, which it releases. */
static bool listener_evict_and_unlock(struct pl_listener *listener, struct greeting *victim)
{
	if (victim)
		mark_evicted(victim);
	pthread_mutex_unlock(&listener->lock);
	if (victim)
		free_marked_greeting(victim);
	return victim;
}

bool pl_greeting_evict(struct pl_listener *listener, uint64_t age, uint64_t idle)
{
	pthread_mutex_lock(&listener->lock);
	return listener_evict_and_unlock(listener, find_victim(listener, age, idle));
}

/* -- limits ------------------------------------------------------------------------------------------------------- */

unsigned pl_greetings_most(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur / DESCRIPTORS_FOR_ONE >= GREETINGS_MAX)
		return GREETINGS_MAX;
	return PL_MAX((unsigned)limit.rlim_cur / DESCRIPTORS_FOR_ONE, GREETINGS_LEAST);
}

static unsigned count_greetings(struct pl_listener *listener)
{
	unsigned count;

	pthread_mutex_lock(&listener->lock);
	count = listener->greeting_count;
	pthread_mutex_unlock(&listener->lock);
	return count;
}

bool pl_greeting_room(struct pl_listener *listener, unsigned most)
{
	bool room;

	if (atomic_load(&listener->evicted) >= EVICTED_MAX)
		return false;
	pthread_mutex_lock(&listener->lock);
	room = listener->greeting_count < most * YOUNG_FACTOR;
	listener->victim = room ? NULL : find_victim(listener, 0, SILENCE);
	room |= listener->victim != NULL;
	pthread_mutex_unlock(&listener->lock);
	return room;
}

/* Closes the connection that pl_greeting_room() found, unless it has ended meanwhile. */
static void listener_evict_victim(struct pl_listener *listener)
{
	pthread_mutex_lock(&listener->lock);
	listener_evict_and_unlock(listener, listener->victim);
}

/* Makes room for one more. */
static void listener_make_room(struct pl_listener *listener, unsigned most)
{
	while (count_greetings(listener) >= most && pl_greeting_evict(listener, YOUNG, 0))
		;
	if (count_greetings(listener) >= most * YOUNG_FACTOR)
		listener_evict_victim(listener);
}

/* -- arrival ------------------------------------------------------------------------------------------------------ */

static uint64_t network_of(int fd)
{
	struct sockaddr_storage address = { 0 };
	socklen_t length = sizeof(address);
	uint64_t network = 0;

	getpeername(fd, (struct sockaddr *)&address, &length);
	if (address.ss_family == AF_INET) {
		network = ((struct sockaddr_in *)&address)->sin_addr.s_addr;
	} else if (address.ss_family == AF_INET6) {
		const struct in6_addr *six = &((struct sockaddr_in6 *)&address)->sin6_addr;
		const uint8_t *bytes = six->s6_addr;

		memcpy(&network, bytes, sizeof(network));
		/* IPv4 through a socket for both families */
		if (IN6_IS_ADDR_V4MAPPED(six)) {
			network = 0;
			memcpy(&network, bytes + 12, 4);
		}
	}
	return network;
}

/* Picks the engine that runs the fewest such connections. Engines that run as many take turns. */
static unsigned pick_greeting_engine(struct pl_context *context)
{
	unsigned first = atomic_fetch_add(&context->next_greeting, 1) % context->engine_count;
	unsigned picked = first, least = UINT_MAX;

	for (unsigned i = 0; i < context->engine_count; i++) {
		unsigned engine = (first + i) % context->engine_count;
		unsigned count = atomic_load(&context->greetings[engine]);

		if (count < least) {
			least = count;
			picked = engine;
		}
	}
	atomic_fetch_add(&context->greetings[picked], 1);
	return picked;
}

/* Sets the listener's timer for the oldest connection. */
static void set_greeting_expiry(struct pl_listener *listener)
{
	const uint64_t timeout = listener->context->options.connect_timeout;
	uint64_t deadline = UINT64_MAX;

	pthread_mutex_lock(&listener->lock);
	if (!pl_list_empty(&listener->greetings))
		deadline = pl_deadline(pl_list_first(&listener->greetings, struct greeting, link)->since, timeout);
	pthread_mutex_unlock(&listener->lock);
	pl_timer_set(listener->engine, &listener->expiry, deadline);
}

void pl_greetings_expire(struct pl_timer *timer)
{
	struct pl_listener *listener = pl_container_of(timer, struct pl_listener, expiry);
	const uint64_t timeout = listener->context->options.connect_timeout;

	while (pl_greeting_evict(listener, timeout, 0))
		;
	set_greeting_expiry(listener);
}

void pl_greeting_new(struct pl_listener *listener, int fd, unsigned most)
{
	struct pl_context *context = listener->context;
	struct greeting *greeting = pl_zalloc(&context->allocator, sizeof(*greeting));

	if (!greeting) {
		close(fd);
		return;
	}
	greeting->listener = listener;
	greeting->network = network_of(fd);
	listener_make_room(listener, most);
	greeting->since = pl_now();
	atomic_init(&greeting->active, greeting->since);
	greeting->stream.fd = fd;
	greeting->source.fd = fd;
	greeting->source.ready = pl_greeting_ready;
	pl_timer_init(&greeting->timer, greeting_expire);
	pl_task_init(&greeting->evicted_task, free_evicted_greeting);
	pl_callback_wait_init(&greeting->turn, pl_greeting_turn_came);
	pl_list_init(&greeting->link);
	greeting->engine = pick_greeting_engine(context);
	greeting_enter_list(greeting);
	if (pl_list_empty(&listener->expiry.link))
		set_greeting_expiry(listener);
	/* Its engine may run it at once, and free it. */
	if (pl_source_add(pl_greeting_engine(greeting), &greeting->source, EPOLLIN) < 0)
		pl_greeting_free(greeting);
}

/* -- the end ------------------------------------------------------------------------------------------------------ */

static struct greeting *first_greeting_of(struct pl_listener *listener, unsigned engine)
{
	struct greeting *found = NULL;

	pthread_mutex_lock(&listener->lock);
	pl_list_for_each(at, &listener->greetings) {
		struct greeting *greeting = pl_list_entry(at, struct greeting, link);

		if (greeting->engine == engine) {
			found = greeting;
			break;
		}
	}
	pthread_mutex_unlock(&listener->lock);
	return found;
}

void pl_greetings_clear(struct pl_listener *listener)
{
	struct pl_context *context = listener->context;

	for (unsigned i = 0; i < context->engine_count; i++) {
		struct greeting *greeting;

		pl_engine_lock(context->engines[i]);
		while ((greeting = first_greeting_of(listener, i)))
			pl_greeting_free(greeting);
		/* Runs the tasks that free evicted ones. */
		pl_engine_unlock(context->engines[i]);
	}
}
