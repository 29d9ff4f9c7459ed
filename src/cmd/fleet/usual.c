/* SPDX-License-Identifier: BSD-2-Clause */
/* Usual values: those that most hosts have.  A property of machines without one is a mixture. */
#include <stdlib.h>
#include <string.h>

#include "cmd/fleet/judge.h"

/* A fact and its host. */
struct held {
	const struct fact *fact;
	size_t host;
};

bool fleet_is_usual(size_t count, size_t total)
{
	return count * 5 >= total * 4 || (count + 1 == total && count * 2 > total);
}

static int compare_held_facts(const void *left, const void *right)
{
	const struct held *a = left, *b = right;
	int order = facts_compare(a->fact, b->fact, true);

	return order ? order : (a->host > b->host) - (a->host < b->host);
}

/* Returns the facts of all answers, sorted; NULL without memory. */
static struct held *collect_held_facts(const struct fleet *fleet, size_t *count)
{
	struct held *held;
	size_t total = 0;

	for (size_t i = 0; i < fleet->hosts.count; i++)
		total += fleet->answers[i].facts.count;
	held = malloc((total + 1) * sizeof(*held));
	*count = 0;
	for (size_t i = 0; held && i < fleet->hosts.count; i++) {
		const struct answer *answer = &fleet->answers[i];

		for (size_t j = 0; answer->outcome == ANSWER_DOCUMENT && j < answer->facts.count; j++)
			if (answer->facts.list[j].kind != FACT_FINDING)
				held[(*count)++] = (struct held){ &answer->facts.list[j], i };
	}
	if (held)
		qsort(held, *count, sizeof(*held), compare_held_facts);
	return held;
}

/* Counts the hosts of sorted facts; a document may have a fact twice. */
static size_t count_holding_hosts(const struct held *held, size_t count)
{
	size_t hosts = 0;

	for (size_t i = 0; i < count; i++)
		hosts += i == 0 || held[i].host != held[i - 1].host;
	return hosts;
}

/* Returns the number of facts from the first one on that have its value. */
static size_t measure_value(const struct held *held, size_t count)
{
	size_t length = 1;

	while (length < count && !strcmp(held[length].fact->value, held->fact->value))
		length++;
	return length;
}

static int add_mixture_value(struct fleet_mixture *mixture, const struct held *held, size_t count)
{
	struct mixture_value *value = &mixture->values[mixture->count];

	*value = (struct mixture_value){ .value = held->fact->value, .hosts = malloc(count * sizeof(*value->hosts)) };
	if (!value->hosts)
		return -ENOMEM;
	mixture->count++;
	for (size_t i = 0; i < count; i++)
		if (i == 0 || held[i].host != held[i - 1].host)
			value->hosts[value->host_count++] = held[i].host;
	return 0;
}

/* Adds a property whose values are all rare. */
static int add_mixture(struct fleet *fleet, const struct held *held, size_t count)
{
	struct fleet_mixture *mixture,
		*grown = realloc(fleet->mixtures, (fleet->mixture_count + 1) * sizeof(*fleet->mixtures));
	int rc = 0;

	if (!grown)
		return -ENOMEM;
	fleet->mixtures = grown;
	mixture = &grown[fleet->mixture_count];
	*mixture = (struct fleet_mixture){ .id = held->fact->id };
	mixture->values = calloc(count, sizeof(*mixture->values));
	if (!mixture->values)
		return -ENOMEM;
	fleet->mixture_count++;
	for (size_t i = 0, length; rc == 0 && i < count; i += length) {
		length = measure_value(held + i, count - i);
		rc = add_mixture_value(mixture, held + i, length);
	}
	return rc;
}

/* Judges the facts of one kind, id and object. */
static int judge_held_facts(struct usuals *usuals, struct fleet *fleet, const struct held *held, size_t count)
{
	const size_t answered = fleet_answered(fleet), holders = count_holding_hosts(held, count);
	struct usual best = { .fact = held->fact };

	if (held->fact->kind == FACT_OBJECT) {
		best.absent = fleet_is_usual(answered - holders, answered);
		best.count = best.absent ? answered - holders : holders;
		if (best.absent || fleet_is_usual(holders, answered))
			usuals->list[usuals->count++] = best;
		return 0;
	}
	for (size_t i = 0, length; i < count; i += length) {
		size_t hosts;

		length = measure_value(held + i, count - i);
		hosts = count_holding_hosts(held + i, length);
		if (hosts > best.count)
			best = (struct usual){ .fact = held[i].fact, .count = hosts };
	}
	if (fleet_is_usual(best.count, holders))
		usuals->list[usuals->count++] = best;
	else if (held->fact->kind == FACT_VALUE && !*held->fact->object && facts_is_property(held->fact->id))
		return add_mixture(fleet, held, count);
	return 0;
}

int usuals_find(struct usuals *usuals, struct fleet *fleet)
{
	size_t count = 0;
	struct held *held = collect_held_facts(fleet, &count);
	int rc = held ? 0 : -ENOMEM;

	*usuals = (struct usuals){ .list = malloc((count + 1) * sizeof(*usuals->list)) };
	if (!usuals->list)
		rc = -ENOMEM;
	for (size_t i = 0, length; rc == 0 && i < count; i += length) {
		for (length = 1; i + length < count && !facts_compare(held[i].fact, held[i + length].fact, false);
		     length++)
			;
		rc = judge_held_facts(usuals, fleet, held + i, length);
	}
	free(held);
	return rc;
}

const struct usual *usuals_get(const struct usuals *usuals, const struct fact *fact)
{
	size_t low = 0, high = usuals->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (facts_compare(usuals->list[middle].fact, fact, false) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < usuals->count && !facts_compare(usuals->list[low].fact, fact, false) ? &usuals->list[low] : NULL;
}
