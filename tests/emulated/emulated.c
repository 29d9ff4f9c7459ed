/* SPDX-License-Identifier: BSD-2-Clause */
#include "emulated/emulated.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "kernel/standin.h"
#include "support/check.h"
#include "support/gpu.h"
#include "support/process.h"

enum emulated_path emulated_chosen_path;

static int gpu;
static size_t (*copied)(void), (*pinned)(void);
static void (*order)(int, int);
static unsigned (*flushes)(void);
static size_t copied_before;

static void find_standin(const char *name, void *function)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *found = library ? dlsym(library, name) : NULL;

	check(found);
	memcpy(function, &found, sizeof(found));
}

void emulated_open(const char *path)
{
	static const char *const names[] = { "dmabuf", "address", "staged" };
	size_t i = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (i < sizeof(names) / sizeof(names[0]) && strcmp(path, names[i]))
		i++;
	check(i < sizeof(names) / sizeof(names[0]));
	emulated_chosen_path = (enum emulated_path)i;
	gpu = open("/dev/standin_gpu", O_RDWR | O_CLOEXEC);
	if (gpu < 0 || !gpu_open("alloc")) {
		puts("there is no emulated GPU");
		exit(SKIPPED);
	}
	find_standin("standin_copied", &copied);
	find_standin("standin_pinned", &pinned);
	find_standin("standin_order", &order);
	find_standin("standin_flushes", &flushes);
}

int emulated_dmabufs(void)
{
	return ioctl(gpu, GPU_EXPORTS);
}

int emulated_pins(void)
{
	return ioctl(gpu, GPU_PINS);
}

void emulated_check_registered(int count)
{
	check_number(emulated_dmabufs(), emulated_chosen_path == PATH_DMABUF ? count : 0);
	check_number(emulated_pins(), emulated_chosen_path == PATH_ADDRESS ? count : 0);
	check_number(ioctl(gpu, GPU_VIOLATIONS), 0);
}

size_t emulated_copied(void)
{
	size_t now = copied(), since = now - copied_before;

	copied_before = now;
	return since;
}

size_t emulated_locked(void)
{
	return pinned();
}

void emulated_order(int ordering, int options)
{
	order(ordering, options);
}

unsigned emulated_flushes(void)
{
	return flushes();
}

int emulated_export(const void *memory, size_t length, bool mappable)
{
	struct gpu_export request = { .address = (uintptr_t)memory, .length = length };
	int fd = ioctl(gpu, mappable ? GPU_EXPORT_MAPPABLE : GPU_EXPORT, &request);

	check(fd >= 0);
	return fd;
}

uint64_t emulated_packets(void)
{
	unsigned long long packets;
	FILE *file;

	/* The kernel updates this counter every ten milliseconds. */
	sleep_ms(30);
	file = fopen("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts", "re");

	check(file && fscanf(file, "%llu", &packets) == 1);
	fclose(file);
	return packets;
}

uint64_t emulated_packets_since(uint64_t before)
{
	uint64_t packets;

	do
		packets = emulated_packets();
	while (packets == before);
	return packets - before;
}

void emulated_holds(const void *memory, uint64_t first, size_t length)
{
	uint64_t offset = (uintptr_t)memory;

	check_number(ioctl(gpu, GPU_WHERE, &offset), 0);
	printf("the GPU holds %llu+%zu at %llu\n", (unsigned long long)first, length, (unsigned long long)offset);
}
