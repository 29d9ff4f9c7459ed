/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions over read-only memory: every transport can send from it, and no process crashes. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "scenarios/scenario.h"

#define SIZE ((1u << 20) + 100)

/* Returns a mapping of a file opened for reading, so that the kernel refuses even a private write to it. */
static void *map_file(void)
{
	int fd = memfd_create("mapping", MFD_CLOEXEC), reading;
	char path[64];
	void *bytes;

	check(fd >= 0 && ftruncate(fd, SIZE) == 0);
	bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(bytes != MAP_FAILED);
	pattern_fill(bytes, SIZE, 5, 0);
	munmap(bytes, SIZE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reading = open(path, O_RDONLY | O_CLOEXEC);
	bytes = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, reading, 0);
	check(reading >= 0 && bytes != MAP_FAILED);
	close(reading);
	close(fd);
	return bytes;
}

static void *map_memory(void)
{
	void *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(bytes != MAP_FAILED);
	pattern_fill(bytes, SIZE, 5, 0);
	check(mprotect(bytes, SIZE, PROT_READ) == 0);
	return bytes;
}

static void check_transport(const struct pl_completion *receipt)
{
	check_number(receipt->bytes, SIZE);
	check_number((receipt->bytes - receipt->bytes_staged) + receipt->bytes_staged, SIZE);
	check_number(receipt->route, receipt->bytes_staged ? PL_ROUTE_STAGED : PL_ROUTE_DIRECT);
	check(*receipt->reason);
}

static void use_mapping(struct scenario_environment *environment, void *bytes)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_region *region;
	struct pl_remote *remote;
	struct pl_error error;
	struct buffer far;
	int status;

	check_ok(pl_region_register(environment->near, bytes, SIZE, PL_ACCESS_LOCAL, &region, &error), &error);
	buffer_open(&far, environment->far, SIZE, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, region, 0, SIZE }, NULL, &operation,
			  &error),
		 &error);
	complete(environment, operation, &receipt);
	check_transport(&receipt);
	pattern_check(far.bytes, SIZE, 5, 0);
	/* A read must fail even if its bytes equal the bytes in place. */
	check_ok(pl_read(environment->near_peer, &(struct pl_transfer){ remote, 0, region, 0, SIZE }, NULL, &operation,
			 &error),
		 &error);
	fail_with(environment, operation, -EFAULT);
	direct.flags = PL_REQUIRE_DIRECT;
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, region, 0, SIZE }, &direct,
			  &operation, &error),
		 &error);
	status = await(environment, operation, NULL, &error);
	check_number(status, receipt.route == PL_ROUTE_DIRECT ? 0 : -ENOTSUP);
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
	buffer_close(&far);
	munmap(bytes, SIZE);
}

static void read_only_file(struct scenario_environment *environment)
{
	use_mapping(environment, map_file());
}

static void read_only_memory(struct scenario_environment *environment)
{
	use_mapping(environment, map_memory());
}

const struct scenario mapping_scenarios[] = {
	{ "read-only-file", read_only_file, 0 },
	{ "read-only-memory", read_only_memory, 0 },
	{ NULL, NULL, 0 },
};
