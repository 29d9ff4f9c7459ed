/* SPDX-License-Identifier: BSD-2-Clause */
/* The results of a document, as points of series. */
#include <stdlib.h>
#include <string.h>

#include "report/report.h"

static const char *const percentiles[REPORT_PERCENTILES] = {
	[REPORT_P50] = "p50", [REPORT_P90] = "p90",   [REPORT_P95] = "p95",
	[REPORT_P99] = "p99", [REPORT_P999] = "p999", [REPORT_P9999] = "p9999",
};

/* Where a result is, for what is said of it. */
struct place {
	const char *path;
	size_t index;
	struct pl_error *error;
};

static int wrong(const struct place *place, const char *name, const char *what)
{
	return report_wrong(place->error, place->path, "results[%zu]: \"%s\" is not %s", place->index, name, what);
}

static int number(const struct place *place, struct json_object *object, const char *name, double *value)
{
	return report_number(object, name, value) < 0 ? wrong(place, name, "a number from 0 to 1e18") : 0;
}

/* A member that may be absent or null, else is of this type. */
static int member(const struct place *place, struct json_object *object, const char *name, enum json_type type,
		  struct json_object **value)
{
	struct json_object *any = NULL;

	*value = NULL;
	if (!json_object_object_get_ex(object, name, &any) || !any)
		return 0;
	if (!json_object_is_type(any, type))
		return wrong(place, name,
			     type == json_type_array    ? "an array"
			     : type == json_type_object ? "an object"
							: "a text");
	*value = any;
	return 0;
}

/* -- one point ----------------------------------------------------------------------------------- */

static int read_latency(const struct place *place, struct json_object *result, struct report_point *point)
{
	struct json_object *latency;
	int rc = member(place, result, "latency_us", json_type_object, &latency);

	for (int i = 0; i < REPORT_PERCENTILES && rc == 0; i++)
		rc = number(place, latency, percentiles[i], &point->latency[i]);
	if (rc == 0)
		rc = number(place, latency, "min", &point->shortest);
	if (rc == 0)
		rc = number(place, latency, "max", &point->longest);
	return rc;
}

static int read_runs(const struct place *place, struct json_object *result, struct report_point *point)
{
	struct json_object *runs;
	double value, low = INFINITY, high = 0, sum = 0, middle;
	int rc = member(place, result, "runs", json_type_array, &runs);
	size_t count = runs ? json_object_array_length(runs) : 0;

	point->low = point->high = NAN;
	for (size_t i = 0; i < count && rc == 0; i++) {
		if (report_number_of(json_object_array_get_idx(runs, i), &value) < 0 || isnan(value))
			return wrong(place, "runs", "an array of numbers");
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

/* Averages of as many neighbours as it takes to have few. */
static int read_samples(const struct place *place, struct json_object *result, struct report_point *point)
{
	struct json_object *object, *values = NULL;
	size_t count, group;
	double value;
	int rc = member(place, result, "samples", json_type_object, &object);

	if (rc == 0 && object)
		rc = member(place, object, "bytes_per_second", json_type_array, &values);
	if (rc == 0 && object)
		rc = number(place, object, "interval_seconds", &point->interval);
	count = values ? json_object_array_length(values) : 0;
	if (rc < 0 || count < 2 || !(point->interval > 0))
		return rc;
	group = (count + REPORT_SAMPLES_MAX - 1) / REPORT_SAMPLES_MAX;
	point->samples = calloc(count / group + 1, sizeof(*point->samples));
	if (!point->samples)
		return report_no_memory(place->error);
	for (size_t i = 0; i < count / group * group; i++) {
		if (report_number_of(json_object_array_get_idx(values, i), &value) < 0 || isnan(value))
			return wrong(place, "samples", "an array of numbers");
		point->samples[i / group] += value / (double)group;
	}
	point->sample_count = count / group;
	point->interval *= (double)group;
	return 0;
}

/* They are shown as words: "to_device" as "to device". */
static int phase_index(struct report *report, const char *name)
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

static int read_phases(struct report *report, const struct place *place, struct json_object *result,
		       struct report_point *point)
{
	struct json_object *phases;
	int rc = member(place, result, "phases_us", json_type_object, &phases), index;

	for (size_t i = 0; i < REPORT_PHASES_MAX; i++)
		point->phases[i] = NAN;
	if (rc < 0 || !phases)
		return rc;
	json_object_object_foreach(phases, name, value)
	{
		index = phase_index(report, name);
		if (index == -ENOMEM)
			return report_no_memory(place->error);
		if (index < 0)
			return wrong(place, "phases_us", "an object with at most 12 members");
		if (report_number_of(value, &point->phases[index]) < 0)
			return wrong(place, name, "a number from 0 to 1e18");
	}
	return 0;
}

static int read_point(struct report *report, const struct place *place, struct json_object *result,
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
		rc = number(place, result, numbers[i].name, numbers[i].value);
	if (rc == 0 && !(point->size >= 1))
		rc = wrong(place, "size", "a number of bytes");
	if (rc == 0)
		rc = number(place, result, "frames_per_second", &frames);
	if (rc < 0)
		return rc;
	if (!isnan(frames))
		point->operations = frames;
	json_object_object_get_ex(result, "verified", &verified);
	point->verified = json_object_is_type(verified, json_type_boolean) ? json_object_get_boolean(verified) : -1;
	point->route = report_text(result, "route");
	point->reason = report_text(result, "reason");
	rc = read_latency(place, result, point);
	if (rc == 0)
		rc = read_runs(place, result, point);
	if (rc == 0)
		rc = read_samples(place, result, point);
	return rc < 0 ? rc : read_phases(report, place, result, point);
}

/* -- its series ---------------------------------------------------------------------------------- */

static const char *arm_title(struct json_object *root, const char *arm)
{
	struct json_object *arms = report_member(root, "arms", json_type_array);

	for (size_t i = 0; arms && i < json_object_array_length(arms); i++) {
		struct json_object *one = json_object_array_get_idx(arms, i);
		const char *name = report_text(one, "name");

		if (name && !strcmp(name, arm))
			return report_text(one, "title");
	}
	return NULL;
}

/* How many were under way: fewer with large messages, and it is one line nevertheless. */
static double deepest(const struct report_document *document)
{
	struct json_object *results = report_member(document->root, "results", json_type_array);
	double depth, most = 0;

	for (size_t i = 0; i < json_object_array_length(results); i++)
		if (report_number(json_object_array_get_idx(results, i), "depth", &depth) == 0)
			most = fmax(most, depth);
	return most;
}

/* "128 under way"; nothing for one, as that is the usual. */
static int count_text(char **text, double count, const char *what)
{
	if (count > 1)
		return asprintf(text, "%.0f %s", count, what);
	*text = strdup("");
	return *text ? 0 : -ENOMEM;
}

static int format_parts(const struct report_document *document, struct json_object *result, char **parts)
{
	struct json_object *machine = report_member(document->root, "machine", json_type_object);
	const char *tool = report_text(result, "tool"), *operation = report_text(result, "operation");
	const char *fabric = report_text(result, "fabric"), *memory = report_text(result, "memory");
	const char *peer = report_text(result, "peer_memory"), *arm = report_text(result, "arm");
	const char *host = report_text(machine, "host"), *title = arm ? arm_title(document->root, arm) : NULL;
	struct json_object *both = report_member(document->root, "both_ways", json_type_boolean);
	double depth, vector = NAN;
	int rc = 0;

	/* What is no number, or none that can be, is no reason to refuse the rest. */
	depth = deepest(document);
	report_number(result, "vector", &vector);
	fabric = fabric ? fabric : report_text(document->root, "fabric");
	rc |= asprintf(&parts[REPORT_TOOL], "%s", tool ? tool : "peerlane") < 0;
	rc |= asprintf(&parts[REPORT_ARM], "%s%s%s", arm ? arm : "", title ? ": " : "", title ? title : "") < 0;
	rc |= asprintf(&parts[REPORT_OPERATION], "%s%s", operation ? operation : "",
		       both && json_object_get_boolean(both) ? " both ways" : "") < 0;
	rc |= asprintf(&parts[REPORT_FABRIC], "%s", fabric ? fabric : "") < 0;
	rc |= asprintf(&parts[REPORT_MEMORY], "%s%s%s", memory ? memory : "",
		       peer && strcmp(peer, memory ? memory : "") ? " to " : "",
		       peer && strcmp(peer, memory ? memory : "") ? peer : "") < 0;
	rc |= count_text(&parts[REPORT_DEPTH], depth, "under way") < 0;
	rc |= count_text(&parts[REPORT_VECTOR], vector, "in each") < 0;
	rc |= asprintf(&parts[REPORT_HOST], "%s", host ? host : "") < 0;
	rc |= asprintf(&parts[REPORT_FILE], "%s", document->name) < 0;
	return rc ? -ENOMEM : 0;
}

static void free_parts(char **parts)
{
	for (int part = 0; part < REPORT_PARTS; part++)
		free(parts[part]);
}

static struct report_series *find_series(struct report *report, char **parts, bool latency)
{
	for (size_t i = 0; i < report->series_count; i++) {
		struct report_series *series = &report->series[i];
		int part = 0;

		while (part < REPORT_PARTS && !strcmp(series->parts[part], parts[part]))
			part++;
		if (part == REPORT_PARTS && series->latency == latency &&
		    series->document == report->document_count - 1)
			return series;
	}
	return NULL;
}

/* Takes the parts over. */
static int find_or_add_series(struct report *report, char **parts, bool latency, struct report_series **result,
			      const struct place *place)
{
	struct report_series *series = find_series(report, parts, latency);

	*result = series;
	if (series) {
		free_parts(parts);
		return 0;
	}
	if (report->series_count == REPORT_SERIES_MAX) {
		free_parts(parts);
		return cli_fail(place->error, -E2BIG, "REPORT-SIZE", place->path, "make several reports",
				"a report has at most %d lines", REPORT_SERIES_MAX);
	}
	series = reallocarray(report->series, report->series_count + 1, sizeof(*series));
	if (!series) {
		free_parts(parts);
		return report_no_memory(place->error);
	}
	report->series = series;
	*result = series = &report->series[report->series_count++];
	*series = (struct report_series){ .document = report->document_count - 1, .latency = latency };
	memcpy(series->parts, parts, sizeof(series->parts));
	return 0;
}

static int add_result(struct report *report, struct report_document *document, struct json_object *result,
		      const struct place *place)
{
	const char *mode = report_text(document->root, "mode"), *own = report_text(result, "mode");
	char *parts[REPORT_PARTS] = { NULL };
	struct report_series *series;
	struct report_point *points;
	bool latency;
	int rc;

	mode = own ? own : mode;
	latency = document->kind == REPORT_BENCH && mode && !strcmp(mode, "latency");
	if (format_parts(document, result, parts) < 0) {
		free_parts(parts);
		return report_no_memory(place->error);
	}
	rc = find_or_add_series(report, parts, latency, &series, place);
	if (rc < 0)
		return rc;
	points = reallocarray(series->points, series->count + 1, sizeof(*points));
	if (!points)
		return report_no_memory(place->error);
	series->points = points;
	points[series->count] = (struct report_point){ .interval = NAN };
	return read_point(report, place, result, &points[series->count++]);
}

int report_read_results(struct report *report, struct report_document *document, struct pl_error *error)
{
	struct json_object *results = report_member(document->root, "results", json_type_array);
	struct place place = { .path = document->path, .error = error };
	int rc = 0;

	if (!results)
		return report_wrong(error, document->path, "\"results\" is not an array");
	report->point_count += json_object_array_length(results);
	if (report->point_count > REPORT_POINTS_MAX)
		return cli_fail(error, -E2BIG, "REPORT-SIZE", document->path, "make several reports",
				"a report has at most %d results", REPORT_POINTS_MAX);
	for (; place.index < json_object_array_length(results) && rc == 0; place.index++) {
		struct json_object *result = json_object_array_get_idx(results, place.index);

		if (!json_object_is_type(result, json_type_object))
			return report_wrong(error, document->path, "results[%zu] is not an object", place.index);
		rc = add_result(report, document, result, &place);
	}
	return rc;
}
