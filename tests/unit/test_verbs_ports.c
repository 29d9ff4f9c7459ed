/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices and ports that the program allows, and the reasons that none is usable. */
#include <fcntl.h>
#include <linux/netlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/verbs_host.h"

VERBS_HOST_GETIFADDRS

/* True if messages were lost: the next call of recvfrom(2) says so. */
static bool overflowed;

ssize_t recvfrom(int fd, void *buffer, size_t length, int flags, struct sockaddr *from, socklen_t *from_length)
{
	if (!overflowed)
		return syscall(SYS_recvfrom, fd, buffer, length, flags, from, from_length);
	overflowed = false;
	errno = ENOBUFS;
	return -1;
}

/* -- devices that the program names --------------------------------------------------------------- */

/* Checks the ports that are found, as "device:port" separated by spaces. */
static void expect_ports(char *allowed, const char *expected, unsigned opened)
{
	static const char *const names[] = { "mlx5_10", "mlx5_2", "mlx5_1", "irdma0" };
	struct verbs_host_rig *rig;
	char found[200] = "";

	verbs_host_set(names, PL_ARRAY_SIZE(names), 2, IBV_LINK_LAYER_INFINIBAND);
	rig = verbs_host_open(allowed);
	verbs_host_look(rig);
	verbs_host_look(rig);
	pl_list_for_each(at, &rig->state.ports) {
		const struct verbs_port *port = pl_list_entry(at, struct verbs_port, link);
		size_t length = strlen(found);

		assert_true(port->active);
		snprintf(found + length, sizeof(found) - length, "%s%s:%u", length ? " " : "", port->device->name,
			 port->number);
	}
	assert_string_equal(found, expected);
	assert_int_equal(verbs_host.opened, opened);
	verbs_host_close(rig);
}

/* Both ends number ports in the same order, whatever the order of the list. */
static void test_device_lists(void **state)
{
	(void)state;
	expect_ports(NULL, "irdma0:1 irdma0:2 mlx5_1:1 mlx5_1:2 mlx5_2:1 mlx5_2:2 mlx5_10:1 mlx5_10:2", 4);
	expect_ports("mlx5_1", "mlx5_1:1 mlx5_1:2", 1);
	expect_ports("mlx5_10,mlx5_2", "mlx5_2:1 mlx5_2:2 mlx5_10:1 mlx5_10:2", 2);
	expect_ports("mlx5_1:1", "mlx5_1:1", 1);
	expect_ports("mlx5_1:2", "mlx5_1:2", 1);
	expect_ports("mlx5_1:2,mlx5_2:1", "mlx5_1:2 mlx5_2:1", 2);
	expect_ports("mlx5_1:2,mlx5_1:1", "mlx5_1:1 mlx5_1:2", 1);
	expect_ports("mlx5_1:12", "", 1);
	expect_ports("mlx5_", "", 0);
	expect_ports("mlx5_1x", "", 0);
	expect_ports("mlx5_3,irdma0:2", "irdma0:2", 1);
	expect_ports(",,mlx5_2,", "mlx5_2:1 mlx5_2:2", 1);
}

/* -- reasons that no port is usable --------------------------------------------------------------- */

static void expect_reason(struct verbs_host_rig *rig, int code, const char *id, const char *object)
{
	struct pl_error error;

	assert_int_equal(verbs_serves(&rig->peer, &error), code);
	assert_string_equal(error.id, id);
	assert_string_equal(error.object, object);
	verbs_host_close(rig);
}

static void test_reasons(void **state)
{
	static const char *const names[] = { "siw0", "card0" };
	struct verbs_host_rig *rig;
	struct pl_error error;

	(void)state;
	verbs_host_set(names, 0, 1, IBV_LINK_LAYER_ETHERNET);
	expect_reason(verbs_host_open(NULL), -ENODEV, "RDMA-NO-DEVICE", "");
	expect_reason(verbs_host_open("card7"), -ENODEV, "RDMA-NO-DEVICE", "card7");
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	verbs_host.devices[0].transport_type = IBV_TRANSPORT_IWARP;
	expect_reason(verbs_host_open(NULL), -ENOTSUP, "RDMA-IWARP", "siw0");
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	verbs_host.devices[0].transport_type = IBV_TRANSPORT_UNSPECIFIED;
	expect_reason(verbs_host_open(NULL), -ENOTSUP, "RDMA-NO-RC", "siw0");
	verbs_host_set(names, 2, 1, IBV_LINK_LAYER_ETHERNET);
	verbs_host.no_open = EACCES;
	rig = verbs_host_open("card0");
	assert_int_equal(verbs_serves(&rig->peer, &error), -ENODEV);
	assert_string_equal(error.call, "ibv_open_device");
	assert_non_null(strstr(error.message, "EACCES"));
	expect_reason(rig, -ENODEV, "RDMA-NO-DEVICE", "card0");
	/* Of several devices the first. */
	verbs_host_set(names, 2, 1, IBV_LINK_LAYER_ETHERNET);
	verbs_host.state = IBV_PORT_DOWN;
	expect_reason(verbs_host_open(NULL), -ENODEV, "RDMA-NO-DEVICE", "siw0");
	/* The obstacle nearest to a connection counts. */
	verbs_host_set(names, 2, 1, IBV_LINK_LAYER_ETHERNET);
	verbs_host.devices[1].transport_type = IBV_TRANSPORT_IWARP;
	verbs_host.state = IBV_PORT_DOWN;
	expect_reason(verbs_host_open(NULL), -ENODEV, "RDMA-NO-DEVICE", "siw0");
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	verbs_host.gid_count = 0;
	expect_reason(verbs_host_open(NULL), -ENODEV, "RDMA-NO-DEVICE", "siw0");
}

/* Options that leave no port. The first port is named. */
static void test_exclusions(void **state)
{
	static const char *const names[] = { "card0" };
	static const uint16_t pkeys[] = { 0xffff, 0x0007, 0x0005, 0x8005 };
	static const struct verbs_host_gid gids[] = { { "fe80::1", true }, { NULL, false }, { "10.0.0.1", true } };
	static const struct {
		unsigned gid_index, pkey;
		const char *id; /* NULL: a port is usable */
		uint16_t pkey_index;
	} cases[] = {
		{ 0, 0, NULL, 0 },
		{ PL_GID_INDEX(0), 0, NULL, 0 },
		{ PL_GID_INDEX(1), 0, "RDMA-GID-INDEX", 0 },
		{ PL_GID_INDEX(2), 0, NULL, 0 },
		{ PL_GID_INDEX(3), 0, "RDMA-GID-INDEX", 0 },
		{ PL_GID_INDEX(255), 0x8005, "RDMA-GID-INDEX", 0 },
		{ 0, 0x7fff, NULL, 0 },
		{ 0, 0xffff, NULL, 0 },
		{ 0, 0x0005, NULL, 3 },
		{ 0, 0x8005, NULL, 3 },
		{ 0, 0x8007, "RDMA-PKEY-LIMITED", 0 },
		{ 0, 0x0007, "RDMA-PKEY-LIMITED", 0 },
		{ 0, 0x0004, "RDMA-PKEY", 0 },
	};

	(void)state;
	for (size_t i = 0; i < 2 * PL_ARRAY_SIZE(cases); i++) {
		const uint8_t link_layer = i % 2 ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
		struct verbs_host_rig *rig;
		struct verbs_port *port;

		verbs_host_set(names, 1, 2, link_layer);
		verbs_host.gids = gids;
		verbs_host.gid_count = PL_ARRAY_SIZE(gids);
		verbs_host.pkeys = pkeys;
		verbs_host.pkey_count = PL_ARRAY_SIZE(pkeys);
		rig = verbs_host_open(NULL);
		rig->context.options.gid_index = cases[i / 2].gid_index;
		rig->context.options.pkey = cases[i / 2].pkey;
		port = verbs_host_look(rig);
		if (cases[i / 2].id) {
			expect_reason(rig, -ENODEV, cases[i / 2].id, "card0:1");
			continue;
		}
		assert_int_equal(verbs_serves(&rig->peer, NULL), 0);
		assert_int_equal(port->pkey_index, cases[i / 2].pkey_index);
		if (cases[i / 2].gid_index) {
			assert_int_equal(port->gid_count, 1);
			assert_int_equal(PL_GID_INDEX(port->gids[0].index), cases[i / 2].gid_index);
		}
		verbs_host_close(rig);
	}
}

/* A port of the option's partition that is down is no reason. */
static void test_exclusion_of_a_port_that_is_down(void **state)
{
	static const char *const names[] = { "card0" };
	struct verbs_host_rig *rig;

	(void)state;
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_INFINIBAND);
	verbs_host.state = IBV_PORT_DOWN;
	rig = verbs_host_open(NULL);
	rig->context.options.pkey = 0x8001;
	expect_reason(rig, -ENODEV, "RDMA-NO-DEVICE", "card0");
}

static void test_encryption(void **state)
{
	static const char *const names[] = { "card0" };
	struct verbs_host_rig *rig;

	(void)state;
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	rig = verbs_host_open(NULL);
	assert_int_equal(verbs_serves(&rig->peer, NULL), 0);
	rig->context.options.encrypt_data = PL_ON;
	assert_int_equal(verbs_serves(&rig->peer, NULL), -ENOTSUP);
	rig->context.options.encrypt_data = PL_DEFAULT;
	rig->peer.encrypt_demanded = true;
	expect_reason(rig, -ENOTSUP, "RDMA-NO-ENCRYPTION", "");
}

/* -- looks ---------------------------------------------------------------------------------------- */

/* Looks at known ports if the last look is old, and waits for the helper as long as it takes. */
static void look_at_known(struct verbs_host_rig *rig)
{
	verbs_ports_look(&rig->state, UINT64_MAX);
	while (atomic_load(&rig->state.port_look.busy))
		sched_yield();
}

/* A look is good for a second, unless a device reported a change. */
static void test_looks(void **state)
{
	static const char *const names[] = { "card0", "card1" };
	struct verbs_host_rig *rig;

	(void)state;
	verbs_host_set(names, 2, 1, IBV_LINK_LAYER_ETHERNET);
	verbs_host.count = 1;
	rig = verbs_host_open(NULL);
	verbs_ports_look(&rig->state, UINT64_MAX);
	/* The first engine will watch the new device. */
	assert_true(atomic_load(&rig->state.watch_task.queued));
	look_at_known(rig);
	assert_int_equal(verbs_host.looks, 1);
	atomic_store(&rig->state.stale, true);
	verbs_host.count = 2;
	look_at_known(rig);
	look_at_known(rig);
	assert_int_equal(verbs_host.looks, 2);
	assert_int_equal(verbs_host.opened, 2);
	rig->state.looked -= PL_NS_PER_S;
	verbs_host.state = IBV_PORT_DOWN;
	look_at_known(rig);
	assert_int_equal(verbs_host.looks, 3);
	assert_int_equal(verbs_host.opened, 2);
	pl_list_for_each(at, &rig->state.ports)
		assert_false(pl_list_entry(at, struct verbs_port, link)->active);
	verbs_host_close(rig);
}

/* A device is removed, and another one comes under its name: the port stays the same object. */
static void test_removal(void **state)
{
	static const char *const names[] = { "card0" };
	struct verbs_device *first;
	struct verbs_port *port;
	struct verbs_host_rig *rig;

	(void)state;
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	rig = verbs_host_open(NULL);
	port = verbs_host_look(rig);
	first = port->device;
	atomic_store(&first->gone, true);
	/* Still open: it has users. */
	assert_ptr_equal(verbs_host_look(rig), port);
	assert_ptr_equal(port->device, first);
	assert_false(port->active);
	assert_int_equal(verbs_host.opened, 1);
	assert_int_equal(verbs_serves(&rig->peer, NULL), -ENODEV);
	rig->library.ibv_close_device(first->verbs);
	first->verbs = NULL;
	assert_ptr_equal(verbs_host_look(rig), port);
	assert_ptr_not_equal(port->device, first);
	assert_true(port->active);
	assert_int_equal(verbs_host.opened, 2);
	assert_int_equal(verbs_serves(&rig->peer, NULL), 0);
	verbs_host_close(rig);
}

/* Waits for the helper's look for a missing device, and does what the engine does then. */
static void finish_look(struct verbs_host_rig *rig)
{
	struct pl_task *done = &rig->state.tending.done;

	while (!atomic_load(&done->queued))
		sched_yield();
	pl_engine_withdraw(rig->context.engines[0], done);
	done->run(done);
}

/* Runs the looks for a missing device after these pauses, as the engine does. */
static void expect_pauses(struct verbs_host_rig *rig, const unsigned *milliseconds, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct pl_timer *timer = &rig->state.tend_timer;

		assert_false(pl_list_empty(&timer->link));
		assert_int_equal(rig->state.tend_pause, milliseconds[i] * PL_NS_PER_MS);
		assert_true(timer->deadline <= pl_now() + rig->state.tend_pause + PL_NS_PER_S / 10);
		pl_timer_clear(rig->context.engines[0], timer);
		timer->expire(timer);
		finish_look(rig);
	}
}

static void run_tend(struct verbs_host_rig *rig)
{
	pl_engine_withdraw(rig->context.engines[0], &rig->state.tend_task);
	rig->state.tend_task.run(&rig->state.tend_task);
	finish_look(rig);
}

/* A device that stays away is looked for less and less often, until the kernel announces one. */
static void test_long_absence(void **state)
{
	static const char addition[] = "add@/x\0ACTION=add\0SUBSYSTEM=infiniband_verbs\0DEVNAME=infiniband/uverbs0";
	static const unsigned pauses[] = { 500, 1000, 2000, 4000, 8000, 10000, 10000 };
	static const char *const names[] = { "card0" };
	struct verbs_device *first;
	struct verbs_host_rig *rig;
	struct verbs_port *port;

	(void)state;
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	rig = verbs_host_open(NULL);
	port = verbs_host_look(rig);
	first = port->device;
	/* All devices are present: an addition has no effect. */
	verbs_uevent_take(&rig->state, addition, sizeof(addition) - 1);
	assert_false(atomic_load(&rig->state.tend_task.queued));
	atomic_store(&first->gone, true);
	rig->library.ibv_close_device(first->verbs);
	first->verbs = NULL;
	verbs_host.count = 0;
	run_tend(rig);
	expect_pauses(rig, pauses, PL_ARRAY_SIZE(pauses));
	verbs_uevent_take(&rig->state, addition, sizeof(addition) - 1);
	assert_true(atomic_load(&rig->state.tend_task.queued));
	run_tend(rig);
	/* The device's file is not ready yet. */
	expect_pauses(rig, pauses, 2);
	verbs_host.count = 1;
	run_tend(rig);
	assert_true(pl_list_empty(&rig->state.tend_timer.link));
	assert_true(port->active);
	assert_ptr_not_equal(port->device, first);
	verbs_host_close(rig);
}

/* Runs the task of a connection attempt that needs a missing device. */
static void run_seek(struct verbs_host_rig *rig)
{
	assert_true(atomic_load(&rig->state.seek_task.queued));
	pl_engine_withdraw(rig->context.engines[0], &rig->state.seek_task);
	rig->state.seek_task.run(&rig->state.seek_task);
}

/* Connection attempts look at most once a second for a device that stays away, and the pauses between other looks go on. */
static void test_seek(void **state)
{
	static const char *const names[] = { "card0" };
	struct verbs_device *device;
	struct verbs_host_rig *rig;

	(void)state;
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	rig = verbs_host_open(NULL);
	device = verbs_host_look(rig)->device;
	atomic_store(&device->gone, true);
	rig->library.ibv_close_device(device->verbs);
	device->verbs = NULL;
	verbs_host.count = 0;
	run_tend(rig);
	assert_int_equal(rig->state.tend_pause, 500 * PL_NS_PER_MS);
	rig->state.looked -= PL_NS_PER_S;
	verbs_device_seek(&rig->state);
	run_seek(rig);
	/* No second one while a look is under way. */
	rig->state.looked -= PL_NS_PER_S;
	rig->state.seek_task.run(&rig->state.seek_task);
	assert_false(rig->state.tending.again);
	finish_look(rig);
	assert_int_equal(rig->state.tend_pause, 1000 * PL_NS_PER_MS);
	assert_int_equal(verbs_host.looks, 3);
	rig->state.looked = pl_now();
	verbs_device_seek(&rig->state);
	assert_false(atomic_load(&rig->state.seek_task.queued));
	verbs_host_close(rig);
}

/* More ports than an advert has room for. */
static void test_many_ports(void **state)
{
	static const char *const names[] = { "c0", "c1", "c2", "c3", "c4", "c5" };
	static struct verbs_endpoint endpoint;
	struct verbs_host_rig *rig;
	uint8_t bytes[PL_FABRIC_BLOB_MAX];
	struct pl_writer writer;
	struct pl_reader reader;

	(void)state;
	verbs_host_set(names, PL_ARRAY_SIZE(names), 3, IBV_LINK_LAYER_INFINIBAND);
	rig = verbs_host_open(NULL);
	verbs_host_look(rig);
	endpoint.base.peer = &rig->peer;
	endpoint.state = &rig->state;
	assert_int_equal(verbs_list_ports(&endpoint), 0);
	/* Hosts with 8 compute and 2 storage cards offer all of them. */
	assert_int_equal(endpoint.port_count, 12);
	pl_writer_init(&writer, bytes, sizeof(bytes));
	verbs_advert_write(&endpoint, &writer);
	assert_false(writer.full);
	pl_reader_init(&reader, bytes, (size_t)(writer.at - bytes));
	rig->context.options.rails = VERBS_RAILS;
	assert_int_equal(verbs_advert_read(&endpoint, &reader), 0);
	assert_int_equal(endpoint.rail_count, VERBS_RAILS);
	for (unsigned i = 0; i < VERBS_RAILS; i++) {
		assert_ptr_equal(endpoint.rails[i].port, endpoint.ports[i]);
		assert_int_equal(endpoint.rails[i].far_port, i);
	}
	verbs_host_close(rig);
}

/* Sends the socket a message as another process can that may administer the network. Returns true if it went. */
static bool send_foreign(int to, const char *message, size_t length)
{
	struct sockaddr_nl address;
	socklen_t size = sizeof(address);
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);
	bool went;

	assert_true(fd >= 0);
	assert_int_equal(getsockname(to, (struct sockaddr *)&address, &size), 0);
	address.nl_groups = 0;
	went = sendto(fd, message, length, 0, (struct sockaddr *)&address, sizeof(address)) == (ssize_t)length;
	close(fd);
	return went;
}

/* The socket of the kernel's messages is opened once, and closed. Messages of processes do not count. */
static void test_uevent_socket(void **state)
{
	static const char *const names[] = { "card0" };
	static const char removal[] = "ACTION=remove\0SUBSYSTEM=infiniband_verbs\0DEVNAME=infiniband/uverbs0";
	struct verbs_host_rig *rig;
	struct verbs_port *port;
	unsigned read = 0;
	int fd;

	(void)state;
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	strcpy(verbs_host.devices[0].dev_name, "uverbs0");
	rig = verbs_host_open(NULL);
	port = verbs_host_look(rig);
	verbs_uevents_open(&rig->state);
	fd = rig->state.uevents.fd;
	assert_true(fd >= 0);
	assert_ptr_equal(rig->state.uevents.engine, rig->context.engines[0]);
	verbs_uevents_open(&rig->state);
	assert_int_equal(rig->state.uevents.fd, fd);
	/* Messages about other things may come at any time. */
	while (rig->state.uevents.ready(&rig->state.uevents, EPOLLIN))
		assert_true(++read < 1000);
	if (send_foreign(fd, removal, sizeof(removal))) {
		assert_true(rig->state.uevents.ready(&rig->state.uevents, EPOLLIN));
		assert_false(atomic_load(&port->device->gone));
	}
	verbs_uevents_close(&rig->state);
	assert_int_equal(rig->state.uevents.fd, -1);
	assert_null(rig->state.uevents.engine);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	verbs_uevents_close(&rig->state);
	verbs_host_close(rig);
}

/* Lets the socket overflow. Returns true if the first device counts as removed then. */
static bool is_lost_by_overflow(struct verbs_host_rig *rig, const struct verbs_device *device)
{
	atomic_store(&rig->state.stale, false);
	overflowed = true;
	assert_true(rig->state.uevents.ready(&rig->state.uevents, EPOLLIN));
	assert_false(overflowed);
	assert_true(atomic_load(&rig->state.stale));
	return atomic_load(&device->gone);
}

/* A device whose entry in /sys is gone, or belongs to a new device, counts as removed if messages were lost. */
static void test_uevents_lost(void **state)
{
	static const char *const names[] = { "card0", "card1", "card2" };
	struct verbs_device *devices[PL_ARRAY_SIZE(names)];
	char folder[] = "/tmp/entries-XXXXXX", new[40];
	struct verbs_host_rig *rig;
	unsigned count = 0;

	(void)state;
	assert_non_null(mkdtemp(folder));
	verbs_host_set(names, 3, 1, IBV_LINK_LAYER_ETHERNET);
	/* The third one has no entry, as in a sandbox. */
	for (unsigned i = 0; i < 3; i++)
		snprintf(verbs_host.devices[i].dev_path, sizeof(verbs_host.devices[i].dev_path), "%s/%u", folder, i);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(mkdir(verbs_host.devices[i].dev_path, 0700), 0);
	rig = verbs_host_open(NULL);
	verbs_host_look(rig);
	pl_list_for_each(at, &rig->state.devices)
		devices[count++] = pl_list_entry(at, struct verbs_device, link);
	assert_int_equal(count, 3);
	verbs_uevents_open(&rig->state);
	assert_false(is_lost_by_overflow(rig, devices[0]));
	snprintf(new, sizeof(new), "%s/new", folder);
	assert_int_equal(mkdir(new, 0700), 0);
	assert_int_equal(rmdir(devices[0]->verbs->device->dev_path), 0);
	assert_true(is_lost_by_overflow(rig, devices[0]));
	assert_true(atomic_load(&rig->state.tend_task.queued));
	assert_false(atomic_load(&devices[1]->gone));
	assert_int_equal(rename(new, devices[1]->verbs->device->dev_path), 0);
	assert_true(is_lost_by_overflow(rig, devices[1]));
	assert_false(atomic_load(&devices[2]->gone));
	assert_int_equal(rmdir(devices[1]->verbs->device->dev_path), 0);
	assert_int_equal(rmdir(folder), 0);
	verbs_uevents_close(&rig->state);
	verbs_host_close(rig);
}

/* Takes a message of the kernel for the device file of the only device. Returns true if the device counts as removed. */
static bool is_removed_by(const char *message, size_t length)
{
	static const char *const names[] = { "card0" };
	struct verbs_host_rig *rig;
	struct verbs_port *port;
	char copy[128];
	bool removed;

	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	strcpy(verbs_host.devices[0].dev_name, "uverbs0");
	rig = verbs_host_open(NULL);
	port = verbs_host_look(rig);
	memcpy(copy, message, length);
	copy[length] = 0;
	verbs_uevent_take(&rig->state, copy, length);
	removed = atomic_load(&port->device->gone);
	if (!removed) {
		/* A device that is closed has no file. */
		rig->library.ibv_close_device(port->device->verbs);
		port->device->verbs = NULL;
		verbs_uevent_take(&rig->state, copy, length);
	}
	/* Any change of a device makes the next look new. */
	assert_true(!removed || atomic_load(&rig->state.stale));
	verbs_host_close(rig);
	return removed;
}

/* The kernel announces the removal of a device file. */
static void test_uevents(void **state)
{
	static const char removal[] = "remove@/devices/virtual/infiniband_verbs/uverbs0\0ACTION=remove\0"
				      "SUBSYSTEM=infiniband_verbs\0DEVNAME=infiniband/uverbs0\0SEQNUM=7";
	static const char addition[] = "add@/x\0ACTION=add\0SUBSYSTEM=infiniband_verbs\0DEVNAME=infiniband/uverbs0";
	static const char other[] = "remove@/x\0ACTION=remove\0SUBSYSTEM=infiniband_verbs\0DEVNAME=infiniband/uverbs01";
	static const char block[] = "remove@/x\0ACTION=remove\0SUBSYSTEM=block\0DEVNAME=infiniband/uverbs0";

	(void)state;
	assert_true(is_removed_by(removal, sizeof(removal) - 1));
	assert_false(is_removed_by(addition, sizeof(addition) - 1));
	assert_false(is_removed_by(other, sizeof(other) - 1));
	assert_false(is_removed_by(block, sizeof(block) - 1));
	/* A message that is cut has no name, or a part of it. */
	for (size_t length = 0; length <= sizeof(removal) - sizeof("0.SEQNUM=7"); length++)
		assert_false(is_removed_by(removal, length));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_device_lists), cmocka_unit_test(test_reasons),
		cmocka_unit_test(test_exclusions),   cmocka_unit_test(test_exclusion_of_a_port_that_is_down),
		cmocka_unit_test(test_encryption),   cmocka_unit_test(test_looks),
		cmocka_unit_test(test_removal),      cmocka_unit_test(test_long_absence),
		cmocka_unit_test(test_uevents),      cmocka_unit_test(test_uevent_socket),
		cmocka_unit_test(test_uevents_lost), cmocka_unit_test(test_many_ports),
		cmocka_unit_test(test_seek),
	};

	return cmocka_run_group_tests_name("verbs ports", tests, NULL, NULL);
}
