/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/compare/document.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "bench/common/numbers.h"
#include "bench/compare/document_reader.h"
#include "cmd/common/output.h"

/* A document of a host may have 32 levels, and stands in that of a fleet. */
#define DEPTH_MAX 40

#define NUMBER_MIN 1e-9
#define NUMBER_MAX 1e21
#define HINT "use a file that `peerlane bench --json` wrote"

int refuse_document(const struct document_reader *reader, const char *format, const char *what)
{
	char text[160];

	snprintf(text, sizeof(text), format, what);
	return cli_fail(reader->error, -EINVAL, "BENCH-DOCUMENT", reader->name, HINT, "%s", text);
}

void copy_document_text(struct json_object *object, const char *name, const char *otherwise, char *to, size_t size)
{
	struct json_object *value = cli_json_member(object, name, json_type_string);
	const char *text = value ? json_object_get_string(value) : otherwise;

	snprintf(to, size, "%.*s", (int)size - 1, text);
	cli_printable(to, false);
}

static bool document_flag(struct json_object *object, const char *name)
{
	return json_object_get_boolean(cli_json_member(object, name, json_type_boolean));
}

bool read_positive_number(struct json_object *value, double *number)
{
	if (!json_object_is_type(value, json_type_double) && !json_object_is_type(value, json_type_int))
		return false;
	*number = json_object_get_double(value);
	return *number >= NUMBER_MIN && *number <= NUMBER_MAX;
}

static int read_document_runs(const struct document_reader *reader, struct json_object *runs, struct document_row *row)
{
	size_t count = json_object_array_length(runs);

	if (count > DOCUMENT_RUNS_MAX)
		return refuse_document(reader, "a result has more than %s runs", "1000");
	row->runs = calloc(count, sizeof(*row->runs));
	if (!row->runs)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	for (; row->run_count < count; row->run_count++)
		if (!read_positive_number(json_object_array_get_idx(runs, row->run_count), &row->runs[row->run_count]))
			return refuse_document(reader, "a run of a result %s", "is not a positive number");
	qsort(row->runs, row->run_count, sizeof(*row->runs), bench_compare_doubles);
	return 0;
}

/* Returns the value of a result without runs, as other tools have it. */
static struct json_object *single_value(struct json_object *object, const struct document_row *row)
{
	struct json_object *value = NULL;

	if (row->lower_is_better)
		json_object_object_get_ex(cli_json_member(object, "latency_us", json_type_object), "p50", &value);
	else if (!strcmp(row->key.mode, "frames"))
		json_object_object_get_ex(object, "frames_per_second", &value);
	else
		json_object_object_get_ex(object, "bytes_per_second", &value);
	return value;
}

static int read_row_values(const struct document_reader *reader, struct json_object *object, struct document_row *row)
{
	struct json_object *runs = cli_json_member(object, "runs", json_type_array);

	if (runs && json_object_array_length(runs) > 0)
		return read_document_runs(reader, runs, row);
	row->runs = calloc(1, sizeof(*row->runs));
	if (!row->runs)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	if (!read_positive_number(single_value(object, row), row->runs))
		return refuse_document(reader, "a result has neither runs nor a valid %s",
				       row->lower_is_better ? "latency_us.p50" : "rate");
	row->run_count = 1;
	return 0;
}

/* Reads the key of a row; members that a result lacks are taken from the whole document. */
static void read_row_key(const struct document_reader *reader, struct json_object *object, bool frames,
			 struct document_row *row)
{
	struct json_object *verified = cli_json_member(object, "verified", json_type_boolean);
	struct document_key *key = &row->key;
	char whole[sizeof(key->mode)];

	copy_document_text(object, frames ? "arm" : "operation", "?", key->operation, sizeof(key->operation));
	copy_document_text(reader->root, "mode", "bandwidth", whole, sizeof(whole));
	copy_document_text(object, "mode", whole, key->mode, sizeof(key->mode));
	if (frames)
		snprintf(key->mode, sizeof(key->mode), "frames");
	copy_document_text(reader->root, "fabric", "", whole, sizeof(whole));
	copy_document_text(object, "fabric", whole, key->fabric, sizeof(key->fabric));
	copy_document_text(object, "memory", "host", key->memory, sizeof(key->memory));
	copy_document_text(object, "peer_memory", "host", key->peer_memory, sizeof(key->peer_memory));
	copy_document_text(object, "tool", "peerlane", row->tool, sizeof(row->tool));
	key->both_ways = document_flag(object, "both_ways") || document_flag(reader->root, "both_ways");
	row->lower_is_better = !strcmp(key->mode, "latency");
	row->wrong_content = verified && !json_object_get_boolean(verified);
}

static int read_document_row(const struct document_reader *reader, struct json_object *object, bool frames,
			     struct document_row *row)
{
	struct json_object *size = cli_json_member(object, "size", json_type_int);

	if (!json_object_is_type(object, json_type_object))
		return refuse_document(reader, "a result is %s", "not an object");
	read_row_key(reader, object, frames, row);
	if (!size || json_object_get_int64(size) < 0)
		return refuse_document(reader, "a result has no valid %s", "size");
	row->key.size = (uint64_t)json_object_get_int64(size);
	return read_row_values(reader, object, row);
}

static int read_document_rows(const struct document_reader *reader, bool frames)
{
	struct json_object *results = cli_json_member(reader->root, "results", json_type_array);
	struct document *document = reader->document;
	size_t count = results ? json_object_array_length(results) : 0;
	int rc = 0;

	if (!results)
		return refuse_document(reader, "there is no %s", "array of results");
	if (count > DOCUMENT_ROWS_MAX)
		return refuse_document(reader, "there are more than %s results", "1024");
	document->rows = calloc(count + 1, sizeof(*document->rows));
	if (!document->rows)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	for (; rc == 0 && document->count < count; document->count++)
		rc = read_document_row(reader, json_object_array_get_idx(results, document->count), frames,
				       &document->rows[document->count]);
	return rc;
}

/* True if an error ended the measurement.  After a judgement by --min-rate all results are there. */
static bool has_incomplete_results(struct json_object *root)
{
	struct json_object *error = cli_json_member(root, "error", json_type_object);
	char id[24];

	copy_document_text(error, "id", "", id, sizeof(id));
	return error && strcmp(id, "RATE-TOO-LOW");
}

static int read_document_root(const struct document_reader *reader)
{
	struct json_object *format = cli_json_member(reader->root, "format", json_type_int);
	struct document *document = reader->document;
	char kind[32];

	if (!json_object_is_type(reader->root, json_type_object))
		return refuse_document(reader, "the file is %s", "not a JSON object");
	if (format && json_object_get_int64(format) != 1)
		return refuse_document(reader, "the document has %s", "a format that this version does not support");
	copy_document_text(reader->root, "kind", "bench", kind, sizeof(kind));
	copy_document_text(reader->root, "version", "", document->version, sizeof(document->version));
	copy_document_text(reader->root, "time", "", document->time, sizeof(document->time));
	copy_document_text(cli_json_member(reader->root, "machine", json_type_object), "host", "", document->host,
			   sizeof(document->host));
	document->failed = has_incomplete_results(reader->root);
	if (!strcmp(kind, "workflow") || !strcmp(kind, "proxy"))
		return read_document_rows(reader, true);
	if (!strcmp(kind, "matrix"))
		return document_read_matrix(reader);
	if (!strcmp(kind, "fleet") || !strcmp(kind, "check") || !strcmp(kind, "topo"))
		return saved_parse(&document->run, reader->name, reader->text, reader->length, reader->error);
	if (strcmp(kind, "bench"))
		return refuse_document(reader, "results of the kind '%s' cannot be compared", kind);
	return read_document_rows(reader, false);
}

int document_parse(const char *text, size_t length, const char *name, struct document *document, struct pl_error *error)
{
	struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
	struct document_reader reader = {
		.name = name, .text = text, .length = length, .document = document, .error = error
	};
	enum json_tokener_error outcome;
	int rc;

	memset(document, 0, sizeof(*document));
	if (!tokener)
		return cli_fail_errno(error, -ENOMEM, "json_tokener_new", NULL);
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
	reader.root = json_tokener_parse_ex(tokener, text, (int)length);
	outcome = json_tokener_get_error(tokener);
	json_tokener_free(tokener);
	if (outcome != json_tokener_success)
		rc = refuse_document(&reader, "not valid JSON: %s",
				     outcome == json_tokener_continue ? "unexpected end"
								      : json_tokener_error_desc(outcome));
	else
		rc = read_document_root(&reader);
	json_object_put(reader.root);
	if (rc < 0)
		document_free(document);
	return rc;
}

int document_read(const char *path, struct document *document, struct pl_error *error)
{
	struct document_reader reader = { .name = path, .document = document, .error = error };
	int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO, rc;
	size_t length;
	char *text;

	memset(document, 0, sizeof(*document));
	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", path);
	rc = cli_read_all(fd, CLI_DOCUMENT_MAX, &text, &length);
	if (rc == -EFBIG)
		rc = refuse_document(&reader, "the file has more than %s", "256 MiB");
	else if (rc == -EISDIR)
		rc = saved_read(&document->run, path, error);
	else if (rc < 0)
		rc = cli_fail_errno(error, rc, rc == -ENOMEM ? "malloc" : "read", path);
	else
		rc = document_parse(text, length, path, document, error);
	free(text);
	if (fd != STDIN_FILENO)
		close(fd);
	return rc;
}

void document_free(struct document *document)
{
	for (uint32_t i = 0; i < document->count; i++)
		free(document->rows[i].runs);
	free(document->rows);
	document_free_matrix(&document->matrix);
	saved_free(&document->run);
	document->rows = NULL;
	document->count = 0;
}

bool document_is_run(const struct document *document)
{
	return document->run.answers;
}

bool document_rows_match(const struct document_row *one, const struct document_row *other)
{
	const struct document_key *a = &one->key, *b = &other->key;
	bool fabric = strcmp(one->tool, other->tool) || !strcmp(a->fabric, b->fabric);

	return fabric && a->size == b->size && a->both_ways == b->both_ways && !strcmp(a->operation, b->operation) &&
	       !strcmp(a->mode, b->mode) && !strcmp(a->memory, b->memory) && !strcmp(a->peer_memory, b->peer_memory);
}
