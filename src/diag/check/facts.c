/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/check/facts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define FACTS_MAX 4096
#define FACTS_FILE_MAX (1u << 20)

struct fact {
	char *key, *value; /* one allocation */
};

struct pl_facts {
	struct fact *facts;
	size_t count, room;
};

struct pl_facts *pl_facts_new(void)
{
	return calloc(1, sizeof(struct pl_facts));
}

void pl_facts_free(struct pl_facts *facts)
{
	if (!facts)
		return;
	for (size_t i = 0; i < facts->count; i++)
		free(facts->facts[i].key);
	free(facts->facts);
	free(facts);
}

static const char *find(const struct pl_facts *facts, const char *key)
{
	for (size_t i = 0; i < facts->count; i++)
		if (!strcmp(facts->facts[i].key, key))
			return facts->facts[i].value;
	return NULL;
}

static bool grow_facts(struct pl_facts *facts)
{
	size_t room = facts->room ? facts->room * 2 : 64;
	struct fact *more;

	if (facts->count < facts->room)
		return true;
	more = facts->count < FACTS_MAX ? realloc(facts->facts, room * sizeof(*more)) : NULL;
	if (!more)
		return false;
	facts->facts = more;
	facts->room = room;
	return true;
}

/* Adds a fact from bytes that need not end in NUL. */
static void add_fact(struct pl_facts *facts, const char *key, size_t key_length, const char *value, size_t value_length)
{
	struct fact fact;

	key_length = PL_MIN(key_length, (size_t)PL_FACT_KEY_MAX - 1);
	value_length = PL_MIN(value_length, (size_t)PL_FACT_VALUE_MAX - 1);
	if (!key_length || !grow_facts(facts))
		return;
	fact.key = malloc(key_length + value_length + 2);
	if (!fact.key)
		return;
	fact.value = fact.key + key_length + 1;
	for (size_t i = 0; i < key_length; i++)
		fact.key[i] = (unsigned char)key[i] <= ' ' ? '_' : key[i];
	for (size_t i = 0; i < value_length; i++)
		fact.value[i] = (unsigned char)value[i] < ' ' ? ' ' : value[i];
	fact.key[key_length] = fact.value[value_length] = '\0';
	if (find(facts, fact.key))
		free(fact.key);
	else
		facts->facts[facts->count++] = fact;
}

void pl_facts_set(struct pl_facts *facts, const char *key, const char *format, ...)
{
	char value[PL_FACT_VALUE_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(value, sizeof(value), format, arguments);
	va_end(arguments);
	add_fact(facts, key, strlen(key), value, strlen(value));
}

void pl_facts_parse(struct pl_facts *facts, const char *text, size_t length)
{
	const char *end = text + length;

	while (text < end) {
		const char *line = text, *stop = memchr(text, '\n', (size_t)(end - text)), *space;

		if (!stop)
			stop = end;
		text = stop < end ? stop + 1 : end;
		space = memchr(line, ' ', (size_t)(stop - line));
		if (space && space > line)
			add_fact(facts, line, (size_t)(space - line), space + 1, (size_t)(stop - space - 1));
	}
}

void pl_facts_load(struct pl_facts *facts, struct pl_sysroot *root)
{
	char *text;
	size_t length;

	if (pl_sysroot_load(root, FACTS_FILE_MAX, &text, &length, PL_FACTS_PATH) < 0)
		return;
	pl_facts_parse(facts, text, length);
	free(text);
}

char *pl_facts_format(const struct pl_facts *facts, size_t *length)
{
	size_t size = 1, at = 0;
	char *text;

	for (size_t i = 0; i < facts->count; i++)
		size += strlen(facts->facts[i].key) + strlen(facts->facts[i].value) + 2;
	text = malloc(size);
	if (!text)
		return NULL;
	text[0] = '\0';
	for (size_t i = 0; i < facts->count; i++)
		at += (size_t)sprintf(text + at, "%s %s\n", facts->facts[i].key, facts->facts[i].value);
	*length = at;
	return text;
}

const char *pl_facts_get(const struct pl_facts *facts, const char *format, ...)
{
	char key[PL_FACT_KEY_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(key, sizeof(key), format, arguments);
	va_end(arguments);
	return find(facts, key);
}

long long pl_facts_number(const struct pl_facts *facts, long long otherwise, const char *format, ...)
{
	char key[PL_FACT_KEY_MAX], *end;
	const char *value;
	va_list arguments;
	long long number;

	va_start(arguments, format);
	vsnprintf(key, sizeof(key), format, arguments);
	va_end(arguments);
	value = find(facts, key);
	if (!value)
		return otherwise;
	number = strtoll(value, &end, 10);
	return end != value && (!*end || *end == ' ') ? number : otherwise;
}

const char *pl_facts_at(const struct pl_facts *facts, size_t index, const char **value)
{
	if (index >= facts->count)
		return NULL;
	*value = facts->facts[index].value;
	return facts->facts[index].key;
}
