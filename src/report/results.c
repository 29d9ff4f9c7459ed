/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading of a document's results into points of series. */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

static const char *const percentiles[REPORT_PERCENTILES] = {
	[REPORT_P50] = "p50", [REPORT_P90] = "p90",   [REPORT_P95] = "p95",
	[REPORT_P99] = "p99", [REPORT_P999] = "p999", [REPORT_P9999] = "p9999",
};

/* Result that is being read, for error messages. */
struct result_position {
	const char *path;
	size_t index;
	struct pl_error *error;
};

static int fail_result_member(const struct result_position *position, const char *name, const char *what)
{
	return report_fail_content(position->error, position->path, "results[%zu]: \"%s\" is not %s", position->index,
				   name, what);
}

static int read_result_number(const struct result_position *position, struct json_object *object, const char *name,
			      double *value)
{
	return report_number(object, name, value) < 0 ? fail_result_member(position, name, "a number from 0 to 1e18")
						      : 0;
}

/* Reads a member that may be absent or null, but has no other type. */
static int read_result_member(const struct result_position *position, struct json_object *object, const char *name,
			      enum json_type type, struct json_object **value)
{
	struct json_object *any = NULL;

	*value = NULL;
	if (!json_object_object_get_ex(object, name, &any) || !any)
		return 0;
	if (!json_object_is_type(any, type))
		return fail_result_member(position, name,
					  type == json_type_array    ? "an array"
					  : type == json_type_object ? "an object"
								     : "a text");
	*value = any;
	return 0;
}

static int read_point_latency(const struct result_position *position, struct json_object *result,
			      struct report_point *point)
{
	struct json_object *latency;
	int rc = read_result_member(position, result, "latency_us", json_type_object, &latency);

	for (int i = 0; i < REPORT_PERCENTILES && rc == 0; i++)
		rc = read_result_number(position, latency, percentiles[i], &point->latency[i]);
	if (rc == 0)
		rc = read_result_number(position, latency, "min", &point->shortest);
	if (rc == 0)
		rc = read_result_number(position, latency, "max", &point->longest);
	return rc;
}

static int read_point_runs(const struct result_position *position, struct json_object *result,
			   struct report_point *point)
{
	struct json_object *runs;
	double value, low = INFINITY, high = 0, sum = 0, middle;
	int rc = read_result_member(position, result, "runs", json_type_array, &runs);
	size_t count = runs ? json_object_array_length(runs) : 0;

	point->low = point->high = NAN;
	for (size_t i = 0; i < count && rc == 0; i++) {
		if (report_number_of(json_object_array_get_idx(runs, i), &value) < 0 || isnan(value))
			return fail_result_member(position, "runs", "an array of numbers");
		low = fmin(low, value);
		high = fmax(high, value);
		sum += value;
	}
	middle = sum / (double)count;
	if (rc == 0 && count > 1 && middle > 0) {
		point->low = low / middle;
		point->high = high / middle;
	}
	return rc;
}

/* Reads samples, and averages neighbours if there are too many. */
static int read_point_samples(const struct result_position *position, struct json_object *result,
			      struct report_point *point)
{
	struct json_object *object, *values = NULL;
	size_t count, group;
	double value;
	int rc = read_result_member(position, result, "samples", json_type_object, &object);

	if (rc == 0 && object)
		rc = read_result_member(position, object, "bytes_per_second", json_type_array, &values);
	if (rc == 0 && object)
		rc = read_result_number(position, object, "interval_seconds", &point->interval);
	count = values ? json_object_array_length(values) : 0;
	if (rc < 0 || count < 2 || !(point->interval > 0))
		return rc;
	group = (count + REPORT_SAMPLES_MAX - 1) / REPORT_SAMPLES_MAX;
	point->samples = calloc(count / group + 1, sizeof(*point->samples));
	if (!point->samples)
		return report_fail_memory(position->error);
	for (size_t i = 0; i < count / group * group; i++) {
		if (report_number_of(json_object_array_get_idx(values, i), &value) < 0 || isnan(value))
			return fail_result_member(position, "samples", "an array of numbers");
		point->samples[i / group] += value / (double)group;
	}
	point->sample_count = count / group;
	point->interval *= (double)group;
	return 0;
}

/* Returns the index of a phase, which it adds if needed.  Underscores become blanks, for output. */
static int find_or_add_phase(struct report *report, const char *name)
{
	char *words = strdup(name);
	size_t index = 0;

	if (!words)
		return -ENOMEM;
	for (char *at = words; *at; at++)
		*at = *at == '_' ? ' ' : *at;
	while (index < report->phase_count && strcmp(report->phases[index], words))
		index++;
	if (index == REPORT_PHASES_MAX || index < report->phase_count) {
		free(words);
		return index == REPORT_PHASES_MAX ? -E2BIG : (int)index;
	}
	report->phases[report->phase_count++] = words;
	return (int)index;
}

static int read_point_phases(struct report *report, const struct result_position *position, struct json_object *result,
			     struct report_point *point)
{
	struct json_object *phases;
	int rc = read_result_member(position, result, "phases_us", json_type_object, &phases), index;

	for (size_t i = 0; i < REPORT_PHASES_MAX; i++)
		point->phases[i] = NAN;
	if (rc < 0 || !phases)
		return rc;
	json_object_object_foreach(phases, name, value)
	{
		index = find_or_add_phase(report, name);
		if (index == -ENOMEM)
			return report_fail_memory(position->error);
		if (index < 0)
			return fail_result_member(position, "phases_us", "an object with at most 12 members");
		if (report_number_of(value, &point->phases[index]) < 0)
			return fail_result_member(position, name, "a number from 0 to 1e18");
	}
	return 0;
}

static int read_report_point(struct report *report, const struct result_position *position, struct json_object *result,
			     struct report_point *point)
{
	const struct {
		const char *name;
		double *value;
	} numbers[] = {
		{ "size", &point->size },
		{ "bytes_per_second", &point->rate },
		{ "minimum_bytes_per_second", &point->least },
		{ "operations_per_second", &point->operations },
		{ "cpu_percent", &point->cpu },
		{ "server_cpu_percent", &point->server_cpu },
		{ "host_bytes_staged", &point->staged },
	};
	struct json_object *verified = NULL;
	double frames;
	int rc = 0;

	for (size_t i = 0; i < CLI_ARRAY_SIZE(numbers) && rc == 0; i++)
		rc = read_result_number(position, result, numbers[i].name, numbers[i].value);
	if (rc == 0 && !(point->size >= 1))
		rc = fail_result_member(position, "size", "a number of bytes");
	if (rc == 0)
		rc = read_result_number(position, result, "frames_per_second", &frames);
	if (rc < 0)
		return rc;
	if (!isnan(frames))
		point->operations = frames;
	json_object_object_get_ex(result, "verified", &verified);
	point->verified = json_object_is_type(verified, json_type_boolean) ? json_object_get_boolean(verified) : -1;
	point->route = cli_json_member_text(result, "route");
	point->reason = cli_json_member_text(result, "reason");
	rc = read_point_latency(position, result, point);
	if (rc == 0)
		rc = read_point_runs(position, result, point);
	if (rc == 0)
		rc = read_point_samples(position, result, point);
	return rc < 0 ? rc : read_point_phases(report, position, result, point);
}

static const char *find_method_title(struct json_object *root, const char *arm)
{
	struct json_object *arms = cli_json_member(root, "arms", json_type_array);

	for (size_t i = 0; arms && i < json_object_array_length(arms); i++) {
		struct json_object *one = json_object_array_get_idx(arms, i);
		const char *name = cli_json_member_text(one, "name");

		if (name && !strcmp(name, arm))
			return cli_json_member_text(one, "title");
	}
	return NULL;
}

/* Returns the largest depth of a document: it depends on the size, but all sizes belong to one series. */
static double max_depth(const struct report_document *document)
{
	struct json_object *results = cli_json_member(document->root, "results", json_type_array);
	double depth, most = 0;

	for (size_t i = 0; i < json_object_array_length(results); i++)
		if (report_number(json_object_array_get_idx(results, i), "depth", &depth) == 0)
			most = fmax(most, depth);
	return most;
}

/* Formats a count, such as "128 in flight"; nothing for 1, the usual value. */
static int format_count(char **text, double count, const char *what)
{
	if (count > 1)
		return asprintf(text, "%.0f %s", count, what);
	*text = strdup("");
	return *text ? 0 : -ENOMEM;
}

static int format_properties(const struct report_document *document, struct json_object *result, char **properties)
{
	struct json_object *machine = cli_json_member(document->root, "machine", json_type_object);
	const char *tool = cli_json_member_text(result, "tool"), *operation = cli_json_member_text(result, "operation");
	const char *fabric = cli_json_member_text(result, "fabric"), *memory = cli_json_member_text(result, "memory");
	const char *peer = cli_json_member_text(result, "peer_memory"), *arm = cli_json_member_text(result, "arm");
	const char *host = cli_json_member_text(machine, "host"),
		   *title = arm ? find_method_title(document->root, arm) : NULL;
	struct json_object *both = cli_json_member(document->root, "both_ways", json_type_boolean);
	double depth, vector = NAN;
	int rc = 0;

	/* Invalid numbers are ignored here, as they only serve names. */
	depth = max_depth(document);
	report_number(result, "vector", &vector);
	fabric = fabric ? fabric : cli_json_member_text(document->root, "fabric");
	rc |= asprintf(&properties[REPORT_TOOL], "%s", tool ? tool : "peerlane") < 0;
	rc |= asprintf(&properties[REPORT_METHOD], "%s%s%s", arm ? arm : "", title ? ": " : "", title ? title : "") < 0;
	rc |= asprintf(&properties[REPORT_OPERATION], "%s%s", operation ? operation : "",
		       both && json_object_get_boolean(both) ? " both ways" : "") < 0;
	rc |= asprintf(&properties[REPORT_FABRIC], "%s", fabric ? fabric : "") < 0;
	rc |= asprintf(&properties[REPORT_MEMORY], "%s%s%s", memory ? memory : "",
		       peer && strcmp(peer, memory ? memory : "") ? " to " : "",
		       peer && strcmp(peer, memory ? memory : "") ? peer : "") < 0;
	rc |= format_count(&properties[REPORT_DEPTH], depth, "in flight") < 0;
	rc |= format_count(&properties[REPORT_VECTOR], vector, "per operation") < 0;
	rc |= asprintf(&properties[REPORT_HOST], "%s", host ? host : "") < 0;
	rc |= asprintf(&properties[REPORT_FILE], "%s", document->name) < 0;
	return rc ? -ENOMEM : 0;
}

static void free_properties(char **properties)
{
	for (int property = 0; property < REPORT_PROPERTIES; property++)
		free(properties[property]);
}

static struct report_series *find_series(struct report *report, char **properties, bool latency)
{
	for (size_t i = 0; i < report->series_count; i++) {
		struct report_series *series = &report->series[i];
		int property = 0;

		while (property < REPORT_PROPERTIES && !strcmp(series->properties[property], properties[property]))
			property++;
		if (property == REPORT_PROPERTIES && series->latency == latency &&
		    series->document == report->document_count - 1)
			return series;
	}
	return NULL;
}

/* Returns the series with these properties, or adds it.  Takes over the properties. */
static int find_or_add_series(struct report *report, char **properties, bool latency, struct report_series **result,
			      const struct result_position *position)
{
	struct report_series *series = find_series(report, properties, latency);

	*result = series;
	if (series) {
		free_properties(properties);
		return 0;
	}
	if (report->series_count == REPORT_SERIES_MAX) {
		free_properties(properties);
		return cli_fail(position->error, -E2BIG, "REPORT-SIZE", position->path,
				"split the files into several reports", "a report has at most %d lines",
				REPORT_SERIES_MAX);
	}
	series = reallocarray(report->series, report->series_count + 1, sizeof(*series));
	if (!series) {
		free_properties(properties);
		return report_fail_memory(position->error);
	}
	report->series = series;
	*result = series = &report->series[report->series_count++];
	*series = (struct report_series){ .document = report->document_count - 1, .latency = latency };
	memcpy(series->properties, properties, sizeof(series->properties));
	return 0;
}

static int add_report_result(struct report *report, struct report_document *document, struct json_object *result,
			     const struct result_position *position)
{
	const char *mode = cli_json_member_text(document->root, "mode"), *own = cli_json_member_text(result, "mode");
	char *properties[REPORT_PROPERTIES] = { NULL };
	struct report_series *series;
	struct report_point *points;
	bool latency;
	int rc;

	mode = own ? own : mode;
	latency = document->kind == REPORT_BENCH && mode && !strcmp(mode, "latency");
	if (format_properties(document, result, properties) < 0) {
		free_properties(properties);
		return report_fail_memory(position->error);
	}
	rc = find_or_add_series(report, properties, latency, &series, position);
	if (rc < 0)
		return rc;
	points = reallocarray(series->points, series->count + 1, sizeof(*points));
	if (!points)
		return report_fail_memory(position->error);
	series->points = points;
	points[series->count] = (struct report_point){ .interval = NAN };
	return read_report_point(report, position, result, &points[series->count++]);
}

int report_read_results(struct report *report, struct report_document *document, struct pl_error *error)
{
	struct json_object *results = cli_json_member(document->root, "results", json_type_array);
	struct result_position position = { .path = document->path, .error = error };
	int rc = 0;

	if (!results)
		return report_fail_content(error, document->path, "\"results\" is not an array");
	report->point_count += json_object_array_length(results);
	if (report->point_count > REPORT_POINTS_MAX)
		return cli_fail(error, -E2BIG, "REPORT-SIZE", document->path, "split the files into several reports",
				"a report has at most %d results", REPORT_POINTS_MAX);
	for (; position.index < json_object_array_length(results) && rc == 0; position.index++) {
		struct json_object *result = json_object_array_get_idx(results, position.index);

		if (!json_object_is_type(result, json_type_object))
			return report_fail_content(error, document->path, "results[%zu] is not an object",
						   position.index);
		rc = add_report_result(report, document, result, &position);
	}
	return rc;
}
