/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures as tar files (POSIX ustar, and the long names of GNU tar): blocks of 512 bytes, a header before each file.
 * The reader accepts any bytes, because captures come from strangers.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "diag/check/snapshot.h"

#define BLOCK 512u
/* File with the digest of all bytes before it, in hexadecimal digits. */
#define DIGEST_FILE ".peerlane-digest"
#define DIGEST_LENGTH 16
#define ARCHIVE_MAX (512l << 20)

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], time[12], checksum[8], type, link[100], magic[6], version[2],
		user[32], group[32], major[8], minor[8], prefix[155], padding[12];
};

_Static_assert(sizeof(struct header) == BLOCK, "a header is one block");

static unsigned checksum(const struct header *header)
{
	const unsigned char *bytes = (const unsigned char *)header;
	unsigned sum = 0;

	/* The checksum field itself counts as spaces. */
	for (size_t i = 0; i < BLOCK; i++)
		sum += i >= offsetof(struct header, checksum) && i < offsetof(struct header, type) ? ' ' : bytes[i];
	return sum;
}

/* -- writing --------------------------------------------------------------------------------------- */

struct writer {
	FILE *file;
	XXH64_state_t *digest; /* of all bytes so far */
};

static void write_bytes(struct writer *writer, const void *bytes, size_t length)
{
	fwrite(bytes, 1, length, writer->file);
	XXH64_update(writer->digest, bytes, length);
}

static void write_padded(struct writer *writer, const void *bytes, size_t length)
{
	static const char zeros[BLOCK];

	write_bytes(writer, bytes, length);
	write_bytes(writer, zeros, (BLOCK - length % BLOCK) % BLOCK);
}

/* Not terminated if it fills the field, as the format defines. */
static void put_header_field(char *field, size_t size, const char *text)
{
	memcpy(field, text, PL_MIN(strlen(text), size));
}

static void write_header(struct writer *writer, const char *path, char type, unsigned mode, size_t size,
			 const char *link)
{
	struct header header = { .type = type, .magic = "ustar", .version = { '0', '0' } };

	put_header_field(header.name, sizeof(header.name), path);
	put_header_field(header.link, sizeof(header.link), link);
	snprintf(header.mode, sizeof(header.mode), "%07o", mode);
	snprintf(header.uid, sizeof(header.uid), "%07o", 0);
	snprintf(header.gid, sizeof(header.gid), "%07o", 0);
	snprintf(header.size, sizeof(header.size), "%011zo", size);
	snprintf(header.time, sizeof(header.time), "%011o", 0);
	snprintf(header.checksum, sizeof(header.checksum), "%06o", checksum(&header));
	header.checksum[7] = ' ';
	write_bytes(writer, &header, sizeof(header));
}

/* A name that is too long for the header stands before it, as in GNU tar. */
static void write_long(struct writer *writer, char type, const char *text, size_t room)
{
	if (strlen(text) <= room)
		return;
	write_header(writer, "././@LongLink", type, 0644, strlen(text) + 1, "");
	write_padded(writer, text, strlen(text) + 1);
}

static void write_entry(const struct pl_snapshot_entry *entry, void *user)
{
	struct writer *writer = user;
	const char *link = entry->kind == PL_SYSROOT_LINK ? entry->data : "";
	struct header *none = NULL;

	if (entry->kind == PL_SYSROOT_OTHER) {
		/* A device becomes an empty file: only its existence matters. */
		write_long(writer, 'L', entry->path, sizeof(none->name));
		write_header(writer, entry->path, '0', 0, 0, "");
		return;
	}
	write_long(writer, 'K', link, sizeof(none->link));
	write_long(writer, 'L', entry->path, sizeof(none->name));
	if (entry->kind == PL_SYSROOT_FOLDER) {
		write_header(writer, entry->path, '5', 0755, 0, "");
	} else if (entry->kind == PL_SYSROOT_LINK) {
		write_header(writer, entry->path, '2', 0777, 0, link);
	} else {
		write_header(writer, entry->path, '0', entry->unreadable ? 0 : 0644, entry->length, "");
		if (entry->length)
			write_padded(writer, entry->data, entry->length);
	}
}

/* The last file has the digest of all bytes before its header, and two blocks of zeros end the archive. */
static void write_end(struct writer *writer)
{
	static const char end[2 * BLOCK];
	char text[DIGEST_LENGTH + 1];

	snprintf(text, sizeof(text), "%0*" PRIx64, DIGEST_LENGTH, XXH64_digest(writer->digest));
	write_header(writer, DIGEST_FILE, '0', 0644, DIGEST_LENGTH, "");
	write_padded(writer, text, DIGEST_LENGTH);
	write_bytes(writer, end, sizeof(end));
}

int pl_archive_write(const struct pl_snapshot *snapshot, FILE *file)
{
	XXH64_state_t digest;
	struct writer writer = { .file = file, .digest = &digest };

	XXH64_reset(&digest, 0);
	errno = 0;
	pl_snapshot_each(snapshot, write_entry, &writer);
	write_end(&writer);
	if (fflush(file) == 0 && !ferror(file))
		return 0;
	return errno ? -errno : -EIO;
}

/* -- reading --------------------------------------------------------------------------------------- */

struct reader {
	struct pl_snapshot *snapshot;
	const unsigned char *begin, *at, *end;
	char path[PL_SYSROOT_PATH_MAX], link[PL_SYSROOT_PATH_MAX]; /* long ones, for the next header */
};

static int bad(struct pl_error *error, const char *what)
{
	return pl_fail(
		error, -EBADMSG, "DUMP-FORMAT", "read", NULL,
		"a dump is a tar file without compression, as `peerlane dump` writes it: gunzip, unxz or unzstd it",
		"this is no such tar file: %s", what);
}

/* Reads octal digits between spaces and NULs. */
static bool read_octal(const char *field, size_t size, uint64_t *value)
{
	size_t i = 0;

	*value = 0;
	while (i < size && field[i] == ' ')
		i++;
	for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
		*value = *value * 8 + (uint64_t)(field[i] - '0');
	return i == size || field[i] == ' ' || !field[i];
}

static void read_name(const struct header *header, char *to, size_t size)
{
	if (!memcmp(header->magic, "ustar", 6) && header->prefix[0])
		snprintf(to, size, "%.155s/%.100s", header->prefix, header->name);
	else
		snprintf(to, size, "%.100s", header->name);
}

static int read_long(char *to, size_t room, const unsigned char *data, size_t size)
{
	size_t length = strnlen((const char *)data, size);

	if (length >= room)
		return -ENAMETOOLONG;
	memcpy(to, data, length);
	to[length] = '\0';
	return 0;
}

static int take_header(struct reader *reader, const struct header *header, const unsigned char *data, size_t size)
{
	struct pl_snapshot_entry entry = { .data = (const char *)data, .length = size };
	char path[PL_SYSROOT_PATH_MAX], link[PL_SYSROOT_PATH_MAX];
	uint64_t mode;
	int rc;

	snprintf(path, sizeof(path), "%s", reader->path);
	snprintf(link, sizeof(link), "%s", reader->link);
	if (!*path)
		read_name(header, path, sizeof(path));
	if (!*link)
		snprintf(link, sizeof(link), "%.100s", header->link);
	reader->path[0] = reader->link[0] = '\0';
	entry.path = path;
	if (header->type == '2') {
		entry.kind = PL_SYSROOT_LINK;
		entry.data = link;
		entry.length = strlen(link);
	} else if (header->type == '5') {
		entry.kind = PL_SYSROOT_FOLDER;
		entry.data = NULL;
		entry.length = 0;
	} else {
		entry.kind = PL_SYSROOT_FILE;
		entry.unreadable = read_octal(header->mode, sizeof(header->mode), &mode) && !(mode & 0444);
	}
	rc = pl_snapshot_add(reader->snapshot, &entry);
	/* Entries of a kind that is not written here are skipped. */
	return rc == -ENOMEM || rc == -EFBIG ? rc : 0;
}

/* Compares the digest of all bytes before its header. */
static int check_digest(const struct reader *reader, const unsigned char *header, const unsigned char *data,
			size_t size, struct pl_error *error)
{
	char text[DIGEST_LENGTH + 1];

	snprintf(text, sizeof(text), "%0*" PRIx64, DIGEST_LENGTH,
		 XXH64(reader->begin, (size_t)(header - reader->begin), 0));
	if (size == DIGEST_LENGTH && !memcmp(text, data, DIGEST_LENGTH))
		return 0;
	return bad(error, "its digest is wrong, so it was changed or damaged");
}

static int read_one(struct reader *reader, const struct header *header, struct pl_error *error)
{
	uint64_t size, sum, blocks;
	const unsigned char *data = reader->at;
	int rc = 0;

	if (!read_octal(header->checksum, sizeof(header->checksum), &sum) || sum != checksum(header))
		return bad(error, "the checksum of a header is wrong");
	if (!read_octal(header->size, sizeof(header->size), &size))
		return bad(error, "the size of a file cannot be read");
	if (header->type == '2' || header->type == '5' || header->type == '1')
		size = 0;
	blocks = (size + BLOCK - 1) / BLOCK * BLOCK;
	if (size > (uint64_t)(reader->end - data) || blocks > (uint64_t)(reader->end - data))
		return bad(error, "it is cut off");
	reader->at += blocks;
	if (header->type == 'L')
		rc = read_long(reader->path, sizeof(reader->path), data, size);
	else if (header->type == 'K')
		rc = read_long(reader->link, sizeof(reader->link), data, size);
	else if (!reader->path[0] && header->type == '0' && !strcmp(header->name, DIGEST_FILE))
		return check_digest(reader, data - BLOCK, data, size, error);
	else if (strchr("0257", header->type)) /* '\0' is a regular file too; strchr() finds the terminator */
		rc = take_header(reader, header, data, size);
	return rc < 0 ? pl_fail_errno(error, rc, "DUMP-FORMAT", "read", NULL) : 0;
}

int pl_archive_parse(struct pl_snapshot *snapshot, const void *bytes, size_t length, struct pl_error *error)
{
	struct reader reader = {
		.snapshot = snapshot, .begin = bytes, .at = bytes, .end = (const unsigned char *)bytes + length
	};
	static const unsigned char zeros[2 * BLOCK];
	bool any = false;
	int rc = 0;

	while (rc == 0 && (size_t)(reader.end - reader.at) >= BLOCK && *reader.at) {
		struct header header;

		memcpy(&header, reader.at, sizeof(header));
		reader.at += BLOCK;
		rc = read_one(&reader, &header, error);
		any = true;
	}
	if (rc < 0)
		return rc;
	if (!any)
		return bad(error, "it has no files");
	if ((size_t)(reader.end - reader.at) < sizeof(zeros) || memcmp(reader.at, zeros, sizeof(zeros)))
		return bad(error, "it is cut off: its end mark is missing");
	return 0;
}

static int load_archive(int fd, const char *path, char **data, size_t *length, struct pl_error *error)
{
	struct stat status;
	ssize_t got;

	*length = 0;
	*data = NULL;
	if (fstat(fd, &status) < 0)
		return pl_fail_errno(error, -errno, "SYSROOT-OPEN", "fstat", path);
	if (!S_ISREG(status.st_mode) || status.st_size > ARCHIVE_MAX)
		return pl_fail(error, -EINVAL, "DUMP-FORMAT", "read", path, NULL,
			       "it is neither a folder nor a tar file of at most 512 MiB");
	*data = malloc((size_t)status.st_size + 1);
	if (!*data)
		return pl_fail_memory(error, "malloc");
	while (*length < (size_t)status.st_size &&
	       (got = read(fd, *data + *length, (size_t)status.st_size - *length)) > 0)
		*length += (size_t)got;
	return 0;
}

int pl_archive_read(struct pl_snapshot **ret, const char *path, struct pl_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;
	struct pl_snapshot *snapshot;
	size_t length;
	char *data;

	if (fd < 0)
		return pl_fail_errno(error, -errno, "SYSROOT-OPEN", "open", path);
	rc = load_archive(fd, path, &data, &length, error);
	close(fd);
	snapshot = rc == 0 ? pl_snapshot_new() : NULL;
	if (rc == 0)
		rc = snapshot ? pl_archive_parse(snapshot, data, length, error) : pl_fail_memory(error, "malloc");
	free(data);
	if (rc < 0)
		pl_snapshot_free(snapshot);
	else
		*ret = snapshot;
	return rc;
}

int pl_archive_open_root(struct pl_sysroot **ret, const char *path, struct pl_error *error)
{
	struct pl_snapshot *snapshot;
	struct stat status;
	int rc;

	if (!path || (stat(path, &status) == 0 && S_ISDIR(status.st_mode)))
		return pl_sysroot_open(ret, path, error);
	rc = pl_archive_read(&snapshot, path, error);
	if (rc == 0)
		*ret = pl_snapshot_root(snapshot);
	else if (error && !error->object[0])
		snprintf(error->object, sizeof(error->object), "%s", path);
	return rc;
}
