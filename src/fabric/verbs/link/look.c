/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A look at the devices that the program allows, and at their ports: opens new devices, and reads again what connections need
 * to know. All devices are probed at once. A device whose driver does not answer in time is left to a later look.
 */
#include <stdio.h>

#include "fabric/verbs/memory/near.h"
#include "fabric/verbs/verbs.h"

/* Longest wait for the devices, if others answer. The first look waits for one device as long as a connection may. */
#define WAIT_MAX (5 * PL_NS_PER_S)
#define FIRST_WAIT_MAX (10 * PL_NS_PER_S)
/* Share of the time for connecting: half of the time that a connection waits for the first look. */
#define WAIT_SHARE 8
/* Longest pause between two looks at probes of which another one may have ended. */
#define SLICE (10 * PL_NS_PER_MS)

struct look {
	struct verbs_state *state;
	struct verbs_listing *listing;
	struct pl_list probes; /* that this look has started */
	struct verbs_obstacle_met obstacle;
};

static void meet_obstacle(struct look *look, enum verbs_obstacle kind, int code, const char *device)
{
	/* The first device with an obstacle is reported. */
	if (kind <= look->obstacle.kind)
		return;
	look->obstacle.kind = kind;
	look->obstacle.code = code;
	snprintf(look->obstacle.device, sizeof(look->obstacle.device), "%s", device);
}

/* name: the device for whose driver the look waits. */
static void note_silent(struct verbs_state *state, const char *name)
{
	pthread_mutex_lock(&state->lock);
	snprintf(state->silent, sizeof(state->silent), "%s", name);
	pthread_mutex_unlock(&state->lock);
}

/* -- devices -------------------------------------------------------------------------------------- */

/*
 * Finds the device's object that is in use, or one of a removed device that is not closed yet. It stays until the context
 * closes; the device may be closed at any time. name: NULL: only the same device, whatever its name was.
 */
static struct verbs_device *find_device(struct verbs_state *state, const struct ibv_device *of, const char *name)
{
	struct verbs_device *found = NULL, *named = NULL;

	pthread_mutex_lock(&state->lock);
	pl_list_for_each(at, &state->devices) {
		struct verbs_device *device = pl_list_entry(at, struct verbs_device, link);

		if (device->verbs && verbs_device_is(device, of))
			found = device;
		else if (device->verbs && name && !strcmp(verbs_device_name(device), name))
			named = device;
	}
	pthread_mutex_unlock(&state->lock);
	return found ? found : named;
}

/* Notes new names of open devices before any device is found by its name: another one may have their earlier names. */
static void note_names(struct verbs_state *state, struct ibv_device **devices)
{
	for (unsigned i = 0; devices && devices[i]; i++) {
		struct verbs_device *device = find_device(state, devices[i], NULL);

		if (device)
			verbs_device_rename(device, state->library->ibv_get_device_name(devices[i]));
	}
}

/* Adds a device that a probe has opened. Returns NULL and meets an obstacle if that fails. */
static struct verbs_device *add_device(struct look *look, struct verbs_probe *probe)
{
	int code = probe->code;
	struct verbs_device *device = code < 0 ? NULL : verbs_device_make(look->state, probe, &code);

	if (!device) {
		meet_obstacle(look, VERBS_CLOSED, code, probe->name);
		return NULL;
	}
	pthread_mutex_lock(&look->state->lock);
	pl_list_append(&look->state->devices, &device->link);
	pthread_mutex_unlock(&look->state->lock);
	/* The device may serve long before the next look. */
	pl_engine_post(look->state->context->engines[0], &look->state->watch_task);
	return device;
}

/* Writes the ports that a probe has read. */
static void take_ports(struct look *look, const struct verbs_probe *probe, struct verbs_device *device)
{
	char name[sizeof(look->obstacle.device)];

	meet_obstacle(look, VERBS_INACTIVE, 0, probe->name);
	for (unsigned i = 0; i < probe->port_count && probe->code == 0; i++) {
		const struct verbs_port_seen *seen = &probe->ports[i];
		enum verbs_obstacle obstacle;

		if (!seen->known)
			continue;
		obstacle = verbs_port_update(device, (uint8_t)(i + 1), seen, probe->listing->interfaces);
		snprintf(name, sizeof(name), "%s:%u", verbs_device_name(device), (uint8_t)(i + 1));
		if (seen->attributes.state == IBV_PORT_ACTIVE)
			meet_obstacle(look, obstacle, 0, name);
	}
}

/* Takes what a probe has found, and drops it. */
static void take_probe(struct look *look, struct verbs_probe *probe)
{
	struct verbs_device *device = probe->device ? probe->device : add_device(look, probe);

	if (device)
		take_ports(look, probe, device);
	pl_list_remove(&probe->link);
	if (probe->device)
		verbs_device_leave(probe->device);
	rdma_call_leave(&probe->call);
}

/* -- probes --------------------------------------------------------------------------------------- */

/* True if a probe opens this device, whatever its name is now. */
static bool probe_opens(const struct verbs_probe *probe, const struct ibv_device *of, const char *name)
{
	if (!probe->entry)
		return !strcmp(probe->name, name);
	return !strcmp(probe->of->dev_name, of->dev_name) && verbs_device_entry(of) == probe->entry;
}

/* True if an earlier probe of the device still waits for the driver. device: NULL: it is not open. */
static bool is_probed(const struct verbs_state *state, const struct verbs_device *device, const struct ibv_device *of,
		      const char *name)
{
	pl_list_for_each(at, &state->probes) {
		const struct verbs_probe *probe = pl_list_entry(at, struct verbs_probe, link);

		if (probe->device == device && (device || probe_opens(probe, of, name)))
			return true;
	}
	return false;
}

static void probe_device(struct look *look, struct ibv_device *of)
{
	struct verbs_state *state = look->state;
	const char *name = state->library->ibv_get_device_name(of);
	struct verbs_device *device = find_device(state, of, name);
	struct verbs_probe *probe;

	if (!verbs_port_is_allowed(state, device ? device->name : name, 0))
		return;
	/* iWARP has neither immediate data nor atomics. */
	if (of->transport_type != IBV_TRANSPORT_IB) {
		meet_obstacle(look, of->transport_type == IBV_TRANSPORT_IWARP ? VERBS_IWARP : VERBS_NO_RC, 0, name);
		return;
	}
	if (is_probed(state, device, of, name) || (device && !verbs_device_use(device)))
		return;
	probe = verbs_probe_start(state, look->listing, of, device);
	if (probe) {
		pl_list_append(&look->probes, &probe->link);
		return;
	}
	if (device)
		verbs_device_leave(device);
	meet_obstacle(look, VERBS_CLOSED, -ENOMEM, name);
}

/* Returns the first probe of this look whose driver has not answered, or NULL. any: set if a probe has ended. */
static struct verbs_probe *find_running(struct look *look, bool *any)
{
	struct verbs_probe *running = NULL;

	pl_list_for_each(at, &look->probes) {
		struct verbs_probe *probe = pl_list_entry(at, struct verbs_probe, link);

		if (rdma_call_await(&probe->call, 0))
			*any = true;
		else if (!running)
			running = probe;
	}
	return running;
}

static void await_probes(struct look *look)
{
	struct verbs_state *state = look->state;
	const uint64_t share = state->context->options.connect_timeout / WAIT_SHARE, begin = pl_now();
	bool any = atomic_load(&state->place_count);
	struct verbs_probe *running;

	while ((running = find_running(look, &any)) && !atomic_load(&state->ending)) {
		const uint64_t limit = any ? PL_MAX(PL_MIN(share, WAIT_MAX), VERBS_WAIT) : FIRST_WAIT_MAX;

		note_silent(state, running->name);
		if (pl_now() - begin >= limit)
			break;
		rdma_call_await(&running->call, pl_now() + SLICE);
	}
}

/* Takes the probes of a list that have ended. */
static void take_ended(struct look *look, struct pl_list *probes)
{
	pl_list_for_each_safe(at, next, probes) {
		struct verbs_probe *probe = pl_list_entry(at, struct verbs_probe, link);

		if (rdma_call_await(&probe->call, 0))
			take_probe(look, probe);
	}
}

/* -- the look ------------------------------------------------------------------------------------- */

/* Returns the list of devices; NULL: the library has not returned it yet, or there is no memory. */
static struct verbs_listing *list_devices(struct verbs_state *state)
{
	struct verbs_listing *listing = state->listing ? state->listing : verbs_listing_start(state->library);
	const uint64_t until = pl_now() + FIRST_WAIT_MAX;

	state->listing = listing;
	while (listing && !rdma_call_await(&listing->call, pl_now() + VERBS_WAIT))
		if (atomic_load(&state->ending) || pl_now() >= until)
			return NULL;
	state->listing = NULL;
	return listing;
}

/* Returns true if all ports have a device. */
static bool look_end(struct look *look, unsigned places)
{
	struct verbs_state *state = look->state;
	bool complete;

	pl_list_splice(&state->probes, &look->probes);
	pl_list_for_each(at, &state->probes)
		meet_obstacle(look, VERBS_SILENT, 0, pl_list_entry(at, struct verbs_probe, link)->name);
	note_silent(state, look->obstacle.kind == VERBS_SILENT ? look->obstacle.device : "");
	pthread_mutex_lock(&state->lock);
	state->obstacle = look->obstacle;
	/* Connections may have begun during a long first look. */
	if ((places || atomic_load(&state->port_look.late)) && atomic_load(&state->place_count) != places)
		verbs_near_forget(state);
	complete = verbs_ports_leave(state);
	pthread_mutex_unlock(&state->lock);
	return complete && pl_list_empty(&state->probes);
}

bool verbs_ports_read(struct verbs_state *state)
{
	struct look look = { .state = state, .obstacle.kind = VERBS_NO_DEVICE };
	unsigned places = atomic_load(&state->place_count);

	atomic_store(&state->stale, false);
	atomic_store(&state->looked, pl_now());
	pl_list_init(&look.probes);
	look.listing = list_devices(state);
	if (!look.listing)
		return false;
	take_ended(&look, &state->probes);
	note_names(state, look.listing->devices);
	for (unsigned i = 0; look.listing->devices && look.listing->devices[i]; i++)
		probe_device(&look, look.listing->devices[i]);
	await_probes(&look);
	take_ended(&look, &look.probes);
	rdma_call_leave(&look.listing->call);
	verbs_machine_read(state);
	return look_end(&look, places);
}

/* -- the end -------------------------------------------------------------------------------------- */

/* Waits for a driver as long as the end of a context may, from the beginning of the call on. */
static bool await_end(struct verbs_state *state, struct rdma_call *call)
{
	const bool ended = rdma_call_await(call, pl_deadline(call->since, state->silence));

	if (!ended)
		atomic_store(&state->context->given_up, true);
	return ended;
}

void verbs_looks_close(struct verbs_state *state)
{
	struct look look = { .state = state };

	if (state->listing) {
		await_end(state, &state->listing->call);
		rdma_call_leave(&state->listing->call);
	}
	state->listing = NULL;
	while (!pl_list_empty(&state->probes)) {
		struct verbs_probe *probe = pl_list_first(&state->probes, struct verbs_probe, link);

		/* What it has opened ends as other devices do: the driver may not return from that either. */
		if (await_end(state, &probe->call)) {
			take_probe(&look, probe);
			continue;
		}
		pl_list_remove(&probe->link);
		if (probe->device)
			verbs_device_give_up(probe->device);
		rdma_call_leave(&probe->call);
	}
}
