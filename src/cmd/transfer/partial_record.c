/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/partial_record.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <unistd.h>

/* Contains the version of the format; a record of another version is not valid. */
#define MAGIC 0x32545241504c50ull
#define MAC_SIZE 32

/* Little-endian. */
struct partial_record {
	uint64_t magic;
	uint64_t size, modified, identity; /* of the source */
	uint64_t done;
	uint64_t device, inode; /* of the partial file: a copy of it is not valid */
	char boot[56];          /* id of the kernel's boot */
	uint8_t mac[MAC_SIZE];  /* HMAC-SHA-256 of all members above */
};

_Static_assert(sizeof(struct partial_record) == PARTIAL_RECORD_SIZE, "the record has no padding");

/* Reads the boot id of the kernel; an empty id, if there is none, matches too. */
static void read_kernel_boot_id(char boot[56])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (read(fd, boot, 36) < 0)
		boot[0] = '\0';
	close(fd);
}

static int make_partial_record(int fd, const struct partial_key *key, const struct file_version *source, uint64_t done,
			       struct partial_record *record)
{
	struct stat status;
	unsigned length;

	if (fstat(fd, &status) < 0)
		return -errno;
	*record = (struct partial_record){
		.magic = htole64(MAGIC),
		.size = htole64(source->size),
		.modified = htole64(source->modified),
		.identity = htole64(source->identity),
		.done = htole64(done),
		.device = htole64((uint64_t)status.st_dev),
		.inode = htole64((uint64_t)status.st_ino),
	};
	read_kernel_boot_id(record->boot);
	if (key && !HMAC(EVP_sha256(), key->bytes, PARTIAL_KEY_SIZE, (const unsigned char *)record,
			 offsetof(struct partial_record, mac), record->mac, &length))
		return -EIO;
	return 0;
}

int partial_record_write(int fd, uint64_t offset, const struct partial_key *key, const struct file_version *source,
			 uint64_t done)
{
	struct partial_record record;
	ssize_t written;
	int rc = make_partial_record(fd, key, source, done, &record);

	if (rc < 0)
		return rc;
	written = pwrite(fd, &record, sizeof(record), (off_t)offset);
	if (written == (ssize_t)sizeof(record))
		return 0;
	return written < 0 ? -errno : -ENOSPC;
}

uint64_t partial_record_read(int fd, uint64_t offset, const struct partial_key *key, const struct file_version *source)
{
	struct partial_record record, expected;
	uint64_t done;

	if (!key || pread(fd, &record, sizeof(record), (off_t)offset) != (ssize_t)sizeof(record))
		return 0;
	done = le64toh(record.done);
	if (done > source->size || make_partial_record(fd, key, source, done, &expected) < 0)
		return 0;
	return CRYPTO_memcmp(&record, &expected, sizeof(record)) == 0 ? done : 0;
}
