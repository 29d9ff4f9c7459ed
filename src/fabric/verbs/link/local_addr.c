/* SPDX-License-Identifier: BSD-2-Clause */
/* Local addresses of RDMA devices: enumeration, listeners, and the choice of those that reach a peer. */
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabric/verbs/verbs.h"

#define BACKLOG 1024
#define HINT_ADDRESS \
	"connect through an address of the card's network device, see: rdma link; or leave the fabric to be chosen"
#define HINT_IWARP "use a RoCE or InfiniBand device, or the fabric tcp"
#define HINT_NO_RC "use the fabric tcp, or a program for libfabric"
#define HINT_ENCRYPTION "do not demand it, and trust the network; or leave the fabric to be chosen"

struct sockaddr_storage verbs_address(const struct sockaddr_storage *address, uint16_t port)
{
	struct sockaddr_storage result = *address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
	struct sockaddr_in *v4 = (struct sockaddr_in *)&result;

	if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		memset(&result, 0, sizeof(result));
		v4->sin_family = AF_INET;
		memcpy(&v4->sin_addr, v6->sin6_addr.s6_addr + 12, sizeof(v4->sin_addr));
	}
	/* sin_port and sin6_port have the same offset. */
	v4->sin_port = htons(port);
	return result;
}

/* Returns the bytes of an address, most significant first. */
static const uint8_t *bytes_of(const struct sockaddr_storage *address, size_t *length)
{
	if (address->ss_family == AF_INET) {
		*length = 4;
		return (const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr;
	}
	*length = 16;
	return ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr;
}

/* True if the first `bits` bits are equal. */
static bool share(const struct sockaddr_storage *a, const struct sockaddr_storage *b, unsigned bits)
{
	size_t length;
	const uint8_t *x = bytes_of(a, &length), *y = bytes_of(b, &length);

	return a->ss_family == b->ss_family && !memcmp(x, y, bits / 8) &&
	       (bits % 8 == 0 || (x[bits / 8] ^ y[bits / 8]) >> (8 - bits % 8) == 0);
}

static bool same(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	return share(a, b, a->ss_family == AF_INET ? 32 : 128);
}

/* -- enumeration ---------------------------------------------------------------------------------- */

/* True if the program allows a device's port: it named no devices, this device, or "device:port". */
static bool wanted(const struct verbs_state *state, const char *device, uint8_t port)
{
	const char *at = state->context->devices;
	size_t length = strlen(device);

	if (!at)
		return true;
	while (*at) {
		size_t piece = strcspn(at, ",");

		if (piece >= length && !strncmp(at, device, length) &&
		    (piece == length ||
		     (at[length] == ':' && strtoul(at + length + 1, NULL, 10) == (unsigned long)port)))
			return true;
		at += piece + (at[piece] == ',');
	}
	return false;
}

/* Returns NULL if the address belongs to no allowed device. */
static struct verbs_local_addr *local_addr_new(struct verbs_state *state, struct sockaddr_storage *address,
					       unsigned prefix)
{
	const struct verbs_library *library = state->library;
	struct verbs_local_addr *addr = NULL;
	struct rdma_cm_id *id;

	if (library->rdma_create_id(state->cms[0].channel, &id, NULL, RDMA_PS_TCP))
		return NULL;
	state->iwarp = false;
	/* iWARP has neither immediate data nor atomics. */
	if (!library->rdma_bind_addr(id, (struct sockaddr *)address) && id->verbs)
		state->iwarp = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	if (id->verbs && !state->iwarp &&
	    wanted(state, library->ibv_get_device_name(id->verbs->device), id->port_num))
		addr = pl_zalloc(&state->context->allocator, sizeof(*addr));
	if (addr) {
		*addr = (struct verbs_local_addr){ .address = *address, .prefix = prefix, .port = id->port_num };
		addr->device = verbs_device_get(state, id->verbs);
	}
	library->rdma_destroy_id(id);
	if (addr && !addr->device) {
		pl_free(&state->context->allocator, addr);
		addr = NULL;
	}
	if (addr)
		pl_list_append(&state->local_addrs, &addr->link);
	return addr;
}

static struct verbs_local_addr *find_local_addr(struct verbs_state *state, const struct sockaddr_storage *address)
{
	pl_list_for_each(at, &state->local_addrs) {
		struct verbs_local_addr *addr = pl_list_entry(at, struct verbs_local_addr, link);

		if (same(&addr->address, address))
			return addr;
	}
	return NULL;
}

static unsigned prefix_of(const struct sockaddr *mask)
{
	struct sockaddr_storage storage = { 0 };
	const uint8_t *bytes;
	unsigned bits = 0;
	size_t length;

	if (!mask)
		return 0;
	memcpy(&storage, mask, mask->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	bytes = bytes_of(&storage, &length);
	while (bits < length * 8 && bytes[bits / 8] >> (7 - bits % 8) & 1)
		bits++;
	return bits;
}

static void survey_address(struct verbs_state *state, const struct ifaddrs *interface)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)interface->ifa_addr;
	struct sockaddr_storage address = { 0 };

	if (!v6 || !(interface->ifa_flags & IFF_UP) || (interface->ifa_flags & IFF_LOOPBACK))
		return;
	/* All networks share the link-local prefix. */
	if (v6->sin6_family == AF_INET)
		memcpy(&address, v6, sizeof(struct sockaddr_in));
	else if (v6->sin6_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
		memcpy(&address, v6, sizeof(struct sockaddr_in6));
	else
		return;
	if (!find_local_addr(state, &address))
		local_addr_new(state, &address, prefix_of(interface->ifa_netmask));
}

/* The caller holds the lock. */
static void survey(struct verbs_state *state)
{
	struct ifaddrs *interfaces;

	if (state->surveyed || getifaddrs(&interfaces))
		return;
	for (const struct ifaddrs *at = interfaces; at; at = at->ifa_next)
		survey_address(state, at);
	freeifaddrs(interfaces);
	state->surveyed = true;
}

/* An address that appeared after the survey has no prefix. */
static struct verbs_local_addr *local_addr_of(struct verbs_state *state, const struct sockaddr_storage *address)
{
	struct sockaddr_storage bare = verbs_address(address, 0);
	struct verbs_local_addr *addr;

	survey(state);
	addr = find_local_addr(state, &bare);
	return addr ? addr : local_addr_new(state, &bare, 0);
}

/* Finds an allowed device without reliable connections, such as EFA: neither InfiniBand, nor RoCE, nor iWARP. */
static bool find_without_rc(const struct verbs_state *state, char name[IBV_SYSFS_NAME_MAX])
{
	const struct verbs_library *library = state->library;
	struct ibv_device **devices;
	bool found = false;

	if (!library->ibv_get_device_list || !library->ibv_free_device_list)
		return false;
	devices = library->ibv_get_device_list(NULL);
	for (unsigned i = 0; devices && devices[i] && !found; i++) {
		snprintf(name, IBV_SYSFS_NAME_MAX, "%s", library->ibv_get_device_name(devices[i]));
		found = devices[i]->transport_type != IBV_TRANSPORT_IB &&
			devices[i]->transport_type != IBV_TRANSPORT_IWARP && wanted(state, name, 1);
	}
	if (devices)
		library->ibv_free_device_list(devices);
	return found;
}

/* The address belongs to no usable device. */
static int fail_without_device(struct pl_peer *peer, const struct verbs_state *state, bool iwarp,
			       struct pl_error *error)
{
	char object[PL_ADDRESS_FORMAT_MAX], device[IBV_SYSFS_NAME_MAX];

	pl_address_format((struct sockaddr *)&peer->local_address, object, sizeof(object));
	if (iwarp)
		return pl_fail(error, -ENOTSUP, "RDMA-IWARP", "rdma_bind_addr", object, HINT_IWARP,
			       "the address belongs to an iWARP device, which lacks immediate data and atomics");
	if (find_without_rc(state, device))
		return pl_fail(error, -ENOTSUP, "RDMA-NO-RC", "rdma_bind_addr", device, HINT_NO_RC,
			       "the device has no reliable connections (RC), and %s belongs to no other RDMA device",
			       object);
	return pl_fail(error, -ENODEV, "RDMA-NO-DEVICE", "rdma_bind_addr", object, HINT_ADDRESS,
		       peer->context->devices ? "there is no RDMA device of the names given"
					      : "the address belongs to no RDMA device");
}

int verbs_serves(struct pl_peer *peer, struct pl_error *error)
{
	struct verbs_state *state;
	bool any, iwarp;

	if (peer->encrypt_demanded || peer->context->options.encrypt_data == PL_ON)
		return pl_fail(error, -ENOTSUP, "RDMA-NO-ENCRYPTION", "connect", NULL, HINT_ENCRYPTION,
			       "RDMA devices send data as it is, and encryption is demanded");
	state = verbs_state_get(peer->context, error);
	if (!state)
		return -ENODEV;
	pthread_mutex_lock(&state->lock);
	any = local_addr_of(state, &peer->local_address);
	/* An explicit device list overrides the address of the control connection. */
	if (!any && peer->context->devices)
		any = !pl_list_empty(&state->local_addrs);
	iwarp = state->iwarp;
	pthread_mutex_unlock(&state->lock);
	return any ? 0 : fail_without_device(peer, state, iwarp, error);
}

/* -- acceptor ------------------------------------------------------------------------------------- */

/* A device that replaces another listens at the same port, which peers know. */
static int listen_at(struct verbs_state *state, struct verbs_local_addr *addr)
{
	struct sockaddr_storage address = verbs_address(&addr->address, addr->listens);
	struct verbs_device *device = addr->device;
	int rc = 0;

	if (addr->listener)
		return 0;
	if (state->library->rdma_create_id(state->cms[0].channel, &addr->listener, NULL, RDMA_PS_TCP)) {
		addr->listener = NULL;
		return -errno;
	}
	if (state->library->rdma_bind_addr(addr->listener, (struct sockaddr *)&address) ||
	    state->library->rdma_listen(addr->listener, BACKLOG)) {
		rc = -errno;
	} else if (atomic_load(&device->gone)) {
		device = addr->listener->verbs ? verbs_device_get(state, addr->listener->verbs) : NULL;
		if (!device || atomic_load(&device->gone))
			rc = -ENODEV;
	}
	if (rc < 0) {
		state->library->rdma_destroy_id(addr->listener);
		addr->listener = NULL;
		return rc;
	}
	addr->device = device;
	addr->listens = ntohs(state->library->rdma_get_src_port(addr->listener));
	return 0;
}

void verbs_local_addrs_leave(struct verbs_state *state, const struct verbs_device *device)
{
	pl_list_for_each(at, &state->local_addrs) {
		struct verbs_local_addr *addr = pl_list_entry(at, struct verbs_local_addr, link);

		if (addr->device != device || !addr->listener)
			continue;
		state->library->rdma_destroy_id(addr->listener);
		addr->listener = NULL;
	}
}

bool verbs_local_addrs_return(struct verbs_state *state)
{
	bool complete = true;

	pl_list_for_each(at, &state->local_addrs) {
		struct verbs_local_addr *addr = pl_list_entry(at, struct verbs_local_addr, link);

		if (addr->listens && listen_at(state, addr) < 0)
			complete = false;
	}
	return complete;
}

static bool offered(const struct verbs_endpoint *endpoint, const struct verbs_local_addr *addr)
{
	for (unsigned i = 0; i < endpoint->local_addr_count; i++)
		if (endpoint->local_addrs[i]->device == addr->device && endpoint->local_addrs[i]->port == addr->port)
			return true;
	return false;
}

/* Advertises one address of each port. */
static int advertise_addr(struct verbs_endpoint *endpoint, struct verbs_local_addr *addr)
{
	int rc;

	if (!addr || endpoint->local_addr_count == VERBS_LOCAL_ADDRS || offered(endpoint, addr))
		return 0;
	rc = listen_at(endpoint->state, addr);
	if (rc == 0)
		endpoint->local_addrs[endpoint->local_addr_count++] = addr;
	return rc;
}

int verbs_listen_for_peer(struct verbs_endpoint *endpoint)
{
	struct verbs_state *state = endpoint->state;
	struct sockaddr_storage local = verbs_address(&endpoint->base.peer->local_address, 0);
	int rc;

	pthread_mutex_lock(&state->lock);
	rc = advertise_addr(endpoint, local_addr_of(state, &local));
	pl_list_for_each(at, &state->local_addrs) {
		struct verbs_local_addr *addr = pl_list_entry(at, struct verbs_local_addr, link);

		if (addr->address.ss_family == local.ss_family || endpoint->base.peer->context->devices)
			advertise_addr(endpoint, addr);
	}
	pthread_mutex_unlock(&state->lock);
	if (endpoint->local_addr_count)
		return 0;
	return rc < 0 ? rc : -ENODEV;
}

void verbs_advert_write(const struct verbs_endpoint *endpoint, struct pl_writer *writer)
{
	unsigned rails = endpoint->state->context->options.rails;

	pl_put_u8(writer, (uint8_t)(rails ? rails : VERBS_RAILS));
	pl_put_u8(writer, (uint8_t)endpoint->local_addr_count);
	for (unsigned i = 0; i < endpoint->local_addr_count; i++) {
		const struct verbs_local_addr *addr = endpoint->local_addrs[i];
		uint8_t address[16] = { 0 };
		size_t length;
		const uint8_t *bytes = bytes_of(&addr->address, &length);

		memcpy(address, bytes, length);
		pl_put_u8(writer, addr->address.ss_family == AF_INET ? 4 : 6);
		pl_put_bytes(writer, address, sizeof(address));
		pl_put_u16(writer, addr->listens);
	}
}

/* -- initiator ------------------------------------------------------------------------------------ */

/* Pairs of local and remote address, each with its own port of a card. */
struct paths {
	struct {
		const struct verbs_local_addr *addr;
		struct sockaddr_storage from, to;
		uint8_t number;
	} list[VERBS_LOCAL_ADDRS];
	unsigned count;
};

static int read_remote_addr(struct pl_reader *reader, struct sockaddr_storage *address)
{
	uint8_t version = pl_get_u8(reader), bytes[16];
	uint16_t port;
	size_t length;

	pl_get_bytes(reader, bytes, sizeof(bytes));
	port = pl_get_u16(reader);
	if (reader->bad || (version != 4 && version != 6) || !port)
		return -EPROTO;
	*address = (struct sockaddr_storage){ .ss_family = version == 4 ? AF_INET : AF_INET6 };
	bytes_of(address, &length);
	memcpy((uint8_t *)(uintptr_t)bytes_of(address, &length), bytes, length);
	*address = verbs_address(address, port);
	return 0;
}

static void add_path(struct paths *paths, const struct verbs_local_addr *addr, const struct sockaddr_storage *from,
		     const struct sockaddr_storage *to, unsigned number)
{
	if (paths->count == VERBS_LOCAL_ADDRS)
		return;
	for (unsigned i = 0; i < paths->count; i++)
		if (paths->list[i].addr->device == addr->device && paths->list[i].addr->port == addr->port)
			return;
	paths->list[paths->count].addr = addr;
	paths->list[paths->count].from = *from;
	paths->list[paths->count].to = *to;
	paths->list[paths->count++].number = (uint8_t)number;
}

/* Uses the addresses of the control connection if devices have them, else two of the same network. */
static void find_path(struct verbs_endpoint *endpoint, const struct sockaddr_storage *to, unsigned number,
		      struct paths *paths)
{
	struct pl_peer *peer = endpoint->base.peer;
	struct sockaddr_storage there =
		verbs_address(&peer->address, ntohs(((const struct sockaddr_in *)to)->sin_port));
	struct sockaddr_storage here = verbs_address(&peer->local_address, 0);
	const struct verbs_local_addr *addr = local_addr_of(endpoint->state, &here);

	if (addr && same(&there, to)) {
		add_path(paths, addr, &here, &there, number);
		return;
	}
	pl_list_for_each(at, &endpoint->state->local_addrs) {
		unsigned before = paths->count;

		addr = pl_list_entry(at, struct verbs_local_addr, link);
		if (addr->prefix && share(&addr->address, to, addr->prefix))
			add_path(paths, addr, &addr->address, to, number);
		if (paths->count > before)
			return;
	}
}

/* Chooses one rail for each of two cards, or as many rails as requested, over all cards. */
static void choose_rails(struct verbs_endpoint *endpoint, const struct paths *paths, unsigned limit)
{
	unsigned rails = endpoint->state->context->options.rails;
	unsigned count = rails ? rails : PL_MIN(paths->count, VERBS_RAILS_DEFAULT);

	endpoint->rail_count = PL_MIN(count, PL_MIN(limit, VERBS_RAILS));
	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];
		unsigned n = i % paths->count;

		rail->from = paths->list[n].from;
		rail->to = paths->list[n].to;
		rail->address_index = paths->list[n].number;
		rail->device = paths->list[n].addr->device;
	}
}

int verbs_advert_read(struct verbs_endpoint *endpoint, struct pl_reader *reader)
{
	unsigned limit = pl_get_u8(reader), count = pl_get_u8(reader);
	struct paths paths = { .count = 0 };
	struct sockaddr_storage to;
	int rc = 0;

	if (reader->bad || !limit || !count || count > VERBS_LOCAL_ADDRS)
		return -EPROTO;
	pthread_mutex_lock(&endpoint->state->lock);
	for (unsigned i = 0; rc == 0 && i < count; i++) {
		rc = read_remote_addr(reader, &to);
		if (rc == 0)
			find_path(endpoint, &to, i, &paths);
	}
	pthread_mutex_unlock(&endpoint->state->lock);
	if (rc < 0)
		return rc;
	if (!paths.count)
		return -ENODEV;
	choose_rails(endpoint, &paths, limit);
	return 0;
}

/* -- the end -------------------------------------------------------------------------------------- */

void verbs_local_addrs_close(struct verbs_state *state)
{
	while (!pl_list_empty(&state->local_addrs)) {
		struct verbs_local_addr *addr = pl_list_first(&state->local_addrs, struct verbs_local_addr, link);

		pl_list_remove(&addr->link);
		if (addr->listener)
			state->library->rdma_destroy_id(addr->listener);
		pl_free(&state->context->allocator, addr);
	}
}
