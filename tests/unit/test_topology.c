/* SPDX-License-Identifier: BSD-2-Clause */
/* Topology queries of the library: rates, configuration space, ranks. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "topology/build.h"
#include "topology/cpu_name.h"

static void test_rates(void **state)
{
	static const struct {
		uint32_t speed, width;
		uint64_t rate;
	} links[] = {
		{ 2500, 1, 250000000 },
		{ 5000, 4, 2000000000 },
		{ 8000, 16, 15753846144 },
		{ 16000, 8, 15753846144 },
		{ 32000, 16, 63015384608 },
		{ 64000, 16, 121000000000 },
		{ 0, 16, 0 },
		{ 8000, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(links); i++)
		assert_int_equal(pl_pci_link_rate((struct pl_pci_link){ links[i].speed, links[i].width }),
				 links[i].rate);
}

static void test_speeds(void **state)
{
	static const struct {
		const char *text;
		uint32_t speed;
	} speeds[] = {
		{ "2.5 GT/s PCIe", 2500 },
		{ "8 GT/s", 8000 },
		{ "16.0 GT/s PCIe", 16000 },
		{ "64.0 GT/s PCIe", 64000 },
		{ "Unknown", 0 },
		{ "", 0 },
		{ "16", 0 },
		{ "99999999999 GT/s", 0 },
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(speeds); i++)
		assert_int_equal(topology_link_speed(speeds[i].text), speeds[i].speed);
	assert_int_equal(topology_link_width(16), 16);
	assert_int_equal(topology_link_width(63), 0);
	assert_int_equal(topology_link_width(255), 0);
}

static void test_addresses(void **state)
{
	static const char *const good[] = { "0000:00:1f.7", "10000:e1:00.0", "abcdef01:00:00.0" };
	static const char *const bad[] = {
		"", "0000:00:00.8", "000:00:00.0", "0000:00:0g.0", "0000-00:00.0", "0000:3B:00.0", "123456789:00:00.0"
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(good); i++)
		assert_true(topology_is_pci_address(good[i], strlen(good[i])));
	for (size_t i = 0; i < PL_ARRAY_SIZE(bad); i++)
		assert_false(topology_is_pci_address(bad[i], strlen(bad[i])));
}

static void put_little_endian(uint8_t *data, size_t at, uint32_t value)
{
	for (unsigned i = 0; i < 4; i++)
		data[at + i] = (uint8_t)(value >> 8 * i);
}

/*
 * Parses the configuration space of a switch port with ACS and ATS, and of a resizable BAR, per the PCIe specification.
 */
static void test_configuration_space(void **state)
{
	struct pl_pci_node node = { .numa = -1 };
	uint8_t data[4096] = { 0 };

	(void)state;
	data[0x06] = 0x10;
	data[0x34] = 0x40;
	put_little_endian(data, 0x40, 0x00005001);
	put_little_endian(data, 0x50, 0x00620010);
	put_little_endian(data, 0x54, 2);
	put_little_endian(data, 0x58, 0x00005020);
	put_little_endian(data, 0x100, 0x1401000d);
	put_little_endian(data, 0x104, 0x001d005f);
	put_little_endian(data, 0x140, 0x1601000f);
	put_little_endian(data, 0x144, 0x80000000);
	put_little_endian(data, 0x160, 0x00010015);
	put_little_endian(data, 0x164, 0x0003fc00);
	put_little_endian(data, 0x168, 0x00000021);
	topology_config_parse(&node, data, sizeof(data));
	assert_true(node.config.express && node.config.extended);
	assert_int_equal(node.config.port_type, 6);
	assert_int_equal(node.config.payload_supported, 512);
	assert_int_equal(node.config.payload, 256);
	assert_int_equal(node.config.read_request, 4096);
	assert_true(node.config.acs);
	assert_int_equal(node.config.acs_control, 0x1d);
	assert_true(node.config.ats && node.config.ats_enabled);
	assert_int_equal(node.bars[1].sizes, 0x3fc0);
	/* Users other than root see 64 bytes. */
	node = (struct pl_pci_node){ .numa = -1 };
	topology_config_parse(&node, data, 64);
	assert_false(node.config.express || node.config.extended);
	/* A cyclic capability list, and a device that does not answer. */
	put_little_endian(data, 0x50, 0x00024001);
	put_little_endian(data, 0x100, 0x10010001);
	topology_config_parse(&node, data, sizeof(data));
	assert_false(node.config.express);
	memset(data, 0xff, sizeof(data));
	topology_config_parse(&node, data, sizeof(data));
}

static const char machine[] = "<system><cpu numaid='0'>"
			      "<pci busid='ffff:00:00.0' class='0x060400' link_speed='16 GT/s' link_width='16'>"
			      "<pci busid='0000:01:00.0' class='0x030200'/><pci busid='0000:02:00.0' class='0x030200'/>"
			      "<pci busid='0000:03:00.0' class='0x020700'><nic><net name='near' speed='100000' "
			      "port='1' guid='0x1'/></nic></pci>"
			      "<pci busid='0000:04:00.0' class='0x020700'><nic><net name='slow' speed='10000' port='1' "
			      "guid='0x2'/></nic></pci>"
			      "</pci></cpu><cpu numaid='1'>"
			      "<pci busid='0000:05:00.0' class='0x020700'><nic><net name='far' speed='100000' port='1' "
			      "guid='0x3'/></nic></pci>"
			      "<pci busid='0000:06:00.0' class='0x020700'/>"
			      "</cpu></system>";

static struct pl_topology *read_machine(void)
{
	char file[] = "/tmp/peerlane-topology-XXXXXX";
	struct pl_topology_options options = { .nccl_file = file };
	struct pl_topology *topology;
	struct pl_sysroot *root;
	int fd = mkstemp(file);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, machine, sizeof(machine) - 1), sizeof(machine) - 1);
	close(fd);
	/* The root /proc/self/fdinfo hides the devices of the machine that runs the test. */
	assert_int_equal(pl_sysroot_open(&root, "/proc/self/fdinfo", NULL), 0);
	assert_int_equal(pl_topology_read(&topology, root, &options, NULL), 0);
	pl_sysroot_close(root);
	unlink(file);
	return topology;
}

static void assert_ranks(const struct pl_topology *topology, const struct pl_card_rank *ranks, int count,
			 const char *const *names)
{
	for (int i = 0; i < count; i++)
		assert_string_equal(topology->cards[ranks[i].card].name, names[i]);
	assert_null(names[count]);
}

/*
 * Checks that a card without an RDMA device has no rank.  A near card with less than half of the rate ranks behind a
 * far one.
 */
static void test_ranks(void **state)
{
	struct pl_topology *topology = read_machine();
	struct pl_card_rank ranks[8];

	(void)state;
	assert_int_equal(topology->card_count, 4);
	assert_ranks(topology, ranks, pl_topology_rank_gpu(topology, "0000:01:00.0", ranks),
		     (const char *const[]){ "near", "far", "slow", NULL });
	assert_int_equal(ranks[0].class, PL_PATH_PIX);
	assert_int_equal(ranks[0].bandwidth, 12500000000);
	assert_true(ranks[0].usable);
	assert_int_equal(ranks[1].class, PL_PATH_SYS);
	assert_int_equal(pl_topology_rank_gpu(topology, "0000:03:00.0", ranks), -ENOENT);
	assert_int_equal(pl_topology_rank_gpu(topology, "nonsense", ranks), -ENOENT);
	assert_ranks(topology, ranks, pl_topology_rank_numa(topology, 0, ranks),
		     (const char *const[]){ "near", "far", "slow", NULL });
	assert_ranks(topology, ranks, pl_topology_rank_numa(topology, 1, ranks),
		     (const char *const[]){ "far", "near", "slow", NULL });
	assert_int_equal(ranks[1].class, PL_PATH_SYS);
	pl_topology_free(topology);
}

static void test_cpu_names(void **state)
{
	static const struct {
		const char *cpuinfo, *name;
	} texts[] = {
		{ "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\nflags\t\t: fpu\n",
		  "Intel(R) Xeon(R) Platinum 8480C" },
		{ "processor\t: 0\nFeatures\t: fp sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", "Neoverse-V2" },
		{ "CPU implementer\t: 0xc0\nCPU variant\t: 0x0\nCPU part\t: 0xac3\n\nprocessor\t: 1\nCPU part\t: 0xd4f\n",
		  "Ampere-1" },
		{ "CPU implementer\t: 0x41\nCPU part\t: 0xfff\n", "ARM implementer 0x41 part 0xfff" },
		{ "CPU implementer\t: 0x41\n", "" },
		{ "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 2166.000000MHz\n", "POWER9, altivec supported" },
		{ "model name:", "" },
		{ "model names : x", "" },
		{ "", "" },
	};
	char name[64];

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(texts); i++) {
		pl_cpu_name(texts[i].cpuinfo, name, sizeof(name));
		assert_string_equal(name, texts[i].name);
	}
	pl_cpu_name(texts[0].cpuinfo, name, 6);
	assert_string_equal(name, "Intel");
}

/* An allocation of too many bytes fails, also under a sanitizer. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
	return "allocator_may_return_null=1";
}

/* Without memory for new paths the topology keeps its paths. */
static void test_paths_without_memory(void **state)
{
	struct pl_topology topology = { 0 };

	(void)state;
	assert_int_equal(topology_node_add(&topology, "0000:01:00.0", PL_PCI_ENDPOINT, -1), 0);
	assert_int_equal(topology_node_add(&topology, "0000:02:00.0", PL_PCI_ENDPOINT, -1), 1);
	topology.gpus = calloc(1, sizeof(*topology.gpus));
	topology.gpu_count = 1;
	assert_int_equal(topology_card_add(&topology, 1, "mlx5_0"), 0);
	assert_int_equal(topology_make_paths(&topology), 0);
	topology.gpu_count = SIZE_MAX / sizeof(struct pl_path) + 1;
	assert_int_equal(topology_make_paths(&topology), -ENOMEM);
	topology.gpu_count = 1;
	assert_int_equal(topology.path_count, 1);
	assert_non_null(pl_topology_path(&topology, 0, 0));
	assert_int_equal(topology_make_paths(&topology), 0);
	free(topology.paths);
	free(topology.gpus);
	free(topology.cards);
	free(topology.nodes);
}

/* An absent address in a report finds no node, not even one whose address has no printable character. */
static void test_empty_address(void **state)
{
	struct pl_topology topology = { 0 };

	(void)state;
	assert_int_equal(topology_node_add(&topology, "", PL_PCI_ENDPOINT, -1), 0);
	assert_int_equal(pl_topology_find(&topology, ""), -1);
	free(topology.nodes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_speeds),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_configuration_space),
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_cpu_names),
		cmocka_unit_test(test_paths_without_memory),
		cmocka_unit_test(test_empty_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
