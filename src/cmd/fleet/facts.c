/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/facts.h"

#include <stdlib.h>
#include <string.h>

static const char *const properties[] = {
	"cards", "driver", "firmware", "gpu-links", "gpus", "kernel", "layer", "link",  "memory",  "model",
	"mtu",   "numa",   "path",     "platform",  "rate", "root",   "speed", "state", "version", "virtual",
};

const char *facts_property_at(size_t index)
{
	return index < CLI_ARRAY_SIZE(properties) ? properties[index] : NULL;
}

bool facts_is_property(const char *id)
{
	for (size_t i = 0; i < CLI_ARRAY_SIZE(properties); i++)
		if (!strcmp(properties[i], id))
			return true;
	return false;
}

/* Returns a copy of at most `max` bytes without control characters; NULL without memory. */
static char *copy_fact_text(const char *text, size_t max)
{
	char *copy = strndup(text, max);

	if (!copy)
		return NULL;
	cli_printable(copy, false);
	/* A cut may have divided a character. */
	for (size_t length = strlen(copy); length && !cli_is_utf8(copy, length);)
		copy[--length] = '\0';
	return copy;
}

static void release_fact(struct fact *fact)
{
	free(fact->id);
	free(fact->object);
	free(fact->value);
}

void facts_add(struct facts *facts, enum fact_kind kind, enum pl_check_status status, const char *id,
	       const char *object, const char *value)
{
	struct fact *fact;

	if (facts->count == facts->room) {
		size_t room = facts->room ? 2 * facts->room : 128;
		struct fact *grown = realloc(facts->list, room * sizeof(*grown));

		if (!grown) {
			facts->no_memory = true;
			return;
		}
		facts->list = grown;
		facts->room = room;
	}
	fact = &facts->list[facts->count++];
	*fact = (struct fact){ .kind = kind, .status = status };
	fact->id = copy_fact_text(id, FACT_ID_MAX);
	fact->object = copy_fact_text(object ? object : "", FACT_OBJECT_MAX);
	fact->value = copy_fact_text(value, FACT_VALUE_MAX);
	if (fact->id && fact->object && fact->value)
		return;
	facts->no_memory = true;
	facts->count--;
	release_fact(fact);
}

void facts_add_text(struct facts *facts, const char *id, const char *object, struct json_object *from, const char *name)
{
	const char *text = cli_json_member_text(from, name);

	if (text && *text)
		facts_add(facts, FACT_VALUE, PL_CHECK_NONE, id, object, text);
}

void facts_add_number(struct facts *facts, const char *id, const char *object, int64_t number, const char *unit)
{
	char text[64];

	if (number < 0)
		return;
	snprintf(text, sizeof(text), "%lld%s", (long long)number, unit);
	facts_add(facts, FACT_VALUE, PL_CHECK_NONE, id, object, text);
}

void facts_add_rate(struct facts *facts, const char *id, const char *object, int64_t rate, double divisor,
		    const char *unit)
{
	char text[64];

	if (rate <= 0)
		return;
	snprintf(text, sizeof(text), "%.4g %s", (double)rate / divisor, unit);
	facts_add(facts, FACT_VALUE, PL_CHECK_NONE, id, object, text);
}

void facts_add_lanes(struct facts *facts, const char *object, int64_t lanes)
{
	char text[32];

	if (lanes <= 0)
		return;
	snprintf(text, sizeof(text), "x%lld", (long long)lanes);
	facts_add(facts, FACT_VALUE, PL_CHECK_NONE, "link", object, text);
}

int facts_compare(const struct fact *a, const struct fact *b, bool values)
{
	int order = (a->kind > b->kind) - (a->kind < b->kind);

	order = order ? order : strcmp(a->id, b->id);
	order = order ? order : strcmp(a->object, b->object);
	return order || !values ? order : strcmp(a->value, b->value);
}

static int compare_sorted_facts(const void *left, const void *right)
{
	return facts_compare(left, right, true);
}

void facts_sort(struct facts *facts)
{
	size_t kept = 0;

	if (facts->count)
		qsort(facts->list, facts->count, sizeof(*facts->list), compare_sorted_facts);
	/* A check has one status. */
	for (size_t i = 0; i < facts->count; i++) {
		struct fact *fact = &facts->list[i];

		if (kept && fact->kind == FACT_STATUS && !facts_compare(fact, &facts->list[kept - 1], false))
			release_fact(fact);
		else
			facts->list[kept++] = *fact;
	}
	facts->count = kept;
}

const struct fact *facts_find(const struct facts *facts, enum fact_kind kind, const char *id, const char *object)
{
	const struct fact wanted = { .kind = kind, .id = (char *)(uintptr_t)id, .object = (char *)(uintptr_t)object };
	size_t low = 0, high = facts->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (facts_compare(&facts->list[middle], &wanted, false) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < facts->count && !facts_compare(&facts->list[low], &wanted, false) ? &facts->list[low] : NULL;
}

const struct fact *facts_first_finding(const struct facts *facts, const char *id)
{
	for (size_t i = 0; i < facts->count; i++)
		if (facts->list[i].kind == FACT_FINDING && !strcmp(facts->list[i].id, id))
			return &facts->list[i];
	return NULL;
}

void facts_free(struct facts *facts)
{
	for (size_t i = 0; i < facts->count; i++)
		release_fact(&facts->list[i]);
	free(facts->list);
	*facts = (struct facts){ .count = 0 };
}

int64_t fleet_number(struct json_object *object, const char *name)
{
	struct json_object *value = cli_json_member(object, name, json_type_int);

	return value ? json_object_get_int64(value) : -1;
}

struct json_object *fleet_element(struct json_object *object, const char *name, size_t index)
{
	struct json_object *array = cli_json_member(object, name, json_type_array);

	return array && index < json_object_array_length(array) ? json_object_array_get_idx(array, index) : NULL;
}
