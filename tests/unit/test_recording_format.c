/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages of a recording with a right digest and a wrong field, each of which its decoder refuses; and gaps of recordings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cmd/stream/recording_gaps.h"
#include "cmd/stream/recording_reader.h"

#define SLOT 9000u
#define METADATA 100u
/* A size of a file, whose last bytes are the trailer. */
#define INDEX (3ull * RECORDING_PAGE)
#define INDEX_BYTES (RECORDING_PAGE + 2ull * RECORDING_ENTRY)
#define SIZE (INDEX + INDEX_BYTES + RECORDING_TRAILER)

static const struct recording_header header = { .slot_bytes = SLOT,
						.slots = 8,
						.metadata_bytes = METADATA,
						.layout = { 1, 16, 1, 2, { 10, 20 } },
						.content_type = "image/raw",
						.name = "cam0" };

/* Field of a page: bytes at an offset, in the order of the file. */
struct field {
	size_t at;
	uint64_t value;
	size_t bytes;
};

static void put_field(uint8_t *bytes, size_t size, const struct field *field)
{
	uint64_t value = htole64(field->value), digest;

	memcpy(bytes + field->at, &value, field->bytes);
	digest = htole64(XXH3_64bits(bytes, size - sizeof(digest)));
	memcpy(bytes + size - sizeof(digest), &digest, sizeof(digest));
}

/* -- header --------------------------------------------------------------------------------------- */

static int decode_header(const struct field *field)
{
	uint8_t page[RECORDING_PAGE];
	struct recording_header decoded;

	recording_header_encode(&header, page);
	if (field)
		put_field(page, sizeof(page), field);
	return recording_header_decode(page, &decoded);
}

static void test_header(void **state)
{
	static const struct field wrong[] = {
		{ 0, 'X', 1 },                         /* magic */
		{ 8, RECORDING_VERSION + 1, 4 },       /* version */
		{ 12, 512, 4 },                        /* page */
		{ 48, 0, 8 },                          /* slot bytes */
		{ 48, (1ull << 40) + 1, 8 },           /* the same */
		{ 48, 399, 8 },                        /* less than the layout */
		{ 56, 1, 4 },                          /* slots */
		{ 56, PL_STREAM_SLOTS_MAX + 1, 4 },    /* the same */
		{ 60, PL_STREAM_METADATA_MAX + 1, 4 }, /* metadata bytes */
		{ 64, 3, 1 },                          /* code of the layout */
		{ 136, 1, 1 },                         /* content type */
		{ 136 + 63, 'x', 1 },                  /* behind its end */
		{ 200, '/', 1 },                       /* name */
		{ 200 + 63, 'x', 1 },                  /* behind its end */
		{ 264, 1, 1 },                         /* zeros */
		{ RECORDING_PAGE - 9, 1, 1 },          /* the same */
	};
	static const struct field right[] = {
		{ 48, 1ull << 40, 8 },
		{ 48, 400, 8 },
		{ 56, 2, 4 },
		{ 56, PL_STREAM_SLOTS_MAX, 4 },
		{ 60, PL_STREAM_METADATA_MAX, 4 },
	};

	(void)state;
	assert_int_equal(decode_header(NULL), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(decode_header(&wrong[i]), -EINVAL);
	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
		assert_int_equal(decode_header(&right[i]), 0);
}

/* The bytes of a header, and the longest texts. */
static void test_header_bytes(void **state)
{
	static const uint8_t golden[80] = {
		'P',         'L',
		'R',         'E',
		'C',         'O',
		'R',         'D',
		1,           0,
		0,           0,
		0,           0x10,
		0,           0,
		[16] = 7,    [31] = 9,
		[32] = 1,    [39] = 2,
		[40] = 3,    [47] = 4,
		[48] = 0x28, [49] = 0x23,
		[56] = 8,    [60] = METADATA,
		[64] = 1,    [65] = 16,
		[66] = 2,    [67] = 1,
		[68] = 1,    [72] = 5,
	};
	struct recording_header other = { .instance = { 7, [15] = 9 },
					  .created = 1 | 2ull << 56,
					  .recorded = 3 | 4ull << 56,
					  .slot_bytes = SLOT,
					  .slots = 8,
					  .metadata_bytes = METADATA,
					  .layout = { 1, 16, 258, 1, { 5 } } },
				decoded;
	uint8_t page[RECORDING_PAGE];

	(void)state;
	memset(other.content_type, 'c', PL_CONTENT_TYPE_SIZE - 1);
	memset(other.name, 'n', PL_STREAM_NAME_SIZE - 1);
	recording_header_encode(&other, page);
	assert_memory_equal(page, golden, sizeof(golden));
	assert_string_equal((char *)page + 136, other.content_type);
	assert_string_equal((char *)page + 200, other.name);
	assert_int_equal(recording_header_decode(page, &decoded), 0);
	assert_memory_equal(decoded.instance, other.instance, sizeof(other.instance));
	assert_true(decoded.created == other.created && decoded.recorded == other.recorded);
	assert_int_equal(decoded.layout.lanes, 258);
	assert_string_equal(decoded.content_type, other.content_type);
	assert_string_equal(decoded.name, other.name);
}

/* A text that fills its bytes has no end, and an empty layout fits a slot of one byte. */
static void test_header_ends(void **state)
{
	struct recording_header other = header, decoded;
	uint8_t page[RECORDING_PAGE];

	(void)state;
	recording_header_encode(&header, page);
	memset(page + 136, 'a', PL_CONTENT_TYPE_SIZE);
	put_field(page, sizeof(page), &(struct field){ 0, 'P', 1 });
	assert_int_equal(recording_header_decode(page, &decoded), -EINVAL);
	recording_header_encode(&header, page);
	memset(page + 200, 'a', PL_STREAM_NAME_SIZE);
	put_field(page, sizeof(page), &(struct field){ 0, 'P', 1 });
	assert_int_equal(recording_header_decode(page, &decoded), -EINVAL);
	other.layout = (struct pl_layout){ 0 };
	other.slot_bytes = 1;
	recording_header_encode(&other, page);
	assert_int_equal(recording_header_decode(page, &decoded), 0);
	other.slot_bytes = 0;
	recording_header_encode(&other, page);
	assert_int_equal(recording_header_decode(page, &decoded), -EINVAL);
}

/* -- frames --------------------------------------------------------------------------------------- */

static int decode_frame(const struct field *field)
{
	const struct recording_frame frame = { .sequence = 5,
					       .length = 400,
					       .layout = { 1, 16, 1, 1, { 200 } },
					       .metadata = "meta",
					       .metadata_length = 4 };
	uint8_t page[RECORDING_PAGE];
	struct recording_frame decoded;

	recording_frame_encode(&frame, page);
	if (field)
		put_field(page, sizeof(page), field);
	return recording_frame_decode(page, &header, &decoded);
}

static void test_frame(void **state)
{
	static const struct field wrong[] = {
		{ 7, '2', 1 },                /* magic */
		{ 8, 1ull << 62, 8 },         /* sequence */
		{ 16, SLOT + 1, 8 },          /* length */
		{ 16, 399, 8 },               /* less than the layout */
		{ 40, METADATA + 1, 4 },      /* bytes of metadata */
		{ 40, 3, 4 },                 /* fewer than there are */
		{ 44, 1, 1 },                 /* zeros */
		{ 47, 1, 1 },                 /* the same */
		{ 48, 3, 1 },                 /* code of the layout */
		{ 120, 1, 1 },                /* zeros behind the layout */
		{ 191, 1, 1 },                /* the same */
		{ 196, 1, 1 },                /* zeros behind the metadata */
		{ RECORDING_PAGE - 9, 1, 1 }, /* the same */
	};
	static const struct field right[] = {
		{ 8, (1ull << 62) - 1, 8 },
		{ 16, SLOT, 8 },
		{ 16, 400, 8 },
		{ 40, METADATA, 4 },
	};

	(void)state;
	assert_int_equal(decode_frame(NULL), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(decode_frame(&wrong[i]), -EINVAL);
	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
		assert_int_equal(decode_frame(&right[i]), 0);
}

/* -- index ---------------------------------------------------------------------------------------- */

static int decode_summary(const struct field *field)
{
	const struct recording_summary summary = { .frames = 2, .end = INDEX, .reason = RECORDING_COUNT };
	uint8_t page[RECORDING_PAGE];
	struct recording_summary decoded;

	recording_summary_encode(&summary, page);
	if (field)
		put_field(page, sizeof(page), field);
	return recording_summary_decode(page, &decoded);
}

static void test_summary(void **state)
{
	static const struct field wrong[] = {
		{ 7, '2', 1 },                /* magic */
		{ 24, RECORDING_UNKNOWN, 4 }, /* reason */
		{ 24, RECORDING_ENDS, 4 },    /* the same */
		{ 28, 1, 1 },                 /* zeros */
		{ 31, 1, 1 },                 /* the same */
		{ 112, 1, 1 },                /* behind the accounts */
		{ RECORDING_PAGE - 9, 1, 1 }, /* the same */
	};
	const struct field last = { 24, RECORDING_FAILED, 4 };

	(void)state;
	assert_int_equal(decode_summary(NULL), 0);
	assert_int_equal(decode_summary(&last), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(decode_summary(&wrong[i]), -EINVAL);
}

static int decode_trailer(uint64_t index, uint64_t length, uint64_t size, const struct field *field)
{
	const struct recording_trailer trailer = { .index = index, .bytes = length };
	uint8_t bytes[RECORDING_TRAILER];
	struct recording_trailer decoded;

	recording_trailer_encode(&trailer, bytes);
	if (field)
		put_field(bytes, sizeof(bytes), field);
	return recording_trailer_decode(bytes, size, &decoded);
}

static void test_trailer(void **state)
{
	const struct field magic = { 7, '2', 1 }, zeros[] = { { 32, 1, 1 }, { 55, 1, 1 } };
	const uint64_t page = RECORDING_PAGE, end = RECORDING_TRAILER;

	(void)state;
	assert_int_equal(decode_trailer(INDEX, INDEX_BYTES, SIZE, NULL), 0);
	assert_int_equal(decode_trailer(INDEX, INDEX_BYTES, SIZE, &magic), -EINVAL);
	assert_int_equal(decode_trailer(INDEX, INDEX_BYTES, SIZE, &zeros[0]), -EINVAL);
	assert_int_equal(decode_trailer(INDEX, INDEX_BYTES, SIZE, &zeros[1]), -EINVAL);
	assert_int_equal(decode_trailer(INDEX, INDEX_BYTES, SIZE + 1, NULL), -EINVAL);
	/* The first index follows the header, and has a summary. */
	assert_int_equal(decode_trailer(page, page, 2 * page + end, NULL), 0);
	assert_int_equal(decode_trailer(0, page, page + end, NULL), -EINVAL);
	assert_int_equal(decode_trailer(page + 8, page, 2 * page + 8 + end, NULL), -EINVAL);
	assert_int_equal(decode_trailer(page, page - 1, 2 * page - 1 + end, NULL), -EINVAL);
	/* Sums that wrap to the size of the file. */
	assert_int_equal(decode_trailer(-page, 2 * page, page + end, NULL), -EINVAL);
	assert_int_equal(decode_trailer(page, -page - end + 100, 100, NULL), -EINVAL);
}

/* A trailer and pages whose digest is wrong. */
static void test_digests(void **state)
{
	struct recording_trailer trailer = { .index = INDEX, .bytes = INDEX_BYTES };
	uint8_t page[RECORDING_PAGE], bytes[RECORDING_TRAILER];
	struct recording_header decoded;

	(void)state;
	recording_header_encode(&header, page);
	page[RECORDING_PAGE - 1] ^= 1;
	assert_int_equal(recording_header_decode(page, &decoded), -EINVAL);
	recording_trailer_encode(&trailer, bytes);
	bytes[RECORDING_TRAILER - 1] ^= 1;
	assert_int_equal(recording_trailer_decode(bytes, SIZE, &trailer), -EINVAL);
}

/* -- files ---------------------------------------------------------------------------------------- */

/* A recording of two frames without payload, with an index. */
struct file {
	struct recording_frame frames[2];
	struct recording_summary summary;
	struct recording_trailer trailer;
	size_t size; /* bytes of it; 0: all */
	bool wrong_digest, wrong_trailer;
};

#define FILE_INDEX (3ull * RECORDING_PAGE)
#define BY_HEADS(frames) (-1 - (frames))

static const struct file good_file = {
	.frames = { { .sequence = 4 }, { .sequence = 5 } },
	.summary = { .frames = 2, .end = FILE_INDEX, .reason = RECORDING_COUNT },
	.trailer = { .index = FILE_INDEX, .bytes = INDEX_BYTES },
};

/* Opens the file. Returns the number of its frames, or BY_HEADS of it if the file has no good index. */
static int frames_of(const struct file *file)
{
	struct recording_trailer trailer = file->trailer;
	struct recording_reader reader;
	struct recording_frame frame;
	uint8_t bytes[SIZE + RECORDING_PAGE] = { 0 };
	size_t end = file->trailer.index + file->trailer.bytes;
	struct pl_error error;
	int count = 0, fd = memfd_create("recording", MFD_CLOEXEC);

	recording_header_encode(&header, bytes);
	for (unsigned i = 0; i < 2; i++) {
		frame = file->frames[i];
		frame.digest = XXH3_64bits("", 0);
		recording_frame_encode(&frame, bytes + (i + 1) * RECORDING_PAGE);
		recording_entry_encode(&(struct recording_entry){ frame.sequence, (i + 1) * RECORDING_PAGE },
				       bytes + FILE_INDEX + RECORDING_PAGE + i * RECORDING_ENTRY);
	}
	recording_summary_encode(&file->summary, bytes + trailer.index);
	trailer.digest = XXH3_64bits(bytes + trailer.index, trailer.bytes) + file->wrong_digest;
	recording_trailer_encode(&trailer, bytes + end);
	bytes[end + RECORDING_TRAILER - 1] ^= file->wrong_trailer;
	end = file->size ? file->size : end + RECORDING_TRAILER;
	assert_true(fd >= 0 && write(fd, bytes, end) == (ssize_t)end);
	assert_int_equal(recording_open_fd(&reader, fd, "recording", &error), 0);
	while (recording_next(&reader, &frame, &error) == 1)
		count++;
	if (!reader.indexed)
		assert_int_equal(count, reader.summary.frames);
	count = reader.indexed ? count : BY_HEADS(count);
	recording_close(&reader);
	return count;
}

/* An index that contradicts itself or the file does not count. */
static void test_wrong_index(void **state)
{
	struct file file = good_file;

	(void)state;
	assert_int_equal(frames_of(&file), 2);
	file.summary.end -= RECORDING_PAGE;
	assert_int_equal(frames_of(&file), BY_HEADS(2));
	file = good_file;
	file.summary.frames = 1;
	assert_int_equal(frames_of(&file), BY_HEADS(2));
	/* More frames than pages, with as many entries. */
	file.summary.frames = 3;
	file.trailer.bytes += RECORDING_ENTRY;
	assert_int_equal(frames_of(&file), BY_HEADS(2));
	file = good_file;
	file.wrong_digest = true;
	assert_int_equal(frames_of(&file), BY_HEADS(2));
	file = good_file;
	file.wrong_trailer = true;
	assert_int_equal(frames_of(&file), BY_HEADS(2));
}

/* A head whose sequence falls, or whose payload the file does not have, ends the frames. */
static void test_wrong_heads(void **state)
{
	struct file file = good_file;

	(void)state;
	file.size = FILE_INDEX;
	assert_int_equal(frames_of(&file), BY_HEADS(2));
	file.frames[1].sequence = 4;
	assert_int_equal(frames_of(&file), BY_HEADS(1));
	file.frames[1].sequence = 1ull << 62;
	assert_int_equal(frames_of(&file), BY_HEADS(1));
	file.frames[1] = (struct recording_frame){ .sequence = 5, .length = 1 };
	assert_int_equal(frames_of(&file), BY_HEADS(1));
	/* A payload cannot be in the index. */
	file.size = 0;
	assert_int_equal(frames_of(&file), 1);
	file = good_file;
	file.size = FILE_INDEX - 1;
	assert_int_equal(frames_of(&file), BY_HEADS(1));
}

/* A recording without frames, with an index and without one. */
static void test_no_frames(void **state)
{
	struct file file = { .summary = { .end = RECORDING_PAGE, .reason = RECORDING_COUNT },
			     .trailer = { .index = RECORDING_PAGE, .bytes = RECORDING_PAGE } };

	(void)state;
	assert_int_equal(frames_of(&file), 0);
	file.size = RECORDING_PAGE;
	assert_int_equal(frames_of(&file), BY_HEADS(0));
}

/* -- gaps ----------------------------------------------------------------------------------------- */

/* Adds frames with a gap of two sequences, then of one, in turn. */
static void add_gaps(struct recording_gaps *gaps, unsigned count)
{
	uint64_t sequence = 10;

	recording_gaps_begin(gaps, sequence);
	recording_gaps_add(gaps, sequence);
	for (unsigned i = 0; i < count; i++) {
		sequence += i % 2 ? 2 : 3;
		recording_gaps_add(gaps, sequence);
	}
}

static void expect_gaps(unsigned count, const char *beginning, const char *end)
{
	struct recording_gaps gaps;
	char *text = NULL;
	size_t length = 0;
	FILE *to = open_memstream(&text, &length);

	assert_non_null(to);
	add_gaps(&gaps, count);
	assert_int_equal(gaps.count, count);
	assert_int_equal(gaps.sequences, count + (count + 1) / 2);
	recording_gaps_print(to, &gaps);
	assert_int_equal(fclose(to), 0);
	assert_int_equal(strncmp(text, beginning, strlen(beginning)), 0);
	assert_true(length >= strlen(end));
	assert_string_equal(text + length - strlen(end), end);
	free(text);
}

/* The first 64 gaps are listed, all are counted. */
static void test_gaps(void **state)
{
	(void)state;
	expect_gaps(0, "", "");
	expect_gaps(1, "missing: 11 to 12\n", "\n");
	expect_gaps(2, "missing: 11 to 12, 14\n", "\n");
	expect_gaps(64, "missing: 11 to 12, 14, ", ", 169\n");
	expect_gaps(65, "missing: 11 to 12, 14, ", ", 169, and 1 more range\n");
	expect_gaps(66, "missing: 11 to 12, 14, ", ", 169, and 2 more ranges\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header),       cmocka_unit_test(test_header_ends),
		cmocka_unit_test(test_frame),        cmocka_unit_test(test_summary),
		cmocka_unit_test(test_trailer),      cmocka_unit_test(test_digests),
		cmocka_unit_test(test_wrong_index),  cmocka_unit_test(test_wrong_heads),
		cmocka_unit_test(test_no_frames),    cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_header_bytes),
	};

	return cmocka_run_group_tests_name("recording format", tests, NULL, NULL);
}
