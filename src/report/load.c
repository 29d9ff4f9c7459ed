/* SPDX-License-Identifier: BSD-2-Clause */
/* Loading of files into documents, and naming of series. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/fleet.h"

static const char load_hint[] = "create files with: peerlane bench --json > FILE";

/* Returns a copy of the text with invalid UTF-8 replaced. */
static char *copy_valid_utf8(const char *text)
{
	struct json_object *object = cli_json_text(text);
	char *copy = object ? strdup(json_object_get_string(object)) : NULL;

	json_object_put(object);
	return copy;
}

static int read_document_kind(struct json_object *root, enum report_kind *kind)
{
	static const char *const names[] = { "bench", "workflow", "proxy", "matrix", "goals" };
	struct json_object *named = NULL;

	/* Documents of earlier releases have no kind. */
	*kind = REPORT_BENCH;
	if (!json_object_object_get_ex(root, "kind", &named))
		return cli_json_member(root, "results", json_type_array) ? 0 : -EPROTO;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(names); i++) {
		*kind = (enum report_kind)i;
		if (json_object_is_type(named, json_type_string) && !strcmp(json_object_get_string(named), names[i]))
			return 0;
	}
	return -EPROTO;
}

/* Wraps the output of topo or check into a document that has it as a member, as results do. */
static void wrap_machine_document(struct report_document *document, const char *name)
{
	struct json_object *whole = json_object_new_object();

	cli_json_add(whole, name, document->root);
	document->root = whole;
	document->kind = REPORT_MACHINE;
}

static int find_document_kind(struct report_document *document)
{
	struct json_object *root = document->root;

	if (!json_object_is_type(root, json_type_object))
		return -EPROTO;
	if (cli_json_member(root, "pci", json_type_array) && cli_json_member(root, "gpus", json_type_array))
		wrap_machine_document(document, "topology");
	else if (cli_json_member(root, "checks", json_type_array) && cli_json_member_text(root, "verdict"))
		wrap_machine_document(document, "check");
	else
		return read_document_kind(root, &document->kind);
	return 0;
}

static int read_document(struct report *report, struct report_document *document, struct pl_error *error)
{
	const char *kind = cli_json_member_text(document->root, "kind");
	struct json_object *topology;
	double format;
	int rc;

	if (kind && !strcmp(kind, "fleet")) {
		rc = report_take_fleet(document, document->root, error);
		/* The answers have copies. */
		json_object_put(document->root);
		document->root = NULL;
		return rc;
	}
	rc = find_document_kind(document);
	if (rc < 0)
		return report_fail_content(error, document->path, "this JSON is not a result of peerlane bench");
	if (report_number(document->root, "format", &format) < 0 || format > 1)
		return report_fail_content(error, document->path,
					   "\"format\" is not 1: the file is from a later release");
	if (document->kind == REPORT_MATRIX)
		rc = report_read_matrix(document, error);
	else if (document->kind == REPORT_GOALS)
		rc = report_read_goals(document, error);
	else if (document->kind != REPORT_MACHINE)
		rc = report_read_results(report, document, error);
	topology = cli_json_member(document->root, "topology", json_type_object);
	if (rc == 0 && topology)
		rc = report_read_topology(&document->topology, topology, document->path, error);
	return rc;
}

int report_add_document(struct report *report, const char *path, struct report_document **document,
			struct pl_error *error)
{
	const char *slash = strrchr(path, '/');
	struct report_document *list;

	if (report->document_count == REPORT_FILES_MAX)
		return cli_fail(error, -E2BIG, "REPORT-SIZE", path, "split the files into several reports",
				"a report has at most %d files", REPORT_FILES_MAX);
	list = reallocarray(report->documents, report->document_count + 1, sizeof(*list));
	if (!list)
		return report_fail_memory(error);
	report->documents = list;
	*document = &list[report->document_count++];
	**document = (struct report_document){ .path = copy_valid_utf8(path),
					       .name = copy_valid_utf8(slash && slash[1] ? slash + 1 : path) };
	return (*document)->path && (*document)->name ? 0 : report_fail_memory(error);
}

int report_parse(struct report *report, const char *path, const char *text, size_t length, struct pl_error *error)
{
	struct report_document *document;
	struct json_tokener *tokener;
	enum json_tokener_error outcome;
	int rc = report_add_document(report, path, &document, error);

	if (rc < 0)
		return rc;
	tokener = json_tokener_new_ex(REPORT_DEPTH_MAX);
	if (!tokener)
		return report_fail_memory(error);
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	document->root = json_tokener_parse_ex(tokener, text, (int)length);
	outcome = json_tokener_get_error(tokener);
	if (outcome == json_tokener_continue || (outcome == json_tokener_success && !document->root))
		rc = cli_fail(error, -EPROTO, "REPORT-JSON", path, load_hint,
			      length ? "unexpected end of the JSON" : "the file is empty");
	else if (outcome != json_tokener_success)
		rc = cli_fail(error, -EPROTO, "REPORT-JSON", path, load_hint, "invalid JSON at byte %zu: %s",
			      json_tokener_get_parse_end(tokener), json_tokener_error_desc(outcome));
	json_tokener_free(tokener);
	return rc < 0 ? rc : read_document(report, document, error);
}

static int load_report_file(struct report *report, int fd, const char *path, const char *name, struct pl_error *error)
{
	size_t length;
	char *text;
	int rc = cli_read_all(fd, CLI_DOCUMENT_MAX, &text, &length);

	if (rc == -ENOMEM)
		rc = report_fail_memory(error);
	else if (rc == -EFBIG)
		rc = cli_fail(error, rc, "REPORT-SIZE", path, "check the file: results of peerlane bench are smaller",
			      "the file has more than %u MiB", CLI_DOCUMENT_MAX >> 20);
	else if (rc < 0)
		rc = cli_fail_errno(error, rc, "read", path);
	else
		rc = report_parse(report, name, text, length, error);
	free(text);
	return rc;
}

static bool is_folder(int fd)
{
	struct stat status;

	return fd >= 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

int report_load(struct report *report, const char *path, struct pl_error *error)
{
	bool input = !strcmp(path, "-");
	int fd = input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	int rc;

	if (fd < 0)
		rc = cli_fail_errno(error, -errno, "open", path);
	else if (is_folder(fd) && !input)
		rc = report_load_fleet(report, path, error);
	else
		rc = load_report_file(report, fd, path, input ? "standard input" : path, error);
	if (fd >= 0 && !input)
		close(fd);
	return rc;
}

/* True if one plot compares both series: latencies, methods of a workflow, or others. */
static bool share_plot(const struct report_series *a, const struct report_series *b)
{
	return a->latency == b->latency && !a->properties[REPORT_METHOD][0] == !b->properties[REPORT_METHOD][0];
}

/*
 * True if a property differs among series of the same plot.  Other plots do not count: the depth of a latency is always
 * 1, and all methods are of one tool.
 */
static bool property_differs(const struct report *report, const struct report_series *from,
			     enum report_property property)
{
	for (size_t i = 0; i < report->series_count; i++)
		if (share_plot(&report->series[i], from) &&
		    strcmp(report->series[i].properties[property], from->properties[property]))
			return true;
	return false;
}

static char *make_series_name(const struct report *report, const struct report_series *series, bool with_file)
{
	size_t length = 0;
	char *name = NULL;
	FILE *file = open_memstream(&name, &length);

	if (!file)
		return NULL;
	for (int property = 0; property < REPORT_PROPERTIES; property++)
		if (series->properties[property][0] &&
		    (property == REPORT_FILE ? with_file
					     : property_differs(report, series, (enum report_property)property)))
			fprintf(file, ftell(file) ? ", %s" : "%s", series->properties[property]);
	if (ftell(file) == 0)
		fprintf(file, "%s %s", series->properties[REPORT_TOOL],
			series->properties[REPORT_METHOD][0] ? series->properties[REPORT_METHOD]
							     : series->properties[REPORT_OPERATION]);
	fclose(file);
	return name;
}

static bool is_series_name_unique(const struct report *report, size_t index)
{
	const struct report_series *series = report->series;

	for (size_t i = 0; i < report->series_count; i++)
		if (i != index && series[i].latency == series[index].latency &&
		    !strcmp(series[i].name, series[index].name))
			return false;
	return true;
}

/* Names all series; those with equal names also get the name of their file. */
static int name_all_series(struct report *report)
{
	bool twice[REPORT_SERIES_MAX] = { false };

	for (size_t i = 0; i < report->series_count; i++) {
		report->series[i].name = make_series_name(report, &report->series[i], false);
		if (!report->series[i].name)
			return -ENOMEM;
	}
	for (size_t i = 0; i < report->series_count; i++)
		twice[i] = !is_series_name_unique(report, i);
	for (size_t i = 0; i < report->series_count; i++) {
		if (!twice[i])
			continue;
		free(report->series[i].name);
		report->series[i].name = make_series_name(report, &report->series[i], true);
		if (!report->series[i].name)
			return -ENOMEM;
	}
	return 0;
}

static int compare_point_sizes(const void *left, const void *right)
{
	const struct report_point *a = left, *b = right;

	return (a->size > b->size) - (a->size < b->size);
}

int report_finish(struct report *report, struct pl_error *error)
{
	bool whole = false;
	int rc;

	for (size_t i = 0; i < report->document_count; i++)
		whole = whole || report->documents[i].kind == REPORT_MATRIX || report->documents[i].goal_count ||
			report->documents[i].fleet;
	if (!whole && !report->series_count)
		return report_fail_content(error, report->documents[0].path, "the file contains no results");
	for (size_t i = 0; i < report->series_count; i++)
		qsort(report->series[i].points, report->series[i].count, sizeof(*report->series[i].points),
		      compare_point_sizes);
	rc = report_judge_matrices(report, error);
	return rc < 0 ? rc : name_all_series(report) < 0 ? report_fail_memory(error) : 0;
}

static void free_report_series(struct report_series *series)
{
	for (int property = 0; property < REPORT_PROPERTIES; property++)
		free(series->properties[property]);
	for (size_t i = 0; i < series->count; i++)
		free(series->points[i].samples);
	free(series->points);
	free(series->name);
}

void report_free(struct report *report)
{
	for (size_t i = 0; i < report->document_count; i++) {
		struct report_document *document = &report->documents[i];

		free(document->path);
		free(document->name);
		report_free_judgement(document->matrix.judgement);
		report_free_matrix(&document->matrix);
		report_free_fleet(document->fleet);
		free(document->goals);
		pl_topology_free(document->topology);
		json_object_put(document->root);
	}
	for (size_t i = 0; i < report->series_count; i++)
		free_report_series(&report->series[i]);
	for (size_t i = 0; i < report->sentence_count; i++)
		free(report->sentences[i].text);
	for (size_t i = 0; i < report->phase_count; i++)
		free(report->phases[i]);
	free(report->sentences);
	free(report->documents);
	free(report->series);
	*report = (struct report){ .documents = NULL };
}
