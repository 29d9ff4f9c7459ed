/* SPDX-License-Identifier: BSD-2-Clause */
/* What a server publishes: files by path, directories with all below them, blocks of memory. */
#ifndef PL_CLI_CATALOGUE_H
#define PL_CLI_CATALOGUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <peerlane/peerlane.h>

#include "cmd/transfer/service.h"

struct item;

struct catalogue_entry {
	char *name;
	uint64_t size, modified;
	uint32_t root;
	uint8_t kind; /* enum service_kind */
};

struct catalogue_root {
	enum { ROOT_FILE, ROOT_FOLDER, ROOT_MEMORY } kind;
	char *name; /* as clients ask for it; NULL for a folder */
	char *path;
	int folder;          /* descriptor, or -1 */
	struct item *memory; /* the caller's */
	uint64_t size;
};

/* What a scan left out. */
struct catalogue_skipped {
	unsigned links, unreadable, duplicates, long_names;
};

struct catalogue {
	bool follow; /* symbolic links */
	struct catalogue_root *roots;
	size_t root_count;
	struct catalogue_entry *entries; /* sorted by name, each once */
	size_t count, room;
	uint64_t bytes;
	uint64_t scanned; /* when; 0: never */
	struct catalogue_skipped skipped;
};

/* Publishes a file under its last name, or a folder's files under their names in it. */
int catalogue_add_path(struct catalogue *catalogue, const char *path, struct pl_error *error);
int catalogue_add_memory(struct catalogue *catalogue, const char *name, uint64_t size, struct item *memory,
			 struct pl_error *error);
void catalogue_clear(struct catalogue *catalogue);

/* Scans anew unless that was done less than `age` nanoseconds ago. */
int catalogue_refresh(struct catalogue *catalogue, uint64_t age, struct pl_error *error);
/* Index of the first entry behind `name` in order of names; `count` if there is none. */
size_t catalogue_after(const struct catalogue *catalogue, const char *name);

/* The memory that is published as `name`, or NULL. */
struct item *catalogue_memory(const struct catalogue *catalogue, const char *name);
/* Opens what is published as `name` now: a descriptor of a regular file and its status, or a negative errno. */
int catalogue_open(const struct catalogue *catalogue, const char *name, struct stat *status, struct pl_error *error);

/*
 * Opens a name below a folder.  Unless `follow`, no part of it may be a symbolic link, so that it
 * cannot lead out of the folder; the name must be valid (service_name_valid()).
 */
int catalogue_open_below(int folder, const char *name, int flags, bool follow);

/* Of catalogue_refresh() (scan.c): all files of a folder; one entry.  0 or -ENOMEM. */
int catalogue_scan(struct catalogue *catalogue, uint32_t root);
int catalogue_add_entry(struct catalogue *catalogue, const char *name, enum service_kind kind, uint64_t size,
			uint64_t modified, uint32_t root);

static inline uint64_t catalogue_modified(const struct stat *status)
{
	return (uint64_t)status->st_mtim.tv_sec * 1000000000u + (uint64_t)status->st_mtim.tv_nsec;
}

#endif
