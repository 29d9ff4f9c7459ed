/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions over files that a process truncates.
 * An access to memory beyond the end raises SIGBUS in the accessing process.  The library must leave such accesses to
 * the kernel.  The operation then fails, and the process and the connection survive.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "scenarios/scenario.h"

#define WHOLE (4u << 20)
#define LEFT 8192u

struct mapped_file {
	int fd;
	uint8_t *bytes;
	struct pl_region *region;
};

static void file_open(struct mapped_file *file, struct pl_context *context)
{
	struct pl_error error;

	file->fd = memfd_create("cut", MFD_CLOEXEC);
	check(file->fd >= 0 && ftruncate(file->fd, WHOLE) == 0);
	file->bytes = mmap(NULL, WHOLE, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	check(file->bytes != MAP_FAILED);
	bytes_set(file->bytes, 1, WHOLE);
	check_ok(pl_region_register(context, file->bytes, WHOLE, PL_ACCESS_ALL, &file->region, &error), &error);
}

static void file_close(struct mapped_file *file)
{
	check_number(pl_region_deregister(file->region), 0);
	munmap(file->bytes, WHOLE);
	close(file->fd);
}

static struct pl_remote *import_file(struct scenario_environment *environment, const struct mapped_file *file)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);

	check_ok(pl_region_share(file->region, NULL, token, &length, &error), &error);
	check_ok(pl_remote_import_start(environment->near_peer, token, length, 0, &operation, &error), &error);
	complete(environment, operation, &receipt);
	return receipt.remote;
}

/*
 * Checks the status of an operation.  A card may also succeed, with pages locked before the cut, or fail with -EFAULT.
 */
static void check_end_status(struct scenario_environment *environment, struct pl_operation *operation, int status)
{
	bool card = environment->setting->one_sided;
	struct pl_error error;
	int got = await(environment, operation, NULL, &error);

	check_one_of(got, card ? 0 : status, card ? -EFAULT : status);
}

/* Checks that the part before the cut can still be read, so the connection survives. */
static void check_alive(struct scenario_environment *environment, struct pl_remote *remote, struct buffer *near)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_read(environment->near_peer, &(struct pl_transfer){ remote, 0, near->region, 0, LEFT }, NULL,
			 &operation, &error),
		 &error);
	complete(environment, operation, NULL);
	value_check(near->bytes, LEFT, 1);
}

static void target_cut(struct scenario_environment *environment, uint64_t offset, uint64_t length)
{
	struct pl_operation *operation;
	struct mapped_file file;
	struct pl_remote *remote;
	struct pl_error error;
	struct buffer near;

	file_open(&file, environment->far);
	buffer_open(&near, environment->near, WHOLE, PL_ACCESS_LOCAL);
	remote = import_file(environment, &file);
	check(ftruncate(file.fd, LEFT) == 0);
	check_ok(pl_read(environment->near_peer, &(struct pl_transfer){ remote, offset, near.region, 0, length }, NULL,
			 &operation, &error),
		 &error);
	check_end_status(environment, operation, -EFAULT);
	check_alive(environment, remote, &near);
	pl_remote_release(remote);
	buffer_close(&near);
	file_close(&file);
}

static void cut_at_target(struct scenario_environment *environment)
{
	target_cut(environment, 0, WHOLE);
	target_cut(environment, 100000, 64);
	target_cut(environment, 100000, 5000);
}

/* Adds to a word of the file.  Returns the operation's status. */
static int add_to_file(struct scenario_environment *environment, struct pl_remote *remote, uint64_t offset, uint64_t *old)
{
	const struct pl_atomic atomic = { .remote = remote, .remote_offset = offset, .operand = 1, .old = old };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_fetch_add(environment->near_peer, &atomic, NULL, &operation, &error), &error);
	return await(environment, operation, NULL, &error);
}

static void atomic_cut(struct scenario_environment *environment)
{
	bool card = environment->setting->one_sided;
	struct mapped_file file;
	struct pl_remote *remote;
	struct buffer near;
	uint64_t old;

	file_open(&file, environment->far);
	buffer_open(&near, environment->near, WHOLE, PL_ACCESS_LOCAL);
	remote = import_file(environment, &file);
	check_number(add_to_file(environment, remote, 0, &old), 0);
	check_number(old, 0x0101010101010101);
	check(ftruncate(file.fd, LEFT) == 0);
	check_one_of(add_to_file(environment, remote, 2 * LEFT, &old), card ? 0 : -EFAULT, -EFAULT);
	check_number(add_to_file(environment, remote, 0, &old), 0);
	check_number(old, 0x0101010101010102);
	pl_remote_release(remote);
	buffer_close(&near);
	file_close(&file);
}

static void write_cut(struct scenario_environment *environment)
{
	struct pl_operation *operation;
	struct mapped_file file;
	struct pl_remote *remote;
	struct pl_error error;
	struct buffer near;

	file_open(&file, environment->far);
	buffer_open(&near, environment->near, WHOLE, PL_ACCESS_LOCAL);
	remote = import_file(environment, &file);
	check(ftruncate(file.fd, LEFT) == 0);
	bytes_set(near.bytes, 1, WHOLE);
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, WHOLE }, NULL,
			  &operation, &error),
		 &error);
	check_end_status(environment, operation, -EFAULT);
	check_alive(environment, remote, &near);
	pl_remote_release(remote);
	buffer_close(&near);
	file_close(&file);
}

static void cut_at_source(struct scenario_environment *environment)
{
	struct pl_remote *remote, *other;
	struct pl_operation *operation;
	struct mapped_file file;
	struct buffer far, last;
	struct pl_error error;

	file_open(&file, environment->near);
	buffer_open(&far, environment->far, WHOLE, PL_ACCESS_ALL);
	buffer_open(&last, environment->far, LEFT, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	other = share(environment, last.region, environment->near_peer, NULL);
	check(ftruncate(file.fd, LEFT) == 0);
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, file.region, 0, WHOLE }, NULL,
			  &operation, &error),
		 &error);
	check_end_status(environment, operation, -EFAULT);
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, file.region, 0, LEFT }, NULL,
			  &operation, &error),
		 &error);
	check_end_status(environment, operation, 0);
	if (!environment->setting->one_sided)
		value_check(far.bytes, LEFT, 1);
	check_ok(pl_read(environment->near_peer, &(struct pl_transfer){ remote, 0, file.region, 0, WHOLE }, NULL,
			 &operation, &error),
		 &error);
	check_end_status(environment, operation, -EFAULT);
	/* The write goes to another region, as the target may still be sending the data of the read. */
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ other, 0, file.region, 0, LEFT }, NULL,
			  &operation, &error),
		 &error);
	check_end_status(environment, operation, 0);
	pl_remote_release(remote);
	pl_remote_release(other);
	buffer_close(&far);
	buffer_close(&last);
	file_close(&file);
}

const struct scenario cut_scenarios[] = {
	{ "cut-target-read", cut_at_target, 0 },
	{ "cut-target-write", write_cut, 0 },
	{ "cut-target-atomic", atomic_cut, 0 },
	{ "cut-source", cut_at_source, 0 },
	{ 0 },
};
