/* SPDX-License-Identifier: BSD-2-Clause */
/* Choice of rails: which ports of both ends make pairs, and the advert that describes ports. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/verbs/verbs.h"

#define IB IBV_LINK_LAYER_INFINIBAND
#define ETH IBV_LINK_LAYER_ETHERNET
/* Added to a link layer: the port is not active, has two queue pairs by default, or is excluded by an option. */
#define DOWN 0x80
#define WIDE 0x40
#define EXCLUDED 0x20
#define PORTS 4

/* Parses an address, which is IPv4 or IPv6. */
static struct sockaddr_storage address_of(const char *text)
{
	struct sockaddr_storage address = { 0 };

	if (!text)
		return address;
	if (inet_pton(AF_INET, text, &((struct sockaddr_in *)&address)->sin_addr) == 1) {
		address.ss_family = AF_INET;
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&address)->sin6_addr), 1);
		address.ss_family = AF_INET6;
	}
	return address;
}

static union ibv_gid gid_of(const char *text)
{
	const struct sockaddr_storage address = address_of(text);

	return verbs_gid_of(&address);
}

static void expect_gid(const union ibv_gid *gid, const char *text)
{
	char written[INET6_ADDRSTRLEN];

	verbs_gid_format(gid, written);
	assert_string_equal(written, text);
}

/* -- an endpoint ---------------------------------------------------------------------------------- */

/* Port: link layer (0: no port), and addresses with the bits of their network, for IPv4 of a mapped address. */
struct port_case {
	uint8_t link_layer;
	struct {
		const char *text;
		uint8_t prefix;
	} gids[2];
};

struct rig {
	struct pl_context context;
	struct verbs_state state;
	struct verbs_device devices[PORTS];
	struct verbs_port ports[PORTS];
	struct pl_peer peer;
	struct verbs_endpoint endpoint;
};

static struct rig *rig_new(const struct port_case ports[PORTS], const char *here, const char *there, unsigned rails)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	rig->context.allocator = pl_system_allocator;
	rig->context.options.rails = rails;
	rig->state.context = &rig->context;
	pthread_mutex_init(&rig->state.lock, NULL);
	pl_list_init(&rig->state.ports);
	rig->peer.local_address = address_of(here);
	rig->peer.address = address_of(there);
	rig->endpoint.base.peer = &rig->peer;
	rig->endpoint.state = &rig->state;
	for (unsigned i = 0; i < PORTS && ports[i].link_layer; i++) {
		struct verbs_port *port = &rig->ports[i];

		port->device = &rig->devices[i];
		port->number = 1;
		port->link_layer = ports[i].link_layer & ~(DOWN | WIDE | EXCLUDED);
		port->active = !(ports[i].link_layer & DOWN);
		port->wide = ports[i].link_layer & WIDE;
		port->excluded = ports[i].link_layer & EXCLUDED;
		for (unsigned n = 0; n < 2 && ports[i].gids[n].text; n++)
			port->gids[port->gid_count++] = (struct verbs_gid){ .gid = gid_of(ports[i].gids[n].text),
									    .prefix = ports[i].gids[n].prefix };
		pl_list_append(&rig->state.ports, &port->link);
	}
	return rig;
}

/* -- pairs ---------------------------------------------------------------------------------------- */

struct pairing_case {
	const char *name;
	const char *here, *there; /* of the control connection */
	struct port_case near[PORTS];
	struct {
		uint8_t link_layer;
		const char *gid; /* NULL: zero */
	} far[PORTS];
	unsigned rails, limit; /* wanted here and there; limit 0: 8 */
	/* Ports of each rail, and the address of this end; "" for zero. No rail: -ENODEV. */
	struct {
		unsigned near, far;
		const char *gid;
	} expected[PORTS];
};

#define V4(text, bits) { { text, 96 + bits } }

static const struct pairing_case pairings[] = {
	{ "the pair of the control connection is first, also over routers", "10.0.1.1", "10.0.0.2",
	  { { ETH, V4("10.0.0.1", 24) }, { ETH, V4("10.0.1.1", 24) } }, { { ETH, "10.0.1.2" }, { ETH, "10.0.0.2" } }, 0, 0,
	  { { 1, 1, "10.0.1.1" }, { 0, 0, "10.0.0.1" } } },
	{ "the control connection's address need not be the port's first", "fd00::1", "fd00::2",
	  { { ETH, { { "10.0.0.1", 120 }, { "fd00::1", 64 } } } }, { { ETH, "fd00::2" } }, 0, 0,
	  { { 0, 0, "fd00::1" } } },
	{ "subnets of InfiniBand behind other FLIDs", "192.168.0.1", "192.168.0.2",
	  { { IB, { { "fec0:0:1001:1::1", 64 } } }, { IB, { { "fec0:0:1001:2::1", 64 } } } },
	  { { IB, "fec0:0:2002:2::2" }, { IB, "fec0:0:2002:1::2" } }, 0, 0,
	  { { 1, 0, "fec0:0:1001:2::1" }, { 0, 1, "fec0:0:1001:1::1" } } },
	{ "one network each, with other numbers", "192.168.0.1", "192.168.0.2",
	  { { ETH, V4("10.0.0.1", 24) }, { ETH, V4("10.0.1.1", 24) } }, { { ETH, "10.0.1.2" }, { ETH, "10.0.0.2" } }, 0, 0,
	  { { 1, 0, "10.0.1.1" }, { 0, 1, "10.0.0.1" } } },
	{ "one network for all: by number", "192.168.0.1", "192.168.0.2",
	  { { ETH, V4("10.0.0.1", 24) }, { ETH, V4("10.0.0.2", 24) } }, { { ETH, "10.0.0.3" }, { ETH, "10.0.0.4" } }, 0, 0,
	  { { 0, 0, "10.0.0.1" }, { 1, 1, "10.0.0.2" } } },
	{ "a network with another number is better than a number", "192.168.0.1", "192.168.0.2",
	  { { ETH, V4("10.0.0.1", 24) }, { ETH, V4("10.0.1.1", 24) } }, { { ETH, "10.0.1.2" }, { ETH, "10.9.0.2" } }, 0, 0,
	  { { 1, 0, "10.0.1.1" } } },
	{ "a network with the same number is better than with another", NULL, NULL,
	  { { ETH, V4("10.0.0.1", 24) }, { ETH, V4("10.0.1.1", 24) } }, { { ETH, "10.0.1.2" }, { ETH, "10.0.1.3" } }, 0, 0,
	  { { 1, 1, "10.0.1.1" }, { 0, 0, "10.0.0.1" } } },
	{ "routed links of two addresses: by number", NULL, NULL,
	  { { ETH, V4("10.1.0.0", 31) }, { ETH, V4("10.1.0.2", 31) } }, { { ETH, "10.2.0.0" }, { ETH, "10.2.0.2" } }, 0, 0,
	  { { 0, 0, "10.1.0.0" }, { 1, 1, "10.1.0.2" } } },
	{ "the last bit of a network", NULL, NULL, { { ETH, V4("10.0.0.0", 31) } },
	  { { ETH, "10.0.0.2" }, { ETH, "10.0.0.1" } }, 0, 0, { { 0, 1, "10.0.0.0" } } },
	{ "a network that ends inside of a byte", NULL, NULL, { { ETH, V4("10.0.4.1", 22) } },
	  { { ETH, "10.0.8.1" }, { ETH, "10.0.7.1" } }, 0, 0, { { 0, 1, "10.0.4.1" } } },
	{ "an address of an unknown network: by number", NULL, NULL, { { ETH, { { "fe80::1", 0 } } } },
	  { { ETH, "fe80::2" } }, 0, 0, { { 0, 0, "fe80::1" } } },
	{ "an unknown network is not the other end's", NULL, NULL, { { ETH, { { "fe80::1", 0 } } } }, { { ETH, "10.0.0.2" } }, 0, 0,
	  { { 0 } } },
	{ "InfiniBand without IP", "192.168.0.1", "192.168.0.2",
	  { { IB, { { "fe80::11", 64 } } }, { IB, { { "fe80::12", 64 } } } }, { { IB, "fe80::21" }, { IB, "fe80::22" } }, 0, 0,
	  { { 0, 0, "fe80::11" }, { 1, 1, "fe80::12" } } },
	{ "InfiniBand with two subnets", NULL, NULL,
	  { { IB, { { "fec0:0:0:1::11", 64 } } }, { IB, { { "fec0:0:0:2::12", 64 } } } },
	  { { IB, "fec0:0:0:2::21" }, { IB, "fec0:0:0:1::22" } }, 0, 0,
	  { { 1, 0, "fec0:0:0:2::12" }, { 0, 1, "fec0:0:0:1::11" } } },
	{ "InfiniBand without a common subnet", NULL, NULL, { { IB, { { "fec0:0:0:1::11", 64 } } } },
	  { { IB, "fec0:0:0:2::21" } }, 0, 0, { { 0, 0, "fec0:0:0:1::11" } } },
	{ "InfiniBand whose address cannot be read", NULL, NULL, { { IB, { { NULL, 0 } } } }, { { IB, NULL } }, 0, 0,
	  { { 0, 0, "::" } } },
	{ "IPv4 and IPv6 do not fit", NULL, NULL, { { ETH, V4("10.0.0.1", 24) } }, { { ETH, "fd00::2" } }, 0, 0,
	  { { 0 } } },
	{ "IPv6 and IPv4 do not fit", NULL, NULL, { { ETH, { { "fd00::1", 64 } } } }, { { ETH, "10.0.0.2" } }, 0, 0,
	  { { 0 } } },
	{ "of two addresses, the one of the other end's kind", NULL, NULL,
	  { { ETH, { { "10.0.0.1", 120 }, { "fd00::1", 64 } } } }, { { ETH, "fd01::2" } }, 0, 0,
	  { { 0, 0, "fd00::1" } } },
	{ "InfiniBand and Ethernet do not fit", NULL, NULL, { { IB, { { "fe80::1", 64 } } } }, { { ETH, "fe80::2" } }, 0, 0,
	  { { 0 } } },
	{ "Ethernet beside InfiniBand: by network, not by number", NULL, NULL,
	  { { ETH, V4("10.0.0.1", 24) }, { ETH, V4("10.0.1.1", 24) } }, { { IB, "fe80::2" }, { ETH, "10.0.0.2" } }, 0, 0,
	  { { 0, 1, "10.0.0.1" } } },
	{ "other numbers and other networks do not fit", NULL, NULL, { { ETH, V4("10.0.0.1", 24) } },
	  { { IB, "fe80::2" }, { ETH, "10.1.0.2" } }, 0, 0, { { 0 } } },
	{ "more ports here", NULL, NULL,
	  { { ETH, V4("10.0.0.1", 24) }, { ETH, V4("10.0.0.2", 24) }, { ETH, V4("10.0.0.3", 24) } }, { { ETH, "10.0.0.9" } },
	  0, 0, { { 0, 0, "10.0.0.1" } } },
	{ "more ports there", NULL, NULL, { { ETH, V4("10.0.0.1", 24) } },
	  { { ETH, "10.0.0.7" }, { ETH, "10.0.0.8" }, { ETH, "10.0.0.9" } }, 0, 0, { { 0, 0, "10.0.0.1" } } },
	{ "two rails without an option", NULL, NULL,
	  { { ETH, V4("10.0.0.1", 24) }, { ETH, V4("10.0.0.2", 24) }, { ETH, V4("10.0.0.3", 24) } },
	  { { ETH, "10.0.0.7" }, { ETH, "10.0.0.8" }, { ETH, "10.0.0.9" } }, 0, 0,
	  { { 0, 0, "10.0.0.1" }, { 1, 1, "10.0.0.2" } } },
	{ "more rails than pairs", NULL, NULL, { { ETH, V4("10.0.0.1", 24) }, { ETH, V4("10.0.0.2", 24) } },
	  { { ETH, "10.0.0.7" }, { ETH, "10.0.0.8" } }, 3, 0,
	  { { 0, 0, "10.0.0.1" }, { 1, 1, "10.0.0.2" }, { 0, 0, "10.0.0.1" } } },
	{ "the other end's limit", NULL, NULL, { { ETH, V4("10.0.0.1", 24) }, { ETH, V4("10.0.0.2", 24) } },
	  { { ETH, "10.0.0.7" }, { ETH, "10.0.0.8" } }, 3, 1, { { 0, 0, "10.0.0.1" } } },
	{ "a port that is down has no number", NULL, NULL,
	  { { ETH | DOWN, V4("10.0.0.1", 24) }, { ETH, V4("10.0.1.1", 24) } }, { { ETH, "10.9.0.2" } }, 0, 0,
	  { { 1, 0, "10.0.1.1" } } },
	{ "a port that an option excludes has no number", NULL, NULL,
	  { { IB | EXCLUDED, { { "fe80::11", 64 } } }, { IB, { { "fe80::12", 64 } } } }, { { IB, "fe80::21" } }, 0, 0,
	  { { 1, 0, "fe80::12" } } },
	{ "two rails for a port that one does not fill", NULL, NULL, { { IB | WIDE, { { "fe80::11", 64 } } } },
	  { { IB, "fe80::21" } }, 0, 0, { { 0, 0, "fe80::11" }, { 0, 0, "fe80::11" } } },
	{ "two rails for one of two ports", NULL, NULL,
	  { { ETH, V4("10.0.0.1", 24) }, { ETH | WIDE, V4("10.0.1.1", 24) } }, { { ETH, "10.0.0.2" }, { ETH, "10.0.1.2" } },
	  0, 0, { { 0, 0, "10.0.0.1" }, { 1, 1, "10.0.1.1" }, { 1, 1, "10.0.1.1" } } },
	{ "two rails for each of two ports", NULL, NULL,
	  { { ETH | WIDE, V4("10.0.0.1", 24) }, { ETH | WIDE, V4("10.0.1.1", 24) } },
	  { { ETH, "10.0.0.2" }, { ETH, "10.0.1.2" } }, 0, 0,
	  { { 0, 0, "10.0.0.1" }, { 1, 1, "10.0.1.1" }, { 0, 0, "10.0.0.1" }, { 1, 1, "10.0.1.1" } } },
	{ "two rails for a port, within the other end's limit", NULL, NULL, { { IB | WIDE, { { "fe80::11", 64 } } } },
	  { { IB, "fe80::21" } }, 0, 1, { { 0, 0, "fe80::11" } } },
	{ "one rail by option", NULL, NULL, { { IB | WIDE, { { "fe80::11", 64 } } } }, { { IB, "fe80::21" } }, 1, 0,
	  { { 0, 0, "fe80::11" } } },
	{ "an Ethernet port without an address", NULL, NULL, { { ETH, { { NULL, 0 } } }, { ETH, V4("10.0.1.1", 24) } },
	  { { ETH, "10.9.0.2" } }, 0, 0, { { 1, 0, "10.0.1.1" } } },
};

static int read_advert(struct rig *rig, const struct pairing_case *one)
{
	struct pl_writer writer;
	struct pl_reader reader;
	uint8_t bytes[PL_FABRIC_BLOB_MAX], count = 0;

	while (count < PORTS && one->far[count].link_layer)
		count++;
	pl_writer_init(&writer, bytes, sizeof(bytes));
	pl_put_u8(&writer, (uint8_t)(one->limit ? one->limit : VERBS_RAILS));
	pl_put_u8(&writer, count);
	for (unsigned i = 0; i < count; i++) {
		const union ibv_gid gid = gid_of(one->far[i].gid);

		pl_put_u8(&writer, one->far[i].link_layer);
		pl_put_bytes(&writer, gid.raw, sizeof(gid.raw));
	}
	pl_reader_init(&reader, bytes, (size_t)(writer.at - bytes));
	return verbs_advert_read(&rig->endpoint, &reader);
}

static void test_pairs(void **state)
{
	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(pairings); i++) {
		const struct pairing_case *one = &pairings[i];
		struct rig *rig = rig_new(one->near, one->here, one->there, one->rails);
		unsigned count = 0;

		print_message("%s\n", one->name);
		while (count < PORTS && one->expected[count].gid)
			count++;
		assert_int_equal(read_advert(rig, one), count ? 0 : -ENODEV);
		assert_int_equal(rig->endpoint.rail_count, count);
		for (unsigned n = 0; n < count; n++) {
			const struct verbs_rail *rail = &rig->endpoint.rails[n];
			const union ibv_gid far = gid_of(one->far[one->expected[n].far].gid);

			assert_ptr_equal(rail->port, &rig->ports[one->expected[n].near]);
			assert_ptr_equal(rail->device, rail->port->device);
			assert_int_equal(rail->far_port, one->expected[n].far);
			assert_memory_equal(&rail->far_gid, &far, sizeof(far));
			expect_gid(&rail->gid, one->expected[n].gid);
		}
		free(rig);
	}
}

/* -- adverts -------------------------------------------------------------------------------------- */

static int read_bytes(struct rig *rig, const uint8_t *bytes, size_t length)
{
	uint8_t *exact = malloc(length ? length : 1);
	struct pl_reader reader;
	int rc;

	assert_non_null(exact);
	memcpy(exact, bytes, length);
	pl_reader_init(&reader, exact, length);
	rig->endpoint.rail_count = 0;
	rc = verbs_advert_read(&rig->endpoint, &reader);
	free(exact);
	return rc;
}

static void test_malformed_adverts(void **state)
{
	enum { PORT = 17, MOST = 2 + VERBS_PORTS_MAX * PORT };
	struct rig *rig = rig_new((const struct port_case[PORTS]){ { ETH, V4("10.0.0.1", 24) } }, NULL, NULL, 0);
	const union ibv_gid gid = gid_of("10.0.0.2");
	uint8_t bytes[MOST + PORT] = { VERBS_RAILS, VERBS_PORTS_MAX };

	(void)state;
	for (unsigned i = 0; i <= VERBS_PORTS_MAX; i++) {
		bytes[2 + i * PORT] = ETH;
		memcpy(bytes + 2 + i * PORT + 1, gid.raw, sizeof(gid.raw));
	}
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(read_bytes(rig, bytes, length), length == MOST ? 0 : -EPROTO);
	bytes[1]++;
	assert_int_equal(read_bytes(rig, bytes, sizeof(bytes)), -EPROTO);
	bytes[1] = 0;
	assert_int_equal(read_bytes(rig, bytes, 2), -EPROTO);
	bytes[1] = 1;
	assert_int_equal(read_bytes(rig, bytes, 2 + PORT), 0);
	bytes[0] = 0;
	assert_int_equal(read_bytes(rig, bytes, 2 + PORT), -EPROTO);
	bytes[0] = UINT8_MAX;
	assert_int_equal(read_bytes(rig, bytes, 2 + PORT), 0);
	assert_int_equal(rig->endpoint.rail_count, 1);
	free(rig);
}

/* An acceptor offers the address of the control connection, else one of its kind, else the best. */
static void test_offers(void **state)
{
	static const struct port_case ports[PORTS] = {
		{ ETH, { { "10.0.0.1", 120 }, { "fd00::1", 64 } } },
		{ ETH | DOWN, V4("10.0.1.1", 24) },
		{ ETH, { { "10.0.2.1", 120 }, { "10.0.3.1", 120 } } },
		{ IB, { { NULL, 0 } } },
	};
	static const struct {
		const char *here, *first, *second;
	} cases[] = {
		{ "192.168.0.1", "10.0.0.1", "10.0.2.1" },
		{ "fd09::1", "fd00::1", "10.0.2.1" },
		{ "10.0.3.1", "10.0.0.1", "10.0.3.1" },
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct rig *rig = rig_new(ports, cases[i].here, NULL, i ? 5 : 0);
		uint8_t bytes[PL_FABRIC_BLOB_MAX];
		struct pl_writer writer;

		assert_int_equal(verbs_list_ports(&rig->endpoint), 0);
		assert_int_equal(rig->endpoint.port_count, 3);
		assert_ptr_equal(rig->endpoint.ports[1], &rig->ports[2]);
		expect_gid(&rig->endpoint.gids[0], cases[i].first);
		expect_gid(&rig->endpoint.gids[1], cases[i].second);
		expect_gid(&rig->endpoint.gids[2], "::");
		pl_writer_init(&writer, bytes, sizeof(bytes));
		verbs_advert_write(&rig->endpoint, &writer);
		assert_int_equal(writer.at - bytes, 2 + 3 * 17);
		assert_int_equal(bytes[0], i ? 5 : VERBS_RAILS);
		assert_int_equal(bytes[1], 3);
		assert_int_equal(bytes[2], ETH);
		assert_int_equal(bytes[2 + 2 * 17], IB);
		assert_memory_equal(bytes + 2 + 17 + 1, rig->endpoint.gids[1].raw, 16);
		free(rig);
	}
}

static void test_no_offer(void **state)
{
	static const struct port_case ports[PORTS] = { { ETH | DOWN, V4("10.0.1.1", 24) }, { ETH, { { NULL, 0 } } } };
	struct rig *rig = rig_new(ports, NULL, NULL, 0);

	(void)state;
	assert_int_equal(verbs_list_ports(&rig->endpoint), -ENODEV);
	free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_malformed_adverts),
		cmocka_unit_test(test_offers),
		cmocka_unit_test(test_no_offer),
	};

	return cmocka_run_group_tests_name("verbs paths", tests, NULL, NULL);
}
