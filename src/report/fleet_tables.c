/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of fleets: findings, changes and inventory. */
#include <stdlib.h>
#include <string.h>

#include "cmd/fleet/changes.h"
#include "cmd/fleet/inventory.h"
#include "cmd/fleet/output.h"
#include "report/fleet.h"

#define LINKS_MAX 12 /* hosts of a row that are named one by one */

void report_write_host_link(const struct report_hosts *hosts, const char *name, FILE *file)
{
	size_t number = report_hosts_find(hosts, name);

	if (number != SIZE_MAX)
		fprintf(file, "<a href=\"#h%zu\">", number);
	report_escape(file, name, 80);
	fputs(number != SIZE_MAX ? "</a>" : "", file);
}

/* Writes a cell with hosts: few as links, many in compressed form. */
static int write_hosts_cell(const struct report_hosts *hosts, const char *const *names, size_t count, FILE *file)
{
	char *folded = count > LINKS_MAX ? host_list_fold(names, count) : NULL;

	if (count > LINKS_MAX && !folded)
		return -ENOMEM;
	fputs("<td class=\"t names\">", file);
	for (size_t i = 0; i < count && !folded; i++) {
		fputs(i ? ", " : "", file);
		report_write_host_link(hosts, names[i], file);
	}
	if (folded) {
		fprintf(file, "%zu hosts: ", count);
		report_escape(file, folded, 400);
	}
	fputs("</td>", file);
	free(folded);
	return 0;
}

static void begin_fleet_table(FILE *file, const char *label, const char *const *columns, size_t count)
{
	fprintf(file, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table><thead><tr>", label);
	for (size_t i = 0; i < count; i++)
		fprintf(file, "<th scope=\"col\">%s</th>", columns[i]);
	fputs("</tr></thead>\n", file);
}

static void write_text_cell(FILE *file, const char *text)
{
	fputs("<td class=\"t\">", file);
	report_escape(file, text && *text ? text : "-", 600);
	fputs("</td>", file);
}

/* Writes a name that does not break at its hyphens. */
static void write_id_cell(FILE *file, const char *id)
{
	fputs("<td>", file);
	report_escape(file, id, 64);
	fputs("</td>", file);
}

/* -- findings ---------------------------------------------------------------------------------------- */

static int write_group_row(const struct fleet *fleet, const struct fleet_group *group, const struct report_hosts *hosts,
			   FILE *file)
{
	const char **names = malloc((group->host_count + 1) * sizeof(*names));
	const struct fleet_row *row = group->row;
	char text[FLEET_ITEMS_TEXT];
	int rc;

	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < group->host_count; i++)
		names[i] = fleet->hosts.names[group->hosts[i]];
	fleet_format_items(text, sizeof(text), fleet, row, group->host_count > 1);
	fprintf(file, "<tr><td><span class=\"st s%d\">%s</span></td>", row->state, row_state_name(row->state));
	rc = write_hosts_cell(hosts, names, group->host_count, file);
	write_id_cell(file, row->id);
	fputs("<td class=\"t\">", file);
	report_escape(file, text, 600);
	if (row->outlier && row->usual && row->state != ROW_DIFFERS)
		fprintf(file, " (%zu %s %s)", row->usual_count, row->usual_count == 1 ? "host has" : "hosts have",
			row->usual);
	fputs("</td></tr>\n", file);
	free(names);
	return rc;
}

static int write_mixture(const struct fleet *fleet, const struct fleet_mixture *mixture, FILE *file)
{
	fputs("<p class=\"note\">", file);
	report_escape(file, mixture->id, 80);
	fputs(" has no usual value:", file);
	for (size_t i = 0; i < mixture->count && i < 4; i++) {
		const struct mixture_value *value = &mixture->values[i];
		char *folded = fleet_fold_hosts(fleet, value->hosts, value->host_count);

		if (!folded)
			return -ENOMEM;
		fputs(i ? ", " : " ", file);
		report_escape(file, value->value, 80);
		fputs(" (", file);
		report_escape(file, folded, 200);
		fputs(")", file);
		free(folded);
	}
	if (mixture->count > 4)
		fprintf(file, ", and %zu more", mixture->count - 4);
	fputs("</p>\n", file);
	return 0;
}

static int write_findings_table(const struct report_document *document, const struct report_hosts *hosts, FILE *file)
{
	static const char *const columns[] = { "Status", "Hosts", "Row", "Finding" };
	const struct fleet *fleet = &document->fleet->fleet;
	int rc = 0;

	fprintf(file, "<h3>peerlane fleet %s: ", fleet->kind == FLEET_TOPO ? "topo" : "check");
	report_escape(file, document->name, 80);
	fputs("</h3>\n", file);
	if (fleet->group_count)
		begin_fleet_table(file, "findings", columns, CLI_ARRAY_SIZE(columns));
	for (size_t i = 0; rc == 0 && i < fleet->group_count; i++)
		rc = write_group_row(fleet, &fleet->groups[i], hosts, file);
	if (fleet->group_count)
		fputs("</table></div>\n", file);
	for (size_t i = 0; rc == 0 && i < fleet->mixture_count; i++)
		rc = write_mixture(fleet, &fleet->mixtures[i], file);
	fprintf(file, "<p class=\"soft\">%zu of %zu hosts answered; %zu are well and alike.</p>\n",
		fleet_answered(fleet), fleet->hosts.count, fleet->counts[ROW_WELL]);
	return rc;
}

/* -- changes ----------------------------------------------------------------------------------------- */

static int write_change_row(const struct changes *changes, const struct change_group *group,
			    const struct report_hosts *hosts, FILE *file)
{
	const char **names = malloc((group->count + 1) * sizeof(*names));
	int rc;

	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < group->count; i++)
		names[i] = changes->names[group->change[i].host];
	fputs("<tr>", file);
	rc = write_hosts_cell(hosts, names, group->count, file);
	write_id_cell(file, group->change->id);
	write_text_cell(file, group->change->objects);
	write_text_cell(file, group->change->was);
	write_text_cell(file, group->change->now);
	fputs("</tr>\n", file);
	free(names);
	return rc;
}

static int write_hosts_of_one(const struct report_hosts *hosts, const char **names, size_t count, const char *was,
			      const char *now, FILE *file)
{
	int rc;

	if (!count)
		return 0;
	fputs("<tr>", file);
	rc = write_hosts_cell(hosts, names, count, file);
	write_text_cell(file, "answer");
	write_text_cell(file, "");
	write_text_cell(file, was);
	write_text_cell(file, now);
	fputs("</tr>\n", file);
	return rc;
}

static int write_changes_table(const struct changes *changes, const struct report_hosts *hosts, FILE *file)
{
	static const char *const columns[] = { "Hosts", "Row", "Object", "Was", "Now" };
	int rc = 0;

	if (!changes_exist(changes)) {
		fputs("<p>Nothing changed.</p>\n", file);
		return 0;
	}
	begin_fleet_table(file, "changes", columns, CLI_ARRAY_SIZE(columns));
	for (size_t i = 0; rc == 0 && i < changes->group_count; i++)
		rc = write_change_row(changes, &changes->groups[i], hosts, file);
	if (rc == 0)
		rc = write_hosts_of_one(hosts, changes->gone, changes->gone_count, "asked", "not asked", file);
	if (rc == 0)
		rc = write_hosts_of_one(hosts, changes->silent, changes->silent_count, "usable", "none", file);
	if (rc == 0)
		rc = write_hosts_of_one(hosts, changes->added, changes->added_count, "not asked", "asked", file);
	if (rc == 0)
		rc = write_hosts_of_one(hosts, changes->spoke, changes->spoke_count, "none", "usable", file);
	fputs("</table></div>\n", file);
	return rc;
}

static int write_fleet_changes(const struct report_document *before, const struct report_document *after,
			       const struct report_hosts *hosts, FILE *file)
{
	struct changes changes = { .before = &before->fleet->saved, .after = &after->fleet->saved };
	int rc = changes_find(&changes);

	if (rc == 0) {
		fputs("<h3>Changed since ", file);
		report_escape(file, before->name, 80);
		fputs("</h3>\n", file);
		rc = write_changes_table(&changes, hosts, file);
	}
	changes_free(&changes);
	return rc;
}

int report_write_fleet_findings(const struct report *report, const struct report_hosts *hosts, FILE *file)
{
	bool any = false;
	int rc = 0;

	for (int kind = FLEET_CHECK; rc == 0 && kind <= FLEET_TOPO; kind++) {
		const struct report_document *before, *last = report_last_fleet(report, (enum fleet_kind)kind, &before);

		if (!last)
			continue;
		if (!any)
			fputs("<h2>Findings</h2>\n", file);
		any = true;
		rc = write_findings_table(last, hosts, file);
		if (rc == 0 && before)
			rc = write_fleet_changes(before, last, hosts, file);
	}
	return rc;
}

/* -- inventory --------------------------------------------------------------------------------------- */

static int write_inventory_table(const struct inventory *inventory, const struct fleet *fleet,
				 const struct report_hosts *hosts, FILE *file)
{
	const char *columns[INVENTORY_COLUMNS + 1] = { "HOSTS" };
	const char **names = malloc((fleet->hosts.count + 1) * sizeof(*names));
	size_t count = 1;
	int rc = names ? 0 : -ENOMEM;

	for (int column = 0; column < INVENTORY_COLUMNS; column++)
		if (inventory->used[column])
			columns[count++] = inventory_column_name((enum inventory_column)column);
	begin_fleet_table(file, "inventory", columns, count);
	for (size_t i = 0; rc == 0 && i < inventory->count; i++) {
		const struct inventory_line *line = &inventory->lines[i];

		for (size_t j = 0; j < line->host_count; j++)
			names[j] = fleet->hosts.names[line->hosts[j]];
		fputs("<tr>", file);
		rc = write_hosts_cell(hosts, names, line->host_count, file);
		for (int column = 0; column < INVENTORY_COLUMNS; column++)
			if (inventory->used[column])
				write_text_cell(file, line->cells[column]);
		fputs("</tr>\n", file);
	}
	fputs("</table></div>\n", file);
	free(names);
	return rc;
}

int report_write_inventory(const struct report *report, const struct report_hosts *hosts, FILE *file)
{
	const struct report_document *before, *topo = report_last_fleet(report, FLEET_TOPO, &before);
	const struct report_document *check = report_last_fleet(report, FLEET_CHECK, &before);
	const struct fleet *fleet, *more = topo && check ? &check->fleet->fleet : NULL;
	struct inventory inventory;
	int rc;

	if (!topo && !check)
		return 0;
	/* A topology knows more devices, and a check the kernel and the driver. */
	fleet = topo ? &topo->fleet->fleet : &check->fleet->fleet;
	rc = inventory_collect(&inventory, fleet, more);
	if (rc < 0)
		return rc;
	fputs("<h2>Inventory</h2>\n<p class=\"soft\">One line for hosts that have the same.</p>\n", file);
	rc = write_inventory_table(&inventory, fleet, hosts, file);
	inventory_free(&inventory);
	return rc;
}
