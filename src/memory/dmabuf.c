/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/dmabuf.h"

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define HINT_FD "pass the descriptor that the exporter gave, of a dma-buf; Linux 5.3 or later"
/* Bytes that go through a file at a time. */
#define PIECE ((size_t)256 << 10)

/* -- registration ---------------------------------------------------------------------------------- */

static int check_buffer(int fd, uint64_t offset, size_t length, struct pl_error *error)
{
	struct statfs system;
	off_t size;

	if (fstatfs(fd, &system) < 0)
		return pl_fail(error, -errno, "DMABUF-FD", "fstatfs", NULL, HINT_FD, "descriptor %d is not open", fd);
	if ((unsigned long)system.f_type != DMA_BUF_MAGIC)
		return pl_fail(error, -EINVAL, "DMABUF-FD", "fstatfs", NULL, HINT_FD, "descriptor %d is no dma-buf",
			       fd);
	size = lseek(fd, 0, SEEK_END);
	if (size >= 0 && pl_outside(offset, length, (uint64_t)size))
		return pl_fail(error, -ERANGE, "DMABUF-RANGE", "pl_region_register_dmabuf", NULL,
			       "stay within the buffer", "%zu bytes at %llu of a dma-buf of %lld", length,
			       (unsigned long long)offset, (long long)size);
	return 0;
}

/* Not all exporters support mmap(). A descriptor opened for reading is mapped for reading. */
static void map(struct pl_dmabuf_memory *buffer, size_t length)
{
	uint64_t mask = (uint64_t)sysconf(_SC_PAGESIZE) - 1, skew = buffer->offset & mask;
	off_t begin = (off_t)(buffer->offset - skew);
	size_t size = (length + skew + mask) & ~mask;
	void *at = MAP_FAILED;

	if (size >= length)
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, buffer->fd, begin);
	buffer->writable = at != MAP_FAILED;
	if (at == MAP_FAILED && errno == EACCES)
		at = mmap(NULL, size, PROT_READ, MAP_SHARED, buffer->fd, begin);
	if (at == MAP_FAILED) {
		buffer->refusal = errno;
		return;
	}
	buffer->mapping = at;
	buffer->mapping_length = size;
	buffer->map = (uint8_t *)at + skew;
}

void pl_dmabuf_free(struct pl_dmabuf_memory *buffer)
{
	if (!buffer)
		return;
	if (buffer->mapping)
		munmap(buffer->mapping, buffer->mapping_length);
	pthread_mutex_destroy(&buffer->atomic);
	close(buffer->fd);
	free(buffer);
}

static int buffer_new(int fd, uint64_t offset, struct pl_dmabuf_memory **result, struct pl_error *error)
{
	struct pl_dmabuf_memory *buffer = calloc(1, sizeof(*buffer));
	int rc;

	if (!buffer)
		return pl_fail_memory(error, "pl_region_register_dmabuf");
	*buffer = (struct pl_dmabuf_memory){ .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .offset = offset };
	if (buffer->fd < 0) {
		rc = -errno;
		free(buffer);
		return pl_fail_errno(error, rc, "SYSTEM", "fcntl", NULL);
	}
	pthread_mutex_init(&buffer->atomic, NULL);
	*result = buffer;
	return 0;
}

static const struct pl_memory_ops pl_dmabuf_memory;

int pl_memory_attach_dmabuf(struct pl_memory *memory, int fd, uint64_t offset, size_t length, void *address,
			    struct pl_error *error)
{
	struct pl_dmabuf_memory *buffer = NULL;
	int rc = check_buffer(fd, offset, length, error);

	if (rc == 0)
		rc = buffer_new(fd, offset, &buffer, error);
	if (rc < 0)
		return rc;
	/* A known kind of memory at the address says more than the dma-buf. */
	if (address && pl_memory_attach(memory, address, length, NULL) == 0) {
		memory->dmabuf = buffer;
		return 0;
	}
	map(buffer, length);
	buffer->nowhere = !address && !buffer->map;
	/* Devices need the same offset within a page as in the buffer. */
	if (!address)
		address =
			buffer->map ? buffer->map : (void *)(uintptr_t)(offset & ((uint64_t)sysconf(_SC_PAGESIZE) - 1));
	*memory = (struct pl_memory){
		.ops = &pl_dmabuf_memory, .address = address, .length = length, .node = -1, .dmabuf = buffer
	};
	return 0;
}

int pl_dmabuf_export(const struct pl_memory *memory, size_t offset, uint64_t *skew)
{
	int fd = fcntl(memory->dmabuf->fd, F_DUPFD_CLOEXEC, 0);

	*skew = memory->dmabuf->offset + offset;
	return fd < 0 ? -errno : fd;
}

bool pl_dmabuf_reached(const struct pl_memory *memory, int *why)
{
	*why = memory->dmabuf->refusal;
	return memory->ops != &pl_dmabuf_memory || memory->dmabuf->map;
}

/* -- copies by the processor ----------------------------------------------------------------------- */

/* The device and the processor may see different bytes outside of these brackets (DMA_BUF_IOCTL_SYNC). */
static int bracket(const struct pl_dmabuf_memory *buffer, bool begin, bool write)
{
	struct dma_buf_sync sync = { .flags = (begin ? DMA_BUF_SYNC_START : DMA_BUF_SYNC_END) |
					      (write ? DMA_BUF_SYNC_RW : DMA_BUF_SYNC_READ) };
	int rc;

	do {
		rc = ioctl(buffer->fd, DMA_BUF_IOCTL_SYNC, &sync);
	} while (rc < 0 && (errno == EINTR || errno == EAGAIN));
	return rc < 0 ? -errno : 0;
}

/* The kernel copies pages from and to a file that it does not copy between processes. */
static int copy_by_file(uint8_t *memory, uint8_t *bytes, size_t length, bool into)
{
	int file = memfd_create("peerlane-copy", MFD_CLOEXEC);
	uint8_t *from = into ? bytes : memory, *to = into ? memory : bytes;
	int rc = file < 0 ? -errno : 0;

	for (size_t at = 0; rc == 0 && at < length;) {
		ssize_t piece = (ssize_t)PL_MIN(length - at, PIECE);

		if (pwrite(file, from + at, (size_t)piece, 0) != piece ||
		    pread(file, to + at, (size_t)piece, 0) != piece)
			rc = -EFAULT;
		at += (size_t)piece;
	}
	if (file >= 0)
		close(file);
	return rc;
}

/* The kernel copies, so that a buffer removed by its exporter causes an error and not a signal. */
static int copy_bytes(uint8_t *memory, uint8_t *bytes, size_t length, bool into)
{
	struct iovec there = { .iov_base = memory, .iov_len = length };
	struct iovec here = { .iov_base = bytes, .iov_len = length };
	ssize_t copied = into ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
			      : process_vm_readv(getpid(), &here, 1, &there, 1, 0);

	return copied == (ssize_t)length ? 0 : copy_by_file(memory, bytes, length, into);
}

static int copy_dmabuf(const struct pl_memory *memory, size_t offset, void *bytes, size_t length, bool into)
{
	const struct pl_dmabuf_memory *buffer = memory->dmabuf;
	int rc, ended;

	if (!buffer->map || (into && !buffer->writable))
		return -EFAULT;
	rc = bracket(buffer, true, into);
	if (rc < 0)
		return -EFAULT;
	rc = copy_bytes(buffer->map + offset, bytes, length, into);
	ended = bracket(buffer, false, into);
	return rc < 0 || ended < 0 ? -EFAULT : 0;
}

static int copy_in(struct pl_memory *memory, size_t offset, const void *from, size_t length)
{
	return copy_dmabuf(memory, offset, (void *)(uintptr_t)from, length, true);
}

static int dmabuf_copy_out(struct pl_memory *memory, size_t offset, void *to, size_t length)
{
	return copy_dmabuf(memory, offset, to, length, false);
}

/* Atomic with respect to other operations of this kind of this process. */
static int dmabuf_atomic(struct pl_memory *memory, size_t offset, bool add, uint64_t operand, uint64_t compare,
			 uint64_t *old)
{
	uint64_t changed;
	int rc;

	pthread_mutex_lock(&memory->dmabuf->atomic);
	rc = dmabuf_copy_out(memory, offset, old, sizeof(*old));
	if (rc == 0 && (add || *old == compare)) {
		changed = add ? *old + operand : operand;
		rc = copy_in(memory, offset, &changed, sizeof(changed));
	}
	pthread_mutex_unlock(&memory->dmabuf->atomic);
	return rc;
}

/* The device behind the buffer is unknown: it may have kernels, and does not tell when they see writes. */
static enum pl_memory_order order(const struct pl_memory *memory)
{
	(void)memory;
	return PL_ORDER_READ;
}

static int never(const void *address, size_t length, struct pl_error *error)
{
	(void)address;
	(void)length;
	(void)error;
	return 0;
}

static const struct pl_memory_ops pl_dmabuf_memory = {
	.name = "dma-buf",
	.recognise = never,
	.copy_in = copy_in,
	.copy_out = dmabuf_copy_out,
	.atomic = dmabuf_atomic,
	.order = order,
};
