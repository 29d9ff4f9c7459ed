/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input: a file of a recording. Digests of pages and of the trailer are put right first, or no change would get past
 * them. Whatever the file has, the reader stays within its limits, and what it accepts is what an encoder writes.
 */
#include "fuzz.h"

#include <endian.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cmd/stream/recording_reader.h"
#include "stream/ring.h"

#define INPUT_MAX (64u << 10)

static void put_digest(uint8_t *bytes, size_t length)
{
	uint64_t digest = htole64(XXH3_64bits(bytes, length - 8));

	memcpy(bytes + length - 8, &digest, sizeof(digest));
}

/* Puts the digests right: of each page that begins as one of a recording, of the trailer, and of the index. */
static void repair_digests(uint8_t *bytes, size_t size)
{
	for (size_t at = 0; at + RECORDING_PAGE <= size; at += RECORDING_PAGE)
		if (!memcmp(bytes + at, "PLRECORD", 8) || !memcmp(bytes + at, "PLFRAME1", 8) ||
		    !memcmp(bytes + at, "PLINDEX1", 8))
			put_digest(bytes + at, RECORDING_PAGE);
	if (size >= RECORDING_TRAILER) {
		uint8_t *trailer = bytes + size - RECORDING_TRAILER;
		uint64_t index, length, digest;

		memcpy(&index, trailer + 8, sizeof(index));
		memcpy(&length, trailer + 16, sizeof(length));
		index = le64toh(index);
		length = le64toh(length);
		if (index <= size && length <= size - index) {
			digest = htole64(XXH3_64bits(bytes + index, length));
			memcpy(trailer + 24, &digest, sizeof(digest));
		}
		put_digest(trailer, RECORDING_TRAILER);
	}
}

static void read_all(struct recording_reader *reader, size_t size)
{
	uint8_t again[RECORDING_PAGE];
	static uint8_t payload[INPUT_MAX];
	struct recording_frame frame;
	struct recording_entry entry;
	struct pl_error error;
	uint64_t count = 0, next = 0;

	REQUIRE(reader->header.slot_bytes >= 1 && reader->header.slot_bytes <= PL_RING_SLOT_MAX);
	REQUIRE(reader->summary.frames <= size / RECORDING_PAGE);
	while (recording_next(reader, &frame, &error) == 1) {
		REQUIRE(frame.sequence >= next && frame.length <= reader->header.slot_bytes && frame.length <= size);
		REQUIRE(frame.metadata_length <= reader->header.metadata_bytes);
		recording_frame_encode(&frame, again);
		REQUIRE(memcmp(again, reader->page, sizeof(again)) == 0);
		REQUIRE(recording_read(reader, &frame, payload, &error) ==
			recording_read(reader, &frame, NULL, &error));
		next = frame.sequence + 1;
		count++;
	}
	REQUIRE(reader->indexed || count == reader->summary.frames);
	if (reader->indexed && reader->summary.frames)
		REQUIRE(recording_entry(reader, reader->summary.frames - 1, &entry, &error) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct recording_reader reader;
	struct pl_error error;
	uint8_t *bytes;
	int fd;

	if (size > INPUT_MAX)
		return 0;
	fd = memfd_create("recording", MFD_CLOEXEC);
	bytes = malloc(size + 1);
	REQUIRE(fd >= 0 && bytes);
	memcpy(bytes, data, size);
	repair_digests(bytes, size);
	REQUIRE(write(fd, bytes, size) == (ssize_t)size);
	if (recording_open_fd(&reader, fd, "fuzz", &error) == 0) {
		read_all(&reader, size);
		recording_close(&reader);
	} else {
		REQUIRE(error.code == -EBADMSG);
	}
	free(bytes);
	return 0;
}
