/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Removal of devices whose drivers report nothing to their users, and wait until these have closed the device: soft-RoCE
 * (before Linux 7). The kernel announces the removal of the device file beforehand, by a uevent to all listeners
 * (lib/kobject_uevent.c; drivers/infiniband/core/uverbs_main.c, ib_uverbs_remove_one()). User namespaces get none; the
 * removal then waits until the context closes. A burst of uevents may overflow the socket: then the devices' entries in
 * /sys tell which are gone.
 */
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/verbs/verbs.h"

#define SUBSYSTEM "SUBSYSTEM=infiniband_verbs"
#define FILE_NAME "DEVNAME=infiniband/"
/* Multicast group of the kernel's own messages. */
#define KERNEL_GROUP 1
#define MESSAGE_MAX 4096

/* Returns the value of the first field that begins so, or NULL. Fields end with a NUL. */
static const char *find_field(const char *message, size_t length, const char *begin)
{
	const char *end = message + length;

	for (const char *at = message; at < end; at += strlen(at) + 1)
		if (!strncmp(at, begin, strlen(begin)))
			return at + strlen(begin);
	return NULL;
}

/* The device is freed only by this engine. The caller does not hold the lock. */
static struct verbs_device *find_by_file(struct verbs_state *state, const char *name)
{
	struct verbs_device *found = NULL;

	pthread_mutex_lock(&state->lock);
	pl_list_for_each(at, &state->devices) {
		struct verbs_device *device = pl_list_entry(at, struct verbs_device, link);

		if (device->verbs && !strcmp(device->verbs->device->dev_name, name))
			found = device;
	}
	pthread_mutex_unlock(&state->lock);
	return found;
}

void verbs_uevent_take(struct verbs_state *state, const char *message, size_t length)
{
	const char *name = find_field(message, length, FILE_NAME);
	struct verbs_device *device;

	if (!find_field(message, length, SUBSYSTEM) || !name)
		return;
	atomic_store(&state->stale, true);
	verbs_paths_forget(state);
	device = find_field(message, length, "ACTION=remove") ? find_by_file(state, name) : NULL;
	if (device)
		verbs_device_lost(state, device);
	else if (find_field(message, length, "ACTION=add"))
		verbs_device_appeared(state);
}

uint64_t verbs_device_entry(const struct ibv_device *device)
{
	struct stat entry;

	return stat(device->dev_path, &entry) == 0 ? entry.st_ino : 0;
}

/* True if the device's entry in /sys is gone, or belongs to a new device. An entry that cannot be read tells nothing. */
static bool lacks_entry(const struct verbs_device *device)
{
	uint64_t entry = verbs_device_entry(device->verbs->device);

	return device->entry && entry != device->entry && (entry || errno == ENOENT);
}

/* The caller does not hold the lock. */
static struct verbs_device *find_without_entry(struct verbs_state *state)
{
	struct verbs_device *found = NULL;

	pthread_mutex_lock(&state->lock);
	pl_list_for_each(at, &state->devices) {
		struct verbs_device *device = pl_list_entry(at, struct verbs_device, link);

		if (device->verbs && !atomic_load(&device->gone) && lacks_entry(device))
			found = device;
	}
	pthread_mutex_unlock(&state->lock);
	return found;
}

/* Messages were lost, perhaps of devices that came or went. */
static void uevents_lost(struct verbs_state *state)
{
	struct verbs_device *device;

	atomic_store(&state->stale, true);
	verbs_paths_forget(state);
	while ((device = find_without_entry(state)))
		verbs_device_lost(state, device);
	verbs_device_appeared(state);
}

/* Only the kernel has the port number 0. */
static bool uevent_ready(struct pl_source *source, uint32_t events)
{
	struct verbs_state *state = pl_container_of(source, struct verbs_state, uevents);
	char message[MESSAGE_MAX + 1];
	struct sockaddr_nl from = { .nl_pid = 1 };
	socklen_t from_length = sizeof(from);
	ssize_t length = recvfrom(source->fd, message, MESSAGE_MAX, 0, (struct sockaddr *)&from, &from_length);

	(void)events;
	if (length < 0 && errno == ENOBUFS) {
		uevents_lost(state);
		return true;
	}
	if (length <= 0)
		return false;
	message[length] = 0;
	if (from.nl_pid == 0)
		verbs_uevent_take(state, message, (size_t)length);
	return true;
}

void verbs_uevents_open(struct verbs_state *state)
{
	const struct sockaddr_nl group = { .nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP };

	if (state->uevents.fd >= 0)
		return;
	state->uevents.ready = uevent_ready;
	state->uevents.fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
	if (state->uevents.fd >= 0 && (bind(state->uevents.fd, (const struct sockaddr *)&group, sizeof(group)) < 0 ||
				       pl_source_add(state->context->engines[0], &state->uevents, EPOLLIN) < 0))
		verbs_uevents_close(state);
}

void verbs_uevents_close(struct verbs_state *state)
{
	if (state->uevents.engine)
		pl_source_remove(&state->uevents);
	if (state->uevents.fd >= 0)
		close(state->uevents.fd);
	state->uevents.fd = -1;
}
