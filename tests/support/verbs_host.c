/* SPDX-License-Identifier: BSD-2-Clause */
#ifdef PL_HAVE_VERBS

#include "support/verbs_host.h"

#include <arpa/inet.h>
#include <endian.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

struct verbs_host verbs_host;

/* -- interfaces of this host ---------------------------------------------------------------------- */

void verbs_host_address(struct sockaddr_storage *address, const char *text)
{
	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, text, &((struct sockaddr_in *)address)->sin_addr) == 1) {
		address->ss_family = AF_INET;
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)address)->sin6_addr), 1);
		address->ss_family = AF_INET6;
	}
}

/* Leaves out the family, which a mask need not have. */
static void set_mask(struct sockaddr_storage *mask, sa_family_t family, unsigned bits)
{
	uint8_t *bytes = family == AF_INET ? (uint8_t *)&((struct sockaddr_in *)mask)->sin_addr
					   : (uint8_t *)&((struct sockaddr_in6 *)mask)->sin6_addr;

	memset(mask, 0, sizeof(*mask));
	for (unsigned i = 0; i < bits; i++)
		bytes[i / 8] |= (uint8_t)(0x80 >> i % 8);
}

void verbs_host_interfaces(const struct verbs_host_interface *all, unsigned count)
{
	memset(verbs_host.interfaces, 0, sizeof(verbs_host.interfaces));
	/* Interfaces without an address, and without a mask. */
	set_mask(&verbs_host.masks[count], AF_INET, 24);
	verbs_host.interfaces[0].ifa_netmask = (struct sockaddr *)&verbs_host.masks[count];
	verbs_host.interfaces[1].ifa_addr = (struct sockaddr *)&verbs_host.addresses[0];
	for (unsigned i = 0; i < 2; i++) {
		verbs_host.interfaces[i].ifa_flags = IFF_UP;
		verbs_host.interfaces[i].ifa_next = &verbs_host.interfaces[i + 1];
	}
	for (unsigned i = 0; i < count; i++) {
		struct ifaddrs *one = &verbs_host.interfaces[i + 2];

		verbs_host_address(&verbs_host.addresses[i], all[i].address);
		set_mask(&verbs_host.masks[i], verbs_host.addresses[i].ss_family, all[i].bits);
		one->ifa_addr = (struct sockaddr *)&verbs_host.addresses[i];
		one->ifa_netmask = (struct sockaddr *)&verbs_host.masks[i];
		one->ifa_flags = all[i].up ? IFF_UP : 0;
		one->ifa_next = one + 1;
	}
	/* The last one has no address. */
	verbs_host.interfaces[count + 2].ifa_flags = IFF_UP;
}

/* -- devices -------------------------------------------------------------------------------------- */

static struct ibv_device **get_device_list(int *count)
{
	(void)count;
	verbs_host.looks++;
	for (unsigned i = 0; i < verbs_host.count; i++)
		verbs_host.list[i] = &verbs_host.devices[i];
	verbs_host.list[verbs_host.count] = NULL;
	return verbs_host.list;
}

static void free_device_list(struct ibv_device **list)
{
	assert_ptr_equal(list, verbs_host.list);
	verbs_host.freed++;
}

static const char *get_device_name(struct ibv_device *device)
{
	return verbs_host.names[device - verbs_host.devices];
}

static struct ibv_context *open_device(struct ibv_device *device)
{
	struct ibv_context *context = &verbs_host.contexts[device - verbs_host.devices];

	if (verbs_host.no_open) {
		errno = verbs_host.no_open;
		return NULL;
	}
	context->device = device;
	context->async_fd = eventfd(0, 0);
	verbs_host.opened++;
	return context;
}

static int close_device(struct ibv_context *context)
{
	close(context->async_fd);
	verbs_host.closed++;
	return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
	(void)context;
	memset(attributes, 0, sizeof(*attributes));
	attributes->phys_port_cnt = verbs_host.ports;
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compatible)
{
	struct ibv_port_attr *attributes = (struct ibv_port_attr *)compatible;

	(void)context;
	assert_in_range(port, 1, verbs_host.ports);
	attributes->state = verbs_host.state;
	attributes->link_layer = verbs_host.link_layer;
	attributes->gid_tbl_len = verbs_host.gid_count;
	attributes->pkey_tbl_len = verbs_host.pkey_count;
	return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
	verbs_host.pd_count++;
	return &verbs_host.pds[context - verbs_host.contexts];
}

static int dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	verbs_host.pd_count--;
	return 0;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct sockaddr_storage address;

	verbs_host.gid_calls++;
	(void)context;
	(void)port;
	assert_true(index < verbs_host.gid_count);
	memset(gid, 0, sizeof(*gid));
	/* Both mean an empty entry; a call that fails may leave anything. */
	if (!verbs_host.gids[index].text && index % 2) {
		memset(gid, 0xee, sizeof(*gid));
		return -1;
	}
	if (!verbs_host.gids[index].text)
		return 0;
	verbs_host_address(&address, verbs_host.gids[index].text);
	*gid = verbs_gid_of(&address);
	return 0;
}

static int query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			uint32_t flags, size_t size)
{
	assert_int_equal(flags, 0);
	assert_int_equal(size, sizeof(*entry));
	entry->gid_type = verbs_host.gids[index].second_version ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	return query_gid(context, (uint8_t)port, (int)index, &entry->gid) ? ENODATA : 0;
}

/* The entries in use of all ports. */
static ssize_t query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t room, uint32_t flags,
			       size_t size)
{
	size_t count = 0;

	(void)context;
	assert_int_equal(flags, 0);
	assert_int_equal(size, sizeof(*entries));
	verbs_host.gid_calls++;
	if (verbs_host.no_gid_table)
		return -EOPNOTSUPP;
	for (uint8_t port = 1; port <= verbs_host.ports; port++) {
		for (int i = 0; i < verbs_host.gid_count; i++) {
			struct sockaddr_storage address;

			if (!verbs_host.gids[i].text)
				continue;
			if (count == room)
				return -EINVAL;
			verbs_host_address(&address, verbs_host.gids[i].text);
			entries[count++] = (struct ibv_gid_entry){
				.gid = verbs_gid_of(&address),
				.gid_index = (uint32_t)i,
				.port_num = port,
				.gid_type = verbs_host.gids[i].second_version ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1,
			};
		}
	}
	return (ssize_t)count;
}

static int query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)context;
	(void)port;
	assert_true(index < verbs_host.pkey_count);
	*pkey = htobe16(verbs_host.pkeys[index]);
	return 0;
}

/* -- a context ------------------------------------------------------------------------------------ */

static void fill_library(struct verbs_host_rig *rig)
{
	rig->library.ibv_get_device_list = get_device_list;
	rig->library.ibv_free_device_list = free_device_list;
	rig->library.ibv_get_device_name = get_device_name;
	rig->library.ibv_open_device = open_device;
	rig->library.ibv_close_device = close_device;
	rig->library.ibv_query_device = query_device;
	rig->library.ibv_query_port = query_port;
	rig->library.ibv_alloc_pd = alloc_pd;
	rig->library.ibv_dealloc_pd = dealloc_pd;
	rig->library.ibv_query_gid = query_gid;
	rig->library._ibv_query_gid_ex = query_gid_ex;
	rig->library._ibv_query_gid_table = query_gid_table;
	rig->library.ibv_query_pkey = query_pkey;
}

struct verbs_host_rig *verbs_host_open(char *allowed)
{
	struct verbs_host_rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	fill_library(rig);
	rig->context.allocator = pl_system_allocator;
	pthread_mutex_init(&rig->context.lock, NULL);
	pl_list_init(&rig->context.regions);
	rig->context.devices = allowed;
	rig->context.fabrics[0] = &pl_verbs_fabric;
	rig->context.fabric_states[0] = &rig->state;
	assert_int_equal(pl_engine_open(&pl_system_allocator, false, 0, &rig->context.engines[0], NULL), 0);
	pl_engine_lock(rig->context.engines[0]);
	pthread_mutex_init(&rig->context.fabric_lock, NULL);
	verbs_state_init(&rig->state, &rig->context, &rig->library);
	rig->peer.context = &rig->context;
	rig->peer.home = rig->context.engines[0];
	return rig;
}

void verbs_host_close(struct verbs_host_rig *rig)
{
	verbs_ports_close(&rig->state);
	while (!pl_list_empty(&rig->state.devices)) {
		struct verbs_device *device = pl_list_first(&rig->state.devices, struct verbs_device, link);

		verbs_async_close(device);
		verbs_device_free(device);
	}
	assert_int_equal(verbs_host.opened, verbs_host.closed);
	assert_int_equal(verbs_host.pd_count, 0);
	assert_int_equal(verbs_host.looks, verbs_host.freed);
	verbs_helpers_close(&rig->state.connectors);
	verbs_registrar_close(&rig->state);
	verbs_removal_close(&rig->state);
	pl_engine_unlock(rig->context.engines[0]);
	pl_engine_close(rig->context.engines[0]);
	pl_machine_close(&rig->context);
	free(rig);
}

void verbs_host_set(const char *const *names, unsigned count, uint8_t ports, uint8_t link_layer)
{
	static const struct verbs_host_gid gid = { "10.0.0.1", true };

	memset(&verbs_host, 0, sizeof(verbs_host));
	memcpy(verbs_host.names, names, count * sizeof(*names));
	verbs_host.count = count;
	verbs_host.ports = ports;
	verbs_host.link_layer = link_layer;
	verbs_host.state = IBV_PORT_ACTIVE;
	verbs_host.gids = &gid;
	verbs_host.gid_count = 1;
	for (unsigned i = 0; i < count; i++)
		verbs_host.devices[i].transport_type = IBV_TRANSPORT_IB;
	verbs_host_interfaces(NULL, 0);
}

struct verbs_port *verbs_host_look(struct verbs_host_rig *rig)
{
	verbs_ports_look_now(&rig->state);
	return pl_list_empty(&rig->state.ports) ? NULL : pl_list_first(&rig->state.ports, struct verbs_port, link);
}

#endif
