/* SPDX-License-Identifier: BSD-2-Clause */
/* Compressed form of names: those that differ in one number become PREFIX[LOW-HIGH,...]SUFFIX. */
#include <stdlib.h>
#include <string.h>

#include "cmd/fleet/host_list.h"

#define NUMBERS_MAX 8 /* numbers of a name; further digits are text */
#define DIGITS_MAX 9

/* A name divided into texts and numbers. */
struct parts {
	const char *name;
	size_t begins[NUMBERS_MAX], lengths[NUMBERS_MAX];
	unsigned long values[NUMBERS_MAX];
	size_t count;
};

/* Numbers of names that differ in this number only. */
struct run {
	const struct parts *parts;
	size_t count, number;
};

static void divide_host_name(struct parts *parts, const char *name)
{
	const char *at = name;

	*parts = (struct parts){ .name = name };
	while (*(at += strcspn(at, "0123456789"))) {
		size_t digits = strspn(at, "0123456789");

		if (digits <= DIGITS_MAX && parts->count < NUMBERS_MAX) {
			parts->begins[parts->count] = (size_t)(at - name);
			parts->lengths[parts->count] = digits;
			parts->values[parts->count++] = strtoul(at, NULL, 10);
		}
		at += digits;
	}
}

/* Compares the texts before, between and behind the numbers. */
static int compare_name_texts(const struct parts *a, const struct parts *b)
{
	size_t from_a = 0, from_b = 0;

	if (a->count != b->count)
		return a->count < b->count ? -1 : 1;
	for (size_t i = 0; i < a->count; i++) {
		size_t length_a = a->begins[i] - from_a, length_b = b->begins[i] - from_b;
		int order = memcmp(a->name + from_a, b->name + from_b, CLI_MIN(length_a, length_b));

		if (order || length_a != length_b)
			return order ? order : length_a < length_b ? -1 : 1;
		from_a = a->begins[i] + a->lengths[i];
		from_b = b->begins[i] + b->lengths[i];
	}
	return strcmp(a->name + from_a, b->name + from_b);
}

static int compare_name_number(const struct parts *a, const struct parts *b, size_t number)
{
	if (a->values[number] != b->values[number])
		return a->values[number] < b->values[number] ? -1 : 1;
	return (a->lengths[number] > b->lengths[number]) - (a->lengths[number] < b->lengths[number]);
}

/* Compares names by their texts, then by their numbers. */
static int compare_name_parts(const void *left, const void *right)
{
	const struct parts *a = left, *b = right;
	int order = compare_name_texts(a, b);

	for (size_t i = 0; order == 0 && i < a->count; i++)
		order = compare_name_number(a, b, i);
	return order;
}

/* True if the names differ in nothing but this number, or in nothing. */
static bool differ_in_number(const struct parts *a, const struct parts *b, size_t number)
{
	if (compare_name_texts(a, b))
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (i != number && compare_name_number(a, b, i))
			return false;
	return true;
}

/* Returns the number in which the name differs from the next one; the last number if it differs in several or none. */
static size_t choose_varying_number(const struct parts *name, const struct parts *next)
{
	for (size_t i = 0; i < name->count; i++)
		if (differ_in_number(name, next, i) && compare_name_number(name, next, i))
			return i;
	return name->count ? name->count - 1 : 0;
}

/* True if the second number follows the first one, written as a range from `low` writes it. */
static bool follows_in_range(const struct parts *low, const struct parts *last, const struct parts *next, size_t number)
{
	char text[DIGITS_MAX + 2];
	int length = snprintf(text, sizeof(text), "%0*lu", (int)low->lengths[number], last->values[number] + 1);

	return last->values[number] + 1 == next->values[number] && (size_t)length == next->lengths[number];
}

static void write_host_run(FILE *file, const struct run *run)
{
	const struct parts *parts = run->parts;
	const size_t number = run->number;
	const char *between = "";

	if (run->count == 1) {
		fputs(parts->name, file);
		return;
	}
	fprintf(file, "%.*s[", (int)parts->begins[number], parts->name);
	for (size_t i = 0; i < run->count;) {
		size_t last = i;

		while (last + 1 < run->count && follows_in_range(&parts[i], &parts[last], &parts[last + 1], number))
			last++;
		fprintf(file, "%s%0*lu", between, (int)parts[i].lengths[number], parts[i].values[number]);
		if (last > i)
			fprintf(file, "-%0*lu", (int)parts[last].lengths[number], parts[last].values[number]);
		between = ",";
		i = last + 1;
	}
	fprintf(file, "]%s", parts->name + parts->begins[number] + parts->lengths[number]);
}

static void write_folded_hosts(FILE *file, const struct parts *parts, size_t count)
{
	for (size_t i = 0; i < count;) {
		struct run run = { &parts[i], 1, 0 };

		if (i + 1 < count)
			run.number = choose_varying_number(&parts[i], &parts[i + 1]);
		while (parts[i].count && i + run.count < count &&
		       differ_in_number(&parts[i], &parts[i + run.count], run.number))
			run.count++;
		fputs(i ? "," : "", file);
		write_host_run(file, &run);
		i += run.count;
	}
}

char *host_list_fold(const char *const *names, size_t count)
{
	struct parts *parts = calloc(count + 1, sizeof(*parts));
	size_t length;
	char *text = NULL;
	FILE *file;

	if (!parts)
		return NULL;
	for (size_t i = 0; i < count; i++)
		divide_host_name(&parts[i], names[i]);
	qsort(parts, count, sizeof(*parts), compare_name_parts);
	file = open_memstream(&text, &length);
	if (file) {
		write_folded_hosts(file, parts, count);
		if (fclose(file)) {
			free(text);
			text = NULL;
		}
	}
	free(parts);
	return text;
}
