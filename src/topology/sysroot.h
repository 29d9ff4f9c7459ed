/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files below a directory that stands for "/": this machine's, or what was captured on another one.
 * Nothing outside of it is ever read, whatever symbolic links say, and nothing that could block: what
 * is neither a regular file nor a directory is not opened.
 *
 * Paths begin at that directory, with or without a slash, and are formats of printf(3).  Functions
 * return 0, a length, or a negative errno; -ENOENT is what is usual on another machine.
 */
#ifndef PL_SYSROOT_H
#define PL_SYSROOT_H

#include "base/base.h"

#define PL_SYSROOT_PATH_MAX 4096
/* More names than this in one directory are left out. */
#define PL_SYSROOT_LIST_MAX 65536

struct pl_sysroot;

enum pl_sysroot_kind {
	PL_SYSROOT_FILE = 1,
	PL_SYSROOT_FOLDER,
	PL_SYSROOT_LINK,
	PL_SYSROOT_OTHER, /* a device, a socket, a pipe: there, and not to be read */
};

/* Names in a directory, sorted by their bytes, without "." and "..". */
struct pl_sysroot_list {
	char **names;
	size_t count, room;
	bool cut; /* there were more */
};

/* path: a directory; NULL or "/" is this machine itself. */
int pl_sysroot_open(struct pl_sysroot **ret, const char *path, struct pl_error *error);
void pl_sysroot_close(struct pl_sysroot *root);

/* Whether it is the machine that this program runs on, so that asking the kernel fits what is read. */
bool pl_sysroot_is_live(const struct pl_sysroot *root);

/*
 * A whole text file without white space at its end, NUL-terminated; control characters but newline and
 * tabulator are replaced by '?'.  Its length, or -EFBIG if it does not fit.
 */
int pl_sysroot_text(struct pl_sysroot *root, char *buffer, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* The first bytes of a file as they are: how many there were, up to size. */
int pl_sysroot_bytes(struct pl_sysroot *root, void *buffer, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* A file of any size up to limit (-EFBIG beyond), in memory to be freed; one more byte at its end is 0. */
int pl_sysroot_load(struct pl_sysroot *root, size_t limit, char **data, size_t *length, const char *path, ...)
	__attribute__((format(printf, 5, 6)));
/* The number that a file begins with: decimal, or hexadecimal after 0x; base 16 needs no 0x.  -EINVAL if none. */
int pl_sysroot_number(struct pl_sysroot *root, unsigned base, uint64_t *value, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* The same with a sign, in decimal. */
int pl_sysroot_signed(struct pl_sysroot *root, int64_t *value, const char *path, ...)
	__attribute__((format(printf, 3, 4)));
/* What a symbolic link says, unchanged. */
int pl_sysroot_link(struct pl_sysroot *root, char *buffer, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* The last component of that: the driver of a device, its IOMMU group. */
int pl_sysroot_link_name(struct pl_sysroot *root, char *buffer, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* Where a path leads when all links are followed; without a slash at its beginning. */
int pl_sysroot_resolve(struct pl_sysroot *root, char *buffer, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* Links are followed: never PL_SYSROOT_LINK. */
int pl_sysroot_kind(struct pl_sysroot *root, const char *path, ...) __attribute__((format(printf, 2, 3)));
bool pl_sysroot_exists(struct pl_sysroot *root, const char *path, ...) __attribute__((format(printf, 2, 3)));
/* On failure the list is empty. */
int pl_sysroot_list(struct pl_sysroot *root, struct pl_sysroot_list *list, const char *path, ...)
	__attribute__((format(printf, 3, 4)));
void pl_sysroot_list_free(struct pl_sysroot_list *list);

/* -- for those who provide one ------------------------------------------------------------------- */

/* A file that is being read. */
struct pl_sysroot_file {
	int fd;
	const char *data;
	size_t length;
};

/*
 * Paths that a provider is given have no empty component, no ".", no slash at either end; "" is the
 * root.  Where `resolves` is false they have no ".." and no link in front of their last component
 * either, and the last one, if it is a link, is to be taken as what it is.
 */
struct pl_sysroot_ops {
	bool resolves;
	int (*kind)(struct pl_sysroot *root, const char *path); /* never follows the last component */
	/* The length, without a NUL; cut to size.  -EINVAL if it is no link. */
	int (*link)(struct pl_sysroot *root, const char *path, char *buffer, size_t size);
	int (*open)(struct pl_sysroot *root, const char *path, struct pl_sysroot_file *file);
	int (*read)(struct pl_sysroot_file *file, void *buffer, size_t size); /* 0 at the end */
	void (*shut)(struct pl_sysroot_file *file);
	/* Hands each name to pl_sysroot_list_add(), in any order, and ends when that fails. */
	int (*list)(struct pl_sysroot *root, const char *path, struct pl_sysroot_list *list);
	void (*close)(struct pl_sysroot *root);
};

/* The beginning of a provider's own structure. */
struct pl_sysroot {
	const struct pl_sysroot_ops *ops;
	bool live;
};

/* -ENOMEM, or -E2BIG when the list is full. */
int pl_sysroot_list_add(struct pl_sysroot_list *list, const char *name);

/* Follows all links by ops->kind and ops->link; with `last` false the last component stays as it is. */
int pl_sysroot_walk(struct pl_sysroot *root, const char *path, bool last, char *buffer, size_t size);

/* A directory; with `kernel` false its links are followed here instead of in the kernel, as where openat2(2) is not. */
int pl_sysroot_open_folder(struct pl_sysroot **ret, const char *path, bool kernel, struct pl_error *error);

#endif
