/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peermem_cases [CASE...]: checks the module's callbacks case by case, through the stand-ins for IB core and the
 * driver.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

#define MIB (1 << 20)

static bool is_persistent(const struct core_region *region)
{
	return !strcmp(region->client, "nv_mem_nc");
}

/* Registers memory; fails the test if the module refuses. */
static void accepted(const struct rig *rig, void *memory, size_t length, struct core_region *region)
{
	int status = rig_register(rig, memory, length, region);

	if (status)
		printf("refused: %s\n", strerror(-status));
	REQUIRE(status == 0);
}

static void refused(const struct rig *rig, void *memory, size_t length)
{
	struct core_region region = { 0 };

	REQUIRE(rig_register(rig, memory, length, &region) == -EFAULT);
}

/* Checks that a contiguous allocation is pinned once, and becomes one entry of the table. */
static void whole(const struct rig *rig)
{
	char *memory = rig_map(rig, 4 * MIB, 0);
	struct core_region region = { 0 };
	long long pages = rig_counter("pages");

	accepted(rig, memory, 4 * MIB, &region);
	REQUIRE(region.entries == 1 && region.total == 4 * MIB && region.first_length == 4 * MIB);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 1);
	REQUIRE(rig_counter("pages") - pages == 4 * MIB / GPU_PAGE);
	REQUIRE(rig_counter("regions") == 1 && rig_counter("bytes") == 4 * MIB);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	munmap(memory, 4 * MIB);
}

static void scattered(const struct rig *rig)
{
	struct gpu_fault fault = { .scattered = 1 };
	char *memory = rig_map(rig, 4 * MIB, 0);
	struct core_region region = { 0 };

	REQUIRE(ioctl(rig->gpu, GPU_FAULT, &fault) == 0);
	accepted(rig, memory, 4 * MIB, &region);
	REQUIRE(region.entries == 4 * MIB / GPU_PAGE && region.total == 4 * MIB && region.first_length == GPU_PAGE);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	munmap(memory, 4 * MIB);
}

/* Checks 128 KiB pages: the last entry ends with the range, and a range that begins inside a page is refused. */
static void large_pages(const struct rig *rig)
{
	struct gpu_fault fault = { .page_size = 3 };
	char *memory = rig_map(rig, MIB, 0), *aligned = memory + (uintptr_t)memory % (2 * GPU_PAGE);
	struct core_region region = { 0 };

	REQUIRE(ioctl(rig->gpu, GPU_FAULT, &fault) == 0);
	accepted(rig, aligned, 3 * GPU_PAGE, &region);
	REQUIRE(region.entries == 1 && region.total == 3 * GPU_PAGE);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	REQUIRE(rig_register(rig, aligned + GPU_PAGE, 2 * GPU_PAGE, &region) == -EFAULT);
	fault.scattered = 1;
	REQUIRE(ioctl(rig->gpu, GPU_FAULT, &fault) == 0);
	accepted(rig, aligned, 5 * GPU_PAGE - 1, &region);
	REQUIRE(region.entries == 3 && region.total == 5 * GPU_PAGE && region.first_length == 2 * GPU_PAGE);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	munmap(memory, MIB);
}

/* Checks parts of an allocation: the module pins whole pages, and the table begins with the first page. */
static void parts(const struct rig *rig)
{
	static const struct {
		size_t offset, length, pages;
	} cases[] = { { 0, 1, 1 },        { 1, 1, 1 },         { 65535, 1, 1 },   { 65535, 2, 2 },
		      { 4097, 70000, 2 }, { 65536, 65536, 1 }, { MIB - 1, 1, 1 }, { 100, MIB - 100, 16 } };
	char *memory = rig_map(rig, MIB, MIB);
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct core_region region = { 0 };

		accepted(rig, memory + cases[i].offset, cases[i].length, &region);
		REQUIRE(region.total == cases[i].pages * GPU_PAGE);
		REQUIRE(rig_deregister(rig, region.handle) == 0);
	}
	munmap(memory, MIB);
}

/* Checks that the module refuses host memory, freed memory and ranges beyond an allocation. */
static void strangers(const struct rig *rig)
{
	char *memory = rig_map(rig, MIB, 0);
	char *host = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long long not_ours = rig_counter("not_ours");

	refused(rig, host, MIB);
	refused(rig, memory + MIB, 1);
	refused(rig, memory, MIB + 1);
	refused(rig, memory - 1, MIB);
	REQUIRE(rig_counter("not_ours") == not_ours + 4);
	refused(rig, memory, 0);
	refused(rig, (void *)-4096L, 8192);
	refused(rig, (void *)-4096L, 4096);
	refused(rig, NULL, MIB);
	refused(rig, memory, SIZE_MAX);
	REQUIRE(rig_free(rig, memory) == 0);
	refused(rig, memory, MIB);
	munmap(memory, MIB);
	refused(rig, memory, MIB);
	munmap(host, MIB);
}

/* Frees registered memory: a revocable region is revoked at once, a persistent one stays until it is deregistered. */
static void freed(const struct rig *rig)
{
	int before = ioctl(rig->core, CORE_INVALIDATED);
	char *memory = rig_map(rig, MIB, 0);
	struct core_region region = { 0 };

	accepted(rig, memory, MIB, &region);
	REQUIRE(rig_free(rig, memory) == 0);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == is_persistent(&region));
	REQUIRE(ioctl(rig->core, CORE_INVALIDATED) == before + !is_persistent(&region));
	refused(rig, memory, MIB);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	munmap(memory, MIB);
	/* Unmapping frees as well. */
	memory = rig_map(rig, MIB, MIB);
	accepted(rig, memory, MIB, &region);
	munmap(memory, MIB);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
}

/* Many regions of one allocation, and two allocations of which one is freed. */
static void several(const struct rig *rig)
{
	char *one = rig_map(rig, MIB, 0), *other = rig_map(rig, MIB, MIB);
	struct core_region regions[16] = { 0 }, kept = { 0 };
	int before = ioctl(rig->core, CORE_INVALIDATED), i;

	for (i = 0; i < 16; i++)
		accepted(rig, one + i * 1000, MIB - 16000, &regions[i]);
	accepted(rig, other, MIB, &kept);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 17);
	REQUIRE(rig_free(rig, one) == 0);
	if (!is_persistent(&kept)) {
		REQUIRE(ioctl(rig->gpu, GPU_PINS) == 1);
		REQUIRE(ioctl(rig->core, CORE_INVALIDATED) == before + 16);
	}
	for (i = 0; i < 16; i++)
		REQUIRE(rig_deregister(rig, regions[i].handle) == 0);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 1);
	REQUIRE(rig_deregister(rig, kept.handle) == 0);
	munmap(one, MIB);
	munmap(other, MIB);
}

/* Checks the other orders of calls that IB core may choose in a region's life. */
static void lives(const struct rig *rig)
{
	char *memory = rig_map(rig, MIB, 0);
	struct core_region region = { .again = 1 };

	accepted(rig, memory, MIB, &region);
	REQUIRE(region.entries == 1 && region.total == MIB);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	region = (struct core_region){ .abandon = 1 };
	accepted(rig, memory, MIB, &region);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 0);
	region = (struct core_region){ .abandon = 2 };
	REQUIRE(rig_register(rig, memory, MIB, &region) == -EINVAL);
	region = (struct core_region){ .starve = 1 };
	REQUIRE(rig_register(rig, memory, MIB, &region) == -ENOMEM);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 0);
	region = (struct core_region){ .device = DEVICE_NOT_PCI };
	REQUIRE(rig_register(rig, memory, MIB, &region) == -ENODEV);
	munmap(memory, MIB);
}

/* Checks that another device writes and reads GPU memory with the DMA addresses that the module returned. */
static void third_party(const struct rig *rig)
{
	char *memory = rig_map(rig, 4 * MIB, 8 * MIB);
	struct core_region region = { 0 };
	struct core_dma dma;
	int i;

	accepted(rig, memory + 5000, 3 * MIB, &region);
	for (i = 0; i < 2048; i++)
		memory[5000 + i] = (char)rig_pattern(i);
	memset(memory + 2 * MIB, 0, MIB);
	dma = (struct core_dma){ .handle = region.handle, .offset = 0, .length = 2048 };
	REQUIRE(ioctl(rig->core, CORE_DMA, &dma) == 0);
	dma = (struct core_dma){ .handle = region.handle, .offset = 2 * MIB - 5000, .length = 2048, .into_region = 1 };
	REQUIRE(ioctl(rig->core, CORE_DMA, &dma) == 0);
	REQUIRE(!memcmp(memory + 5000, memory + 2 * MIB, 2048) && memory[2 * MIB + 2048] == 0);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	munmap(memory, 4 * MIB);
}

/* Checks each failure and wrong answer of the driver: registration fails, and nothing stays pinned or mapped. */
static void failures(const struct rig *rig)
{
	static const struct gpu_fault faults[] = {
		{ .call = CALL_GET, .status = -ENOMEM, .times = 1 },
		{ .call = CALL_GET, .status = -EIO, .times = 1 },
		{ .call = CALL_GET, .status = -EOPNOTSUPP, .times = 1 },
		{ .call = CALL_GET, .status = -12345, .times = 1 },
		{ .call = CALL_MAP, .status = -EIO, .times = 1 },
		{ .call = CALL_MAP, .status = -EINVAL, .times = 1 },
		{ .call = CALL_MAP, .status = -ENOMEM, .times = 1 },
		{ .table_version = 0x00030000 },
		{ .table_version = 0x00000001 },
		{ .mapping_version = 0x00030000 },
		{ .page_size = 4 },
		{ .page_size = 1 },
		{ .missing = 1 },
	};
	char *memory = rig_map(rig, MIB, 0);
	struct gpu_fault persistent = { .call = CALL_GET_PERSISTENT, .status = -EOPNOTSUPP, .times = 1 };
	struct core_region region = { 0 };
	struct gpu_fault none = { 0 };
	bool tried = false;
	size_t i;

	REQUIRE(ioctl(rig->gpu, GPU_FAULT, &persistent) == 0);
	accepted(rig, memory, MIB, &region);
	REQUIRE(!is_persistent(&region));
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	accepted(rig, memory, MIB, &region);
	tried = is_persistent(&region);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		long long before = rig_counter("refused");

		if (tried && faults[i].call == CALL_GET && faults[i].status)
			continue;
		REQUIRE(ioctl(rig->gpu, GPU_FAULT, &faults[i]) == 0);
		printf("fault %zu\n", i);
		REQUIRE(rig_register(rig, memory, MIB, &region) < 0);
		REQUIRE(rig_counter("refused") > before);
		REQUIRE(ioctl(rig->gpu, GPU_PINS) == 0);
	}
	REQUIRE(ioctl(rig->gpu, GPU_FAULT, &none) == 0);
	/* The driver refuses the first attempt only. */
	for (i = 0; i < 2; i++) {
		struct gpu_fault fault = { .call = i ? CALL_PUT : CALL_UNMAP, .status = -EINVAL, .times = 1 };

		accepted(rig, memory, MIB, &region);
		REQUIRE(ioctl(rig->gpu, GPU_FAULT, &fault) == 0);
		REQUIRE(rig_deregister(rig, region.handle) == 0);
		REQUIRE(ioctl(rig->gpu, GPU_PINS) == 0);
	}
	munmap(memory, MIB);
}

/* Repeats registration, to show that nothing accumulates. */
static void cycles(const struct rig *rig)
{
	char *memory = rig_map(rig, MIB, 0);
	struct core_region region = { .address = (uintptr_t)memory, .length = MIB };
	long long before = rig_counter("registered");
	int i;

	for (i = 0; i < 10000; i++)
		REQUIRE(ioctl(rig->core, CORE_CYCLE, &region) == 0);
	REQUIRE(rig_counter("registered") == before + 10000);
	munmap(memory, MIB);
}

/* Checks that a child has no GPU memory of its parent, and that its exit leaves the parent's regions alone. */
static void forked(const struct rig *rig)
{
	char *memory = rig_map(rig, MIB, 0);
	struct core_region region = { 0 };
	int status;
	pid_t child;

	accepted(rig, memory, MIB, &region);
	child = fork();
	if (!child) {
		char *own;

		refused(rig, memory, MIB);
		own = rig_map(rig, MIB, MIB);
		accepted(rig, own, MIB, &region);
		/* The child ends without freeing its memory; the parent does that. */
		_exit(rig_deregister(rig, region.handle) != 0);
	}
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 1);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	munmap(memory, MIB);
}

/* Deregisters in another process: a revocable pin stays, and keeps the module loaded, until the memory is freed. */
static void elsewhere(const struct rig *rig)
{
	char *memory = rig_map(rig, MIB, 0);
	struct core_region region = { 0 };
	bool stays;
	int status;
	pid_t child;

	accepted(rig, memory, MIB, &region);
	stays = !is_persistent(&region);
	child = fork();
	if (!child)
		_exit(rig_deregister(rig, region.handle) != 0);
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	REQUIRE(rig_counter("regions") == 0 && ioctl(rig->core, CORE_REGIONS) == 0);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == stays && rig_counter("bytes") == stays * MIB);
	REQUIRE(!stays || (syscall(SYS_delete_module, "peerlane_peermem", O_NONBLOCK) < 0 && errno == EWOULDBLOCK));
	REQUIRE(rig_free(rig, memory) == 0);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 0 && rig_counter("bytes") == 0);
	munmap(memory, MIB);
}

static void *register_some(void *argument)
{
	const struct rig *rig = argument;
	char *memory = rig_map(rig, MIB, 0);
	struct core_region region = { 0 };

	accepted(rig, memory, MIB, &region);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	accepted(rig, memory, MIB, &region);
	return (void *)(uintptr_t)region.handle;
}

/* Checks that one thread can deregister a region of another thread. */
static void threads(const struct rig *rig)
{
	pthread_t thread;
	void *handle;

	REQUIRE(pthread_create(&thread, NULL, register_some, (void *)rig) == 0);
	REQUIRE(pthread_join(thread, &handle) == 0);
	REQUIRE(rig_deregister(rig, (uintptr_t)handle) == 0);
}

struct drowsy {
	const struct rig *rig;
	uint64_t handle;
	volatile bool began;
};

static void *deregister(void *argument)
{
	struct drowsy *drowsy = argument;

	drowsy->began = true;
	REQUIRE(rig_deregister(drowsy->rig, drowsy->handle) == 0);
	return NULL;
}

/* Checks that the callback waits for a driver call that sleeps repeatedly, and frees nothing that the call uses. */
static void drowsy(const struct rig *rig)
{
	struct gpu_fault fault = { .call = CALL_UNMAP, .naps = 50 };
	int tries = 0, before;

	/* Retries: while the host pauses the machine, the call looks blocked. */
	do {
		char *memory = rig_map(rig, MIB, 0);
		struct core_region region = { 0 };
		struct drowsy drowsy = { .rig = rig };
		pthread_t thread;

		before = ioctl(rig->gpu, GPU_OVERSLEPT);
		accepted(rig, memory, MIB, &region);
		drowsy.handle = region.handle;
		REQUIRE(ioctl(rig->gpu, GPU_FAULT, &fault) == 0);
		REQUIRE(pthread_create(&thread, NULL, deregister, &drowsy) == 0);
		while (!drowsy.began)
			usleep(1000);
		usleep(20000);
		REQUIRE(rig_free(rig, memory) == 0);
		REQUIRE(pthread_join(thread, NULL) == 0);
		munmap(memory, MIB);
	} while (ioctl(rig->gpu, GPU_OVERSLEPT) != before && ++tries < 4);
	REQUIRE(tries < 4);
}

struct race {
	const struct rig *rig;
	char *memory;
	volatile bool over;
	long registered, refused;
};

static void *race(void *argument)
{
	struct race *race = argument;
	struct core_region region = { .address = (uintptr_t)race->memory, .length = MIB };

	while (!race->over) {
		if (ioctl(race->rig->core, CORE_CYCLE, &region))
			race->refused++;
		else
			race->registered++;
	}
	return NULL;
}

/* Registers and deregisters regions while another thread frees the memory, at random times. */
static void races(const struct rig *rig)
{
	long registered = 0, refused = 0;
	int i, j;

	for (i = 0; i < 50; i++) {
		struct race both[2];
		pthread_t racers[2];
		char *memory = rig_map(rig, MIB, 0);

		for (j = 0; j < 2; j++) {
			both[j] = (struct race){ .rig = rig, .memory = memory };
			REQUIRE(pthread_create(&racers[j], NULL, race, &both[j]) == 0);
		}
		usleep(2000 + 300 * i);
		REQUIRE(rig_free(rig, memory) == 0);
		usleep(1000);
		for (j = 0; j < 2; j++) {
			both[j].over = true;
			REQUIRE(pthread_join(racers[j], NULL) == 0);
			registered += both[j].registered;
			refused += both[j].refused;
		}
		munmap(memory, MIB);
	}
	printf("%ld registered, %ld refused\n", registered, refused);
	REQUIRE(registered && refused);
}

/* Checks that memory which the driver refuses to unpin stays pinned, and that the module logs it. */
static void stuck(const struct rig *rig)
{
	struct gpu_fault fault = { .call = CALL_PUT, .status = -EIO, .times = 2 };
	char *memory = rig_map(rig, MIB, 0);
	struct core_region region = { 0 };

	accepted(rig, memory, MIB, &region);
	REQUIRE(is_persistent(&region));
	REQUIRE(ioctl(rig->gpu, GPU_FAULT, &fault) == 0);
	REQUIRE(rig_deregister(rig, region.handle) == 0);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 1);
	REQUIRE(rig_counter("regions") == 0 && rig_counter("bytes") == MIB && rig_counter("driver_errors") == 1);
	munmap(memory, MIB);
	/* The pin cannot be undone, so no other case may follow. */
	exit(0);
}

static const struct {
	const char *name;
	void (*run)(const struct rig *rig);
	bool last; /* runs only if named on the command line */
} cases[] = {
	{ "whole", whole, false },
	{ "scattered", scattered, false },
	{ "parts", parts, false },
	{ "large-pages", large_pages, false },
	{ "strangers", strangers, false },
	{ "freed", freed, false },
	{ "several", several, false },
	{ "lives", lives, false },
	{ "third-party", third_party, false },
	{ "failures", failures, false },
	{ "cycles", cycles, false },
	{ "forked", forked, false },
	{ "threads", threads, false },
	{ "elsewhere", elsewhere, false },
	{ "drowsy", drowsy, false },
	{ "races", races, false },
	{ "stuck", stuck, true },
};

static bool selected(const char *name, bool last, char **names)
{
	bool any = !*names && !last;

	for (; *names; names++)
		any |= !strcmp(*names, name);
	return any;
}

int main(int count, char **arguments)
{
	struct gpu_fault none = { 0 };
	struct rig rig;
	size_t i;
	bool ran = false;

	rig_open(&rig);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!count || !selected(cases[i].name, cases[i].last, arguments + 1))
			continue;
		printf("%s\n", cases[i].name);
		REQUIRE(ioctl(rig.gpu, GPU_FAULT, &none) == 0);
		cases[i].run(&rig);
		REQUIRE(ioctl(rig.gpu, GPU_FAULT, &none) == 0);
		rig_require_clean(&rig);
		ran = true;
	}
	return !ran;
}
