/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dma-bufs of ordinary memory (/dev/udmabuf), if the kernel supports them.  A peer writes, reads and atomically changes
 * them over the fabrics that every machine has.  The test compares the result with the memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "scenarios/scenario.h"
#include "support/cases.h"

#define SIZE ((size_t)1 << 20)
#define PLACE ((size_t)4096 + 77)

static int device;

struct memory {
	int file, buffer;
	uint8_t *bytes;
};

static void memory_open(struct memory *memory)
{
	struct udmabuf_create create = { .flags = UDMABUF_FLAGS_CLOEXEC, .size = SIZE };

	memory->file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	check_number(ftruncate(memory->file, SIZE), 0);
	check_number(fcntl(memory->file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	create.memfd = (uint32_t)memory->file;
	memory->buffer = ioctl(device, UDMABUF_CREATE, &create);
	check(memory->buffer >= 0);
	memory->bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file, 0);
	check(memory->bytes != MAP_FAILED);
}

static void memory_close(struct memory *memory)
{
	munmap(memory->bytes, SIZE);
	close(memory->buffer);
	close(memory->file);
}

static void used(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *operation;
	struct pl_region *region;
	struct pl_remote *remote;
	struct memory memory;
	struct buffer near;
	struct pl_error error;
	uint64_t old = 0;

	environment_open(&environment, argument);
	memory_open(&memory);
	buffer_open(&near, environment.near, SIZE, PL_ACCESS_ALL);
	check_status(
		pl_region_register_dmabuf(
			environment.far,
			&(struct pl_dmabuf){ .fd = memory.buffer, .offset = PLACE, .length = SIZE, .address = NULL }, 0,
			&region, &error),
		-ERANGE, &error);
	check_ok(pl_region_register_dmabuf(
			 environment.far,
			 &(struct pl_dmabuf){
				 .fd = memory.buffer, .offset = PLACE, .length = SIZE - PLACE, .address = NULL },
			 PL_ACCESS_ALL, &region, &error),
		 &error);
	close(memory.buffer);
	memory.buffer = -1;
	check_text(pl_region_memory(region), "dma-buf");
	check(pl_region_address(region));
	remote = share(&environment, region, environment.near_peer, NULL);
	pattern_fill(near.bytes, SIZE, 1, 0);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, SIZE - PLACE }, NULL,
			  &operation, &error),
		 &error);
	complete(&environment, operation, NULL);
	value_check(memory.bytes, PLACE, 0);
	pattern_check(memory.bytes + PLACE, SIZE - PLACE, 1, 0);
	pattern_fill(memory.bytes + PLACE, SIZE - PLACE, 2, 0);
	check_ok(pl_read(environment.near_peer, &(struct pl_transfer){ remote, 3, near.region, 0, SIZE - PLACE - 3 },
			 NULL, &operation, &error),
		 &error);
	complete(&environment, operation, NULL);
	pattern_check(near.bytes, SIZE - PLACE - 3, 2, 3);
	memset(memory.bytes + PLACE + 3, 0, 8);
	check_ok(pl_fetch_add(environment.near_peer,
			      &(struct pl_atomic){ .remote = remote, .remote_offset = 3, .operand = 5, .old = &old },
			      NULL, &operation, &error),
		 &error);
	complete(&environment, operation, NULL);
	check_number(old, 0);
	check_number(memory.bytes[PLACE + 3], 5);
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
	buffer_close(&near);
	memory_close(&memory);
	environment_close(&environment);
}

int main(void)
{
	static const struct setting tcp = { .name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .lanes = 2 };
	static const struct setting local = { .name = "local", .fabric = "local", .host = "127.0.0.1", .lanes = 1 };
	static const struct test_case cases[] = {
		{ "over tcp", used, &tcp, 60 },
		{ "over local", used, &local, 60 },
	};

	device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	if (device < 0) {
		printf("/dev/udmabuf: %s\n", strerror(errno));
		return SKIPPED;
	}
	return cases_run("udmabuf", cases, sizeof(cases) / sizeof(cases[0]));
}
