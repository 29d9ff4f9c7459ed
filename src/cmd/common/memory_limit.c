/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that this process may still take: of the host, and of its control groups (version 2). */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/cli.h"
#include "cmd/common/units.h"

#define CGROUPS "/sys/fs/cgroup"

static uint64_t read_available(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	uint64_t available = UINT64_MAX, kib;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
			available = kib * 1024;
	if (file)
		fclose(file);
	return available;
}

/* Reads a number of a control group; UINT64_MAX for "max", or if there is none. */
static uint64_t read_group_number(const char *group, const char *name)
{
	uint64_t value = UINT64_MAX;
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), CGROUPS "%s/%s", group, name);
	file = fopen(path, "re");
	if (file && fscanf(file, "%" SCNu64, &value) != 1)
		value = UINT64_MAX;
	if (file)
		fclose(file);
	return value;
}

/* Returns the least room of the process's control group and of all above it. */
static uint64_t read_group_room(void)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX] = "", *group = line + 3, *slash;
	uint64_t room = UINT64_MAX;

	while (file && fgets(line, sizeof(line), file) && strncmp(line, "0::", 3))
		line[0] = 0;
	if (file)
		fclose(file);
	if (!line[0])
		return room;
	line[strcspn(line, "\n")] = 0;
	for (;;) {
		uint64_t most = read_group_number(group, "memory.max");
		uint64_t used = read_group_number(group, "memory.current");

		if (most != UINT64_MAX && used != UINT64_MAX)
			room = CLI_MIN(room, most > used ? most - used : 0);
		slash = strrchr(group, '/');
		if (!slash || !group[0])
			return room;
		*slash = 0;
	}
}

int cli_check_memory(uint64_t bytes, struct pl_error *error)
{
	uint64_t available = CLI_MIN(read_available(), read_group_room());
	char wanted[CLI_UNIT_MAX], there[CLI_UNIT_MAX];

	if (bytes <= available)
		return 0;
	return cli_fail(error, -ENOMEM, "NO-MEMORY", NULL, "ask for less, or free memory",
			"%s of memory are wanted, %s are available", cli_format_bytes(wanted, bytes),
			cli_format_bytes(there, available));
}
