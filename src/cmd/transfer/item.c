/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/item.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/transfer/catalogue.h"
#include "cmd/common/cli.h"

static struct part_source source_of(const struct stat *status)
{
	uint64_t place[2] = { (uint64_t)status->st_dev, (uint64_t)status->st_ino };

	return (struct part_source){
		.size = (uint64_t)status->st_size,
		.modified = catalogue_modified(status),
		.identity = hash_small(place, sizeof(place)),
	};
}

static bool same_source(const struct part_source *a, const struct part_source *b)
{
	return a->size == b->size && a->modified == b->modified && a->identity == b->identity;
}

static struct item *new_item(struct items *items, enum item_kind kind)
{
	struct item *item = calloc(1, sizeof(*item));

	if (!item)
		return NULL;
	item->kind = kind;
	item->fd = -1;
	item->users = 1;
	item->part.fd = -1;
	item->next = items->first;
	items->first = item;
	return item;
}

static struct item *find_file(const struct items *items, const struct stat *status)
{
	struct part_source source = source_of(status);

	for (struct item *item = items->first; item; item = item->next)
		if (item->kind == ITEM_FILE && item->device == status->st_dev && item->inode == status->st_ino &&
		    same_source(&item->source, &source))
			return item;
	return NULL;
}

static int map_file(struct items *items, struct item *item, const char *name, struct pl_error *error)
{
	if (item->source.size == 0)
		return 0;
	/* Private: before Linux 6.2 no RDMA device gets at a mapping that is shared and read-only. */
	item->bytes = mmap(NULL, item->source.size, PROT_READ, MAP_PRIVATE, item->fd, 0);
	if (item->bytes == MAP_FAILED) {
		item->bytes = NULL;
		return cli_fail_errno(error, -errno, "mmap", name);
	}
	return pl_region_register(items->context, item->bytes, item->source.size, PL_ACCESS_READ, &item->region, error);
}

int item_of_file(struct items *items, int fd, const struct stat *status, const char *name, struct item **result,
		 struct pl_error *error)
{
	struct item *item = find_file(items, status);
	int rc;

	if (item) {
		close(fd);
		item_use(item);
		*result = item;
		return 0;
	}
	item = new_item(items, ITEM_FILE);
	if (!item) {
		close(fd);
		return cli_fail_errno(error, -ENOMEM, "malloc", name);
	}
	item->fd = fd;
	item->device = status->st_dev;
	item->inode = status->st_ino;
	item->source = source_of(status);
	rc = map_file(items, item, name, error);
	if (rc < 0)
		item_release(items, item, false);
	else
		*result = item;
	return rc;
}

int item_of_memory(struct items *items, const char *kind, uint64_t size, struct item **result, struct pl_error *error)
{
	struct item *item = new_item(items, ITEM_MEMORY);
	int rc;

	if (!item)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	item->source.size = size;
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

int item_of_part(struct items *items, int folder, const char *name, const struct part_source *source,
		 struct item **result, struct pl_error *error)
{
	struct item *item = new_item(items, ITEM_PART);
	int rc;

	if (!item) {
		close(folder);
		return cli_fail_errno(error, -ENOMEM, "malloc", name);
	}
	item->fd = folder;
	item->source = *source;
	rc = part_open(&item->part, folder, name, source, true, error);
	if (rc == 0 && item->part.bytes)
		rc = pl_region_register(items->context, item->part.bytes, source->size, PL_ACCESS_WRITE, &item->region,
					error);
	if (rc < 0) {
		item_release(items, item, false);
		return rc;
	}
	item->bytes = item->part.bytes;
	*result = item;
	return 0;
}

void item_use(struct item *item)
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
		munmap(item->bytes, item->source.size);
	if (item->part.fd >= 0)
		part_close(&item->part, discard);
	if (item->fd >= 0)
		close(item->fd);
	free(item);
}

int item_commit(struct item *item, struct pl_error *error)
{
	if (item->kind != ITEM_PART)
		return 0;
	pl_region_deregister(item->region);
	item->region = NULL;
	item->bytes = NULL;
	return part_commit(&item->part, error);
}

struct part_source item_source_now(const struct item *item)
{
	struct stat status;

	if (item->kind != ITEM_FILE || fstat(item->fd, &status) < 0)
		return item->source;
	return source_of(&status);
}

/* Memory that only the kind's copies reach. */
static int hash_copied(const struct item *item, struct hash_state *state, uint64_t offset, uint64_t length)
{
	uint8_t piece[64 << 10];
	int rc = 0;

	while (length && rc == 0) {
		size_t part = CLI_MIN(length, sizeof(piece));

		rc = pl_region_copy_out(item->region, offset, piece, part, NULL);
		hash_add(state, piece, part);
		offset += part;
		length -= part;
	}
	return rc;
}

int item_hash(const struct item *item, struct hash_state *state, uint64_t offset, uint64_t length)
{
	if (item->kind != ITEM_MEMORY)
		return hash_add_file(state, item->kind == ITEM_PART ? item->part.fd : item->fd, offset, length);
	if (!item->bytes)
		return hash_copied(item, state, offset, length);
	hash_add(state, item->bytes + offset, length);
	return 0;
}
