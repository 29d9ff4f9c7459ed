/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/frame_source.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/cli.h"
#include "cmd/stream/layout_text.h"
#include "cmd/stream/npy.h"
#include "cmd/stream/pattern.h"
#include "cmd/stream/write_file.h"
#include "stream/ring.h"

/* Most bytes of a read, between which the caller looks for signals. */
#define READ_MAX (4u << 20)

/* -- .npy files ---------------------------------------------------------------------------------------- */

/* Reads the header at the beginning of a file. */
static int read_npy_header(const struct frame_source *source, struct npy_header *header, struct pl_error *error)
{
	uint8_t preamble[NPY_PREAMBLE] = { 0 }, *bytes;
	int length, rc;

	if (pread(source->fd, preamble, sizeof(preamble), 0) < 0)
		return cli_fail_errno(error, -errno, "read", source->path);
	length = npy_header_length(preamble, source->path, error);
	if (length < 0)
		return length;
	bytes = malloc((size_t)length);
	if (!bytes)
		return cli_fail_errno(error, -ENOMEM, "malloc", source->path);
	if (pread(source->fd, bytes, (size_t)length, 0) != length)
		rc = cli_fail(error, -EINVAL, "NPY-HEADER", source->path, "copy the file again",
			      "the file ends within its header");
	else
		rc = npy_parse(bytes, (size_t)length, source->path, header, error);
	free(bytes);
	return rc;
}

static bool same_shape(const struct pl_layout *a, const struct pl_layout *b)
{
	return a->dimensions == b->dimensions && !memcmp(a->shape, b->shape, sizeof(a->shape));
}

/* Splits an array into frames: one if `wanted` has its shape, else along the first axis. */
static int split_npy_array(struct frame_source *source, const struct npy_header *header, const struct pl_layout *wanted,
			   struct pl_error *error)
{
	struct pl_layout *frame = &source->layout;
	char has[STREAM_SHAPE_MAX], type[STREAM_DTYPE_MAX];

	*frame = header->layout;
	source->left = 1;
	if (frame->dimensions && !(wanted->bits && same_shape(frame, wanted))) {
		source->left = frame->shape[0];
		memmove(frame->shape, frame->shape + 1, sizeof(frame->shape) - sizeof(frame->shape[0]));
		frame->shape[--frame->dimensions] = 0;
	}
	source->frame_bytes = pl_layout_bytes(frame);
	if (!wanted->bits || !memcmp(frame, wanted, sizeof(*frame)))
		return 0;
	return cli_fail(error, -EINVAL, "NPY-LAYOUT", source->path, "leave --dtype and --shape out",
			"the file has frames of %s %s, not of the given type and shape",
			stream_dtype_format(type, frame), stream_shape_format(has, frame));
}

static int open_npy_file(struct frame_source *source, const struct pl_layout *layout, const struct stat *status,
			 struct pl_error *error)
{
	struct npy_header header;
	int rc;

	if (!S_ISREG(status->st_mode))
		return cli_fail(error, -ESPIPE, "NPY-PIPE", source->path, "give raw frames, with --dtype and --shape",
				"a .npy file cannot be a pipe or a device");
	rc = read_npy_header(source, &header, error);
	if (rc < 0)
		return rc;
	if (header.offset + header.bytes > (uint64_t)status->st_size)
		return cli_fail(error, -EINVAL, "NPY-SHORT", source->path, "copy the file again",
				"the file has %llu bytes, and its header tells of %llu",
				(unsigned long long)status->st_size,
				(unsigned long long)(header.offset + header.bytes));
	rc = split_npy_array(source, &header, layout, error);
	if (rc == 0 && lseek(source->fd, (off_t)header.offset, SEEK_SET) < 0)
		rc = cli_fail_errno(error, -errno, "lseek", source->path);
	return rc;
}

/* -- raw frames ---------------------------------------------------------------------------------------- */

static int fail_partial_frame(const struct frame_source *source, uint64_t bytes, struct pl_error *error)
{
	return cli_fail(error, -EPROTO, "FRAME-PARTIAL", source->path,
			"check --dtype and --shape, or --frame-bytes, and that the input is complete",
			"the input ends within a frame, after %llu of %llu bytes", (unsigned long long)bytes,
			(unsigned long long)source->frame_bytes);
}

static int open_raw_frames(struct frame_source *source, const struct pl_layout *layout, uint64_t frame_bytes,
			   const struct stat *status, struct pl_error *error)
{
	uint64_t part = 0;
	off_t at;

	source->layout = *layout;
	source->frame_bytes = frame_bytes;
	if (!frame_bytes)
		return cli_fail(error, -EINVAL, "FRAME-SIZE", source->path,
				"add --dtype and --shape, such as u16 and 2048x2048, or --frame-bytes",
				"the size of a frame is not known");
	/* Standard input can begin anywhere in its file. */
	at = S_ISREG(status->st_mode) ? lseek(source->fd, 0, SEEK_CUR) : -1;
	if (at >= 0 && at < status->st_size)
		part = (uint64_t)(status->st_size - at) % frame_bytes;
	return part ? fail_partial_frame(source, part, error) : 0;
}

int frame_source_open(struct frame_source *source, const char *path, const struct pl_layout *layout,
		      uint64_t frame_bytes, struct pl_error *error)
{
	struct stat status;
	int rc;

	*source = (struct frame_source){ .path = path, .fd = -1, .left = UINT64_MAX };
	if (!path) {
		source->layout = *layout;
		source->frame_bytes = frame_bytes;
		return 0;
	}
	/* Opening a pipe does not wait for its writer; poll(2) does. */
	source->fd = !strcmp(path, "-") ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
					: open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (source->fd < 0 || fstat(source->fd, &status) < 0)
		rc = cli_fail_errno(error, -errno, "open", path);
	else if (S_ISDIR(status.st_mode))
		rc = cli_fail_errno(error, -EISDIR, "open", path);
	else if (stream_name_ends(path, ".npy"))
		rc = open_npy_file(source, layout, &status, error);
	else
		rc = open_raw_frames(source, layout, frame_bytes, &status, error);
	if (rc < 0)
		frame_source_close(source);
	return rc;
}

/* -- frames ------------------------------------------------------------------------------------------------ */

/* Reads once.  Returns the number of bytes; 0 if none is there yet; -ENODATA at the end; or a negative errno. */
static int64_t read_input(const struct frame_source *source, void *buffer, uint64_t length, struct pl_error *error)
{
	struct pollfd input = { .fd = source->fd, .events = POLLIN };
	ssize_t count;

	if (poll(&input, 1, 0) <= 0)
		return 0;
	count = read(source->fd, buffer, CLI_MIN(length, READ_MAX));
	if (count > 0)
		return count;
	if (count == 0)
		return -ENODATA;
	return errno == EAGAIN || errno == EINTR ? 0 : cli_fail_errno(error, -errno, "read", source->path);
}

int frame_source_begin(struct frame_source *source, struct pl_error *error)
{
	int64_t count;

	if (!source->path || source->filled)
		return 1;
	if (source->left == 0 || source->ended)
		return -ENODATA;
	count = read_input(source, source->ahead, CLI_MIN(source->frame_bytes, sizeof(source->ahead)), error);
	if (count == -ENODATA && source->left != UINT64_MAX)
		return fail_partial_frame(source, 0, error);
	if (count == -ENODATA)
		source->ended = true;
	if (count > 0)
		source->filled = source->ahead_bytes = (uint64_t)count;
	return count > 0 ? 1 : (int)count;
}

int frame_source_fill(struct frame_source *source, void *data, uint64_t sequence, struct pl_error *error)
{
	int64_t count = 0;

	if (!source->path) {
		pattern_fill(data, source->frame_bytes, sequence);
		return 1;
	}
	memcpy(data, source->ahead, source->ahead_bytes);
	source->ahead_bytes = 0;
	if (source->filled < source->frame_bytes) {
		count = read_input(source, (uint8_t *)data + source->filled, source->frame_bytes - source->filled,
				   error);
		if (count == -ENODATA)
			return fail_partial_frame(source, source->filled, error);
		if (count < 0)
			return (int)count;
		source->filled += (uint64_t)count;
	}
	if (source->filled < source->frame_bytes)
		return 0;
	source->filled = 0;
	source->left -= source->left != UINT64_MAX;
	return 1;
}

void frame_source_close(struct frame_source *source)
{
	if (source->fd >= 0)
		close(source->fd);
	source->fd = -1;
}
