/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/partial_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cmd/common/cli.h"
#include "cmd/transfer/partial_record.h"
#include "cmd/transfer/sigbus_guard.h"

#define ALIGNMENT 4096ull
/* Attempts to remove files of others under the name of the temporary file. */
#define REMOVALS_MAX 8

static uint64_t partial_record_offset(const struct partial_file *partial)
{
	return (partial->source.size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

/* Writes the next bytes, and frees their memory. */
static int stream_until(struct partial_file *partial, uint64_t done)
{
	uint64_t whole = done & ~(ALIGNMENT - 1), count;
	int rc = cli_write_stream(partial->fd, partial->bytes + partial->done, done - partial->done, &count);

	if (rc < 0)
		return rc;
	if (whole)
		madvise(partial->bytes, whole, MADV_DONTNEED);
	partial->done = done;
	return 0;
}

int partial_file_open_stream(struct partial_file *partial, int fd, const char *name, const struct file_version *source,
			     struct pl_error *error)
{
	*partial = (struct partial_file){
		.folder = -1, .fd = fd, .source = *source, .streaming = true, .name = strdup(name)
	};
	if (!partial->name)
		return cli_fail_errno(error, -ENOMEM, "malloc", name);
	if (source->size == 0)
		return 0;
	partial->bytes =
		mmap(NULL, source->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (partial->bytes != MAP_FAILED)
		return 0;
	partial->bytes = NULL;
	return cli_fail_errno(error, -errno, "mmap", name);
}

int partial_file_record(struct partial_file *partial, uint64_t done)
{
	int rc;

	if (partial->streaming)
		return stream_until(partial, done);
	rc = partial_record_write(partial->fd, partial_record_offset(partial), partial->key, &partial->source, done);
	if (rc == 0)
		partial->done = done;
	return rc;
}

/* True if the file system has enough space.  A failing fallocate() would occupy all space for a moment. */
static bool file_system_has_space(const struct partial_file *partial, uint64_t length)
{
	struct stat status;
	struct statvfs space;
	uint64_t allocated, needed;

	if (fstatvfs(partial->fd, &space) < 0 || space.f_blocks == 0 || fstat(partial->fd, &status) < 0)
		return true;
	allocated = (uint64_t)status.st_blocks * 512;
	needed = length > allocated ? length - allocated : 0;
	return needed / space.f_frsize <= space.f_bavail;
}

static int allocate_file_space(struct partial_file *partial, uint64_t length)
{
	if (!file_system_has_space(partial, length))
		return -ENOSPC;
	if (fallocate(partial->fd, 0, 0, (off_t)length) == 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	return ftruncate(partial->fd, (off_t)length) < 0 ? -errno : 0;
}

static int make_sparse_file(struct partial_file *partial, uint64_t length)
{
	if (!file_system_has_space(partial, partial->data))
		return -ENOSPC;
	return ftruncate(partial->fd, (off_t)length) < 0 ? -errno : 0;
}

/* True if no other user, and no other name, can have changed the file. */
static bool is_trusted(const struct stat *status)
{
	return S_ISREG(status->st_mode) && status->st_uid == geteuid() && status->st_nlink == 1 &&
	       !(status->st_mode & (S_IWGRP | S_IWOTH));
}

/* Removes what somebody else left under the name of the temporary file.  Returns 1, to try again, or fails. */
static int remove_untrusted_file(struct partial_file *partial, struct pl_error *error)
{
	if (partial->fd >= 0)
		close(partial->fd);
	partial->fd = -1;
	if (++partial->removed <= REMOVALS_MAX && unlinkat(partial->folder, partial->temporary, 0) == 0)
		return 1;
	return cli_fail(error, -EPERM, "PART-UNTRUSTED", partial->temporary,
			"remove it, or choose another directory, in which other users cannot write",
			"the name is taken by a file that other users own or can change");
}

/* Opens and locks the temporary file.  Returns 1, to try again, if it was renamed or removed before it was locked. */
static int open_locked_file(struct partial_file *partial, struct pl_error *error)
{
	struct stat opened, named;
	int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

	/* Others get access when the file is complete. */
	partial->fd = openat(partial->folder, partial->temporary, flags, 0600);
	if (partial->fd < 0 && errno != ELOOP && errno != EACCES && errno != ENXIO)
		return cli_fail_new_path(error, -errno, "open", partial->temporary);
	if (partial->fd < 0 || fstat(partial->fd, &opened) < 0 || !is_trusted(&opened))
		return remove_untrusted_file(partial, error);
	if (flock(partial->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return cli_fail(error, -EBUSY, "TRANSFER-BUSY", partial->name,
				"wait until it ends, or choose another name", "another transfer is writing this file");
	if (fstatat(partial->folder, partial->temporary, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	    named.st_dev == opened.st_dev && named.st_ino == opened.st_ino)
		return 0;
	close(partial->fd);
	partial->fd = -1;
	return 1;
}

static int open_temporary_file(struct partial_file *partial, struct pl_error *error)
{
	int rc;

	do {
		rc = open_locked_file(partial, error);
	} while (rc > 0);
	return rc;
}

static int fail_to_write(const struct partial_file *partial, int rc, struct pl_error *error)
{
	if (rc == -ENOSPC || rc == -EDQUOT)
		return cli_fail(error, rc, "NO-SPACE", partial->name,
				"free space on the disk, or choose another directory",
				"the disk has no space for %llu bytes", (unsigned long long)partial->source.size);
	return cli_fail_errno(error, rc, "write", partial->temporary);
}

/* Gives the file its length, and space unless it is sparse, behind the first `done` bytes. */
static int prepare_file(struct partial_file *partial, uint64_t done, struct pl_error *error)
{
	uint64_t length = partial_record_offset(partial) + PARTIAL_RECORD_SIZE;
	bool sparse = partial->data < partial->source.size;
	int rc;

	partial->done = done;
	/* Of a sparse file, bytes behind `done` may lie in holes, which nothing overwrites. */
	if ((done == 0 || sparse) && ftruncate(partial->fd, (off_t)done) < 0)
		return cli_fail_errno(error, -errno, "ftruncate", partial->temporary);
	rc = sparse ? make_sparse_file(partial, length) : allocate_file_space(partial, length);
	if (rc == 0)
		rc = partial_file_record(partial, done);
	return rc < 0 ? fail_to_write(partial, rc, error) : 0;
}

int partial_file_begin_again(struct partial_file *partial, struct pl_error *error)
{
	return partial->done && !partial->streaming ? prepare_file(partial, 0, error) : 0;
}

static int map_temporary_file(struct partial_file *partial, struct pl_error *error)
{
	uint64_t done = partial_record_read(partial->fd, partial_record_offset(partial), partial->key, &partial->source);
	int rc = prepare_file(partial, done, error);

	if (rc < 0)
		return rc;
	if (partial->source.size == 0)
		return 0;
	partial->bytes = mmap(NULL, partial->source.size, PROT_READ | PROT_WRITE, MAP_SHARED, partial->fd, 0);
	if (partial->bytes == MAP_FAILED) {
		partial->bytes = NULL;
		return cli_fail_errno(error, -errno, "mmap", partial->temporary);
	}
	return 0;
}

void partial_file_name(char temporary[NAME_MAX + 1], const char *name)
{
	/* A digest takes the place of the end of a name that leaves no room for the rest of ".NAME.part". */
	const int room = NAME_MAX - (int)sizeof("..part") + 1, kept = room - 17;
	int length = (int)strnlen(name, NAME_MAX + 1);

	if (length <= room) {
		snprintf(temporary, NAME_MAX + 1, ".%s.part", name);
		return;
	}
	/* Whole characters of UTF-8. */
	length = kept;
	while (length > kept - 4 && ((unsigned char)name[length] & 0xc0) == 0x80)
		length--;
	snprintf(temporary, NAME_MAX + 1, ".%.*s-%016llx.part", length, name,
		 (unsigned long long)XXH3_64bits(name, strlen(name)));
}

/* Allocates the names.  After a failure, the file must be closed. */
static int name_partial_file(struct partial_file *partial, int folder, const char *name,
			     const struct file_version *source, struct pl_error *error)
{
	char temporary[NAME_MAX + 1];

	*partial = (struct partial_file){
		.folder = folder,
		.fd = -1,
		.source = *source,
		.faults = sigbus_guard_count(),
		.name = strdup(name),
	};
	if (source->size > (uint64_t)INT64_MAX - 2 * ALIGNMENT || source->size > SIZE_MAX)
		return cli_fail(error, -EFBIG, "FILE-TOO-BIG", name, NULL, "a file cannot have %llu bytes",
				(unsigned long long)source->size);
	if (strlen(name) > NAME_MAX)
		return cli_fail_errno(error, -ENAMETOOLONG, "open", name);
	partial_file_name(temporary, name);
	partial->temporary = strdup(temporary);
	return partial->name && partial->temporary ? 0 : cli_fail_errno(error, -ENOMEM, "malloc", name);
}

int partial_file_lock(struct partial_file *partial, int folder, const char *name, struct pl_error *error)
{
	static const struct file_version none = { 0 };
	int rc = name_partial_file(partial, folder, name, &none, error);

	partial->whole = true;
	return rc < 0 ? rc : open_temporary_file(partial, error);
}

int partial_file_open(struct partial_file *partial, int folder, const char *name, const struct file_version *source,
		      uint64_t data, const struct partial_key *key, struct pl_error *error)
{
	bool discard = false;
	int rc = name_partial_file(partial, folder, name, source, error);

	partial->data = data;
	partial->key = key;
	if (rc == 0)
		rc = open_temporary_file(partial, error);
	if (rc == 0) {
		rc = map_temporary_file(partial, error);
		discard = partial->done == 0;
	}
	if (rc < 0)
		partial_file_close(partial, discard);
	return rc;
}

static int sync_to_storage(int fd, const char *name, struct pl_error *error)
{
	int rc = fsync(fd) < 0 ? -errno : 0;

	if (rc == 0 || rc == -EINVAL || rc == -EROFS) /* descriptors that have no storage */
		return 0;
	return cli_fail(error, rc == -ENOSPC || rc == -EDQUOT ? rc : -EIO, "SYNC-FAILED", name,
			"check the disk and the kernel log, then transfer it again", "fsync: %s", strerror(-rc));
}

/* Permissions of new files.  umask(2) can only be read by changing it, which other threads would notice. */
static mode_t usual_mode(void)
{
	unsigned mask = 022;
	char line[128];
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Umask: %o", &mask) == 1)
			break;
	if (file)
		fclose(file);
	return 0666 & ~mask;
}

/* The copy has the source's time of modification.  A file system that does not store it is no reason to fail. */
static void copy_time(const struct partial_file *partial)
{
	const struct timespec times[2] = {
		{ .tv_nsec = UTIME_OMIT },
		{ .tv_sec = (time_t)(partial->source.modified / 1000000000u),
		  .tv_nsec = (long)(partial->source.modified % 1000000000u) },
	};

	if (partial->source.modified && futimens(partial->fd, times) < 0)
		return;
}

int partial_file_sync(struct partial_file *partial, struct pl_error *error)
{
	int rc = sync_to_storage(partial->fd, partial->name, error);

	/* After a failure the kernel may drop what it could not write, so nothing is believed. */
	if (rc < 0)
		partial->done = 0;
	return rc;
}

int partial_folder_sync(int folder, const char *name, struct pl_error *error)
{
	return sync_to_storage(folder, name, error);
}

static int set_attributes(struct partial_file *partial, struct pl_error *error)
{
	if (fchmod(partial->fd, partial->source.mode ? partial->source.mode : usual_mode()) < 0)
		return cli_fail_errno(error, -errno, "fchmod", partial->temporary);
	copy_time(partial);
	return 0;
}

/* Removes the mapping and the record. */
static int finish_mapped_file(struct partial_file *partial, struct pl_error *error)
{
	struct stat status;

	if (fstat(partial->fd, &status) < 0)
		return cli_fail_errno(error, -errno, "fstat", partial->temporary);
	if ((uint64_t)status.st_size != partial_record_offset(partial) + PARTIAL_RECORD_SIZE)
		return cli_fail(error, -ESTALE, "FILE-CHANGED", partial->temporary, "transfer it again",
				"another process changed the file during the transfer");
	if (partial->faults != sigbus_guard_count())
		return cli_fail(error, -ESTALE, "BYTES-LOST", partial->temporary,
				"check whether the disk is full, then transfer it again",
				"bytes could not be written to the file");
	if (partial->bytes)
		munmap(partial->bytes, partial->source.size);
	partial->bytes = NULL;
	if (ftruncate(partial->fd, (off_t)partial->source.size) < 0)
		return cli_fail_errno(error, -errno, "ftruncate", partial->temporary);
	return set_attributes(partial, error);
}

int partial_file_commit(struct partial_file *partial, bool sync, struct pl_error *error)
{
	int rc = 0;

	if (partial->streaming)
		return sync ? partial_file_sync(partial, error) : 0;
	if (!partial->whole)
		rc = finish_mapped_file(partial, error);
	if (rc == 0 && sync)
		rc = partial_file_sync(partial, error);
	if (rc < 0)
		return rc;
	if (renameat(partial->folder, partial->temporary, partial->folder, partial->name) < 0) {
		rc = -errno;
		/* Somebody has removed the temporary file. */
		if (rc == -ENOENT)
			partial->done = 0;
		return cli_fail_errno(error, rc, "rename", partial->name);
	}
	free(partial->temporary);
	partial->temporary = NULL;
	return sync ? partial_folder_sync(partial->folder, partial->name, error) : 0;
}

int partial_file_write(struct partial_file *partial, int folder, const char *name, const struct file_version *source,
		       const void *bytes, struct pl_error *error)
{
	int rc = name_partial_file(partial, folder, name, source, error);
	ssize_t written = 0;
	bool opened;

	partial->whole = true;
	if (rc == 0)
		rc = open_temporary_file(partial, error);
	opened = rc == 0;
	if (rc == 0 && ftruncate(partial->fd, 0) < 0)
		rc = cli_fail_errno(error, -errno, "ftruncate", partial->temporary);
	for (uint64_t done = 0; rc == 0 && done < source->size; done += (uint64_t)written) {
		written = pwrite(partial->fd, (const char *)bytes + done, source->size - done, (off_t)done);
		if (written <= 0)
			rc = fail_to_write(partial, written < 0 ? -errno : -ENOSPC, error);
	}
	if (rc == 0)
		rc = set_attributes(partial, error);
	if (rc < 0)
		partial_file_close(partial, opened);
	return rc;
}

void partial_file_close(struct partial_file *partial, bool discard)
{
	if (partial->bytes)
		munmap(partial->bytes, partial->source.size);
	if (discard && partial->temporary && partial->fd >= 0)
		unlinkat(partial->folder, partial->temporary, 0);
	if (partial->fd >= 0)
		close(partial->fd);
	free(partial->temporary);
	free(partial->name);
	*partial = (struct partial_file){ .folder = -1, .fd = -1 };
}

bool is_partial_file_name(const char *name)
{
	const char *last = strrchr(name, '/');
	size_t length;

	last = last ? last + 1 : name;
	length = strlen(last);
	return length > 6 && last[0] == '.' && !strcmp(last + length - 5, ".part");
}
