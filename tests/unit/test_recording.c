/* SPDX-License-Identifier: BSD-2-Clause */
/* Recordings: what a writer wrote reads back, also from a file that was cut at any byte, damaged or too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/stream/recording_reader.h"
#include "cmd/stream/recording_writer.h"

#define FRAMES 6u
#define SLOT 9000u
#define METADATA 3072u
/* Frames of a long recording; the first of them have one size. */
#define LONG_FRAMES 120000u
#define EQUAL_FRAMES 100000u

static char path[] = "/tmp/recording-XXXXXX";

/* Descriptor of a disk that fails: the call of this name. These replace the C library's. */
static int failing_fd = -1;
static const char *failing_call;

static bool call_fails(int fd, const char *call)
{
	return fd == failing_fd && !strcmp(call, failing_call);
}

int fsync(int fd)
{
	if (call_fails(fd, "fsync")) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fsync, fd);
}

int close(int fd)
{
	bool fails = call_fails(fd, "close");
	int rc = (int)syscall(SYS_close, fd);

	if (!fails)
		return rc;
	errno = EIO;
	return -1;
}

static const struct recording_header header = { .instance = { 1, [15] = 2 },
						.created = 3,
						.recorded = 4,
						.slot_bytes = SLOT,
						.slots = 8,
						.metadata_bytes = METADATA,
						.layout = { 1, 16, 1, 2, { 10, 20 } },
						.content_type = "image/raw",
						.name = "cam0" };

/* Frames of all kinds: empty, less than a page, whole pages, with metadata and a layout of their own, and with gaps. */
static struct recording_frame sample_frame(unsigned i, uint8_t *payload, uint8_t *metadata)
{
	static const uint64_t lengths[FRAMES] = { 400, 0, 4096, SLOT, 1, 8191 };
	struct recording_frame frame = { .sequence = 100 + i * i, .length = lengths[i], .captured = 1000 - i };

	for (unsigned k = 0; k < lengths[i]; k++)
		payload[k] = (uint8_t)(i * 7 + k);
	if (i == 3) {
		memset(metadata, 0xa5, METADATA);
		frame.metadata = metadata;
		frame.metadata_length = METADATA;
		frame.layout = (struct pl_layout){ 2, 32, 1, 1, { 5 } };
	}
	return frame;
}

/* Writes the sample frames, and returns the offset at which each of them ends. */
static void write_frames(struct recording_writer *writer, uint64_t ends[FRAMES])
{
	uint8_t payload[SLOT], metadata[METADATA];
	struct pl_error error;

	assert_int_equal(recording_create(writer, path, true, &header, &error), 0);
	for (unsigned i = 0; i < FRAMES; i++) {
		struct recording_frame frame = sample_frame(i, payload, metadata);

		ends[i] = writer->end + RECORDING_PAGE + frame.length;
		assert_int_equal(recording_append(writer, &frame, payload, &error), 0);
	}
}

static const struct pl_accounts accounts = { .first = 99, .next = 126, .delivered = 6, .lapped = 1, .aborted = 20 };

static void write_recording(uint64_t ends[FRAMES])
{
	struct recording_writer writer;
	struct pl_error error;

	write_frames(&writer, ends);
	assert_int_equal(recording_finish(&writer, RECORDING_COUNT, &accounts, &error), 0);
}

/* Reads all frames of an open recording, which must be the first ones of the sample. Returns their number. */
static unsigned read_frames(struct recording_reader *reader)
{
	uint8_t payload[SLOT], expected[SLOT], metadata[METADATA];
	struct recording_frame frame;
	struct pl_error error;
	unsigned count = 0;

	recording_rewind(reader);
	while (recording_next(reader, &frame, &error) == 1) {
		struct recording_frame right = sample_frame(count, expected, metadata);

		assert_true(count < FRAMES);
		assert_int_equal(frame.sequence, right.sequence);
		assert_int_equal(frame.length, right.length);
		assert_int_equal(frame.captured, right.captured);
		assert_int_equal(frame.metadata_length, right.metadata_length);
		assert_memory_equal(frame.metadata ? frame.metadata : "", right.metadata ? right.metadata : "",
				    frame.metadata_length);
		assert_memory_equal(&frame.layout, &right.layout, sizeof(right.layout));
		assert_int_equal(recording_read(reader, &frame, payload, &error), 0);
		assert_memory_equal(payload, expected, frame.length);
		assert_int_equal(recording_read(reader, &frame, NULL, &error), 0);
		count++;
	}
	return count;
}

static void test_whole(void **state)
{
	struct recording_reader reader;
	struct recording_entry entry;
	uint64_t ends[FRAMES];
	struct pl_error error;

	(void)state;
	write_recording(ends);
	assert_int_equal(recording_open(&reader, path, &error), 0);
	assert_true(reader.indexed);
	assert_int_equal(reader.rest, 0);
	assert_string_equal(reader.header.name, "cam0");
	assert_string_equal(reader.header.content_type, "image/raw");
	assert_memory_equal(&reader.header.layout, &header.layout, sizeof(header.layout));
	assert_int_equal(reader.header.slots, 8);
	assert_int_equal(reader.summary.frames, FRAMES);
	assert_int_equal(reader.summary.reason, RECORDING_COUNT);
	assert_memory_equal(&reader.summary.accounts, &accounts, sizeof(accounts));
	assert_int_equal(read_frames(&reader), FRAMES);
	for (unsigned i = 0; i < FRAMES; i++) {
		assert_int_equal(recording_entry(&reader, i, &entry, &error), 0);
		assert_int_equal(entry.sequence, 100 + i * i);
		assert_int_equal(entry.offset % RECORDING_PAGE, 0);
		assert_true(entry.offset < ends[i] && entry.offset + RECORDING_PAGE <= ends[i]);
	}
	recording_close(&reader);
}

/* A payload that is read and digested in several pieces. */
static void test_large_payload(void **state)
{
	enum { LENGTH = 200000 };
	static uint8_t payload[LENGTH], got[LENGTH + 1];
	struct recording_header large = header;
	struct recording_frame frame = { .sequence = 1, .length = LENGTH };
	struct recording_reader reader;
	struct recording_writer writer;
	struct pl_error error;
	int fd;

	(void)state;
	large.slot_bytes = LENGTH;
	for (unsigned i = 0; i < LENGTH; i++)
		payload[i] = (uint8_t)(i * 2654435761u >> 24);
	assert_int_equal(recording_create(&writer, path, true, &large, &error), 0);
	assert_int_equal(recording_append(&writer, &frame, payload, &error), 0);
	assert_int_equal(recording_finish(&writer, RECORDING_COUNT, &accounts, &error), 0);
	assert_int_equal(recording_open(&reader, path, &error), 0);
	assert_int_equal(recording_next(&reader, &frame, &error), 1);
	got[LENGTH] = 7;
	assert_int_equal(recording_read(&reader, &frame, got, &error), 0);
	assert_memory_equal(got, payload, LENGTH);
	assert_int_equal(got[LENGTH], 7);
	assert_int_equal(recording_read(&reader, &frame, NULL, &error), 0);
	/* Damage in the last piece. */
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, &payload[0], 1, (off_t)reader.payload + LENGTH - 1), 1);
	close(fd);
	assert_true(payload[0] != payload[LENGTH - 1]);
	assert_int_equal(recording_read(&reader, &frame, got, &error), -EBADMSG);
	assert_string_equal(error.id, "RECORDING-DAMAGED");
	recording_close(&reader);
}

/* An index with one entry more than the writer's buffer. */
static void test_long_index(void **state)
{
	const unsigned count = 4097;
	struct recording_frame frame = { .sequence = 0 };
	struct recording_reader reader;
	struct recording_writer writer;
	struct recording_entry entry;
	struct pl_error error;

	(void)state;
	assert_int_equal(recording_create(&writer, path, true, &header, &error), 0);
	for (frame.sequence = 0; frame.sequence < count; frame.sequence++)
		assert_int_equal(recording_append(&writer, &frame, "", &error), 0);
	assert_int_equal(recording_finish(&writer, RECORDING_COUNT, &accounts, &error), 0);
	assert_int_equal(recording_open(&reader, path, &error), 0);
	assert_true(reader.indexed);
	assert_int_equal(reader.summary.frames, count);
	for (unsigned i = count - 2; i < count; i++) {
		assert_int_equal(recording_entry(&reader, i, &entry, &error), 0);
		assert_true(entry.sequence == i && entry.offset == (i + 1) * RECORDING_PAGE);
	}
	recording_close(&reader);
}

/* Returns the bytes of a file behind the pages of its last whole frame. */
static uint64_t bytes_behind(uint64_t size, const uint64_t *ends, unsigned whole)
{
	uint64_t end =
		whole ? (ends[whole - 1] + RECORDING_PAGE - 1) / RECORDING_PAGE * RECORDING_PAGE : RECORDING_PAGE;

	return size > end ? size - end : 0;
}

/* Each whole frame of a file that was cut at any byte reads back. No cut makes another frame. */
static void test_cuts(void **state)
{
	uint64_t ends[FRAMES];
	struct pl_error error;
	struct stat status;

	(void)state;
	write_recording(ends);
	assert_int_equal(stat(path, &status), 0);
	/* Odd steps meet all parts of pages. All bytes around the ends of frames are tried. */
	for (uint64_t size = (uint64_t)status.st_size - 1; size > 0;) {
		struct recording_reader reader;
		unsigned whole = 0, near = 0;

		assert_int_equal(truncate(path, (off_t)size), 0);
		while (whole < FRAMES && ends[whole] <= size)
			whole++;
		if (size < RECORDING_PAGE) {
			assert_true(recording_open(&reader, path, &error) < 0);
		} else {
			assert_int_equal(recording_open(&reader, path, &error), 0);
			assert_false(reader.indexed);
			assert_int_equal(reader.summary.frames, whole);
			assert_int_equal(reader.rest, bytes_behind(size, ends, whole));
			assert_int_equal(read_frames(&reader), whole);
			recording_close(&reader);
		}
		for (unsigned i = 0; i < FRAMES; i++)
			near |= size <= ends[i] + 3 && size + 3 >= ends[i];
		size -= near ? 1 : size > 40 ? 37 : 1;
	}
}

/* A writer ends without an index: by a signal that it cannot catch, between two writes of any size. */
static void test_killed(void **state)
{
	struct recording_reader reader;
	struct recording_writer writer;
	uint64_t ends[FRAMES];
	struct pl_error error;
	int status, fd;
	pid_t child = fork();

	(void)state;
	if (child == 0) {
		write_frames(&writer, ends);
		raise(SIGKILL);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(recording_open(&reader, path, &error), 0);
	assert_false(reader.indexed);
	assert_int_equal(reader.summary.reason, RECORDING_UNKNOWN);
	assert_int_equal(read_frames(&reader), FRAMES);
	recording_close(&reader);
	/* After a failure of power, the head of the last frame can be in the file without its payload. */
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "\xff", 1, lseek(fd, -1, SEEK_END)), 1);
	close(fd);
	assert_int_equal(recording_open(&reader, path, &error), 0);
	assert_int_equal(reader.summary.frames, FRAMES - 1);
	assert_int_equal(read_frames(&reader), FRAMES - 1);
	recording_close(&reader);
}

/* No change of a byte is accepted silently, except in the padding behind a payload. */
static void test_damage(void **state)
{
	uint64_t ends[FRAMES];
	struct stat status;
	struct pl_error error;
	int fd;

	(void)state;
	write_recording(ends);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0 && fstat(fd, &status) == 0);
	for (off_t at = 0; at < status.st_size; at += 61) {
		struct recording_reader reader;
		struct recording_frame frame;
		bool noticed, padding = false;
		uint8_t byte, bad;
		int rc;

		assert_int_equal(pread(fd, &byte, 1, at), 1);
		bad = byte ^ 0x40;
		assert_int_equal(pwrite(fd, &bad, 1, at), 1);
		rc = recording_open(&reader, path, &error);
		noticed = rc < 0 || !reader.indexed;
		while (rc == 0 && (rc = recording_next(&reader, &frame, &error)) == 1)
			rc = recording_read(&reader, &frame, NULL, &error);
		if (rc != -EBADMSG || strcmp(error.id, "RECORDING"))
			recording_close(&reader);
		noticed |= rc < 0;
		for (unsigned i = 0; i < FRAMES; i++)
			padding |= (uint64_t)at >= ends[i] &&
				   (uint64_t)at / RECORDING_PAGE == (ends[i] - 1) / RECORDING_PAGE;
		assert_true(noticed != padding);
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	close(fd);
}

/* A file that cannot grow ends with its last whole frame, and still gets an index if there is room for one. */
static void test_full(void **state)
{
	uint8_t payload[SLOT] = { 0 }, metadata[METADATA];
	struct recording_reader reader;
	struct recording_writer writer;
	struct rlimit old, limit;
	struct pl_error error;
	/* The last one has room for the index, and not for the frame before it. */
	unsigned count, limits[] = { 4 * RECORDING_PAGE + 100, 7 * RECORDING_PAGE + 1, RECORDING_PAGE, 5000, 30576 };

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		int rc = 0;

		limit = (struct rlimit){ limits[i], old.rlim_max };
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		assert_int_equal(recording_create(&writer, path, true, &header, &error), 0);
		for (count = 0; rc == 0; count += rc == 0) {
			struct recording_frame frame = sample_frame(count, payload, metadata);

			rc = recording_append(&writer, &frame, payload, &error);
		}
		assert_int_equal(rc, -EFBIG);
		assert_string_equal(error.id, "FILE-WRITE");
		rc = recording_finish(&writer, RECORDING_FULL, &accounts, &error);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		assert_int_equal(recording_open(&reader, path, &error), 0);
		assert_true(reader.indexed == (rc == 0) && reader.rest == 0);
		assert_int_equal(read_frames(&reader), count);
		recording_close(&reader);
	}
}

/* Writes a recording of one frame to a disk that fails at the end. */
static int finish_on_failing_disk(const char *call, rlim_t size, struct pl_error *error)
{
	uint8_t payload[SLOT] = { 0 }, metadata[METADATA];
	struct recording_frame frame = sample_frame(0, payload, metadata);
	struct recording_writer writer;
	struct rlimit old, limit;
	int rc;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(recording_create(&writer, path, true, &header, error), 0);
	assert_int_equal(recording_append(&writer, &frame, payload, error), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = (struct rlimit){ size, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	failing_call = call;
	failing_fd = writer.fd;
	rc = recording_finish(&writer, RECORDING_COUNT, &accounts, error);
	failing_fd = -1;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(writer.fd, -1);
	assert_string_equal(error->id, "FILE-WRITE");
	assert_string_equal(error->object, path);
	assert_string_equal(error->call, call);
	return rc;
}

static void test_failures_name_the_call(void **state)
{
	struct recording_reader reader;
	struct pl_error error;

	(void)state;
	assert_int_equal(finish_on_failing_disk("fsync", RLIM_INFINITY, &error), -EIO);
	assert_non_null(strstr(error.message, "may lack frames"));
	assert_int_equal(finish_on_failing_disk("close", RLIM_INFINITY, &error), -EIO);
	assert_non_null(strstr(error.message, "may lack frames"));
	/* The frame fits, and the index does not. */
	assert_int_equal(finish_on_failing_disk("pwritev", 3 * RECORDING_PAGE, &error), -EFBIG);
	assert_non_null(strstr(error.message, "the index cannot be written"));
	assert_int_equal(recording_open(&reader, path, &error), 0);
	assert_false(reader.indexed);
	assert_int_equal(read_frames(&reader), 1);
	recording_close(&reader);
}

static void test_targets(void **state)
{
	struct recording_writer writer;
	struct recording_reader reader;
	struct pl_error error;
	uint64_t ends[FRAMES];

	(void)state;
	write_recording(ends);
	assert_int_equal(recording_create(&writer, path, false, &header, &error), -EEXIST);
	assert_string_equal(error.id, "FILE-EXISTS");
	assert_int_equal(recording_open(&reader, path, &error), 0);
	assert_int_equal(read_frames(&reader), FRAMES);
	recording_close(&reader);
	assert_true(recording_create(&writer, "/dev/null", true, &header, &error) < 0);
	assert_string_equal(error.id, "FILE-KIND");
	assert_int_equal(recording_create(&writer, "/nonexistent/x", true, &header, &error), -ENOENT);
	assert_int_equal(recording_create(&writer, "/nonexistent/x", false, &header, &error), -ENOENT);
	assert_true(recording_open(&reader, "/dev/zero", &error) < 0);
	assert_string_equal(error.id, "RECORDING");
	assert_true(recording_open(&reader, "/nonexistent", &error) < 0);
	/* A page of zeros. */
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(truncate(path, RECORDING_PAGE), 0);
	assert_int_equal(recording_open(&reader, path, &error), -EBADMSG);
	assert_string_equal(error.id, "RECORDING");
	assert_int_equal(reader.fd, -1);
}

static void refuse_header(struct recording_header bad)
{
	uint8_t page[RECORDING_PAGE];
	struct recording_header decoded;

	recording_header_encode(&bad, page);
	assert_int_equal(recording_header_decode(page, &decoded), -EINVAL);
}

/* Values out of range, with right digests. */
static void test_hostile(void **state)
{
	struct recording_header bad = header;
	struct recording_trailer trailer = { .index = 2 * RECORDING_PAGE, .bytes = RECORDING_PAGE };
	struct recording_frame frame = { .length = SLOT + 1 }, decoded;
	uint8_t page[RECORDING_PAGE], bytes[RECORDING_TRAILER];

	(void)state;
	bad.slots = 1;
	refuse_header(bad);
	bad = header;
	bad.slot_bytes = 399; /* less than the layout */
	refuse_header(bad);
	bad = header;
	bad.metadata_bytes = PL_STREAM_METADATA_MAX + 1;
	refuse_header(bad);
	bad = header;
	strcpy(bad.name, "a/b");
	refuse_header(bad);
	recording_frame_encode(&frame, page);
	assert_int_equal(recording_frame_decode(page, &header, &decoded), -EINVAL);
	frame = (struct recording_frame){ .sequence = UINT64_MAX };
	recording_frame_encode(&frame, page);
	assert_int_equal(recording_frame_decode(page, &header, &decoded), -EINVAL);
	frame = (struct recording_frame){ .length = 3, .layout = { 1, 32, 1, 0, { 0 } } };
	recording_frame_encode(&frame, page);
	assert_int_equal(recording_frame_decode(page, &header, &decoded), -EINVAL);
	recording_trailer_encode(&trailer, bytes);
	assert_int_equal(recording_trailer_decode(bytes, 3 * RECORDING_PAGE + RECORDING_TRAILER, &trailer), 0);
	assert_int_equal(recording_trailer_decode(bytes, 4 * RECORDING_PAGE, &trailer), -EINVAL);
	trailer = (struct recording_trailer){ .index = UINT64_MAX - RECORDING_PAGE + 1, .bytes = 2 * RECORDING_PAGE };
	recording_trailer_encode(&trailer, bytes);
	assert_int_equal(recording_trailer_decode(bytes, RECORDING_PAGE + RECORDING_TRAILER, &trailer), -EINVAL);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

/* Entry of a long recording: frames of one size, then frames of many sizes with gaps, the last of them far behind. */
static struct recording_entry long_entry(const struct recording_entry *before, unsigned number)
{
	struct recording_entry entry = { before->sequence + 1, before->offset + 3 * RECORDING_PAGE };

	if (number >= EQUAL_FRAMES) {
		entry.sequence += number % 5 ? 0 : number * 1000003ull;
		entry.offset += number % 300 / 2 * RECORDING_PAGE;
	}
	if (number == LONG_FRAMES - 1) {
		entry.sequence = INT64_MAX;
		entry.offset = INT64_MAX / RECORDING_PAGE * RECORDING_PAGE;
	}
	return entry;
}

/* The entries of frames of one size take no memory, and all entries are found again. */
static void test_index(void **state)
{
	struct recording_entry entry = { 7, RECORDING_PAGE };
	struct recording_index_position position = { 0 };
	struct recording_index index = { 0 };
	const struct recording_entry *found;

	(void)state;
	assert_null(recording_index_next(&index, &position));
	position = (struct recording_index_position){ 0 };
	for (unsigned i = 0; i < LONG_FRAMES; i++) {
		assert_int_equal(recording_index_reserve(&index), 0);
		recording_index_add(&index, &entry);
		if (i == EQUAL_FRAMES - 1)
			assert_true(index.room <= 4096);
		entry = long_entry(&entry, i + 1);
	}
	assert_true(index.room <= (LONG_FRAMES - EQUAL_FRAMES) * 12);
	assert_true(index.count == LONG_FRAMES);
	entry = (struct recording_entry){ 7, RECORDING_PAGE };
	for (unsigned i = 0; i < LONG_FRAMES; i++) {
		found = recording_index_next(&index, &position);
		assert_non_null(found);
		assert_true(found->sequence == entry.sequence && found->offset == entry.offset);
		entry = long_entry(&entry, i + 1);
	}
	assert_null(recording_index_next(&index, &position));
	recording_index_free(&index);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_index),
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_failures_name_the_call),
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_large_payload),
		cmocka_unit_test(test_long_index),
	};
	int fd = mkstemp(path);

	if (fd < 0)
		return 1;
	close(fd);
	return cmocka_run_group_tests(tests, NULL, remove_file);
}
