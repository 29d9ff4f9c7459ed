/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/changes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* -- order and groups ---------------------------------------------------------------------------- */

/* Compares texts as if each number were one digit. */
static int compare_masked_texts(const char *a, const char *b)
{
	while (*a && *b) {
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			a += strspn(a, "0123456789");
			b += strspn(b, "0123456789");
		} else if (*a++ != *b++) {
			return (unsigned char)a[-1] < (unsigned char)b[-1] ? -1 : 1;
		}
	}
	return (*a != '\0') - (*b != '\0');
}

static int compare_change_texts(const struct change *a, const struct change *b)
{
	int (*compare)(const char *, const char *) = a->text ? compare_masked_texts : strcmp;
	int order = compare(a->was, b->was);

	return order ? order : compare(a->now, b->now);
}

/* Compares changes without their objects and hosts. */
static int compare_change_kinds(const struct change *a, const struct change *b)
{
	int order = (a->rank > b->rank) - (a->rank < b->rank);

	order = order ? order : strcmp(a->id, b->id);
	order = order ? order : a->text - b->text;
	return order ? order : compare_change_texts(a, b);
}

static int compare_host_changes(const void *left, const void *right)
{
	const struct change *a = left, *b = right;
	int order = compare_change_kinds(a, b);

	order = order ? order : (a->host > b->host) - (a->host < b->host);
	return order ? order : strcmp(a->objects, b->objects);
}

static bool are_changes_alike(const struct change *a, const struct change *b)
{
	return !compare_change_kinds(a, b) && !strcmp(a->objects, b->objects);
}

static int compare_alike_changes(const void *left, const void *right)
{
	const struct change *a = left, *b = right;
	int order = compare_change_kinds(a, b);

	order = order ? order : strcmp(a->objects, b->objects);
	return order ? order : (a->host > b->host) - (a->host < b->host);
}

static void release_change(struct change *change)
{
	free(change->objects);
	free(change->was);
	free(change->now);
}

/* Joins the changes of one host that differ in their objects only: sorted changes[0 .. count) into the first one. */
static int join_objects(struct change *changes, size_t count)
{
	const char **objects = malloc(count * sizeof(*objects));
	char *folded = NULL;

	for (size_t i = 0; objects && i < count; i++)
		objects[i] = changes[i].objects;
	if (objects)
		folded = host_list_fold(objects, count);
	free(objects);
	if (!folded)
		return -ENOMEM;
	free(changes[0].objects);
	changes[0].objects = folded;
	for (size_t i = 1; i < count; i++)
		release_change(&changes[i]);
	return 0;
}

static int join_all_objects(struct changes *changes)
{
	struct change *list = changes->list;
	size_t kept = 0;
	int rc = 0;

	for (size_t i = 0, length; i < changes->count; i += length) {
		for (length = 1; i + length < changes->count && list[i].host == list[i + length].host &&
				 !compare_change_kinds(&list[i], &list[i + length]);
		     length++)
			;
		if (rc == 0 && length > 1)
			rc = join_objects(&list[i], length);
		if (rc < 0)
			length = 1;
		list[kept++] = list[i];
	}
	changes->count = kept;
	return rc;
}

static int group_changes(struct changes *changes)
{
	int rc;

	if (!changes->count)
		return 0;
	qsort(changes->list, changes->count, sizeof(*changes->list), compare_host_changes);
	rc = join_all_objects(changes);
	qsort(changes->list, changes->count, sizeof(*changes->list), compare_alike_changes);
	changes->groups = calloc(changes->count, sizeof(*changes->groups));
	if (rc < 0 || !changes->groups)
		return -ENOMEM;
	for (size_t i = 0; i < changes->count; i += changes->groups[changes->group_count++].count) {
		struct change_group *group = &changes->groups[changes->group_count];
		const struct change *first = &changes->list[i];

		*group = (struct change_group){ .change = first };
		for (; i + group->count < changes->count && are_changes_alike(first, &first[group->count]);
		     group->count++)
			group->numbers_vary = group->numbers_vary || strcmp(first->was, first[group->count].was) ||
					      strcmp(first->now, first[group->count].now);
	}
	return 0;
}

/* -- hosts --------------------------------------------------------------------------------------- */

/* Compares the answers of a host that both have. */
static int compare_saved_answers(struct changes *changes, size_t before, size_t after)
{
	const struct answer *a = &changes->before->answers[before], *b = &changes->after->answers[after];
	const char *name = changes->before->hosts.names[before];
	size_t count = changes->count;
	int rc;

	if (a->outcome != ANSWER_DOCUMENT || b->outcome != ANSWER_DOCUMENT) {
		if (a->outcome == ANSWER_DOCUMENT)
			changes->silent[changes->silent_count++] = name;
		else if (b->outcome == ANSWER_DOCUMENT)
			changes->spoke[changes->spoke_count++] = name;
		return 0;
	}
	changes->names[changes->name_count] = name;
	rc = changes_add_host(changes, changes->name_count++, a, b);
	changes->changed += changes->count > count;
	changes->restarted += *a->boot_id && *b->boot_id && strcmp(a->boot_id, b->boot_id);
	return rc;
}

int changes_find(struct changes *changes)
{
	const struct host_list *before = &changes->before->hosts, *after = &changes->after->hosts;
	const size_t room = before->count + after->count + 1;
	size_t i = 0, j = 0;
	int rc = 0;

	changes->names = calloc(room, sizeof(*changes->names));
	changes->gone = calloc(room, sizeof(*changes->gone));
	changes->added = calloc(room, sizeof(*changes->added));
	changes->silent = calloc(room, sizeof(*changes->silent));
	changes->spoke = calloc(room, sizeof(*changes->spoke));
	if (!changes->names || !changes->gone || !changes->added || !changes->silent || !changes->spoke)
		return -ENOMEM;
	while (rc == 0 && (i < before->count || j < after->count)) {
		int order = i == before->count ? 1 : j == after->count ? -1 : strcmp(before->names[i], after->names[j]);

		if (order == 0)
			rc = compare_saved_answers(changes, i++, j++);
		else if (order < 0)
			changes->gone[changes->gone_count++] = before->names[i++];
		else
			changes->added[changes->added_count++] = after->names[j++];
	}
	return rc < 0 ? rc : group_changes(changes);
}

bool changes_exist(const struct changes *changes)
{
	return changes->count || changes->gone_count || changes->added_count || changes->silent_count ||
	       changes->spoke_count;
}

void changes_free(struct changes *changes)
{
	for (size_t i = 0; i < changes->count; i++)
		release_change(&changes->list[i]);
	free(changes->list);
	free(changes->groups);
	free(changes->names);
	free(changes->gone);
	free(changes->added);
	free(changes->silent);
	free(changes->spoke);
	free(changes->ignored);
}
