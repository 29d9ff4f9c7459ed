/* SPDX-License-Identifier: BSD-2-Clause */
#include "topology/sysroot.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int pl_sysroot_open(struct pl_sysroot **ret, const char *path, struct pl_error *error)
{
	return pl_sysroot_open_folder(ret, path ? path : "/", true, error);
}

void pl_sysroot_close(struct pl_sysroot *root)
{
	if (root)
		root->ops->close(root);
}

bool pl_sysroot_is_live(const struct pl_sysroot *root)
{
	return root->live;
}

/* Removes empty components and ".". */
static void tidy_path(char *path)
{
	char *to = path;

	for (const char *at = path; *(at += strspn(at, "/"));) {
		size_t length = strcspn(at, "/");

		if (length != 1 || at[0] != '.') {
			if (to != path)
				*to++ = '/';
			memmove(to, at, length);
			to += length;
		}
		at += length;
	}
	*to = '\0';
}

/* Formats and prepares the path for a provider. */
static int prepare_path(struct pl_sysroot *root, char *buffer, bool last, const char *format, va_list arguments)
{
	char path[PL_SYSROOT_PATH_MAX];
	int length = vsnprintf(path, sizeof(path), format, arguments);

	if (length < 0 || (size_t)length >= sizeof(path))
		return -ENAMETOOLONG;
	if (!root->ops->resolves)
		return pl_sysroot_walk(root, path, last, buffer, PL_SYSROOT_PATH_MAX);
	memcpy(buffer, path, (size_t)length + 1);
	tidy_path(buffer);
	return 0;
}

#define PREPARE(root, path, last, format) \
	({ \
		va_list arguments_; \
		int rc_; \
		va_start(arguments_, format); \
		rc_ = prepare_path(root, path, last, format, arguments_); \
		va_end(arguments_); \
		rc_; \
	})

/* Fills a buffer from the beginning of a file. */
static int read_start(struct pl_sysroot *root, const char *path, char *buffer, size_t size)
{
	struct pl_sysroot_file file = { .fd = -1 };
	size_t length = 0;
	int rc = root->ops->open(root, path, &file);

	if (rc < 0)
		return rc;
	while (length < size && (rc = root->ops->read(&file, buffer + length, size - length)) > 0)
		length += (size_t)rc;
	root->ops->shut(&file);
	return rc < 0 ? rc : (int)length;
}

static int read_text_file(struct pl_sysroot *root, const char *path, char *buffer, size_t size)
{
	int length;

	if (!size || size > INT32_MAX)
		return -EINVAL;
	length = read_start(root, path, buffer, size);
	if (length < 0 || (size_t)length == size) {
		buffer[0] = '\0';
		return length < 0 ? length : -EFBIG;
	}
	while (length > 0 && strchr(" \n\t\r", buffer[length - 1]))
		length--;
	buffer[length] = '\0';
	for (char *at = buffer; at < buffer + length; at++)
		if (((unsigned char)*at < ' ' && *at != '\n' && *at != '\t') || *at == 0x7f)
			*at = '?';
	return length;
}

int pl_sysroot_text(struct pl_sysroot *root, char *buffer, size_t size, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX];
	int rc = PREPARE(root, path, true, format);

	if (size)
		buffer[0] = '\0';
	return rc < 0 ? rc : read_text_file(root, path, buffer, size);
}

int pl_sysroot_bytes(struct pl_sysroot *root, void *buffer, size_t size, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX];
	int rc = PREPARE(root, path, true, format);

	return rc < 0 ? rc : read_start(root, path, buffer, PL_MIN(size, (size_t)INT32_MAX));
}

static int load_file_text(struct pl_sysroot *root, struct pl_sysroot_file *file, size_t limit, char **data,
			  size_t *length)
{
	size_t room = PL_MIN(limit, (size_t)4096) + 1;
	char *buffer = malloc(room), *larger;
	int rc = 1;

	*length = 0;
	while (buffer && (rc = root->ops->read(file, buffer + *length, room - *length)) > 0) {
		*length += (size_t)rc;
		if (*length > limit) {
			rc = -EFBIG;
			break;
		}
		if (*length < room)
			continue;
		room = PL_MIN(room * 2, limit + 1);
		larger = realloc(buffer, room);
		if (!larger)
			free(buffer);
		buffer = larger;
	}
	if (!buffer)
		return -ENOMEM;
	if (rc < 0) {
		free(buffer);
		return rc;
	}
	buffer[*length] = '\0';
	*data = buffer;
	return 0;
}

int pl_sysroot_load(struct pl_sysroot *root, size_t limit, char **data, size_t *length, const char *format, ...)
{
	struct pl_sysroot_file file = { .fd = -1 };
	char path[PL_SYSROOT_PATH_MAX];
	int rc = PREPARE(root, path, true, format);

	*data = NULL;
	*length = 0;
	if (rc == 0)
		rc = root->ops->open(root, path, &file);
	if (rc < 0)
		return rc;
	rc = load_file_text(root, &file, PL_MIN(limit, (size_t)INT32_MAX - 1), data, length);
	root->ops->shut(&file);
	return rc;
}

#define NUMBER_SIZE 64

int pl_sysroot_number(struct pl_sysroot *root, unsigned base, uint64_t *value, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX], text[NUMBER_SIZE], *end;
	int rc = PREPARE(root, path, true, format);

	rc = rc < 0 ? rc : read_text_file(root, path, text, sizeof(text));
	if (rc < 0)
		return rc;
	if (base != 16)
		base = !strncmp(text, "0x", 2) ? 16 : 10;
	/* strtoull(3) accepts signs and leading white space. */
	if (!strchr("0123456789abcdefABCDEF", text[0]))
		return -EINVAL;
	errno = 0;
	*value = strtoull(text, &end, (int)base);
	return end == text ? -EINVAL : -errno;
}

int pl_sysroot_signed(struct pl_sysroot *root, int64_t *value, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX], text[NUMBER_SIZE], *end;
	int rc = PREPARE(root, path, true, format);

	rc = rc < 0 ? rc : read_text_file(root, path, text, sizeof(text));
	if (rc < 0)
		return rc;
	errno = 0;
	*value = strtoll(text, &end, 10);
	return end == text ? -EINVAL : -errno;
}

static int read_link_target(struct pl_sysroot *root, const char *path, char *buffer, size_t size)
{
	int rc;

	if (!size)
		return -EINVAL;
	rc = root->ops->link(root, path, buffer, size);
	if (rc >= 0 && (size_t)rc >= size)
		rc = -ENAMETOOLONG;
	buffer[rc < 0 ? 0 : rc] = '\0';
	return rc;
}

int pl_sysroot_link(struct pl_sysroot *root, char *buffer, size_t size, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX];
	int rc = PREPARE(root, path, false, format);

	return rc < 0 ? rc : read_link_target(root, path, buffer, size);
}

int pl_sysroot_link_name(struct pl_sysroot *root, char *buffer, size_t size, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX], target[PL_SYSROOT_PATH_MAX];
	const char *name;
	int rc = PREPARE(root, path, false, format);

	if (rc == 0)
		rc = read_link_target(root, path, target, sizeof(target));
	if (rc < 0)
		return rc;
	name = strrchr(target, '/');
	name = name ? name + 1 : target;
	if (strlen(name) >= size)
		return -ENAMETOOLONG;
	strcpy(buffer, name);
	for (char *at = buffer; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	return (int)strlen(buffer);
}

int pl_sysroot_resolve(struct pl_sysroot *root, char *buffer, size_t size, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX];
	int rc = PREPARE(root, path, true, format);

	return rc < 0 ? rc : pl_sysroot_walk(root, path, true, buffer, size);
}

/* A provider does not follow the last component, so this function does. */
static int kind_at(struct pl_sysroot *root, const char *path)
{
	char target[PL_SYSROOT_PATH_MAX];
	int rc = root->ops->kind(root, path);

	if (rc != PL_SYSROOT_LINK)
		return rc;
	rc = pl_sysroot_walk(root, path, true, target, sizeof(target));
	return rc < 0 ? rc : root->ops->kind(root, target);
}

int pl_sysroot_kind(struct pl_sysroot *root, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX];
	int rc = PREPARE(root, path, true, format);

	return rc < 0 ? rc : kind_at(root, path);
}

bool pl_sysroot_exists(struct pl_sysroot *root, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX];
	int rc = PREPARE(root, path, true, format);

	return rc == 0 && kind_at(root, path) > 0;
}

int pl_sysroot_list_add(struct pl_sysroot_list *list, const char *name)
{
	char **names, *copy;

	if (list->count == PL_SYSROOT_LIST_MAX) {
		list->cut = true;
		return -E2BIG;
	}
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 32;

		names = realloc(list->names, room * sizeof(*names));
		if (!names)
			return -ENOMEM;
		list->names = names;
		list->room = room;
	}
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	list->names[list->count++] = copy;
	return 0;
}

static int compare_listed_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int pl_sysroot_list(struct pl_sysroot *root, struct pl_sysroot_list *list, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX];
	int rc = PREPARE(root, path, true, format);

	*list = (struct pl_sysroot_list){ .names = NULL };
	if (rc == 0)
		rc = root->ops->list(root, path, list);
	if (rc < 0 && rc != -E2BIG) {
		pl_sysroot_list_free(list);
		return rc;
	}
	if (list->count)
		qsort(list->names, list->count, sizeof(*list->names), compare_listed_names);
	return 0;
}

void pl_sysroot_list_free(struct pl_sysroot_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->names[i]);
	free(list->names);
	*list = (struct pl_sysroot_list){ .names = NULL };
}
