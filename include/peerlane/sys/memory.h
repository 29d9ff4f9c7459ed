/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For authors of memory backends: what a kind of memory must be able to do.
 *
 * A backend fills one `struct pl_memory_ops`; the library puts defaults where it leaves NULL, so
 * that no caller checks.  A new kind (a GPU's memory) adds a table, no call elsewhere.
 */
#ifndef PEERLANE_SYS_MEMORY_H
#define PEERLANE_SYS_MEMORY_H

#include <peerlane/peerlane.h>

/** A range of memory of one kind, as the backend knows it. */
struct pl_memory {
	const struct pl_memory_ops *ops;
	void *address; /**< as the program sees it */
	size_t length; /**< bytes */
	bool owned;    /**< allocated by the backend: release() frees it */
	bool fragile;  /**< a file is behind it, which may be cut: the CPU must not touch it directly */
	void *handle;  /**< the backend's own */
};

struct pl_memory_ops {
	const char *name; /**< "host", "cuda" */

	/**
	 * Whether the range is of this kind: 1 yes, 0 no, negative errno if it is but cannot be used.
	 * Backends are asked in order, host last.
	 */
	int (*recognise)(const void *address, size_t length, struct pl_error *error);

	/** Fills memory->handle for a caller's range.  Default: nothing to do. */
	int (*attach)(struct pl_memory *memory, struct pl_error *error);

	/** Allocates zeroed memory and fills *memory.  Default: -ENOTSUP. */
	int (*allocate)(struct pl_memory *memory, size_t length, struct pl_error *error);

	/** Undoes attach() or allocate().  Default: nothing to do. */
	void (*release)(struct pl_memory *memory);

	/**
	 * A pointer through which the CPU, and so a socket, reaches the byte at offset; NULL if it
	 * cannot, and the range must be staged with copy_in() and copy_out().  Default: NULL.
	 */
	void *(*host_pointer)(const struct pl_memory *memory, size_t offset);

	/**
	 * Copies between host memory and the range, synchronously; -EFAULT, and never a signal, where
	 * the range is not readable or writable any more.  Default: -ENOTSUP.
	 */
	int (*copy_in)(struct pl_memory *memory, size_t offset, const void *from, size_t length);
	int (*copy_out)(struct pl_memory *memory, size_t offset, void *to, size_t length);

	/**
	 * A dma-buf of the pages under [offset, offset + length): a new descriptor, and in *skew the
	 * range's place in it.  Default: -ENOTSUP.
	 */
	int (*export_dmabuf)(struct pl_memory *memory, size_t offset, size_t length, uint64_t *skew);

	/**
	 * A new descriptor by which another process of this host maps the whole range, from its first
	 * byte; for reading only unless `writable`.  Default: -ENOTSUP.
	 */
	int (*export_shared)(const struct pl_memory *memory, bool writable);

	/** Makes what a card wrote visible to the device's own kernels.  Default: nothing to do. */
	int (*flush)(struct pl_memory *memory);
};

#endif
