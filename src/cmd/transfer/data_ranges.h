/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranges of a sparse file that have data, in order.  All other bytes are holes, which read as zeros. */
#ifndef PL_CMD_TRANSFER_DATA_RANGES_H
#define PL_CMD_TRANSFER_DATA_RANGES_H

#include <stdbool.h>
#include <sys/stat.h>

#include "cmd/transfer/service.h"

/* Ranges of one file; those behind the last one of so many are taken as one range. */
#define DATA_RANGES_MAX 65536

struct data_ranges {
	struct service_range *ranges;
	size_t count, space;
	uint64_t bytes; /* sum of the lengths */
};

/* True if a file has fewer blocks than its size needs. */
bool file_is_sparse(const struct stat *status);

/*
 * Finds the ranges of a file from `offset` on, at most `most`, and joins ranges with a small hole between them.  Returns
 * their number, and sets *more if others follow.  A file system that does not know holes has one range.
 */
size_t data_ranges_find(int fd, uint64_t offset, uint64_t size, struct service_range *ranges, size_t most, bool *more);

/* Appends a range.  Returns -EPROTO unless it is behind the last one and inside the file, or -ENOMEM. */
int data_ranges_add(struct data_ranges *ranges, const struct service_range *range, uint64_t size);
/* Fills the ranges of a local file.  Returns 0 or -ENOMEM. */
int data_ranges_of_file(struct data_ranges *ranges, int fd, uint64_t size);
void data_ranges_free(struct data_ranges *ranges);

#endif
