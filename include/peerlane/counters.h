/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters of a context: its operations by kind and fabric, with their bytes and times, and its errors by identifier. They
 * count from pl_open() and never go back, so that a monitoring system computes rates. docs/metrics.md has names for them.
 *
 * A context counts the operations that it posts, and those of its streams. It does not see one-sided operations of its peers.
 */
#ifndef PEERLANE_COUNTERS_H
#define PEERLANE_COUNTERS_H

#include <peerlane/peerlane.h>

#ifdef __cplusplus
extern "C" {
#endif

/** State of a context now. */
struct pl_context_info {
	size_t size;      /**< set by the caller: sizeof(struct pl_context_info), or of an earlier, shorter one */
	unsigned engines; /**< threads that make progress; 1 with manual progress */
	uint64_t peers;   /**< open peers that are connected */
	uint64_t lost;    /**< open peers whose connection is lost */
	uint64_t regions; /**< registered regions */
	uint64_t remotes; /**< imported regions of peers */
	uint64_t running; /**< operations of all peers that are under way; not those behind a PL_FENCE */
	uint64_t errors;  /**< operations that failed, those cancelled included */
	/** nanoseconds that threads poll before they sleep: pl_options.poll_time or its default; 0: none, manual progress */
	uint64_t poll_time;
};
/* clang-format off */
#define PL_CONTEXT_INFO_INIT { sizeof(struct pl_context_info), 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Fills info with the state of a context. Visits each peer, and takes the lock of each engine: call it once a second rather than
 * once an operation.
 *
 * Thread-safe. Must not be called by a callback of the library.
 *
 * @return 0; -EINVAL if info->size is unknown
 */
int pl_context_query(struct pl_context *context, struct pl_context_info *info, struct pl_error *error);

/** Depths of the queues of one fabric, of all peers together. */
struct pl_queues {
	size_t size;         /**< set by the caller: sizeof(struct pl_queues) */
	uint64_t peers;      /**< open peers that are connected */
	uint64_t running;    /**< operations that are under way */
	uint64_t fenced;     /**< operations that wait behind a PL_FENCE */
	uint64_t receives;   /**< posted receives without a message */
	uint64_t unexpected; /**< messages that arrived without a receive */
};
/* clang-format off */
#define PL_QUEUES_INIT { sizeof(struct pl_queues), 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Fills queues with the operations of one fabric that have not ended. Visits each peer and its waiting operations, and takes the
 * lock of each engine: call it once a second rather than once an operation.
 *
 * @param fabric  "local", "verbs" or "tcp"; NULL: all fabrics together
 *
 * Thread-safe. Must not be called by a callback of the library.
 *
 * @return 0; -EINVAL if queues->size or the fabric is unknown. A fabric that the context does not use gives zeros
 */
int pl_context_queues(struct pl_context *context, const char *fabric, struct pl_queues *queues, struct pl_error *error);

/** Buckets of a histogram of times. */
#define PL_TIME_BUCKETS 28
/** First time above bucket `i`, in nanoseconds: 64 ns, 128 ns, ... 4.3 s. The last bucket has all longer times. */
#define PL_TIME_BUCKET_END(i) ((uint64_t)64 << (i))

/** Operations of one kind over one fabric that have ended. */
struct pl_traffic {
	size_t size;                     /**< set by the caller: sizeof(struct pl_traffic) */
	uint64_t done;                   /**< operations that succeeded */
	uint64_t failed;                 /**< operations that failed, those cancelled included */
	uint64_t bytes;                  /**< of those that succeeded */
	uint64_t staged;                 /**< of these, bytes that went through staging memory (PL_ROUTE_STAGED) */
	uint64_t time;                   /**< nanoseconds from posting to completion, of those that succeeded, in all */
	uint64_t times[PL_TIME_BUCKETS]; /**< those that succeeded, by time: their sum is `done` */
};
/* clang-format off */
#define PL_TRAFFIC_INIT { sizeof(struct pl_traffic), 0, 0, 0, 0, 0, { 0 } }
/* clang-format on */

/**
 * Fills traffic with the operations of one kind that have ended.
 *
 * An operation is counted before its completion is delivered. The members are read one after the other while other threads
 * count, so they may differ by operations that end during the call. A large message counts as one operation at each end; the read
 * that fetches it is not counted.
 *
 * @param kind    PL_KIND_WRITE to PL_KIND_NOTIFY. The time of a receive includes the wait for its message
 * @param fabric  "local", "verbs" or "tcp"; NULL: all fabrics together
 *
 * Thread-safe, takes no lock.
 *
 * @return 0; -EINVAL if traffic->size, the kind or the fabric is unknown. A fabric that the context does not use gives zeros
 */
int pl_context_traffic(struct pl_context *context, enum pl_kind kind, const char *fabric, struct pl_traffic *traffic,
		       struct pl_error *error);

/** Most identifiers of errors that a context counts one by one. */
#define PL_ERROR_COUNTS 64

/** Number of failed operations with one error. */
struct pl_error_count {
	size_t size;    /**< set by the caller: sizeof(struct pl_error_count) */
	char id[24];    /**< pl_error.id; "": all errors that came after PL_ERROR_COUNTS different ones */
	uint64_t count; /**< operations that failed with it; EVENTS-DROPPED: notifications that were dropped */
};
/* clang-format off */
#define PL_ERROR_COUNT_INIT { sizeof(struct pl_error_count), "", 0 }
/* clang-format on */

/**
 * Fills count with the operations that failed with one error.
 *
 * @param number  0 for the error that occurred first, then 1, 2, ... An error keeps its number
 *
 * Thread-safe.
 *
 * @return 0; -ENOENT if fewer different errors have occurred; -EINVAL if count->size is unknown
 */
int pl_context_error_count(struct pl_context *context, unsigned number, struct pl_error_count *count,
			   struct pl_error *error);

#ifdef __cplusplus
}
#endif

#endif
