/* SPDX-License-Identifier: BSD-2-Clause */
/* Text output of `peerlane check`. */
#include "cmd/check/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/units.h"

#define INDENT 11         /* of the lines below the title of a check */
#define FINDINGS_SHOWN 20 /* of a check; JSON has all of them */

enum { COLUMN_GPU, COLUMN_MODEL, COLUMN_CARD, COLUMN_DEVICE, COLUMN_PATH, COLUMN_DMABUF, COLUMN_PEER, COLUMN_STAGED };

static const struct cli_column columns[] = {
	[COLUMN_GPU] = { "GPU", 0 },       [COLUMN_MODEL] = { "MODEL", SCOLS_FL_TRUNC },
	[COLUMN_CARD] = { "CARD", 0 },     [COLUMN_DEVICE] = { "DEVICE", 0 },
	[COLUMN_PATH] = { "PATH", 0 },     [COLUMN_DMABUF] = { "DMABUF", 0 },
	[COLUMN_PEER] = { "PEER MEM", 0 }, [COLUMN_STAGED] = { "STAGED", 0 },
};

static bool terminal_has_colours(void)
{
	const char *terminal = getenv("TERM"), *no_colour = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && (!no_colour || !*no_colour) && terminal && strcmp(terminal, "dumb");
}

static const char *check_status_colour(enum pl_check_status status)
{
	static const char *const colours[] = { "", "\033[32m", "\033[36m", "\033[33m", "\033[31m" };

	return terminal_has_colours() ? colours[status] : "";
}

static const char *colour_reset(void)
{
	return terminal_has_colours() ? "\033[0m" : "";
}

static const char *colour_bold(void)
{
	return terminal_has_colours() ? "\033[1m" : "";
}

/* True if a line of a remedy is a sentence, without a command to copy. */
static bool remedy_line_is_sentence(const char *line)
{
	return !strpbrk(line, "/=>|#$`:") && !strstr(line, " -") && (strstr(line, ", ") || strstr(line, " the "));
}

/* Prints each command of a remedy on one unbroken line, so that the user can copy it. */
static void print_remedy(const char *label, const char *remedy, int before)
{
	char copy[400], *next = copy, *command;
	int indent = before + (int)strlen(label);

	snprintf(copy, sizeof(copy), "%s", remedy);
	cli_printable(copy, false);
	while (next) {
		command = next;
		next = strstr(command, "; ");
		if (next) {
			*next = '\0';
			next += 2;
		}
		printf("%*s", indent, label);
		if (remedy_line_is_sentence(command))
			wrap_print(command, (unsigned)indent, (unsigned)indent + 2);
		else
			puts(command);
		label = "";
	}
}

static void print_check_findings(const struct pl_check_result *result)
{
	size_t shown = 0, hidden = result->left_out;

	for (size_t i = 0; i < result->count; i++) {
		const struct pl_check_finding *finding = &result->findings[i];
		char line[sizeof(finding->object) + sizeof(finding->text) + 4];

		/* Skips findings that are better than the result of the check. */
		if (finding->status < result->status || finding->accepted)
			continue;
		if (shown++ >= FINDINGS_SHOWN) {
			hidden++;
			continue;
		}
		snprintf(line, sizeof(line), "%s%s%s", finding->object, *finding->object ? ": " : "", finding->text);
		printf("%*s", INDENT, "");
		wrap_print(line, INDENT, INDENT + 2);
	}
	if (hidden)
		printf("%*s... and %zu more\n", INDENT, "", hidden);
}

/* Prints a check without a problem on one line, with its first finding. */
static void print_check_line(const struct pl_check_result *result)
{
	const struct pl_check_finding *first = NULL;
	char line[400];

	for (size_t i = 0; !first && i < result->count; i++)
		if (!result->findings[i].accepted)
			first = &result->findings[i];
	snprintf(line, sizeof(line), "%s", first ? first->text : result->row->title);
	if (first && result->count > 1)
		snprintf(line, sizeof(line), "%s%s%s (and %zu more)", first->object, *first->object ? ": " : "",
			 first->text, result->count - 1 + result->left_out);
	printf("  %s%-7s%s  %-16s ", check_status_colour(result->status), pl_check_status_name(result->status),
	       colour_reset(), result->row->id);
	wrap_print(line, INDENT + 17, INDENT + 17);
}

static void print_accepted_findings(const struct pl_check_result *result)
{
	for (size_t i = 0; i < result->count; i++) {
		const struct pl_check_finding *finding = &result->findings[i];
		char line[600];

		if (!finding->accepted)
			continue;
		snprintf(line, sizeof(line), "accepted (%s): %s%s%s", finding->accepted->reason, finding->object,
			 *finding->object ? ": " : "", finding->text);
		printf("%*s", INDENT, "");
		wrap_print(line, INDENT, INDENT + 2);
	}
}

static void print_check_result(const struct pl_check_result *result)
{
	if (result->status <= PL_CHECK_OK) {
		print_check_line(result);
		print_accepted_findings(result);
		return;
	}
	printf("  %s%-7s%s  %-16s %s\n", check_status_colour(result->status), pl_check_status_name(result->status),
	       colour_reset(), result->row->id, result->row->title);
	print_check_findings(result);
	print_accepted_findings(result);
	if (result->status == PL_CHECK_UNKNOWN) {
		print_remedy("run: ", result->reveal, INDENT);
		return;
	}
	printf("%*swhy: ", INDENT, "");
	wrap_print(result->row->reason, INDENT + 5, INDENT + 5);
	print_remedy("fix: ", result->remedy, INDENT);
}

static void print_check_routes(const struct pl_check_report *report, bool all)
{
	struct libscols_table *table = cli_table(columns, CLI_ARRAY_SIZE(columns));
	bool any = false, gpus = report->route_count && *report->routes[0].gpu;

	for (size_t i = 0; i < report->route_count; i++) {
		const struct pl_check_route *route = &report->routes[i];
		struct libscols_line *line;
		bool has_best = false;

		for (size_t j = 0; j < report->route_count; j++)
			has_best = has_best || (report->routes[j].best && !strcmp(report->routes[j].gpu, route->gpu));
		if (has_best && !route->best && !all)
			continue;
		line = cli_table_line(table);
		any = true;
		cli_table_set(line, COLUMN_GPU, gpus ? route->gpu : "none");
		cli_table_set(line, COLUMN_MODEL, gpus ? route->gpu_model : "-");
		cli_table_set(line, COLUMN_CARD, route->card);
		cli_table_set(line, COLUMN_DEVICE, route->device);
		cli_table_set(line, COLUMN_PATH, *route->class ? route->class : "-");
		cli_table_set(line, COLUMN_DMABUF, gpus ? pl_check_way_name(route->dmabuf) : "-");
		cli_table_set(line, COLUMN_PEER, gpus ? pl_check_way_name(route->peer) : "-");
		cli_table_set(line, COLUMN_STAGED, pl_check_way_name(route->staged));
	}
	if (any) {
		cli_table_print(table);
		putchar('\n');
	} else {
		scols_unref_table(table);
	}
}

static void print_status_counts(const struct pl_check_report *report)
{
	const struct pl_check_counts all = pl_check_count(report);
	const size_t *counts = all.results;

	printf("\n%zu OK, %zu unknown, %zu warning%s, %zu failed", counts[PL_CHECK_OK], counts[PL_CHECK_UNKNOWN],
	       counts[PL_CHECK_WARN], cli_plural(counts[PL_CHECK_WARN]), counts[PL_CHECK_FAIL]);
	if (all.accepted)
		printf("; %zu accepted", all.accepted);
	printf(counts[PL_CHECK_NONE] ? "; %zu not applicable\n" : "\n", counts[PL_CHECK_NONE]);
	if (counts[PL_CHECK_WARN] + counts[PL_CHECK_FAIL])
		wrap_print("`peerlane check --explain ID` explains a check; `peerlane check --fix` shows safe repairs.",
			   0, 0);
}

void render_results(const struct pl_check_report *report, bool quiet)
{
	const char *group = "";

	for (size_t i = 0; i < report->count; i++) {
		const struct pl_check_result *result = &report->results[i];

		if (result->status == PL_CHECK_NONE || (quiet && result->status <= PL_CHECK_UNKNOWN))
			continue;
		if (strcmp(group, result->row->group)) {
			group = result->row->group;
			printf("%s%s%s\n", colour_bold(), group, colour_reset());
		}
		print_check_result(result);
	}
	print_status_counts(report);
}

void render_check(const struct pl_check_report *report, const struct check *check)
{
	fputs(colour_bold(), stdout);
	wrap_print(report->summary, 0, 0);
	fputs(colour_reset(), stdout);
	if (report->first) {
		printf("\nFix first: %s%s%s, %s\n", check_status_colour(report->first->status), report->first->row->id,
		       colour_reset(), report->first->row->title);
		print_remedy("  ", report->first->remedy, 0);
	}
	putchar('\n');
	print_check_routes(report, check->all);
	render_results(report, check->common.quiet);
}

static void print_labelled_text(const char *label, const char *text)
{
	printf("  %-10s ", label);
	wrap_print(text, 13, 13);
}

void render_row(const struct pl_check_row *row)
{
	printf("%s%s%s: %s (%s)\n\n", colour_bold(), row->id, colour_reset(), row->title, row->group);
	print_labelled_text("requires", row->requirement);
	print_labelled_text("look at", row->how);
	print_labelled_text("why", row->reason);
	print_remedy("remedy     ", row->remedy, 2);
	if (row->plan)
		puts("\n  `peerlane check --fix --yes`, as root, makes the safe repairs.");
}

void render_rows(void)
{
	const struct pl_check_row *row;
	const char *group = "";

	for (size_t i = 0; (row = pl_check_row_at(i)); i++) {
		if (strcmp(group, row->group))
			printf("%s%s%s\n", colour_bold(), row->group, colour_reset());
		group = row->group;
		printf("  %-16s %s\n", row->id, row->title);
	}
}

static const struct pl_check_result *find_check_result(const struct pl_check_report *report, const char *id)
{
	for (size_t i = 0; report && id && i < report->count; i++)
		if (!strcmp(report->results[i].row->id, id))
			return &report->results[i];
	return NULL;
}

void render_decoded(const struct decoded *decoded)
{
	const char *symbol = pl_decode_symbol(decoded->kind, decoded->number);
	const struct pl_check_result *result;

	printf("%s%s: %s%s%s%s (%d)\n\n", colour_bold(), decoded->call, symbol ? symbol : "error", symbol ? ", " : "",
	       symbol ? pl_decode_meaning(decoded->kind, decoded->number) : "", colour_reset(), decoded->number);
	for (size_t i = 0; i < PL_DECODE_CAUSES && decoded->entry->causes[i].text; i++) {
		const struct pl_decode_cause *cause = &decoded->entry->causes[i];

		printf("  %zu. ", i + 1);
		wrap_print(cause->text, 5, 5);
		if (cause->run)
			printf("     run: %s\n", cause->run);
		result = find_check_result(decoded->report, cause->row);
		if (result && result->status != PL_CHECK_NONE && result->count) {
			const struct pl_check_finding *finding = &result->findings[0];

			for (size_t j = 0; j < result->count && finding->status != result->status; j++)
				finding = &result->findings[j];
			printf("     here: %s%s%s %s: ", check_status_colour(result->status),
			       pl_check_status_name(result->status), colour_reset(), cause->row);
			wrap_print(finding->text, 12, 11);
		} else if (cause->row) {
			printf("     see: peerlane check --explain %s\n", cause->row);
		}
	}
}

void render_plan(const struct pl_check_plan *plan, const struct pl_check_report *report, bool quiet)
{
	for (size_t i = 0; i < plan->count; i++)
		puts(plan->actions[i].command);
	if (quiet)
		return;
	if (!plan->count)
		puts("There are no safe repairs.");
	else
		puts("\nAdd --yes, as root, to make these repairs.");
	for (size_t i = 0; i < report->count; i++) {
		const struct pl_check_result *result = &report->results[i];

		if (result->status < PL_CHECK_WARN || result->row->plan)
			continue;
		printf("\nTo do by hand: %s, %s\n", result->row->id, result->row->title);
		print_remedy("  ", result->remedy, 0);
	}
}
