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

/** Bytes that a handle of export_ipc() has at most. */
#define PL_IPC_HANDLE_MAX 120

/** A queue of copies, of the backend's. */
struct pl_copy_queue;

/** When the device's own kernels see what a card wrote into the memory. */
enum pl_memory_order {
	PL_ORDER_HOST = 0, /**< memory of the host: there is no such device */
	PL_ORDER_NATIVE,   /**< as soon as it is there */
	PL_ORDER_DRIVER,   /**< after flush() */
	PL_ORDER_READ,     /**< after the card read any of the memory */
};

/** A dma-buf that the program gave, with what the library keeps of it. */
struct pl_dmabuf;

/** A range of memory of one kind, as the backend knows it. */
struct pl_memory {
	const struct pl_memory_ops *ops;
	void *address;            /**< as the program sees it */
	size_t length;            /**< bytes */
	bool owned;               /**< allocated by the backend: release() frees it */
	bool fragile;             /**< a file is behind it, which may be cut: the CPU must not touch it directly */
	void *handle;             /**< the backend's own */
	void *device;             /**< the same for all memory that one queue of copies serves */
	int node;                 /**< of the host's memory near it; -1: it does not matter */
	struct pl_dmabuf *dmabuf; /**< by which cards reach it before any other way; NULL: the program gave none */
};

/** A descriptor of a piece of a device's memory, which one process of a host gives to another. */
struct pl_ipc_fd {
	int fd;          /**< -1: it was opened already */
	unsigned type;   /**< of what import_ipc() made of it; the backend's own */
	uint64_t handle; /**< 0: nothing */
	uint64_t size;   /**< bytes that it stands for */
};

/** The pieces that a range lies in, in order. */
struct pl_ipc_fds {
	unsigned count;                  /**< how many there are */
	unsigned room;                   /**< and may be */
	const struct pl_memory_ops *ops; /**< the backend that opened them; NULL: none did */
	struct pl_ipc_fd *part;     /**< in the same block of memory */
};

/** One of several small copies between host memory and a device's. */
struct pl_memory_piece {
	struct pl_memory *memory;
	size_t offset;
	void *host;
	size_t length;
	int status; /**< 0, or why it could not be begun */
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

	/** Allocates zeroed memory on the backend's device of that number and fills *memory.  Default: -ENOTSUP. */
	int (*allocate)(struct pl_memory *memory, unsigned device, size_t length, struct pl_error *error);

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
	 * Copies that go on by themselves, for memory that has no host_pointer(); a queue is used by one thread
	 * at a time.  queue_begin() gives a copy a number; those of a direction are done in the order of their
	 * numbers.  queue_done(): 1 when it is, 0 when not, or -EFAULT when it failed.  With `wait` never 0.
	 */
	int (*queue_open)(const struct pl_memory *memory, struct pl_copy_queue **queue, struct pl_error *error);
	void (*queue_close)(struct pl_copy_queue *queue);
	int (*queue_begin)(struct pl_copy_queue *queue, struct pl_memory *memory, size_t offset, void *host,
			   size_t length, bool into, uint64_t *sequence);
	int (*queue_done)(struct pl_copy_queue *queue, bool into, uint64_t sequence, bool wait);

	/**
	 * queue_begin() of several pieces, which have one number.  What could not be begun is told in its status; the
	 * host's memory is locked by pin().  Default: there are no such lists, and small copies are waited for.
	 */
	int (*queue_list)(struct pl_copy_queue *queue, struct pl_memory_piece *pieces, unsigned count, bool into,
			  uint64_t *sequence);

	/**
	 * Copies between two ranges of this kind, synchronously, and in a queue of the one's device, in the order of
	 * copies into it or out of it.  One of the two may be memory that import_ipc() made.  Default: -ENOTSUP.
	 */
	int (*copy_across)(struct pl_memory *to, size_t to_offset, struct pl_memory *from, size_t from_offset,
			   size_t length);
	int (*queue_across)(struct pl_copy_queue *queue, struct pl_memory *to, size_t to_offset, struct pl_memory *from,
			    size_t from_offset, size_t length, bool into, uint64_t *sequence);

	/**
	 * What another process of this host needs so that its device reaches the range: its length, written into
	 * `handle`, and new descriptors, if any, that go with it, into `parts` (NULL: none can be sent).
	 * Default: -ENOTSUP.
	 */
	int (*export_ipc)(struct pl_memory *memory, size_t offset, size_t length, uint8_t handle[PL_IPC_HANDLE_MAX],
		     struct pl_ipc_fds *parts);

	/**
	 * The range of `length` bytes behind a handle, any bytes, for copies with `beside`: memory of this kind, or
	 * memory that the processor reaches.  `own`: the handle is of this process.  `parts`: the descriptors that
	 * came with it, any as well, or NULL; they may be opened, and kept so for the next call with another
	 * `beside`.  release() undoes it.  Not 0: it is not reached, and *why (static storage) says why, as a
	 * receipt does.
	 */
	int (*import_ipc)(const uint8_t *handle, size_t handle_length, size_t length, bool own,
		    const struct pl_memory *beside, struct pl_ipc_fds *parts, struct pl_memory *memory,
		    const char **why);

	/** Closes what import_ipc() opened of a part.  Default: nothing to do. */
	void (*close_ipc_fd)(struct pl_ipc_fd *part);

	/**
	 * Adds to, or compares and swaps, a word without host_pointer(), atomically with respect to other calls.
	 * Default: -ENOTSUP.
	 */
	int (*atomic)(struct pl_memory *memory, size_t offset, bool add, uint64_t operand, uint64_t compare,
		      uint64_t *old);

	/**
	 * Locks host memory so that the device's copies reach it; *holder is for unpin().  Default: -ENOTSUP,
	 * and copies are made by copy_in() and copy_out() only.
	 */
	int (*pin)(const struct pl_memory *memory, void *address, size_t length, void **holder);
	void (*unpin)(void *holder, void *address);

	/** Which of the kind's devices it is in, as pl_gpu_query() counts them.  Default: -1, none. */
	int (*number)(const struct pl_memory *memory);

	/** A number of what is allocated at the range now, which nothing else ever has.  Default: 0. */
	uint64_t (*identity)(const struct pl_memory *memory);

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

	/** What it takes until the device's own kernels see what a card wrote.  Default: PL_ORDER_HOST. */
	enum pl_memory_order (*order)(const struct pl_memory *memory);

	/** Makes what a card wrote visible to the device's own kernels.  Default: nothing to do. */
	int (*flush)(struct pl_memory *memory);
};

#endif
