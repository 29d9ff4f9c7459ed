/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t cli_utf8_character(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	static const struct {
		unsigned char first, last, low, high; /* range of the first byte, range of the second byte */
		size_t length;
	} forms[] = {
		{ 0x01, 0x7f, 0x00, 0xff, 1 }, { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	for (size_t i = 0; i < CLI_ARRAY_SIZE(forms); i++) {
		if (at[0] < forms[i].first || at[0] > forms[i].last)
			continue;
		if (forms[i].length > 1 && (at[1] < forms[i].low || at[1] > forms[i].high))
			return 0;
		for (size_t j = 2; j < forms[i].length; j++)
			if ((at[j] & 0xc0) != 0x80)
				return 0;
		return forms[i].length;
	}
	return 0;
}

bool cli_is_utf8(const char *text, size_t length)
{
	const char *at = text, *end = text + length;

	while (at < end) {
		size_t size = cli_utf8_character(at);

		if (!size)
			return false;
		at += size;
	}
	return true;
}

struct json_object *cli_json_text(const char *text)
{
	const char *at = text;
	struct json_object *result;
	char *clean, *to;

	if (!text)
		return NULL;
	to = clean = malloc(strlen(text) * 3 + 1);
	if (!clean)
		return NULL;
	while (*at) {
		size_t length = cli_utf8_character(at);

		if (length) {
			memcpy(to, at, length);
			to += length;
			at += length;
		} else {
			memcpy(to, "\xef\xbf\xbd", 3);
			to += 3;
			at++;
		}
	}
	*to = '\0';
	result = json_object_new_string(clean);
	free(clean);
	return result;
}

struct json_object *cli_json_text_or_null(const char *text)
{
	return text && *text ? cli_json_text(text) : NULL;
}

void cli_json_add(struct json_object *object, const char *name, struct json_object *value)
{
	/* json-c ends the process if it has to add to NULL. */
	if (!object || json_object_object_add(object, name, value) < 0)
		json_object_put(value);
}

void cli_json_append(struct json_object *array, struct json_object *value)
{
	if (!array || json_object_array_add(array, value) < 0)
		json_object_put(value);
}

struct json_object *cli_json_member(struct json_object *object, const char *name, enum json_type type)
{
	struct json_object *value;

	if (!json_object_is_type(object, json_type_object) || !json_object_object_get_ex(object, name, &value))
		return NULL;
	return json_object_is_type(value, type) ? value : NULL;
}

const char *cli_json_member_text(struct json_object *object, const char *name)
{
	struct json_object *value = cli_json_member(object, name, json_type_string);

	return value ? json_object_get_string(value) : NULL;
}

struct json_object *cli_json_begin(void)
{
	/* A failed allocation sets errno, and no successful call clears it: so cli_json_end() notices lost members. */
	errno = 0;
	return json_object_new_object();
}

struct json_object *cli_json_error(const struct pl_error *error)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "code", json_object_new_int(error->code));
	cli_json_add(object, "id", cli_json_text(error->id));
	cli_json_add(object, "call", cli_json_text(error->call));
	cli_json_add(object, "object", cli_json_text(error->object));
	cli_json_add(object, "message", cli_json_text(error->message));
	cli_json_add(object, "hint", cli_json_text(cli_hint(error)));
	return object;
}

static const char *format_json_document(struct json_object *object, bool pretty)
{
	int flags = JSON_C_TO_STRING_NOSLASHESCAPE;

	if (pretty)
		flags |= JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED;
	return json_object_to_json_string_ext(object, flags);
}

void cli_json_print(struct json_object *object, bool pretty)
{
	puts(format_json_document(object, pretty));
	fflush(stdout);
	json_object_put(object);
}

const char *cli_json_string(struct json_object *object, bool pretty)
{
	const char *text = object && errno != ENOMEM ? format_json_document(object, pretty) : NULL;

	return errno == ENOMEM ? NULL : text;
}

int cli_json_end(struct json_object *object, bool pretty)
{
	const char *text = cli_json_string(object, pretty);
	int rc = text ? 0 : -ENOMEM;

	if (rc == 0) {
		puts(text);
		fflush(stdout);
	}
	json_object_put(object);
	return rc;
}

int cli_json_results(struct json_object *object)
{
	struct pl_error error;

	if (cli_json_end(object, true) == 0)
		return CLI_OK;
	cli_fail(&error, -ENOMEM, "NO-MEMORY", "standard output", "repeat the command",
		 "there is no memory for the results as JSON");
	cli_report(&error);
	return CLI_OUTPUT;
}

int cli_report_for(const struct cli_options *options, const struct pl_error *error)
{
	struct json_object *object;

	if (options->json) {
		object = cli_json_begin();
		cli_json_add(object, "error", cli_json_error(error));
		/* Without memory, the error is on standard error only. */
		cli_json_end(object, true);
	}
	return cli_report(error);
}

const char *cli_route_name(enum pl_route route)
{
	switch (route) {
	case PL_ROUTE_DIRECT:
		return "direct";
	case PL_ROUTE_STAGED:
		return "staged";
	default:
		return "none";
	}
}

struct libscols_table *cli_table(const struct cli_column *columns, size_t count)
{
	struct libscols_table *table = scols_new_table();

	for (size_t i = 0; table && i < count; i++) {
		if (!scols_table_new_column(table, columns[i].name, 0, columns[i].flags)) {
			scols_unref_table(table);
			table = NULL;
		}
	}
	return table;
}

struct libscols_line *cli_table_line(struct libscols_table *table)
{
	return table ? scols_table_new_line(table, NULL) : NULL;
}

void cli_table_set(struct libscols_line *line, size_t column, const char *text)
{
	if (line)
		scols_line_set_data(line, column, text);
}

void cli_table_print(struct libscols_table *table)
{
	if (!table)
		return;
	scols_print_table(table);
	scols_unref_table(table);
}
