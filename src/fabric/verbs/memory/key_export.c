/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys of this end's memory, as peers get them: windows, or registrations with their own range and rights.
 *
 * A driver may give a new registration the rkey of one that it ended just before. A peer that kept a revoked key must not
 * reach the new registration by it. So each grant without windows has addresses of its own at the devices, which no
 * earlier grant of the context had: a device refuses an old address. Random gaps between them keep a peer from guessing
 * those of a later grant. Windows are bound to one queue pair, and their addresses are those of the memory, as are the
 * addresses of a registration beside windows of the same key.
 */
#include "fabric/verbs/memory/near.h"
#include "fabric/verbs/verbs.h"
#include "rdma/vendor.h"

/* Addresses that grants without windows have at devices: above those of any process. */
#define FAR_BEGIN (1ull << 60)
#define FAR_END (1ull << 63)
/* Parts of mlx4. */
#define MLX4_FIRST 0x1002u
#define MLX4_LAST 0x1010u
#define MLX4_OLD_FIRST 0x6340u
#define MLX4_OLD_LAST 0x6778u
/* Devices use pages of at most this size well if memory and device address agree in the bits below it. */
#define FAR_STEP_MIN (64ull << 10)
#define FAR_STEP_MAX (1ull << 30)
/* Gap before the addresses of a grant: below this many bytes and, for long grants, this many steps. */
#define FAR_GAP (1ull << 32)
#define FAR_GAP_STEPS 1024u

static const char windows_only[] = "verbs: only this peer's queue pairs reach the grant, by memory windows";

static const char far_only[] =
	"verbs: every peer of this context that learns its key reaches the grant, a registration: no device near the "
	"memory reaches it";

/* Keys of a grant or of a large message, by rail. */
struct exports {
	uint32_t rkeys[VERBS_RAILS];
	uint8_t present, windows; /* masks of rails */
	uint16_t near, expected;  /* masks of ports: near the memory, and of these, with windows for rails to come */
	const char *reach;
	int rc;           /* of the last device that does not reach the memory */
	bool registering; /* a thread registers the memory, and a later call exports it */
};

static unsigned near_of(struct verbs_state *state, const struct pl_key *key)
{
	return verbs_near_find(state, verbs_region_of(key)) & ~VERBS_NEAR_KNOWN;
}

void verbs_note_exported(const struct verbs_rail *rail, const struct pl_key *key)
{
	if (rail->port->place < VERBS_PLACES)
		atomic_fetch_or(&verbs_region_of(key)->exported, 1u << rail->port->place);
}

/* Notes that a device does not reach the memory, or not yet. */
static void note_failure(struct exports *exports, int rc)
{
	if (rc == -EINPROGRESS)
		exports->registering = true;
	else
		exports->rc = rc;
}

/* Takes the next addresses for the bytes of a key. A new lap begins after 2^31 short grants, or 2^23 long ones. */
static uint64_t take_far_addresses(struct verbs_state *state, const struct pl_key *key)
{
	uint64_t step = FAR_STEP_MIN, gap, begin = PL_MAX(state->far_next, FAR_BEGIN), address;

	while (step < key->length && step < FAR_STEP_MAX)
		step *= 2;
	/* Without random numbers, the addresses are new all the same. */
	if (pl_random(&gap, sizeof(gap)) < 0)
		gap = 0;
	gap = step + gap % PL_MAX(FAR_GAP, step * FAR_GAP_STEPS);
	if (begin + gap + step + key->length > FAR_END)
		begin = FAR_BEGIN;
	address = (begin + gap) / step * step + verbs_near_address(key) % step;
	state->far_next = address + key->length;
	return address;
}

bool verbs_serves_far_addresses(const struct ibv_device_attr *attributes)
{
	const uint32_t part = attributes->vendor_part_id;

	if (attributes->vendor_id == RDMA_VENDOR_MELLANOX)
		return (part < MLX4_FIRST || part > MLX4_LAST) && (part < MLX4_OLD_FIRST || part > MLX4_OLD_LAST);
	return attributes->vendor_id == RDMA_VENDOR_HISILICON || attributes->vendor_id == RDMA_VENDOR_QLOGIC;
}

/*
 * True if all devices that may give the peer the key register memory with other addresses: those of all rails, of which
 * each may have to carry the transfers of another one, and of the ports near the memory.
 */
static bool all_serve_far_addresses(const struct verbs_endpoint *endpoint, uint16_t near)
{
	bool all = endpoint->state->library->ibv_reg_mr_iova2;

	for (unsigned i = 0; i < endpoint->rail_count; i++)
		all &= endpoint->rails[i].device->far_addresses;
	for (unsigned i = 0; i < endpoint->port_count; i++)
		all &= !(near & 1u << i) || endpoint->ports[i]->device->far_addresses;
	return all;
}

/* Chooses the addresses of a key for its peer, once. */
static void choose_addresses(const struct verbs_endpoint *endpoint, struct pl_grant *grant, struct pl_key *key,
			     const struct exports *exports)
{
	uint64_t *shared = grant ? &grant->far_address : &key->far_address;

	if (key->far_address)
		return;
	/* The peer uses one address over all rails. */
	if (exports->expected || exports->windows || !all_serve_far_addresses(endpoint, exports->near)) {
		key->far_address = verbs_near_address(key);
		return;
	}
	if (!*shared)
		*shared = take_far_addresses(endpoint->state, key);
	key->far_address = *shared;
}

bool verbs_key_serves_windows(const struct pl_key *key)
{
	return key->far_address == verbs_near_address(key);
}

static void note_rail(struct verbs_rail *rail, const struct pl_key *key, uint8_t *mask)
{
	*mask |= verbs_bit_of(rail);
	verbs_note_exported(rail, key);
}

/* Makes windows over some rails. Returns those that need a registration instead. */
static uint8_t export_windows(struct verbs_endpoint *endpoint, uint8_t rails, struct pl_grant *grant,
			      struct pl_key *key, struct exports *exports)
{
	/* An attempt by other devices may have chosen addresses that serve no windows. */
	const bool possible = !key->far_address || verbs_key_serves_windows(key);
	uint8_t rest = 0;

	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];
		const char *refusal = far_only;
		int rc = 0;

		if (!(rails & verbs_bit_of(rail)))
			continue;
		if (possible)
			rc = grant ? verbs_mw_make(rail, grant, key, &refusal)
				   : verbs_mw_make_message(rail, key, &refusal);
		if (rc < 0) {
			note_failure(exports, rc);
		} else if (refusal) {
			exports->reach = refusal;
			rest |= verbs_bit_of(rail);
		} else {
			note_rail(rail, key, &exports->windows);
		}
	}
	return rest;
}

/* Exports a key over some rails. The addresses of registrations depend on whether any of the rails has a window. */
static void export_over(struct verbs_endpoint *endpoint, uint8_t rails, struct pl_grant *grant, struct pl_key *key,
			struct exports *exports)
{
	struct pl_list *list = verbs_registrations_of(grant, key);
	uint8_t rest = export_windows(endpoint, rails, grant, key, exports);

	if (exports->registering)
		return;
	/* Without a rail, the choice is left to the next attempt. */
	if (rest || exports->windows)
		choose_addresses(endpoint, grant, key, exports);
	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];
		int rc;

		if (!(rest & verbs_bit_of(rail)))
			continue;
		rc = verbs_export_at(rail->device, list, key, &exports->rkeys[i]);
		if (rc < 0)
			note_failure(exports, rc);
		else
			note_rail(rail, key, &exports->present);
	}
}

/*
 * No rail uses a port near the memory so far. The peer will ask for the key over one that does. Keeps those of the
 * ports whose devices reach the memory.
 */
static void export_without_rail(struct verbs_endpoint *endpoint, struct pl_grant *grant, struct pl_key *key,
				struct exports *exports)
{
	struct pl_list *list = verbs_registrations_of(grant, key);
	const uint16_t near = exports->near;
	uint32_t rkey;

	for (unsigned i = 0; i < endpoint->port_count; i++) {
		int rc = near & 1u << i && grant ? verbs_mw_expect(endpoint, endpoint->ports[i]->device, grant)
						 : -ENOTSUP;

		if (rc == 0)
			exports->expected |= (uint16_t)(1u << i);
		else
			exports->registering |= rc == -EINPROGRESS;
	}
	if (exports->registering)
		return;
	choose_addresses(endpoint, grant, key, exports);
	for (unsigned i = 0; i < endpoint->port_count; i++) {
		int rc;

		if (!(near & ~exports->expected & 1u << i))
			continue;
		rc = verbs_export_at(endpoint->ports[i]->device, list, key, &rkey);
		if (rc < 0) {
			note_failure(exports, rc);
			exports->near &= (uint16_t) ~(1u << i);
		}
	}
}

/* True if a rail has a key, or will have one when a thread has registered the memory. */
static bool is_exported(const struct exports *exports)
{
	return exports->present || exports->windows || exports->registering;
}

/* A card with Data Direct may register the memory later, when a rail uses it, and the peer keeps the order. */
static enum pl_memory_order order_for(const struct verbs_endpoint *endpoint, const struct pl_memory *memory)
{
	const bool possible = pl_memory_staged(memory) && !memory->dmabuf;

	for (unsigned i = 0; possible && i < endpoint->port_count; i++)
		if (verbs_device_has_data_direct(endpoint->ports[i]->device))
			return PL_ORDER_READ;
	return pl_memory_order(memory);
}

static int write_key(const struct verbs_endpoint *endpoint, const struct pl_key *key, const struct exports *exports,
		     uint8_t blob[PL_KEY_BLOB_MAX])
{
	const unsigned rails = endpoint->rail_count;
	uint8_t order = (uint8_t)order_for(endpoint, key->memory);
	struct pl_writer writer;

	pl_writer_init(&writer, blob, PL_KEY_BLOB_MAX);
	pl_put_u64(&writer, key->id);
	pl_put_u64(&writer, key->far_address);
	pl_put_u8(&writer, exports->present);
	pl_put_u8(&writer, (uint8_t)rails);
	pl_put_u16(&writer, exports->near);
	for (unsigned i = 0; i < rails; i++)
		pl_put_u32(&writer, exports->rkeys[i]);
	if (exports->windows || order)
		pl_put_u8(&writer, exports->windows);
	if (exports->windows || order)
		pl_put_u8(&writer, order);
	for (unsigned i = 0; exports->windows && i < rails; i++)
		pl_put_u16(&writer, 0);
	return (int)(writer.at - writer.begin);
}

/* Devices that cannot reach the memory are left out; at least one must reach it. */
int verbs_export_key(struct pl_endpoint *base, struct pl_grant *grant, struct pl_key *key,
		     uint8_t blob[PL_KEY_BLOB_MAX])
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	struct exports exports = { .reach = windows_only, .rc = -ENOTCONN };
	uint8_t rails = 0;

	exports.near = verbs_port_numbers(endpoint, near_of(endpoint->state, key));
	for (unsigned i = 0; exports.near && i < endpoint->rail_count; i++)
		if (exports.near & 1u << endpoint->rails[i].near_port)
			rails |= verbs_bit_of(&endpoint->rails[i]);
	export_over(endpoint, exports.near ? rails : endpoint->choices[0].rails, grant, key, &exports);
	if (!is_exported(&exports) && exports.near)
		export_without_rail(endpoint, grant, key, &exports);
	/* No device near the memory reaches it. */
	if (!is_exported(&exports) && !exports.near)
		export_over(endpoint, UINT8_MAX, grant, key, &exports);
	if (exports.registering) {
		verbs_await_registration(endpoint);
		return -EINPROGRESS;
	}
	verbs_export_over(verbs_registrations_of(grant, key));
	if (!is_exported(&exports) && !exports.near)
		return exports.rc;
	if (grant)
		pl_peer_note_key(base->peer, PL_EVENT_GRANTED, key->id, 0, exports.reach);
	return write_key(endpoint, key, &exports, blob);
}
