/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that are no dma-buf: refused with an error id, and none stays open. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

#define SIZE 65536

/* Returns the lowest free descriptor, which shows whether a descriptor stayed open. */
static int lowest_free_descriptor(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	close(fd);
	return fd;
}

static struct pl_context *open_dmabuf_context(void)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;

	options.fabric = "tcp";
	options.progress = PL_PROGRESS_MANUAL;
	assert_int_equal(pl_open(&context, &options, NULL), 0);
	return context;
}

static void check_dmabuf_refused(struct pl_context *context, int fd, uint64_t offset, size_t length, void *address,
				 unsigned access, int status, const char *id)
{
	struct pl_region *region = (struct pl_region *)context;
	struct pl_error error = { 0 };
	int before = lowest_free_descriptor();

	assert_int_equal(
		pl_region_register_dmabuf(
			context,
			&(struct pl_dmabuf){ .fd = fd, .offset = offset, .length = length, .address = address }, access,
			&region, &error),
		status);
	assert_string_equal(error.id, id);
	assert_null(region);
	assert_int_equal(
		pl_region_register_dmabuf(
			context,
			&(struct pl_dmabuf){ .fd = fd, .offset = offset, .length = length, .address = address }, access,
			&region, NULL),
		status);
	assert_int_equal(lowest_free_descriptor(), before);
}

static void test_no_buffer(void **state)
{
	struct pl_context *context = open_dmabuf_context();
	int file = memfd_create("test", MFD_CLOEXEC), ends[2];

	(void)state;
	assert_int_equal(ftruncate(file, SIZE), 0);
	assert_int_equal(pipe(ends), 0);
	check_dmabuf_refused(context, file, 0, SIZE, NULL, PL_ACCESS_ALL, -EINVAL, "DMABUF-FD");
	check_dmabuf_refused(context, ends[0], 0, 1, NULL, PL_ACCESS_ALL, -EINVAL, "DMABUF-FD");
	close(ends[0]);
	close(ends[1]);
	close(file);
	check_dmabuf_refused(context, file, 0, SIZE, NULL, PL_ACCESS_ALL, -EBADF, "DMABUF-FD");
	check_dmabuf_refused(context, -1, 0, SIZE, NULL, PL_ACCESS_ALL, -EBADF, "DMABUF-FD");
	pl_close(context);
}

static void test_no_range(void **state)
{
	struct pl_context *context = open_dmabuf_context();
	int file = memfd_create("test", MFD_CLOEXEC);

	(void)state;
	check_dmabuf_refused(context, file, 0, 0, NULL, PL_ACCESS_ALL, -EINVAL, "REGION-LENGTH");
	check_dmabuf_refused(context, file, 0, 1, NULL, 16, -EINVAL, "REGION-ACCESS");
	check_dmabuf_refused(context, file, UINT64_MAX, 2, NULL, 0, -EINVAL, "REGION-ADDRESS");
	check_dmabuf_refused(context, file, 0, 2, (void *)UINTPTR_MAX, 0, -EINVAL, "REGION-ADDRESS");
	close(file);
	pl_close(context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_buffer),
		cmocka_unit_test(test_no_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
