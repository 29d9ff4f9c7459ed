/* SPDX-License-Identifier: BSD-2-Clause */
/* Root that records all reads through it, so that a dump has exactly the files that a check needs. */
#include <stdlib.h>

#include "diag/check/snapshot.h"

struct recorder {
	struct pl_sysroot base;
	struct pl_sysroot *inner;
	struct pl_snapshot *snapshot;
};

/* Words of the kernel's command line that matter; others may be secrets. */
static const char *const words[] = { "iommu",
				     "intel_iommu",
				     "amd_iommu",
				     "pci",
				     "pcie_acs_override",
				     "pcie_aspm",
				     "nvidia",
				     "nouveau",
				     "rdma",
				     "mlx",
				     "hugepages",
				     "default_hugepagesz",
				     "hugepagesz",
				     "lockdown",
				     "module",
				     "modprobe.blacklist",
				     "rdblacklist",
				     "isolcpus",
				     "numa_balancing" };

static struct recorder *recorder_of_root(struct pl_sysroot *root)
{
	return pl_container_of(root, struct recorder, base);
}

/* True for WORD, WORD=VALUE and MODULE.PARAMETER=VALUE. Names of modules of one family begin alike. */
static bool is_known(const char *word)
{
	size_t length = strcspn(word, "=.");

	if (!strncmp(word, "nvidia", 6) || !strncmp(word, "mlx4_", 5) || !strncmp(word, "mlx5_", 5))
		return word[length] == '.' || word[length] == '=';
	if (word[length] == '.' && strncmp(word, "modprobe.blacklist", 18) && strncmp(word, "module.", 7) &&
	    strncmp(word, "nouveau.", 8) && strncmp(word, "rdma", 4))
		return false;
	if (!strncmp(word, "modprobe.blacklist=", 19))
		return true;
	for (size_t i = 0; i < PL_ARRAY_SIZE(words); i++)
		if (length == strlen(words[i]) && !strncmp(word, words[i], length))
			return true;
	return !strncmp(word, "rdma_", 5);
}

/* Keeps the known words, in place. */
static size_t filter(char *line)
{
	char *to = line, *rest, *word;

	for (word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
		size_t length = strlen(word);

		if (!is_known(word))
			continue;
		memmove(to, word, length);
		to += length;
		*to++ = ' ';
	}
	*to = '\0';
	return (size_t)(to - line);
}

static void record_entry(struct recorder *recorder, const char *path, enum pl_sysroot_kind kind, const char *data,
			 size_t length)
{
	struct pl_snapshot_entry entry = { .path = path, .kind = kind, .data = data, .length = length };

	pl_snapshot_add(recorder->snapshot, &entry);
}

static int recorder_link(struct pl_sysroot *root, const char *path, char *buffer, size_t size)
{
	struct recorder *recorder = recorder_of_root(root);
	char target[PL_SYSROOT_PATH_MAX];
	int rc = recorder->inner->ops->link(recorder->inner, path, target, sizeof(target));

	if (rc < 0)
		return rc;
	record_entry(recorder, path, PL_SYSROOT_LINK, target, (size_t)rc);
	memcpy(buffer, target, PL_MIN((size_t)rc, size));
	return PL_MIN(rc, (int)PL_MIN(size, (size_t)INT32_MAX));
}

static int recorder_kind(struct pl_sysroot *root, const char *path)
{
	struct recorder *recorder = recorder_of_root(root);
	int kind = recorder->inner->ops->kind(recorder->inner, path);
	char target[PL_SYSROOT_PATH_MAX];

	if (kind == PL_SYSROOT_LINK)
		recorder_link(root, path, target, sizeof(target));
	else if (kind > 0)
		record_entry(recorder, path, (enum pl_sysroot_kind)kind, NULL, 0);
	return kind;
}

/* Reads the file completely, as a capture needs it. */
static int read_whole(struct recorder *recorder, const char *path, char **data, size_t *length)
{
	struct pl_sysroot_file file = { .fd = -1 };
	const struct pl_sysroot_ops *ops = recorder->inner->ops;
	size_t room = 0;
	int rc = ops->open(recorder->inner, path, &file);

	*data = NULL;
	*length = 0;
	if (rc < 0)
		return rc;
	do {
		if (*length + 1 >= room) {
			char *larger = realloc(*data, room ? room * 2 : 4096);

			if (!larger) {
				rc = -ENOMEM;
				break;
			}
			*data = larger;
			room = room ? room * 2 : 4096;
		}
		rc = ops->read(&file, *data + *length, room - 1 - *length);
		if (rc > 0)
			*length += (size_t)rc;
		if (*length > PL_SNAPSHOT_FILE_MAX)
			rc = -EFBIG;
	} while (rc > 0);
	ops->shut(&file);
	if (rc < 0)
		free(*data);
	else
		(*data)[*length] = '\0';
	return rc;
}

static int recorder_open(struct pl_sysroot *root, const char *path, struct pl_sysroot_file *file)
{
	struct recorder *recorder = recorder_of_root(root);
	struct pl_snapshot_entry unreadable = { .path = path, .kind = PL_SYSROOT_FILE, .unreadable = true };
	size_t length;
	char *data;
	int rc = read_whole(recorder, path, &data, &length);

	if (rc == -EACCES || rc == -EPERM)
		pl_snapshot_add(recorder->snapshot, &unreadable);
	if (rc < 0)
		return rc;
	if (!strcmp(path, "proc/cmdline"))
		length = filter(data);
	record_entry(recorder, path, PL_SYSROOT_FILE, data, length);
	free(data);
	/* From here on the snapshot serves the file. */
	return pl_snapshot_root(recorder->snapshot)->ops->open(pl_snapshot_root(recorder->snapshot), path, file);
}

static int recorder_list(struct pl_sysroot *root, const char *path, struct pl_sysroot_list *list)
{
	struct recorder *recorder = recorder_of_root(root);
	char child[PL_SYSROOT_PATH_MAX];
	int rc = recorder->inner->ops->list(recorder->inner, path, list);

	if (rc < 0)
		return rc;
	record_entry(recorder, path, PL_SYSROOT_FOLDER, NULL, 0);
	for (size_t i = 0; i < list->count; i++) {
		size_t length = strlen(path) + strlen(list->names[i]) + 2;

		if (length > sizeof(child))
			continue;
		stpcpy(stpcpy(stpcpy(child, path), *path ? "/" : ""), list->names[i]);
		recorder_kind(root, child);
	}
	return rc;
}

static void recorder_close(struct pl_sysroot *root)
{
	free(recorder_of_root(root));
}

static const struct pl_sysroot_ops ops = {
	.resolves = false,
	.kind = recorder_kind,
	.link = recorder_link,
	.open = recorder_open,
	.read = pl_snapshot_read,
	.shut = pl_snapshot_shut,
	.list = recorder_list,
	.close = recorder_close,
};

struct pl_sysroot *pl_snapshot_recorder(struct pl_snapshot *snapshot, struct pl_sysroot *inner)
{
	struct recorder *recorder = calloc(1, sizeof(*recorder));

	if (!recorder)
		return NULL;
	recorder->base.ops = &ops;
	recorder->base.live = inner->live;
	recorder->inner = inner;
	recorder->snapshot = snapshot;
	return &recorder->base;
}

struct pl_sysroot *pl_snapshot_unrecorded(struct pl_sysroot *root)
{
	return root->ops == &ops ? recorder_of_root(root)->inner : root;
}
