/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files below a directory that stands for "/": this machine's, or a capture of another one. Reads never leave the
 * directory, even through symbolic links, and never block: only regular files and directories are opened.
 *
 * Paths begin at that directory, with or without a slash, and are formats of printf(3). Functions return 0, a length,
 * or a negative errno; -ENOENT is common on other machines.
 */
#ifndef PL_SYSROOT_H
#define PL_SYSROOT_H

#include "base/base.h"

#define PL_SYSROOT_PATH_MAX 4096
/* Further names in one directory are left out. */
#define PL_SYSROOT_LIST_MAX 65536

struct pl_sysroot;

enum pl_sysroot_kind {
	PL_SYSROOT_FILE = 1,
	PL_SYSROOT_FOLDER,
	PL_SYSROOT_LINK,
	PL_SYSROOT_OTHER, /* a device, a socket or a pipe, which is not read */
};

/* Names in a directory, sorted by their bytes, without "." and "..". */
struct pl_sysroot_list {
	char **names;
	size_t count, room;
	bool cut; /* the directory has more names */
};

/* path: a directory; NULL or "/": this machine. */
int pl_sysroot_open(struct pl_sysroot **ret, const char *path, struct pl_error *error);
void pl_sysroot_close(struct pl_sysroot *root);

/* True if the root is the machine that runs this program, so that questions to the kernel fit the files. */
bool pl_sysroot_is_live(const struct pl_sysroot *root);

/*
 * Reads a whole text file without trailing white space, NUL-terminated; control characters but newline and tab become
 * '?'. Returns its length, or -EFBIG if it does not fit.
 */
int pl_sysroot_text(struct pl_sysroot *root, char *buffer, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* Reads the first bytes of a file unchanged. Returns their number, up to size. */
int pl_sysroot_bytes(struct pl_sysroot *root, void *buffer, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* Reads a file of any size up to limit (-EFBIG beyond) into memory to be freed; a 0 follows its last byte. */
int pl_sysroot_load(struct pl_sysroot *root, size_t limit, char **data, size_t *length, const char *path, ...)
	__attribute__((format(printf, 5, 6)));
/*
 * Parses the number at the beginning of a file: decimal, or hexadecimal after 0x; base 16 needs no 0x. -EINVAL if there
 * is none.
 */
int pl_sysroot_number(struct pl_sysroot *root, unsigned base, uint64_t *value, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* The same with a sign, in decimal. */
int pl_sysroot_signed(struct pl_sysroot *root, int64_t *value, const char *path, ...)
	__attribute__((format(printf, 3, 4)));
/* Reads a symbolic link unchanged. */
int pl_sysroot_link(struct pl_sysroot *root, char *buffer, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* Reads the last component of a link: the driver of a device, its IOMMU group. */
int pl_sysroot_link_name(struct pl_sysroot *root, char *buffer, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* Resolves all links of a path; the result has no leading slash. */
int pl_sysroot_resolve(struct pl_sysroot *root, char *buffer, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* Follows links: never returns PL_SYSROOT_LINK. */
int pl_sysroot_kind(struct pl_sysroot *root, const char *path, ...) __attribute__((format(printf, 2, 3)));
bool pl_sysroot_exists(struct pl_sysroot *root, const char *path, ...) __attribute__((format(printf, 2, 3)));
/* On failure the list is empty. */
int pl_sysroot_list(struct pl_sysroot *root, struct pl_sysroot_list *list, const char *path, ...)
	__attribute__((format(printf, 3, 4)));
void pl_sysroot_list_free(struct pl_sysroot_list *list);

/* -- for providers ------------------------------------------------------------------------------- */

/* File that is being read. */
struct pl_sysroot_file {
	int fd;
	const char *data;
	size_t length;
};

/*
 * Paths for a provider have no empty component, no ".", no slash at either end; "" is the root. If `resolves` is false
 * they have no "..", and no link before their last component; the last one, if it is a link, is taken as it is.
 */
struct pl_sysroot_ops {
	bool resolves;
	int (*kind)(struct pl_sysroot *root, const char *path); /* never follows the last component */
	/* Returns the length, without a NUL; cut to size. -EINVAL if it is no link. */
	int (*link)(struct pl_sysroot *root, const char *path, char *buffer, size_t size);
	int (*open)(struct pl_sysroot *root, const char *path, struct pl_sysroot_file *file);
	int (*read)(struct pl_sysroot_file *file, void *buffer, size_t size); /* returns 0 at the end */
	void (*shut)(struct pl_sysroot_file *file);
	/* Passes each name to pl_sysroot_list_add(), in any order, until that fails. */
	int (*list)(struct pl_sysroot *root, const char *path, struct pl_sysroot_list *list);
	void (*close)(struct pl_sysroot *root);
};

/* First member of a provider's own structure. */
struct pl_sysroot {
	const struct pl_sysroot_ops *ops;
	bool live;
};

/* Returns -ENOMEM, or -E2BIG if the list is full. */
int pl_sysroot_list_add(struct pl_sysroot_list *list, const char *name);

/* Follows all links with ops->kind and ops->link; if `last` is false the last component stays as it is. */
int pl_sysroot_walk(struct pl_sysroot *root, const char *path, bool last, char *buffer, size_t size);

/* Opens a directory. If `kernel` is false this code follows its links, as on kernels without openat2(2). */
int pl_sysroot_open_folder(struct pl_sysroot **ret, const char *path, bool kernel, struct pl_error *error);

#endif
