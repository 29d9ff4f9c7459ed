/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/inventory.h"
#include "cmd/fleet/output.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ITEMS_SHOWN 3
#define VALUES_SHOWN 4 /* of a mixture */
#define TEXT_MAX 1600
#define HOSTS_WIDTH 24 /* of a line of hosts on a terminal, up to its last comma */

enum { COLUMN_HOSTS, COLUMN_STATUS, COLUMN_ROW, COLUMN_WHAT };

static const struct cli_column fleet_columns[] = {
	[COLUMN_HOSTS] = { "HOSTS", SCOLS_FL_WRAP },
	[COLUMN_STATUS] = { "STATUS", 0 },
	[COLUMN_ROW] = { "ROW", 0 },
	[COLUMN_WHAT] = { "WHAT", SCOLS_FL_WRAP },
};

char *fleet_fold_hosts(const struct fleet *fleet, const size_t *hosts, size_t count)
{
	const char **names = malloc((count + 1) * sizeof(*names));
	char *text = NULL;

	for (size_t i = 0; names && i < count; i++)
		names[i] = fleet->hosts.names[hosts[i]];
	if (names)
		text = host_list_fold(names, count);
	free(names);
	return text;
}

/* Copies the reason of a silence with HOST for the name of the host, cut to the buffer's size. */
static void copy_without_host(char *buffer, size_t size, const char *text, const char *host)
{
	FILE *file = fmemopen(buffer, size, "w");

	*buffer = '\0';
	if (!file)
		return;
	fleet_write_without_host(file, text, host);
	fclose(file);
	buffer[size - 1] = '\0';
}

void fleet_format_items(char *buffer, size_t size, const struct fleet *fleet, const struct fleet_row *row, bool several)
{
	size_t length = 0;

	*buffer = '\0';
	if (row->state == ROW_SILENT && several) {
		copy_without_host(buffer, size, row->items[0].text, fleet->hosts.names[row->host]);
		return;
	}
	for (size_t i = 0; i < row->count && i < ITEMS_SHOWN && length < size; i++) {
		const struct row_item *item = &row->items[i];

		length += (size_t)snprintf(buffer + length, size - length, "%s%s%s%s", i ? "; " : "", item->object,
					   *item->object ? ": " : "", item->text);
	}
	if (row->count > ITEMS_SHOWN && length < size)
		snprintf(buffer + length, size - length, "; and %zu more", row->count - ITEMS_SHOWN);
}

void fleet_break_hosts(char *folded)
{
	char *line = folded, *comma;

	if (!isatty(STDOUT_FILENO))
		return;
	for (comma = folded; (comma = strchr(comma, ',')); comma++) {
		if (comma - line < HOSTS_WIDTH)
			continue;
		*comma = '\n';
		line = comma + 1;
	}
}

void fleet_set_hosts_column(struct libscols_table *table, size_t column)
{
	struct libscols_column *hosts = table ? scols_table_get_column(table, column) : NULL;

	if (!hosts)
		return;
	scols_column_set_safechars(hosts, "\n");
	scols_column_set_wrapfunc(hosts, scols_wrapnl_chunksize, scols_wrapnl_nextchunk, NULL);
}

static int add_group_line(struct libscols_table *table, const struct fleet *fleet, const struct fleet_group *group)
{
	const struct fleet_row *row = group->row;
	char *hosts = fleet_fold_hosts(fleet, group->hosts, group->host_count), text[TEXT_MAX];
	struct libscols_line *line = cli_table_line(table);
	size_t length;

	if (!hosts || !line) {
		free(hosts);
		return -ENOMEM;
	}
	fleet_format_items(text, sizeof(text), fleet, row, group->host_count > 1);
	length = strlen(text);
	if (group->numbers_vary)
		snprintf(text + length, sizeof(text) - length, " (numbers differ)");
	length = strlen(text);
	/* The text of another row tells the usual value itself. */
	if (row->outlier && row->usual && row->state != ROW_DIFFERS)
		snprintf(text + length, sizeof(text) - length, " (%zu %s %s)", row->usual_count,
			 row->usual_count == 1 ? "host has" : "hosts have", row->usual);
	fleet_break_hosts(hosts);
	cli_table_set(line, COLUMN_HOSTS, hosts);
	cli_table_set(line, COLUMN_STATUS, row_state_name(row->state));
	cli_table_set(line, COLUMN_ROW, row->id);
	cli_table_set(line, COLUMN_WHAT, text);
	free(hosts);
	return 0;
}

/* Names the values of a property that has no usual one. */
static int print_mixture(const struct fleet *fleet, const struct fleet_mixture *mixture)
{
	printf("%s has no usual value:", mixture->id);
	for (size_t i = 0; i < mixture->count && i < VALUES_SHOWN; i++) {
		const struct mixture_value *value = &mixture->values[i];
		char *hosts = fleet_fold_hosts(fleet, value->hosts, value->host_count);

		if (!hosts)
			return -ENOMEM;
		printf("%s %s (%s)", i ? "," : "", value->value, hosts);
		free(hosts);
	}
	if (mixture->count > VALUES_SHOWN)
		printf(", and %zu more", mixture->count - VALUES_SHOWN);
	putchar('\n');
	return 0;
}

static void print_fleet_summary(const struct fleet *fleet)
{
	const size_t answered = fleet_answered(fleet), well = fleet->counts[ROW_WELL];

	if (well)
		printf("%zu host%s %s well%s\n", well, well == 1 ? "" : "s", well == 1 ? "is" : "are",
		       well > 1 ? " and alike" : "");
	printf("%zu of %zu hosts answered", answered, fleet->hosts.count);
	if (fleet->seconds >= 0)
		printf(" in %.1f s", fleet->seconds);
	for (int state = 0; state < ROW_WELL; state++)
		if (fleet->counts[state])
			printf(", %zu %s", fleet->counts[state], row_state_name((enum row_state)state));
	putchar('\n');
}

/* Prints what the hosts of `fleet topo` have. */
static int print_inventory(const struct fleet *fleet, bool first)
{
	struct inventory inventory;
	int rc = inventory_collect(&inventory, fleet, NULL);

	if (rc < 0)
		return rc;
	if (inventory.count && !first)
		putchar('\n');
	rc = inventory_print(&inventory, fleet);
	if (inventory.count)
		putchar('\n');
	inventory_free(&inventory);
	return rc;
}

int fleet_print(const struct fleet *fleet, bool quiet)
{
	struct libscols_table *table = cli_table(fleet_columns, CLI_ARRAY_SIZE(fleet_columns));
	int rc = table ? 0 : -ENOMEM;

	fleet_set_hosts_column(table, COLUMN_HOSTS);
	for (size_t i = 0; rc == 0 && i < fleet->group_count; i++)
		rc = add_group_line(table, fleet, &fleet->groups[i]);
	if (rc == 0 && fleet->group_count)
		cli_table_print(table);
	else
		scols_unref_table(table);
	if (rc == 0 && !quiet && fleet->kind == FLEET_TOPO)
		rc = print_inventory(fleet, !fleet->group_count);
	for (size_t i = 0; rc == 0 && !quiet && i < fleet->mixture_count; i++)
		rc = print_mixture(fleet, &fleet->mixtures[i]);
	if (rc == 0 && !quiet)
		print_fleet_summary(fleet);
	return rc;
}
