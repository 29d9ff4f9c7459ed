/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/authorized.h"
#include "base/bucket.h"
#include "control/trusted_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LINES_MAX 65536
#define WORDS_MAX 16
#define SELECTOR_MAX 256

/* Ranks of selectors: the least one that fits decides. */
enum selector { REVOKED, EXACT, NAME, PATTERN, EVERYBODY };

struct line {
	enum selector selector;
	bool everybody; /* the line is for all other ends, also for those without an identity */
	bool by_name;   /* `text` is a name; else `fingerprint` is set */
	uint8_t fingerprint[PL_FINGERPRINT];
	char text[SELECTOR_MAX];
	struct pl_rights rights;
};

struct pl_authorized {
	struct pl_allocator allocator;
	struct line *lines;
	size_t count, space;
};

/* A line while it is parsed. */
struct parser {
	const char *path;
	unsigned number; /* from 1 */
	char *words[WORDS_MAX];
	size_t count;
	struct pl_error *error;
};

static int fail_authorized(const struct parser *parser, const char *fact, const char *word)
{
	char object[PL_FILE_LINE_MAX];

	return pl_fail(parser->error, -EINVAL, "AUTHORIZED-SYNTAX", "pl_open",
		       pl_file_line(object, parser->path, parser->number),
		       "write: SELECTOR RIGHTS [NAME=VALUE]..., as peerlane-identity(7) describes", "%s: '%.60s'", fact,
		       word);
}

/* -- fields --------------------------------------------------------------------------------------------------------- */

static int parse_access_words(const struct parser *parser, char *words, unsigned *access)
{
	static const struct {
		const char *word;
		unsigned access;
	} known[] = {
		{ "read", PL_ACCESS_READ },
		{ "write", PL_ACCESS_WRITE },
		{ "atomic", PL_ACCESS_ATOMIC },
		{ "all", PL_ACCESS_ALL },
	};
	char *rest = NULL;

	*access = 0;
	for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		size_t i = 0;

		while (i < PL_ARRAY_SIZE(known) && strcmp(word, known[i].word))
			i++;
		if (i == PL_ARRAY_SIZE(known))
			return fail_authorized(parser, "unknown right", word);
		*access |= known[i].access;
	}
	return *access ? 0 : fail_authorized(parser, "no rights", parser->words[0]);
}

/* Parses a number with the suffix K, M, G or T (powers of 1,024). */
static bool parse_limit(const char *text, uint64_t *value)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	char *end;
	unsigned shift = 0;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	if (*end) {
		suffix = strchr(suffixes, *end);
		if (!suffix || end[1])
			return false;
		shift = 10 * (unsigned)(suffix - suffixes + 1);
	}
	if (errno || *value == 0 || *value > UINT64_MAX >> shift)
		return false;
	*value <<= shift;
	return true;
}

/* Parses YYYYMMDD: the end of that day, UTC. */
static bool parse_day(const char *text, uint64_t *time)
{
	struct tm day = { 0 }, again;
	const char *end = strptime(text, "%Y%m%d", &day);
	time_t seconds;

	if (strlen(text) != 8 || !end || *end)
		return false;
	again = day;
	seconds = timegm(&again);
	/* timegm() makes the 1st of March of the 30th of February. */
	if (seconds < 0 || again.tm_mday != day.tm_mday || again.tm_mon != day.tm_mon)
		return false;
	/* Times beyond the year 2554 do not fit. */
	*time = PL_MIN((uint64_t)seconds + 86400, UINT64_MAX / PL_NS_PER_S) * PL_NS_PER_S;
	return true;
}

/* Field of a line: a member of struct pl_rights. */
struct field {
	const char *name;
	size_t at;    /* offset of the member */
	uint64_t max; /* most of a count */
	/* Parses a value into the member. Returns false if it is not allowed. */
	bool (*parse)(const struct field *field, const char *value, void *member);
	const char *allowed;
};

static bool authorized_parse_names(const struct field *field, const char *value, void *member)
{
	const size_t size = sizeof(((struct pl_rights *)NULL)->names);

	(void)field;
	snprintf(member, size, "%s", value);
	return value[0] && strlen(value) < size;
}

static bool authorized_parse_bytes(const struct field *field, const char *value, void *member)
{
	(void)field;
	return parse_limit(value, member);
}

static bool authorized_parse_until(const struct field *field, const char *value, void *member)
{
	(void)field;
	return parse_day(value, member);
}

static bool authorized_parse_rate(const struct field *field, const char *value, void *member)
{
	return authorized_parse_bytes(field, value, member) && *(uint64_t *)member >= PL_BUCKET_RATE_MIN;
}

static bool authorized_parse_count(const struct field *field, const char *value, void *member)
{
	uint64_t number;

	if (!parse_limit(value, &number) || number > field->max)
		return false;
	*(unsigned *)member = (unsigned)number;
	return true;
}

static const struct field fields[] = {
	{ "names", offsetof(struct pl_rights, names), 0, authorized_parse_names, "1 to 511 characters" },
	{ "quota", offsetof(struct pl_rights, quota), 0, authorized_parse_bytes, "bytes above 0, such as 10G" },
	{ "until", offsetof(struct pl_rights, until), 0, authorized_parse_until, "a day, YYYYMMDD" },
	{ "rate", offsetof(struct pl_rights, rate), 0, authorized_parse_rate, "bytes a second, at least 64K" },
	{ "clients", offsetof(struct pl_rights, clients), 65536, authorized_parse_count, "1 to 65536" },
	{ "imports", offsetof(struct pl_rights, imports), 65536, authorized_parse_count, "1 to 65536" },
	{ "requests", offsetof(struct pl_rights, requests), 1000000, authorized_parse_count, "1 to 1000000" },
};

/* `given` has a bit for each field of the line. A limit that was raised by a second field would be easily overlooked. */
static int parse_attribute(const struct parser *parser, char *word, struct pl_rights *rights, unsigned *given)
{
	char *value = strchr(word, '='), fact[80];
	size_t i = 0;

	if (!value)
		return fail_authorized(parser, "not NAME=VALUE", word);
	*value++ = '\0';
	while (i < PL_ARRAY_SIZE(fields) && strcmp(word, fields[i].name))
		i++;
	if (i == PL_ARRAY_SIZE(fields))
		return fail_authorized(parser, "unknown field", word);
	if (*given & 1u << i) {
		snprintf(fact, sizeof(fact), "%s= is there twice; the second is", fields[i].name);
		return fail_authorized(parser, fact, value);
	}
	*given |= 1u << i;
	if (fields[i].parse(&fields[i], value, (char *)rights + fields[i].at))
		return 0;
	snprintf(fact, sizeof(fact), "%s= takes %s; it is", fields[i].name, fields[i].allowed);
	return fail_authorized(parser, fact, value);
}

static int parse_selector(const struct parser *parser, const char *word, struct line *line)
{
	static const char name[] = "name:", spiffe[] = "spiffe://";

	if (!strcmp(word, "*")) {
		line->selector = EVERYBODY;
		line->everybody = true;
		return 0;
	}
	if (pl_fingerprint_parse(word, strlen(word), line->fingerprint)) {
		line->selector = EXACT;
		return 0;
	}
	if (!strncmp(word, name, strlen(name)))
		word += strlen(name);
	else if (strncmp(word, spiffe, strlen(spiffe)))
		return fail_authorized(parser, "not a fingerprint, name:, spiffe:// or *", word);
	if (!word[0] || strlen(word) >= sizeof(line->text))
		return fail_authorized(parser, "wrong length of the name", word);
	line->by_name = true;
	line->selector = strchr(word, '*') ? PATTERN : NAME;
	snprintf(line->text, sizeof(line->text), "%s", word);
	return 0;
}

/* -- lines ----------------------------------------------------------------------------------------------------------- */

static int parse_authorized_line(const struct parser *parser, struct line *line)
{
	static const struct pl_rights none = PL_RIGHTS_INIT;
	unsigned given = 0;
	size_t at = 0;
	int rc;

	memset(line, 0, sizeof(*line));
	line->rights = none;
	if (!strcmp(parser->words[0], "revoked")) {
		if (parser->count != 2)
			return fail_authorized(parser, "revoked takes one selector", parser->words[0]);
		rc = parse_selector(parser, parser->words[1], line);
		line->selector = REVOKED;
		return rc;
	}
	rc = parse_selector(parser, parser->words[at++], line);
	if (rc < 0)
		return rc;
	if (at == parser->count)
		return fail_authorized(parser, "no rights", parser->words[0]);
	rc = parse_access_words(parser, parser->words[at++], &line->rights.access);
	while (rc == 0 && at < parser->count)
		rc = parse_attribute(parser, parser->words[at++], &line->rights, &given);
	return rc;
}

static int append_line(struct pl_authorized *list, const struct parser *parser, const struct line *line)
{
	size_t space = list->space ? 2 * list->space : 8;
	struct line *grown;

	if (list->count == LINES_MAX)
		return fail_authorized(parser, "more than 65,536 lines", "");
	if (list->count == list->space) {
		grown = pl_realloc(&list->allocator, list->lines, space * sizeof(*grown));
		if (!grown)
			return pl_fail_memory(parser->error, "authorized");
		list->lines = grown;
		list->space = space;
	}
	list->lines[list->count++] = *line;
	return 0;
}

/* Splits a line at blanks, up to a comment. */
static int split_words(struct parser *parser, char *text)
{
	char *rest = NULL;

	parser->count = 0;
	for (char *word = strtok_r(text, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
		if (word[0] == '#')
			break;
		if (parser->count == WORDS_MAX)
			return fail_authorized(parser, "too many words", word);
		parser->words[parser->count++] = word;
	}
	return 0;
}

int pl_authorized_parse(const struct pl_allocator *allocator, const char *path, const char *text,
			struct pl_authorized **result, struct pl_error *error)
{
	struct pl_authorized *list = pl_zalloc(allocator, sizeof(*list));
	struct parser parser = { .path = path, .error = error };
	char buffer[2048];
	struct line line;
	int rc = list ? 0 : pl_fail_memory(error, "authorized");

	*result = NULL;
	if (list)
		list->allocator = *allocator;
	for (const char *at = text; rc == 0 && *at;) {
		size_t length = strcspn(at, "\n");

		parser.number++;
		if (length >= sizeof(buffer)) {
			rc = fail_authorized(&parser, "the line is too long", "");
			break;
		}
		snprintf(buffer, sizeof(buffer), "%.*s", (int)length, at);
		rc = split_words(&parser, buffer);
		if (rc == 0 && parser.count)
			rc = parse_authorized_line(&parser, &line);
		if (rc == 0 && parser.count)
			rc = append_line(list, &parser, &line);
		at += length + (at[length] == '\n');
	}
	if (rc < 0)
		pl_authorized_free(list);
	else
		*result = list;
	return rc;
}

void pl_authorized_free(struct pl_authorized *list)
{
	struct pl_allocator allocator;

	if (!list)
		return;
	allocator = list->allocator;
	pl_free(&allocator, list->lines);
	pl_free(&allocator, list);
}

/* -- lookup ------------------------------------------------------------------------------------------------------------ */

/*
 * True if a name fits a pattern, in which a '*' stands for any text without '/', or at the end for any text. No '*' but
 * the last one of a segment needs other lengths than the shortest that fits, so the time is at most the product of both
 * lengths.
 */
static bool pattern_fits_name(const char *pattern, const char *name)
{
	const char *star = NULL, *rest = NULL; /* the last '*' of this segment, and the end of its text */

	for (;;) {
		if (*pattern == '*' && !pattern[1])
			return *name != '\0';
		if (*pattern == '*') {
			star = pattern++;
			rest = name;
		} else if (*pattern == *name) {
			if (!*name)
				return true;
			if (*name == '/')
				star = NULL; /* the text of a '*' does not cross it */
			pattern++;
			name++;
		} else if (star && *rest && *rest != '/') {
			pattern = star + 1;
			name = ++rest;
		} else {
			return false;
		}
	}
}

static bool line_fits(const struct line *line, const uint8_t *fingerprint, const char *name)
{
	if (line->everybody)
		return true;
	if (line->by_name)
		return name[0] && pattern_fits_name(line->text, name);
	return fingerprint && !memcmp(line->fingerprint, fingerprint, PL_FINGERPRINT);
}

enum pl_listed pl_authorized_find(const struct pl_authorized *list, const uint8_t *fingerprint, const char *name,
				  struct pl_rights *rights)
{
	const struct line *best = NULL;

	for (size_t i = 0; i < list->count; i++) {
		const struct line *line = &list->lines[i];

		if ((!best || line->selector < best->selector) && line_fits(line, fingerprint, name))
			best = line;
	}
	if (!best)
		return PL_UNLISTED;
	if (best->selector == REVOKED)
		return PL_LISTED_REVOKED;
	*rights = best->rights;
	return PL_LISTED;
}
