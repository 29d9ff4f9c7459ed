/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/local_tree.h"

#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Returns the name that a directory has at the server, with a slash behind it, or "". */
static char *folder_prefix(const char *path, const char *prefix)
{
	size_t length = strlen(path);
	const char *begin;
	char *result;

	if (!prefix) {
		while (length && path[length - 1] == '/')
			length--;
		begin = path + length;
		while (begin > path && begin[-1] != '/')
			begin--;
		prefix = begin;
		length -= (size_t)(begin - path);
	} else {
		length = strlen(prefix);
	}
	/* "." and ".." are no names. */
	if (length == 0 || (length <= 2 && !strncmp(prefix, "..", length)))
		return strdup("");
	return asprintf(&result, "%.*s/", (int)length, prefix) < 0 ? NULL : result;
}

static int add_tree_file(struct local_tree *tree, struct transfer_command *command, const char *prefix,
			 const char *path, const char *below, struct pl_error *error)
{
	size_t room = (tree->count + 1) * sizeof(char *);
	char **paths = realloc(tree->paths, room), **names;

	if (paths)
		tree->paths = paths;
	names = realloc(tree->names, room);
	if (names)
		tree->names = names;
	if (!paths || !names)
		return cli_fail_errno(error, -ENOMEM, "malloc", path);
	tree->paths[tree->count] = strdup(path);
	if (asprintf(&tree->names[tree->count], "%s%s", prefix, below) < 0)
		tree->names[tree->count] = NULL;
	tree->count++;
	if (!tree->paths[tree->count - 1] || !tree->names[tree->count - 1])
		return cli_fail_errno(error, -ENOMEM, "malloc", path);
	if (!service_name_valid(tree->names[tree->count - 1]))
		return cli_fail(error, -EINVAL, "NAME-SYNTAX", path, "use shorter names",
				"the server does not accept this file name");
	return transfer_add(command, tree->names[tree->count - 1], tree->paths[tree->count - 1], error);
}

/* Returns the part of a path below the root that was given. */
static const char *below_root(const FTSENT *entry, size_t root)
{
	const char *below = entry->fts_path + root;

	while (*below == '/')
		below++;
	return below;
}

static int walk(struct local_tree *tree, struct transfer_command *command, FTS *fts, size_t root, const char *prefix,
		struct pl_error *error)
{
	FTSENT *entry;
	int rc = 0;

	while (rc == 0 && (entry = fts_read(fts))) {
		switch (entry->fts_info) {
		case FTS_F:
			rc = add_tree_file(tree, command, prefix, entry->fts_path, below_root(entry, root), error);
			break;
		case FTS_D:
		case FTS_DP:
			break;
		case FTS_DNR:
		case FTS_ERR:
		case FTS_NS:
			rc = cli_fail_errno(error, -entry->fts_errno, "open", entry->fts_path);
			break;
		default:
			tree->skipped++;
		}
	}
	return rc;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

int local_tree_add(struct local_tree *tree, struct transfer_command *command, const char *path, const char *prefix,
		   struct pl_error *error)
{
	char *const roots[] = { (char *)(uintptr_t)path, NULL };
	char *name = folder_prefix(path, prefix);
	FTS *fts = name ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_COMFOLLOW, by_name) : NULL;
	int rc;

	if (!fts) {
		rc = name ? -errno : -ENOMEM;
		free(name);
		return cli_fail_errno(error, rc, "open", path);
	}
	rc = walk(tree, command, fts, strlen(path), name, error);
	fts_close(fts);
	free(name);
	return rc;
}

void local_tree_free(struct local_tree *tree)
{
	for (size_t i = 0; i < tree->count; i++) {
		free(tree->paths[i]);
		free(tree->names[i]);
	}
	free(tree->paths);
	free(tree->names);
}
