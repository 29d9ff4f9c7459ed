/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices of a context: opened, renamed, and closed. */
#include <fcntl.h>
#include <stdio.h>

#include "fabric/verbs/verbs.h"

struct verbs_device *verbs_device_make(struct verbs_state *state, struct verbs_probe *probe, int *code)
{
	struct verbs_device *device = pl_zalloc(&state->context->allocator, sizeof(*device));
	struct verbs_opened *opened = &probe->opened;

	*code = -ENOMEM;
	if (!device)
		return NULL;
	device->shared = verbs_mr_shared_open(state);
	if (!device->shared || fcntl(opened->verbs->async_fd, F_SETFL, O_NONBLOCK) < 0) {
		*code = device->shared ? -errno : -ENOMEM;
		pl_registration_cache_close(device->shared);
		pl_free(&state->context->allocator, device);
		return NULL;
	}
	device->state = state;
	device->async.fd = -1;
	pl_list_init(&device->link);
	pl_list_init(&device->loop_registrations);
	pl_list_init(&device->registrations);
	pl_list_init(&device->stuck_registrations);
	snprintf(device->name, sizeof(device->name), "%s", probe->name);
	device->entry = probe->entry;
	device->verbs = opened->verbs;
	device->pd = opened->pd;
	device->loop_pd = opened->loop_pd;
	device->attributes = opened->attributes;
	device->message_max = opened->message_max;
	memcpy(device->data_direct_path, opened->data_direct_path, sizeof(device->data_direct_path));
	opened->verbs = NULL;
	opened->pd = opened->loop_pd = NULL;
	device->far_addresses = verbs_serves_far_addresses(&device->attributes);
	device->names_oldest = verbs_names_oldest(&device->attributes);
	atomic_init(&device->windows, device->attributes.device_cap_flags &
					      (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B));
	atomic_init(&device->window_max, VERBS_WINDOW_MAX);
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
	for (struct verbs_name *name = atomic_load(&device->renamed), *before; name; name = before) {
		before = name->before;
		pl_free(&device->state->context->allocator, name);
	}
	pl_list_remove(&device->link);
	pl_registration_cache_close(device->shared);
	verbs_stuck_mrs_end(device);
	if (device->loop_pd)
		verbs_object_end(device, VERBS_PD, device->loop_pd);
	if (device->pd)
		verbs_object_end(device, VERBS_PD, device->pd);
	if (device->verbs)
		verbs_object_end(device, VERBS_CONTEXT, device->verbs);
	pl_free(&device->state->context->allocator, device);
}
