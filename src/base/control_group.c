/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/control_group.h"

#include <limits.h>
#include <stdio.h>

/* Returns the path in a line "NUMBER:CONTROLLER,CONTROLLER:PATH" that has the controller; NULL: the line has not. */
static const char *path_in_line(const char *line, const char *controller)
{
	const size_t length = strlen(controller);
	const char *at = line + strspn(line, "0123456789");
	bool found = false;

	if (*at != ':')
		return NULL;
	do {
		at++;
		found |= strcspn(at, ",:") == length && !strncmp(at, controller, length);
		at += strcspn(at, ",:");
	} while (*at == ',');
	return found && *at == ':' ? at + 1 : NULL;
}

bool pl_control_group_find(const char *root, const char *controller, char *path, size_t size)
{
	char file_name[PATH_MAX], line[PATH_MAX];
	const char *found = NULL;
	FILE *file;

	snprintf(file_name, sizeof(file_name), "%s/proc/self/cgroup", root);
	file = fopen(file_name, "re");
	while (!found && file && fgets(line, sizeof(line), file))
		found = path_in_line(line, controller);
	if (file)
		fclose(file);
	if (!found)
		return false;
	snprintf(path, size, "%.*s", (int)strcspn(found, "\n"), found);
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
