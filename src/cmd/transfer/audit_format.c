/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/audit_format.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

#include "cmd/common/output.h"

struct audit_line {
	enum audit_format format;
	char *at, *end;
	bool first;
};

static void append_text(struct audit_line *line, const char *text, size_t length)
{
	if (length > (size_t)(line->end - line->at))
		return;
	memcpy(line->at, text, length);
	line->at += length;
}

/* Decodes a well-formed character of UTF-8. */
static unsigned decode_utf8(const char *at, size_t size)
{
	unsigned code = (unsigned char)at[0] & (size == 1 ? 0x7f : 0xff >> (size + 1));

	for (size_t i = 1; i < size; i++)
		code = code << 6 | ((unsigned char)at[i] & 0x3f);
	return code;
}

/* True for characters that terminals act on, or that change the order of the text after them. */
static bool is_hidden_character(unsigned code)
{
	static const struct {
		unsigned first, last;
	} hidden[] = {
		{ 0x00, 0x1f },     { 0x7f, 0x9f },     { 0x061c, 0x061c },
		{ 0x200e, 0x200f }, { 0x2028, 0x202e }, { 0x2066, 0x2069 },
	};

	for (size_t i = 0; i < CLI_ARRAY_SIZE(hidden); i++)
		if (code >= hidden[i].first && code <= hidden[i].last)
			return true;
	return false;
}

/*
 * Appends a value as UTF-8, in the form of a JSON string without its quotes.  Hidden characters are escaped, as are bytes that
 * are not UTF-8: a byte FF becomes \u00ff.
 */
static void append_escaped(struct audit_line *line, const char *value)
{
	while (*value) {
		size_t size = cli_utf8_character(value);
		unsigned code = size ? decode_utf8(value, size) : (unsigned char)*value;
		char escaped[16] = "";

		if (*value == '"' || *value == '\\')
			snprintf(escaped, sizeof(escaped), "\\%c", *value);
		else if (size == 0 || is_hidden_character(code))
			snprintf(escaped, sizeof(escaped), "\\u%04x", code);
		size = CLI_MAX(size, 1);
		append_text(line, *escaped ? escaped : value, *escaped ? strlen(escaped) : size);
		value += size;
	}
}

static void append_quoted(struct audit_line *line, const char *value)
{
	append_text(line, "\"", 1);
	append_escaped(line, value);
	append_text(line, "\"", 1);
}

/* Field of journald: KEY=value.  No value has a newline, and no field its form for values that have. */
static void append_journal_field(struct audit_line *line, const char *key, const char *value)
{
	char name[64];
	size_t used = 0;

	for (; key[used] && used < sizeof(name) - 1; used++)
		name[used] = (char)toupper((unsigned char)key[used]);
	append_text(line, "PEERLANE_", 9);
	append_text(line, name, used);
	append_text(line, "=", 1);
	append_escaped(line, value);
	append_text(line, "\n", 1);
}

/* Appends a field; `number`: the value needs no quotes. */
static void append_field(struct audit_line *line, const char *key, const char *value, bool number)
{
	if (line->format == AUDIT_JOURNAL) {
		append_journal_field(line, key, value);
		return;
	}
	append_text(line, line->format == AUDIT_JSON ? (line->first ? "{" : ",") : (line->first ? "" : " "),
		    line->first && line->format == AUDIT_TEXT ? 0 : 1);
	line->first = false;
	if (line->format == AUDIT_JSON)
		append_quoted(line, key);
	else
		append_text(line, key, strlen(key));
	append_text(line, line->format == AUDIT_JSON ? ":" : "=", 1);
	if (number)
		append_text(line, value, strlen(value));
	else
		append_quoted(line, value);
}

static void append_word(struct audit_line *line, const char *key, const char *value)
{
	if (value && *value)
		append_field(line, key, value, false);
}

static void append_number(struct audit_line *line, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	append_field(line, key, text, true);
}

static void append_time(struct audit_line *line)
{
	struct timespec now;
	struct tm fields;
	char text[40];
	size_t length;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &fields);
	length = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &fields);
	snprintf(text + length, sizeof(text) - length, ".%06ldZ", now.tv_nsec / 1000);
	append_field(line, "time", text, false);
}

/* Fields that journald knows by name. */
static void append_journal_head(struct audit_line *line, const struct audit_event *event)
{
	char head[64], message[448];

	snprintf(head, sizeof(head), "SYSLOG_IDENTIFIER=peerlane\nPRIORITY=%d\nMESSAGE=", event->priority);
	snprintf(message, sizeof(message), "%s %s%s%s", event->event, event->identity ? event->identity->address : "",
		 event->identity && event->identity->fingerprint[0] ? " " : "",
		 event->identity ? event->identity->fingerprint : "");
	append_text(line, head, strlen(head));
	append_escaped(line, message);
	append_text(line, "\n", 1);
}

size_t audit_format(enum audit_format format, const struct audit_event *event, uint64_t sequence, uint64_t dropped,
		    char text[AUDIT_LINE_MAX])
{
	struct audit_line line = { .format = format, .at = text, .end = text + AUDIT_LINE_MAX - 2, .first = true };

	if (format == AUDIT_JOURNAL)
		append_journal_head(&line, event);
	else
		append_time(&line);
	append_number(&line, "seq", sequence);
	append_word(&line, "event", event->event);
	if (event->identity) {
		append_word(&line, "address", event->identity->address);
		append_word(&line, "identity", event->identity->fingerprint);
		append_word(&line, "certified_name", event->identity->name);
		append_word(&line, "key_id", event->identity->key_id);
	}
	append_word(&line, "name", event->name);
	if (event->has_bytes)
		append_number(&line, "bytes", event->bytes);
	if (event->duration)
		append_number(&line, "duration_us", event->duration / 1000);
	append_word(&line, "limit", event->limit);
	append_word(&line, "fabric", event->fabric);
	if (event->fabric)
		append_field(&line, "encrypted", event->encrypted ? "true" : "false", true);
	if (event->error) {
		append_word(&line, "result", event->error->id);
		append_word(&line, "message", event->error->message);
	}
	if (dropped)
		append_number(&line, "dropped", dropped);
	if (format == AUDIT_JSON)
		*line.at++ = '}';
	if (format != AUDIT_JOURNAL)
		*line.at++ = '\n';
	return (size_t)(line.at - text);
}
