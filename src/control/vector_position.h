/* SPDX-License-Identifier: BSD-2-Clause */
/* Positions in vectors of memory, of which records take one part after the other. */
#ifndef PL_VECTOR_POSITION_H
#define PL_VECTOR_POSITION_H

#include <sys/uio.h>

#include "base/base.h"

/* Most elements of a vector in one part. */
#define PL_POSITION_PARTS 256

struct pl_position {
	const struct iovec *vector;
	int count;
	size_t offset; /* in the first element */
	size_t total;  /* bytes before */
};

static inline void pl_position_advance(struct pl_position *at, size_t length)
{
	at->total += length;
	while (at->count && length >= at->vector->iov_len - at->offset) {
		length -= at->vector->iov_len - at->offset;
		at->offset = 0;
		at->vector++;
		at->count--;
	}
	at->offset += length;
}

/* Returns the rest of the first element, or no memory at the end. */
static inline struct iovec pl_position_rest(const struct pl_position *at)
{
	if (!at->count)
		return (struct iovec){ NULL, 0 };
	return (struct iovec){ (char *)at->vector->iov_base + at->offset, at->vector->iov_len - at->offset };
}

/* Fills `parts` with the next bytes of a vector, at most `most`. Returns the number of elements. */
static inline int pl_position_slice(struct pl_position at, struct iovec parts[PL_POSITION_PARTS], size_t most,
				    size_t *length)
{
	int count = 0;

	*length = 0;
	while (at.count && count < PL_POSITION_PARTS && *length < most) {
		struct iovec part = pl_position_rest(&at);

		part.iov_len = PL_MIN(part.iov_len, most - *length);
		if (part.iov_len)
			parts[count++] = part;
		*length += part.iov_len;
		pl_position_advance(&at, part.iov_len);
	}
	return count;
}

#endif
