/* SPDX-License-Identifier: BSD-2-Clause */
/* Local addresses of RDMA devices: enumeration, listeners, and the choice of those that reach a peer. */
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>

#include "fabric/verbs/verbs.h"

#define BACKLOG 1024
#define HINT_ADDRESS \
	"connect through an address of the card's network device, see: rdma link; or leave the fabric to be chosen"
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
static struct verbs_local_addr *place_new(struct verbs_state *state, struct sockaddr_storage *address, unsigned prefix)
{
	const struct verbs_library *library = state->library;
	struct verbs_local_addr *place = NULL;
	struct rdma_cm_id *id;

	if (library->rdma_create_id(state->cms[0].channel, &id, NULL, RDMA_PS_TCP))
		return NULL;
	if (!library->rdma_bind_addr(id, (struct sockaddr *)address) && id->verbs &&
	    wanted(state, library->ibv_get_device_name(id->verbs->device), id->port_num))
		place = pl_zalloc(&state->context->allocator, sizeof(*place));
	if (place) {
		*place = (struct verbs_local_addr){ .address = *address, .prefix = prefix, .port = id->port_num };
		place->device = verbs_device_get(state, id->verbs);
	}
	library->rdma_destroy_id(id);
	if (place && !place->device) {
		pl_free(&state->context->allocator, place);
		place = NULL;
	}
	if (place)
		pl_list_append(&state->places, &place->link);
	return place;
}

static struct verbs_local_addr *find_local_addr(struct verbs_state *state, const struct sockaddr_storage *address)
{
	pl_list_for_each(at, &state->places) {
		struct verbs_local_addr *place = pl_list_entry(at, struct verbs_local_addr, link);

		if (same(&place->address, address))
			return place;
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
		place_new(state, &address, prefix_of(interface->ifa_netmask));
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
	struct verbs_local_addr *place;

	survey(state);
	place = find_local_addr(state, &bare);
	return place ? place : place_new(state, &bare, 0);
}

int verbs_serves(struct pl_peer *peer, struct pl_error *error)
{
	struct verbs_state *state;
	char object[PL_ADDRESS_FORMAT_MAX];
	bool any;

	if (peer->encrypt || (peer->context->tls && peer->context->options.encrypt_data == PL_ON))
		return pl_fail(error, -ENOTSUP, "RDMA-NO-ENCRYPTION", "connect", NULL, HINT_ENCRYPTION,
			       "RDMA devices send data as it is, and encryption is demanded");
	state = verbs_state_get(peer->context, error);
	if (!state)
		return -ENODEV;
	pthread_mutex_lock(&state->lock);
	any = local_addr_of(state, &peer->local_address);
	/* An explicit device list overrides the address of the control connection. */
	if (!any && peer->context->devices)
		any = !pl_list_empty(&state->places);
	pthread_mutex_unlock(&state->lock);
	if (any)
		return 0;
	pl_address_format((struct sockaddr *)&peer->local_address, object, sizeof(object));
	return pl_fail(error, -ENODEV, "RDMA-NO-DEVICE", "rdma_bind_addr", object, HINT_ADDRESS,
		       peer->context->devices ? "there is no RDMA device of the names given"
					      : "the address belongs to no RDMA device");
}

/* -- acceptor ------------------------------------------------------------------------------------- */

/* A device that replaces another listens at the same port, which peers know. */
static int listen_at(struct verbs_state *state, struct verbs_local_addr *place)
{
	struct sockaddr_storage address = verbs_address(&place->address, place->listens);
	struct verbs_device *device = place->device;
	int rc = 0;

	if (place->listener)
		return 0;
	if (state->library->rdma_create_id(state->cms[0].channel, &place->listener, NULL, RDMA_PS_TCP)) {
		place->listener = NULL;
		return -errno;
	}
	if (state->library->rdma_bind_addr(place->listener, (struct sockaddr *)&address) ||
	    state->library->rdma_listen(place->listener, BACKLOG)) {
		rc = -errno;
	} else if (atomic_load(&device->gone)) {
		device = place->listener->verbs ? verbs_device_get(state, place->listener->verbs) : NULL;
		if (!device || atomic_load(&device->gone))
			rc = -ENODEV;
	}
	if (rc < 0) {
		state->library->rdma_destroy_id(place->listener);
		place->listener = NULL;
		return rc;
	}
	place->device = device;
	place->listens = ntohs(state->library->rdma_get_src_port(place->listener));
	return 0;
}

void verbs_local_addrs_leave(struct verbs_state *state, const struct verbs_device *device)
{
	pl_list_for_each(at, &state->places) {
		struct verbs_local_addr *place = pl_list_entry(at, struct verbs_local_addr, link);

		if (place->device != device || !place->listener)
			continue;
		state->library->rdma_destroy_id(place->listener);
		place->listener = NULL;
	}
}

bool verbs_local_addrs_return(struct verbs_state *state)
{
	bool complete = true;

	pl_list_for_each(at, &state->places) {
		struct verbs_local_addr *place = pl_list_entry(at, struct verbs_local_addr, link);

		if (place->listens && listen_at(state, place) < 0)
			complete = false;
	}
	return complete;
}

static bool offered(const struct verbs_endpoint *endpoint, const struct verbs_local_addr *place)
{
	for (unsigned i = 0; i < endpoint->place_count; i++)
		if (endpoint->places[i]->device == place->device && endpoint->places[i]->port == place->port)
			return true;
	return false;
}

/* Advertises one address of each port. */
static int offer_place(struct verbs_endpoint *endpoint, struct verbs_local_addr *place)
{
	int rc;

	if (!place || endpoint->place_count == VERBS_LOCAL_ADDRS || offered(endpoint, place))
		return 0;
	rc = listen_at(endpoint->state, place);
	if (rc == 0)
		endpoint->places[endpoint->place_count++] = place;
	return rc;
}

int verbs_listen_for_peer(struct verbs_endpoint *endpoint)
{
	struct verbs_state *state = endpoint->state;
	struct sockaddr_storage local = verbs_address(&endpoint->base.peer->local_address, 0);
	int rc;

	pthread_mutex_lock(&state->lock);
	rc = offer_place(endpoint, local_addr_of(state, &local));
	pl_list_for_each(at, &state->places) {
		struct verbs_local_addr *place = pl_list_entry(at, struct verbs_local_addr, link);

		if (place->address.ss_family == local.ss_family || endpoint->base.peer->context->devices)
			offer_place(endpoint, place);
	}
	pthread_mutex_unlock(&state->lock);
	if (endpoint->place_count)
		return 0;
	return rc < 0 ? rc : -ENODEV;
}

void verbs_advert_write(const struct verbs_endpoint *endpoint, struct pl_writer *writer)
{
	unsigned rails = endpoint->state->context->options.rails;

	pl_put_u8(writer, (uint8_t)(rails ? rails : VERBS_RAILS));
	pl_put_u8(writer, (uint8_t)endpoint->place_count);
	for (unsigned i = 0; i < endpoint->place_count; i++) {
		const struct verbs_local_addr *place = endpoint->places[i];
		uint8_t address[16] = { 0 };
		size_t length;
		const uint8_t *bytes = bytes_of(&place->address, &length);

		memcpy(address, bytes, length);
		pl_put_u8(writer, place->address.ss_family == AF_INET ? 4 : 6);
		pl_put_bytes(writer, address, sizeof(address));
		pl_put_u16(writer, place->listens);
	}
}

/* -- initiator ------------------------------------------------------------------------------------ */

/* Pairs of local and remote address, each with its own port of a card. */
struct paths {
	struct {
		const struct verbs_local_addr *place;
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

static void add_path(struct paths *paths, const struct verbs_local_addr *place, const struct sockaddr_storage *from,
		     const struct sockaddr_storage *to, unsigned number)
{
	if (paths->count == VERBS_LOCAL_ADDRS)
		return;
	for (unsigned i = 0; i < paths->count; i++)
		if (paths->list[i].place->device == place->device && paths->list[i].place->port == place->port)
			return;
	paths->list[paths->count].place = place;
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
	const struct verbs_local_addr *place = local_addr_of(endpoint->state, &here);

	if (place && same(&there, to)) {
		add_path(paths, place, &here, &there, number);
		return;
	}
	pl_list_for_each(at, &endpoint->state->places) {
		unsigned before = paths->count;

		place = pl_list_entry(at, struct verbs_local_addr, link);
		if (place->prefix && share(&place->address, to, place->prefix))
			add_path(paths, place, &place->address, to, number);
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
		rail->place = paths->list[n].number;
		rail->device = paths->list[n].place->device;
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
	while (!pl_list_empty(&state->places)) {
		struct verbs_local_addr *place = pl_list_first(&state->places, struct verbs_local_addr, link);

		pl_list_remove(&place->link);
		if (place->listener)
			state->library->rdma_destroy_id(place->listener);
		pl_free(&state->context->allocator, place);
	}
}
