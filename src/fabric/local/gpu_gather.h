/* SPDX-License-Identifier: BSD-2-Clause */
/* Vectors that a kernel of the GPU copies, and the kept lists of prepared vectors. */
#ifndef PL_LOCAL_GPU_GATHER_H
#define PL_LOCAL_GPU_GATHER_H

#include "core/vector.h"
#include "fabric/local/local.h"

/* Most multiprocessors of a kernel if host memory takes part: the bus limits the rate. */
#define LOCAL_HOST_MULTIPROCESSORS 16u

/* Segments that one kernel copies. */
struct local_gather_run {
	struct pl_gather_copy copy; /* its gather is NULL if no kernel runs; copy.sequence: index of the run */
	unsigned begin, end;        /* first segment, and the segment after the last one that it touches */
	uint64_t done;              /* bytes of the first segment before its ranges */
};

/* State of a vector that kernels copy; in operation->fabric. */
struct local_gathering {
	struct pl_work_item item;
	struct local_gather_run runs[LOCAL_COPIES_QUEUED];
	struct local_position again;  /* copies do the rest from here on, if `copies` */
	const char *reason_of_copies; /* reason of the route then */
	bool starting;                /* prevents recursion */
	bool copies;                  /* a kernel was withdrawn, or there is no room for one */
	bool kept;                    /* the kernel reads the kept list of operation->vector */
	bool host;                    /* host memory takes part */
};
_Static_assert(sizeof(struct local_gathering) <= PL_OPERATION_FABRIC_SPACE, "fits into an operation");

static inline const struct local_gathering *local_gathering_of(const struct pl_operation *operation)
{
	return (const struct local_gathering *)operation->fabric;
}

/* Region and remote region as a kernel uses them. */
struct local_ends {
	const struct pl_memory *gpu; /* memory of the GPU whose kernel copies */
	uint64_t here, there;        /* addresses of byte 0 of the region and of the remote region on this GPU */
	bool host;                   /* one of them is host memory */
};

/* gpu_gather.c */
/* The ends of an access path by which a GPU copies. */
struct local_ends local_ends_of(const struct pl_region *region, const struct pl_remote *remote);

/* Memory of the GPU whose kernels copy an operation, which is the same GPU for all segments. */
static inline const struct pl_memory *local_gather_gpu(const struct pl_operation *operation)
{
	return local_ends_of(operation->segments->region, operation->segments->remote).gpu;
}

/* Returns the next segment that changes memory; the number of segments: there is none. */
static inline unsigned local_next_memory(const struct pl_operation *operation, unsigned number)
{
	if (operation->one_memory)
		return operation->segment_count;
	do
		number++;
	while (number < operation->segment_count && !local_segment_changes_memory(operation, number));
	return number;
}

/* True if the kernel of local_ends_of() reaches both ends now, and may do operations of that kind. */
bool local_kernel_reaches(const struct pl_region *region, const struct pl_remote *remote, enum pl_kind kind);
/* local_copy_gate_hold() for a kernel: it fails if the mapping is not pinned any more. Returns 0 or a negative errno. */
int local_kernel_gate_hold(const struct local_access *access, const struct pl_operation *operation,
			   struct pl_error *error);
/*
 * Holds the gate of the access path of each segment from `begin` to `end`, or releases it: once for segments in a row that
 * share it. Returns the first segment whose gate could not be held, or `end`.
 */
unsigned local_gather_hold_gates(const struct pl_operation *operation, unsigned begin, unsigned end, bool hold,
				 struct pl_error *error);
/* Does a vector by a kernel, and returns true; false: a kernel is not suited. Home. */
bool local_gather_post(struct pl_operation *operation);
/* The same for a prepared vector with a kept list, whose segments are not looked at. */
bool local_gather_post_kept(struct pl_operation *operation);
/* Bytes of a piece: small enough for all blocks to have work. */
uint64_t local_gather_piece_size(const struct pl_operation *operation);
/*
 * Fills `ranges` with the pieces of the segments from the position of the operation's work item on, and moves the position on.
 * Returns the number of ranges, at most `room`, with at most `most` bytes, which are added to *bytes.
 */
unsigned local_gather_fill(struct pl_operation *operation, struct pl_gather_range *ranges, unsigned room, uint64_t size,
			   uint64_t most, uint64_t *bytes);

/* gpu_ring.c */
/*
 * Does a vector between a GPU and host memory of this process that is not locked, through locked memory of the library, and returns
 * true. False: it is not suited, or no memory could be locked, which the reason of the route tells then. Home.
 */
bool local_ring_post(struct pl_operation *operation);

/* host_pin.c */
/* Counts a copy to or from host memory of this process. Pins it, until the region ends, if the library allocated it. */
void local_region_note_copy(struct pl_region *region, const struct pl_memory *gpu, size_t length);

/* gpu_kept.c: lists of ranges of prepared vectors, in the memory of the GPU. Home. */
/*
 * Keeps the list of an operation's vector, which kernels reach, and returns true. False: there is no room, now or at an earlier post,
 * or the vector has a list.
 */
bool local_kept_make(struct pl_operation *operation);
/*
 * True if the vector has a list, and all its addresses are those of now: no memory was freed or opened again. Sets the reason of
 * the route of copies.
 */
bool local_kept_is_valid(const struct pl_vector *vector, const char **reason);
/* True if host memory takes part in the list. */
bool local_kept_has_host(const struct pl_vector *vector);
/* Takes a gather for the list. NULL: copies must be used. */
struct pl_gather *local_kept_take(const struct pl_operation *operation);
/* Holds the gates of all remote regions of the list. Returns 0, or a negative errno and holds none. */
int local_kept_hold_gates(const struct pl_operation *operation, struct pl_error *error);
void local_kept_release_gates(const struct pl_operation *operation);

#endif
