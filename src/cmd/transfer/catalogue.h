/* SPDX-License-Identifier: BSD-2-Clause */
/* Catalogue of a server: the published files, directories and blocks of memory. */
#ifndef PL_CMD_TRANSFER_CATALOGUE_H
#define PL_CMD_TRANSFER_CATALOGUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <peerlane/peerlane.h>

#include "cmd/transfer/file_version.h"
#include "cmd/transfer/service.h"

struct item;

struct catalogue_entry {
	char *name;
	uint64_t size, modified;
	uint32_t root; /* index of the root that publishes it */
	uint8_t kind;  /* enum service_kind */
};

/* Path or block of memory given to `peerlane serve`. */
struct catalogue_root {
	enum { ROOT_FILE, ROOT_FOLDER, ROOT_MEMORY } kind;
	char *name; /* published name; NULL for a folder */
	char *path;
	int folder;          /* descriptor, or -1 */
	struct item *memory; /* owned by the caller */
	uint64_t size;
};

/* Numbers of entries that a scan left out. */
struct catalogue_skipped {
	unsigned links, unreadable, duplicates, long_names;
};

struct catalogue {
	bool follow; /* follow symbolic links */
	struct catalogue_root *roots;
	size_t root_count;
	struct catalogue_entry *entries; /* sorted by name; names are unique */
	size_t count, room;
	size_t blocks; /* of the entries, blocks of memory */
	uint64_t bytes;
	uint64_t scanned; /* time of the last scan; 0: never */
	struct catalogue_skipped skipped;
};

/* Publishes a file under its name, or the files of a folder under their names relative to the folder. */
int catalogue_add_path(struct catalogue *catalogue, const char *path, struct pl_error *error);
int catalogue_add_memory(struct catalogue *catalogue, const char *name, uint64_t size, struct item *memory,
			 struct pl_error *error);
void catalogue_clear(struct catalogue *catalogue);

/* Scans again if the last scan is at least `age` nanoseconds old. */
int catalogue_refresh(struct catalogue *catalogue, uint64_t age, struct pl_error *error);
/* Returns the index of the first entry whose name is greater than `name`; `count` if there is none. */
size_t catalogue_after(const struct catalogue *catalogue, const char *name);

/* Returns the memory published as `name`, or NULL. */
struct item *catalogue_memory(const struct catalogue *catalogue, const char *name);
/* Opens the file published as `name`.  Returns a descriptor and fills *status, or returns a negative errno. */
int catalogue_open(const struct catalogue *catalogue, const char *name, struct stat *status, struct pl_error *error);

/*
 * Opens a name below a folder.  The name must be valid (service_name_valid()).  Unless `follow`, no component of the name
 * may be a symbolic link, so the name cannot lead out of the folder.
 */
int catalogue_open_below(int folder, const char *name, int flags, bool follow);

/* Makes one directory below a folder, whose parent exists and is reached without symbolic links. */
int catalogue_make_folder(int folder, const char *name);

/* Helpers of catalogue_refresh() (scan.c): add all files of a folder, or one entry.  Return 0 or -ENOMEM. */
int catalogue_scan(struct catalogue *catalogue, uint32_t root);
int catalogue_add_entry(struct catalogue *catalogue, const char *name, enum service_kind kind, uint64_t size,
			uint64_t modified, uint32_t root);

#endif
