/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports that one queue pair does not fill: by their rate, or as a bond of several cables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "fabric/verbs/verbs.h"

static void test_rates(void **state)
{
	static const struct {
		uint8_t speed, width;
		bool wide;
	} cases[] = {
		{ 0, 0, false },
		{ 32, 2, false },  /* EDR, 4 lanes: 100 Gb/s */
		{ 64, 2, false },  /* HDR: 200 */
		{ 128, 2, true },  /* NDR: 400 */
		{ 128, 4, true },  /* 8 lanes of NDR: 800 */
		{ 128, 16, false }, /* 2 lanes of NDR: 200 */
		{ 64, 4, true },   /* 8 lanes of HDR: 400 */
		{ 128, 1, false },
		{ 32, 8, true },   /* 12 lanes of EDR: 300 */
		{ 16, 8, false },  /* 12 lanes of FDR: 168 */
		{ 8, 8, false },
		{ 4, 8, false },
		{ 2, 8, false },
		{ 1, 8, false },
		{ 3, 2, false },
		{ 128, 3, false },
	};
	struct verbs_device device = { .name = "no_such_device" };
	struct verbs_port port = { .device = &device, .number = 1, .link_layer = IBV_LINK_LAYER_ETHERNET };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct ibv_port_attr attributes = { .active_speed = cases[i].speed, .active_width = cases[i].width };

		assert_int_equal(verbs_port_is_wide(&port, &attributes), cases[i].wide);
	}
}

/* -- bonds ---------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/test_verbs_port_width.XXXXXX";

/* Writes a file below the folder, and makes the folders that it needs. */
static void write_file(const char *path, const char *text)
{
	char whole[256];
	FILE *file;

	snprintf(whole, sizeof(whole), "%s/%s", folder, path);
	for (char *at = strchr(whole + strlen(folder) + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = 0;
		mkdir(whole, 0700);
		*at = '/';
	}
	file = fopen(whole, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void write_member(const char *name, const char *state, const char *link)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/bonding_slave/state", name);
	write_file(path, state);
	snprintf(path, sizeof(path), "%s/bonding_slave/mii_status", name);
	write_file(path, link);
}

static void test_bonds(void **state)
{
	char command[128];

	(void)state;
	assert_non_null(mkdtemp(folder));
	write_file("eth7/operstate", "up\n");
	write_file("bond0/bonding/slaves", "eth0 eth1\n");
	write_file("bond1/bonding/slaves", "\n");
	write_file("bond2/bonding/slaves", "eth0 eth1 eth2 eth3 eth9\n");
	write_member("eth0", "active\n", "up\n");
	write_member("eth1", "active\n", "up\n");
	write_member("eth2", "backup\n", "up\n");
	write_member("eth3", "active\n", "down\n");
	assert_int_equal(verbs_bond_members(folder, "eth7"), 0);
	assert_int_equal(verbs_bond_members(folder, "eth8"), 0);
	assert_int_equal(verbs_bond_members(folder, "bond0"), 2);
	assert_int_equal(verbs_bond_members(folder, "bond1"), 0);
	/* A spare member, one without a link, and one that went meanwhile do not count. */
	assert_int_equal(verbs_bond_members(folder, "bond2"), 2);
	write_member("eth1", "backup\n", "up\n");
	assert_int_equal(verbs_bond_members(folder, "bond0"), 1);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_bonds),
	};

	return cmocka_run_group_tests_name("verbs port width", tests, NULL, NULL);
}
