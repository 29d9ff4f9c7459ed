/* SPDX-License-Identifier: BSD-2-Clause */
/* Follows symbolic links below a root, for providers that do not. */
#include "topology/sysroot.h"

#include <stdio.h>

#define LINKS_MAX 40 /* as in the kernel */

/* Removes the last component of a canonical path. */
static void go_up(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
	else
		*path = '\0';
}

/* Puts a link's target before the rest of the path. */
static int splice(char *rest, size_t size, const char *target, const char *after)
{
	char joined[PL_SYSROOT_PATH_MAX];
	int length = snprintf(joined, sizeof(joined), "%s/%s", target, after);

	if ((size_t)length >= sizeof(joined) || (size_t)length >= size)
		return -ENAMETOOLONG;
	memcpy(rest, joined, (size_t)length + 1);
	return 0;
}

struct walk {
	char rest[PL_SYSROOT_PATH_MAX];
	char *path; /* canonical: the part walked so far */
	size_t size;
	unsigned links;
	bool last;
};

/* Appends a component; for a link to follow, puts its target before the rest instead. */
static int walk_component(struct pl_sysroot *root, struct walk *walk, const char *name, const char *after)
{
	char target[PL_SYSROOT_PATH_MAX];
	size_t length = strlen(walk->path);
	int rc = snprintf(walk->path + length, walk->size - length, "%s%s", length ? "/" : "", name);

	if ((size_t)rc >= walk->size - length)
		return -ENAMETOOLONG;
	if (!*after && !walk->last) {
		walk->rest[0] = '\0';
		return 0;
	}
	rc = root->ops->kind(root, walk->path);
	if (rc == PL_SYSROOT_LINK) {
		if (++walk->links > LINKS_MAX)
			return -ELOOP;
		rc = root->ops->link(root, walk->path, target, sizeof(target) - 1);
		if (rc <= 0)
			return rc < 0 ? rc : -ENOENT;
		target[rc] = '\0';
		if (target[0] == '/')
			walk->path[0] = '\0';
		else
			go_up(walk->path);
		return splice(walk->rest, sizeof(walk->rest), target, after);
	}
	if (rc < 0)
		return rc;
	if (*after && rc != PL_SYSROOT_FOLDER)
		return -ENOTDIR;
	memmove(walk->rest, after, strlen(after) + 1);
	return 0;
}

int pl_sysroot_walk(struct pl_sysroot *root, const char *path, bool last, char *buffer, size_t size)
{
	struct walk walk = { .path = buffer, .size = size, .last = last };

	if (!size || strlen(path) >= sizeof(walk.rest))
		return -ENAMETOOLONG;
	strcpy(walk.rest, path);
	buffer[0] = '\0';
	for (;;) {
		char name[PL_SYSROOT_PATH_MAX];
		const char *at = walk.rest + strspn(walk.rest, "/");
		size_t length = strcspn(at, "/");
		const char *after = at + length + strspn(at + length, "/");
		int rc = 0;

		if (!length)
			return 0;
		memcpy(name, at, length);
		name[length] = '\0';
		if (!strcmp(name, ".") || !strcmp(name, "..")) {
			if (name[1])
				go_up(buffer);
			memmove(walk.rest, after, strlen(after) + 1);
		} else {
			rc = walk_component(root, &walk, name, after);
		}
		if (rc < 0)
			return rc;
	}
}
