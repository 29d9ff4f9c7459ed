/* SPDX-License-Identifier: BSD-2-Clause */
/* Backing of the stand-in with host memory in files.  Export passes a descriptor of the file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcuda/standin.h"

static bool gpus_are(const char *wanted)
{
	const char *gpus = getenv("STANDIN_GPUS");

	return gpus && !strcmp(gpus, wanted);
}

/* STANDIN_GPUS=1 leaves out the second GPU, STANDIN_GPUS=second the first one. */
int backing_devices(void)
{
	return gpus_are("1") || gpus_are("second") ? 1 : DEVICES;
}

void backing_name(int device, char *pci, size_t size)
{
	snprintf(pci, size, "0000:%02X:00.0", 0xf0 + device + gpus_are("second"));
}

/* Returns the device address of an allocation.  The processor may access only managed memory. */
static void *map_device_address(const struct allocation *made)
{
	if (made->kind == KIND_MANAGED)
		return mmap(NULL, made->reserved, PROT_READ | PROT_WRITE, MAP_SHARED, made->fd, 0);
	return mmap(NULL, made->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

int backing_file(size_t size)
{
	int fd = memfd_create("device memory", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)size) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

bool backing_make(struct allocation *made, CUdeviceptr wanted)
{
	void *bytes = MAP_FAILED, *address = (void *)(uintptr_t)wanted;

	/* Memory that another process shared already has a file. */
	if (made->fd < 0)
		made->fd = backing_file(made->reserved);
	if (made->fd >= 0)
		bytes = mmap(NULL, made->reserved, PROT_READ | PROT_WRITE, MAP_SHARED, made->fd, 0);
	if (bytes != MAP_FAILED && !wanted)
		address = map_device_address(made);
	if (bytes != MAP_FAILED && address != MAP_FAILED) {
		made->bytes = bytes;
		made->address = (uintptr_t)address;
		return true;
	}
	if (bytes != MAP_FAILED)
		munmap(bytes, made->reserved);
	if (made->fd >= 0)
		close(made->fd);
	return false;
}

void backing_undo(struct allocation *removed, bool kept)
{
	munmap(removed->bytes, removed->reserved);
	if (!kept)
		munmap((void *)(uintptr_t)removed->address, removed->reserved);
	close(removed->fd);
}

/*
 * A dma-buf begins at the address. The file's position is that offset, for the stand-in card, so the descriptor needs a
 * position of its own.
 */
int backing_export(const struct allocation *of, CUdeviceptr address, size_t length)
{
	char path[32];
	int fd;

	(void)length;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", of->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && lseek(fd, (off_t)(address - of->address), SEEK_SET) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}
