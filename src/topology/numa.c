/* SPDX-License-Identifier: BSD-2-Clause */
/* NUMA nodes, and detection of virtual machines. */
#include "topology/build.h"

#include <stdio.h>
#include <stdlib.h>

#include "topology/cpu_name.h"

static uint64_t read_memory(struct pl_sysroot *root, const char *node)
{
	char text[4096], *found;
	unsigned long long kilobytes;

	if (pl_sysroot_text(root, text, sizeof(text), "sys/devices/system/node/%s/meminfo", node) <= 0)
		return 0;
	found = strstr(text, "MemTotal:");
	if (!found || sscanf(found, "MemTotal: %llu", &kilobytes) != 1 || kilobytes > UINT64_MAX / 1024)
		return 0;
	return kilobytes * 1024;
}

static int add_node(struct pl_topology *topology, struct pl_sysroot *root, const char *name)
{
	char cpus[4096], *end;
	long id;
	uint64_t socket;
	struct pl_numa_node *node;
	int index;

	if (strncmp(name, "node", 4))
		return 0;
	id = strtol(name + 4, &end, 10);
	if (end == name + 4 || *end || id < 0 || id >= TOPOLOGY_NUMA_MAX)
		return 0;
	index = TOPOLOGY_ADD(topology->numa, topology->numa_count, TOPOLOGY_NUMA_MAX);
	if (index < 0)
		return index;
	node = &topology->numa[index];
	node->id = (int)id;
	node->socket = -1;
	node->memory = read_memory(root, name);
	if (pl_sysroot_text(root, cpus, sizeof(cpus), "sys/devices/system/node/%s/cpulist", name) <= 0)
		return 0;
	TOPOLOGY_COPY(node->cpus, cpus);
	if (pl_sysroot_number(root, 10, &socket, "sys/devices/system/cpu/cpu%lu/topology/physical_package_id",
			      strtoul(cpus, NULL, 10)) == 0 &&
	    socket < 65536)
		node->socket = (int)socket;
	return 0;
}

static int compare_numa(const void *a, const void *b)
{
	return ((const struct pl_numa_node *)a)->id - ((const struct pl_numa_node *)b)->id;
}

static int read_numa(struct pl_topology *topology, struct pl_sysroot *root)
{
	struct pl_sysroot_list list;
	int rc = 0;

	if (pl_sysroot_list(root, &list, "sys/devices/system/node") < 0)
		return 0;
	for (size_t i = 0; i < list.count && rc >= 0; i++)
		rc = add_node(topology, root, list.names[i]);
	pl_sysroot_list_free(&list);
	if (topology->numa_count)
		qsort(topology->numa, topology->numa_count, sizeof(*topology->numa), compare_numa);
	return rc == -ENOMEM ? rc : 0;
}

/* True if a list of words has this one. */
static bool has_word(const char *text, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = text; *(at += strspn(at, " \t"));) {
		size_t here = strcspn(at, " \t");

		if (here == length && !strncmp(at, word, length))
			return true;
		at += here;
	}
	return false;
}

/* True for vendors of virtual machines, for processors without the hypervisor flag. */
static bool is_hypervisor(const char *vendor, const char *product)
{
	return !strcmp(vendor, "QEMU") || !strncmp(vendor, "VMware", 6) || !strcmp(vendor, "Xen") ||
	       !strncmp(product, "KVM", 3) || strstr(product, "Virtual Machine");
}

int topology_read_machine(struct pl_topology *topology, struct pl_sysroot *root)
{
	char vendor[48] = "", product[48] = "", cpu[64] = "", cpuinfo[PL_CPUINFO_SIZE + 1], flags[4096] = "";
	int length = pl_sysroot_bytes(root, cpuinfo, PL_CPUINFO_SIZE, "proc/cpuinfo"), rc;

	cpuinfo[PL_MAX(length, 0)] = '\0';
	pl_cpu_name(cpuinfo, cpu, sizeof(cpu));
	pl_cpuinfo_value(cpuinfo, "flags", flags, sizeof(flags));
	pl_sysroot_text(root, vendor, sizeof(vendor), "sys/class/dmi/id/sys_vendor");
	pl_sysroot_text(root, product, sizeof(product), "sys/class/dmi/id/product_name");
	snprintf(topology->platform, sizeof(topology->platform), "%s%s%s", vendor, vendor[0] && product[0] ? " " : "",
		 product);
	/* Bare metal of a cloud has the cloud's name too, so names count only without flags. */
	topology->is_virtual = flags[0] ? has_word(flags, "hypervisor") : is_hypervisor(vendor, product);
	rc = read_numa(topology, root);
	for (size_t i = 0; i < topology->numa_count; i++)
		TOPOLOGY_COPY(topology->numa[i].cpu, cpu);
	return rc;
}
