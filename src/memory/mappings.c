/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/mappings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* PROCMAP_QUERY of linux/fs.h since Linux 6.11, where the members have the prefix vma_. */
struct mapping_query {
	uint64_t size, query_flags, query_address;
	uint64_t begin, end, flags, page_size, offset, inode;
	uint32_t device_major, device_minor, name_size, build_id_size;
	uint64_t name, build_id;
};
_Static_assert(sizeof(struct mapping_query) == 104, "layout of the kernel");

#define QUERY _IOWR('f', 17, struct mapping_query)
#define QUERY_WRITABLE 0x02u
#define QUERY_COVERING_OR_NEXT 0x10u

int pl_mappings_query(int fd, uintptr_t first, uintptr_t last)
{
	for (uintptr_t at = first;;) {
		struct mapping_query query = { .size = sizeof(query),
					       .query_flags = QUERY_COVERING_OR_NEXT,
					       .query_address = at };

		if (ioctl(fd, QUERY, &query) < 0)
			return errno == ENOENT ? 0 : -errno;
		if (query.begin > last)
			return 0;
		if (query.inode != 0 || !(query.flags & QUERY_WRITABLE))
			return 1;
		if (query.end > last)
			return 0;
		at = query.end;
	}
}

int pl_mappings_read(int fd, uintptr_t first, uintptr_t last)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), fragile = 0;
	bool any = false;
	FILE *maps = copy < 0 ? NULL : fdopen(copy, "r");
	char line[512];

	if (!maps) {
		fragile = -errno;
		if (copy >= 0)
			close(copy);
		return fragile;
	}
	while (!fragile && fgets(line, sizeof(line), maps)) {
		unsigned long begin, end, inode;
		char access[8];

		/* The rest of a name that is too long for the buffer does not look like a mapping. */
		if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &begin, &end, access, &inode) != 4)
			continue;
		any = true;
		if (begin > last)
			break;
		fragile = end > first && (inode != 0 || access[1] != 'w');
	}
	if (ferror(maps) || !any)
		fragile = -EIO;
	fclose(maps);
	return fragile;
}

/* The file of the thread, because that of the process is empty once its first thread has ended. */
bool pl_mappings_fragile(uintptr_t first, uintptr_t last)
{
	int fd = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC), fragile;

	if (fd < 0)
		return true;
	fragile = pl_mappings_query(fd, first, last);
	if (fragile < 0)
		fragile = pl_mappings_read(fd, first, last);
	close(fd);
	return fragile != 0;
}
