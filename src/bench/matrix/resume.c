/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the results of an interrupted measurement.  Any content is either understood or refused. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/matrix/matrix.h"
#include "cmd/common/output.h"

#define DEPTH_MAX 8
#define VALUE_MIN 1e-3
#define VALUE_MAX 1e18

struct resumption {
	struct matrix *matrix;
	const char *path;
	struct json_object *root;
	struct pl_error *error;
};

static int refuse_damaged(const struct resumption *resumption, const char *what)
{
	return cli_fail(resumption->error, -EBADMSG, "MATRIX-DAMAGED", resumption->path,
			"begin a new measurement with --save FILE",
			"this is no file of bench --matrix --save or --mpi --save: %s", what);
}

static int refuse_other(const struct resumption *resumption, const char *what, const char *earlier, const char *now)
{
	return cli_fail(resumption->error, -EINVAL, "MATRIX-OTHER", resumption->path,
			"repeat the options and the ranks of the file, or begin a new measurement with --save FILE",
			"%s differs: the file has %.60s, this measurement %.60s", what, earlier, now);
}

/* Reads a regular file; *bytes belongs to the caller. */
static ssize_t read_results(const struct resumption *resumption, char **bytes)
{
	int fd = open(resumption->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;
	ssize_t got = 1;
	size_t length = 0;

	*bytes = NULL;
	if (fd < 0 || fstat(fd, &status) < 0) {
		cli_fail_errno(resumption->error, -errno, "open", resumption->path);
	} else if (!S_ISREG(status.st_mode) || status.st_size > CLI_DOCUMENT_MAX) {
		refuse_damaged(resumption, "it is not a regular file of up to 256 MiB");
	} else {
		resumption->error->code = 0;
		*bytes = malloc((size_t)status.st_size + 1);
		if (!*bytes)
			cli_fail_errno(resumption->error, -ENOMEM, "malloc", NULL);
		while (*bytes && got > 0 && length < (size_t)status.st_size) {
			got = read(fd, *bytes + length, (size_t)status.st_size - length);
			length += got > 0 ? (size_t)got : 0;
		}
		if (got < 0)
			cli_fail_errno(resumption->error, -errno, "read", resumption->path);
	}
	if (fd >= 0)
		close(fd);
	return resumption->error->code < 0 ? resumption->error->code : (ssize_t)length;
}

static int parse_results(struct resumption *resumption)
{
	struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
	enum json_tokener_error outcome = json_tokener_success;
	char *bytes;
	ssize_t length = read_results(resumption, &bytes);

	if (length >= 0 && tokener) {
		json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
		resumption->root = json_tokener_parse_ex(tokener, bytes, (int)length);
		outcome = json_tokener_get_error(tokener);
	}
	json_tokener_free(tokener);
	free(bytes);
	if (length < 0)
		return (int)length;
	if (!tokener)
		return cli_fail_errno(resumption->error, -ENOMEM, "json_tokener_new", NULL);
	if (outcome != json_tokener_success || !json_object_is_type(resumption->root, json_type_object))
		return refuse_damaged(resumption, outcome == json_tokener_continue ? "the end is missing"
										   : "it is not a JSON object");
	return 0;
}

static const char *results_text(struct json_object *object, const char *name)
{
	struct json_object *value = cli_json_member(object, name, json_type_string);

	return value ? json_object_get_string(value) : "";
}

/* -- agreement ------------------------------------------------------------------------------------- */

/* True if the command that wrote the file had an option with this beginning. */
static bool file_has_option(const struct resumption *resumption, const char *beginning)
{
	struct json_object *command = cli_json_member(resumption->root, "command", json_type_array);

	for (size_t i = 0; command && i < json_object_array_length(command); i++) {
		struct json_object *word = json_object_array_get_idx(command, i);

		if (json_object_is_type(word, json_type_string) &&
		    !strncmp(json_object_get_string(word), beginning, strlen(beginning)))
			return true;
	}
	return false;
}

/*
 * Returns a setting of the file or of this measurement, NULL for its default.  Grants are narrow by default, and earlier
 * versions wrote false for that, too.
 */
static struct json_object *effective_setting(const struct resumption *resumption, const char *name,
					     struct json_object *value, bool earlier)
{
	if (strcmp(name, "narrow-grants") || !json_object_is_type(value, json_type_boolean))
		return value;
	if (json_object_get_boolean(value) || (earlier && !file_has_option(resumption, "--no-n")))
		return NULL;
	return value;
}

static int compare_options(const struct resumption *resumption, struct json_object *now)
{
	struct json_object *earlier = cli_json_member(resumption->root, "options", json_type_object);

	if (!earlier)
		return refuse_damaged(resumption, "it has no options");
	json_object_object_foreach(now, name, value)
	{
		struct json_object *other = NULL;
		char option[32];

		json_object_object_get_ex(earlier, name, &other);
		if (json_object_equal(effective_setting(resumption, name, other, true),
				      effective_setting(resumption, name, value, false)))
			continue;
		snprintf(option, sizeof(option), "--%s", name);
		return refuse_other(resumption, option, other ? json_object_to_json_string(other) : "the default",
				    value ? json_object_to_json_string(value) : "the default");
	}
	return 0;
}

/* Names a rank that is left out as the file does. */
static void take_absent_rank(struct matrix_rank *absent, struct json_object *rank)
{
	if (*results_text(rank, "host"))
		snprintf(absent->host, sizeof(absent->host), "%s", results_text(rank, "host"));
	snprintf(absent->memory, sizeof(absent->memory), "%s", results_text(rank, "memory"));
	cli_printable(absent->host, false);
	cli_printable(absent->memory, false);
}

/* True if the earlier run went on without a rank; another host may have it now. */
static bool was_left_out(const struct resumption *resumption, int rank)
{
	struct json_object *list = cli_json_member(resumption->root, "left_out", json_type_array);

	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		struct json_object *number = cli_json_member(json_object_array_get_idx(list, i), "rank", json_type_int);

		if (number && json_object_get_int64(number) == rank)
			return true;
	}
	return false;
}

static int compare_ranks(const struct resumption *resumption)
{
	struct json_object *ranks = cli_json_member(resumption->root, "ranks", json_type_array);
	const struct matrix *matrix = resumption->matrix;
	char earlier[24], now[24];

	if (!ranks)
		return refuse_damaged(resumption, "it has no ranks");
	snprintf(earlier, sizeof(earlier), "%zu", json_object_array_length(ranks));
	snprintf(now, sizeof(now), "%d", matrix->size);
	if (strcmp(earlier, now))
		return refuse_other(resumption, "the number of ranks", earlier, now);
	for (int i = 0; i < matrix->size; i++) {
		struct json_object *rank = json_object_array_get_idx(ranks, (size_t)i);
		char what[32];

		/* A rank that is left out has no memory. */
		if (!*matrix->ranks[i].memory)
			take_absent_rank(&matrix->ranks[i], rank);
		if (!*matrix->ranks[i].memory || (!*results_text(rank, "memory") && was_left_out(resumption, i)))
			continue;
		snprintf(what, sizeof(what), "the host of rank %d", i);
		if (strcmp(results_text(rank, "host"), matrix->ranks[i].host))
			return refuse_other(resumption, what, results_text(rank, "host"), matrix->ranks[i].host);
		snprintf(what, sizeof(what), "the memory of rank %d", i);
		if (strcmp(results_text(rank, "memory"), matrix->ranks[i].memory))
			return refuse_other(resumption, what, results_text(rank, "memory"), matrix->ranks[i].memory);
	}
	return 0;
}

static int compare_heads(const struct resumption *resumption, const struct matrix_options *options)
{
	struct json_object *format = cli_json_member(resumption->root, "format", json_type_int), *now;
	int rc;

	if (strcmp(results_text(resumption->root, "kind"), "matrix") || !format || json_object_get_int(format) != 1)
		return refuse_damaged(resumption, "it is not a matrix of format 1");
	if (strcmp(results_text(resumption->root, "version"), pl_version()))
		return refuse_other(resumption, "the version", results_text(resumption->root, "version"), pl_version());
	now = matrix_json_options(options);
	rc = now ? compare_options(resumption, now) : cli_fail_errno(resumption->error, -ENOMEM, "malloc", NULL);
	json_object_put(now);
	return rc < 0 ? rc : compare_ranks(resumption);
}

/* -- values ---------------------------------------------------------------------------------------- */

/* Returns an element of a matrix of an object: true, or false if rows or columns lack. */
static bool find_element(const struct resumption *resumption, struct json_object *object, const char *name, int from,
			 int to, struct json_object **element)
{
	struct json_object *rows = cli_json_member(object, name, json_type_array);
	size_t size = (size_t)resumption->matrix->size;
	struct json_object *row;

	if (!rows || json_object_array_length(rows) != size)
		return false;
	row = json_object_array_get_idx(rows, (size_t)from);
	if (!json_object_is_type(row, json_type_array) || json_object_array_length(row) != size)
		return false;
	*element = json_object_array_get_idx(row, (size_t)to);
	return true;
}

static bool read_value(const struct resumption *resumption, struct json_object *object, const char *name, int from,
		       int to, double *value)
{
	struct json_object *element;

	if (!find_element(resumption, object, name, from, to, &element))
		return false;
	if (!element)
		return true;
	if (!json_object_is_type(element, json_type_double) && !json_object_is_type(element, json_type_int))
		return false;
	*value = json_object_get_double(element);
	return *value >= VALUE_MIN && *value <= VALUE_MAX;
}

static bool read_reason(const struct resumption *resumption, int from, int to, char reason[MATRIX_REASON])
{
	struct json_object *reasons = cli_json_member(resumption->root, "reasons", json_type_array), *element;
	int64_t number;

	if (!reasons || !find_element(resumption, resumption->root, "reason_of", from, to, &element))
		return false;
	if (!element)
		return true;
	number = json_object_is_type(element, json_type_int) ? json_object_get_int64(element) : -1;
	if (number < 0 || (uint64_t)number >= json_object_array_length(reasons))
		return false;
	element = json_object_array_get_idx(reasons, (size_t)number);
	if (!json_object_is_type(element, json_type_string))
		return false;
	snprintf(reason, MATRIX_REASON, "%s", json_object_get_string(element));
	cli_printable(reason, false);
	return true;
}

/* Reads the values of a pair on each rail. */
static bool read_rail_values(const struct resumption *resumption, int from, int to)
{
	struct json_object *rails = cli_json_member(resumption->root, "rails", json_type_array);
	const struct matrix *matrix = resumption->matrix;

	if (!matrix->rail_cells)
		return true;
	if (!rails || json_object_array_length(rails) != (size_t)matrix->rails)
		return false;
	for (int rail = 0; rail < matrix->rails; rail++) {
		struct json_object *object = json_object_array_get_idx(rails, (size_t)rail);
		struct matrix_cell *cell = matrix_rail_cell(matrix, rail, from, to);

		if (!read_value(resumption, object, "bytes_per_second", from, to, &cell->bytes_per_second) ||
		    !read_value(resumption, object, "latency_us", from, to, &cell->latency_us))
			return false;
	}
	return true;
}

static int read_cells(const struct resumption *resumption)
{
	const struct matrix *matrix = resumption->matrix;
	struct json_object *root = resumption->root;

	for (int from = 0; from < matrix->size; from++)
		for (int to = 0; to < matrix->size; to++) {
			struct matrix_cell *cell = matrix_cell(matrix, from, to);

			if (!read_value(resumption, root, "bytes_per_second", from, to, &cell->bytes_per_second) ||
			    !read_value(resumption, root, "latency_us", from, to, &cell->latency_us) ||
			    !read_rail_values(resumption, from, to) || !read_reason(resumption, from, to, cell->reason))
				return refuse_damaged(resumption, "a value is missing or invalid");
		}
	return 0;
}

/*
 * Keeps results: of pairs those of which both directions succeeded.  Of another schedule, whose ranks measure at the same
 * time, all results or none.  The others are measured again.
 */
static void keep_measured_pairs(struct matrix *matrix, enum matrix_schedule schedule)
{
	size_t cells = (size_t)matrix->size * (size_t)matrix->size;
	bool pairs = schedule == MATRIX_PAIRS, whole = true;

	for (int from = 0; from < matrix->size; from++)
		for (int to = 0; to < matrix->size; to++) {
			const struct matrix_cell *cell = matrix_cell(matrix, from, to);
			bool kept = pairs ? matrix_has_pair(matrix, from, to) : cell->bytes_per_second > 0;

			matrix->measured[cell - matrix->cells] = from != to && kept;
		}
	if (!pairs)
		whole = matrix_is_measured(matrix, schedule);
	if (!whole)
		memset(matrix->measured, 0, cells);
	for (size_t i = 0; i < cells; i++) {
		if (matrix->measured[i])
			continue;
		matrix->cells[i] = matrix_empty_cell();
		for (size_t rail = 0; matrix->rail_cells && rail < (size_t)matrix->rails; rail++)
			matrix->rail_cells[rail * cells + i] = matrix_empty_cell();
	}
}

int matrix_resume(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	struct resumption resumption = { .matrix = matrix, .path = options->resume, .error = error };
	struct json_object *seconds;
	int rc = parse_results(&resumption);

	if (rc == 0)
		rc = compare_heads(&resumption, options);
	if (rc == 0)
		rc = read_cells(&resumption);
	if (rc == 0) {
		keep_measured_pairs(matrix, options->schedule);
		seconds = cli_json_member(resumption.root, "seconds", json_type_double);
		matrix->earlier_seconds = seconds ? json_object_get_double(seconds) : 0;
	}
	json_object_put(resumption.root);
	return rc;
}
