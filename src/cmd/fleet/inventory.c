/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/inventory.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/fleet/output.h"

#define VALUES_MAX 64 /* different ones of a host; further ones are not named */

const char *inventory_column_name(enum inventory_column column)
{
	static const char *const names[INVENTORY_COLUMNS] = {
		[INVENTORY_PLATFORM] = "PLATFORM", [INVENTORY_GPUS] = "GPUS",         [INVENTORY_CARDS] = "CARDS",
		[INVENTORY_PORTS] = "PORTS",       [INVENTORY_FIRMWARE] = "FIRMWARE", [INVENTORY_DRIVER] = "DRIVER",
		[INVENTORY_KERNEL] = "KERNEL",     [INVENTORY_MEMORY] = "MEMORY",
	};

	return names[column];
}

/* Values of a host, and how often it has each. */
struct counted {
	const char *values[VALUES_MAX];
	size_t counts[VALUES_MAX], count;
};

static void count_value(struct counted *counted, const char *value)
{
	size_t i = 0;

	while (i < counted->count && strcmp(counted->values[i], value))
		i++;
	if (i == VALUES_MAX)
		return;
	if (i == counted->count) {
		counted->values[i] = value;
		counted->counts[counted->count++] = 0;
	}
	counted->counts[i]++;
}

/* Returns "8 x VALUE, OTHER"; NULL without memory. */
static char *counted_text(const struct counted *counted)
{
	size_t length = 0;
	char *text = NULL;
	FILE *file = open_memstream(&text, &length);

	if (!file)
		return NULL;
	for (size_t i = 0; i < counted->count; i++) {
		fputs(i ? ", " : "", file);
		if (counted->counts[i] > 1)
			fprintf(file, "%zu x ", counted->counts[i]);
		fputs(counted->values[i], file);
	}
	if (fclose(file) == 0)
		return text;
	free(text);
	return NULL;
}

/* Returns the values of a property. */
static char *property_text(const struct facts *facts, const char *id)
{
	struct counted counted = { .count = 0 };

	for (size_t i = 0; i < facts->count; i++)
		if (facts->list[i].kind == FACT_VALUE && !strcmp(facts->list[i].id, id))
			count_value(&counted, facts->list[i].value);
	return counted_text(&counted);
}

/* Returns the models of the devices of a kind, or their number if the models are unknown. */
static char *devices_text(const struct facts *facts, const char *id)
{
	struct counted counted = { .count = 0 };
	size_t devices = 0;
	bool known = false;
	char *text;

	for (size_t i = 0; i < facts->count; i++) {
		const struct fact *fact = &facts->list[i], *model;

		if (fact->kind != FACT_OBJECT || strcmp(fact->id, id))
			continue;
		model = facts_find(facts, FACT_VALUE, "model", fact->object);
		known = known || model;
		devices++;
		count_value(&counted, model ? model->value : "unknown model");
	}
	if (known || !devices)
		return counted_text(&counted);
	return asprintf(&text, "%zu", devices) < 0 ? NULL : text;
}

/* Returns a property of the machine, which devices may have as well. */
static char *machine_text(const struct facts *facts, const char *id)
{
	const struct fact *fact = facts_find(facts, FACT_VALUE, id, "");

	return strdup(fact ? fact->value : "");
}

static char *inventory_text(const struct facts *facts, enum inventory_column column)
{
	switch (column) {
	case INVENTORY_PLATFORM:
		return machine_text(facts, "platform");
	case INVENTORY_GPUS:
		return devices_text(facts, "gpus");
	case INVENTORY_CARDS:
		return devices_text(facts, "cards");
	case INVENTORY_PORTS:
		return property_text(facts, "rate");
	case INVENTORY_FIRMWARE:
		return property_text(facts, "firmware");
	case INVENTORY_DRIVER:
		return machine_text(facts, "driver");
	case INVENTORY_KERNEL:
		return machine_text(facts, "kernel");
	case INVENTORY_MEMORY:
		return property_text(facts, "memory");
	default:
		return strdup("");
	}
}

static struct inventory_line *find_line(const struct inventory *inventory, char *const *cells)
{
	for (size_t i = 0; i < inventory->count; i++) {
		int column = 0;

		while (column < INVENTORY_COLUMNS && !strcmp(inventory->lines[i].cells[column], cells[column]))
			column++;
		if (column == INVENTORY_COLUMNS)
			return &inventory->lines[i];
	}
	return NULL;
}

static void free_cells(char *const *cells)
{
	for (int column = 0; column < INVENTORY_COLUMNS; column++)
		free(cells[column]);
}

/* Returns the facts of the host of this name; NULL: there are none. */
static const struct facts *find_host_facts(const struct fleet *fleet, const char *name)
{
	for (size_t i = 0; fleet && i < fleet->hosts.count; i++)
		if (fleet->answers[i].outcome == ANSWER_DOCUMENT && !strcmp(fleet->hosts.names[i], name))
			return &fleet->answers[i].facts;
	return NULL;
}

/* Returns the text of a column from the first facts, or from the second if the first have none. */
static char *text_of_either(const struct facts *facts, const struct facts *more, enum inventory_column column)
{
	char *text = inventory_text(facts, column);

	if (!text || *text || !more)
		return text;
	free(text);
	return inventory_text(more, column);
}

/* Adds a host to the line that has its cells, or to a new one. */
static int add_inventory_host(struct inventory *inventory, const struct fleet *fleet, size_t host,
			      const struct facts *more)
{
	char *cells[INVENTORY_COLUMNS] = { NULL };
	struct inventory_line *line;
	bool failed = false;

	for (int column = 0; column < INVENTORY_COLUMNS; column++) {
		cells[column] = text_of_either(&fleet->answers[host].facts, more, (enum inventory_column)column);
		failed = failed || !cells[column];
		inventory->used[column] = inventory->used[column] || (cells[column] && *cells[column]);
	}
	line = failed ? NULL : find_line(inventory, cells);
	if (failed || line) {
		free_cells(cells);
	} else {
		line = &inventory->lines[inventory->count++];
		memcpy(line->cells, cells, sizeof(line->cells));
		line->hosts = malloc(fleet->hosts.count * sizeof(*line->hosts));
	}
	if (!line || !line->hosts)
		return -ENOMEM;
	line->hosts[line->host_count++] = host;
	return 0;
}

static int compare_inventory_lines(const void *left, const void *right)
{
	const struct inventory_line *a = left, *b = right;

	if (a->host_count != b->host_count)
		return a->host_count < b->host_count ? 1 : -1;
	return (a->hosts[0] > b->hosts[0]) - (a->hosts[0] < b->hosts[0]);
}

int inventory_collect(struct inventory *inventory, const struct fleet *fleet, const struct fleet *more)
{
	int rc = 0;

	*inventory = (struct inventory){ .lines = calloc(fleet->hosts.count + 1, sizeof(*inventory->lines)) };
	if (!inventory->lines)
		return -ENOMEM;
	for (size_t i = 0; rc == 0 && i < fleet->hosts.count; i++)
		if (fleet->answers[i].outcome == ANSWER_DOCUMENT)
			rc = add_inventory_host(inventory, fleet, i, find_host_facts(more, fleet->hosts.names[i]));
	if (rc < 0)
		inventory_free(inventory);
	else
		qsort(inventory->lines, inventory->count, sizeof(*inventory->lines), compare_inventory_lines);
	return rc;
}

static int print_inventory_line(struct libscols_table *table, const struct inventory *inventory,
				const struct inventory_line *one, const struct fleet *fleet)
{
	char *hosts = fleet_fold_hosts(fleet, one->hosts, one->host_count);
	struct libscols_line *line = cli_table_line(table);
	size_t at = 0;

	if (!hosts || !line) {
		free(hosts);
		return -ENOMEM;
	}
	fleet_break_hosts(hosts);
	cli_table_set(line, at++, hosts);
	for (int column = 0; column < INVENTORY_COLUMNS; column++)
		if (inventory->used[column])
			cli_table_set(line, at++, *one->cells[column] ? one->cells[column] : "-");
	free(hosts);
	return 0;
}

int inventory_print(const struct inventory *inventory, const struct fleet *fleet)
{
	struct cli_column columns[INVENTORY_COLUMNS + 1] = { { "HOSTS", SCOLS_FL_WRAP } };
	struct libscols_table *table;
	size_t count = 1;
	int rc;

	for (int column = 0; column < INVENTORY_COLUMNS; column++)
		if (inventory->used[column])
			columns[count++] = (struct cli_column){ inventory_column_name((enum inventory_column)column),
								SCOLS_FL_WRAP };
	table = cli_table(columns, count);
	rc = table ? 0 : -ENOMEM;
	fleet_set_hosts_column(table, 0);
	for (size_t i = 0; rc == 0 && i < inventory->count; i++)
		rc = print_inventory_line(table, inventory, &inventory->lines[i], fleet);
	if (rc == 0 && inventory->count)
		cli_table_print(table);
	else
		scols_unref_table(table);
	return rc;
}

void inventory_free(struct inventory *inventory)
{
	for (size_t i = 0; i < inventory->count; i++) {
		free_cells(inventory->lines[i].cells);
		free(inventory->lines[i].hosts);
	}
	free(inventory->lines);
	*inventory = (struct inventory){ .lines = NULL };
}
