/* SPDX-License-Identifier: BSD-2-Clause */
/* NVLinks of this machine: the stand-in for NVML is asked for the GPUs of a folder that counts as this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "diag/check/gpu_links.h"

#define TIMEOUT (60 * PL_NS_PER_S)

static const char *const addresses[] = { "0000:01:00.0", "0000:02:00.0", "0000:03:00.0" };
static const char *const file_names[] = { "class", "vendor", "device" };
static const char *const contents[] = { "0x030200\n", "0x10de\n", "0x2335\n" };

static void make_folders(const char *path)
{
	char part[256];

	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		mkdir(part, 0700);
	}
}

/* Writes the sysfs files of three GPUs, and opens them as if they were those of the machine that runs the test. */
static struct pl_sysroot *open_machine(char folder[])
{
	struct pl_sysroot *root;
	char path[256];

	assert_non_null(mkdtemp(folder));
	for (size_t i = 0; i < PL_ARRAY_SIZE(addresses); i++) {
		for (size_t j = 0; j < PL_ARRAY_SIZE(file_names); j++) {
			FILE *file;

			snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/%s", folder, addresses[i],
				 file_names[j]);
			make_folders(path);
			file = fopen(path, "w");
			assert_non_null(file);
			fputs(contents[j], file);
			fclose(file);
		}
	}
	assert_int_equal(pl_sysroot_open(&root, folder, NULL), 0);
	root->live = true;
	return root;
}

static void remove_machine(const char *folder)
{
	static const char *const above[] = { "sys/bus/pci/devices", "sys/bus/pci", "sys/bus", "sys", "" };
	char path[256];

	for (size_t i = 0; i < PL_ARRAY_SIZE(addresses); i++) {
		for (size_t j = 0; j < PL_ARRAY_SIZE(file_names); j++) {
			snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/%s", folder, addresses[i],
				 file_names[j]);
			assert_int_equal(remove(path), 0);
		}
		snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s", folder, addresses[i]);
		assert_int_equal(remove(path), 0);
	}
	for (size_t i = 0; i < PL_ARRAY_SIZE(above); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, above[i]);
		assert_int_equal(remove(path), 0);
	}
}

/* Reads the topology of a machine for which NVML has these GPUs. */
static struct pl_topology *read_links(const char *description)
{
	char folder[] = "/tmp/peerlane-links-XXXXXX";
	struct pl_sysroot *root = open_machine(folder);
	struct pl_topology *topology;

	assert_int_equal(setenv("NVML_STANDIN", description, 1), 0);
	assert_int_equal(pl_topology_read(&topology, root, NULL, NULL), 0);
	assert_int_equal(topology->gpu_count, 3);
	assert_int_equal(topology->link_count, 0);
	assert_int_equal(pl_gpu_links_read(topology, root, TIMEOUT), 0);
	pl_sysroot_close(root);
	remove_machine(folder);
	return topology;
}

/* Two GPUs are joined by all of their links, the third one has none. */
static void test_direct_links(void **state)
{
	struct pl_topology *topology = read_links("0000:01:00.0 90 18,6,0,0000:02:00.0;"
						  "0000:02:00.0 90 18,6,0,0000:01:00.0;0000:03:00.0 90 18,down");
	struct pl_gpu_link_sum sum;
	struct pl_gpu_pair pair;

	(void)state;
	assert_int_equal(topology->link_count, 3);
	pl_topology_gpu_pair(topology, 1, 0, &pair);
	assert_true(pair.linked && !pair.switched);
	assert_int_equal(pair.links, 18);
	assert_int_equal(pair.bandwidth, 450000000000);
	pl_topology_gpu_pair(topology, 0, 2, &pair);
	assert_false(pair.linked);
	assert_int_equal(pair.links, 0);
	pl_topology_sum_links(topology, 2, PL_GPU_LINK_NVLINK, &sum);
	assert_int_equal(sum.active, 0);
	assert_int_equal(sum.down, 18);
	assert_int_equal(topology->links[0].peer, 1);
	assert_int_equal(topology->links[2].peer, -1);
	pl_topology_free(topology);
}

/* All links lead to switches, hidden ones among them; two links of the second GPU are down. */
static void test_switches(void **state)
{
	struct pl_topology *topology = read_links("0000:01:00.0 100 9,7,2,0000:07:00.0 9,7,2,0000:08:00.0;"
						  "0000:02:00.0 100 16,7,2,- 2,down");
	struct pl_gpu_pair pair;

	(void)state;
	pl_topology_gpu_pair(topology, 0, 1, &pair);
	assert_true(pair.linked && pair.switched);
	assert_int_equal(pair.links, 16);
	assert_int_equal(pair.bandwidth, 800000000000);
	pl_topology_gpu_pair(topology, 1, 2, &pair);
	assert_false(pair.linked);
	for (size_t i = 0; i < topology->link_count; i++)
		assert_int_equal(topology->links[i].peer, -1);
	pl_topology_free(topology);
}

/* The architecture tells the generation: drivers report 5 for Hopper. Without it the version does. */
static void test_generations(void **state)
{
	static const struct {
		const char *description;
		unsigned generation;
		uint64_t rate;
	} cases[] = {
		{ "0000:01:00.0 90 1,7,2,-", 4, 25000000000 }, { "0000:01:00.0 80 1,4,2,-", 3, 25000000000 },
		{ "0000:01:00.0 60 1,1,1,-", 1, 20000000000 }, { "0000:01:00.0 0 1,6,2,-", 4, 25000000000 },
		{ "0000:01:00.0 0 1,3,2,-", 2, 25000000000 },  { "0000:01:00.0 86 1,5,0,-", 3, 0 },
		{ "0000:01:00.0 0 1,99,2,-", 0, 0 },           { "0000:01:00.0 999 1,0,2,-", 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct pl_topology *topology = read_links(cases[i].description);

		assert_int_equal(topology->link_count, 1);
		assert_int_equal(topology->links[0].generation, cases[i].generation);
		assert_int_equal(topology->links[0].bandwidth, cases[i].rate);
		pl_topology_free(topology);
	}
}

/* NVML replaces the links of a file, of the GPUs that it knows. */
static void test_nvml_replaces_links(void **state)
{
	struct pl_topology *topology = read_links("0000:01:00.0 90 4,6,2,-;0000:02:00.0 90 4,6,2,-");
	struct pl_gpu_link link = { .gpu = 0, .end = PL_GPU_END_UNKNOWN, .hops = 1 };
	struct pl_gpu_link_sum sum;

	(void)state;
	assert_int_equal(pl_topology_set_nvlinks(topology, &link, 1), 0);
	pl_topology_sum_links(topology, 0, PL_GPU_LINK_NVLINK, &sum);
	assert_int_equal(sum.active + sum.down, 0);
	pl_topology_sum_links(topology, 1, PL_GPU_LINK_NVLINK, &sum);
	assert_int_equal(sum.active, 4);
	pl_topology_free(topology);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_direct_links),
		cmocka_unit_test(test_switches),
		cmocka_unit_test(test_generations),
		cmocka_unit_test(test_nvml_replaces_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
