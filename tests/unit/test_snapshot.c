/* SPDX-License-Identifier: BSD-2-Clause */
/* Snapshots of a stream: which frames become the file and when, what the file has, and failures. Frames and clock are the test's. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/common/cli.h"
#include "cmd/common/condition.h"

#define pl_frame_query test_frame_query
#define pl_frame_release test_frame_release
#define pl_frame_copy_out test_frame_copy_out
#define cli_now test_now
#define cli_condition_wait test_condition_wait
#define pthread_create test_pthread_create
uint64_t test_now(void);
bool test_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t end);
int test_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument);

#include "cmd/stream/frame_bytes.c" /* NOLINT */
#include "cmd/stream/snapshot.c"    /* NOLINT */

#define BYTES 6u

struct pl_stream_frame {
	struct pl_frame_info info;
	uint8_t data[BYTES];
	atomic_uint releases;
};

static atomic_uint_fast64_t now;
static bool gpu_fails;
static atomic_uint sleeps; /* of the thread, with a frame for which it is too early */

uint64_t test_now(void)
{
	return atomic_load(&now);
}

static bool lacks_threads;

#undef pthread_create
int test_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
	return lacks_threads ? EAGAIN : pthread_create(thread, attributes, function, argument);
}

/* Waits until the test changes something, or sets the clock. */
bool test_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t end)
{
	atomic_fetch_add(&sleeps, 1);
	pthread_cond_wait(condition, lock);
	return test_now() < end;
}

/* Snapshot whose thread begins to write a frame, and goes on once a flush waits; NULL: none. */
static struct snapshot *_Atomic held;
static atomic_bool begun;

static bool flush_waits(struct snapshot *snapshot)
{
	bool waits;

	pthread_mutex_lock(&snapshot->lock);
	waits = snapshot->flush;
	pthread_mutex_unlock(&snapshot->lock);
	return waits;
}

int test_frame_query(const struct pl_stream_frame *frame, struct pl_frame_info *info)
{
	struct snapshot *snapshot;

	atomic_store(&begun, true);
	while ((snapshot = atomic_load(&held)) && !flush_waits(snapshot))
		usleep(100);
	*info = frame->info;
	return 0;
}

void test_frame_release(struct pl_stream_frame *frame)
{
	if (frame)
		atomic_fetch_add(&frame->releases, 1);
}

/* Copies "from the GPU": each byte plus 100. */
int test_frame_copy_out(const struct pl_stream_frame *frame, uint64_t offset, void *to, uint64_t length,
			struct pl_error *error)
{
	if (gpu_fails)
		return cli_fail_errno(error, -EIO, "cuMemcpy", "frame");
	for (uint64_t i = 0; i < length; i++)
		((uint8_t *)to)[i] = (uint8_t)(frame->data[offset + i] + 100);
	return 0;
}

/* -- the rig ------------------------------------------------------------------------------------------------ */

static const struct pl_layout image = { PL_ELEMENT_UINT, 8, 1, 2, { 2, 3 } };

static char folder[32], png[64], npy[64], part[64];

static int enter_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/snapshot-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(png, sizeof(png), "%s/last.png", folder);
	snprintf(npy, sizeof(npy), "%s/last.npy", folder);
	snprintf(part, sizeof(part), "%s/last.npy.part", folder);
	atomic_store(&now, SNAPSHOT_INTERVAL);
	return 0;
}

static int leave_folder(void **state)
{
	(void)state;
	unlink(png);
	unlink(npy);
	return rmdir(folder);
}

static void fill_frame(struct pl_stream_frame *frame, unsigned number)
{
	memset(frame, 0, sizeof(*frame));
	memset(frame->data, (int)number, sizeof(frame->data));
	frame->info = (struct pl_frame_info)PL_FRAME_INFO_INIT;
	frame->info.sequence = number;
	frame->info.data = frame->data;
	frame->info.length = BYTES;
	frame->info.layout = image;
}

static void begin(struct snapshot *snapshot, const char *path)
{
	struct pl_error error;

	memset(snapshot, 0, sizeof(*snapshot));
	assert_int_equal(snapshot_open(snapshot, path, &image, NULL, &error), 0);
	assert_true(snapshot->running);
}

static void set_clock(struct snapshot *snapshot, uint64_t time)
{
	pthread_mutex_lock(&snapshot->lock);
	atomic_store(&now, time);
	pthread_cond_broadcast(&snapshot->changed);
	pthread_mutex_unlock(&snapshot->lock);
}

/* Waits until no frame is held. */
static int await_idle(struct snapshot *snapshot, struct pl_error *error)
{
	bool pending = true;
	int rc = 0;

	while (pending) {
		rc = snapshot_look(snapshot, &pending, error);
		usleep(100);
	}
	return rc;
}

/* Waits until the thread has looked at the frame and at the clock. Returns true if it sleeps, and false if it writes the frame. */
static bool await_sleep(struct snapshot *snapshot, const struct pl_stream_frame *frame)
{
	unsigned before = atomic_load(&sleeps);
	bool waits = true;

	while (waits && atomic_load(&sleeps) == before) {
		pthread_mutex_lock(&snapshot->lock);
		waits = snapshot->frame == frame;
		pthread_cond_broadcast(&snapshot->changed);
		pthread_mutex_unlock(&snapshot->lock);
		usleep(100);
	}
	return waits;
}

static size_t read_bytes(const char *path, uint8_t *bytes, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t length;

	assert_non_null(file);
	length = fread(bytes, 1, size, file);
	fclose(file);
	return length;
}

/* Returns the byte of which the frame in the .npy file consists. */
static unsigned read_number(void)
{
	uint8_t bytes[NPY_HEADER_WRITTEN + BYTES + 1];

	assert_int_equal(read_bytes(npy, bytes, sizeof(bytes)), NPY_HEADER_WRITTEN + BYTES);
	for (unsigned i = 1; i < BYTES; i++)
		assert_int_equal(bytes[NPY_HEADER_WRITTEN + i], bytes[NPY_HEADER_WRITTEN]);
	return bytes[NPY_HEADER_WRITTEN];
}

/* Writes one frame as the only one. Returns the result of the snapshot. */
static int write_one(const char *path, struct pl_stream_frame *frame, struct pl_error *error)
{
	struct snapshot snapshot;
	int rc;

	begin(&snapshot, path);
	assert_int_equal(snapshot_take(&snapshot, frame, error), 0);
	rc = snapshot_flush(&snapshot, error);
	assert_int_equal(snapshot.written, rc == 0);
	snapshot_close(&snapshot);
	assert_false(snapshot.running);
	assert_int_equal(atomic_load(&frame->releases), 1);
	return rc;
}

/* -- what the file has -------------------------------------------------------------------------------------- */

static void test_names(void **state)
{
	(void)state;
	assert_true(snapshot_path_valid("a.png") && snapshot_path_valid("a.npy"));
	assert_false(snapshot_path_valid("a.jpg") || snapshot_path_valid(".png") || snapshot_path_valid("png"));
}

static void test_array(void **state)
{
	struct pl_stream_frame frame;
	struct pl_layout row = { PL_ELEMENT_UINT, 8, 1, 1, { 3 } };
	uint8_t bytes[NPY_HEADER_WRITTEN + BYTES], header[NPY_HEADER_WRITTEN];
	struct pl_error error;

	(void)state;
	fill_frame(&frame, 7);
	assert_int_equal(write_one(npy, &frame, &error), 0);
	assert_int_equal(read_number(), 7);
	assert_int_equal(npy_format(&row, 2, (char *)header, &error), 0);
	read_bytes(npy, bytes, sizeof(bytes));
	assert_memory_equal(bytes, header, sizeof(header));
	assert_int_equal(access(part, F_OK), -1);
	/* Without dimensions it is an array of one element. */
	frame.info.layout = (struct pl_layout){ PL_ELEMENT_UINT, 8, 1, 0, { 0 } };
	frame.releases = 0;
	assert_int_equal(write_one(npy, &frame, &error), 0);
	assert_int_equal(read_bytes(npy, bytes, sizeof(bytes)), NPY_HEADER_WRITTEN + 1);
	assert_int_equal(npy_format(&frame.info.layout, 1, (char *)header, &error), 0);
	assert_memory_equal(bytes, header, sizeof(header));
}

static void test_picture(void **state)
{
	struct pl_stream_frame frame;
	uint8_t bytes[4096];
	struct pl_error error;
	size_t size;
	void *made;

	(void)state;
	fill_frame(&frame, 7);
	assert_int_equal(write_one(png, &frame, &error), 0);
	made = png_encode(&image, frame.data, &size);
	assert_int_equal(read_bytes(png, bytes, sizeof(bytes)), size);
	assert_memory_equal(bytes, made, size);
	free(made);
}

static void test_frame_of_a_gpu(void **state)
{
	struct pl_stream_frame frame;
	struct snapshot snapshot = { 0 };
	struct pl_error error;

	(void)state;
	fill_frame(&frame, 7);
	assert_int_equal(snapshot_open(&snapshot, npy, &image, "cuda", &error), 0);
	assert_int_equal(snapshot_take(&snapshot, &frame, &error), 0);
	assert_int_equal(snapshot_flush(&snapshot, &error), 0);
	snapshot_close(&snapshot);
	assert_int_equal(read_number(), 107);
}

/* The error is that of the copy, whatever the frame is. */
static void test_failed_copy_of_a_gpu(void **state)
{
	struct pl_stream_frame frame;
	struct snapshot snapshot = { 0 };
	struct pl_error error;

	(void)state;
	fill_frame(&frame, 7);
	frame.info.layout = (struct pl_layout){ 0 };
	frame.info.length = BYTES - 1;
	gpu_fails = true;
	assert_int_equal(snapshot_open(&snapshot, npy, &image, "cuda", &error), 0);
	assert_int_equal(snapshot_take(&snapshot, &frame, &error), 0);
	assert_int_equal(snapshot_flush(&snapshot, &error), -EIO);
	gpu_fails = false;
	assert_string_equal(error.call, "cuMemcpy");
	assert_int_equal(snapshot.written, 0);
	snapshot_close(&snapshot);
	assert_int_equal(atomic_load(&frame.releases), 1);
	assert_int_equal(access(npy, F_OK), -1);
}

static void test_layouts_that_no_file_has(void **state)
{
	static const struct pl_layout colours = { PL_ELEMENT_UINT, 8, 1, 3, { 2, 3, 3 } },
				      row = { PL_ELEMENT_UINT, 8, 1, 1, { 6 } },
				      brain = { PL_ELEMENT_BFLOAT, 16, 1, 1, { 3 } };
	struct snapshot snapshot = { .path = png };
	struct pl_error error;

	(void)state;
	assert_int_equal(snapshot_check(&snapshot, &colours, &error), 0);
	assert_int_equal(snapshot_check(&snapshot, &row, &error), -ENOTSUP);
	assert_string_equal(error.id, "PNG-LAYOUT");
	/* The stream's layout is known at the start. */
	assert_int_equal(snapshot_open(&snapshot, png, &row, NULL, &error), -ENOTSUP);
	assert_string_equal(error.id, "PNG-LAYOUT");
	assert_false(snapshot.running);
	snapshot.path = npy;
	assert_int_equal(snapshot_check(&snapshot, &row, &error), 0);
	assert_int_equal(snapshot_check(&snapshot, &brain, &error), -ENOTSUP);
	assert_string_equal(error.id, "NPY-TYPE");
}

static void test_frames_that_do_not_fit(void **state)
{
	struct pl_stream_frame frame;
	struct pl_error error;

	(void)state;
	fill_frame(&frame, 7);
	frame.info.layout = (struct pl_layout){ 0 };
	frame.info.length = BYTES - 1;
	assert_int_equal(write_one(npy, &frame, &error), -EPROTO);
	assert_string_equal(error.id, "FRAME-SHORT");
	assert_string_equal(error.message, "frame 7 has 5 bytes, fewer than its layout");
	fill_frame(&frame, 8);
	frame.info.layout = (struct pl_layout){ 0 };
	assert_true(write_one(npy, &frame, &error) < 0);
	assert_string_not_equal(error.id, "FRAME-SHORT");
	fill_frame(&frame, 9);
	frame.info.layout = (struct pl_layout){ PL_ELEMENT_UINT, 8, 1, 1, { 5 } };
	frame.info.length = 5;
	assert_int_equal(write_one(png, &frame, &error), -ENOTSUP);
	assert_string_equal(error.id, "PNG-LAYOUT");
	assert_int_equal(access(png, F_OK), -1);
}

/* -- which frames become the file --------------------------------------------------------------------------- */

static void test_latest_frame_after_the_interval(void **state)
{
	struct pl_stream_frame frames[4];
	struct snapshot snapshot;
	struct pl_error error;
	bool pending;

	(void)state;
	for (unsigned i = 0; i < PL_ARRAY_SIZE(frames); i++)
		fill_frame(&frames[i], i);
	begin(&snapshot, npy);
	error.code = 5;
	assert_int_equal(snapshot_look(&snapshot, &pending, &error), 0);
	assert_false(pending);
	/* Without a failure there is no error. */
	assert_int_equal(error.code, 5);
	snapshot_take(&snapshot, &frames[0], &error);
	assert_int_equal(await_idle(&snapshot, &error), 0);
	assert_int_equal(read_number(), 0);
	/* The next one waits, and a later one takes its place. */
	snapshot_take(&snapshot, &frames[1], &error);
	assert_true(await_sleep(&snapshot, &frames[1]));
	snapshot_take(&snapshot, &frames[2], &error);
	assert_int_equal(atomic_load(&frames[1].releases), 1);
	set_clock(&snapshot, 2 * SNAPSHOT_INTERVAL - 1);
	assert_int_equal(snapshot_look(&snapshot, &pending, &error), 0);
	assert_true(pending && await_sleep(&snapshot, &frames[2]));
	assert_int_equal(read_number(), 0);
	set_clock(&snapshot, 2 * SNAPSHOT_INTERVAL);
	assert_int_equal(await_idle(&snapshot, &error), 0);
	assert_int_equal(read_number(), 2);
	/* A flush waits for no clock, and without a frame for nothing. */
	snapshot_take(&snapshot, &frames[3], &error);
	assert_int_equal(snapshot_flush(&snapshot, &error), 0);
	assert_int_equal(read_number(), 3);
	assert_int_equal(snapshot_flush(&snapshot, &error), 0);
	assert_int_equal(snapshot.written, 3);
	assert_false(snapshot.flush);
	snapshot_close(&snapshot);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(frames); i++)
		assert_int_equal(atomic_load(&frames[i].releases), 1);
}

static void test_flush_waits_for_the_frame_under_way(void **state)
{
	struct pl_stream_frame frame;
	struct snapshot snapshot;
	struct pl_error error;
	uint64_t written;

	(void)state;
	fill_frame(&frame, 7);
	begin(&snapshot, npy);
	atomic_store(&begun, false);
	atomic_store(&held, &snapshot);
	snapshot_take(&snapshot, &frame, &error);
	while (!atomic_load(&begun))
		usleep(100);
	assert_int_equal(snapshot_flush(&snapshot, &error), 0);
	written = snapshot.written;
	atomic_store(&held, NULL);
	assert_int_equal(written, 1);
	snapshot_close(&snapshot);
	assert_int_equal(read_number(), 7);
}

static void test_end_drops_the_frame_that_waits(void **state)
{
	struct pl_stream_frame frames[2];
	struct snapshot snapshot;
	struct pl_error error;

	(void)state;
	fill_frame(&frames[0], 0);
	fill_frame(&frames[1], 1);
	begin(&snapshot, npy);
	snapshot_take(&snapshot, &frames[0], &error);
	await_idle(&snapshot, &error);
	snapshot_take(&snapshot, &frames[1], &error);
	snapshot_close(&snapshot);
	assert_int_equal(atomic_load(&frames[1].releases), 1);
	assert_int_equal(read_number(), 0);
	snapshot_close(&snapshot); /* again: nothing is left */
}

static void test_without_a_file(void **state)
{
	struct snapshot snapshot = { 0 };
	struct pl_error error;
	bool pending = true;

	(void)state;
	assert_int_equal(snapshot_look(&snapshot, &pending, &error), 0);
	assert_false(pending);
	assert_int_equal(snapshot_flush(&snapshot, &error), 0);
	snapshot_close(&snapshot);
}

/* -- failures ------------------------------------------------------------------------------------------------ */

/* The first failure stays, and each call tells of it; later frames are written all the same. */
static void test_first_failure_stays(void **state)
{
	struct pl_stream_frame frames[3];
	struct snapshot snapshot;
	struct pl_error error;
	bool pending;

	(void)state;
	for (unsigned i = 0; i < PL_ARRAY_SIZE(frames); i++)
		fill_frame(&frames[i], i);
	begin(&snapshot, npy);
	assert_int_equal(symlink("/dev/null", part), 0);
	snapshot_take(&snapshot, &frames[0], &error);
	assert_int_equal(snapshot_flush(&snapshot, &error), -ELOOP);
	assert_string_equal(error.object, part);
	assert_string_equal(error.call, "open");
	assert_int_equal(unlink(part), 0);
	assert_int_equal(mkfifo(part, 0600), 0);
	memset(&error, 0, sizeof(error));
	assert_int_equal(snapshot_take(&snapshot, &frames[1], &error), -ELOOP);
	assert_string_equal(error.object, part);
	assert_int_equal(snapshot_flush(&snapshot, &error), -ELOOP);
	assert_int_equal(unlink(part), 0);
	snapshot_take(&snapshot, &frames[2], &error);
	assert_int_equal(snapshot_flush(&snapshot, &error), -ELOOP);
	assert_int_equal(snapshot_look(&snapshot, &pending, &error), -ELOOP);
	assert_int_equal(snapshot.written, 1);
	assert_int_equal(read_number(), 2);
	snapshot_close(&snapshot);
}

/* A pipe beside the file is not waited for, and gets nothing, whether a process reads it or not. */
static void test_pipe_beside(void **state)
{
	struct pl_stream_frame frame;
	struct pl_error error;
	int reader = -1;
	char byte;

	(void)state;
	assert_int_equal(mkfifo(part, 0600), 0);
	for (unsigned i = 0; i < 2; i++) {
		fill_frame(&frame, 7);
		assert_int_equal(write_one(npy, &frame, &error), -EINVAL);
		assert_string_equal(error.id, "FILE-KIND");
		assert_string_equal(error.object, part);
		if (i == 0)
			reader = open(part, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	}
	assert_int_equal(read(reader, &byte, 1), 0);
	close(reader);
	assert_int_equal(unlink(part), 0);
	assert_int_equal(access(npy, F_OK), -1);
}

static void test_folder_beside(void **state)
{
	struct pl_stream_frame frame;
	struct pl_error error;

	(void)state;
	assert_int_equal(mkdir(part, 0700), 0);
	fill_frame(&frame, 7);
	assert_int_equal(write_one(npy, &frame, &error), -EINVAL);
	assert_string_equal(error.id, "FILE-KIND");
	assert_int_equal(rmdir(part), 0);
}

static void test_places_that_no_file_replaces(void **state)
{
	struct snapshot snapshot = { 0 };
	struct pl_stream_frame frame;
	struct pl_error error;
	char missing[80];

	(void)state;
	assert_int_equal(mkfifo(npy, 0600), 0);
	assert_int_equal(snapshot_open(&snapshot, npy, &image, NULL, &error), -EINVAL);
	assert_string_equal(error.id, "FILE-KIND");
	assert_string_equal(error.object, npy);
	assert_int_equal(unlink(npy), 0);
	/* A link is replaced, not its target. */
	fill_frame(&frame, 7);
	assert_int_equal(symlink("/dev/null", npy), 0);
	assert_int_equal(write_one(npy, &frame, &error), 0);
	assert_int_equal(read_number(), 7);
	snprintf(missing, sizeof(missing), "%s/none/last.npy", folder);
	assert_int_equal(snapshot_open(&snapshot, missing, &image, NULL, &error), -ENOENT);
	assert_string_equal(error.call, "access");
	assert_false(snapshot.running);
}

static void test_no_thread(void **state)
{
	struct snapshot snapshot = { 0 };
	struct pl_error error;

	(void)state;
	lacks_threads = true;
	assert_int_equal(snapshot_open(&snapshot, npy, &image, NULL, &error), -EAGAIN);
	lacks_threads = false;
	assert_string_equal(error.call, "pthread_create");
	assert_false(snapshot.running);
	snapshot_close(&snapshot);
}

/* Checks that the old file stays, and nothing beside it. */
static void check_old_file(unsigned number)
{
	assert_int_equal(read_number(), number);
	assert_int_equal(access(part, F_OK), -1);
}

static void test_full_disk(void **state)
{
	struct rlimit old, limit;
	struct pl_stream_frame frame;
	struct pl_error error;
	/* The header does not fit; the bytes do not. */
	static const unsigned sizes[] = { NPY_HEADER_WRITTEN - 1, NPY_HEADER_WRITTEN + BYTES - 1 };

	(void)state;
	fill_frame(&frame, 7);
	assert_int_equal(write_one(npy, &frame, &error), 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(sizes); i++) {
		int rc;

		fill_frame(&frame, 8);
		limit = (struct rlimit){ sizes[i], old.rlim_max };
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		rc = write_one(npy, &frame, &error);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		assert_int_equal(rc, -EFBIG);
		assert_string_equal(error.call, "write");
		assert_string_equal(error.object, npy);
		check_old_file(7);
	}
}

static void test_failed_rename(void **state)
{
	struct pl_stream_frame frame;
	struct snapshot snapshot;
	struct pl_error error;

	(void)state;
	fill_frame(&frame, 7);
	begin(&snapshot, npy);
	/* The name was free at the start. */
	assert_int_equal(mkdir(npy, 0700), 0);
	snapshot_take(&snapshot, &frame, &error);
	assert_int_equal(snapshot_flush(&snapshot, &error), -EISDIR);
	assert_string_equal(error.call, "rename");
	snapshot_close(&snapshot);
	assert_int_equal(access(part, F_OK), -1);
	assert_int_equal(rmdir(npy), 0);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, enter_folder, leave_folder)
	const struct CMUnitTest tests[] = {
		TEST(test_names),
		TEST(test_array),
		TEST(test_picture),
		TEST(test_frame_of_a_gpu),
		TEST(test_failed_copy_of_a_gpu),
		TEST(test_layouts_that_no_file_has),
		TEST(test_frames_that_do_not_fit),
		TEST(test_latest_frame_after_the_interval),
		TEST(test_flush_waits_for_the_frame_under_way),
		TEST(test_end_drops_the_frame_that_waits),
		TEST(test_without_a_file),
		TEST(test_first_failure_stays),
		TEST(test_pipe_beside),
		TEST(test_folder_beside),
		TEST(test_places_that_no_file_replaces),
		TEST(test_no_thread),
		TEST(test_full_disk),
		TEST(test_failed_rename),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
