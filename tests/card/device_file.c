/* SPDX-License-Identifier: BSD-2-Clause */
/* access(2) of a program that runs over the stand-in card: the kernel has RDMA devices. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int access(const char *path, int mode)
{
	static const char folder[] = "/sys/class/infiniband_verbs/";

	if (!strncmp(path, folder, sizeof(folder) - 1))
		return 0;
	return faccessat(AT_FDCWD, path, mode, 0);
}
