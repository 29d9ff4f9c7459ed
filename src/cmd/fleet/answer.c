/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/answer.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FORMAT 1
#define SHELL_CANNOT_START 126 /* exit status of shells: the command is no program */
#define SHELL_NO_COMMAND 127   /* ... there is no such command */
#define NO_PROGRAM_HINT "the command cannot start there: install Peerlane or its libraries, or name it with --program"
#define SHELL_MESSAGE_MAX 140 /* bytes; the hint must follow within ANSWER_REASON_MAX */
#define DEPTH_MAX 32
#define ATTEMPTS_MAX 64     /* beginnings of documents without an end, or with errors */
#define CLOCK_TOLERANCE 1.5 /* seconds; the time of a document has whole seconds */

static const char *const outcome_names[ANSWER_OUTCOMES] = {
	[ANSWER_NONE] = "not-asked",
	[ANSWER_DOCUMENT] = "document",
	[ANSWER_UNREACHABLE] = "unreachable",
	[ANSWER_NO_PROGRAM] = "no-program",
	[ANSWER_TIMEOUT] = "timeout",
	[ANSWER_TOO_LONG] = "too-long",
	[ANSWER_TRUNCATED] = "truncated",
	[ANSWER_NO_DOCUMENT] = "no-document",
	[ANSWER_OTHER_FORMAT] = "other-format",
	[ANSWER_FAILED] = "failed",
	[ANSWER_REPEATED] = "repeated",
};

const char *answer_outcome_name(enum answer_outcome outcome)
{
	return outcome_names[outcome];
}

enum answer_outcome answer_outcome_of(const char *name)
{
	for (int outcome = ANSWER_UNREACHABLE; outcome < ANSWER_OUTCOMES; outcome++)
		if (!strcmp(outcome_names[outcome], name))
			return (enum answer_outcome)outcome;
	return ANSWER_NO_DOCUMENT;
}

const char *answer_note_name(enum answer_note note)
{
	static const char *const names[ANSWER_NOTES] = { "clock", "name", "end" };

	return names[note];
}

static void refuse_answer(struct answer *answer, enum answer_outcome outcome, const char *format, ...)
{
	va_list arguments;

	answer->outcome = outcome;
	va_start(arguments, format);
	vsnprintf(answer->reason, sizeof(answer->reason), format, arguments);
	va_end(arguments);
	cli_printable(answer->reason, false);
}

/* -- document among noise ------------------------------------------------------------------------ */

static size_t count_blanks(const char *at, const char *end)
{
	const char *first = at;

	while (at < end && *at && strchr(" \t\r\n", *at))
		at++;
	return (size_t)(at - first);
}

/* True if a document of Peerlane begins at a brace: its first member tells. */
static bool begins_document(const char *at, const char *end)
{
	static const char *const firsts[] = { "\"format\"", "\"error\"", "\"kind\"", "\"machine\"", "\"version\"" };

	at++;
	at += count_blanks(at, end);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(firsts); i++)
		if ((size_t)(end - at) > strlen(firsts[i]) && !memcmp(at, firsts[i], strlen(firsts[i])))
			return true;
	return false;
}

/* Returns the bytes of an object, by its brackets outside of texts; 0 if it has no end. */
static size_t measure_object(const char *begin, const char *end)
{
	bool text = false;
	size_t depth = 0;

	for (const char *at = begin; at < end; at++) {
		if (text) {
			text = *at != '"';
			at += *at == '\\';
		} else if (*at == '"') {
			text = true;
		} else if (*at == '{' || *at == '[') {
			depth++;
		} else if ((*at == '}' || *at == ']') && --depth == 0) {
			return (size_t)(at + 1 - begin);
		}
	}
	return 0;
}

static struct json_object *parse_answer_object(const char *text, size_t length)
{
	struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
	struct json_object *root;

	if (!tokener)
		return NULL;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	root = json_tokener_parse_ex(tokener, text, (int)length);
	if (json_tokener_get_error(tokener) != json_tokener_success || !json_object_is_type(root, json_type_object)) {
		json_object_put(root);
		root = NULL;
	}
	json_tokener_free(tokener);
	return root;
}

/* True if an object has the members of a document: noise and wrappers of launchers may have some of these names. */
static bool has_document_members(struct json_object *root)
{
	return cli_json_member(root, "error", json_type_object) ||
	       (cli_json_member(root, "format", json_type_int) && cli_json_member_text(root, "kind"));
}

/* Parses an output that is a document and nothing else: some programs sort its members. */
static struct json_object *parse_whole_output(const char *text, const char *end, const char **begin, size_t *size)
{
	const char *at = text + count_blanks(text, end);
	struct json_object *root = NULL;

	*begin = at;
	*size = at < end && *at == '{' ? measure_object(at, end) : 0;
	if (*size && at + *size + count_blanks(at + *size, end) == end)
		root = parse_answer_object(at, *size);
	if (root && !has_document_members(root)) {
		json_object_put(root);
		root = NULL;
	}
	return root;
}

struct json_object *answer_find(const char *text, size_t length, const char **begin, size_t *size, bool *truncated)
{
	const char *end = text + length, *at = text;
	struct json_object *root;

	*truncated = false;
	root = parse_whole_output(text, end, begin, size);
	if (root)
		return root;
	for (unsigned attempts = 0; attempts < ATTEMPTS_MAX && (at = memchr(at, '{', (size_t)(end - at)));) {
		if (!begins_document(at, end)) {
			at++;
			continue;
		}
		*size = measure_object(at, end);
		root = *size ? parse_answer_object(at, *size) : NULL;
		if (root) {
			*begin = at;
			return root;
		}
		*truncated = *truncated || !*size;
		attempts++;
		at++;
	}
	return NULL;
}

/* -- document ------------------------------------------------------------------------------------ */

static void copy_answer_text(char *buffer, size_t size, struct json_object *root, const char *name)
{
	const char *text = cli_json_member_text(root, name);

	snprintf(buffer, size, "%s", text ? text : "");
	cli_printable(buffer, false);
}

/* True if the document is of this kind, and of a format that this version reads. */
static bool accept_document(struct answer *answer, enum fleet_kind kind, struct json_object *root)
{
	static const char *const kinds[] = { [FLEET_CHECK] = "check", [FLEET_TOPO] = "topo" };
	struct json_object *failure = cli_json_member(root, "error", json_type_object);
	const char *message = cli_json_member_text(failure, "message"),
		   *object = cli_json_member_text(failure, "object");
	int64_t format = fleet_number(root, "format");

	copy_answer_text(answer->version, sizeof(answer->version), root, "version");
	if (failure) {
		refuse_answer(answer, ANSWER_FAILED, "%s%s%s", object ? object : "", object ? ": " : "",
			      message ? message : "an error without a message");
		return false;
	}
	if (format != FORMAT) {
		refuse_answer(answer, ANSWER_OTHER_FORMAT, "format %lld of Peerlane %s, and this is format %d of %s",
			      (long long)format, *answer->version ? answer->version : "of an unknown version", FORMAT,
			      pl_version());
		if (format < 0)
			refuse_answer(answer, ANSWER_OTHER_FORMAT, "no format, as of another version of Peerlane");
		return false;
	}
	if (!cli_json_member_text(root, "kind") || strcmp(cli_json_member_text(root, "kind"), kinds[kind])) {
		refuse_answer(answer, ANSWER_NO_DOCUMENT, "the output is no document of peerlane %s", kinds[kind]);
		return false;
	}
	if (!cli_json_member(root, kind == FLEET_CHECK ? "checks" : "gpus", json_type_array)) {
		refuse_answer(answer, ANSWER_NO_DOCUMENT, "the document has no list of %s",
			      kind == FLEET_CHECK ? "checks" : "GPUs");
		return false;
	}
	return true;
}

void answer_read(struct answer *answer, enum fleet_kind kind, const char *text, size_t length)
{
	const char *begin, *line;
	struct json_object *root;
	size_t size;
	bool truncated;

	root = answer_find(text, length, &begin, &size, &truncated);
	if (!root) {
		refuse_answer(answer, truncated ? ANSWER_TRUNCATED : ANSWER_NO_DOCUMENT,
			      truncated ? "the document has no end: %zu bytes came"
			      : length  ? "there is no document in %zu bytes of output"
					: "there is no output",
			      length);
		return;
	}
	if (accept_document(answer, kind, root)) {
		copy_answer_text(answer->host, sizeof(answer->host), root, "host");
		copy_answer_text(answer->boot_id, sizeof(answer->boot_id), root, "boot_id");
		copy_answer_text(answer->time, sizeof(answer->time), root, "time");
		if (kind == FLEET_CHECK)
			facts_read_check(&answer->facts, root);
		else
			facts_read_topo(&answer->facts, root);
		line = json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
		answer->document = line ? strdup(line) : NULL;
		answer->outcome = ANSWER_DOCUMENT;
		if (!answer->document || answer->facts.no_memory)
			refuse_answer(answer, ANSWER_NO_DOCUMENT, "there is no memory for the document");
	}
	json_object_put(root);
}

/* -- end of the command -------------------------------------------------------------------------- */

/* Copies the last line of the messages that has text: launchers tell the reason last. */
static void copy_last_message(char *buffer, size_t size, const char *messages)
{
	const char *end = messages + strlen(messages), *begin;

	while (end > messages && strchr(" \t\r\n", end[-1]))
		end--;
	for (begin = end; begin > messages && begin[-1] != '\n'; begin--)
		;
	snprintf(buffer, size, "%.*s", (int)(end - begin), begin);
	cli_printable(buffer, false);
}

static void explain_silence(struct answer *answer, const struct run_result *result)
{
	char message[160], how[40];

	copy_last_message(message, sizeof(message), result->errors);
	switch (result->end) {
	case RUN_NO_START:
		refuse_answer(answer, ANSWER_UNREACHABLE, "the launcher cannot be started: %s",
			      strerror(-result->status));
		break;
	case RUN_TOO_LONG:
		refuse_answer(answer, ANSWER_TOO_LONG, "more than %u MiB of output", RUN_OUTPUT_MAX >> 20);
		break;
	case RUN_TIMEOUT:
		refuse_answer(answer, ANSWER_TIMEOUT, "no answer in %.3g s%s%s", (double)result->limit / CLI_NS_PER_S,
			      *message ? ": " : "", message);
		break;
	default:
		if (answer->outcome != ANSWER_NO_DOCUMENT || !result->status)
			break;
		if (result->status == SHELL_CANNOT_START || result->status == SHELL_NO_COMMAND) {
			refuse_answer(answer, ANSWER_NO_PROGRAM, "%.*s%s%s", SHELL_MESSAGE_MAX, message,
				      *message ? ": " : "", NO_PROGRAM_HINT);
			break;
		}
		if (result->status < 0)
			snprintf(how, sizeof(how), "signal %d", -result->status);
		else
			snprintf(how, sizeof(how), "exit status %d", result->status);
		if (*message)
			refuse_answer(answer, ANSWER_UNREACHABLE, "%s (%s)", message, how);
		else
			refuse_answer(answer, ANSWER_UNREACHABLE, "%s, and no message", how);
	}
}

void answer_set_clock(struct answer *answer, double seconds)
{
	answer->clock = seconds;
	if (seconds != 0)
		snprintf(answer->notes[ANSWER_NOTE_CLOCK], ANSWER_REASON_MAX, "the clock is %.0f s %s",
			 seconds < 0 ? -seconds : seconds, seconds < 0 ? "behind" : "ahead");
}

/* Compares the time in the document with the time of this host, which must lie between start and end of the command. */
static void compare_clocks(struct answer *answer, const struct run_result *result)
{
	double begun = (double)result->begun_wall / CLI_NS_PER_S, ended = (double)result->ended_wall / CLI_NS_PER_S,
	       time;
	struct tm date = { .tm_sec = 0 };
	const char *rest = strptime(answer->time, "%Y-%m-%dT%H:%M:%SZ", &date);

	if (!rest || *rest)
		return;
	time = (double)timegm(&date);
	if (time < begun - CLOCK_TOLERANCE)
		answer_set_clock(answer, time - begun);
	else if (time > ended + CLOCK_TOLERANCE)
		answer_set_clock(answer, time - ended);
}

void answer_read_result(struct answer *answer, enum fleet_kind kind, const struct run_result *result)
{
	answer_read(answer, kind, result->output ? result->output : "", result->length);
	answer->status = result->end == RUN_NO_START ? -1 : result->status;
	answer->seconds = (double)(result->ended - result->begun) / CLI_NS_PER_S;
	if (answer->outcome == ANSWER_DOCUMENT && result->end == RUN_TIMEOUT)
		snprintf(answer->notes[ANSWER_NOTE_END], ANSWER_REASON_MAX, "the launcher did not end in %.3g s",
			 (double)result->limit / CLI_NS_PER_S);
	if (answer->outcome == ANSWER_DOCUMENT && result->end != RUN_TOO_LONG)
		compare_clocks(answer, result);
	else if (answer->outcome != ANSWER_FAILED && answer->outcome != ANSWER_OTHER_FORMAT)
		explain_silence(answer, result);
}

void answer_free(struct answer *answer)
{
	free(answer->document);
	facts_free(&answer->facts);
	*answer = (struct answer){ .document = NULL };
}
