/* SPDX-License-Identifier: BSD-2-Clause */
/* access(2) of a program that runs over the stand-in card: the device files of RDMA exist. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int access(const char *path, int mode)
{
	static const char folder[] = "/dev/infiniband/";

	if (!strncmp(path, folder, sizeof(folder) - 1))
		return 0;
	return faccessat(AT_FDCWD, path, mode, 0);
}
