/* SPDX-License-Identifier: BSD-2-Clause */
/* Expectations and acceptances as texts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/check/policy_file.h"

#define NUMBER_MAX 1024u
#define ID_MAX 64u
#define ITEM_MAX 320u
#define EXPECTED_HINT \
	"gpus=N, cards=N, rate=GBITS, links=LANESxGENERATION, driver=PATTERN and direct=N, such as " \
	"gpus=8,rate=400,links=16x5"

/* -- expectations ---------------------------------------------------------------------------------- */

/* Parses a whole text of digits; returns 0 unless the number is 1 to max. */
static unsigned long parse_count(const char *text, unsigned long max)
{
	unsigned long number;
	char *end;

	if (*text < '0' || *text > '9')
		return 0;
	errno = 0;
	number = strtoul(text, &end, 10);
	return errno || *end || number > max ? 0 : number;
}

/* Parses LANESxGENERATION. */
static bool parse_expected_links(struct pl_check_expected *expected, const char *value)
{
	char lanes[8];
	const char *x = strchr(value, 'x');

	if (!x || (size_t)(x - value) >= sizeof(lanes))
		return false;
	memcpy(lanes, value, (size_t)(x - value));
	lanes[x - value] = '\0';
	expected->lanes = (unsigned)parse_count(lanes, 32);
	expected->generation = (unsigned)parse_count(x + 1, 16);
	return expected->lanes && pl_check_generation_speed(expected->generation);
}

static bool parse_expected_value(struct pl_check_expected *expected, const char *key, const char *value)
{
	if (!strcmp(key, "gpus"))
		return (expected->gpus = (unsigned)parse_count(value, NUMBER_MAX)) != 0;
	if (!strcmp(key, "cards"))
		return (expected->cards = (unsigned)parse_count(value, NUMBER_MAX)) != 0;
	if (!strcmp(key, "direct"))
		return (expected->direct = (unsigned)parse_count(value, NUMBER_MAX)) != 0;
	if (!strcmp(key, "rate"))
		return (expected->rate = parse_count(value, 100000) * (1000000000ull / 8)) != 0;
	if (!strcmp(key, "links"))
		return parse_expected_links(expected, value);
	if (strcmp(key, "driver") || !*value || strlen(value) >= sizeof(expected->driver))
		return false;
	strcpy(expected->driver, value);
	return true;
}

/* Copies an item up to a comma into a buffer, and moves the text behind it.  Returns false if it is empty or too long. */
static bool take_item(const char **text, char item[ITEM_MAX])
{
	size_t length = strcspn(*text, ",");

	if (!length || length >= ITEM_MAX)
		return false;
	memcpy(item, *text, length);
	item[length] = '\0';
	*text += length;
	if (**text == ',')
		(*text)++;
	return true;
}

enum pl_check_status check_parse_fail_on(const char *name)
{
	static const char *const names[] = { "unknown", "warn", "fail" };

	for (size_t i = 0; i < CLI_ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i]))
			return (enum pl_check_status)(PL_CHECK_UNKNOWN + i);
	return PL_CHECK_NONE;
}

int check_parse_expected(struct pl_check_expected *expected, const char *text, struct pl_error *error)
{
	struct pl_check_expected parsed = *expected;
	char item[ITEM_MAX], *value;

	while (*text) {
		if (!take_item(&text, item))
			return cli_fail(error, -EINVAL, "CHECK-EXPECT", NULL, EXPECTED_HINT,
					"an expectation is empty or too long");
		cli_printable(item, false);
		value = strchr(item, '=');
		if (value)
			*value++ = '\0';
		if (!value || !parse_expected_value(&parsed, item, value))
			return cli_fail(error, -EINVAL, "CHECK-EXPECT", NULL, EXPECTED_HINT,
					"unknown expectation or wrong value: '%s%s%s'", item, value ? "=" : "",
					value ? value : "");
	}
	*expected = parsed;
	return 0;
}

/* -- acceptances ----------------------------------------------------------------------------------- */

/* Returns the number of changed, added and removed characters that make one text of the other. */
static unsigned edit_distance(const char *a, const char *b)
{
	size_t width = strlen(b);
	unsigned row[ID_MAX + 1], corner, above;

	for (size_t j = 0; j <= width; j++)
		row[j] = (unsigned)j;
	for (size_t i = 0; a[i]; i++) {
		corner = row[0];
		row[0] = (unsigned)i + 1;
		for (size_t j = 0; j < width; j++) {
			above = row[j + 1];
			row[j + 1] = CLI_MIN(CLI_MIN(above, row[j]) + 1, corner + (a[i] != b[j]));
			corner = above;
		}
	}
	return row[width];
}

/* Returns the check whose name differs the least, in at most every third character; NULL if there is none. */
static const char *nearest_check(const char *id)
{
	const struct pl_check_row *row;
	const char *nearest = NULL;
	unsigned least = (unsigned)strlen(id) / 3 + 1;

	for (size_t i = 0; (row = pl_check_row_at(i)); i++) {
		unsigned distance = edit_distance(row->id, id);

		if (distance < least) {
			least = distance;
			nearest = row->id;
		}
	}
	return nearest;
}

static int add_acceptance(struct pl_check_policy *policy, char *id, const char *reason, struct pl_error *error)
{
	struct pl_check_acceptance acceptance, *grown;
	char *object = strchr(id, ':');
	const char *nearest;
	char hint[96];

	if (object)
		*object++ = '\0';
	acceptance = (struct pl_check_acceptance){ .row = strlen(id) < ID_MAX ? pl_check_row_find(id) : NULL };
	if (!acceptance.row) {
		nearest = strlen(id) < ID_MAX ? nearest_check(id) : NULL;
		snprintf(hint, sizeof(hint), "%s%s%s`peerlane check --list` lists all checks",
			 nearest ? "the nearest is " : "", nearest ? nearest : "", nearest ? "; " : "");
		return cli_fail(error, -ENOENT, "CHECK-UNKNOWN", NULL, hint, "unknown check '%s'", id);
	}
	if ((object && (!*object || strlen(object) >= sizeof(acceptance.object))) ||
	    strlen(reason) >= sizeof(acceptance.reason))
		return cli_fail(error, -EINVAL, "CHECK-IGNORE", NULL,
				"write ID, ID:OBJECT or ID:OBJECT=REASON with objects as the check shows them",
				"the object or the reason for '%s' is empty or too long", id);
	snprintf(acceptance.object, sizeof(acceptance.object), "%s", object ? object : "");
	snprintf(acceptance.reason, sizeof(acceptance.reason), "%s", reason);
	cli_printable(acceptance.reason, false);
	grown = realloc(policy->accepted, (policy->accepted_count + 1) * sizeof(*grown));
	if (!grown)
		return cli_fail_errno(error, -ENOMEM, "realloc", NULL);
	policy->accepted = grown;
	policy->accepted[policy->accepted_count++] = acceptance;
	return 0;
}

int check_parse_ignored(struct pl_check_policy *policy, const char *text, struct pl_error *error)
{
	char item[ITEM_MAX], *reason;
	int rc = 0;

	if (!*text)
		return cli_fail(error, -EINVAL, "CHECK-IGNORE", NULL, "write ID[:OBJECT][=REASON],...",
				"there is no identifier of a check");
	while (rc == 0 && *text) {
		if (!take_item(&text, item))
			return cli_fail(error, -EINVAL, "CHECK-IGNORE", NULL, "write ID[:OBJECT][=REASON],...",
					"an item is empty or too long");
		reason = strchr(item, '=');
		if (reason)
			*reason++ = '\0';
		rc = add_acceptance(policy, item, reason && *reason ? reason : "no reason given", error);
	}
	return rc;
}

/* -- configuration --------------------------------------------------------------------------------- */

#define BLANKS " \t\r"

/* Makes file and line the object of an error. */
static int locate_error(const char *file, unsigned line, struct pl_error *error)
{
	const size_t room = sizeof(error->object) - 16, length = strlen(file);

	/* The end of a long path tells more than its beginning. */
	snprintf(error->object, sizeof(error->object), "%s:%u", length > room ? file + length - room : file, line);
	return error->code;
}

/* Cuts the first word off a line; returns the rest of the line. */
static char *split_word(char *line)
{
	char *rest = line + strcspn(line, BLANKS);

	if (*rest)
		*rest++ = '\0';
	return rest + strspn(rest, BLANKS);
}

static int parse_config_line(struct pl_check_policy *policy, struct pl_check_expected *expected, char *line,
			     struct pl_error *error)
{
	char *rest = split_word(line), *reason;

	if (!strcmp(line, "expect") && *rest)
		return check_parse_expected(expected, rest, error);
	if (strcmp(line, "ignore") || !*rest)
		return cli_fail(error, -EINVAL, "CHECK-CONFIG", NULL,
				"write ignore ID[:OBJECT] REASON, or expect KEY=VALUE", "the line begins with '%s'",
				line);
	reason = split_word(rest);
	if (!*reason)
		return cli_fail(error, -EINVAL, "CHECK-CONFIG", NULL, "write ignore ID[:OBJECT] REASON",
				"there is no reason to ignore '%s'", rest);
	return add_acceptance(policy, rest, reason, error);
}

/* Takes over expectations that are not set yet. */
static void merge_expected(struct pl_check_expected *to, const struct pl_check_expected *from)
{
	to->gpus = to->gpus ? to->gpus : from->gpus;
	to->cards = to->cards ? to->cards : from->cards;
	to->rate = to->rate ? to->rate : from->rate;
	to->direct = to->direct ? to->direct : from->direct;
	if (!to->lanes) {
		to->lanes = from->lanes;
		to->generation = from->generation;
	}
	if (!*to->driver)
		memcpy(to->driver, from->driver, sizeof(to->driver));
}

int check_parse_config(struct pl_check_policy *policy, const char *file, const char *text, size_t length,
		       struct pl_error *error)
{
	struct pl_check_expected expected = { 0 };
	const char *end = text + length;
	char line[512];

	for (unsigned number = 1; text < end; number++) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		size_t size = (size_t)((newline ? newline : end) - text), begin;

		if (size >= sizeof(line)) {
			cli_fail(error, -EINVAL, "CHECK-CONFIG", NULL, NULL, "the line has more than %zu bytes",
				 sizeof(line) - 1);
			return locate_error(file, number, error);
		}
		memcpy(line, text, size);
		line[size] = '\0';
		text += size + 1;
		if (!cli_is_utf8(line, size)) {
			cli_fail(error, -EILSEQ, "CHECK-CONFIG", NULL, NULL, "the line is no text in UTF-8");
			return locate_error(file, number, error);
		}
		while (size && strchr(BLANKS, line[size - 1]))
			line[--size] = '\0';
		begin = strspn(line, BLANKS);
		if (begin < size && line[begin] != '#' && parse_config_line(policy, &expected, line + begin, error) < 0)
			return locate_error(file, number, error);
	}
	merge_expected(&policy->expected, &expected);
	return 0;
}

int check_read_config(struct pl_check_policy *policy, const char *file, bool optional, struct pl_error *error)
{
	size_t length;
	char *text;
	int rc = check_read_file(file, CHECK_CONFIG_MAX, &text, &length, error);

	if (rc < 0)
		return rc == -ENOENT && optional ? 0 : rc;
	rc = check_parse_config(policy, file, text, length, error);
	free(text);
	return rc;
}
