/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input: files of a machine, one on each line.
 * PATH=CONTENT is a file, in whose content '|' stands for a line break.  PATH>TARGET is a link.  Folders follow from
 * the paths.
 */
#include "gpu_pairs.h"

#include <stdio.h>

#include "diag/check/gpu_links.h"
#include "topology/topology.h"

#define ENTRIES_MAX 2048

struct entry {
	const char *path, *content;
	bool link;
};

struct files {
	struct pl_sysroot base;
	struct entry entries[ENTRIES_MAX];
	size_t count;
	char *text;
};

static struct files *sysfs_files(struct pl_sysroot *root)
{
	return pl_container_of(root, struct files, base);
}

static const struct entry *sysfs_find(struct pl_sysroot *root, const char *path)
{
	struct files *files = sysfs_files(root);

	for (size_t i = 0; i < files->count; i++)
		if (!strcmp(files->entries[i].path, path))
			return &files->entries[i];
	return NULL;
}

/* Returns the part of `path` below `folder`, or NULL if `path` is not below it. */
static const char *path_below(const char *folder, const char *path)
{
	size_t length = strlen(folder);

	if (!length)
		return path;
	return !strncmp(folder, path, length) && path[length] == '/' ? path + length + 1 : NULL;
}

static int sysfs_kind(struct pl_sysroot *root, const char *path)
{
	const struct entry *entry = sysfs_find(root, path);

	if (entry)
		return entry->link ? PL_SYSROOT_LINK : PL_SYSROOT_FILE;
	for (size_t i = 0; i < sysfs_files(root)->count; i++)
		if (path_below(path, sysfs_files(root)->entries[i].path))
			return PL_SYSROOT_FOLDER;
	return *path ? -ENOENT : PL_SYSROOT_FOLDER;
}

static int sysfs_read_link(struct pl_sysroot *root, const char *path, char *buffer, size_t size)
{
	const struct entry *entry = sysfs_find(root, path);
	size_t length;

	if (!entry || !entry->link)
		return entry ? -EINVAL : -ENOENT;
	length = PL_MIN(strlen(entry->content), size);
	memcpy(buffer, entry->content, length);
	return (int)length;
}

static int sysfs_open_file(struct pl_sysroot *root, const char *path, struct pl_sysroot_file *file)
{
	const struct entry *entry = sysfs_find(root, path);

	if (!entry || entry->link)
		return -ENOENT;
	file->data = entry->content;
	file->length = strlen(entry->content);
	return 0;
}

static int sysfs_read_file(struct pl_sysroot_file *file, void *buffer, size_t size)
{
	size_t length = PL_MIN(size, file->length);

	memcpy(buffer, file->data, length);
	file->data += length;
	file->length -= length;
	return (int)length;
}

static void sysfs_close(struct pl_sysroot_file *file)
{
	(void)file;
}

static int sysfs_list_folder(struct pl_sysroot *root, const char *path, struct pl_sysroot_list *list)
{
	struct files *files = sysfs_files(root);
	int rc = sysfs_kind(root, path);

	if (rc != PL_SYSROOT_FOLDER)
		return rc < 0 ? rc : -ENOTDIR;
	for (size_t i = 0; i < files->count; i++) {
		const char *rest = path_below(path, files->entries[i].path);
		char name[256];
		bool seen = false;

		if (!rest || !*rest)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(rest, "/"), rest);
		for (size_t j = 0; j < list->count && !seen; j++)
			seen = !strcmp(list->names[j], name);
		if (*name && !seen)
			rc = pl_sysroot_list_add(list, name);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static void sysfs_close_root(struct pl_sysroot *root)
{
	free(sysfs_files(root)->text);
	free(sysfs_files(root));
}

static const struct pl_sysroot_ops ops = {
	.kind = sysfs_kind,
	.link = sysfs_read_link,
	.open = sysfs_open_file,
	.read = sysfs_read_file,
	.shut = sysfs_close,
	.list = sysfs_list_folder,
	.close = sysfs_close_root,
};

static struct pl_sysroot *sysfs_parse(const uint8_t *data, size_t size)
{
	struct files *files = calloc(1, sizeof(*files));
	char *next;

	REQUIRE(files);
	files->base.ops = &ops;
	files->text = fuzz_text(data, size);
	for (char *line = files->text; line && files->count < ENTRIES_MAX; line = next) {
		char *middle = line + strcspn(line, "=>\n");

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (!*middle || middle == line)
			continue;
		files->entries[files->count++] = (struct entry){ line, middle + 1, *middle == '>' };
		*middle = '\0';
		for (char *at = middle + 1; *at; at++)
			if (*at == '|')
				*at = '\n';
	}
	return &files->base;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_sysroot *root = sysfs_parse(data, size);
	struct pl_card_rank ranks[1024];
	char reasons[16][PL_REASON_MAX];
	struct pl_topology *topology;

	int rc = pl_topology_read(&topology, root, NULL, NULL);

	/* Only a malformed topology file may cause an error. */
	REQUIRE(rc == 0 || pl_sysroot_exists(root, "var/run/nvidia-topologyd/virtualTopology.xml"));
	if (rc == 0) {
		for (size_t i = 0; i < topology->path_count; i++)
			REQUIRE(pl_topology_reasons(topology, &topology->paths[i], reasons, 16) > 0);
		REQUIRE(pl_topology_rank_numa(topology, -1, ranks) >= 0);
		for (size_t i = 0; i < topology->gpu_count; i++)
			REQUIRE(pl_topology_rank_gpu(topology, topology->nodes[topology->gpus[i].node].address,
						     ranks) >= 0);
		REQUIRE(pl_gpu_links_read(topology, root, 0) == 0);
		fuzz_check_gpu_links(topology);
		pl_topology_free(topology);
	}
	pl_sysroot_close(root);
	return 0;
}
