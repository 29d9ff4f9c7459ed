/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/frame_sink.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "cmd/stream/npy.h"
#include "cmd/stream/write_file.h"
#include "stream/ring.h"

/* Time between two headers of a .npy file while frames wait. */
#define HEADER_INTERVAL CLI_NS_PER_S

int frame_sink_open(struct frame_sink *sink, const char *path, const struct pl_layout *layout, struct pl_error *error)
{
	bool standard = !strcmp(path, "-");
	char header[NPY_HEADER_WRITTEN];
	struct stat status;

	*sink = (struct frame_sink){ .path = path, .fd = -1, .npy = stream_name_ends(path, ".npy"), .layout = *layout };
	sink->begun = sink->npy && layout->bits;
	if (sink->begun && npy_format(layout, 0, header, error) < 0)
		return error->code;
	if (standard || cli_path_is_special(path))
		sink->fd = cli_open_stream(standard ? "/dev/stdout" : path);
	else
		sink->fd = open(path,
				O_WRONLY | O_CREAT | O_NOCTTY | O_NONBLOCK | O_CLOEXEC |
					(sink->npy && !sink->begun ? 0 : O_TRUNC),
				0666);
	if (sink->fd < 0 && errno == ENXIO)
		return cli_fail(error, -ENXIO, "NO-READER", path, "start the reader of the pipe first",
				"no process reads this pipe");
	if (sink->fd < 0 || fstat(sink->fd, &status) < 0)
		return cli_fail_new_path(error, -errno, "open", path);
	sink->regular = S_ISREG(status.st_mode);
	if (!sink->npy || sink->regular)
		return 0;
	close(sink->fd);
	sink->fd = -1;
	return cli_fail(error, -ESPIPE, "NPY-PIPE", path, "write raw bytes, or a file",
			"the header of a .npy file is completed at its end, which a pipe or device does not allow");
}

/* Returns -ENOTSUP if a .npy file cannot have the frame behind those that it has. */
static int frame_sink_check(const struct frame_sink *sink, const struct pl_frame_info *frame, struct pl_error *error)
{
	const struct pl_layout *layout = sink->begun ? &sink->layout : &frame->layout;
	char header[NPY_HEADER_WRITTEN];

	/* The first frame of a stream without layout can have one. */
	if (!sink->begun && npy_format(layout, 0, header, error) < 0)
		return error->code;
	if (!memcmp(layout, &frame->layout, sizeof(*layout)) && frame->length == pl_layout_bytes(layout))
		return 0;
	return cli_fail(error, -ENOTSUP, "NPY-LAYOUT", sink->path,
			"write raw bytes: give the file a name that does not end in .npy",
			"frame %llu has another layout or length, and a .npy file has one layout",
			(unsigned long long)frame->sequence);
}

static int frame_sink_write_header(struct frame_sink *sink, struct pl_error *error)
{
	char header[NPY_HEADER_WRITTEN];
	int rc = npy_format(&sink->layout, sink->frames, header, error);

	if (rc == 0 && pwrite(sink->fd, header, sizeof(header), 0) != (ssize_t)sizeof(header))
		rc = cli_fail_errno(error, errno ? -errno : -EIO, "write", sink->path);
	sink->counted = sink->frames;
	sink->header_time = cli_now();
	return rc;
}

int frame_sink_update(struct frame_sink *sink, struct pl_error *error)
{
	int rc = sink->npy && sink->counted < sink->frames ? frame_sink_write_header(sink, error) : 0;

	sink->failed |= rc < 0;
	return rc;
}

/* Writes the header before the first frame, in place of what the file had. */
static int frame_sink_begin(struct frame_sink *sink, const struct pl_frame_info *frame, struct pl_error *error)
{
	int rc;

	sink->layout = frame->layout;
	rc = frame_sink_write_header(sink, error);
	if (rc == 0 &&
	    (ftruncate(sink->fd, NPY_HEADER_WRITTEN) < 0 || lseek(sink->fd, NPY_HEADER_WRITTEN, SEEK_SET) < 0))
		rc = cli_fail_errno(error, -errno, "truncate", sink->path);
	sink->begun = sink->begun || rc == 0;
	return rc;
}

/*
 * Removes the part of a frame, of this number of bytes, that was just written to a file.  The file keeps the part if
 * other bytes follow it: those of another writer, or those that were there before.  Standard output can begin anywhere
 * in its file.
 */
static void frame_sink_cut(const struct frame_sink *sink, uint64_t part)
{
	off_t end = lseek(sink->fd, 0, SEEK_CUR);
	struct stat status;

	if (part == 0 || end < (off_t)part || fstat(sink->fd, &status) < 0 || status.st_size != end)
		return;
	if (!ftruncate(sink->fd, end - (off_t)part))
		lseek(sink->fd, end - (off_t)part, SEEK_SET);
}

/*
 * Fails after the write of a frame has ended early, with these bytes in a pipe or device.  A reader there finds no frame after a
 * part of one, so a signal is a failure then.
 */
static int fail_frame_write(const struct frame_sink *sink, const struct pl_frame_info *frame, uint64_t part, int rc,
			    struct pl_error *error)
{
	if (rc != -EINTR || part == 0)
		return cli_fail_errno(error, rc, "write", sink->path);
	return cli_fail(error, -ECANCELED, "FRAME-CUT", sink->path, "use --count to end behind a frame",
			"a signal ended the command after %llu of %llu bytes of frame %llu", (unsigned long long)part,
			(unsigned long long)frame->length, (unsigned long long)frame->sequence);
}

int frame_sink_write(struct frame_sink *sink, const struct pl_frame_info *frame, struct pl_error *error)
{
	int rc = sink->npy ? frame_sink_check(sink, frame, error) : 0;
	uint64_t part = 0;

	if (rc == 0 && sink->npy && sink->frames == 0)
		rc = frame_sink_begin(sink, frame, error);
	if (rc < 0) {
		sink->refused = !sink->begun;
		return rc;
	}
	rc = sink->regular ? stream_write_counted(sink->fd, frame->data, frame->length, &part)
			   : cli_write_stream(sink->fd, frame->data, frame->length, &part);
	if (rc < 0) {
		rc = fail_frame_write(sink, frame, part, rc, error);
		sink->failed = rc != -EINTR;
		frame_sink_cut(sink, part);
		return rc;
	}
	sink->frames++;
	sink->bytes += frame->length;
	return sink->npy && cli_now() - sink->header_time >= HEADER_INTERVAL ? frame_sink_update(sink, error) : 0;
}

int frame_sink_close(struct frame_sink *sink, struct pl_error *error)
{
	int rc = 0;

	if (!sink->path || sink->fd < 0)
		return 0;
	if (sink->npy && sink->begun)
		rc = frame_sink_write_header(sink, error);
	else if (sink->npy && !sink->refused && ftruncate(sink->fd, 0) < 0)
		rc = cli_fail_errno(error, -errno, "truncate", sink->path);
	if (close(sink->fd) < 0 && rc == 0)
		rc = cli_fail_errno(error, -errno, "close", sink->path);
	sink->fd = -1;
	return rc;
}
