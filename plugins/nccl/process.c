/* SPDX-License-Identifier: BSD-2-Clause */
/* State of the process: opened with the first communicator, closed with the last. */
#include <stdlib.h>
#include <unistd.h>

#include "openssl.h"
#include "state.h"

/* Notifications of finished sends get this time to leave at the end. */
#define DRAIN_TIME (1 * PL_NS_PER_S)

struct plugin plugin = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Tries of the lock between two looks at the clock. */
#define LOCK_TRIES 32

/* Ranks of one process take turns of a few microseconds, and a sleeping thread needs tens of them to wake. */
void plugin_lock(void)
{
	uint64_t poll_time = atomic_load_explicit(&plugin.lock_poll_time, memory_order_relaxed), end;

	if (pthread_mutex_trylock(&plugin.lock) == 0)
		return;
	end = pl_now() + poll_time;
	while (poll_time && pl_now() < end) {
		for (unsigned i = 0; i < LOCK_TRIES; i++) {
			pl_relax();
			if (pthread_mutex_trylock(&plugin.lock) == 0)
				return;
		}
	}
	pthread_mutex_lock(&plugin.lock);
}

static void owner_init(struct plugin_owner *owner)
{
	pl_list_init(&owner->listeners);
	pl_list_init(&owner->comms);
}

static void owner_end(struct plugin_owner *owner)
{
	while (!pl_list_empty(&owner->comms))
		comm_free(pl_list_first(&owner->comms, struct plugin_comm, owned));
	while (!pl_list_empty(&owner->listeners))
		listener_free(pl_list_first(&owner->listeners, struct plugin_listener, link));
}

static bool open_contexts(void)
{
	struct plugin_settings *settings = &plugin.settings;
	const char *reason = plugin_openssl_load();
	uint64_t poll_time;
	int rc;

	if (reason) {
		plugin_warn("libssl.so.3 %s: install OpenSSL 3", reason);
		return false;
	}
	if (pl_random(plugin.id, sizeof(plugin.id)) < 0)
		return false;
	if (!devices_open())
		return false;
	poll_time = settings->options.poll_time == PL_NO_POLLING ? 0 : settings->options.poll_time;
	atomic_store_explicit(&plugin.lock_poll_time, poll_time, memory_order_relaxed);
	rc = copy_threads_start(&plugin.copy_threads, settings->copy_threads, poll_time);
	if (rc < 0) {
		plugin_warn("cannot start threads: %s", strerror(-rc));
		devices_close();
	}
	return rc == 0;
}

/* IP interfaces promise GPU memory if the program wants that, and it was proven. */
static void use_gpu_memory(void)
{
	plugin.gpu_memory = !plugin.cards && plugin.settings.gpu_memory &&
			    interfaces_prove_gpus(plugin.devices[0].address);
	for (int i = 0; i < plugin.device_count && !plugin.cards; i++)
		plugin.devices[i].pointers = NET_POINTER_HOST | (plugin.gpu_memory ? NET_POINTER_CUDA : 0);
}

static void log_start(void)
{
	const struct pl_options *options = &plugin.settings.options;

	for (int i = 0; i < plugin.device_count; i++)
		plugin_info("%s %s, %d Mbit/s%s", plugin.devices[i].name, plugin.devices[i].address,
			    plugin.devices[i].speed,
			    plugin.devices[i].pointers & NET_POINTER_CUDA ? ", reaches GPU memory" : "");
	plugin_info("Peerlane %s, fabric %s, %u copy threads", pl_version(), options->fabric ? options->fabric : "auto",
		    plugin.settings.copy_threads);
	if (!options->key)
		plugin_warn("any process that reaches this host's ports can connect: set PEERLANE_KEY_FILE to a file "
			    "with a key, the same on all hosts");
}

/* Opens the contexts of the process. The key is wiped: they have copies. */
static bool process_open(void)
{
	bool accepted, opened;

	plugin.reopened = plugin.device_count > 0;
	pl_list_init(&plugin.links);
	pl_list_init(&plugin.listeners);
	pl_list_init(&plugin.mailboxes);
	pl_list_init(&plugin.unopened);
	plugin.lost_links = 0;
	atomic_store(&plugin.gpu_copies, 0);
	plugin.notifications = plugin.imports = 0;
	plugin.bytes_sent = plugin.bytes_received = 0;
	owner_init(&plugin.forever);
	plugin.comms = calloc(COMM_IDS, sizeof(struct plugin_comm *));
	accepted = settings_read(&plugin.settings);
	if (!accepted)
		plugin_warn("%s", plugin.settings.wrong);
	opened = plugin.comms && accepted && devices_find() && open_contexts();
	if (opened)
		use_gpu_memory();
	explicit_bzero(plugin.settings.key, sizeof(plugin.settings.key));
	if (opened) {
		log_start();
		nccl_variables_set();
	} else {
		free(plugin.comms);
		plugin.comms = NULL;
	}
	return opened;
}

static void process_close(void)
{
	plugin_drain_notifications(pl_now() + DRAIN_TIME);
	pl_list_for_each_safe(at, next, &plugin.links)
		link_lost(pl_list_entry(at, struct plugin_link, link), "it was closed");
	/* This ends all imports. A link that still connects gets no peer, or one that ends with its context. */
	links_close_peers();
	do {
		plugin_progress();
	} while (plugin.imports);
	copy_threads_join(&plugin.copy_threads);
	devices_close();
	links_free();
	free(plugin.comms);
	plugin.comms = NULL;
	plugin_info("sent %llu bytes, received %llu bytes", (unsigned long long)plugin.bytes_sent,
		    (unsigned long long)plugin.bytes_received);
}

bool plugin_is_of_parent(void)
{
	return atomic_load(&plugin.pid) != getpid();
}

/*
 * A child of fork(2) has a copy of the state, but not its threads, and shares its sockets with the parent. It begins
 * anew and leaves the copy alone.
 */
static void forget_parent(void)
{
	static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
	pid_t none = 0;

	if (atomic_compare_exchange_strong(&plugin.pid, &none, getpid()) || !plugin_is_of_parent())
		return;
	memcpy(&plugin.lock, &unlocked, sizeof(unlocked));
	devices_forget();
	plugin.opened = 0;
	atomic_store(&plugin.pid, getpid());
}

enum net_result plugin_open(net_log_function log, void **result)
{
	struct plugin_owner *owner = result ? calloc(1, sizeof(*owner)) : NULL;
	bool opened;

	if (result)
		*result = NULL;
	if (result && !owner)
		return NET_SYSTEM_ERROR;
	forget_parent();
	plugin_lock();
	plugin.log = log;
	opened = plugin.opened || process_open();
	plugin.opened += opened;
	pthread_mutex_unlock(&plugin.lock);
	if (owner) {
		owner_init(owner);
		if (opened)
			*result = owner;
		else
			free(owner);
	}
	return opened ? NET_SUCCESS : NET_SYSTEM_ERROR;
}

enum net_result plugin_close(struct plugin_owner *owner)
{
	if (!owner || plugin_is_of_parent())
		return NET_SUCCESS;
	plugin_begin_end();
	owner_end(owner);
	free(owner);
	if (--plugin.opened == 0)
		process_close();
	pthread_mutex_unlock(&plugin.lock);
	return NET_SUCCESS;
}
