/* SPDX-License-Identifier: BSD-2-Clause */
/* Groups of rows: one for all hosts with the same findings. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/fleet/judge.h"

/* Groups of one check beyond this number are joined if they differ in numbers only, such as counters of errors. */
#define GROUPS_OF_CHECK 5

/* Position of a row in the output: outliers before what is usual, silent hosts last. */
static int row_rank(const struct fleet_row *row)
{
	if (row->state == ROW_SILENT)
		return 2 * ROW_STATES;
	return (int)row->state + (row->outlier ? 0 : ROW_STATES);
}

static bool is_in_name(char character)
{
	return isalnum((unsigned char)character) || character == '_' || character == '-';
}

void fleet_write_without_host(FILE *file, const char *text, const char *host)
{
	const char *found, *rest = text;
	size_t length = strlen(host);

	while ((found = strstr(rest, host))) {
		bool whole = (found == text || !is_in_name(found[-1])) && !is_in_name(found[length]);

		fprintf(file, "%.*s%s", (int)(found - rest), rest, whole ? "HOST" : host);
		rest = found + length;
	}
	fputs(rest, file);
}

/* Returns the items of a row as one text, which equal rows share. */
static char *make_row_key(const struct fleet *fleet, const struct fleet_row *row)
{
	char *key = NULL;
	size_t length;
	FILE *file = open_memstream(&key, &length);

	if (!file)
		return NULL;
	for (size_t i = 0; i < row->count; i++) {
		fprintf(file, "%s\n", row->items[i].object);
		if (row->state == ROW_SILENT)
			fleet_write_without_host(file, row->items[i].text, fleet->hosts.names[row->host]);
		else
			fputs(row->items[i].text, file);
		fputc('\n', file);
	}
	if (fclose(file)) {
		free(key);
		return NULL;
	}
	return key;
}

static int compare_row_places(const struct fleet_row *a, const struct fleet_row *b)
{
	int order = row_rank(a) - row_rank(b);

	return order ? order : strcmp(a->id, b->id);
}

static int compare_rows(const void *left, const void *right)
{
	const struct fleet_row *a = left, *b = right;
	int order = compare_row_places(a, b);

	order = order ? order : strcmp(a->key, b->key);
	return order ? order : (a->host > b->host) - (a->host < b->host);
}

/* Replaces each number of a key by one digit. */
static void mask_numbers(char *key)
{
	char *to = key;
	bool number = false;

	for (; *key; key++) {
		bool digit = isdigit((unsigned char)*key);

		if (!digit)
			*to++ = *key;
		else if (!number)
			*to++ = '0';
		number = digit;
	}
	*to = '\0';
}

/* Masks the numbers in findings of checks that have too many groups.  Sorted rows stay sorted by place. */
static void join_many_groups(struct fleet *fleet)
{
	struct fleet_row *rows = fleet->rows;

	for (size_t i = 0, length; i < fleet->row_count; i += length) {
		size_t groups = 1;

		for (length = 1; i + length < fleet->row_count && !compare_row_places(&rows[i], &rows[i + length]);
		     length++)
			groups += strcmp(rows[i + length].key, rows[i + length - 1].key) != 0;
		if (groups <= GROUPS_OF_CHECK || rows[i].state == ROW_DIFFERS)
			continue;
		for (size_t j = i; j < i + length; j++)
			mask_numbers(rows[j].key);
	}
}

/* Makes a group of equal rows. */
static int add_group(struct fleet *fleet, const struct fleet_row *rows, size_t count)
{
	struct fleet_group *group = &fleet->groups[fleet->group_count];
	char *first = make_row_key(fleet, rows), *key;

	*group = (struct fleet_group){ .row = rows, .hosts = malloc(count * sizeof(*group->hosts)) };
	if (!group->hosts) {
		free(first);
		return -ENOMEM;
	}
	fleet->group_count++;
	for (size_t i = 0; i < count; i++) {
		key = make_row_key(fleet, &rows[i]);
		group->hosts[group->host_count++] = rows[i].host;
		group->numbers_vary = group->numbers_vary || !key || !first || strcmp(key, first);
		free(key);
	}
	free(first);
	return 0;
}

int fleet_group_rows(struct fleet *fleet)
{
	int rc = 0;

	fleet->groups = calloc(fleet->row_count + 1, sizeof(*fleet->groups));
	if (!fleet->groups)
		return -ENOMEM;
	for (size_t i = 0; rc == 0 && i < fleet->row_count; i++) {
		fleet->rows[i].key = make_row_key(fleet, &fleet->rows[i]);
		rc = fleet->rows[i].key ? 0 : -ENOMEM;
	}
	if (rc == 0 && fleet->row_count) {
		qsort(fleet->rows, fleet->row_count, sizeof(*fleet->rows), compare_rows);
		join_many_groups(fleet);
		qsort(fleet->rows, fleet->row_count, sizeof(*fleet->rows), compare_rows);
	}
	for (size_t i = 0, length; rc == 0 && i < fleet->row_count; i += length) {
		for (length = 1;
		     i + length < fleet->row_count && !compare_row_places(&fleet->rows[i], &fleet->rows[i + length]) &&
		     !strcmp(fleet->rows[i].key, fleet->rows[i + length].key);
		     length++)
			;
		rc = add_group(fleet, &fleet->rows[i], length);
	}
	return rc;
}
