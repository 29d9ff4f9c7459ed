/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/compare/document.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#define NUMBER_MIN 1e-9
#define NUMBER_MAX 1e21
#define HINT "give it what `peerlane bench --json` printed"

/* What is being read, and where the first thing goes that is wrong with it. */
struct reader {
	const char *name;
	struct document *document;
	struct json_object *root;
	struct pl_error *error;
};

static int refuse(const struct reader *reader, const char *format, const char *what)
{
	char text[160];

	snprintf(text, sizeof(text), format, what);
	return cli_fail(reader->error, -EINVAL, "BENCH-DOCUMENT", reader->name, HINT, "%s", text);
}

/* -- members, of whatever type they are ------------------------------------------------------------ */

static struct json_object *member(struct json_object *object, const char *name, enum json_type type)
{
	struct json_object *value = NULL;

	if (!json_object_is_type(object, json_type_object) || !json_object_object_get_ex(object, name, &value))
		return NULL;
	return json_object_is_type(value, type) ? value : NULL;
}

/* It ends up on a terminal. */
static void copy_text(struct json_object *object, const char *name, const char *otherwise, char *to, size_t size)
{
	struct json_object *value = member(object, name, json_type_string);

	const char *text = value ? json_object_get_string(value) : otherwise;

	snprintf(to, size, "%.*s", (int)size - 1, text);
	cli_printable(to, false);
}

static bool is_true(struct json_object *object, const char *name)
{
	return json_object_get_boolean(member(object, name, json_type_boolean));
}

/* A rate or a time: more than nothing, and such that quotients are numbers, too. */
static bool number_of(struct json_object *value, double *number)
{
	if (!json_object_is_type(value, json_type_double) && !json_object_is_type(value, json_type_int))
		return false;
	*number = json_object_get_double(value);
	return *number >= NUMBER_MIN && *number <= NUMBER_MAX;
}

/* -- rows ------------------------------------------------------------------------------------------ */

static int compare_numbers(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

static int read_runs(const struct reader *reader, struct json_object *runs, struct document_row *row)
{
	size_t count = json_object_array_length(runs);

	if (count > DOCUMENT_RUNS_MAX)
		return refuse(reader, "a result has more runs than %s", "1000");
	row->runs = calloc(count, sizeof(*row->runs));
	if (!row->runs)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	for (; row->run_count < count; row->run_count++)
		if (!number_of(json_object_array_get_idx(runs, row->run_count), &row->runs[row->run_count]))
			return refuse(reader, "a run of a result %s", "is no number above 0");
	qsort(row->runs, row->run_count, sizeof(*row->runs), compare_numbers);
	return 0;
}

/* The one value of a result that has no runs, as those of other tools. */
static struct json_object *single(struct json_object *object, const struct document_row *row)
{
	struct json_object *value = NULL;

	if (row->less)
		json_object_object_get_ex(member(object, "latency_us", json_type_object), "p50", &value);
	else if (!strcmp(row->key.mode, "frames"))
		json_object_object_get_ex(object, "frames_per_second", &value);
	else
		json_object_object_get_ex(object, "bytes_per_second", &value);
	return value;
}

static int read_values(const struct reader *reader, struct json_object *object, struct document_row *row)
{
	struct json_object *runs = member(object, "runs", json_type_array);

	if (runs && json_object_array_length(runs) > 0)
		return read_runs(reader, runs, row);
	row->runs = calloc(1, sizeof(*row->runs));
	if (!row->runs)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	if (!number_of(single(object, row), row->runs))
		return refuse(reader, "a result has neither runs nor %s",
			      row->less ? "latency_us.p50" : "a rate, or it is no number above 0");
	row->run_count = 1;
	return 0;
}

/* Keys that a result does not have are those of the whole document. */
static void read_key(const struct reader *reader, struct json_object *object, bool frames, struct document_row *row)
{
	struct json_object *verified = member(object, "verified", json_type_boolean);
	struct document_key *key = &row->key;
	char whole[sizeof(key->mode)];

	copy_text(object, frames ? "arm" : "operation", "?", key->operation, sizeof(key->operation));
	copy_text(reader->root, "mode", "bandwidth", whole, sizeof(whole));
	copy_text(object, "mode", whole, key->mode, sizeof(key->mode));
	if (frames)
		snprintf(key->mode, sizeof(key->mode), "frames");
	copy_text(reader->root, "fabric", "?", whole, sizeof(whole));
	copy_text(object, "fabric", whole, key->fabric, sizeof(key->fabric));
	copy_text(object, "memory", "host", key->memory, sizeof(key->memory));
	copy_text(object, "peer_memory", "host", key->peer_memory, sizeof(key->peer_memory));
	copy_text(object, "tool", "peerlane", row->tool, sizeof(row->tool));
	key->both_ways = is_true(object, "both_ways") || is_true(reader->root, "both_ways");
	row->less = !strcmp(key->mode, "latency");
	row->wrong = verified && !json_object_get_boolean(verified);
}

static int read_row(const struct reader *reader, struct json_object *object, bool frames, struct document_row *row)
{
	struct json_object *size = member(object, "size", json_type_int);

	if (!json_object_is_type(object, json_type_object))
		return refuse(reader, "a result is %s", "no object");
	read_key(reader, object, frames, row);
	if (!size || json_object_get_int64(size) < 0)
		return refuse(reader, "a result has no %s", "size, or one that is no number of bytes");
	row->key.size = (uint64_t)json_object_get_int64(size);
	return read_values(reader, object, row);
}

static int read_rows(const struct reader *reader, bool frames)
{
	struct json_object *results = member(reader->root, "results", json_type_array);
	struct document *document = reader->document;
	size_t count = results ? json_object_array_length(results) : 0;
	int rc = 0;

	if (!results)
		return refuse(reader, "it has no %s", "array of results");
	if (count > DOCUMENT_ROWS_MAX)
		return refuse(reader, "it has more results than %s", "1024");
	document->rows = calloc(count + 1, sizeof(*document->rows));
	if (!document->rows)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	for (; rc == 0 && document->count < count; document->count++)
		rc = read_row(reader, json_object_array_get_idx(results, document->count), frames,
			      &document->rows[document->count]);
	return rc;
}

static int read_root(const struct reader *reader)
{
	struct json_object *format = member(reader->root, "format", json_type_int);
	struct document *document = reader->document;
	char kind[32];

	if (!json_object_is_type(reader->root, json_type_object))
		return refuse(reader, "it is %s", "no JSON object");
	if (format && json_object_get_int64(format) != 1)
		return refuse(reader, "it is of %s", "a format that this version does not know");
	copy_text(reader->root, "kind", "bench", kind, sizeof(kind));
	copy_text(reader->root, "version", "", document->version, sizeof(document->version));
	copy_text(reader->root, "time", "", document->time, sizeof(document->time));
	copy_text(member(reader->root, "machine", json_type_object), "host", "", document->host,
		  sizeof(document->host));
	document->failed = member(reader->root, "error", json_type_object) != NULL;
	if (!strcmp(kind, "workflow") || !strcmp(kind, "proxy"))
		return read_rows(reader, true);
	if (strcmp(kind, "bench"))
		return refuse(reader, "results of the kind '%s' cannot be compared", kind);
	return read_rows(reader, false);
}

/* -- the whole -------------------------------------------------------------------------------------- */

int document_parse(const char *text, size_t length, const char *name, struct document *document, struct pl_error *error)
{
	struct json_tokener *tokener = json_tokener_new();
	struct reader reader = { .name = name, .document = document, .error = error };
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
		rc = refuse(&reader, "it is no JSON: %s",
			    outcome == json_tokener_continue ? "it ends too early" : json_tokener_error_desc(outcome));
	else
		rc = read_root(&reader);
	json_object_put(reader.root);
	if (rc < 0)
		document_free(document);
	return rc;
}

/* Bytes read; one more than the limit means that there are too many. */
static ssize_t read_all(int fd, char *buffer)
{
	size_t length = 0;
	ssize_t got;

	do {
		got = read(fd, buffer + length, DOCUMENT_BYTES_MAX + 1 - length);
		if (got > 0)
			length += (size_t)got;
	} while (got > 0 || (got < 0 && errno == EINTR));
	return got < 0 ? -errno : (ssize_t)length;
}

int document_read(const char *path, struct document *document, struct pl_error *error)
{
	struct reader reader = { .name = path, .document = document, .error = error };
	int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	char *text = fd < 0 ? NULL : malloc(DOCUMENT_BYTES_MAX + 1);
	ssize_t length = 0;
	int rc;

	memset(document, 0, sizeof(*document));
	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", path);
	if (text)
		length = read_all(fd, text);
	if (!text)
		rc = cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	else if (length < 0)
		rc = cli_fail_errno(error, (int)length, "read", path);
	else if (length > (ssize_t)DOCUMENT_BYTES_MAX)
		rc = refuse(&reader, "it has more than %s", "16 MiB");
	else
		rc = document_parse(text, (size_t)length, path, document, error);
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
	document->rows = NULL;
	document->count = 0;
}

bool document_same(const struct document_row *one, const struct document_row *other)
{
	const struct document_key *a = &one->key, *b = &other->key;
	bool fabric = strcmp(one->tool, other->tool) || !strcmp(a->fabric, b->fabric);

	return fabric && a->size == b->size && a->both_ways == b->both_ways && !strcmp(a->operation, b->operation) &&
	       !strcmp(a->mode, b->mode) && !strcmp(a->memory, b->memory) && !strcmp(a->peer_memory, b->peer_memory);
}
