/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes of one host: its facts before and after. */
#include <stdlib.h>
#include <string.h>

#include "cmd/fleet/changes.h"

/* Facts of a host, which were and are. */
struct change_facts {
	struct changes *changes;
	const struct facts *before, *after;
	size_t host;
	bool other_user; /* root asked once, and another user once: they know different things */
	int rc;
};

/* Adds a change; `was` and `now` become its own, also if they are NULL for lack of memory. */
static void add_change(struct change_facts *facts, enum change_rank rank, const struct fact *fact, char *was, char *now)
{
	struct changes *changes = facts->changes;
	bool ignored = fleet_is_ignored(changes->ignored, changes->ignored_count, fact->id, fact->object);
	struct change *grown;

	if (was && now && !ignored && changes->count == changes->room) {
		size_t room = changes->room ? 2 * changes->room : 64;

		grown = realloc(changes->list, room * sizeof(*grown));
		if (grown) {
			changes->list = grown;
			changes->room = room;
		}
	}
	if (was && now && !ignored && changes->count < changes->room) {
		grown = &changes->list[changes->count];
		*grown = (struct change){ .rank = rank, .id = fact->id, .was = was, .now = now, .host = facts->host };
		grown->text = fact->kind == FACT_STATUS || fact->kind == FACT_FINDING;
		grown->objects = strdup(fact->object);
		if (grown->objects) {
			changes->count++;
			return;
		}
	}
	if (!ignored)
		facts->rc = -ENOMEM;
	free(was);
	free(now);
}

/* Returns the status of a check, with its first finding. */
static char *describe_check_status(const struct facts *facts, const struct fact *check)
{
	const struct fact *finding = facts_first_finding(facts, check->id);
	char *text = NULL;

	if (!finding)
		return strdup(check->value);
	if (asprintf(&text, "%s, %s%s%s", check->value, finding->object, *finding->object ? ": " : "", finding->value) <
	    0)
		return NULL;
	return text;
}

static enum change_rank rank_status(enum pl_check_status was, enum pl_check_status now)
{
	if (now < was)
		return CHANGE_BETTER;
	return now == PL_CHECK_FAIL ? CHANGE_FAIL : now == PL_CHECK_WARN ? CHANGE_WARN : CHANGE_UNKNOWN;
}

/* Adds the findings that one of two texts of facts has, and the other lacks. */
static void compare_findings(struct change_facts *facts, const struct fact *check)
{
	const struct facts *sides[2] = { facts->before, facts->after };

	for (int side = 0; side < 2; side++) {
		const struct fact *one = facts_first_finding(sides[side], check->id);

		for (; one && one < sides[side]->list + sides[side]->count && one->kind == FACT_FINDING &&
		       !strcmp(one->id, check->id);
		     one++) {
			/* The texts of lasting findings have counters. */
			if (facts_find(sides[!side], FACT_FINDING, one->id, one->object))
				continue;
			add_change(facts, side ? rank_status(PL_CHECK_OK, check->status) : CHANGE_BETTER, one,
				   strdup(side ? "no finding" : one->value), strdup(side ? one->value : "no finding"));
		}
	}
}

static void compare_status(struct change_facts *facts, const struct fact *before, const struct fact *after)
{
	bool known = before->status > PL_CHECK_NONE && after->status > PL_CHECK_NONE;

	if (before->status == after->status) {
		compare_findings(facts, after);
		return;
	}
	/* A check that does not apply any more has lost its device, which is a change of its own. */
	if (!known && before->status < PL_CHECK_WARN && after->status < PL_CHECK_WARN)
		return;
	if (facts->other_user && (before->status == PL_CHECK_UNKNOWN || after->status == PL_CHECK_UNKNOWN))
		return;
	add_change(facts, rank_status(before->status, after->status), after,
		   describe_check_status(facts->before, before), describe_check_status(facts->after, after));
}

/* Returns the values of a fact, joined by commas. */
static char *join_values(const struct facts *facts, const struct fact *first)
{
	char *text = NULL;
	size_t length;
	FILE *file = open_memstream(&text, &length);

	if (!file)
		return NULL;
	for (const struct fact *one = first; one < facts->list + facts->count && !facts_compare(one, first, false);
	     one++)
		fprintf(file, "%s%s", one == first ? "" : ", ", one->value);
	if (fclose(file)) {
		free(text);
		return NULL;
	}
	return text;
}

static void compare_values(struct change_facts *facts, const struct fact *before, const struct fact *after)
{
	char *was = join_values(facts->before, before), *now = join_values(facts->after, after);

	if (was && now && !strcmp(was, now)) {
		free(was);
		free(now);
		return;
	}
	add_change(facts, CHANGE_VALUE, after, was, now);
}

/* Compares the facts of one kind, id and object; one of both may be NULL. */
static void compare_fact(struct change_facts *facts, const struct fact *before, const struct fact *after)
{
	const struct fact *fact = after ? after : before;

	if (fact->kind == FACT_OBJECT) {
		if (!before || !after)
			add_change(facts, CHANGE_DEVICE, fact, strdup(before ? "present" : "missing"),
				   strdup(after ? "present" : "missing"));
		return;
	}
	/* Another version has other checks; a value that was not read is no change. */
	if (!before || !after)
		return;
	if (fact->kind == FACT_STATUS)
		compare_status(facts, before, after);
	else if (fact->kind == FACT_VALUE)
		compare_values(facts, before, after);
}

int changes_add_host(struct changes *changes, size_t host, const struct answer *before, const struct answer *after)
{
	struct change_facts facts = {
		.changes = changes, .before = &before->facts, .after = &after->facts, .host = host
	};
	const struct fact *was = facts_find(facts.before, FACT_VALUE, "root", ""),
			  *is = facts_find(facts.after, FACT_VALUE, "root", "");
	size_t i = 0, j = 0;

	facts.other_user = was && is && strcmp(was->value, is->value);
	/* Both lists are sorted: this walks through them side by side. */
	while (i < facts.before->count || j < facts.after->count) {
		const struct fact *a = i < facts.before->count ? &facts.before->list[i] : NULL;
		const struct fact *b = j < facts.after->count ? &facts.after->list[j] : NULL;
		int order = !a ? 1 : !b ? -1 : facts_compare(a, b, false);

		compare_fact(&facts, order <= 0 ? a : NULL, order >= 0 ? b : NULL);
		/* Skips further values of the same fact. */
		if (order <= 0)
			for (i++; i < facts.before->count && !facts_compare(a, &facts.before->list[i], false); i++)
				;
		if (order >= 0)
			for (j++; j < facts.after->count && !facts_compare(b, &facts.after->list[j], false); j++)
				;
	}
	return facts.rc;
}
