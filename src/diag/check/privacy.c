/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/check/privacy.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "diag/check/kernel_log.h"

#define NAMES_MAX 4096

struct pl_privacy {
	char *names[NAMES_MAX]; /* unknown components; number N is "dirN", from 1 */
	size_t count;
};

/*
 * Words of the components of paths, outside of /sys and /proc, that checks look for. A component may consist of these
 * words, digits, and the characters between them.
 */
static const char *const known_words[] = {
	/* file system, systems, releases */
	"usr", "etc", "opt", "run", "var", "local", "share", "bin", "sbin", "lib", "x", "v", "rc", "aarch", "linux", "gnu",
	"alternatives", "dir", "ubuntu", "debian", "rhel", "redhat", "sles", "gcc", "inbox", "mlnx", "doca",
	/* libraries and programs */
	"openmpi", "ompi", "mpi", "mvapich", "gdr", "mpich", "spectrum", "ibm", "cray", "pe", "gtl", "ucx", "ucp", "uct",
	"ucs", "ucm", "hpcx", "hpc", "sdk", "comm", "libs", "cuda", "nccl", "net", "rdma", "sharp", "plugin", "nvidia",
	"amazon", "aws", "ofi", "python", "site", "dist", "packages", "so", "mca", "pml", "btl", "mtl", "coll", "common",
	"smcuda", "ib", "openib", "cudahook", "ofed", "info", "peerlane", "peermem", "verbs", "libnccl", "libucp",
	"libuct", "libucs", "libucm", "libibverbs", "librdmacm", "libmpich", "libmpi", "libcuda", "libmca", "libpami",
	"libfabric", "libmlx", "libnvidia", "ml",
	/* services and modules */
	"init", "d", "modules", "load", "nv", "peer", "mem", "systemd", "system", "multi", "user", "target", "wants",
	"service", "container", "containerenv", "dockerenv", "conf", "openibd", "opensm", "ibacm", "persistenced",
	"fabricmanager", "mlx", "topologyd", "virtualTopology", "xml", "log", "dmesg",
};

/* Beginnings of components that checks look for by patterns. */
static const char *const known_families[] = { "libnccl-net", "openmpi-", "openmpi", "mvapich2-", "mvapich2", "mvapich",
					      "hpcx-",       "hpcx",     "cuda-",   "cuda",      "nccl-",    "nccl",
					      "ucx-",        "ucx",      "python3" };

/* Beginnings of keys of facts, and of known words of kernel parameters. */
static const char *const known_facts[] = { "system.",   "process.", "limit.", "net.",  "node.", "search.path",
					   "log.",      "verbs.",   "cuda.",  "nvml.", "nccl.", "pins.",
					   "kallsyms.", "access.",  "ibv.",   "gpu." };

struct pl_privacy *pl_privacy_new(void)
{
	return calloc(1, sizeof(struct pl_privacy));
}

void pl_privacy_free(struct pl_privacy *privacy)
{
	for (size_t i = 0; privacy && i < privacy->count; i++)
		free(privacy->names[i]);
	free(privacy);
}

/* -- paths ---------------------------------------------------------------------------------------------- */

static bool word_is_known(const char *word, size_t length)
{
	for (size_t i = 0; i < PL_ARRAY_SIZE(known_words); i++)
		if (strlen(known_words[i]) == length && !strncmp(known_words[i], word, length))
			return true;
	return false;
}

static bool component_is_known(const char *name)
{
	while (*name) {
		size_t length = 0;

		while (isalpha((unsigned char)name[length]))
			length++;
		if (length && !word_is_known(name, length))
			return false;
		/* Names in other alphabets are unknown. */
		if (!length && !isdigit((unsigned char)*name) && !strchr("-_.+", *name))
			return false;
		name += length ? length : 1;
	}
	return true;
}

/* Returns the number of an unknown component. */
static size_t number_of_component(struct pl_privacy *privacy, const char *name)
{
	size_t i = 0;

	while (i < privacy->count && strcmp(privacy->names[i], name))
		i++;
	if (i == privacy->count && i < NAMES_MAX) {
		privacy->names[i] = strdup(name);
		privacy->count += privacy->names[i] != NULL;
	}
	return i + 1;
}

/* Returns the end of a name that checks look for: ".conf", or ".so" and digits. */
static const char *known_ending(const char *name)
{
	const char *ending = strstr(name, ".so");

	if (ending && !ending[3 + strspn(ending + 3, ".0123456789")])
		return ending;
	ending = strrchr(name, '.');
	return ending && !strcmp(ending, ".conf") ? ending : "";
}

static const char *known_beginning(const char *name)
{
	for (size_t i = 0; i < PL_ARRAY_SIZE(known_families); i++)
		if (!strncmp(name, known_families[i], strlen(known_families[i])))
			return known_families[i];
	return "";
}

/* Appends a component at copy + used. Returns the new length. */
static size_t append_component(struct pl_privacy *privacy, const char *name, char *copy, size_t used, size_t size)
{
	int length;

	if (component_is_known(name))
		length = snprintf(copy + used, size - used, "%s", name);
	else
		length = snprintf(copy + used, size - used, "%sdir%zu%s", known_beginning(name),
				  number_of_component(privacy, name), known_ending(name));
	return PL_MIN(used + (size_t)length, size - 1);
}

static bool is_kernel_path(const char *path)
{
	path += strspn(path, "/");
	return !strncmp(path, "sys/", 4) || !strncmp(path, "proc/", 5) || !strncmp(path, "dev/", 4) ||
	       !strcmp(path, "sys") || !strcmp(path, "proc") || !strcmp(path, "dev");
}

void pl_privacy_path(struct pl_privacy *privacy, const char *path, char *copy, size_t size)
{
	char component[PL_SYSROOT_PATH_MAX];
	size_t used = 0;

	if (is_kernel_path(path)) {
		snprintf(copy, size, "%s", path);
		return;
	}
	copy[0] = '\0';
	while (*path && used + 1 < size) {
		size_t length = strcspn(path, "/");

		snprintf(component, sizeof(component), "%.*s", (int)PL_MIN(length, sizeof(component) - 1), path);
		used = append_component(privacy, component, copy, used, size);
		path += length;
		if (*path == '/' && used + 1 < size) {
			copy[used++] = *path++;
			copy[used] = '\0';
		}
	}
}

/* -- texts ------------------------------------------------------------------------------------------------ */

/* Copies a text, in which paths begin with '/' behind a blank, '=', ':', a quote or a bracket. */
static void filter_text(struct pl_privacy *privacy, const char *text, char *copy, size_t size)
{
	static const char before[] = " =:,;'\"([", behind[] = " :,;'\")]\n";
	size_t used = 0;
	bool begins = true;

	while (*text && used + 1 < size) {
		char path[PL_SYSROOT_PATH_MAX], filtered[PL_SYSROOT_PATH_MAX];
		size_t length = strcspn(text, behind);

		if (!begins || *text != '/' || length >= sizeof(path)) {
			begins = strchr(before, *text) != NULL;
			copy[used++] = *text++;
			continue;
		}
		snprintf(path, sizeof(path), "%.*s", (int)length, text);
		pl_privacy_path(privacy, path, filtered, sizeof(filtered));
		used = PL_MIN(used + (size_t)snprintf(copy + used, size - used, "%s", filtered), size - 1);
		text += length;
		begins = false;
	}
	copy[used] = '\0';
}

/* Copies a text, in which each word with a '/' or with ".so" is a path or the name of a library. */
static void filter_libraries(struct pl_privacy *privacy, const char *text, char *copy, size_t size)
{
	static const char around[] = " :,;'\"()[]=`";
	size_t used = 0;

	while (*text && used + 1 < size) {
		char word[PL_SYSROOT_PATH_MAX], filtered[PL_SYSROOT_PATH_MAX];
		size_t length = strcspn(text, around);

		if (!length || length >= sizeof(word)) {
			copy[used++] = *text++;
			continue;
		}
		snprintf(word, sizeof(word), "%.*s", (int)length, text);
		if (strchr(word, '/') || strstr(word, ".so"))
			pl_privacy_path(privacy, word, filtered, sizeof(filtered));
		else
			snprintf(filtered, sizeof(filtered), "%s", word);
		used = PL_MIN(used + (size_t)snprintf(copy + used, size - used, "%s", filtered), size - 1);
		text += length;
	}
	copy[used] = '\0';
}

/* Removes the name of a process from a line of the kernel log ("name=...", "comm: ..."), in place. */
static void remove_process_names(char *line)
{
	static const char *const marks[] = { "name=", "Comm: ", "comm: ", "comm=", "process `", "process '" };

	for (size_t i = 0; i < PL_ARRAY_SIZE(marks); i++) {
		char *at = line;

		while ((at = strstr(at, marks[i]))) {
			at += strlen(marks[i]);
			while (*at && !strchr(" ,'`\n", *at))
				*at++ = '-';
		}
	}
}

bool pl_privacy_fact(struct pl_privacy *privacy, const char *key, const char *value, char *copy, size_t size)
{
	bool known = false;

	for (size_t i = 0; i < PL_ARRAY_SIZE(known_facts) && !known; i++)
		known = !strncmp(key, known_facts[i], strlen(known_facts[i]));
	if (!known)
		return false;
	if (!strncmp(key, "nccl.", 5))
		filter_libraries(privacy, value, copy, size);
	else
		filter_text(privacy, value, copy, size);
	if (!strncmp(key, "log.", 4))
		remove_process_names(copy);
	return true;
}

/* Copies a topology file of NCCL without its comments. Its values are addresses and numbers of devices. */
static size_t filter_xml(const char *data, size_t length, char *copy)
{
	size_t used = 0;

	while (length) {
		const char *end = length > 4 && !memcmp(data, "<!--", 4) ? memmem(data, length, "-->", 3) : NULL;
		size_t skipped = end ? (size_t)(end + 3 - data) : 0;

		if (!skipped)
			copy[used++] = *data++;
		data += skipped;
		length -= skipped ? skipped : 1;
	}
	return used;
}

/* Keeps what a check reads in files that people write: words of lines that are no comments. */
static size_t filter_configuration(struct pl_privacy *privacy, const char *data, size_t length, char *copy, size_t size)
{
	char line[1024], filtered[1024];
	size_t used = 0;

	if (length && *data == '<')
		return filter_xml(data, length, copy);
	while (length) {
		const char *end = memchr(data, '\n', length);
		size_t part = end ? (size_t)(end - data) : length;

		snprintf(line, sizeof(line), "%.*s", (int)PL_MIN(part, sizeof(line) - 1), data);
		line[strcspn(line, "#;")] = '\0';
		filter_text(privacy, line, filtered, sizeof(filtered));
		if (*filtered)
			used = PL_MIN(used + (size_t)snprintf(copy + used, size - used, "%s\n", filtered), size - 1);
		part += end != NULL;
		data += part;
		length -= part;
	}
	return used;
}

/* Keeps of a kernel log the GPUs that the kernel found. */
static size_t filter_kernel_log(const char *data, size_t length, char *copy, size_t size)
{
	char line[1024], address[PL_LOG_ADDRESS_MAX];
	size_t used = 0;

	while (length && used + sizeof(line) < size) {
		const char *end = memchr(data, '\n', length);
		size_t part = end ? (size_t)(end - data) : length;

		snprintf(line, sizeof(line), "%.*s", (int)PL_MIN(part, sizeof(line) - 1), data);
		if (pl_kernel_log_found_gpu(line, address))
			used += (size_t)snprintf(copy + used, size - used, "pci %s: [10de:] class 0x030200\n", address);
		part += end != NULL;
		data += part;
		length -= part;
	}
	return used;
}

/* -- snapshots --------------------------------------------------------------------------------------------- */

struct privacy_copy {
	struct pl_privacy *privacy;
	struct pl_snapshot *to;
	int rc;
};

static bool is_own_path(const char *path)
{
	return !strncmp(path, "peerlane/", 9) || !strcmp(path, "peerlane");
}

static void copy_private_entry(const struct pl_snapshot_entry *entry, void *user)
{
	struct privacy_copy *copy = user;
	struct pl_snapshot_entry filtered = *entry;
	char path[PL_SYSROOT_PATH_MAX], *data = NULL;
	size_t size = entry->length + entry->length / 2 + 2048;

	if (copy->rc < 0)
		return;
	if (is_kernel_path(entry->path) || is_own_path(entry->path)) {
		/* Operators write host names there. Whether it is empty is what a check asks for. */
		if (entry->kind == PL_SYSROOT_FILE && entry->data && fnmatch("*/node_desc", entry->path, 0) == 0 &&
		    entry->length > 1) {
			filtered.data = "-\n";
			filtered.length = 2;
		}
		copy->rc = pl_snapshot_add(copy->to, &filtered);
		return;
	}
	pl_privacy_path(copy->privacy, entry->path, path, sizeof(path));
	filtered.path = path;
	if (entry->data && entry->kind != PL_SYSROOT_FOLDER) {
		data = calloc(1, size);
		if (!data) {
			copy->rc = -ENOMEM;
			return;
		}
		if (entry->kind == PL_SYSROOT_LINK) {
			char target[PL_SYSROOT_PATH_MAX];

			snprintf(target, sizeof(target), "%.*s", (int)PL_MIN(entry->length, sizeof(target) - 1),
				 entry->data);
			pl_privacy_path(copy->privacy, target, data, size);
			filtered.length = strlen(data);
		} else if (fnmatch("*var/log/dmesg*", entry->path, 0) == 0) {
			filtered.length = filter_kernel_log(entry->data, entry->length, data, size);
		} else {
			filtered.length = filter_configuration(copy->privacy, entry->data, entry->length, data, size);
		}
		filtered.data = data;
	}
	copy->rc = pl_snapshot_add(copy->to, &filtered);
	free(data);
}

struct pl_snapshot *pl_privacy_snapshot(struct pl_privacy *privacy, const struct pl_snapshot *snapshot)
{
	struct privacy_copy copy = { .privacy = privacy, .to = pl_snapshot_new() };

	if (!copy.to)
		return NULL;
	pl_snapshot_each(snapshot, copy_private_entry, &copy);
	if (copy.rc == 0)
		return copy.to;
	pl_snapshot_free(copy.to);
	return NULL;
}
