/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interface of memory kinds.
 *
 * A kind fills one `struct pl_memory_ops`. The library puts defaults in place of NULL, so that callers need no checks.
 * A new kind adds its folder and a line in memory.c.
 */
#ifndef PL_MEMORY_OPS_H
#define PL_MEMORY_OPS_H

#include <peerlane/peerlane.h>

/** Most bytes of an IPC handle of export_ipc(). */
#define PL_IPC_HANDLE_MAX 120

/** Queue of copies; private to the kind. */
struct pl_copy_queue;

/** Condition under which the device's own kernels see the writes of a card. */
enum pl_memory_order {
	PL_ORDER_HOST = 0, /**< host memory: there is no device */
	PL_ORDER_NATIVE,   /**< the bytes are visible on arrival */
	PL_ORDER_DRIVER,   /**< after flush() */
	PL_ORDER_READ,     /**< after the card read any byte of the memory */
};

/** dma-buf of the program, and the library's state of it. */
struct pl_dmabuf_memory;

/** Range of memory of one kind. */
struct pl_memory {
	const struct pl_memory_ops *ops;
	void *address; /**< address in the program */
	size_t length; /**< bytes */
	bool owned;    /**< allocated by the kind: release() frees it */
	bool fragile;  /**< access may raise a signal (a file that may be truncated): use copy_in() and copy_out() */
	void *handle;  /**< private to the kind */
	/** equal for all memory that one queue of copies serves; a process uses no number twice; 0: none */
	uint64_t device;
	int node;      /**< NUMA node of nearby host memory; -1: any */
	struct pl_dmabuf_memory *dmabuf; /**< cards use it before any other path; NULL: none */
	/**
	 * True once a card has registered it by Data Direct. A completion, which comes by the card's other function, may
	 * pass bytes that go there, so only a read by the same path is sure. Accessed with __atomic_ functions.
	 */
	bool data_direct;
};

/** Descriptor of a piece of device memory, passed between processes of one host. */
struct pl_ipc_fd {
	int fd;          /**< -1: opened already */
	unsigned type;   /**< type of the opened object; private to the kind */
	uint64_t handle; /**< opened object; 0: none */
	uint64_t size;   /**< bytes of the piece */
};

/** Pieces of a range, in order. */
struct pl_ipc_fds {
	unsigned count;                  /**< number of pieces */
	unsigned room;                   /**< capacity */
	const struct pl_memory_ops *ops; /**< kind that opened them; NULL: none did */
	struct pl_ipc_fd *list;          /**< in the same allocation */
};

/** One of several small copies between host memory and device memory. */
struct pl_memory_piece {
	struct pl_memory *memory;
	size_t offset;
	void *host;
	size_t length;
	int status; /**< 0, or the error of a copy that could not be started */
};

/** One range of a gather; the device's kernel reads this layout. */
struct pl_gather_range {
	uint64_t to, from; /**< addresses as the device uses them */
	uint64_t length;   /**< bytes, at most 2^31 */
	uint64_t unused;
};

/** Ranges of many gathers, which the device keeps in its own memory. */
struct pl_gather_list;

/** Copies of many ranges by one kernel of a device; first member of the kind's own structure. */
struct pl_gather {
	const struct pl_memory_ops *ops;
	struct pl_gather_range *ranges; /**< the caller fills them before the start */
	unsigned count, room;           /**< ranges filled; most that fit */
	uint64_t bytes;                 /**< of all ranges */
	/** Kept list in place of `ranges` and `count`, or NULL. The kernel adds the shifts to all addresses `to`, and `from`. */
	struct pl_gather_list *list;
	uint64_t to_shift, from_shift;
};

/** Mark on a stream of the program's work for a device; first member of the kind's own structure. */
struct pl_stream_mark {
	const struct pl_memory_ops *ops;
};

struct pl_memory_ops {
	const char *name; /**< "host", "cuda" */

	/**
	 * Returns 1 if the range is of this kind, 0 if not, a negative errno if it is but cannot be used. Kinds are
	 * asked in order, host last.
	 */
	int (*recognise)(const void *address, size_t length, struct pl_error *error);

	/** Fills memory->handle for a range of the caller. Default: nothing to do. */
	int (*attach)(struct pl_memory *memory, struct pl_error *error);

	/** Allocates zeroed memory on the kind's device of that number and fills *memory. Default: -ENOTSUP. */
	int (*allocate)(struct pl_memory *memory, unsigned device, size_t length, struct pl_error *error);

	/** Undoes attach() or allocate().  Default: nothing to do. */
	void (*release)(struct pl_memory *memory);

	/**
	 * Returns a pointer through which the processor, and so a socket, reaches the byte at offset; NULL if there is
	 * none, and the range must be staged with copy_in() and copy_out(). Default: NULL.
	 */
	void *(*host_pointer)(const struct pl_memory *memory, size_t offset);

	/**
	 * Copies between host memory and the range, synchronously. Returns -EFAULT, and never raises a signal, if the
	 * range is not readable or writable any more. Default: -ENOTSUP.
	 */
	int (*copy_in)(struct pl_memory *memory, size_t offset, const void *from, size_t length);
	int (*copy_out)(struct pl_memory *memory, size_t offset, void *to, size_t length);

	/**
	 * Asynchronous copies, for memory without host_pointer(). One thread at a time uses a queue. queue_begin()
	 * gives a copy a number; copies of one direction end in the order of their numbers. queue_done() returns 1 when
	 * the copy is done, 0 before, -EFAULT if it failed. With `wait` it never returns 0.
	 */
	int (*queue_open)(const struct pl_memory *memory, struct pl_copy_queue **queue, struct pl_error *error);
	void (*queue_close)(struct pl_copy_queue *queue);
	int (*queue_begin)(struct pl_copy_queue *queue, struct pl_memory *memory, size_t offset, void *host,
			   size_t length, bool into, uint64_t *sequence);
	int (*queue_done)(struct pl_copy_queue *queue, bool into, uint64_t sequence, bool wait);

	/**
	 * queue_begin() of several pieces, which share one number. The status of a piece tells if it could not be
	 * started; pin() locked the host memory. Default: no lists; small copies are synchronous.
	 */
	int (*queue_list)(struct pl_copy_queue *queue, struct pl_memory_piece *pieces, unsigned count, bool into,
			  uint64_t *sequence);

	/**
	 * Copies between two ranges of this kind: synchronously, and in a queue of one range's device, in the order of
	 * copies into it or out of it. import_ipc() may have made one of the two. Default: -ENOTSUP.
	 */
	int (*copy_across)(struct pl_memory *to, size_t to_offset, struct pl_memory *from, size_t from_offset,
			   size_t length);
	int (*queue_across)(struct pl_copy_queue *queue, struct pl_memory *to, size_t to_offset, struct pl_memory *from,
			    size_t from_offset, size_t length, bool into, uint64_t *sequence);

	/**
	 * Prepares gathers of the memory's device, once: loads the kernel, which takes up to 0.2 s the first time on a
	 * machine, and waits for kernels of the program that run. Default: nothing to do.
	 */
	void (*gather_prepare)(const struct pl_memory *memory);
	/**
	 * True if kernels of the memory's device reach all of `other`, and the memory is still allocated. `other`: memory that
	 * import_ipc() opened beside the memory, or host memory. `written`: host memory whose lock may forbid kernels to write to it,
	 * as they would. Default: false.
	 */
	bool (*gather_reaches)(const struct pl_memory *memory, const struct pl_memory *other, bool written);
	/**
	 * Takes a gather of at most `count` ranges of the memory's device. Returns NULL if copies must be used: always, for
	 * some time after a gather was withdrawn, or because too many are under way. Any thread.
	 */
	struct pl_gather *(*gather_take)(const struct pl_memory *memory, unsigned count);
	/**
	 * Keeps a list of ranges in the device's memory. Copies the ranges, and waits for this copy. Returns NULL if there is no
	 * room. Any thread.
	 */
	struct pl_gather_list *(*gather_keep)(const struct pl_memory *memory, const struct pl_gather_range *ranges,
					      unsigned count);
	/** Ends the use of a kept list by the caller. Its memory is reused when no kernel reads it. Any thread. */
	void (*gather_forget)(struct pl_gather_list *list);
	/** Starts the kernel, with at most so many blocks. Returns 0 or -EFAULT. */
	int (*gather_start)(struct pl_gather *gather, unsigned blocks);
	/**
	 * Returns 1 when the bytes are copied, 0 before. -ECANCELED: the kernel did not begin in time and was withdrawn: it
	 * touches none of the ranges, now or later. -EFAULT: it failed.
	 */
	int (*gather_done)(struct pl_gather *gather);
	/** Gives back a gather that was not started, or has ended. */
	void (*gather_give)(struct pl_gather *gather);

	/**
	 * Writes the data that another process of this host needs for its device to reach the range: an IPC handle,
	 * whose length is returned, and new descriptors, if any, into `fds` (NULL: none can be sent). Default:
	 * -ENOTSUP.
	 */
	int (*export_ipc)(struct pl_memory *memory, size_t offset, size_t length, uint8_t handle[PL_IPC_HANDLE_MAX],
			  struct pl_ipc_fds *fds);

	/**
	 * Opens the range of `length` bytes behind an untrusted handle, for copies with `beside`: memory of this kind,
	 * or memory that the processor reaches. `own`: the handle is of this process. `fds`: the untrusted
	 * descriptors that came with it, or NULL; opened ones are kept for a later call with another `beside`.
	 * release() undoes it. Returns nonzero if the range cannot be reached, with the reason in *why (static
	 * storage), as in completions. 0 with a reason: it is reached, and the reason says why copies are slow.
	 */
	int (*import_ipc)(const uint8_t *handle, size_t handle_length, size_t length, bool own,
			  const struct pl_memory *beside, struct pl_ipc_fds *fds, struct pl_memory *memory,
			  const char **why);

	/** Closes the object that import_ipc() opened of a piece. Default: nothing to do. */
	void (*close_ipc_fd)(struct pl_ipc_fd *part);

	/**
	 * Adds to a word without host_pointer(), or compares and swaps it, atomically with respect to other calls.
	 * Default: -ENOTSUP.
	 */
	int (*atomic)(struct pl_memory *memory, size_t offset, bool add, uint64_t operand, uint64_t compare,
		      uint64_t *old);

	/**
	 * Locks host memory for the device's copies; *holder is for unpin(). `read_only`: nothing writes to the memory
	 * through it. Default: -ENOTSUP, and only copy_in() and copy_out() copy.
	 */
	int (*pin)(const struct pl_memory *memory, void *address, size_t length, bool read_only, void **holder);
	void (*unpin)(void *holder, void *address);
	/**
	 * True if all that host memory is locked for the device's copies, by pin() or by the program. Default: false, and copies
	 * may end before queue_begin() returns.
	 */
	bool (*host_is_locked)(const struct pl_memory *memory, const void *address, size_t length);

	/** Returns the number of the memory's device, as pl_gpu_query() counts. Default: -1, none. */
	int (*number)(const struct pl_memory *memory);

	/** Returns a number that identifies the present allocation of the range and is never used again. Default: 0. */
	uint64_t (*identity)(const struct pl_memory *memory);

	/**
	 * Exports a dma-buf of the pages under [offset, offset + length): returns a new descriptor, and in *skew the
	 * range's offset in it. Default: -ENOTSUP.
	 */
	int (*export_dmabuf)(struct pl_memory *memory, size_t offset, size_t length, uint64_t *skew);

	/**
	 * The same with a mapping over PCI Express, beside a processor that has a coherent link to the GPU. Only Data
	 * Direct reaches it: other registrations of it succeed, and their accesses fail. Default: -ENOTSUP.
	 */
	int (*export_dmabuf_pcie)(struct pl_memory *memory, size_t offset, size_t length, uint64_t *skew);

	/**
	 * Returns a new descriptor with which another process of this host maps the whole range from its first byte;
	 * read-only unless `writable`. Default: -ENOTSUP.
	 */
	int (*export_shared)(const struct pl_memory *memory, bool writable);

	/** Closes descriptors that only export_shared() needs. Default: nothing to do. */
	void (*keep_private)(struct pl_memory *memory);

	/** Returns the condition under which the device's own kernels see a card's writes. Default: PL_ORDER_HOST. */
	enum pl_memory_order (*order)(const struct pl_memory *memory);

	/** Makes a card's writes visible to the device's own kernels. Default: nothing to do. */
	int (*flush)(struct pl_memory *memory);

	/**
	 * Marks the end of the work so far of a stream. mark_done() returns 1 if that work is done, 0 if not, -EFAULT if
	 * it failed. mark_free() may come before the end of the work. Default: the kind has no streams.
	 */
	int (*mark_new)(void *stream, struct pl_stream_mark **mark, struct pl_error *error);
	int (*mark_done)(struct pl_stream_mark *mark);
	void (*mark_free)(struct pl_stream_mark *mark);

	/**
	 * Makes the work that follows on a stream wait until the word, in host memory that pin() of the same memory
	 * locked, is at least `value`. Without a word it only checks that the stream can wait. Default: -ENOTSUP.
	 */
	int (*stream_wait)(const struct pl_memory *memory, void *stream, const uint64_t *word, uint64_t value,
			   struct pl_error *error);
};

#endif
