/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/control_group.h"

#include <limits.h>
#include <stdio.h>

bool pl_control_group_find(const char *root, const char *mark, char *path, size_t size)
{
	char file_name[PATH_MAX], line[PATH_MAX];
	const char *at = line;
	bool found = false;
	FILE *file;

	snprintf(file_name, sizeof(file_name), "%s/proc/self/cgroup", root);
	file = fopen(file_name, "re");
	while (!found && file && fgets(line, sizeof(line), file)) {
		at = line + strspn(line, "0123456789");
		found = !strncmp(at, mark, strlen(mark));
	}
	if (file)
		fclose(file);
	if (!found)
		return false;
	at += strlen(mark);
	snprintf(path, size, "%.*s", (int)strcspn(at, "\n"), at);
	return true;
}

bool pl_control_group_rise(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash)
		return false;
	*slash = 0;
	return true;
}
