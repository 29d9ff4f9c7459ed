/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>

#include "base/processors.h"
#include "core/fabric.h"
#include "core/stream_ops.h"
#include "core/thread_state.h"
#include "core/trust.h"
#include "core/vector.h"

#define STRINGIFY_(x) #x
#define STRINGIFY(x) STRINGIFY_(x)

/* With fewer multiprocessors, reads of small elements from another H100 are slower; more of them gain nothing. */
#define GPU_MULTIPROCESSORS_DEFAULT 96u
/* Default number of progress threads with as many cores, or more. */
#define WORKERS_OF_LARGE 32u

const char *pl_version(void)
{
	return STRINGIFY(PL_VERSION_MAJOR) "." STRINGIFY(PL_VERSION_MINOR) "." STRINGIFY(PL_VERSION_PATCH);
}

/* Half the cores, at most as many as a peer can have lanes: the other end, or the program, needs the rest. */
static unsigned half_the_cores(unsigned cores)
{
	return PL_MAX(PL_MIN(cores / 2, (unsigned)PL_LANES_MAX), 1u);
}

static int bad_option(struct pl_error *error, const char *object, const char *fact)
{
	return pl_fail(error, -EINVAL, "OPTION", "pl_open", object, "see pl_open(3) for what is allowed", "%s", fact);
}

static bool is_choice(enum pl_choice choice)
{
	return choice == PL_DEFAULT || choice == PL_ON || choice == PL_OFF;
}

static bool is_program_name(const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < length; i++)
		if (name[i] < ' ' || name[i] > '~')
			return false;
	return length > 0 && length < sizeof(((struct pl_context *)0)->program);
}

static int check_rdma_options(const struct pl_options *options, struct pl_error *error)
{
	if (options->rails > PL_RAILS_MAX)
		return bad_option(error, "rails", "more than 8 rails");
	if (options->service_level > 15)
		return bad_option(error, "service_level", "a service level is 0 to 15");
	if (options->gid_index > PL_GID_INDEX(UINT8_MAX))
		return bad_option(error, "gid_index", "an index of a GID table is 0 to 255");
	if (options->pkey > UINT16_MAX || (options->pkey && !(options->pkey & 0x7fff)))
		return bad_option(error, "pkey", "a P_Key has 16 bits, of which the lower 15 are not all 0");
	if (options->ack_timeout > 31)
		return bad_option(error, "ack_timeout", "an ACK timeout is 1 to 31");
	if (options->retries > 7)
		return bad_option(error, "retries", "a retry count is 1 to 7");
	if (options->rnr_timer > 31)
		return bad_option(error, "rnr_timer", "an RNR timer is 1 to 31");
	return 0;
}

static int check_options(struct pl_options *options, struct pl_error *error)
{
	if (options->progress != PL_PROGRESS_THREAD && options->progress != PL_PROGRESS_MANUAL)
		return bad_option(error, "progress", "unknown kind of progress");
	if (options->workers > PL_ENGINES_MAX)
		return bad_option(error, "workers", "more than 64 workers");
	if (options->lanes > PL_LANES_MAX)
		return bad_option(error, "lanes", "more than 16 lanes");
	if (options->traffic_class > UINT8_MAX)
		return bad_option(error, "traffic_class", "a traffic class has eight bits");
	if (!is_choice(options->encrypt_data) || !is_choice(options->insecure) || !is_choice(options->narrow_grants) ||
	    !is_choice(options->keep_host) || !is_choice(options->trust_new))
		return bad_option(error, "choice", "a value that is not one of enum pl_choice");
	if (options->encrypt_data == PL_ON && !options->key && !pl_trust_wanted(options))
		return bad_option(error, "encrypt_data", "encryption needs a key or an identity");
	if (options->trust_new == PL_ON && !options->known_hosts)
		return bad_option(error, "trust_new", "there is no file of known hosts");
	if (options->old_key && !options->key)
		return bad_option(error, "old_key", "an old key without a key");
	if (options->peers_rate && options->peers_rate < PL_BUCKET_RATE_MIN)
		return bad_option(error, "peers_rate", "less than 65,536 bytes a second");
	if (options->poll_time > PL_NS_PER_S && options->poll_time != PL_NO_POLLING)
		return bad_option(error, "poll_time", "more than a second");
	if (options->gpu_multiprocessors > 1024 && options->gpu_multiprocessors != PL_NO_GPU_KERNEL)
		return bad_option(error, "gpu_multiprocessors", "more than 1,024");
	if (options->program && !is_program_name(options->program))
		return bad_option(error, "program", "a program's name has 1 to 31 visible ASCII characters");
	if (options->key && (options->key_length < PL_KEY_MIN || options->key_length > PL_KEY_MAX))
		return bad_option(error, "key", "a key has 16 to 1024 bytes");
	return check_rdma_options(options, error);
}

/*
 * Two cores have two lanes if the library's threads drive them. Over loopback, a single lane has its ends on different cores, and each
 * byte passes between their caches. Of two lanes, the kernel runs both ends of each in turn on one core.
 */
static unsigned default_lanes(unsigned cores, bool threaded)
{
	return PL_MAX(half_the_cores(cores), threaded ? PL_MIN(cores, 2u) : 1u);
}

/*
 * A thread for each lane with bulk data and one for all else, as far as there are cores. On large machines the lanes of many peers have
 * more threads, so that each has few lanes, and the kernel may run both ends of a connection of loopback in turn on one core.
 */
static unsigned default_workers(unsigned cores, unsigned lanes)
{
	if (cores >= WORKERS_OF_LARGE && lanes > 1)
		return WORKERS_OF_LARGE;
	if (cores >= 8)
		return PL_MAX(half_the_cores(cores), PL_MIN(lanes + 1, cores - cores / 4));
	return PL_MAX(half_the_cores(cores), PL_MIN(lanes, PL_MIN(cores, 2u)));
}

static void fill_defaults(struct pl_options *options, unsigned cores)
{
	if (!options->lanes)
		options->lanes = default_lanes(cores, options->progress == PL_PROGRESS_THREAD);
	if (!options->workers)
		options->workers = default_workers(cores, options->lanes);
	if (options->progress == PL_PROGRESS_MANUAL)
		options->workers = 1; /* one thread drives the context, so one engine serves it best */
	if (!options->operation_timeout)
		options->operation_timeout = 30 * PL_NS_PER_S;
	if (!options->connect_timeout)
		options->connect_timeout = 10 * PL_NS_PER_S;
	if (!options->gpu_multiprocessors)
		options->gpu_multiprocessors = GPU_MULTIPROCESSORS_DEFAULT;
	if (!options->keepalive)
		options->keepalive = 15 * PL_NS_PER_S;
	/* Polling helps only if the other threads have cores of their own. */
	if (!options->poll_time)
		options->poll_time = cores >= 4 ? 20000 : PL_NO_POLLING;
}

/* The kernel's boot id tells whether two processes share a host. All zero: unknown. */
static void read_boot_id(uint8_t id[16])
{
	static const char hexadecimal[] = "0123456789abcdef";
	char text[40];
	size_t digits = 0;

	memset(id, 0, 16);
	pl_read_head("/proc/sys/kernel/random/boot_id", text, sizeof(text));
	for (const char *at = text; *at && digits < 32; at++) {
		const char *place = strchr(hexadecimal, *at);

		if (!place)
			continue;
		id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | (place - hexadecimal));
		digits++;
	}
}

static int open_engines(struct pl_context *context, struct pl_error *error)
{
	bool threaded = !pl_context_manual(context);
	bool polls = threaded && context->options.poll_time != PL_NO_POLLING;
	uint64_t poll_time = polls ? context->options.poll_time : 0;
	int rc = pl_counters_add_engines(&context->counters, context->options.workers, error);

	while (rc == 0 && context->engine_count < context->options.workers) {
		rc = pl_engine_open(&context->allocator, threaded, poll_time, &context->engines[context->engine_count],
				    error);
		if (rc < 0)
			break;
		atomic_store(&context->engines[context->engine_count]->pace.adapts, context->polls_by_default);
		pl_task_init(&context->engines[context->engine_count]->finish_task, pl_operations_finish_run);
		pl_dial_turns_init(&context->dial_turns[context->engine_count],
				   context->engines[context->engine_count]);
		pl_callback_queue_init(&context->callback_turns, context->engine_count,
				       context->engines[context->engine_count]);
		context->engine_count++;
	}
	return rc;
}

static void init_lists(struct pl_context *context)
{
	pl_list_init(&context->peers);
	for (unsigned i = 0; i < PL_ENGINES_MAX; i++)
		pl_list_init(&context->home_peers[i]);
	pl_list_init(&context->listeners);
	pl_list_init(&context->regions);
	pl_list_init(&context->remotes);
	pl_list_init(&context->vectors);
	pl_list_init(&context->publishers);
	pl_list_init(&context->subscribers);
	pl_completion_init(context);
	pl_expiry_init(context);
	pthread_mutex_init(&context->lock, NULL);
	pthread_mutex_init(&context->fabric_lock, NULL);
	pl_mutex_init_short(&context->grant_lock);
	pthread_cond_init(&context->registration_ended, NULL);
	pthread_mutex_init(&context->reload_lock, NULL);
	pl_callback_turns_open(&context->callback_turns);
	pl_counters_open(&context->counters, &context->allocator);
	pl_error_log_init(&context->errors, &context->allocator);
}

static int copy_devices(struct pl_context *context, const char *devices, struct pl_error *error)
{
	size_t size = devices ? strlen(devices) + 1 : 0;

	/* An empty list asks for the default, as zero does in other options. */
	if (size <= 1)
		return 0;
	context->devices = pl_alloc(&context->allocator, size);
	if (!context->devices)
		return pl_fail_memory(error, "pl_open");
	memcpy(context->devices, devices, size);
	return 0;
}

int pl_open(struct pl_context **result, const struct pl_options *given, struct pl_error *error)
{
	struct pl_options options;
	const struct pl_allocator *allocator;
	struct pl_context *context;
	unsigned processors;
	bool lanes_by_default, polls_by_default;
	int rc;

	*result = NULL;
	if (pl_copy_versioned(&options, sizeof(options), given) < 0)
		return bad_option(error, "size", "options of a newer library, or not initialised with PL_OPTIONS_INIT");
	rc = check_options(&options, error);
	if (rc < 0)
		return rc;
	lanes_by_default = !options.lanes;
	polls_by_default = !options.poll_time;
	processors = pl_processors();
	fill_defaults(&options, processors);
	allocator = options.allocator ? options.allocator : &pl_system_allocator;
	context = pl_zalloc(allocator, sizeof(*context));
	if (!context)
		return pl_fail_memory(error, "pl_open");
	context->allocator = *allocator;
	pl_context_mark_process(context);
	context->options = options;
	context->lanes_by_default = lanes_by_default;
	context->polls_by_default = polls_by_default;
	context->processors = processors;
	context->options.allocator = NULL;
	context->options.key = context->options.old_key = NULL;
	context->options.identity = context->options.authority = context->options.authorized = NULL;
	context->options.known_hosts = context->options.expected = NULL;
	context->options.fabric = NULL;
	context->options.devices = NULL;
	context->options.routes = context->options.topology = NULL;
	context->options.program = NULL;
	snprintf(context->program, sizeof(context->program), "%s", options.program ? options.program : "");
	init_lists(context);
	pl_slots_open(&context->slot_pool, &context->allocator, context->options.staging_bytes);
	read_boot_id(context->boot_id);
	rc = pl_fabrics_configure(context, options.fabric, error);
	if (rc == 0)
		rc = copy_devices(context, options.devices, error);
	if (rc == 0)
		rc = pl_routes_open(context, options.routes, error);
	if (rc == 0)
		rc = pl_machine_open(context, options.topology, error);
	if (rc == 0 && pl_random(context->id, sizeof(context->id)) < 0)
		rc = pl_fail_errno(error, -EIO, "SYSTEM", "getrandom", NULL);
	if (rc == 0)
		rc = pl_trust_open(context, &options, error);
	if (rc == 0)
		rc = open_engines(context, error);
	if (rc < 0) {
		pl_close(context);
		return rc;
	}
	*result = context;
	return 0;
}

int pl_context_use_tls(struct pl_context *context, struct pl_error *error)
{
	int rc = 0;

	pthread_mutex_lock(&context->fabric_lock);
	if (!context->tls)
		rc = pl_tls_open(&context->allocator, NULL, 0, &context->tls, error);
	pthread_mutex_unlock(&context->fabric_lock);
	return rc;
}

static unsigned greatest_divisor(unsigned a, unsigned b)
{
	return b ? greatest_divisor(b, a % b) : a;
}

unsigned pl_context_home_of(unsigned number, unsigned lanes, unsigned engines)
{
	uint64_t lane = (uint64_t)number * lanes;
	unsigned turns = engines / greatest_divisor(engines, lanes);

	return (unsigned)((lane + number / turns) % engines);
}

struct pl_engine *pl_context_pick_engine(struct pl_context *context)
{
	unsigned number = atomic_fetch_add(&context->next_engine, 1);

	return context->engines[pl_context_home_of(number, context->options.lanes, context->engine_count)];
}

bool pl_context_progress(struct pl_context *context)
{
	bool any = false;

	for (unsigned i = 0; i < context->engine_count; i++)
		any |= pl_engine_progress(context->engines[i]);
	return any;
}

void pl_context_poll_copies(struct pl_context *context)
{
	for (unsigned i = 0; i < context->engine_count; i++) {
		struct pl_engine *engine = context->engines[i];

		if (!atomic_load_explicit(&engine->polling, memory_order_relaxed) || !pl_engine_try(engine))
			continue;
		if (atomic_load_explicit(&engine->polling, memory_order_relaxed))
			engine->poller->poll(engine->poller);
		pl_engine_leave(engine);
	}
}

void pl_context_barrier(struct pl_context *context)
{
	for (unsigned i = 0; i < context->engine_count; i++) {
		struct pl_engine *engine = context->engines[i];

		pl_engine_lock(engine);
		if (engine->poller)
			engine->poller->drain(engine->poller);
		pl_engine_unlock(engine);
	}
}

unsigned pl_context_engine_index(const struct pl_context *context, const struct pl_engine *engine)
{
	unsigned i = 0;

	while (context->engines[i] != engine)
		i++;
	return i;
}

struct pl_copier *pl_context_copier(struct pl_context *context, struct pl_engine *engine)
{
	unsigned i = pl_context_engine_index(context, engine);

	if (!context->copiers[i])
		pl_copier_open(engine, &context->copiers[i]);
	return context->copiers[i];
}

static struct pl_list *first_of(struct pl_context *context, struct pl_list *list)
{
	struct pl_list *first;

	pthread_mutex_lock(&context->lock);
	first = pl_list_empty(list) ? NULL : list->next;
	pthread_mutex_unlock(&context->lock);
	return first;
}

/* Returns the next peer to destroy, claimed. NULL: no peer is left, or other threads free the rest. */
static struct pl_peer *claim_peer(struct pl_context *context)
{
	struct pl_peer *claimed = NULL;

	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &context->peers) {
		struct pl_peer *peer = pl_list_entry(at, struct pl_peer, link);

		if (peer->claimed)
			continue;
		peer->claimed = true;
		claimed = peer;
		break;
	}
	pthread_mutex_unlock(&context->lock);
	return claimed;
}

static void destroy_peers(struct pl_context *context)
{
	const struct timespec pause = { .tv_nsec = PL_NS_PER_MS };
	uint64_t until = pl_close_end();
	struct pl_peer *peer;

	while ((peer = claim_peer(context)))
		pl_peer_destroy(peer, until, -ECANCELED, NULL);
	/* Engines free the others, some of them when a thread that connects a queue pair has ended. */
	for (bool again = false; first_of(context, &context->peers); again = true) {
		if (again)
			nanosleep(&pause, NULL);
		pl_context_barrier(context);
	}
}

/* Frees operations that the program did not collect. */
static void free_operations(struct pl_context *context)
{
	pl_thread_states_close(context);
	for (unsigned i = 0; i < context->engine_count; i++) {
		struct pl_list *handles = &context->engines[i]->operations.handles;

		while (!pl_list_empty(handles))
			pl_operation_free(pl_list_first(handles, struct pl_operation, handle_link));
	}
	pl_list_splice(&context->completed, &context->held_notifications);
	while (!pl_list_empty(&context->completed)) {
		struct pl_operation *operation = pl_list_first(&context->completed, struct pl_operation, queue_link);

		pl_list_remove(&operation->queue_link);
		pl_operation_free(operation);
	}
}

static void close_listeners(struct pl_context *context)
{
	struct pl_list *at;

	while ((at = first_of(context, &context->listeners)))
		pl_listener_close(pl_list_entry(at, struct pl_listener, link));
}

void pl_close(struct pl_context *context)
{
	struct pl_allocator allocator;
	const int before = errno;
	struct pl_list *at;
	bool given_up;

	if (!context || pl_context_forked(context))
		return;
	atomic_store(&context->closing, true);
	pl_stream_ops.close(context);
	close_listeners(context);
	destroy_peers(context);
	/* Until its end, a peer that was opening may have opened the listener of a fabric. */
	close_listeners(context);
	if (context->engine_count)
		pl_context_barrier(context);
	for (unsigned i = 0; i < context->engine_count; i++)
		pl_engine_stop(context->engines[i]);
	free_operations(context);
	pl_vectors_close(context);
	while ((at = first_of(context, &context->remotes)))
		pl_remote_put(pl_list_entry(at, struct pl_remote, link));
	pl_grants_clear(context);
	while ((at = first_of(context, &context->regions)))
		pl_region_destroy(pl_list_entry(at, struct pl_region, link));
	pl_fabrics_close(context);
	for (unsigned i = 0; i < context->engine_count; i++) {
		pl_copier_close(context->copiers[i]);
		pl_engine_close(context->engines[i]);
	}
	pl_slots_close(&context->slot_pool);
	if (context->event_fd >= 0)
		close(context->event_fd);
	if (context->poll_fd >= 0 && context->poll_fd != context->event_fd)
		close(context->poll_fd);
	pl_context_unmark_process(context);
	pl_tls_close(context->tls);
	pl_trust_close(context);
	pthread_mutex_destroy(&context->reload_lock);
	pl_callback_turns_close(&context->callback_turns);
	pthread_mutex_destroy(&context->lock);
	pthread_mutex_destroy(&context->fabric_lock);
	pthread_cond_destroy(&context->registration_ended);
	pthread_mutex_destroy(&context->grant_lock);
	pl_error_log_destroy(&context->errors);
	pl_counters_close(&context->counters);
	given_up = atomic_load(&context->given_up);
	allocator = context->allocator;
	pl_routes_close(context);
	pl_machine_close(context);
	pl_free(&allocator, context->devices);
	pl_index_table_free(&allocator, &context->peer_table);
	pl_free(&allocator, context);
	/* Calls of the system that fail here, such as recv(2), must not look as if a driver was given up. */
	errno = given_up ? ETIMEDOUT : before;
}
