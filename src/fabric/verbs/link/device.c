/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices of a context: opened, renamed, and closed. */
#include <fcntl.h>
#include <stdio.h>

#include "fabric/verbs/verbs.h"

static uint32_t message_max_of(const struct verbs_library *library, struct ibv_context *verbs,
			       const struct ibv_device_attr *attributes)
{
	uint32_t least = UINT32_MAX;
	struct ibv_port_attr port;

	for (unsigned i = 1; i <= attributes->phys_port_cnt; i++)
		if (!verbs_query_port(library, verbs, (uint8_t)i, &port) && port.max_msg_sz)
			least = PL_MIN(least, port.max_msg_sz);
	return least;
}

/* Makes the objects that all connections of the device share. Returns 0 or a negative errno. */
static int fill_device(struct verbs_device *device)
{
	const struct verbs_library *library = device->state->library;
	int rc = verbs_result(library->ibv_query_device(device->verbs, &device->attributes));

	if (rc < 0)
		return rc;
	if (fcntl(device->verbs->async_fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	device->pd = library->ibv_alloc_pd(device->verbs);
	rc = verbs_made(device->pd);
	if (rc < 0)
		return rc;
	device->shared = verbs_mr_shared_open(device->state);
	if (!device->shared)
		return -ENOMEM;
	device->far_addresses = verbs_serves_far_addresses(&device->attributes);
	device->names_oldest = verbs_names_oldest(&device->attributes);
	atomic_init(&device->windows, device->attributes.device_cap_flags &
					      (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B));
	atomic_init(&device->window_max, VERBS_WINDOW_MAX);
	device->loop_pd = library->ibv_alloc_pd(device->verbs);
	if (rdma_data_direct_path(library, device->verbs, device->data_direct_path) < 0)
		device->data_direct_path[0] = '\0';
	device->message_max = message_max_of(library, device->verbs, &device->attributes);
	return 0;
}

struct verbs_device *verbs_device_open(struct verbs_state *state, struct ibv_device *of, int *code)
{
	struct verbs_device *device = pl_zalloc(&state->context->allocator, sizeof(*device));

	*code = -ENOMEM;
	if (!device)
		return NULL;
	device->state = state;
	device->async.fd = -1;
	pl_list_init(&device->link);
	pl_list_init(&device->loop_registrations);
	pl_list_init(&device->registrations);
	pl_list_init(&device->stuck_registrations);
	snprintf(device->name, sizeof(device->name), "%s", state->library->ibv_get_device_name(of));
	device->verbs = state->library->ibv_open_device(of);
	*code = verbs_made(device->verbs);
	device->entry = verbs_device_entry(of);
	if (*code == 0)
		*code = fill_device(device);
	if (*code < 0) {
		verbs_device_free(device);
		return NULL;
	}
	return device;
}

void verbs_device_rename(struct verbs_device *device, const char *text)
{
	struct verbs_name *name;

	if (!strcmp(verbs_device_name(device), text))
		return;
	name = pl_zalloc(&device->state->context->allocator, sizeof(*name));
	if (!name)
		return;
	name->before = atomic_load(&device->renamed);
	snprintf(name->text, sizeof(name->text), "%s", text);
	atomic_store(&device->renamed, name);
}

bool verbs_device_is(const struct verbs_device *device, const struct ibv_device *of)
{
	/* The device file's name and its entry in /sys stay; a device that is made again has another entry. */
	return device->entry && !strcmp(device->verbs->device->dev_name, of->dev_name) &&
	       verbs_device_entry(of) == device->entry;
}

void verbs_device_free(struct verbs_device *device)
{
	const struct verbs_library *library = device->state->library;

	for (struct verbs_name *name = atomic_load(&device->renamed), *before; name; name = before) {
		before = name->before;
		pl_free(&device->state->context->allocator, name);
	}
	pl_list_remove(&device->link);
	pl_registration_cache_close(device->shared);
	verbs_stuck_mrs_end(device);
	if (device->loop_pd)
		library->ibv_dealloc_pd(device->loop_pd);
	if (device->pd)
		library->ibv_dealloc_pd(device->pd);
	if (device->verbs)
		library->ibv_close_device(device->verbs);
	pl_free(&device->state->context->allocator, device);
}
