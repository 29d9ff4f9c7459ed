/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Library for LD_PRELOAD: appends "fsync NAME" and "rename NAME" to the file of the variable SYNC_LOG.  NAME is the last
 * component.  The call number SYNC_FAIL of fsync(2), from 1, fails with EIO; so do all later ones, and those for the NAME of
 * SYNC_FAIL_NAME.  rename(2) waits while the file of RENAME_HOLD exists.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fsync(int fd);
int rename(const char *from, const char *to);
int renameat(int from_folder, const char *from, int to_folder, const char *to);

static int log_fd = -1;

/* Opens the file before the program enters its sandbox. */
__attribute__((constructor)) static void open_log(void)
{
	const char *log = getenv("SYNC_LOG");

	if (log)
		log_fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static void record(const char *call, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (log_fd >= 0)
		dprintf(log_fd, "%s %s\n", call, slash ? slash + 1 : path);
}

int fsync(int fd)
{
	static atomic_int calls;
	const char *fail = getenv("SYNC_FAIL"), *name = getenv("SYNC_FAIL_NAME"), *slash;
	char link[64], path[4096] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof(path) - 1) < 0)
		strcpy(path, "?");
	record("fsync", path);
	slash = strrchr(path, '/');
	if ((fail && ++calls >= atoi(fail)) || (name && slash && !strcmp(slash + 1, name))) {
		errno = EIO;
		return -1;
	}
	return 0;
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
	int (*real)(int, const char *, int, const char *);
	void *found = dlsym(RTLD_NEXT, "renameat");

	memcpy(&real, &found, sizeof(real));
	record("rename", to);
	return real(from_folder, from, to_folder, to);
}

int rename(const char *from, const char *to)
{
	const char *hold = getenv("RENAME_HOLD");

	while (hold && access(hold, F_OK) == 0)
		usleep(1000);
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}
