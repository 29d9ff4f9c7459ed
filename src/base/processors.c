/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/processors.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/control_group.h"

/* Sets of so many processors are large enough for all kernels: 8,192. The kernel refuses a set that is too small for it. */
#define SETS 8

static unsigned affinity_processors(void)
{
	cpu_set_t sets[SETS];
	long online;
	int count;

	if (sched_getaffinity(0, sizeof(sets), sets) == 0) {
		count = CPU_COUNT_S(sizeof(sets), sets);
		return (unsigned)PL_MAX(count, 1);
	}
	online = sysconf(_SC_NPROCESSORS_ONLN);
	return (unsigned)PL_MAX(online, 1l);
}

/* Returns the processors whose time a control group allows; UINT_MAX: no limit, or no such file. */
static unsigned group_processors(const char *root, const char *path)
{
	char name[PATH_MAX], text[64];
	uint64_t quota, period, count;
	int length = snprintf(name, sizeof(name), "%s/sys/fs/cgroup%s/cpu.max", root, path);

	if (length >= (int)sizeof(name) || !pl_read_head(name, text, sizeof(text)) ||
	    sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) != 2 || !period)
		return UINT_MAX;
	count = quota / period + (quota % period != 0);
	return (unsigned)PL_MAX(PL_MIN(count, (uint64_t)UINT_MAX), 1u);
}

/* A process has the least limit of its control group and of all above it. */
static unsigned groups_processors(const char *root)
{
	unsigned count = UINT_MAX, one;
	char path[PATH_MAX];

	if (!pl_control_group_find(root, PL_CONTROL_GROUP_2, path, sizeof(path)))
		return UINT_MAX;
	do {
		one = group_processors(root, path);
		count = PL_MIN(count, one);
	} while (pl_control_group_rise(path));
	return count;
}

unsigned pl_processors_below(const char *root)
{
	unsigned affinity = affinity_processors(), groups = groups_processors(root);

	return PL_MIN(affinity, groups);
}

unsigned pl_processors(void)
{
	return pl_processors_below("");
}
