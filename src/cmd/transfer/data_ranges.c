/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/data_ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Smaller holes are transferred: a further range costs more. */
#define HOLE_MIN (64u << 10)
#define BLOCK 512u
/* Ranges that are asked for at a time. */
#define BATCH 256

bool file_is_sparse(const struct stat *status)
{
	return S_ISREG(status->st_mode) && (uint64_t)status->st_blocks * BLOCK < (uint64_t)status->st_size;
}

size_t data_ranges_find(int fd, uint64_t offset, uint64_t size, struct service_range *ranges, size_t most, bool *more)
{
	size_t count = 0;

	*more = false;
	while (offset < size) {
		off_t begin = lseek(fd, (off_t)offset, SEEK_DATA), end;

		/* ENXIO: no data follows.  Other errors: the file system does not know. */
		if (begin < 0 && errno == ENXIO)
			break;
		if (begin < 0 || (uint64_t)begin < offset)
			begin = (off_t)offset;
		if ((uint64_t)begin >= size)
			break;
		end = lseek(fd, begin, SEEK_HOLE);
		if (end <= begin || (uint64_t)end > size)
			end = (off_t)size;
		offset = (uint64_t)end;
		if (count && (uint64_t)begin - ranges[count - 1].offset - ranges[count - 1].length < HOLE_MIN) {
			ranges[count - 1].length = (uint64_t)end - ranges[count - 1].offset;
			continue;
		}
		if (count == most) {
			*more = true;
			break;
		}
		ranges[count++] = (struct service_range){ (uint64_t)begin, (uint64_t)(end - begin) };
	}
	return count;
}

int data_ranges_add(struct data_ranges *ranges, const struct service_range *range, uint64_t size)
{
	uint64_t end = ranges->count ? ranges->ranges[ranges->count - 1].offset + ranges->ranges[ranges->count - 1].length
				     : 0;
	struct service_range *grown;

	if (range->length == 0 || range->offset < end || range->offset > size || range->length > size - range->offset)
		return -EPROTO;
	if (ranges->count == ranges->space) {
		ranges->space = ranges->space ? 2 * ranges->space : BATCH;
		grown = realloc(ranges->ranges, ranges->space * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		ranges->ranges = grown;
	}
	ranges->ranges[ranges->count++] = *range;
	ranges->bytes += range->length;
	return 0;
}

int data_ranges_of_file(struct data_ranges *ranges, int fd, uint64_t size)
{
	struct service_range found[BATCH];
	uint64_t offset = 0;
	bool more = true;
	int rc = 0;

	while (more && rc == 0) {
		size_t count = data_ranges_find(fd, offset, size, found, BATCH, &more);

		for (size_t i = 0; i < count && rc == 0; i++)
			rc = data_ranges_add(ranges, &found[i], size);
		if (count)
			offset = found[count - 1].offset + found[count - 1].length;
		if (more && ranges->count >= DATA_RANGES_MAX) {
			rc = data_ranges_add(ranges, &(struct service_range){ offset, size - offset }, size);
			break;
		}
	}
	return rc;
}

void data_ranges_free(struct data_ranges *ranges)
{
	free(ranges->ranges);
	*ranges = (struct data_ranges){ 0 };
}
