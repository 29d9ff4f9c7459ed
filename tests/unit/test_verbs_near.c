/* SPDX-License-Identifier: BSD-2-Clause */
/* Cards near host memory: by the NUMA nodes of its pages, as get_mempolicy(2) of this program tells them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/region.h"
#include "fabric/verbs/memory/near.h"
#include "fabric/verbs/verbs.h"
#include "topology/topology.h"

#define CARDS 4u
#define LENGTH 4096u

/* Nodes of the first, the middle and the last byte; -1: the call fails. */
static int nodes[3];
static const uint8_t *bytes;

/* Like that of the C library, reads six arguments, also where the caller gives fewer. */
__attribute__((no_sanitize_address)) long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long values[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		values[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_get_mempolicy) {
		const uint8_t *at = (const uint8_t *)values[3];
		int node = nodes[at == bytes ? 0 : at == bytes + LENGTH / 2 ? 1 : 2];

		if (node < 0)
			return -1;
		*(int *)values[0] = node;
		return 0;
	}
	if (!real) {
		void *found = dlsym(RTLD_NEXT, "syscall");

		memcpy(&real, &found, sizeof(real));
	}
	return real(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

/* Node 0 has three cards, node 1 has one. */
static const char topology[] =
	"<system version=\"1\">\n"
	"  <cpu numaid=\"0\" affinity=\"1\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n"
	"    <pci busid=\"0000:10:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
	"<nic><net name=\"mlx5_0\" speed=\"400000\" port=\"1\"/></nic></pci>\n"
	"    <pci busid=\"0000:20:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
	"<nic><net name=\"mlx5_1\" speed=\"400000\" port=\"1\"/></nic></pci>\n"
	"    <pci busid=\"0000:30:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
	"<nic><net name=\"mlx5_2\" speed=\"400000\" port=\"1\"/></nic></pci>\n"
	"  </cpu>\n"
	"  <cpu numaid=\"1\" affinity=\"2\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n"
	"    <pci busid=\"0000:e0:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
	"<nic><net name=\"mlx5_3\" speed=\"400000\" port=\"1\"/></nic></pci>\n"
	"  </cpu>\n"
	"</system>\n";

struct world {
	struct pl_context context;
	struct verbs_state state;
	struct verbs_port ports[CARDS];
};

static struct world *world_new(const char *text)
{
	struct world *world = calloc(1, sizeof(*world));
	char file[64];
	FILE *stream;

	assert_non_null(world);
	world->context.allocator = pl_system_allocator;
	pthread_mutex_init(&world->context.grant_lock, NULL);
	world->state.context = &world->context;
	pl_list_init(&world->state.devices);
	for (unsigned i = 0; i < CARDS; i++) {
		world->ports[i].place = i;
		snprintf(world->ports[i].name, sizeof(world->ports[i].name), "mlx5_%u", i);
		world->state.places[i] = &world->ports[i];
	}
	atomic_init(&world->state.place_count, CARDS);
	if (!text)
		return world;
	snprintf(file, sizeof(file), "/tmp/peerlane-unit-near-%d.xml", (int)getpid());
	stream = fopen(file, "w");
	assert_non_null(stream);
	assert_true(fputs(text, stream) >= 0);
	assert_int_equal(fclose(stream), 0);
	assert_int_equal(pl_machine_open(&world->context, file, NULL), 0);
	unlink(file);
	verbs_machine_read(&world->state);
	return world;
}

static void world_free(struct world *world)
{
	pl_machine_close(&world->context);
	free(world);
}

/* Returns the places near a new region of memory on these nodes. */
static unsigned near_nodes(struct world *world, int first, int middle, int last, size_t length)
{
	static uint8_t buffer[LENGTH];
	struct pl_region region = { .context = &world->context,
				    .memory = { .ops = &pl_host_memory, .address = buffer, .length = length } };

	bytes = buffer;
	nodes[0] = first;
	nodes[1] = middle;
	nodes[2] = last;
	return verbs_near(&world->state, &region);
}

static void test_nodes(void **state)
{
	struct world *world = world_new(topology);

	(void)state;
	assert_int_equal(near_nodes(world, 1, 1, 1, LENGTH), 1u << 3);
	assert_int_equal(near_nodes(world, 0, 1, 1, LENGTH), 0);
	assert_int_equal(near_nodes(world, 1, 0, 1, LENGTH), 0);
	assert_int_equal(near_nodes(world, 1, 1, 0, LENGTH), 0);
	assert_int_equal(near_nodes(world, -1, -1, -1, LENGTH), 0);
	assert_int_equal(near_nodes(world, 1, 1, 1, 0), 0);
	world_free(world);
}

/* Regions use two of three cards in turn; a program that sets the number of rails gets so many. */
static void test_turns(void **state)
{
	struct world *world = world_new(topology);

	(void)state;
	assert_int_equal(near_nodes(world, 0, 0, 0, LENGTH), 3);
	assert_int_equal(near_nodes(world, 0, 0, 0, LENGTH), 6);
	assert_int_equal(near_nodes(world, 0, 0, 0, LENGTH), 5);
	assert_int_equal(near_nodes(world, 0, 0, 0, LENGTH), 3);
	world->context.options.rails = 3;
	assert_int_equal(near_nodes(world, 0, 0, 0, LENGTH), 7);
	assert_int_equal(world->state.turn, 4);
	world_free(world);
}

/* What was found once stays. */
static void test_kept(void **state)
{
	struct world *world = world_new(topology);
	struct pl_region region = { .context = &world->context };

	(void)state;
	atomic_init(&region.near, VERBS_NEAR_KNOWN | 8);
	assert_int_equal(verbs_near(&world->state, &region), 8);
	world_free(world);
}

/* Without a topology, or with one port, there is nothing to choose. */
static void test_nothing_known(void **state)
{
	struct world *world = world_new(NULL);

	(void)state;
	assert_int_equal(near_nodes(world, 1, 1, 1, LENGTH), 0);
	world_free(world);
	world = world_new(topology);
	atomic_store(&world->state.place_count, 1);
	assert_int_equal(near_nodes(world, 0, 0, 0, LENGTH), 0);
	world_free(world);
}

/* The machine is read when there are ports of several devices, once. */
static void test_machine(void **state)
{
	struct world *world = world_new(NULL);

	(void)state;
	memcpy(world->ports[1].name, world->ports[0].name, sizeof(world->ports[0].name));
	atomic_store(&world->state.place_count, 2);
	verbs_machine_read(&world->state);
	assert_false(world->context.machine_known);
	atomic_store(&world->state.place_count, 3);
	verbs_machine_read(&world->state);
	assert_true(world->context.machine_known);
	world_free(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nodes),         cmocka_unit_test(test_turns),   cmocka_unit_test(test_kept),
		cmocka_unit_test(test_nothing_known), cmocka_unit_test(test_machine),
	};

	return cmocka_run_group_tests_name("verbs near", tests, NULL, NULL);
}
