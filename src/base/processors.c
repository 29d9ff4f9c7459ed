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

/* Reads the head of a control group's file, as text. Returns false if there is none. */
static bool read_group_file(const char *root, const char *folder, const char *path, const char *file, char text[64])
{
	char name[PATH_MAX];
	int length = snprintf(name, sizeof(name), "%s/sys/fs/cgroup%s%s/%s", root, folder, path, file);

	return length < (int)sizeof(name) && pl_read_head(name, text, 64);
}

/* Returns the processors that run for `quota` in each `period`, rounded up. */
static unsigned processors_of_quota(uint64_t quota, uint64_t period)
{
	uint64_t count = quota / period + (quota % period != 0);

	return (unsigned)PL_MAX(PL_MIN(count, (uint64_t)UINT_MAX), 1u);
}

/* Returns the processors whose time a control group of version 2 allows; UINT_MAX: no limit, or no such file. */
static unsigned group_processors(const char *root, const char *path)
{
	char text[64];
	uint64_t quota, period;

	if (!read_group_file(root, "", path, "cpu.max", text) ||
	    sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) != 2 || !period)
		return UINT_MAX;
	return processors_of_quota(quota, period);
}

/* The same for version 1, where a quota of -1 is no limit. */
static unsigned group_1_processors(const char *root, const char *path)
{
	char quota_text[64], period_text[64];
	int64_t quota, period;

	if (!read_group_file(root, "/cpu", path, "cpu.cfs_quota_us", quota_text) ||
	    !read_group_file(root, "/cpu", path, "cpu.cfs_period_us", period_text) ||
	    sscanf(quota_text, "%" SCNd64, &quota) != 1 || sscanf(period_text, "%" SCNd64, &period) != 1 || quota < 0 ||
	    period <= 0)
		return UINT_MAX;
	return processors_of_quota((uint64_t)quota, (uint64_t)period);
}

/* A process has the least limit of its control group and of all above it. */
static unsigned groups_processors(const char *root, const char *controller,
				  unsigned (*group)(const char *root, const char *path))
{
	unsigned count = UINT_MAX, one;
	char path[PATH_MAX];

	if (!pl_control_group_find(root, controller, path, sizeof(path)))
		return UINT_MAX;
	do {
		one = group(root, path);
		count = PL_MIN(count, one);
	} while (pl_control_group_rise(path));
	return count;
}

unsigned pl_processors_below(const char *root)
{
	unsigned count = affinity_processors(), groups = groups_processors(root, "", group_processors);
	unsigned groups_1 = groups_processors(root, "cpu", group_1_processors);

	count = PL_MIN(count, groups);
	return PL_MIN(count, groups_1);
}

unsigned pl_processors(void)
{
	return pl_processors_below("");
}
