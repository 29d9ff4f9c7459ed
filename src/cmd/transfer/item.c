/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/item.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/common/cli.h"

static struct item *add_item(struct items *items, enum item_kind kind)
{
	struct item *item = calloc(1, sizeof(*item));

	if (!item)
		return NULL;
	item->kind = kind;
	item->fd = -1;
	item->users = 1;
	item->partial.fd = -1;
	item->next = items->first;
	items->first = item;
	return item;
}

static struct item *find_file_item(const struct items *items, const struct stat *status)
{
	struct file_version version = file_version_of(status);

	for (struct item *item = items->first; item; item = item->next)
		if (item->kind == ITEM_FILE && item->device == status->st_dev && item->inode == status->st_ino &&
		    file_version_equal(&item->version, &version))
			return item;
	return NULL;
}

static int map_file_item(struct items *items, struct item *item, const char *name, struct pl_error *error)
{
	if (item->version.size == 0)
		return 0;
	/* Private: before Linux 6.2, RDMA devices cannot register a shared read-only mapping. */
	item->bytes = mmap(NULL, item->version.size, PROT_READ, MAP_PRIVATE, item->fd, 0);
	if (item->bytes == MAP_FAILED) {
		item->bytes = NULL;
		return cli_fail_errno(error, -errno, "mmap", name);
	}
	return pl_region_register(items->context, item->bytes, item->version.size, PL_ACCESS_READ, &item->region,
				  error);
}

int item_open_file(struct items *items, int fd, const struct stat *status, const char *name, struct item **result,
		   struct pl_error *error)
{
	struct item *item = find_file_item(items, status);
	int rc;

	if (item) {
		close(fd);
		item_acquire(item);
		*result = item;
		return 0;
	}
	item = add_item(items, ITEM_FILE);
	if (!item) {
		close(fd);
		return cli_fail_errno(error, -ENOMEM, "malloc", name);
	}
	item->fd = fd;
	item->device = status->st_dev;
	item->inode = status->st_ino;
	item->version = file_version_of(status);
	rc = map_file_item(items, item, name, error);
	if (rc < 0)
		item_release(items, item, false);
	else
		*result = item;
	return rc;
}

int item_allocate_memory(struct items *items, const char *kind, uint64_t size, struct item **result,
			 struct pl_error *error)
{
	struct item *item = add_item(items, ITEM_MEMORY);
	int rc;

	if (!item)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	item->version.size = size;
	rc = pl_region_allocate_in(items->context, kind, size, PL_ACCESS_ALL, &item->region, error);
	if (rc < 0) {
		item_release(items, item, false);
		return rc;
	}
	if (!strcmp(pl_region_memory(item->region), "host"))
		item->bytes = pl_region_address(item->region);
	*result = item;
	return 0;
}

int item_open_partial_file(struct items *items, int folder, const char *name, const struct file_version *version,
			   uint64_t data, struct item **result, struct pl_error *error)
{
	struct item *item = add_item(items, ITEM_PARTIAL_FILE);
	int rc;

	if (!item) {
		close(folder);
		return cli_fail_errno(error, -ENOMEM, "malloc", name);
	}
	item->fd = folder;
	item->version = *version;
	rc = partial_file_open(&item->partial, folder, name, version, data, items->key, error);
	if (rc == 0 && item->partial.bytes)
		rc = pl_region_register(items->context, item->partial.bytes, version->size, PL_ACCESS_WRITE,
					&item->region, error);
	if (rc < 0) {
		item_release(items, item, false);
		return rc;
	}
	item->bytes = item->partial.bytes;
	*result = item;
	return 0;
}

void item_acquire(struct item *item)
{
	item->users++;
}

void item_release(struct items *items, struct item *item, bool discard)
{
	struct item **at = &items->first;

	if (!item || --item->users)
		return;
	while (*at != item)
		at = &(*at)->next;
	*at = item->next;
	pl_region_deregister(item->region);
	if (item->kind == ITEM_FILE && item->bytes)
		munmap(item->bytes, item->version.size);
	if (item->partial.fd >= 0)
		partial_file_close(&item->partial, discard || !item->partial.key);
	if (item->fd >= 0)
		close(item->fd);
	free(item);
}

void item_end_access(struct item *item)
{
	pl_region_deregister(item->region);
	item->region = NULL;
	item->bytes = NULL;
}

struct file_version item_current_version(const struct item *item)
{
	struct stat status;

	if (item->kind != ITEM_FILE || fstat(item->fd, &status) < 0)
		return item->version;
	return file_version_of(&status);
}

/* Hashes memory that the CPU cannot access, through copies. */
static int hash_device_memory(const struct item *item, struct hash_state *state, uint64_t offset, uint64_t length)
{
	uint8_t piece[64 << 10];
	int rc = 0;

	while (length && rc == 0) {
		size_t count = CLI_MIN(length, sizeof(piece));

		rc = pl_region_copy_out(item->region, offset, piece, count, NULL);
		hash_add(state, piece, count);
		offset += count;
		length -= count;
	}
	return rc;
}

int item_hash(const struct item *item, struct hash_state *state, uint64_t offset, uint64_t length)
{
	if (item->kind != ITEM_MEMORY)
		return hash_add_file(state, item->kind == ITEM_PARTIAL_FILE ? item->partial.fd : item->fd, offset,
				     length);
	if (!item->bytes)
		return hash_device_memory(item, state, offset, length);
	hash_add(state, item->bytes + offset, length);
	return 0;
}
