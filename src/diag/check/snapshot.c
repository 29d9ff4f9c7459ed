/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/check/snapshot.h"

#include <search.h>
#include <stdlib.h>

struct node {
	struct pl_snapshot_entry entry; /* its path is the key */
	bool known;                     /* the content of a file */
	struct node *child, *next;
};

struct pl_snapshot {
	struct pl_sysroot base;
	void *tree;
	struct node *top; /* the root folder */
	size_t count, bytes;
};

static int compare_nodes(const void *a, const void *b)
{
	return strcmp(((const struct node *)a)->entry.path, ((const struct node *)b)->entry.path);
}

static struct node *find_snapshot_node(const struct pl_snapshot *snapshot, const char *path)
{
	struct node key = { .entry.path = path }, **found = tfind(&key, &snapshot->tree, compare_nodes);

	return found ? *found : NULL;
}

/* -- ops ------------------------------------------------------------------------------------------- */

static struct pl_snapshot *snapshot_of_root(struct pl_sysroot *root)
{
	return pl_container_of(root, struct pl_snapshot, base);
}

static int snapshot_kind(struct pl_sysroot *root, const char *path)
{
	struct node *node = find_snapshot_node(snapshot_of_root(root), path);

	return node ? (int)node->entry.kind : -ENOENT;
}

static int snapshot_link(struct pl_sysroot *root, const char *path, char *buffer, size_t size)
{
	struct node *node = find_snapshot_node(snapshot_of_root(root), path);
	size_t length;

	if (!node)
		return -ENOENT;
	if (node->entry.kind != PL_SYSROOT_LINK)
		return -EINVAL;
	length = PL_MIN(node->entry.length, size);
	memcpy(buffer, node->entry.data, length);
	return (int)length;
}

static int snapshot_open(struct pl_sysroot *root, const char *path, struct pl_sysroot_file *file)
{
	struct node *node = find_snapshot_node(snapshot_of_root(root), path);

	if (!node)
		return -ENOENT;
	if (node->entry.kind == PL_SYSROOT_FOLDER)
		return -EISDIR;
	if (node->entry.kind != PL_SYSROOT_FILE)
		return -EINVAL;
	if (node->entry.unreadable)
		return -EACCES;
	file->data = node->entry.data;
	file->length = node->entry.length;
	return 0;
}

int pl_snapshot_read(struct pl_sysroot_file *file, void *buffer, size_t size)
{
	size_t length = PL_MIN(file->length, size);

	if (length)
		memcpy(buffer, file->data, length);
	file->data += length;
	file->length -= length;
	return (int)length;
}

void pl_snapshot_shut(struct pl_sysroot_file *file)
{
	file->data = NULL;
}

static int snapshot_list(struct pl_sysroot *root, const char *path, struct pl_sysroot_list *list)
{
	struct node *node = find_snapshot_node(snapshot_of_root(root), path);
	int rc = 0;

	if (!node)
		return -ENOENT;
	if (node->entry.kind != PL_SYSROOT_FOLDER)
		return -ENOTDIR;
	for (struct node *child = node->child; rc == 0 && child; child = child->next) {
		const char *slash = strrchr(child->entry.path, '/');

		rc = pl_sysroot_list_add(list, slash ? slash + 1 : child->entry.path);
	}
	return rc;
}

static void snapshot_close(struct pl_sysroot *root)
{
	pl_snapshot_free(snapshot_of_root(root));
}

static const struct pl_sysroot_ops ops = {
	.resolves = false,
	.kind = snapshot_kind,
	.link = snapshot_link,
	.open = snapshot_open,
	.read = pl_snapshot_read,
	.shut = pl_snapshot_shut,
	.list = snapshot_list,
	.close = snapshot_close,
};

/* -- adding ---------------------------------------------------------------------------------------- */

static struct node *make_snapshot_node(struct pl_snapshot *snapshot, const char *path, enum pl_sysroot_kind kind)
{
	struct node *node = calloc(1, sizeof(*node)), **slot;

	if (!node)
		return NULL;
	node->entry.path = strdup(path);
	node->entry.kind = kind;
	slot = node->entry.path ? tsearch(node, &snapshot->tree, compare_nodes) : NULL;
	if (!slot) {
		free((char *)(uintptr_t)node->entry.path);
		free(node);
		return NULL;
	}
	snapshot->count++;
	return node;
}

struct pl_snapshot *pl_snapshot_new(void)
{
	struct pl_snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot)
		return NULL;
	snapshot->base.ops = &ops;
	snapshot->top = make_snapshot_node(snapshot, "", PL_SYSROOT_FOLDER);
	if (!snapshot->top) {
		free(snapshot);
		return NULL;
	}
	return snapshot;
}

static void free_node(void *pointer)
{
	struct node *node = pointer;

	free((char *)(uintptr_t)node->entry.path);
	free((char *)(uintptr_t)node->entry.data);
	free(node);
}

void pl_snapshot_free(struct pl_snapshot *snapshot)
{
	if (!snapshot)
		return;
	tdestroy(snapshot->tree, free_node);
	free(snapshot);
}

/* Copies the path without empty components and ".". Refuses "..", which no capture has. */
static int tidy_snapshot_path(char *to, size_t size, const char *path)
{
	size_t length = 0;

	if (strlen(path) >= size)
		return -ENAMETOOLONG;
	for (const char *at = path + strspn(path, "/"); *at; at += strspn(at, "/")) {
		size_t part = strcspn(at, "/");

		if (part == 2 && at[0] == '.' && at[1] == '.')
			return -EINVAL;
		if (part != 1 || at[0] != '.') {
			if (length)
				to[length++] = '/';
			memcpy(to + length, at, part);
			length += part;
		}
		at += part;
	}
	to[length] = '\0';
	return 0;
}

static struct node *add_below(struct pl_snapshot *snapshot, struct node *parent, const char *path,
			      enum pl_sysroot_kind kind)
{
	struct node *node = make_snapshot_node(snapshot, path, kind);

	if (node) {
		node->next = parent->child;
		parent->child = node;
	}
	return node;
}

/* Returns the node of a path, and creates all folders above it. */
static int reach(struct pl_snapshot *snapshot, char *path, enum pl_sysroot_kind kind, struct node **ret)
{
	struct node *parent = snapshot->top, *node = snapshot->top;

	for (char *at = path; *at;) {
		char *end = at + strcspn(at, "/"), saved = *end;

		*end = '\0';
		node = find_snapshot_node(snapshot, path);
		if (parent->entry.kind != PL_SYSROOT_FOLDER)
			return -ENOTDIR;
		if (!node && snapshot->count >= PL_SNAPSHOT_ENTRIES_MAX)
			return -EFBIG;
		if (!node)
			node = add_below(snapshot, parent, path, saved ? PL_SYSROOT_FOLDER : kind);
		if (!node)
			return -ENOMEM;
		*end = saved;
		parent = node;
		at = saved ? end + 1 : end;
	}
	*ret = node;
	return 0;
}

static int fill_snapshot_node(struct pl_snapshot *snapshot, struct node *node, const struct pl_snapshot_entry *entry)
{
	char *data;

	if (entry->length > PL_SNAPSHOT_BYTES_MAX - snapshot->bytes)
		return -EFBIG;
	data = malloc(entry->length + 1);
	if (!data)
		return -ENOMEM;
	if (entry->length)
		memcpy(data, entry->data, entry->length);
	data[entry->length] = '\0';
	snapshot->bytes += entry->length;
	free((char *)(uintptr_t)node->entry.data);
	node->entry.data = data;
	node->entry.length = entry->length;
	node->known = true;
	return 0;
}

int pl_snapshot_add(struct pl_snapshot *snapshot, const struct pl_snapshot_entry *entry)
{
	char path[PL_SYSROOT_PATH_MAX];
	struct node *node;
	int rc = tidy_snapshot_path(path, sizeof(path), entry->path);

	if (rc == 0)
		rc = reach(snapshot, path, entry->kind, &node);
	if (rc < 0)
		return rc;
	if (node->entry.kind != entry->kind || node->known)
		return 0;
	if (entry->unreadable)
		node->entry.unreadable = true;
	return entry->data ? fill_snapshot_node(snapshot, node, entry) : 0;
}

int pl_snapshot_replace(struct pl_snapshot *snapshot, const char *path, const char *data, size_t length)
{
	struct pl_snapshot_entry entry = { .path = path, .kind = PL_SYSROOT_FILE, .data = data, .length = length };
	struct node *node = find_snapshot_node(snapshot, path + strspn(path, "/"));

	if (node && node->entry.kind == PL_SYSROOT_FILE)
		return fill_snapshot_node(snapshot, node, &entry);
	return pl_snapshot_add(snapshot, &entry);
}

size_t pl_snapshot_count(const struct pl_snapshot *snapshot)
{
	return snapshot->count;
}

struct pl_sysroot *pl_snapshot_root(struct pl_snapshot *snapshot)
{
	return &snapshot->base;
}

struct walk {
	void (*visit)(const struct pl_snapshot_entry *entry, void *user);
	void *user;
};

static void next_component(const void *pointer, VISIT visit, void *closure)
{
	const struct node *node = *(struct node *const *)pointer;
	struct walk *walk = closure;

	if ((visit == postorder || visit == leaf) && *node->entry.path)
		walk->visit(&node->entry, walk->user);
}

void pl_snapshot_each(const struct pl_snapshot *snapshot,
		      void (*visit)(const struct pl_snapshot_entry *entry, void *user), void *user)
{
	struct walk walk = { visit, user };

	twalk_r(snapshot->tree, next_component, &walk);
}
