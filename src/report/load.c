/* SPDX-License-Identifier: BSD-2-Clause */
/* From files to documents. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/report.h"

static const char hint[] = "write it with: peerlane bench --json > FILE";

/* The text as what is well-formed UTF-8, in memory of its own. */
static char *clean(const char *text)
{
	struct json_object *object = cli_json_text(text);
	char *copy = object ? strdup(json_object_get_string(object)) : NULL;

	json_object_put(object);
	return copy;
}

static int kind_of(struct json_object *root, enum report_kind *kind)
{
	static const char *const names[] = { "bench", "workflow", "proxy", "matrix" };
	struct json_object *named = NULL;

	/* Those of earlier releases do not say what they are. */
	*kind = REPORT_BENCH;
	if (!json_object_object_get_ex(root, "kind", &named))
		return report_member(root, "results", json_type_array) ? 0 : -EPROTO;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(names); i++) {
		*kind = (enum report_kind)i;
		if (json_object_is_type(named, json_type_string) && !strcmp(json_object_get_string(named), names[i]))
			return 0;
	}
	return -EPROTO;
}

/* What topo and check print becomes a document that has it where results have it. */
static void wrap(struct report_document *document, const char *name)
{
	struct json_object *whole = json_object_new_object();

	cli_json_add(whole, name, document->root);
	document->root = whole;
	document->kind = REPORT_MACHINE;
}

static int find_kind(struct report_document *document)
{
	struct json_object *root = document->root;

	if (!json_object_is_type(root, json_type_object))
		return -EPROTO;
	if (report_member(root, "pci", json_type_array) && report_member(root, "gpus", json_type_array))
		wrap(document, "topology");
	else if (report_member(root, "checks", json_type_array) && report_text(root, "verdict"))
		wrap(document, "check");
	else
		return kind_of(root, &document->kind);
	return 0;
}

static int fill(struct report *report, struct report_document *document, struct pl_error *error)
{
	struct json_object *topology;
	double format;
	int rc = find_kind(document);

	if (rc < 0)
		return report_wrong(error, document->path, "this JSON is not a result of peerlane bench");
	if (report_number(document->root, "format", &format) < 0 || format > 1)
		return report_wrong(error, document->path, "\"format\" is not 1: it is from a later release");
	if (document->kind == REPORT_MATRIX)
		rc = report_read_matrix(document, error);
	else if (document->kind != REPORT_MACHINE)
		rc = report_read_results(report, document, error);
	topology = report_member(document->root, "topology", json_type_object);
	if (rc == 0 && topology)
		rc = report_read_topology(&document->topology, topology, document->path, error);
	return rc;
}

int report_parse(struct report *report, const char *path, const char *text, size_t length, struct pl_error *error)
{
	const char *slash = strrchr(path, '/');
	struct report_document *document;
	struct json_tokener *tokener;
	enum json_tokener_error rc;

	if (report->document_count == REPORT_FILES_MAX)
		return cli_fail(error, -E2BIG, "REPORT-SIZE", path, "make several reports",
				"a report has at most %d files", REPORT_FILES_MAX);
	document = reallocarray(report->documents, report->document_count + 1, sizeof(*document));
	tokener = json_tokener_new_ex(REPORT_DEPTH_MAX);
	if (document)
		report->documents = document;
	if (!document || !tokener) {
		json_tokener_free(tokener);
		return report_no_memory(error);
	}
	document = &report->documents[report->document_count++];
	*document = (struct report_document){ .path = clean(path), .name = clean(slash ? slash + 1 : path) };
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	document->root = json_tokener_parse_ex(tokener, text, (int)length);
	rc = json_tokener_get_error(tokener);
	if (rc == json_tokener_continue || (rc == json_tokener_success && !document->root)) {
		rc = json_tokener_continue;
		cli_fail(error, -EPROTO, "REPORT-JSON", path, hint, length ? "the JSON ends too soon" : "it is empty");
	} else if (rc != json_tokener_success) {
		cli_fail(error, -EPROTO, "REPORT-JSON", path, hint, "this is not JSON, from byte %zu on: %s",
			 json_tokener_get_parse_end(tokener), json_tokener_error_desc(rc));
	}
	json_tokener_free(tokener);
	if (rc != json_tokener_success)
		return error->code;
	if (!document->path || !document->name)
		return report_no_memory(error);
	return fill(report, document, error);
}

static int read_all(int fd, const char *path, char *buffer, size_t *length, struct pl_error *error)
{
	ssize_t got;

	for (*length = 0; *length <= REPORT_FILE_MAX; *length += (size_t)got) {
		got = read(fd, buffer + *length, REPORT_FILE_MAX + 1 - *length);
		if (got < 0)
			return cli_fail_errno(error, -errno, "read", path);
		if (got == 0)
			return 0;
	}
	return cli_fail(error, -EFBIG, "REPORT-SIZE", path,
			"results of peerlane bench are much smaller: is it the right one?",
			"the file has more than %u MB", REPORT_FILE_MAX >> 20);
}

int report_load(struct report *report, const char *path, struct pl_error *error)
{
	bool input = !strcmp(path, "-");
	int fd = input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	char *buffer = malloc(REPORT_FILE_MAX + 1);
	size_t length = 0;
	int rc;

	if (fd < 0)
		rc = cli_fail_errno(error, -errno, "open", path);
	else if (!buffer)
		rc = report_no_memory(error);
	else
		rc = read_all(fd, path, buffer, &length, error);
	if (rc == 0)
		rc = report_parse(report, input ? "standard input" : path, buffer, length, error);
	if (fd >= 0 && !input)
		close(fd);
	free(buffer);
	return rc;
}

/* -- names of series ----------------------------------------------------------------------------- */

/* Whether the same picture compares them: times, arms of a workflow, or the rest. */
static bool alike(const struct report_series *a, const struct report_series *b)
{
	return a->latency == b->latency && !a->parts[REPORT_ARM][0] == !b->parts[REPORT_ARM][0];
}

/*
 * Among those that are compared with this one: the depth of a latency is 1, which says nothing next to that of a rate,
 * and all arms are of one tool.
 */
static bool differs(const struct report *report, const struct report_series *from, enum report_part part)
{
	for (size_t i = 0; i < report->series_count; i++)
		if (alike(&report->series[i], from) && strcmp(report->series[i].parts[part], from->parts[part]))
			return true;
	return false;
}

static char *name_of(const struct report *report, const struct report_series *series, bool with_file)
{
	size_t length = 0;
	char *name = NULL;
	FILE *file = open_memstream(&name, &length);

	if (!file)
		return NULL;
	for (int part = 0; part < REPORT_PARTS; part++)
		if (series->parts[part][0] &&
		    (part == REPORT_FILE ? with_file : differs(report, series, (enum report_part)part)))
			fprintf(file, ftell(file) ? ", %s" : "%s", series->parts[part]);
	if (ftell(file) == 0)
		fprintf(file, "%s %s", series->parts[REPORT_TOOL],
			series->parts[REPORT_ARM][0] ? series->parts[REPORT_ARM] : series->parts[REPORT_OPERATION]);
	fclose(file);
	return name;
}

static bool is_unique(const struct report *report, size_t index)
{
	const struct report_series *series = report->series;

	for (size_t i = 0; i < report->series_count; i++)
		if (i != index && series[i].latency == series[index].latency &&
		    !strcmp(series[i].name, series[index].name))
			return false;
	return true;
}

/* Those that would have the same name have that of their file, too. */
static int name_all(struct report *report)
{
	bool twice[REPORT_SERIES_MAX] = { false };

	for (size_t i = 0; i < report->series_count; i++) {
		report->series[i].name = name_of(report, &report->series[i], false);
		if (!report->series[i].name)
			return -ENOMEM;
	}
	for (size_t i = 0; i < report->series_count; i++)
		twice[i] = !is_unique(report, i);
	for (size_t i = 0; i < report->series_count; i++) {
		if (!twice[i])
			continue;
		free(report->series[i].name);
		report->series[i].name = name_of(report, &report->series[i], true);
		if (!report->series[i].name)
			return -ENOMEM;
	}
	return 0;
}

static int by_size(const void *left, const void *right)
{
	const struct report_point *a = left, *b = right;

	return (a->size > b->size) - (a->size < b->size);
}

int report_finish(struct report *report, struct pl_error *error)
{
	bool matrix = false;

	for (size_t i = 0; i < report->document_count; i++)
		matrix = matrix || report->documents[i].kind == REPORT_MATRIX;
	if (!matrix && !report->series_count)
		return report_wrong(error, report->documents[0].path, "there is no result in it");
	for (size_t i = 0; i < report->series_count; i++)
		qsort(report->series[i].points, report->series[i].count, sizeof(*report->series[i].points), by_size);
	return name_all(report) < 0 ? report_no_memory(error) : 0;
}

static void free_series(struct report_series *series)
{
	for (int part = 0; part < REPORT_PARTS; part++)
		free(series->parts[part]);
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
		free(document->matrix.rate);
		free(document->matrix.latency);
		free(document->matrix.labels);
		pl_topology_free(document->topology);
		json_object_put(document->root);
	}
	for (size_t i = 0; i < report->series_count; i++)
		free_series(&report->series[i]);
	for (size_t i = 0; i < report->sentence_count; i++)
		free(report->sentences[i].text);
	for (size_t i = 0; i < report->phase_count; i++)
		free(report->phases[i]);
	free(report->sentences);
	free(report->documents);
	free(report->series);
	*report = (struct report){ .documents = NULL };
}
