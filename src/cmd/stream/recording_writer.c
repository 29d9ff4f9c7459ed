/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/recording_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cmd/common/cli.h"

/* Bytes of the index that are written at a time. */
#define INDEX_PIECE (64u << 10)

/* Writes all bytes at an offset. Returns 0 or a negative errno. */
static int write_at(int fd, struct iovec *vector, int count, uint64_t offset)
{
	while (count) {
		ssize_t written = pwritev(fd, vector, count, (off_t)offset);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return written < 0 ? -errno : -EIO;
		offset += (uint64_t)written;
		while (count && (size_t)written >= vector->iov_len) {
			written -= (ssize_t)vector->iov_len;
			vector++;
			count--;
		}
		if (count) {
			vector->iov_base = (char *)vector->iov_base + written;
			vector->iov_len -= (size_t)written;
		}
	}
	return 0;
}

static int open_target(const char *path, bool force, bool *created, struct pl_error *error)
{
	struct stat status;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	*created = fd >= 0;
	if (fd < 0 && errno == EEXIST && !force)
		return cli_fail(error, -EEXIST, "FILE-EXISTS", path, "choose another file, or replace it with --force",
				"the file exists");
	if (fd < 0 && errno == EEXIST)
		fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return cli_fail_new_path(error, -errno, "open", path);
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		return fd;
	close(fd);
	return cli_fail(error, -EINVAL, "FILE-KIND", path, "name a regular file", "a recording is a regular file");
}

int recording_create(struct recording_writer *writer, const char *path, bool force,
		     const struct recording_header *header, struct pl_error *error)
{
	uint8_t page[RECORDING_PAGE];
	struct iovec vector = { page, sizeof(page) };
	bool created;
	int rc;

	memset(writer, 0, sizeof(*writer));
	writer->path = path;
	writer->fd = open_target(path, force, &created, error);
	if (writer->fd < 0)
		return writer->fd;
	recording_header_encode(header, page);
	rc = ftruncate(writer->fd, 0) < 0 ? -errno : write_at(writer->fd, &vector, 1, 0);
	writer->end = RECORDING_PAGE;
	if (rc == 0)
		return 0;
	close(writer->fd);
	writer->fd = -1;
	if (created)
		unlink(path);
	return cli_fail_errno(error, rc, "write", path);
}

int recording_append(struct recording_writer *writer, const struct recording_frame *given, const void *payload,
		     struct pl_error *error)
{
	struct recording_frame frame = *given;
	uint8_t page[RECORDING_PAGE];
	struct iovec vector[] = { { page, sizeof(page) }, { (void *)(uintptr_t)payload, frame.length } };
	int rc = recording_index_reserve(&writer->index);

	if (rc < 0)
		return cli_fail_errno(error, rc, "realloc", writer->path);
	frame.digest = XXH3_64bits(payload, frame.length);
	recording_frame_encode(&frame, page);
	rc = write_at(writer->fd, vector, frame.length ? 2 : 1, writer->end);
	if (rc < 0) {
		if (ftruncate(writer->fd, (off_t)writer->end) < 0)
			cli_warn("%s cannot be shortened: %s", writer->path, strerror(errno));
		return cli_fail(error, rc, "FILE-WRITE", writer->path, "free space, or record to another disk",
				"the frame %llu cannot be written: %s", (unsigned long long)frame.sequence,
				strerror(-rc));
	}
	recording_index_add(&writer->index, &(struct recording_entry){ frame.sequence, writer->end });
	writer->end += recording_frame_bytes(frame.length);
	writer->bytes += frame.length;
	return 0;
}

/* -- index ------------------------------------------------------------------------------------------- */

struct index_output {
	struct recording_writer *writer;
	XXH3_state_t *state;
	uint64_t offset;
};

static int index_write(struct index_output *output, void *bytes, size_t length)
{
	struct iovec vector = { bytes, length };
	int rc = write_at(output->writer->fd, &vector, 1, output->offset);

	XXH3_64bits_update(output->state, bytes, length);
	output->offset += length;
	return rc;
}

static int write_entries(struct index_output *output)
{
	const struct recording_index *index = &output->writer->index;
	struct recording_index_position position = { 0 };
	const struct recording_entry *entry;
	uint8_t piece[INDEX_PIECE];
	size_t length = 0;
	int rc = 0;

	while (rc == 0 && (entry = recording_index_next(index, &position))) {
		recording_entry_encode(entry, piece + length);
		length += RECORDING_ENTRY;
		if (length < sizeof(piece))
			continue;
		rc = index_write(output, piece, length);
		length = 0;
	}
	return rc == 0 && length ? index_write(output, piece, length) : rc;
}

/* Writes summary, entries and trailer. `output` has the state of a digest. */
static int write_index(struct recording_writer *writer, struct index_output *output, enum recording_end reason,
		       const struct pl_accounts *accounts)
{
	struct recording_summary summary = {
		.frames = writer->index.count, .end = writer->end, .reason = reason, .accounts = *accounts
	};
	uint8_t page[RECORDING_PAGE], bytes[RECORDING_TRAILER];
	struct recording_trailer trailer = { .index = writer->end };
	struct iovec vector = { bytes, sizeof(bytes) };
	int rc;

	XXH3_64bits_reset(output->state);
	recording_summary_encode(&summary, page);
	rc = index_write(output, page, sizeof(page));
	if (rc == 0)
		rc = write_entries(output);
	if (rc < 0)
		return rc;
	trailer.bytes = output->offset - writer->end;
	trailer.digest = XXH3_64bits_digest(output->state);
	recording_trailer_encode(&trailer, bytes);
	return write_at(writer->fd, &vector, 1, output->offset);
}

/* Names the call.  The index comes last, but the kernel may tell later of frames that it could not write. */
static int fail_finish(const char *path, const char *call, int code, bool index, struct pl_error *error)
{
	if (index)
		cli_fail(error, code, "FILE-WRITE", path, "free space; readers rebuild an index that is missing",
			 "the index cannot be written: %s", strerror(-code));
	else
		cli_fail(error, code, "FILE-WRITE", path,
			 "check the disk; `peerlane replay --check` tells which frames are whole",
			 "the disk may lack frames, or the index: %s", strerror(-code));
	snprintf(error->call, sizeof(error->call), "%s", call);
	return code;
}

int recording_finish(struct recording_writer *writer, enum recording_end reason, const struct pl_accounts *accounts,
		     struct pl_error *error)
{
	struct index_output output = { writer, XXH3_createState(), writer->end };
	const char *call = output.state ? "pwritev" : "malloc";
	int rc = output.state ? write_index(writer, &output, reason, accounts) : -ENOMEM;
	bool index = rc < 0;

	XXH3_freeState(output.state);
	if (rc < 0 && ftruncate(writer->fd, (off_t)writer->end) < 0)
		cli_warn("%s cannot be shortened: %s", writer->path, strerror(errno));
	/* Network file systems tell of a full disk only now. */
	if (fsync(writer->fd) < 0 && rc == 0) {
		rc = -errno;
		call = "fsync";
	}
	if (close(writer->fd) < 0 && rc == 0) {
		rc = -errno;
		call = "close";
	}
	writer->fd = -1;
	recording_index_free(&writer->index);
	return rc < 0 ? fail_finish(writer->path, call, rc, index, error) : 0;
}
