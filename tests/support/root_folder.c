/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/root_folder.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "support/check.h"

void root_folder_write(const char *root, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = 0;
		(void)mkdir(path, 0700);
	}
	file = fopen(path, "w");
	check(file);
	fputs(text, file);
	fclose(file);
}
