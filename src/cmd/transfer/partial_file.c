/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/partial_file.h"

#include <endian.h>
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

#include "cmd/common/cli.h"
#include "cmd/transfer/sigbus_guard.h"
#include "cmd/transfer/hash.h"

#define MAGIC 0x31545241504c50ull
#define ALIGNMENT 4096ull

/* As it is in the file: little-endian. */
struct record {
	uint64_t magic;
	uint64_t size, modified, identity;
	uint64_t done;
	char boot[40];
	uint64_t sum; /* of all before */
};

_Static_assert(sizeof(struct record) == 88, "the record has no holes");

static uint64_t record_offset(const struct part *part)
{
	return (part->source.size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

/* What the kernel calls this start of the host; empty, which matches too, where it does not say. */
static void read_boot(char boot[40])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	memset(boot, 0, 40);
	if (fd < 0)
		return;
	if (read(fd, boot, 36) < 0)
		boot[0] = '\0';
	close(fd);
}

static void make_record(const struct part *part, uint64_t done, struct record *record)
{
	*record = (struct record){
		.magic = htole64(MAGIC),
		.size = htole64(part->source.size),
		.modified = htole64(part->source.modified),
		.identity = htole64(part->source.identity),
		.done = htole64(done),
	};
	read_boot(record->boot);
	record->sum = htole64(hash_small(record, offsetof(struct record, sum)));
}

int part_record(struct part *part, uint64_t done)
{
	struct record record;
	ssize_t written;

	make_record(part, done, &record);
	written = pwrite(part->fd, &record, sizeof(record), (off_t)record_offset(part));
	if (written != (ssize_t)sizeof(record))
		return written < 0 ? -errno : -ENOSPC;
	part->done = done;
	return 0;
}

/* How much of the source an earlier transfer left; 0 if it was another source. */
static uint64_t earlier_extent(const struct part *part)
{
	struct record record, wanted;
	uint64_t done;

	if (pread(part->fd, &record, sizeof(record), (off_t)record_offset(part)) != (ssize_t)sizeof(record))
		return 0;
	done = le64toh(record.done);
	make_record(part, done, &wanted);
	return memcmp(&record, &wanted, sizeof(record)) == 0 && done <= part->source.size ? done : 0;
}

/* Whether the file system can have it at all, without trying: a trial that fails takes all space for a moment. */
static bool space_left(const struct part *part, uint64_t length)
{
	struct stat status;
	struct statvfs space;
	uint64_t have, need;

	if (fstatvfs(part->fd, &space) < 0 || space.f_blocks == 0 || fstat(part->fd, &status) < 0)
		return true;
	have = (uint64_t)status.st_blocks * 512;
	need = length > have ? length - have : 0;
	return need / space.f_frsize <= space.f_bavail;
}

static int take_space(struct part *part, uint64_t length)
{
	if (!space_left(part, length))
		return -ENOSPC;
	if (fallocate(part->fd, 0, 0, (off_t)length) == 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	return ftruncate(part->fd, (off_t)length) < 0 ? -errno : 0;
}

/* Opens and locks the temporary file.  1 if it got its final name, or went away, before it was locked: try again. */
static int open_locked(struct part *part, struct pl_error *error)
{
	struct stat ours, named;
	int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

	part->fd = openat(part->folder, part->temporary, flags, 0666);
	if (part->fd < 0)
		return cli_fail_errno(error, -errno, "open", part->temporary);
	if (flock(part->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return cli_fail(error, -EBUSY, "TRANSFER-BUSY", part->name, "wait for it, or choose another name",
				"another transfer is writing this file");
	if (fstat(part->fd, &ours) < 0)
		return cli_fail_errno(error, -errno, "fstat", part->temporary);
	if (!S_ISREG(ours.st_mode))
		return cli_fail(error, -EINVAL, "NOT-A-FILE", part->temporary, "remove it",
				"this is not a regular file");
	if (fstatat(part->folder, part->temporary, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_dev == ours.st_dev &&
	    named.st_ino == ours.st_ino)
		return 0;
	close(part->fd);
	part->fd = -1;
	return 1;
}

static int open_temporary(struct part *part, struct pl_error *error)
{
	int rc;

	do {
		rc = open_locked(part, error);
	} while (rc > 0);
	return rc;
}

static int prepare(struct part *part, bool resume, struct pl_error *error)
{
	uint64_t length = record_offset(part) + sizeof(struct record);
	uint64_t done = resume ? earlier_extent(part) : 0;
	int rc;

	part->done = done;
	if (done == 0 && ftruncate(part->fd, 0) < 0)
		return cli_fail_errno(error, -errno, "ftruncate", part->temporary);
	rc = take_space(part, length);
	if (rc == 0)
		rc = part_record(part, done);
	if (rc == -ENOSPC || rc == -EDQUOT)
		return cli_fail(error, rc, "NO-SPACE", part->name, "free space there, or choose another place",
				"there is no room for %llu bytes", (unsigned long long)part->source.size);
	if (rc < 0)
		return cli_fail_errno(error, rc, "fallocate", part->temporary);
	if (part->source.size == 0)
		return 0;
	part->bytes = mmap(NULL, part->source.size, PROT_READ | PROT_WRITE, MAP_SHARED, part->fd, 0);
	if (part->bytes == MAP_FAILED) {
		part->bytes = NULL;
		return cli_fail_errno(error, -errno, "mmap", part->temporary);
	}
	return 0;
}

int part_open(struct part *part, int folder, const char *name, const struct part_source *source, bool resume,
	      struct pl_error *error)
{
	bool discard = false;
	int rc;

	*part = (struct part){
		.folder = folder,
		.fd = -1,
		.source = *source,
		.faults = guard_faults(),
		.name = strdup(name),
	};
	if (source->size > (uint64_t)INT64_MAX - 2 * ALIGNMENT || source->size > SIZE_MAX) {
		free(part->name);
		return cli_fail(error, -EFBIG, "FILE-TOO-BIG", name, NULL, "no file can have %llu bytes",
				(unsigned long long)source->size);
	}
	if (asprintf(&part->temporary, ".%s.part", name) < 0)
		part->temporary = NULL;
	if (part->name && part->temporary) {
		rc = open_temporary(part, error);
		if (rc == 0) {
			rc = prepare(part, resume, error);
			discard = part->done == 0;
		}
	} else {
		rc = cli_fail_errno(error, -ENOMEM, "malloc", name);
	}
	if (rc < 0)
		part_close(part, discard);
	return rc;
}

int part_commit(struct part *part, struct pl_error *error)
{
	struct stat status;

	if (fstat(part->fd, &status) < 0)
		return cli_fail_errno(error, -errno, "fstat", part->temporary);
	if ((uint64_t)status.st_size != record_offset(part) + sizeof(struct record))
		return cli_fail(error, -ESTALE, "FILE-CHANGED", part->temporary, "transfer it again",
				"somebody else changed the file while it was written");
	if (part->faults != guard_faults())
		return cli_fail(error, -ESTALE, "BYTES-LOST", part->temporary,
				"see whether the disk is full, then transfer it again",
				"bytes could not be written to the file");
	if (part->bytes)
		munmap(part->bytes, part->source.size);
	part->bytes = NULL;
	if (ftruncate(part->fd, (off_t)part->source.size) < 0)
		return cli_fail_errno(error, -errno, "ftruncate", part->temporary);
	if (renameat(part->folder, part->temporary, part->folder, part->name) < 0)
		return cli_fail_errno(error, -errno, "rename", part->name);
	free(part->temporary);
	part->temporary = NULL;
	return 0;
}

void part_close(struct part *part, bool discard)
{
	if (part->bytes)
		munmap(part->bytes, part->source.size);
	if (discard && part->temporary && part->fd >= 0)
		unlinkat(part->folder, part->temporary, 0);
	if (part->fd >= 0)
		close(part->fd);
	free(part->temporary);
	free(part->name);
	*part = (struct part){ .folder = -1, .fd = -1 };
}

bool part_is_temporary(const char *name)
{
	const char *last = strrchr(name, '/');
	size_t length;

	last = last ? last + 1 : name;
	length = strlen(last);
	return length > 6 && last[0] == '.' && !strcmp(last + length - 5, ".part");
}
