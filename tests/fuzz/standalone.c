/* SPDX-License-Identifier: BSD-2-Clause */
/* Replays files, and all files of folders, through a fuzz target: for compilers without libFuzzer, and as a test. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static unsigned replayed;

static int replay_file(const char *path, size_t size)
{
	/* Allocates exactly the input's length, so that a sanitizer detects any read beyond it. */
	uint8_t *data = malloc(size ? size : 1);
	FILE *file = fopen(path, "rb");
	int rc = -1;

	if (data && file && fread(data, 1, size, file) == size) {
		LLVMFuzzerTestOneInput(data, size);
		replayed++;
		rc = 0;
	} else {
		perror(path);
	}
	if (file)
		fclose(file);
	free(data);
	return rc;
}

static int replay(const char *path);

static int replay_folder(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	char child[4096];
	int rc = 0;

	if (!folder) {
		perror(path);
		return -1;
	}
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		if ((size_t)snprintf(child, sizeof(child), "%s/%s", path, entry->d_name) >= sizeof(child) ||
		    replay(child))
			rc = -1;
	}
	closedir(folder);
	return rc;
}

static int replay(const char *path)
{
	struct stat status;

	if (stat(path, &status)) {
		perror(path);
		return -1;
	}
	return S_ISDIR(status.st_mode) ? replay_folder(path) : replay_file(path, (size_t)status.st_size);
}

int main(int argc, char **argv)
{
	int rc = 0;

	for (int i = 1; i < argc; i++)
		if (replay(argv[i]))
			rc = 1;
	if (!replayed) {
		fprintf(stderr, "usage: %s FILE|FOLDER...\nnothing was replayed\n", argv[0]);
		return 2;
	}
	printf("%u inputs\n", replayed);
	return rc;
}
