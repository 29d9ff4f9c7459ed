/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/judge.h"

#include <stdlib.h>
#include <string.h>

/* Rows of one host while they are made. */
struct judging {
	struct fleet *fleet;
	const struct usuals *usuals;
	size_t host, first; /* index of its first row */
	const struct facts *facts;
	int rc;
};

const char *row_state_name(enum row_state state)
{
	static const char *const names[ROW_STATES] = { "FAIL", "WARN", "DIFFERS", "UNKNOWN", "NONE", "OK" };

	return names[state];
}

size_t fleet_answered(const struct fleet *fleet)
{
	size_t count = 0;

	for (size_t i = 0; i < fleet->hosts.count; i++)
		count += fleet->answers[i].outcome == ANSWER_DOCUMENT;
	return count;
}

bool fleet_is_ignored(struct fleet_ignored *ignored, size_t count, const char *id, const char *object)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(ignored[i].id, id) || (*ignored[i].object && strcmp(ignored[i].object, object)))
			continue;
		ignored[i].used++;
		return true;
	}
	return false;
}

/* -- rows ---------------------------------------------------------------------------------------- */

/* Returns the row of the host with this id and state, or a new one; NULL without memory. */
static struct fleet_row *row_for(struct judging *judging, enum row_state state, const char *id)
{
	struct fleet *fleet = judging->fleet;
	struct fleet_row *grown;

	for (size_t i = judging->first; i < fleet->row_count; i++)
		if (fleet->rows[i].state == state && !strcmp(fleet->rows[i].id, id))
			return &fleet->rows[i];
	grown = realloc(fleet->rows, (fleet->row_count + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	fleet->rows = grown;
	grown[fleet->row_count] = (struct fleet_row){ .state = state, .id = id, .host = judging->host };
	return &grown[fleet->row_count++];
}

/* Adds an item to the row of the host with this id and state.  Returns the row; NULL if it is accepted, or no memory. */
static struct fleet_row *add_row_item(struct judging *judging, enum row_state state, const char *id, const char *object,
				      const char *text)
{
	struct fleet *fleet = judging->fleet;
	struct fleet_row *row;
	struct row_item *grown;

	if (state != ROW_SILENT && fleet_is_ignored(fleet->ignored, fleet->ignored_count, id, object))
		return NULL;
	row = row_for(judging, state, id);
	grown = row ? realloc(row->items, (row->count + 1) * sizeof(*grown)) : NULL;
	if (grown) {
		row->items = grown;
		grown[row->count] = (struct row_item){ strdup(object), strdup(text) };
		if (grown[row->count].object && grown[row->count].text) {
			row->count++;
			return row;
		}
		free(grown[row->count].object);
		free(grown[row->count].text);
	}
	judging->rc = -ENOMEM;
	return NULL;
}

static enum row_state state_of_status(enum pl_check_status status)
{
	switch (status) {
	case PL_CHECK_FAIL:
		return ROW_FAIL;
	case PL_CHECK_WARN:
		return ROW_WARN;
	default:
		return ROW_UNKNOWN;
	}
}

static const char *count_hosts(size_t count, char buffer[40])
{
	snprintf(buffer, 40, count == 1 ? "%zu host has" : "%zu hosts have", count);
	return buffer;
}

/* Adds the findings of a check that is not OK. */
static void add_findings_row(struct judging *judging, const struct fact *check, const struct usual *usual)
{
	const struct facts *facts = judging->facts;
	const struct fact *finding = facts_first_finding(facts, check->id);
	bool outlier = usual && usual->fact->status != check->status;
	struct fleet_row *row = NULL;

	if (!finding) {
		row = add_row_item(judging, state_of_status(check->status), check->id, "", "no finding says why");
	} else {
		for (; finding < facts->list + facts->count && finding->kind == FACT_FINDING &&
		       !strcmp(finding->id, check->id);
		     finding++) {
			struct fleet_row *one = add_row_item(judging, state_of_status(check->status), check->id,
							     finding->object, finding->value);

			row = one ? one : row;
		}
	}
	if (!row)
		return;
	row->outlier = outlier;
	row->usual = usual ? pl_check_status_name(usual->fact->status) : NULL;
	row->usual_count = usual ? usual->count : 0;
}

static void judge_check(struct judging *judging, const struct fact *check)
{
	const struct usual *usual = usuals_get(judging->usuals, check);
	char text[FACT_VALUE_MAX], hosts[40];
	struct fleet_row *row;

	if (check->status >= PL_CHECK_WARN) {
		add_findings_row(judging, check, usual);
	} else if (check->status == PL_CHECK_UNKNOWN) {
		/* Agents mostly run as a user who cannot find out everything: that is the same on all hosts. */
		if (judging->fleet->fail_on == PL_CHECK_UNKNOWN || (usual && usual->fact->status == PL_CHECK_OK))
			add_findings_row(judging, check, usual);
	} else if (check->status == PL_CHECK_OK && usual && usual->fact->status >= PL_CHECK_WARN) {
		snprintf(text, sizeof(text), "OK, where %s %s", count_hosts(usual->count, hosts), usual->fact->value);
		row = add_row_item(judging, ROW_DIFFERS, check->id, "", text);
		if (row) {
			row->outlier = true;
			row->usual = pl_check_status_name(usual->fact->status);
			row->usual_count = usual->count;
		}
	}
}

static void judge_value(struct judging *judging, const struct fact *fact)
{
	const struct usual *usual = usuals_get(judging->usuals, fact);
	const struct facts *facts = judging->facts;
	char text[2 * FACT_VALUE_MAX + 64], hosts[40];
	struct fleet_row *row;

	if (!usual || !strcmp(usual->fact->value, fact->value))
		return;
	/* A document may have several values: one of them is enough. */
	for (const struct fact *one = facts_find(facts, fact->kind, fact->id, fact->object);
	     one < facts->list + facts->count && !facts_compare(one, fact, false); one++)
		if (!strcmp(one->value, usual->fact->value))
			return;
	snprintf(text, sizeof(text), "%s, where %s %s", fact->value, count_hosts(usual->count, hosts),
		 usual->fact->value);
	row = add_row_item(judging, ROW_DIFFERS, fact->id, fact->object, text);
	if (row)
		row->outlier = true;
}

/* Names the devices that this host alone has, and those that it alone lacks. */
static void judge_devices(struct judging *judging)
{
	char text[80], hosts[40];
	struct fleet_row *row;

	for (size_t i = 0; i < judging->usuals->count; i++) {
		const struct usual *usual = &judging->usuals->list[i];
		const struct fact *fact = usual->fact;

		if (fact->kind != FACT_OBJECT)
			continue;
		if ((facts_find(judging->facts, FACT_OBJECT, fact->id, fact->object) != NULL) != usual->absent)
			continue;
		if (usual->absent)
			snprintf(text, sizeof(text), "present, where %zu %s no such device", usual->count,
				 usual->count == 1 ? "host has" : "hosts have");
		else
			snprintf(text, sizeof(text), "missing, where %s it", count_hosts(usual->count, hosts));
		row = add_row_item(judging, ROW_DIFFERS, fact->id, fact->object, text);
		if (row)
			row->outlier = true;
	}
}

static void judge_host(struct judging *judging)
{
	const struct answer *answer = &judging->fleet->answers[judging->host];
	struct fleet_row *row;

	if (answer->outcome != ANSWER_DOCUMENT) {
		add_row_item(judging, ROW_SILENT, answer_outcome_name(answer->outcome), "", answer->reason);
		return;
	}
	for (size_t i = 0; i < answer->facts.count; i++) {
		if (answer->facts.list[i].kind == FACT_STATUS)
			judge_check(judging, &answer->facts.list[i]);
		else if (answer->facts.list[i].kind == FACT_VALUE)
			judge_value(judging, &answer->facts.list[i]);
	}
	judge_devices(judging);
	for (size_t i = 0; i < ANSWER_NOTES; i++) {
		if (!*answer->notes[i])
			continue;
		row = add_row_item(judging, ROW_DIFFERS, answer_note_name((enum answer_note)i), "", answer->notes[i]);
		if (row)
			row->outlier = true;
	}
}

/* -- machines with one name ---------------------------------------------------------------------- */

static int compare_answer_names(const void *left, const void *right, void *user)
{
	const size_t a = *(const size_t *)left, b = *(const size_t *)right;
	const struct fleet *fleet = user;
	int order = strcmp(fleet->answers[a].host, fleet->answers[b].host);

	return order ? order : (a > b) - (a < b);
}

/* Judges an answer whose machine has the name of the one before. */
static void judge_equal_name(struct fleet *fleet, size_t first, size_t second)
{
	struct answer *a = &fleet->answers[first], *b = &fleet->answers[second];

	if (*a->boot_id && !strcmp(a->boot_id, b->boot_id)) {
		b->outcome = ANSWER_REPEATED;
		snprintf(b->reason, sizeof(b->reason), "the same machine as %.60s: its name is %.80s",
			 fleet->hosts.names[first], b->host);
		return;
	}
	snprintf(a->notes[ANSWER_NOTE_NAME], ANSWER_REASON_MAX, "calls itself %.80s, as %.60s does", a->host,
		 fleet->hosts.names[second]);
	snprintf(b->notes[ANSWER_NOTE_NAME], ANSWER_REASON_MAX, "calls itself %.80s, as %.60s does", b->host,
		 fleet->hosts.names[first]);
}

static int judge_names(struct fleet *fleet)
{
	size_t *order = malloc((fleet->hosts.count + 1) * sizeof(*order)), count = 0;

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < fleet->hosts.count; i++)
		if (fleet->answers[i].outcome == ANSWER_DOCUMENT && *fleet->answers[i].host)
			order[count++] = i;
	qsort_r(order, count, sizeof(*order), compare_answer_names, fleet);
	for (size_t i = 1, first = 0; i < count; i++) {
		if (strcmp(fleet->answers[order[first]].host, fleet->answers[order[i]].host))
			first = i;
		else
			judge_equal_name(fleet, order[first], order[i]);
	}
	free(order);
	return 0;
}

/* -- fleet --------------------------------------------------------------------------------------- */

int fleet_judge(struct fleet *fleet)
{
	struct usuals usuals = { .list = NULL };
	int rc = judge_names(fleet);

	if (rc == 0)
		rc = usuals_find(&usuals, fleet);
	fleet->states = malloc((fleet->hosts.count + 1) * sizeof(*fleet->states));
	if (!fleet->states)
		rc = -ENOMEM;
	for (size_t i = 0; rc == 0 && i < fleet->hosts.count; i++) {
		struct judging judging = { fleet, &usuals, i, fleet->row_count, &fleet->answers[i].facts, 0 };

		judge_host(&judging);
		rc = judging.rc;
		fleet->states[i] = ROW_WELL;
		for (size_t j = judging.first; j < fleet->row_count; j++)
			fleet->states[i] = CLI_MIN(fleet->states[i], fleet->rows[j].state);
		fleet->counts[fleet->states[i]]++;
	}
	free(usuals.list);
	return rc == 0 ? fleet_group_rows(fleet) : rc;
}

int fleet_exit_status(const struct fleet *fleet)
{
	bool stands_out = false;

	for (size_t i = 0; i < fleet->row_count; i++) {
		const struct fleet_row *row = &fleet->rows[i];

		if (row->state == ROW_FAIL || (row->state == ROW_WARN && fleet->fail_on <= PL_CHECK_WARN) ||
		    (row->state == ROW_UNKNOWN && fleet->fail_on <= PL_CHECK_UNKNOWN))
			return CLI_FAILED;
		stands_out = stands_out || row->outlier || row->state == ROW_SILENT;
	}
	return stands_out ? CLI_DEGRADED : CLI_OK;
}

void fleet_free(struct fleet *fleet)
{
	for (size_t i = 0; fleet->answers && i < fleet->hosts.count; i++)
		answer_free(&fleet->answers[i]);
	for (size_t i = 0; i < fleet->row_count; i++) {
		for (size_t j = 0; j < fleet->rows[i].count; j++) {
			free(fleet->rows[i].items[j].object);
			free(fleet->rows[i].items[j].text);
		}
		free(fleet->rows[i].items);
		free(fleet->rows[i].key);
	}
	for (size_t i = 0; i < fleet->group_count; i++)
		free(fleet->groups[i].hosts);
	for (size_t i = 0; i < fleet->mixture_count; i++) {
		for (size_t j = 0; j < fleet->mixtures[i].count; j++)
			free(fleet->mixtures[i].values[j].hosts);
		free(fleet->mixtures[i].values);
	}
	free(fleet->answers);
	free(fleet->rows);
	free(fleet->groups);
	free(fleet->mixtures);
	free(fleet->states);
	free(fleet->ignored);
	host_list_free(&fleet->hosts);
	*fleet = (struct fleet){ .answers = NULL };
}
