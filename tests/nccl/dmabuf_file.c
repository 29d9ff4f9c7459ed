/* SPDX-License-Identifier: BSD-2-Clause */
/* fstatfs(2) and lseek(2) of a program that uses the stand-in for CUDA's driver: the files of its memory are dma-bufs. */
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

int fstatfs(int fd, struct statfs *system)
{
	long rc = syscall(SYS_fstatfs, fd, system);

	if (rc == 0 && (unsigned long)system->f_type == TMPFS_MAGIC)
		system->f_type = DMA_BUF_MAGIC;
	return (int)rc;
}

/* Tells the size without a change of the position, as a dma-buf does. The stand-in uses the position. */
off_t lseek(int fd, off_t offset, int whence)
{
	struct stat status;

	if (whence != SEEK_END || offset || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
		return (off_t)syscall(SYS_lseek, fd, offset, whence);
	return status.st_size;
}
