/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/recording_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cmd/common/cli.h"

/* Bytes that are read and digested at a time: they stay in the processor's cache. */
#define READ_PIECE (64u << 10)

/* Reads all bytes at an offset. Returns 0; -EBADMSG if the file is shorter; or a negative errno. */
static int read_at(int fd, void *bytes, size_t length, uint64_t offset)
{
	while (length) {
		ssize_t got = pread(fd, bytes, length, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EBADMSG;
		bytes = (char *)bytes + got;
		length -= (size_t)got;
		offset += (uint64_t)got;
	}
	return 0;
}

/* Digests a range of the file. `buffer` receives its bytes; NULL: they are dropped. Returns as read_at(). */
static int digest_range(int fd, uint64_t offset, uint64_t length, uint8_t *buffer, uint64_t *digest)
{
	XXH3_state_t *state = XXH3_createState();
	uint8_t piece[READ_PIECE];
	int rc = 0;

	if (!state)
		return -ENOMEM;
	XXH3_64bits_reset(state);
	while (length && rc == 0) {
		size_t part = (size_t)CLI_MIN(length, READ_PIECE);
		uint8_t *to = buffer ? buffer : piece;

		rc = read_at(fd, to, part, offset);
		if (rc == 0)
			XXH3_64bits_update(state, to, part);
		if (buffer)
			buffer += part;
		offset += part;
		length -= part;
	}
	*digest = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return rc;
}

/* -- index ------------------------------------------------------------------------------------------- */

/* Reads the index. Returns false if the file has none that is whole. */
static bool read_index(struct recording_reader *reader, uint64_t size)
{
	uint8_t bytes[RECORDING_TRAILER], page[RECORDING_PAGE];
	struct recording_trailer trailer;
	struct recording_summary *summary = &reader->summary;
	uint64_t digest;

	if (size < 2 * RECORDING_PAGE + RECORDING_TRAILER ||
	    read_at(reader->fd, bytes, sizeof(bytes), size - sizeof(bytes)) < 0 ||
	    recording_trailer_decode(bytes, size, &trailer) < 0 ||
	    read_at(reader->fd, page, sizeof(page), trailer.index) < 0 || recording_summary_decode(page, summary) < 0)
		return false;
	/* Each frame has at least one page. */
	return summary->end == trailer.index && summary->frames <= trailer.index / RECORDING_PAGE - 1 &&
	       trailer.bytes == RECORDING_PAGE + summary->frames * RECORDING_ENTRY &&
	       digest_range(reader->fd, trailer.index, trailer.bytes, NULL, &digest) == 0 && digest == trailer.digest;
}

/* Finds the end of the whole frames by their heads, and by the payload of the last one. */
static int scan_frames(struct recording_reader *reader, struct pl_error *error)
{
	struct recording_frame frame, last = { 0 };
	uint64_t begin = 0;
	int rc;

	do {
		uint64_t offset = reader->at;

		rc = recording_next(reader, &frame, error);
		if (rc == 1) {
			begin = offset;
			last = frame;
		}
	} while (rc == 1);
	if (rc < 0 && rc != -EBADMSG)
		return rc;
	reader->summary.end = reader->at;
	reader->summary.frames = reader->number;
	if (begin && recording_read(reader, &last, NULL, error) < 0) {
		reader->summary.end = begin;
		reader->summary.frames--;
	}
	return 0;
}

int recording_open_fd(struct recording_reader *reader, int fd, const char *path, struct pl_error *error)
{
	struct stat status;
	uint64_t size;
	int rc;

	memset(reader, 0, sizeof(*reader));
	reader->fd = fd;
	reader->path = path;
	rc = fstat(fd, &status) < 0 ? -errno : S_ISREG(status.st_mode) ? 0 : -EBADMSG;
	if (rc == 0)
		rc = read_at(fd, reader->page, sizeof(reader->page), 0);
	if (rc == 0 && recording_header_decode(reader->page, &reader->header) < 0)
		rc = -EBADMSG;
	if (rc == -EBADMSG)
		cli_fail(error, rc, "RECORDING", path, "name a file that `peerlane record` wrote",
			 "the file is not a recording of this version");
	else if (rc < 0)
		cli_fail_errno(error, rc, "read", path);
	if (rc == 0) {
		size = (uint64_t)status.st_size;
		recording_rewind(reader);
		reader->indexed = read_index(reader, size);
		if (!reader->indexed) {
			reader->summary = (struct recording_summary){ .end = size };
			rc = scan_frames(reader, error);
			reader->rest = size - CLI_MIN(size, reader->summary.end);
		}
		recording_rewind(reader);
	}
	if (rc < 0)
		recording_close(reader);
	return rc;
}

int recording_open(struct recording_reader *reader, const char *path, struct pl_error *error)
{
	/* Without O_NONBLOCK, opening a pipe waits. */
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", path);
	return recording_open_fd(reader, fd, path, error);
}

void recording_close(struct recording_reader *reader)
{
	close(reader->fd);
	reader->fd = -1;
}

/* -- frames ------------------------------------------------------------------------------------------ */

void recording_rewind(struct recording_reader *reader)
{
	reader->at = RECORDING_PAGE;
	reader->number = reader->next_sequence = 0;
}

int recording_next(struct recording_reader *reader, struct recording_frame *frame, struct pl_error *error)
{
	uint64_t left = reader->summary.end - CLI_MIN(reader->at, reader->summary.end);
	int rc = 0;

	/* The payload of the last frame ends with the file, or is followed by zeros. */
	if (left == 0)
		return 0;
	rc = left < RECORDING_PAGE ? -EBADMSG : read_at(reader->fd, reader->page, sizeof(reader->page), reader->at);
	if (rc == 0 && (recording_frame_decode(reader->page, &reader->header, frame) < 0 ||
			frame->length > left - RECORDING_PAGE || frame->sequence < reader->next_sequence))
		rc = -EBADMSG;
	if (rc == -EBADMSG)
		return cli_fail(error, rc, "RECORDING-DAMAGED", reader->path, "replay what is before, or record again",
				"the head of the frame at byte %llu is damaged", (unsigned long long)reader->at);
	if (rc < 0)
		return cli_fail_errno(error, rc, "read", reader->path);
	reader->payload = reader->at + RECORDING_PAGE;
	reader->at += recording_frame_bytes(frame->length);
	reader->next_sequence = frame->sequence + 1;
	reader->number++;
	return 1;
}

int recording_read(const struct recording_reader *reader, const struct recording_frame *frame, void *buffer,
		   struct pl_error *error)
{
	uint64_t digest;
	int rc = digest_range(reader->fd, reader->payload, frame->length, buffer, &digest);

	if (rc == 0 && digest != frame->digest)
		rc = -EBADMSG;
	if (rc == -EBADMSG)
		return cli_fail(error, rc, "RECORDING-DAMAGED", reader->path, "look for errors of the disk: dmesg",
				"the payload of frame %llu is damaged", (unsigned long long)frame->sequence);
	return rc < 0 ? cli_fail_errno(error, rc, "read", reader->path) : 0;
}

int recording_entry(const struct recording_reader *reader, uint64_t number, struct recording_entry *entry,
		    struct pl_error *error)
{
	uint64_t offset = reader->summary.end + RECORDING_PAGE + number * RECORDING_ENTRY;
	uint8_t bytes[RECORDING_ENTRY];
	int rc = read_at(reader->fd, bytes, sizeof(bytes), offset);

	if (rc < 0)
		return cli_fail_errno(error, rc, "read", reader->path);
	recording_entry_decode(bytes, entry);
	return 0;
}
