/* SPDX-License-Identifier: BSD-2-Clause */
/* The cores that this process runs on, and the NUMA node that its memory is on. */
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/perf/endpoint.h"

#define NODES_MAX 1024

/* "0-3,8" */
static bool parse_cpus(const char *text, cpu_set_t *set)
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

bool bench_cpus_valid(const char *text)
{
	cpu_set_t set;

	return parse_cpus(text, &set);
}

static int stay_on(const cpu_set_t *set, const char *text, struct pl_error *error)
{
	if (sched_setaffinity(0, sizeof(*set), set) < 0)
		return cli_fail(error, -errno, "BENCH-PLACE", text, "see `lscpu --extended` for those there are",
				"this process cannot run on these cores: %s", strerror(errno));
	return 0;
}

static int node_cpus(int node, cpu_set_t *set, struct pl_error *error)
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
	if (!file || (text[0] && !parse_cpus(text, set)))
		return cli_fail(error, -ENODEV, "BENCH-PLACE", name, "see `numactl --hardware`, or `peerlane topo`",
				"there is no such NUMA node");
	/* A node of memory only: any core will do. */
	if (!text[0])
		CPU_ZERO(set);
	return 0;
}

/* Before any memory is allocated that counts: from here on, all of it is there. */
static int use_node(const struct bench_options *options, struct pl_error *error)
{
	unsigned long mask[NODES_MAX / 8 / sizeof(unsigned long)] = { 0 };
	const unsigned bits = 8 * sizeof(unsigned long);
	unsigned node = (unsigned)options->node;
	cpu_set_t set;
	int rc = node_cpus(options->node, &set, error);

	if (rc < 0)
		return rc;
	if (!options->cpus && CPU_COUNT(&set) > 0)
		rc = stay_on(&set, "--numa", error);
	if (rc < 0)
		return rc;
	mask[node / bits] |= 1ul << node % bits;
	if (syscall(SYS_set_mempolicy, MPOL_BIND, mask, (unsigned long)NODES_MAX) < 0)
		return cli_fail_errno(error, -errno, "set_mempolicy", "--numa");
	return 0;
}

int bench_place(const struct bench_options *options, struct pl_error *error)
{
	cpu_set_t set;
	int rc = 0;

	if (options->cpus && parse_cpus(options->cpus, &set))
		rc = stay_on(&set, options->cpus, error);
	if (rc == 0 && options->node >= 0)
		rc = use_node(options, error);
	return rc;
}
