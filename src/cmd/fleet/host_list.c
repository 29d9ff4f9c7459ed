/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/host_list.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/check/policy_file.h"

#define FILE_MAX (4u << 20)
#define DIGITS_MAX 9   /* of a number in brackets */
#define BRACKETS_MAX 8 /* of one name */
#define BLANKS ", \t\r\n"
#define HOSTS_HINT "write names such as node7 or node[001-200,205], divided by commas"

/* A name while its brackets are replaced by numbers. */
struct expansion {
	struct host_list *list;
	char name[FLEET_NAME_MAX + 1];
	unsigned brackets;
	struct pl_error *error;
};

static int fail_hosts(struct pl_error *error, const char *object, const char *fact)
{
	return cli_fail(error, -EINVAL, "FLEET-HOSTS", object, HOSTS_HINT, "%s", fact);
}

static bool is_host_character(char character)
{
	return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
	       (character >= '0' && character <= '9') || (character && strchr("._:@-", character));
}

static int add_host(struct host_list *list, const char *name, struct pl_error *error)
{
	char **grown;

	/* A name is an argument of the launcher and a name of a file. */
	if (*name == '-' || *name == '.')
		return fail_hosts(error, name, "a host cannot begin with this character");
	if (list->count == FLEET_HOSTS_MAX)
		return cli_fail(error, -E2BIG, "FLEET-MANY", name, "ask them in several runs",
				"there are more than %u hosts", FLEET_HOSTS_MAX);
	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 64;

		grown = realloc(list->names, room * sizeof(*grown));
		if (!grown)
			return cli_fail_errno(error, -ENOMEM, "realloc", NULL);
		list->names = grown;
		list->room = room;
	}
	list->names[list->count] = strdup(name);
	if (!list->names[list->count])
		return cli_fail_errno(error, -ENOMEM, "strdup", NULL);
	list->count++;
	return 0;
}

static int expand_name(struct expansion *expansion, size_t length, const char *rest);

/* Reads digits up to DIGITS_MAX; returns their number. */
static size_t read_range_number(const char *text, unsigned long *number)
{
	size_t digits = strspn(text, "0123456789");

	*number = digits && digits <= DIGITS_MAX ? strtoul(text, NULL, 10) : 0;
	return digits <= DIGITS_MAX ? digits : 0;
}

/* Replaces the bracket at `range`, whose end is `end`, by each of its numbers. */
static int expand_bracket(struct expansion *expansion, size_t length, const char *range, const char *end)
{
	unsigned long low, high;
	size_t width, digits;
	int rc = 0;

	while (rc == 0) {
		width = digits = read_range_number(range, &low);
		high = low;
		range += width;
		if (digits && *range == '-') {
			digits = read_range_number(++range, &high);
			range += digits;
		}
		if (!width || !digits || high < low || (*range != ',' && range != end))
			return fail_hosts(expansion->error, expansion->name, "a range in brackets is not understood");
		for (unsigned long number = low; rc == 0 && number <= high; number++) {
			size_t room = sizeof(expansion->name) - length;
			int written = snprintf(expansion->name + length, room, "%0*lu", (int)width, number);

			rc = written > 0 && (size_t)written < room
				     ? expand_name(expansion, length + (size_t)written, end + 1)
				     : fail_hosts(expansion->error, NULL, "the name of a host is too long");
		}
		if (range == end)
			return rc;
		range++;
	}
	return rc;
}

/* Appends the rest of an expression of one host to the first `length` bytes of the name. */
static int expand_name(struct expansion *expansion, size_t length, const char *rest)
{
	const char *end;
	int rc;

	for (; is_host_character(*rest); rest++) {
		if (length >= FLEET_NAME_MAX)
			return fail_hosts(expansion->error, NULL, "the name of a host is too long");
		expansion->name[length++] = *rest;
	}
	expansion->name[length] = '\0';
	if (!*rest || strchr(BLANKS, *rest))
		return add_host(expansion->list, expansion->name, expansion->error);
	if (*rest != '[')
		return fail_hosts(expansion->error, expansion->name,
				  "the next character cannot be in the name of a host");
	end = strchr(rest, ']');
	if (!end || expansion->brackets == BRACKETS_MAX)
		return fail_hosts(expansion->error, expansion->name,
				  end ? "the name has too many brackets" : "a bracket has no end");
	expansion->brackets++;
	rc = expand_bracket(expansion, length, rest + 1, end);
	expansion->brackets--;
	return rc;
}

int host_list_add(struct host_list *list, const char *expression, struct pl_error *error)
{
	struct expansion expansion = { .list = list, .error = error };
	int rc = 0;

	while (rc == 0 && *(expression += strspn(expression, BLANKS))) {
		bool bracket = false;

		rc = expand_name(&expansion, 0, expression);
		for (; *expression && (bracket || !strchr(BLANKS, *expression)); expression++)
			bracket = *expression == '[' || (bracket && *expression != ']');
	}
	return rc;
}

int host_list_add_lines(struct host_list *list, char *text, const char *file, struct pl_error *error)
{
	char *line, place[128];
	int rc = 0;

	for (unsigned number = 1; rc == 0 && (line = strsep(&text, "\n")); number++) {
		line[strcspn(line, "#")] = '\0';
		rc = host_list_add(list, line, error);
		/* The place in the file tells more than the name. */
		snprintf(place, sizeof(place), "%.100s:%u", file, number);
		if (rc == -EINVAL)
			memcpy(error->object, place, CLI_MIN(sizeof(place), sizeof(error->object)));
	}
	return rc;
}

int host_list_read(struct host_list *list, const char *file, struct pl_error *error)
{
	bool input = !strcmp(file, "-");
	size_t length;
	char *text;
	int rc;

	if (input)
		file = "standard input";
	rc = input ? check_read_descriptor(STDIN_FILENO, file, FILE_MAX, &text, &length, error)
		   : check_read_file(file, FILE_MAX, &text, &length, error);
	if (rc < 0)
		return rc;
	rc = strlen(text) == length ? host_list_add_lines(list, text, file, error)
				    : fail_hosts(error, file, "the file has a NUL");
	free(text);
	return rc;
}

/* A name and its position in a list. */
struct place {
	const char *name;
	size_t index;
};

static int compare_host_places(const void *left, const void *right)
{
	const struct place *a = left, *b = right;
	int order = strcmp(a->name, b->name);

	return order ? order : (a->index > b->index) - (a->index < b->index);
}

/* Returns the names with their positions, sorted by name; NULL without memory. */
static struct place *sort_hosts(const struct host_list *list)
{
	struct place *places = malloc((list->count + 1) * sizeof(*places));

	for (size_t i = 0; places && i < list->count; i++)
		places[i] = (struct place){ list->names[i], i };
	if (places)
		qsort(places, list->count, sizeof(*places), compare_host_places);
	return places;
}

/* True if the sorted places contain the name. */
static bool has_host(const struct place *places, size_t count, const char *name)
{
	size_t low = 0;

	while (low < count) {
		size_t middle = low + (count - low) / 2;
		int order = strcmp(places[middle].name, name);

		if (order == 0)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			count = middle;
	}
	return false;
}

int host_list_reduce(struct host_list *list, const struct host_list *without, size_t *repeated, struct pl_error *error)
{
	struct place *places = sort_hosts(list), *excluded = sort_hosts(without);
	bool *dropped = calloc(list->count + 1, sizeof(*dropped));
	size_t kept = 0;
	int rc = places && excluded && dropped ? 0 : cli_fail_errno(error, -ENOMEM, "malloc", NULL);

	*repeated = 0;
	for (size_t i = 1; rc == 0 && i < list->count; i++) {
		dropped[places[i].index] = !strcmp(places[i].name, places[i - 1].name);
		*repeated += dropped[places[i].index];
	}
	for (size_t i = 0; rc == 0 && i < list->count; i++) {
		if (dropped[i] || has_host(excluded, without->count, list->names[i]))
			free(list->names[i]);
		else
			list->names[kept++] = list->names[i];
	}
	if (rc == 0)
		list->count = kept;
	free(places);
	free(excluded);
	free(dropped);
	return rc;
}

void host_list_free(struct host_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->names[i]);
	free(list->names);
	*list = (struct host_list){ .count = 0 };
}
