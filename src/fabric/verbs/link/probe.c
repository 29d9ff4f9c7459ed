/* SPDX-License-Identifier: BSD-2-Clause */
/* Probes of devices: all calls of the driver that a look needs, with memory of their own. */
#include <stdio.h>

#include "fabric/verbs/verbs.h"

/* Entries of InfiniBand's table: the port's GID, and behind it that of a fabric with routers. */
#define SUBNET_GIDS 2

/* -- the list of devices -------------------------------------------------------------------------- */

static void put_listing(struct verbs_listing *listing)
{
	if (atomic_fetch_sub(&listing->users, 1) > 1)
		return;
	freeifaddrs(listing->interfaces);
	if (listing->devices)
		listing->library->ibv_free_device_list(listing->devices);
	pl_free(&pl_system_allocator, listing);
}

/* The kernel's answers about interfaces may wait for a driver, too. */
static void run_listing(struct rdma_call *call)
{
	struct verbs_listing *listing = pl_container_of(call, struct verbs_listing, call);

	listing->devices = listing->library->ibv_get_device_list(NULL);
	if (getifaddrs(&listing->interfaces))
		listing->interfaces = NULL;
}

static void drop_listing(struct rdma_call *call)
{
	put_listing(pl_container_of(call, struct verbs_listing, call));
}

struct verbs_listing *verbs_listing_start(const struct verbs_library *library)
{
	struct verbs_listing *listing = pl_zalloc(&pl_system_allocator, sizeof(*listing));

	if (!listing)
		return NULL;
	listing->library = library;
	atomic_init(&listing->users, 1);
	listing->call.run = run_listing;
	listing->call.drop = drop_listing;
	rdma_call_start(&listing->call);
	return listing;
}

/* -- devices -------------------------------------------------------------------------------------- */

/* Makes the objects that all connections of the device share. Returns 0 or a negative errno. */
static int open_device(struct verbs_probe *probe)
{
	const struct verbs_library *library = probe->library;
	struct verbs_opened *opened = &probe->opened;
	int rc;

	opened->verbs = library->ibv_open_device(probe->of);
	rc = verbs_made(opened->verbs);
	if (rc == 0)
		rc = verbs_result(library->ibv_query_device(opened->verbs, &opened->attributes));
	if (rc < 0)
		return rc;
	opened->pd = library->ibv_alloc_pd(opened->verbs);
	rc = verbs_made(opened->pd);
	if (rc < 0)
		return rc;
	opened->loop_pd = library->ibv_alloc_pd(opened->verbs);
	if (rdma_data_direct_path(library, opened->verbs, opened->data_direct_path) < 0)
		opened->data_direct_path[0] = '\0';
	opened->message_max = UINT32_MAX;
	probe->verbs = opened->verbs;
	probe->port_count = opened->attributes.phys_port_cnt;
	return 0;
}

static void read_port(const struct verbs_probe *probe, uint8_t number, struct verbs_port_seen *seen)
{
	const struct ibv_port_attr *attributes = &seen->attributes;
	const bool all = attributes->link_layer == IBV_LINK_LAYER_ETHERNET || probe->gid_index;
	const int table = all ? attributes->gid_tbl_len : PL_MIN(attributes->gid_tbl_len, SUBNET_GIDS);

	seen->gid_count = verbs_gids_read(probe->library, probe->verbs, number, table, seen->gids);
	if (probe->pkey)
		seen->pkey_obstacle = verbs_pkey_find(probe->library, probe->verbs, number, probe->pkey,
						      attributes->pkey_tbl_len, &seen->pkey_index);
	seen->known = true;
}

static int read_ports(struct verbs_probe *probe)
{
	struct verbs_opened *opened = &probe->opened;

	probe->ports = pl_zalloc(&pl_system_allocator, PL_MAX(probe->port_count, 1u) * sizeof(probe->ports[0]));
	if (!probe->ports)
		return -ENOMEM;
	for (unsigned i = 0; i < probe->port_count; i++) {
		struct verbs_port_seen *seen = &probe->ports[i];
		const uint8_t number = (uint8_t)(i + 1);

		if ((!opened->verbs && !probe->allowed[number]) ||
		    verbs_query_port(probe->library, probe->verbs, number, &seen->attributes) < 0)
			continue;
		if (opened->verbs && seen->attributes.max_msg_sz)
			opened->message_max = PL_MIN(opened->message_max, seen->attributes.max_msg_sz);
		if (probe->allowed[number])
			read_port(probe, number, seen);
	}
	return 0;
}

static void close_opened(struct verbs_probe *probe)
{
	const struct verbs_opened *opened = &probe->opened;

	if (opened->loop_pd)
		probe->library->ibv_dealloc_pd(opened->loop_pd);
	if (opened->pd)
		probe->library->ibv_dealloc_pd(opened->pd);
	if (opened->verbs)
		probe->library->ibv_close_device(opened->verbs);
	probe->opened = (struct verbs_opened){ 0 };
}

static void run_probe(struct rdma_call *call)
{
	struct verbs_probe *probe = pl_container_of(call, struct verbs_probe, call);

	if (!probe->verbs)
		probe->code = open_device(probe);
	if (probe->code == 0)
		probe->code = read_ports(probe);
	/* On this thread, because a driver that failed may not return from these calls either. */
	if (probe->code < 0)
		close_opened(probe);
}

static void drop_probe(struct rdma_call *call)
{
	struct verbs_probe *probe = pl_container_of(call, struct verbs_probe, call);

	close_opened(probe);
	put_listing(probe->listing);
	pl_free(&pl_system_allocator, probe->ports);
	pl_free(&pl_system_allocator, probe);
}

struct verbs_probe *verbs_probe_start(struct verbs_state *state, struct verbs_listing *listing, struct ibv_device *of,
				      struct verbs_device *device)
{
	const char *name = state->library->ibv_get_device_name(of);
	struct verbs_probe *probe = pl_zalloc(&pl_system_allocator, sizeof(*probe));

	if (!probe)
		return NULL;
	probe->listing = listing;
	atomic_fetch_add(&listing->users, 1);
	probe->library = state->library;
	probe->of = of;
	snprintf(probe->name, sizeof(probe->name), "%s", name);
	probe->entry = verbs_device_entry(of);
	probe->device = device;
	if (device) {
		probe->verbs = device->verbs;
		probe->port_count = device->attributes.phys_port_cnt;
	}
	probe->gid_index = state->context->options.gid_index;
	probe->pkey = state->context->options.pkey;
	for (unsigned i = 1; i <= UINT8_MAX; i++)
		probe->allowed[i] = verbs_port_is_allowed(state, device ? device->name : name, i);
	probe->call.run = run_probe;
	probe->call.drop = drop_probe;
	rdma_call_start(&probe->call);
	return probe;
}
