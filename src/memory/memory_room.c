/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/memory_room.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "base/control_group.h"

/*
 * Size from which allocations are checked. The check reads some small files in about 50 us; fallocate(2) takes 1.3 ms for
 * 4 MiB.
 */
#define CHECK_MIN (4u << 20)
/* Most bytes that are taken without a further check. */
#define SLICE_MAX (256u << 20)
/* Bytes that are taken at once while signals interrupt longer calls: about 0.1 ms. */
#define SLICE_MIN (256u << 10)

/* Files of the memory controller, in the two versions of control groups. */
static const struct group_version {
	const char *controller; /* for pl_control_group_find() */
	const char *folder;    /* the root group */
	const char *limits[2]; /* beyond the first one the kernel ends processes, beyond the second one it slows them */
	const char *used;      /* includes the page cache */
	const char *cache[3];  /* lines of memory.stat: pages that the kernel frees before it ends a process */
} versions[] = {
	{ "memory",
	  "/sys/fs/cgroup/memory",
	  { "memory.limit_in_bytes" },
	  "memory.usage_in_bytes",
	  { "total_inactive_file", "total_active_file" } },
	{ "",
	  "/sys/fs/cgroup",
	  { "memory.max", "memory.high" },
	  "memory.current",
	  { "inactive_file", "active_file", "slab_reclaimable" } },
};

struct group {
	const char *root;
	const struct group_version *version;
	const char *path; /* below the folder */
};

static uint64_t read_host_room(const char *root)
{
	uint64_t room = UINT64_MAX, kib;
	char text[PATH_MAX];
	FILE *file;

	snprintf(text, sizeof(text), "%s/proc/meminfo", root);
	file = fopen(text, "re");
	while (file && fgets(text, sizeof(text), file))
		if (sscanf(text, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
			room = kib * 1024;
	if (file)
		fclose(file);
	return room;
}

static FILE *open_group_file(const struct group *group, const char *name)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof(path), "%s%s%s/%s", group->root, group->version->folder, group->path, name);

	return length < (int)sizeof(path) ? fopen(path, "re") : NULL;
}

/* Reads a number of a control group; UINT64_MAX for "max", or if the group has no such file. */
static uint64_t read_group_number(const struct group *group, const char *name)
{
	FILE *file = open_group_file(group, name);
	uint64_t value = UINT64_MAX;

	if (file && fscanf(file, "%" SCNu64, &value) != 1)
		value = UINT64_MAX;
	if (file)
		fclose(file);
	return value;
}

/* Returns the bytes of a control group that the kernel frees when the group reaches its limit. */
static uint64_t read_group_cache(const struct group *group)
{
	FILE *file = open_group_file(group, "memory.stat");
	uint64_t value, sum = 0;
	char line[128], name[64];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63s %" SCNu64, name, &value) != 2)
			continue;
		for (size_t i = 0; i < PL_ARRAY_SIZE(group->version->cache); i++)
			if (group->version->cache[i] && !strcmp(name, group->version->cache[i]))
				sum += value;
	}
	if (file)
		fclose(file);
	return sum;
}

static uint64_t read_group_room(const struct group *group)
{
	uint64_t limit = UINT64_MAX, used, cache;

	for (size_t i = 0; i < PL_ARRAY_SIZE(group->version->limits); i++)
		if (group->version->limits[i])
			limit = PL_MIN(limit, read_group_number(group, group->version->limits[i]));
	if (limit == UINT64_MAX)
		return UINT64_MAX;
	used = read_group_number(group, group->version->used);
	if (used == UINT64_MAX)
		return UINT64_MAX;
	cache = read_group_cache(group);
	used -= PL_MIN(used, cache);
	return limit > used ? limit - used : 0;
}

/* Returns the least room of the process's control group and of all above it. */
static uint64_t read_groups_room(const char *root, const struct group_version *version)
{
	char path[PATH_MAX];
	struct group group = { root, version, path };
	uint64_t room = UINT64_MAX, one;

	if (!pl_control_group_find(root, version->controller, path, sizeof(path)))
		return UINT64_MAX;
	do {
		one = read_group_room(&group);
		room = PL_MIN(room, one);
	} while (pl_control_group_rise(path));
	return room;
}

uint64_t pl_memory_room(const char *root)
{
	uint64_t room = read_host_room(root), one;

	for (size_t i = 0; i < PL_ARRAY_SIZE(versions); i++) {
		one = read_groups_room(root, &versions[i]);
		room = PL_MIN(room, one);
	}
	return room;
}

int pl_memory_room_check(const char *root, size_t size, size_t taken, struct pl_error *error)
{
	uint64_t room;

	if (size < CHECK_MIN)
		return 0;
	room = pl_memory_room(root);
	if (size - taken <= room)
		return 0;
	return pl_fail(error, -ENOMEM, "NO-MEMORY", "pl_region_allocate", NULL, "ask for less, or free memory",
		       "%zu MiB of memory are wanted, %" PRIu64 " MiB are available", size >> 20, (room + taken) >> 20);
}

/* Tells why fallocate(2) took no memory. The kernel means the limit of committed memory by ENOSPC, for files in memory. */
static int fail_to_take(int code, size_t size, struct pl_error *error)
{
	static const char call[] = "fallocate";

	switch (code) {
	case -ENOMEM:
		return pl_fail(error, -ENOMEM, "NO-MEMORY", call, NULL, "ask for less, or free memory",
			       "there are no %zu bytes of memory", size);
	case -ENOSPC:
		return pl_fail(error, -ENOMEM, "NO-MEMORY", call, NULL,
			       "ask for less, or raise vm.overcommit_ratio; or set vm.overcommit_memory to 0",
			       "%zu bytes are more than this host still commits to processes: see CommitLimit and "
			       "Committed_AS in /proc/meminfo",
			       size);
	case -EFBIG:
		return pl_fail(error, code, "SYSTEM", call, NULL, "raise it: ulimit -f unlimited",
			       "%zu bytes are more than the limit of file sizes allows", size);
	case -EPERM:
	case -EACCES:
		return pl_fail(error, code, "SYSTEM", call, NULL,
			       "allow fallocate(2) and sealed files of memfd_create(2), or register memory of your own",
			       "a seccomp filter or a security module forbids this process to take memory for a file");
	case -EOPNOTSUPP:
	case -ENOSYS:
		return pl_fail(error, code, "SYSTEM", call, NULL,
			       "register memory of your own with pl_region_register()",
			       "this kernel cannot take memory for a file in memory (CONFIG_SHMEM)");
	default:
		return pl_fail_errno(error, code, "SYSTEM", call, NULL);
	}
}

int pl_memory_room_take(const char *root, int fd, size_t size, struct pl_error *error)
{
	size_t slice = SLICE_MAX, taken = 0;
	int rc = 0;

	while (rc == 0 && taken < size) {
		size_t length = PL_MIN(size - taken, slice);

		if (taken > 0)
			rc = pl_memory_room_check(root, size, taken, error);
		if (rc == 0 && fallocate(fd, 0, (off_t)taken, (off_t)length) == 0)
			taken += length;
		else if (rc == 0 && errno == EINTR)
			/* Some kernels undo the whole call at a signal. Shorter calls end between the signals of a timer. */
			slice = PL_MAX(slice / 2, SLICE_MIN);
		else if (rc == 0)
			rc = fail_to_take(-errno, size, error);
	}
	return rc;
}
