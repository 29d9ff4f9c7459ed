/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/snapshot.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/cli.h"
#include "cmd/stream/npy.h"
#include "cmd/stream/png.h"
#include "cmd/stream/write_file.h"
#include "stream/ring.h"

static bool snapshot_is_png(const char *path)
{
	return stream_name_ends(path, ".png");
}

bool snapshot_path_valid(const char *path)
{
	return snapshot_is_png(path) || stream_name_ends(path, ".npy");
}

/* Fills the header of an array that is the frame. */
static int snapshot_npy_header(const struct pl_layout *layout, char header[NPY_HEADER_WRITTEN], struct pl_error *error)
{
	struct pl_layout row = *layout;
	uint64_t first = 1;

	if (layout->dimensions) {
		first = layout->shape[0];
		memmove(row.shape, row.shape + 1, sizeof(row.shape) - sizeof(row.shape[0]));
		row.shape[--row.dimensions] = 0;
	}
	return npy_format(&row, first, header, error);
}

int snapshot_check(const struct snapshot *snapshot, const struct pl_layout *layout, struct pl_error *error)
{
	char header[NPY_HEADER_WRITTEN];

	if (!snapshot_is_png(snapshot->path))
		return snapshot_npy_header(layout, header, error);
	if (png_supports(layout))
		return 0;
	return cli_fail(error, -ENOTSUP, "PNG-LAYOUT", snapshot->path, "give the file a name that ends in .npy",
			"a PNG has two dimensions of u8 or u16, or height x width x 3 of u8");
}

static int write_npy(int fd, const struct pl_frame_info *info, struct pl_error *error)
{
	char header[NPY_HEADER_WRITTEN];
	int rc = snapshot_npy_header(&info->layout, header, error);

	if (rc == 0)
		rc = stream_write_file(fd, header, sizeof(header));
	return rc == 0 ? stream_write_file(fd, info->data, pl_layout_bytes(&info->layout)) : rc;
}

static int write_png(int fd, const struct pl_frame_info *info)
{
	size_t size;
	void *png = png_encode(&info->layout, info->data, &size);
	int rc = png ? stream_write_file(fd, png, size) : -ENOMEM;

	free(png);
	return rc;
}

/* Writes the frame into a new file beside the old one, and replaces that. */
static int replace_snapshot(const char *path, const struct pl_frame_info *info, struct pl_error *error)
{
	char *name = NULL;
	int fd, rc;

	if (asprintf(&name, "%s.part", path) < 0)
		return cli_fail_errno(error, -ENOMEM, "malloc", path);
	fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd < 0) {
		rc = cli_fail_errno(error, -errno, "open", name);
		free(name);
		return rc;
	}
	rc = snapshot_is_png(path) ? write_png(fd, info) : write_npy(fd, info, error);
	if (close(fd) < 0 && rc == 0)
		rc = -errno;
	if (rc == 0 && rename(name, path) < 0)
		rc = -errno;
	if (rc < 0) {
		unlink(name);
		cli_fail_errno(error, rc, "write", path);
	}
	free(name);
	return rc;
}

int snapshot_write(struct snapshot *snapshot, bool last, struct pl_error *error)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	uint64_t now = cli_now();
	int rc;

	if (!snapshot->frame || (!last && now < snapshot->next))
		return 0;
	rc = frame_bytes_read(snapshot->bytes, snapshot->frame, &info, error);
	if (rc == 0 && !info.layout.bits && info.length < pl_layout_bytes(&snapshot->layout))
		rc = cli_fail(error, -EPROTO, "FRAME-SHORT", snapshot->path, "ask the author of the publisher",
			      "frame %llu has %llu bytes, fewer than its layout", (unsigned long long)info.sequence,
			      (unsigned long long)info.length);
	if (rc == 0)
		rc = snapshot_check(snapshot, &info.layout, error);
	if (rc == 0)
		rc = replace_snapshot(snapshot->path, &info, error);
	pl_frame_release(snapshot->frame);
	snapshot->frame = NULL;
	snapshot->next = now + SNAPSHOT_INTERVAL;
	snapshot->written += rc == 0;
	return rc;
}

int snapshot_take(struct snapshot *snapshot, struct pl_stream_frame *frame, struct pl_error *error)
{
	pl_frame_release(snapshot->frame);
	snapshot->frame = frame;
	return snapshot_write(snapshot, false, error);
}
