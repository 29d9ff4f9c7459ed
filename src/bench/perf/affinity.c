/* SPDX-License-Identifier: BSD-2-Clause */
/* Restricts this process to cores and to the memory of a NUMA node. */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/perf/options.h"

#define NODES_MAX 1024

/* Parses a list of cores, such as "0-3,8". */
static bool parse_cpu_list(const char *text, cpu_set_t *set)
{
	CPU_ZERO(set);
	do {
		char *end;
		unsigned long first, last;

		if (*text < '0' || *text > '9')
			return false;
		first = last = strtoul(text, &end, 10);
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			last = strtoul(end + 1, &end, 10);
		if (last < first || last >= CPU_SETSIZE || (*end && *end != ','))
			return false;
		for (; first <= last; first++)
			CPU_SET(first, set);
		text = end + 1;
		if (!*end)
			return true;
	} while (*text);
	return false;
}

bool bench_cpu_list_valid(const char *text)
{
	cpu_set_t set;

	return parse_cpu_list(text, &set);
}

static int set_cpu_affinity(const cpu_set_t *set, const char *text, struct pl_error *error)
{
	if (sched_setaffinity(0, sizeof(*set), set) < 0)
		return cli_fail(error, -errno, "BENCH-PLACE", text, "`lscpu --extended` lists the cores",
				"cannot run on these cores: %s", strerror(errno));
	return 0;
}

static int read_node_cpus(int node, cpu_set_t *set, struct pl_error *error)
{
	char path[80], text[4096] = "", name[24];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	snprintf(name, sizeof(name), "%d", node);
	file = fopen(path, "re");
	if (file) {
		if (!fgets(text, sizeof(text), file))
			text[0] = '\0';
		fclose(file);
		text[strcspn(text, "\n")] = '\0';
	}
	if (!file || (text[0] && !parse_cpu_list(text, set)))
		return cli_fail(error, -ENODEV, "BENCH-PLACE", name,
				"`numactl --hardware` and `peerlane topo` list the nodes", "no such NUMA node");
	/* A node without cores, for memory only: any core may run. */
	if (!text[0])
		CPU_ZERO(set);
	return 0;
}

/* Binds later allocations to the node, and the process to its cores unless --cpu names some. */
static int bind_to_node(const struct bench_options *options, struct pl_error *error)
{
	unsigned long mask[NODES_MAX / 8 / sizeof(unsigned long)] = { 0 };
	const unsigned bits = 8 * sizeof(unsigned long);
	unsigned node = (unsigned)options->node;
	cpu_set_t set;
	int rc = read_node_cpus(options->node, &set, error);

	if (rc < 0)
		return rc;
	if (!options->cpus && CPU_COUNT(&set) > 0)
		rc = set_cpu_affinity(&set, "--numa", error);
	if (rc < 0)
		return rc;
	mask[node / bits] |= 1ul << node % bits;
	if (syscall(SYS_set_mempolicy, MPOL_BIND, mask, (unsigned long)NODES_MAX) < 0)
		return cli_fail_errno(error, -errno, "set_mempolicy", "--numa");
	return 0;
}

int bench_set_affinity(const struct bench_options *options, struct pl_error *error)
{
	cpu_set_t set;
	int rc = 0;

	if (options->cpus && parse_cpu_list(options->cpus, &set))
		rc = set_cpu_affinity(&set, options->cpus, error);
	if (rc == 0 && options->node >= 0)
		rc = bind_to_node(options, error);
	return rc;
}
