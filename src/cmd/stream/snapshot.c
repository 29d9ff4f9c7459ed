/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/snapshot.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/cli.h"
#include "cmd/common/condition.h"
#include "cmd/common/output.h"
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

/* Fails at the start of the command, not with the first frame. */
static int snapshot_check_place(const char *path, struct pl_error *error)
{
	char *folder = cli_folder_of(path);
	struct stat status;
	int rc = 0;

	if (lstat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
		free(folder);
		return cli_fail(error, -EINVAL, "FILE-KIND", path, "name a regular file",
				"each snapshot is a new file, which replaces no pipe, device or folder");
	}
	if (!folder)
		return cli_fail_errno(error, -ENOMEM, "malloc", path);
	if (access(folder, W_OK | X_OK) < 0)
		rc = cli_fail_errno(error, -errno, "access", folder);
	free(folder);
	return rc;
}

/* Opens the file beside the old one.  A pipe, device or folder there stays, and gets nothing. */
static int snapshot_open_part(const char *name, struct pl_error *error)
{
	/* Without O_NONBLOCK, opening a pipe waits for its reader. */
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
	struct stat status;

	if (fd < 0 && errno != ENXIO && errno != EISDIR)
		return cli_fail_new_path(error, -errno, "open", name);
	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		return fd;
	if (fd >= 0)
		close(fd);
	return cli_fail(error, -EINVAL, "FILE-KIND", name, "remove it, or name another file",
			"a snapshot is written there first, and it is no regular file");
}

/* Writes the frame into a new file beside the old one, and replaces that. */
static int replace_snapshot(const char *path, const struct pl_frame_info *info, struct pl_error *error)
{
	const char *call = "write";
	char *name = NULL;
	int fd, rc;

	if (asprintf(&name, "%s.part", path) < 0)
		return cli_fail_errno(error, -ENOMEM, "malloc", path);
	fd = snapshot_open_part(name, error);
	if (fd < 0) {
		free(name);
		return fd;
	}
	rc = snapshot_is_png(path) ? write_png(fd, info) : write_npy(fd, info, error);
	if (close(fd) < 0 && rc == 0) {
		rc = -errno;
		call = "close";
	}
	if (rc == 0 && rename(name, path) < 0) {
		rc = -errno;
		call = "rename";
	}
	if (rc < 0) {
		unlink(name);
		cli_fail_errno(error, rc, call, path);
	}
	free(name);
	return rc;
}

/* -- the thread ------------------------------------------------------------------------------------------------ */

static int write_frame(struct snapshot *snapshot, const struct pl_stream_frame *frame, struct pl_error *error)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	int rc = frame_bytes_read(&snapshot->bytes, frame, &info, error);

	if (rc == 0 && !info.layout.bits && info.length < pl_layout_bytes(&snapshot->layout))
		rc = cli_fail(error, -EPROTO, "FRAME-SHORT", snapshot->path, "ask the author of the publisher",
			      "frame %llu has %llu bytes, fewer than its layout", (unsigned long long)info.sequence,
			      (unsigned long long)info.length);
	if (rc == 0)
		rc = snapshot_check(snapshot, &info.layout, error);
	return rc < 0 ? rc : replace_snapshot(snapshot->path, &info, error);
}

/* Waits until a frame is to be written.  Returns false at the end.  snapshot->lock is held. */
static bool await_frame(struct snapshot *snapshot)
{
	while (!snapshot->stop) {
		if (snapshot->frame && (snapshot->flush || cli_now() >= snapshot->next))
			return true;
		if (snapshot->frame)
			cli_condition_wait(&snapshot->changed, &snapshot->lock, snapshot->next);
		else
			pthread_cond_wait(&snapshot->changed, &snapshot->lock);
	}
	return false;
}

static void *write_snapshots(void *argument)
{
	struct snapshot *snapshot = argument;
	struct pl_error error;
	int rc;

	pthread_mutex_lock(&snapshot->lock);
	while (await_frame(snapshot)) {
		struct pl_stream_frame *frame = snapshot->frame;

		snapshot->frame = NULL;
		snapshot->writing = true;
		snapshot->next = cli_now() + SNAPSHOT_INTERVAL;
		pthread_mutex_unlock(&snapshot->lock);
		rc = write_frame(snapshot, frame, &error);
		pl_frame_release(frame);
		pthread_mutex_lock(&snapshot->lock);
		snapshot->writing = false;
		snapshot->written += rc == 0;
		if (rc < 0 && !snapshot->rc) {
			snapshot->rc = rc;
			snapshot->error = error;
		}
		pthread_cond_broadcast(&snapshot->changed);
	}
	pthread_mutex_unlock(&snapshot->lock);
	return NULL;
}

/* -- the program's thread -------------------------------------------------------------------------------------- */

int snapshot_open(struct snapshot *snapshot, const char *path, const struct pl_layout *layout, const char *memory,
		  struct pl_error *error)
{
	int rc;

	snapshot->path = path;
	snapshot->layout = *layout;
	rc = layout->bits ? snapshot_check(snapshot, layout, error) : 0;
	if (rc == 0)
		rc = snapshot_check_place(path, error);
	if (rc < 0)
		return rc;
	frame_bytes_begin(&snapshot->bytes, memory);
	pthread_mutex_init(&snapshot->lock, NULL);
	cli_condition_init(&snapshot->changed);
	rc = pthread_create(&snapshot->thread, NULL, write_snapshots, snapshot);
	snapshot->running = rc == 0;
	return rc ? cli_fail_errno(error, -rc, "pthread_create", path) : 0;
}

/* snapshot->lock is held. */
static int snapshot_failure(const struct snapshot *snapshot, struct pl_error *error)
{
	if (snapshot->rc < 0)
		*error = snapshot->error;
	return snapshot->rc;
}

int snapshot_take(struct snapshot *snapshot, struct pl_stream_frame *frame, struct pl_error *error)
{
	struct pl_stream_frame *before;
	int rc;

	pthread_mutex_lock(&snapshot->lock);
	before = snapshot->frame;
	snapshot->frame = frame;
	rc = snapshot_failure(snapshot, error);
	pthread_cond_broadcast(&snapshot->changed);
	pthread_mutex_unlock(&snapshot->lock);
	pl_frame_release(before);
	return rc;
}

int snapshot_look(struct snapshot *snapshot, bool *pending, struct pl_error *error)
{
	int rc;

	*pending = false;
	if (!snapshot->running)
		return 0;
	pthread_mutex_lock(&snapshot->lock);
	*pending = snapshot->frame || snapshot->writing;
	rc = snapshot_failure(snapshot, error);
	pthread_mutex_unlock(&snapshot->lock);
	return rc;
}

int snapshot_flush(struct snapshot *snapshot, struct pl_error *error)
{
	int rc;

	if (!snapshot->running)
		return 0;
	pthread_mutex_lock(&snapshot->lock);
	snapshot->flush = true;
	pthread_cond_broadcast(&snapshot->changed);
	while (snapshot->frame || snapshot->writing)
		pthread_cond_wait(&snapshot->changed, &snapshot->lock);
	snapshot->flush = false;
	rc = snapshot_failure(snapshot, error);
	pthread_mutex_unlock(&snapshot->lock);
	return rc;
}

void snapshot_close(struct snapshot *snapshot)
{
	if (!snapshot->running)
		return;
	pthread_mutex_lock(&snapshot->lock);
	snapshot->stop = true;
	pthread_cond_broadcast(&snapshot->changed);
	pthread_mutex_unlock(&snapshot->lock);
	pthread_join(snapshot->thread, NULL);
	pl_frame_release(snapshot->frame);
	frame_bytes_free(&snapshot->bytes);
	pthread_cond_destroy(&snapshot->changed);
	pthread_mutex_destroy(&snapshot->lock);
	snapshot->running = false;
}
