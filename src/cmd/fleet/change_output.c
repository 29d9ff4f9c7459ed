/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes as a table, as comma-separated values, and as JSON. */
#include <stdlib.h>
#include <string.h>

#include "cmd/common/csv.h"
#include "cmd/fleet/changes.h"
#include "cmd/fleet/output.h"

#define DOCUMENT_FORMAT 1

enum { COLUMN_HOSTS, COLUMN_ROW, COLUMN_OBJECT, COLUMN_WAS, COLUMN_NOW };

static const struct cli_column change_columns[] = {
	[COLUMN_HOSTS] = { "HOSTS", SCOLS_FL_WRAP },   [COLUMN_ROW] = { "ROW", 0 },
	[COLUMN_OBJECT] = { "OBJECT", SCOLS_FL_WRAP }, [COLUMN_WAS] = { "WAS", SCOLS_FL_WRAP },
	[COLUMN_NOW] = { "NOW", SCOLS_FL_WRAP },
};

/* Returns the names of a group's hosts, to be freed. */
static const char **group_names(const struct changes *changes, const struct change_group *group)
{
	const char **names = malloc(group->count * sizeof(*names));

	for (size_t i = 0; names && i < group->count; i++)
		names[i] = changes->names[group->change[i].host];
	return names;
}

static int add_change_line(struct libscols_table *table, const struct changes *changes,
			   const struct change_group *group)
{
	const char **names = group_names(changes, group);
	char *hosts = names ? host_list_fold(names, group->count) : NULL, *now = NULL;
	struct libscols_line *line = cli_table_line(table);
	int rc = -ENOMEM;

	if (hosts && line &&
	    asprintf(&now, "%s%s", group->change->now, group->numbers_vary ? " (numbers differ)" : "") >= 0) {
		fleet_break_hosts(hosts);
		cli_table_set(line, COLUMN_HOSTS, hosts);
		cli_table_set(line, COLUMN_ROW, group->change->id);
		cli_table_set(line, COLUMN_OBJECT, *group->change->objects ? group->change->objects : "-");
		cli_table_set(line, COLUMN_WAS, group->change->was);
		cli_table_set(line, COLUMN_NOW, now);
		rc = 0;
		free(now);
	}
	free(hosts);
	free(names);
	return rc;
}

/* Prints "HOSTS TEXT". */
static int print_named_hosts(const char **names, size_t count, const char *text)
{
	char *folded = count ? host_list_fold(names, count) : NULL;

	if (!count)
		return 0;
	if (!folded)
		return -ENOMEM;
	printf("%s: %s\n", folded, text);
	free(folded);
	return 0;
}

static int print_hosts_of_one(const struct changes *changes)
{
	int rc = print_named_hosts(changes->gone, changes->gone_count, "no document in the second one");

	rc = rc < 0 ? rc : print_named_hosts(changes->silent, changes->silent_count, "no usable answer any more");
	rc = rc < 0 ? rc : print_named_hosts(changes->added, changes->added_count, "no document in the first one");
	return rc < 0 ? rc : print_named_hosts(changes->spoke, changes->spoke_count, "a usable answer again");
}

/* Prints a table, and a summary without `quiet`.  Returns 0 or -ENOMEM. */
static int print_changes_table(const struct changes *changes, bool quiet)
{
	struct libscols_table *table = cli_table(change_columns, CLI_ARRAY_SIZE(change_columns));
	int rc = table ? 0 : -ENOMEM;

	fleet_set_hosts_column(table, COLUMN_HOSTS);
	for (size_t i = 0; rc == 0 && i < changes->group_count; i++)
		rc = add_change_line(table, changes, &changes->groups[i]);
	if (rc == 0 && changes->group_count)
		cli_table_print(table);
	else
		scols_unref_table(table);
	if (rc == 0)
		rc = print_hosts_of_one(changes);
	if (rc == 0 && !quiet)
		printf("%zu of %zu hosts changed, %zu started anew in between\n", changes->changed, changes->name_count,
		       changes->restarted);
	return rc;
}

/* -- JSON ---------------------------------------------------------------------------------------- */

static struct json_object *names_json(const char **names, size_t count)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < count; i++)
		cli_json_append(array, cli_json_text(names[i]));
	return array;
}

static struct json_object *change_json(const struct changes *changes, const struct change_group *group)
{
	struct json_object *object = json_object_new_object();
	const struct change *change = group->change;
	const char **names = group_names(changes, group);
	char *folded = names ? host_list_fold(names, group->count) : NULL;

	cli_json_add(object, "id", cli_json_text(change->id));
	cli_json_add(object, "objects", cli_json_text_or_null(change->objects));
	cli_json_add(object, "was", cli_json_text(change->was));
	cli_json_add(object, "now", cli_json_text(change->now));
	cli_json_add(object, "better", json_object_new_boolean(change->rank == CHANGE_BETTER));
	cli_json_add(object, "numbers_differ", json_object_new_boolean(group->numbers_vary));
	cli_json_add(object, "hosts", names ? names_json(names, group->count) : NULL);
	cli_json_add(object, "folded", cli_json_text(folded));
	free(folded);
	free(names);
	return object;
}

struct json_object *changes_document(const struct changes *changes)
{
	struct json_object *object = cli_json_begin(), *list = json_object_new_array(),
			   *counts = json_object_new_object();

	for (size_t i = 0; i < changes->group_count; i++)
		cli_json_append(list, change_json(changes, &changes->groups[i]));
	cli_json_add(counts, "compared", json_object_new_uint64(changes->name_count));
	cli_json_add(counts, "changed", json_object_new_uint64(changes->changed));
	cli_json_add(counts, "restarted", json_object_new_uint64(changes->restarted));
	cli_json_add(object, "format", json_object_new_int(DOCUMENT_FORMAT));
	cli_json_add(object, "kind", cli_json_text("fleet-changes"));
	cli_json_add(object, "version", cli_json_text(pl_version()));
	cli_json_add(object, "command", cli_json_text(changes->after->kind == FLEET_CHECK ? "check" : "topo"));
	cli_json_add(object, "counts", counts);
	cli_json_add(object, "changes", list);
	cli_json_add(object, "gone", names_json(changes->gone, changes->gone_count));
	cli_json_add(object, "added", names_json(changes->added, changes->added_count));
	cli_json_add(object, "silent", names_json(changes->silent, changes->silent_count));
	cli_json_add(object, "answering", names_json(changes->spoke, changes->spoke_count));
	return object;
}

/* -- comma-separated values ------------------------------------------------------------------------- */

static void print_csv_change(struct csv *csv, const char *host, const struct change *change)
{
	csv_text(csv, host);
	csv_text(csv, change->id);
	csv_text(csv, change->objects);
	csv_text(csv, change->was);
	csv_text(csv, change->now);
	csv_end(csv);
}

/* Prints hosts whose document only one of both runs has. */
static void print_csv_hosts(struct csv *csv, const char **names, size_t count, const char *was, const char *now)
{
	for (size_t i = 0; i < count; i++) {
		csv_text(csv, names[i]);
		csv_text(csv, "document");
		csv_text(csv, NULL);
		csv_text(csv, was);
		csv_text(csv, now);
		csv_end(csv);
	}
}

/* Prints a line for each host and change. */
static void print_changes_csv(const struct changes *changes)
{
	static const char *const names[] = { "host", "row", "object", "was", "now" };
	struct csv csv = { .file = stdout };

	csv_names(&csv, names, CLI_ARRAY_SIZE(names));
	for (size_t i = 0; i < changes->count; i++)
		print_csv_change(&csv, changes->names[changes->list[i].host], &changes->list[i]);
	print_csv_hosts(&csv, changes->gone, changes->gone_count, "present", "missing");
	print_csv_hosts(&csv, changes->silent, changes->silent_count, "present", "no usable answer");
	print_csv_hosts(&csv, changes->added, changes->added_count, "missing", "present");
	print_csv_hosts(&csv, changes->spoke, changes->spoke_count, "no usable answer", "present");
}

/* -- all --------------------------------------------------------------------------------------------- */

static int find_changes(struct changes *changes, struct pl_error *error)
{
	if (changes->before->kind != changes->after->kind)
		return cli_fail(error, -EINVAL, "FLEET-SAVED", changes->after->path,
				"compare two runs of the same command",
				"one is of peerlane fleet check, and one of peerlane fleet topo");
	if (changes_find(changes) < 0)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	if (!changes->name_count && !changes_exist(changes))
		return cli_fail(error, -EINVAL, "FLEET-SAVED", changes->after->path,
				"name runs in which hosts have answered", "no host has a document in either run");
	return 0;
}

int changes_show(struct changes *changes, const struct cli_options *common, bool csv)
{
	struct pl_error error;
	int status = CLI_OK;

	if (find_changes(changes, &error) < 0) {
		cli_report_for(common, &error);
		return CLI_USAGE;
	}
	if (common->json) {
		status = cli_json_results(changes_document(changes));
	} else if (csv) {
		print_changes_csv(changes);
	} else if (print_changes_table(changes, common->quiet) < 0) {
		cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
		cli_report(&error);
		status = CLI_USAGE;
	}
	return status == CLI_OK && changes_exist(changes) ? CLI_FAILED : status;
}
