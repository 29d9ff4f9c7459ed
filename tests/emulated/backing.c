/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Backing of the stand-in with the emulated GPU of a virtual machine (tests/kernel/gpu.c), the only device.
 * The GPU's memory is that of a PCI device.  Device addresses are mapped without any right, so the kernel cannot pin
 * them by ordinary means.  This process acts as the copy engine and has the same memory at another address.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "kernel/standin.h"
#include "libcuda/standin.h"

_Static_assert(DEVICE_PAGE == GPU_PAGE, "the kernel's part has other pages");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int gpu = -1;

static void open_gpu(void)
{
	gpu = open("/dev/standin_gpu", O_RDWR | O_CLOEXEC);
}

int backing_devices(void)
{
	pthread_once(&once, open_gpu);
	return gpu >= 0;
}

/* Name of the only device. */
void backing_name(int device, char *pci, size_t size)
{
	DIR *driver = opendir("/sys/bus/pci/drivers/nvidia");
	struct dirent *entry;

	(void)device;
	snprintf(pci, size, "unknown");
	while (driver && (entry = readdir(driver)))
		if (strchr(entry->d_name, ':'))
			snprintf(pci, size, "%s", entry->d_name);
	if (driver)
		closedir(driver);
}

int backing_file(size_t size)
{
	(void)size;
	return -1;
}

bool backing_make(struct allocation *made, CUdeviceptr wanted)
{
	void *address = wanted ? (void *)(uintptr_t)wanted : standin_reserve(made->reserved), *bytes;
	uint64_t offset = (uintptr_t)address;

	/* The emulated device has no managed memory, which migrates. */
	if (made->kind == KIND_MANAGED || !address ||
	    mmap(address, made->reserved, PROT_NONE, MAP_SHARED | MAP_FIXED, gpu, (off_t)GPU_ANYWHERE) == MAP_FAILED)
		return false;
	if (ioctl(gpu, GPU_WHERE, &offset))
		return false;
	bytes = mmap(NULL, made->reserved, PROT_READ | PROT_WRITE, MAP_SHARED, gpu, (off_t)(GPU_PAGES + offset));
	if (bytes == MAP_FAILED)
		return false;
	made->address = (uintptr_t)address;
	made->bytes = bytes;
	return true;
}

void backing_undo(struct allocation *removed, bool kept)
{
	void *address = (void *)(uintptr_t)removed->address;

	munmap(removed->bytes, removed->reserved);
	if (kept)
		mmap(address, removed->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		     0);
	else
		munmap(address, removed->reserved);
}

int backing_export(const struct allocation *of, CUdeviceptr address, size_t length)
{
	struct gpu_export request = { .address = address, .length = length };

	(void)of;
	return ioctl(gpu, GPU_EXPORT, &request);
}
