/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses of a port: which is the best, and which one a connection uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/verbs_host.h"

VERBS_HOST_GETIFADDRS

struct ranking_case {
	const char *name;
	struct verbs_host_gid gids[6];
	struct verbs_host_interface interfaces[4];
	int order[7]; /* entries of the table, the best first; then -1 */
	unsigned prefix; /* of the best */
};

static const struct ranking_case rankings[] = {
	{ "version 2 first", { { "10.0.0.1", false }, { "10.0.0.1", true } }, { { "10.0.0.1", 24, true } }, { 1, 0, -1 }, 120 },
	{ "version 2 of IPv6 before version 1 of IPv4", { { "10.0.0.1", false }, { "fd00::1", true } },
	  { { "10.0.0.1", 24, true }, { "fd00::1", 64, true } }, { 1, 0, -1 }, 64 },
	{ "IPv4 first", { { "fd00::1", true }, { "10.0.0.1", true } }, { { "10.0.0.1", 31, true }, { "fd00::1", 64, true } },
	  { 1, 0, -1 }, 127 },
	{ "interfaces that are up first", { { "10.0.0.1", true }, { "fd00::1", false } },
	  { { "10.0.0.1", 24, false }, { "fd00::1", 48, true } }, { 1, 0, -1 }, 48 },
	{ "addresses without an interface last", { { "10.0.0.1", true }, { "10.0.0.2", true } }, { { "10.0.0.2", 8, true } },
	  { 1, 0, -1 }, 104 },
	{ "link-local addresses last", { { "fe80::1", true }, { "febf::1", true }, { "fec0::1", true } },
	  { { "fe80::1", 64, true }, { "febf::1", 64, true }, { "fec0::1", 64, true } }, { 2, 0, 1, -1 }, 64 },
	{ "a link-local address tells no network", { { "fe80::1", true } }, { { "fe80::1", 64, true } }, { 0, -1 }, 0 },
	{ "not all such addresses are link-local", { { "2080::1", true } }, { { "2080::1", 64, true } }, { 0, -1 }, 64 },
	{ "an unknown network", { { "10.0.0.1", true } }, { { "10.0.0.2", 24, true } }, { 0, -1 }, 0 },
	{ "equals in the order of the table", { { "10.0.0.2", true }, { "10.0.0.1", true }, { "10.0.0.3", true } },
	  { { "10.0.0.1", 24, true }, { "10.0.0.2", 24, true }, { "10.0.0.3", 24, true } }, { 0, 1, 2, -1 }, 120 },
	{ "empty entries", { { NULL, false }, { NULL, false }, { "10.0.0.1", true } }, { { "10.0.0.1", 24, true } },
	  { 2, -1 }, 120 },
	{ "an address that comes again, and is no better", { { "10.0.0.1", true }, { "10.0.0.1", false }, { "10.0.0.1", true } },
	  { { "10.0.0.1", 24, true } }, { 0, -1 }, 120 },
};

/* Libraries and kernels that read a table at once, and others. */
static void test_ranking(void **state)
{
	static const char *const names[] = { "card0" };

	(void)state;
	for (size_t i = 0; i < 3 * PL_ARRAY_SIZE(rankings); i++) {
		const struct ranking_case *one = &rankings[i / 3];
		const struct verbs_port *port;
		struct verbs_host_rig *rig;
		unsigned count = 0;

		print_message("%s\n", one->name);
		verbs_host_set(names, 1, 2, IBV_LINK_LAYER_ETHERNET);
		verbs_host.no_gid_table = i % 3 == 1;
		verbs_host.gids = one->gids;
		verbs_host.gid_count = PL_ARRAY_SIZE(one->gids);
		while (count < PL_ARRAY_SIZE(one->interfaces) && one->interfaces[count].address)
			count++;
		verbs_host_interfaces(one->interfaces, count);
		rig = verbs_host_open(NULL);
		if (i % 3 == 2)
			rig->library._ibv_query_gid_table = NULL;
		port = verbs_host_look(rig);
		for (count = 0; one->order[count] >= 0; count++)
			assert_int_equal(port->gids[count].index, one->order[count]);
		assert_int_equal(port->gid_count, count);
		assert_int_equal(port->gids[0].prefix, one->prefix);
		verbs_host_close(rig);
	}
}

/* A GID stands for an address, and back. */
static void test_addresses(void **state)
{
	static const char *const texts[] = { "10.0.0.1", "fd00::1", "127.0.0.1", "fe80::1" };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(texts); i++) {
		struct sockaddr_storage address, back;
		union ibv_gid gid;

		verbs_host_address(&address, texts[i]);
		gid = verbs_gid_of(&address);
		assert_int_equal(verbs_gid_to_address(&gid, 0, &back),
				 strchr(texts[i], '.') ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
		assert_memory_equal(&back, &address, sizeof(back));
		verbs_gid_to_address(&gid, 0x0102, &back);
		assert_int_equal(((struct sockaddr_in *)&back)->sin_port, htons(0x0102));
	}
}

/* A table of many addresses, the best last. All are kept: a connection may use any of them. */
static void test_long_table(void **state)
{
	static const char *const names[] = { "card0" };
	static struct verbs_host_gid gids[VERBS_HOST_TABLE];
	char texts[VERBS_HOST_TABLE][16];
	const struct verbs_port *port;
	struct verbs_host_rig *rig;

	(void)state;
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	for (unsigned i = 0; i < VERBS_HOST_TABLE; i++) {
		snprintf(texts[i], sizeof(texts[i]), "10.0.0.%u", i);
		gids[i] = (struct verbs_host_gid){ texts[i], i == VERBS_HOST_TABLE - 1 };
	}
	verbs_host.gids = gids;
	verbs_host.gid_count = VERBS_HOST_TABLE;
	rig = verbs_host_open(NULL);
	port = verbs_host_look(rig);
	assert_int_equal(port->gid_count, VERBS_HOST_TABLE);
	assert_int_equal(port->gids[0].index, VERBS_HOST_TABLE - 1);
	for (unsigned i = 1; i < VERBS_HOST_TABLE; i++)
		assert_int_equal(port->gids[i].index, i - 1);
	/* Another look begins anew. */
	verbs_host.gid_count = 1;
	port = verbs_host_look(rig);
	assert_int_equal(port->gid_count, 1);
	verbs_host_close(rig);
}

/* InfiniBand: the first entry, and before it a second one with an FLID. A program may choose another one. */
static void test_routed(void **state)
{
	static const struct verbs_host_gid gids[3] = { { "fe80::1", false },
						       { "fec0:0:12:1::1", false },
						       { "fec0:0:13:1::1", false } };
	static const struct verbs_host_gid aliases[2] = { { "fe80::1", false }, { "fec0::1:0:0:0:1", false } };
	static const char *const names[] = { "card0" };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		const struct verbs_port *port;
		struct verbs_host_rig *rig;

		verbs_host_set(names, 1, 1, IBV_LINK_LAYER_INFINIBAND);
		verbs_host.gids = i == 1 ? aliases : gids;
		verbs_host.gid_count = i == 1 ? 2 : 3;
		verbs_host.no_gid_table = true;
		rig = verbs_host_open(NULL);
		rig->context.options.gid_index = i == 2 ? PL_GID_INDEX(2) : 0;
		port = verbs_host_look(rig);
		assert_int_equal(port->gid_count, i == 0 ? 2 : 1);
		assert_int_equal(port->gids[0].index, i == 0 ? 1 : i == 1 ? 0 : 2);
		verbs_host_close(rig);
	}
}

/* One call reads the entries of a port, however many there are. */
static void test_calls(void **state)
{
	static const char *const names[] = { "card0" };
	static struct verbs_host_gid gids[300];
	struct verbs_host_rig *rig;

	(void)state;
	gids[200] = (struct verbs_host_gid){ "10.0.0.1", true };
	gids[256] = (struct verbs_host_gid){ "10.0.0.2", true };
	verbs_host_set(names, 1, 2, IBV_LINK_LAYER_ETHERNET);
	verbs_host.gids = gids;
	verbs_host.gid_count = PL_ARRAY_SIZE(gids);
	rig = verbs_host_open(NULL);
	verbs_host_look(rig);
	assert_int_equal(verbs_host.gid_calls, 2);
	/* An address handle cannot name later entries than 255. */
	pl_list_for_each(at, &rig->state.ports) {
		const struct verbs_port *port = pl_list_entry(at, struct verbs_port, link);

		assert_int_equal(port->gid_count, 1);
		assert_int_equal(port->gids[0].index, 200);
	}
	/* More entries than one call has room for. */
	for (unsigned i = 0; i < PL_ARRAY_SIZE(gids); i++)
		gids[i] = (struct verbs_host_gid){ "10.0.0.1", true };
	verbs_host.gid_calls = 0;
	verbs_host_look(rig);
	assert_int_equal(verbs_host.gid_calls, 2 * (1 + 256));
	verbs_host_close(rig);
}

/* Libraries that do not tell the version. */
static void test_old_library(void **state)
{
	static const char *const names[] = { "card0" };
	static const struct verbs_host_gid gids[] = { { "fd00::1", true }, { "10.0.0.1", false } };
	const struct verbs_port *port;
	struct verbs_host_rig *rig;

	(void)state;
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_ETHERNET);
	verbs_host.gids = gids;
	verbs_host.gid_count = 2;
	rig = verbs_host_open(NULL);
	rig->library._ibv_query_gid_ex = NULL;
	rig->library._ibv_query_gid_table = NULL;
	port = verbs_host_look(rig);
	assert_int_equal(port->gid_count, 2);
	assert_int_equal(port->gids[0].index, 1);
	verbs_host_close(rig);
}

/* InfiniBand: the first entry, which needs no interface. */
static void test_infiniband(void **state)
{
	static const char *const names[] = { "card0" };
	static const struct verbs_host_gid gids[] = { { "fe80::1", false }, { "fe80::2", false } };
	const struct verbs_port *port;
	struct verbs_host_rig *rig;

	(void)state;
	verbs_host_set(names, 1, 1, IBV_LINK_LAYER_INFINIBAND);
	verbs_host.gids = gids;
	verbs_host.gid_count = 2;
	rig = verbs_host_open(NULL);
	port = verbs_host_look(rig);
	assert_int_equal(port->gid_count, 1);
	assert_int_equal(port->gids[0].index, 0);
	assert_int_equal(port->gids[0].prefix, 64);
	assert_int_equal(port->link_layer, IBV_LINK_LAYER_INFINIBAND);
	verbs_host_close(rig);
}

typedef const struct verbs_gid *(*chooser)(const struct verbs_port *port, const union ibv_gid *wanted);

/* Returns the place of the GID that a port uses for an address, or -1. */
static int choice(const struct verbs_port *port, chooser choose, const char *wanted)
{
	struct sockaddr_storage address;
	const struct verbs_gid *found;
	union ibv_gid gid;

	verbs_host_address(&address, wanted);
	gid = verbs_gid_of(&address);
	found = choose(port, &gid);
	return found ? (int)(found - port->gids) : -1;
}

static void add_gid(struct verbs_port *port, const char *text, uint8_t rank)
{
	struct sockaddr_storage address;

	verbs_host_address(&address, text);
	port->gids[port->gid_count++] = (struct verbs_gid){ .gid = verbs_gid_of(&address), .rank = rank };
}

/* The other end's GID is known. */
static void test_choice(void **state)
{
	struct verbs_port port = { .link_layer = IBV_LINK_LAYER_ETHERNET };

	(void)state;
	assert_int_equal(choice(&port, verbs_port_gid, "10.0.0.1"), -1);
	add_gid(&port, "10.0.0.1", 15);
	add_gid(&port, "10.0.1.1", 15);
	add_gid(&port, "fe80::1", 12);
	add_gid(&port, "fd00::1", 6);
	assert_int_equal(choice(&port, verbs_port_gid, "10.0.1.1"), 1);
	assert_int_equal(choice(&port, verbs_port_gid, "10.0.2.1"), 0);
	assert_int_equal(choice(&port, verbs_port_gid, "fe80::2"), 2);
	assert_int_equal(choice(&port, verbs_port_gid, "fd00::2"), 3);
	port.gid_count = 3;
	assert_int_equal(choice(&port, verbs_port_gid, "fd00::1"), 2);
	port.gid_count = 2;
	assert_int_equal(choice(&port, verbs_port_gid, "fd00::1"), -1);
	port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	assert_int_equal(choice(&port, verbs_port_gid, "fd00::1"), 0);
}

/* The control connection's own address is known. */
static void test_offer(void **state)
{
	struct verbs_port port = { .link_layer = IBV_LINK_LAYER_ETHERNET };

	(void)state;
	assert_int_equal(choice(&port, verbs_port_offer, "fd00::1"), -1);
	add_gid(&port, "10.0.0.1", 15);
	add_gid(&port, "fd00::1", 14);
	add_gid(&port, "fe80::1", 12);
	add_gid(&port, "fd00::2", 6);
	assert_int_equal(choice(&port, verbs_port_offer, "10.0.2.1"), 0);
	assert_int_equal(choice(&port, verbs_port_offer, "fd00::9"), 1);
	assert_int_equal(choice(&port, verbs_port_offer, "fe80::1"), 2);
	assert_int_equal(choice(&port, verbs_port_offer, "fd00::2"), 3);
	/* Neither a link-local address nor one without an interface replaces one that routers know. */
	memmove(&port.gids[1], &port.gids[2], 2 * sizeof(port.gids[0]));
	port.gid_count = 3;
	assert_int_equal(choice(&port, verbs_port_offer, "fd00::9"), 0);
	assert_int_equal(choice(&port, verbs_port_offer, "fe80::9"), 0);
	port.gids[0] = port.gids[1];
	port.gid_count = 1;
	assert_int_equal(choice(&port, verbs_port_offer, "10.0.2.1"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranking), cmocka_unit_test(test_addresses),   cmocka_unit_test(test_long_table),
		cmocka_unit_test(test_calls),   cmocka_unit_test(test_old_library), cmocka_unit_test(test_infiniband),
		cmocka_unit_test(test_choice),  cmocka_unit_test(test_offer),       cmocka_unit_test(test_routed),
	};

	return cmocka_run_group_tests_name("verbs gids", tests, NULL, NULL);
}
