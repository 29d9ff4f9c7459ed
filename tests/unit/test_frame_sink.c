/* SPDX-License-Identifier: BSD-2-Clause */
/* Headers of a .npy file while frames are written without a pause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/common/cli.h"
#include "cmd/stream/frame_sink.h"
#include "cmd/stream/npy.h"

/* Number of frames that the header of the file counts. */
static uint64_t read_header_frames(const char *path)
{
	static const char before[] = "'shape': (";
	char text[NPY_HEADER_WRITTEN + 1] = "", *shape;
	FILE *file = fopen(path, "re");

	assert_non_null(file);
	assert_int_equal(fread(text, 1, NPY_HEADER_WRITTEN, file), NPY_HEADER_WRITTEN);
	fclose(file);
	shape = memmem(text, NPY_HEADER_WRITTEN, before, strlen(before));
	assert_non_null(shape);
	return strtoull(shape + strlen(before), NULL, 10);
}

/* A subscriber that has fallen behind takes one frame after the other: no call of frame_sink_update() comes. */
static void test_header_follows_frames_without_a_pause(void **state)
{
	struct pl_layout layout = { .code = PL_ELEMENT_UINT, .bits = 8, .lanes = 1, .dimensions = 1, .shape = { 4 } };
	struct pl_frame_info frame = { .size = sizeof(frame), .data = "data", .length = 4, .layout = layout };
	char folder[] = "/tmp/peerlane-sink-XXXXXX", path[64];
	struct frame_sink sink;
	struct pl_error error;
	uint64_t written = 0, counted = 0;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/out.npy", folder);
	assert_int_equal(frame_sink_open(&sink, path, &layout, &error), 0);
	/* A header that is never written again ends the test by its time limit. */
	for (; !counted; usleep(1000)) {
		assert_int_equal(frame_sink_write(&sink, &frame, &error), 0);
		written++;
		counted = read_header_frames(path);
	}
	assert_int_equal(counted, written);
	assert_int_equal(frame_sink_write(&sink, &frame, &error), 0);
	assert_int_equal(frame_sink_update(&sink, &error), 0);
	assert_int_equal(read_header_frames(path), written + 1);
	assert_int_equal(frame_sink_close(&sink, &error), 0);
	assert_int_equal(read_header_frames(path), written + 1);
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header_follows_frames_without_a_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
