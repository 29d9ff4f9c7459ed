/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

void rig_open(struct rig *rig)
{
	rig->gpu = open("/dev/standin_gpu", O_RDWR | O_CLOEXEC);
	rig->core = open("/dev/standin_core", O_RDWR | O_CLOEXEC);
	REQUIRE(rig->gpu >= 0 && rig->core >= 0);
	/* Flushes each line, so that the output is complete if the program is killed. */
	setvbuf(stdout, NULL, _IOLBF, 0);
}

void *rig_map(const struct rig *rig, size_t length, uint64_t offset)
{
	char *room = mmap(NULL, length + GPU_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *aligned;
	void *memory;

	REQUIRE(room != MAP_FAILED);
	aligned = room + (GPU_PAGE - (uintptr_t)room % GPU_PAGE) % GPU_PAGE;
	memory = mmap(aligned, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, rig->gpu, (off_t)offset);
	REQUIRE(memory == aligned);
	return memory;
}

int rig_free(const struct rig *rig, void *memory)
{
	uint64_t address = (uintptr_t)memory;

	return ioctl(rig->gpu, GPU_FREE, &address) ? -errno : 0;
}

int rig_register(const struct rig *rig, void *memory, size_t length, struct core_region *region)
{
	region->address = (uintptr_t)memory;
	region->length = length;
	return ioctl(rig->core, CORE_REGISTER, region) ? -errno : 0;
}

int rig_deregister(const struct rig *rig, uint64_t handle)
{
	return ioctl(rig->core, CORE_DEREGISTER, &handle) ? -errno : 0;
}

void rig_require_clean(const struct rig *rig)
{
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 0);
	REQUIRE(ioctl(rig->core, CORE_REGIONS) == 0);
	REQUIRE(ioctl(rig->gpu, GPU_VIOLATIONS) == 0);
	REQUIRE(rig_counter("regions") == 0);
	REQUIRE(rig_counter("bytes") == 0);
	REQUIRE(rig_counter("driver_errors") == 0);
}

long long rig_counter(const char *name)
{
	FILE *file = fopen("/proc/driver/peerlane_peermem", "r");
	long long value, found = 0;
	char line[100], word[64];
	bool any = false;

	REQUIRE(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63s %lld", word, &value) == 2 && !strcmp(word, name)) {
			found = value; /* negative if something was released twice */
			any = true;
		}
	}
	fclose(file);
	REQUIRE(any);
	return found;
}

uint8_t rig_pattern(uint64_t index)
{
	return (uint8_t)(index * 7 + (index >> 8) * 13 + (index >> 16) + 1);
}
