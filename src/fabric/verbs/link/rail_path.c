/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pairs of ports: the acceptor advertises its ports, and the initiator pairs them with its own. The best pair is that
 * of the control connection, then two ports of one network, and last ports with the same number: networks of some
 * clusters route each port's packets, so that no two ports share a subnet. Whether a path works shows the first message
 * over it (rail_handshake.c).
 */
#include "fabric/verbs/verbs.h"

#define HINT_DEVICES "see the names with: rdma link"
#define HINT_PORT "see the port's cable, switch and interface with: rdma link"
#define HINT_OPEN "give the process access to /dev/infiniband/uverbs*, and see: ulimit -l, and rdma.max of its cgroup"
#define HINT_IWARP "use a RoCE or InfiniBand device, or the fabric tcp"
#define HINT_NO_RC "use the fabric tcp, or a program for libfabric"
#define HINT_ENCRYPTION "do not demand it, and trust the network; or leave the fabric to be chosen"

/* -- usable ports --------------------------------------------------------------------------------- */

static int fail_without_port(const struct verbs_state *state, struct pl_error *error)
{
	const char *device = state->obstacle.device;
	int code = state->obstacle.code;

	switch (state->obstacle.kind) {
	case VERBS_NO_OBSTACLE:
	case VERBS_SILENT:
		return verbs_look_fail(state, error);
	case VERBS_IWARP:
		return pl_fail(error, -ENOTSUP, "RDMA-IWARP", "ibv_get_device_list", device, HINT_IWARP,
			       "it is an iWARP device, which lacks immediate data and atomics");
	case VERBS_NO_RC:
		return pl_fail(error, -ENOTSUP, "RDMA-NO-RC", "ibv_get_device_list", device, HINT_NO_RC,
			       "the device has no reliable connections (RC), and there is no other RDMA device");
	case VERBS_CLOSED:
		if (pl_lacks_descriptor(code))
			return pl_fail_errno(error, code, "RDMA-NO-DEVICE", "ibv_open_device", device);
		return pl_fail(error, -ENODEV, "RDMA-NO-DEVICE", "ibv_open_device", device, HINT_OPEN,
			       "the device cannot be opened (%s)",
			       strerrorname_np(-code) ? strerrorname_np(-code) : "unknown error");
	case VERBS_INACTIVE:
		return pl_fail(error, -ENODEV, "RDMA-NO-DEVICE", "ibv_query_port", device, HINT_PORT,
			       "no port of the RDMA devices is active");
	case VERBS_NO_GID:
	case VERBS_NO_PKEY:
	case VERBS_LIMITED_PKEY:
		return verbs_exclusion_fail(state, error);
	default:
		if (state->context->devices)
			return pl_fail(error, -ENODEV, "RDMA-NO-DEVICE", "ibv_get_device_list", state->context->devices,
				       HINT_DEVICES, "there is no RDMA device of the names given");
		return pl_fail(error, -ENODEV, "RDMA-NO-DEVICE", "ibv_get_device_list", NULL, VERBS_HINT_DEVICE,
			       "there is no RDMA device");
	}
}

/* True if connections can begin at the port. */
static bool is_usable(const struct verbs_port *port)
{
	return port->active && !port->excluded && (port->gid_count || port->link_layer != IBV_LINK_LAYER_ETHERNET);
}

static bool any_usable(const struct verbs_state *state)
{
	pl_list_for_each(at, &state->ports)
		if (is_usable(pl_list_entry(at, struct verbs_port, link)))
			return true;
	return false;
}

int verbs_serves(struct pl_peer *peer, struct pl_error *error)
{
	struct verbs_state *state;
	int rc = 0;

	if (peer->encrypt_demanded || peer->context->options.encrypt_data == PL_ON)
		return pl_fail(error, -ENOTSUP, "RDMA-NO-ENCRYPTION", "connect", NULL, HINT_ENCRYPTION,
			       "RDMA devices send data as it is, and encryption is demanded");
	state = verbs_state_get(peer->context, error);
	if (!state)
		return -ENODEV;
	verbs_ports_look(state, peer->opening ? peer->opening->deadline : UINT64_MAX);
	pthread_mutex_lock(&state->lock);
	if (!any_usable(state))
		rc = fail_without_port(state, error);
	pthread_mutex_unlock(&state->lock);
	return rc;
}

int verbs_list_ports(struct verbs_endpoint *endpoint)
{
	struct verbs_state *state = endpoint->state;
	union ibv_gid here = verbs_gid_of(&endpoint->base.peer->local_address);

	pthread_mutex_lock(&state->lock);
	pl_list_for_each(at, &state->ports) {
		struct verbs_port *port = pl_list_entry(at, struct verbs_port, link);
		const struct verbs_gid *gid = verbs_port_offer(port, &here);

		if (!is_usable(port) || endpoint->port_count == VERBS_PORTS_MAX)
			continue;
		endpoint->ports[endpoint->port_count] = port;
		if (gid)
			endpoint->gids[endpoint->port_count] = gid->gid;
		endpoint->port_count++;
	}
	pthread_mutex_unlock(&state->lock);
	return endpoint->port_count ? 0 : -ENODEV;
}

/* -- acceptor ------------------------------------------------------------------------------------- */

void verbs_advert_write(const struct verbs_endpoint *endpoint, struct pl_writer *writer)
{
	unsigned rails = endpoint->state->context->options.rails;

	pl_put_u8(writer, (uint8_t)(rails ? rails : VERBS_RAILS));
	pl_put_u8(writer, (uint8_t)endpoint->port_count);
	for (unsigned i = 0; i < endpoint->port_count; i++) {
		pl_put_u8(writer, endpoint->ports[i]->link_layer);
		pl_put_bytes(writer, endpoint->gids[i].raw, sizeof(endpoint->gids[i].raw));
	}
}

/* -- initiator ------------------------------------------------------------------------------------ */

/*
 * Fitness of two ports for each other. ROUTED: the networks may know a way from one port to another one with a
 * different number.
 */
enum fit { FIT_NONE, FIT_ROUTED, FIT_NUMBER, FIT_NETWORK, FIT_NETWORK_AND_NUMBER, FIT_CONTROL, FIT_END };

struct pair {
	unsigned near, far;
	union ibv_gid gid;
};

struct pairing {
	struct verbs_endpoint *endpoint;
	union ibv_gid here, there; /* of the control connection */
	uint16_t near, far;        /* ports that are not paired yet */
	struct pair pairs[VERBS_PORTS_MAX];
	unsigned count;
};

/* True if the first `bits` bits are equal. */
static bool share(const union ibv_gid *a, const union ibv_gid *b, unsigned bits)
{
	return !memcmp(a->raw, b->raw, bits / 8) &&
	       (bits % 8 == 0 || (a->raw[bits / 8] ^ b->raw[bits / 8]) >> (8 - bits % 8) == 0);
}

/* Returns the port's address in a network of the other end's, or NULL. */
static const struct verbs_gid *find_network(const struct verbs_port *port, const union ibv_gid *far)
{
	const bool ethernet = port->link_layer == IBV_LINK_LAYER_ETHERNET;

	for (unsigned i = 0; i < port->gid_count; i++) {
		const struct verbs_gid *gid = &port->gids[i];

		if (ethernet ? gid->prefix && share(&gid->gid, far, gid->prefix)
			     : verbs_gid_same_subnet(&gid->gid, far))
			return gid;
	}
	return NULL;
}

static enum fit fit_of(const struct pairing *pairing, unsigned near, unsigned far, union ibv_gid *gid)
{
	const struct verbs_port *port = pairing->endpoint->ports[near];
	const struct verbs_far_port *other = &pairing->endpoint->far_ports[far];
	const struct verbs_gid *found = find_network(port, &other->gid);
	const struct verbs_gid *any = verbs_port_gid(port, &other->gid);

	if (port->link_layer != other->link_layer)
		return FIT_NONE;
	for (unsigned i = 0; i < port->gid_count; i++) {
		if (verbs_gid_same(&port->gids[i].gid, &pairing->here) && verbs_gid_same(&other->gid, &pairing->there)) {
			*gid = pairing->here;
			return FIT_CONTROL;
		}
	}
	if (found || any)
		*gid = found ? found->gid : any->gid;
	if (found)
		return near == far ? FIT_NETWORK_AND_NUMBER : FIT_NETWORK;
	/* On InfiniBand the port's number suffices. */
	if (!any && port->link_layer == IBV_LINK_LAYER_ETHERNET)
		return FIT_NONE;
	return near == far ? FIT_NUMBER : FIT_ROUTED;
}

/* Pairs the ports that fit so well, each once. */
static void pair_ports(struct pairing *pairing, enum fit wanted)
{
	const struct verbs_endpoint *endpoint = pairing->endpoint;

	for (unsigned far = 0; far < endpoint->far_port_count; far++) {
		for (unsigned near = 0; near < endpoint->port_count && pairing->far & 1u << far; near++) {
			union ibv_gid gid = { .raw = { 0 } };

			if (!(pairing->near & 1u << near) || fit_of(pairing, near, far, &gid) != wanted)
				continue;
			pairing->near &= (uint16_t)~(1u << near);
			pairing->far &= (uint16_t)~(1u << far);
			pairing->pairs[pairing->count++] = (struct pair){ near, far, gid };
		}
	}
}

/* Pairs ports of both masks (0: all), the best pairs first. The state's lock is held. */
static void make_pairs(struct pairing *pairing, struct verbs_endpoint *endpoint, uint16_t near, uint16_t far,
		       enum fit least)
{
	*pairing = (struct pairing){
		.endpoint = endpoint,
		.here = verbs_gid_of(&endpoint->base.peer->local_address),
		.there = verbs_gid_of(&endpoint->base.peer->address),
		.near = near ? near : UINT16_MAX,
		.far = far ? far : UINT16_MAX,
	};
	for (enum fit fit = FIT_END; fit-- > least;)
		pair_ports(pairing, fit);
}

static void add_rail(struct verbs_endpoint *endpoint, const struct pair *pair)
{
	struct verbs_rail *rail = &endpoint->rails[endpoint->rail_count++];

	rail->port = endpoint->ports[pair->near];
	rail->device = rail->port->device;
	rail->gid = rail->chosen_gid = pair->gid;
	rail->near_port = (uint8_t)pair->near;
	rail->far_port = (uint8_t)pair->far;
	rail->far_gid = endpoint->far_ports[pair->far].gid;
}

/*
 * Chooses one rail for each of two pairs, and a second one for ports that one queue pair does not fill; or as many rails
 * as requested, over all pairs.
 */
static void choose_rails(struct pairing *pairing)
{
	struct verbs_endpoint *endpoint = pairing->endpoint;
	unsigned rails = endpoint->state->context->options.rails;
	unsigned pairs = rails ? pairing->count : PL_MIN(pairing->count, VERBS_RAILS_DEFAULT);
	unsigned most = PL_MIN(rails ? rails : VERBS_RAILS, endpoint->rails_most);

	for (unsigned i = 0; i < VERBS_RAILS * pairs && endpoint->rail_count < most; i++) {
		const struct pair *pair = &pairing->pairs[i % pairs];

		if (rails || i < pairs || (i < 2 * pairs && endpoint->ports[pair->near]->wide))
			add_rail(endpoint, pair);
	}
}

int verbs_advert_read(struct verbs_endpoint *endpoint, struct pl_reader *reader)
{
	struct pairing pairing;
	unsigned limit = pl_get_u8(reader);

	endpoint->rails_most = PL_MIN(limit, VERBS_RAILS);
	endpoint->far_port_count = pl_get_u8(reader);
	if (reader->bad || !limit || !endpoint->far_port_count || endpoint->far_port_count > VERBS_PORTS_MAX)
		return -EPROTO;
	for (unsigned i = 0; i < endpoint->far_port_count; i++) {
		struct verbs_far_port *far = &endpoint->far_ports[i];

		far->link_layer = pl_get_u8(reader);
		pl_get_bytes(reader, far->gid.raw, sizeof(far->gid.raw));
	}
	if (reader->bad || reader->at != reader->end)
		return -EPROTO;
	if (verbs_list_ports(endpoint) < 0)
		return -ENODEV;
	pthread_mutex_lock(&endpoint->state->lock);
	make_pairs(&pairing, endpoint, 0, 0, FIT_NUMBER);
	if (pairing.count)
		choose_rails(&pairing);
	pthread_mutex_unlock(&endpoint->state->lock);
	verbs_choices_open(endpoint);
	return pairing.count ? 0 : -ENODEV;
}

/* Returns the rails between ports of both masks. */
static uint8_t find_rails(const struct verbs_endpoint *endpoint, uint16_t near, uint16_t far)
{
	uint8_t mask = 0;

	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		const struct verbs_rail *rail = &endpoint->rails[i];

		if ((!near || near & 1u << rail->near_port) && (!far || far & 1u << rail->far_port))
			mask |= (uint8_t)(1u << i);
	}
	return mask;
}

/* Adds a rail, or two where one queue pair does not fill the port, as far as there is room. Returns them. */
static uint8_t add_rails(struct verbs_endpoint *endpoint, const struct pair *pair)
{
	unsigned wanted = endpoint->ports[pair->near]->wide ? 2 : 1;
	uint8_t added = 0;

	for (unsigned i = 0; i < wanted && endpoint->rail_count < endpoint->rails_most; i++) {
		added |= (uint8_t)(1u << endpoint->rail_count);
		add_rail(endpoint, pair);
	}
	return added;
}

uint8_t verbs_rails_between(struct verbs_endpoint *endpoint, uint16_t near, uint16_t far)
{
	unsigned before = endpoint->rail_count;
	struct pairing pairing;
	uint8_t mask = 0;

	/* A program that sets the number of rails has all of them from the start. */
	if (endpoint->state->context->options.rails)
		return find_rails(endpoint, near, far);
	pthread_mutex_lock(&endpoint->state->lock);
	make_pairs(&pairing, endpoint, near, far, FIT_ROUTED);
	for (unsigned i = 0; i < PL_MIN(pairing.count, VERBS_CARDS_DEFAULT); i++) {
		const struct pair *pair = &pairing.pairs[i];
		uint8_t found = find_rails(endpoint, (uint16_t)(1u << pair->near), (uint16_t)(1u << pair->far));

		mask |= found ? found : add_rails(endpoint, pair);
	}
	pthread_mutex_unlock(&endpoint->state->lock);
	for (unsigned i = before; i < endpoint->rail_count; i++)
		verbs_dial(&endpoint->rails[i]);
	return mask;
}
