/* SPDX-License-Identifier: BSD-2-Clause */
/* Sentences about fleets and about matrices of many hosts. */
#include <stdlib.h>
#include <string.h>

#include "cmd/fleet/changes.h"
#include "report/fleet.h"

#define LEFT_OUT_SHOWN 8
#define FLEET_FACTOR 1.03 /* smaller changes of a whole fleet get no warning */
#define EFFECTS_SHOWN 8 /* of pairs of one matrix; groups, hosts and ranks are all named, up to twice as many */

static const char *const unit_names[EFFECTS_UNITS] = { "Bandwidth", "Latency" };

static int describe_effects(struct report *report, const struct effects *effects, enum effects_unit unit, bool changes,
			    const char *name)
{
	size_t shown[2] = { 0, 0 }, left = 0;
	char text[EFFECTS_TEXT];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < effects->count; i++) {
		const struct effect *effect = &effects->list[i];
		bool pair = effect->kind == EFFECT_PAIR;

		if (shown[pair]++ >= (pair ? EFFECTS_SHOWN : 2 * EFFECTS_SHOWN)) {
			left++;
			continue;
		}
		effects_describe(effects, effect, unit, changes, text);
		rc = report_add_sentence(report,
					 !changes || (!effect->unconfirmed && effect->sending + effect->receiving < 0),
					 "%s%s: %s.", name, unit_names[unit], text);
	}
	if (rc == 0 && left)
		rc = report_add_sentence(report, !changes, "%s%s: %zu more, which %s.", name, unit_names[unit], left,
					 changes ? "peerlane bench compare --json names"
						 : "the sections of the hosts on the page name");
	if (rc == 0 && !changes && shown[1])
		rc = report_add_sentence(report, false,
					 "%s%s: each pair was measured once, so that a slow one may be a passing dip.",
					 name, unit_names[unit]);
	return rc;
}

/* Begins sentences with the name of the file if there are several matrices. */
static const char *sentence_name(const struct report *report, const struct report_document *document, char text[160])
{
	const struct report_document *before;

	report_last_matrix(report, &before);
	effects_cut(text, 150, document->name);
	strcat(text, ": ");
	return before ? text : "";
}

/* Writes "mlx5_3", or "number 2" of a rail without a name. */
static const char *rail_name(const struct report_matrix *matrix, size_t rail, char text[80])
{
	if (matrix->rails[rail].name)
		return effects_cut(text, 80, matrix->rails[rail].name);
	snprintf(text, 80, "number %zu", rail);
	return text;
}

/* Names what stands out on each rail. */
static int describe_rails(struct report *report, const struct report_matrix *matrix, const char *name)
{
	char rail[80], prefix[300];
	int rc = 0;

	for (size_t i = 0; i < matrix->judgement->rail_count; i++)
		for (int unit = 0; rc == 0 && unit < EFFECTS_UNITS; unit++) {
			snprintf(prefix, sizeof(prefix), "%sRail %s: ", name, rail_name(matrix, i, rail));
			rc = describe_effects(report, &matrix->judgement->rails[i][unit], (enum effects_unit)unit,
					      false, prefix);
		}
	return rc;
}

/* Names the ranks that the measurement left out, with the reason. */
static int describe_left_out(struct report *report, const struct report_document *document)
{
	struct json_object *list = cli_json_member(document->root, "left_out", json_type_array);
	size_t count = list ? json_object_array_length(list) : 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < CLI_MIN(count, (size_t)LEFT_OUT_SHOWN); i++) {
		struct json_object *one = json_object_array_get_idx(list, i);
		const char *host = cli_json_member_text(one, "host"), *reason = cli_json_member_text(one, "reason");
		double rank = NAN;

		report_number(one, "rank", &rank);
		if (!isnan(rank))
			rc = report_add_sentence(report, true, "%s: rank %.0f (%s) was left out%s%s.", document->name,
						 rank, host ? host : "unknown host", reason ? ": " : "",
						 reason ? reason : "");
	}
	if (rc == 0 && count > LEFT_OUT_SHOWN)
		rc = report_add_sentence(report, true, "%s: %zu more ranks were left out.", document->name,
					 count - LEFT_OUT_SHOWN);
	return rc;
}

static int describe_judgement(struct report *report, const struct report_document *document)
{
	const struct report_judgement *judgement = document->matrix.judgement;
	char buffer[160], hosts[EFFECTS_TEXT];
	const char *name = sentence_name(report, document, buffer);
	int rc = 0;

	for (int unit = 0; rc == 0 && unit < EFFECTS_UNITS; unit++) {
		const struct effects *effects = &judgement->effects[unit];

		if (!effects->ranks)
			continue;
		if (unit == EFFECTS_RATE && effects->silent_count) {
			effects_fold_hosts(&judgement->ranks, effects->silent, effects->silent_count, hosts,
					   sizeof(hosts));
			rc = report_add_sentence(report, true, "%sNo results of %s.", name, hosts);
		}
		if (rc == 0)
			rc = describe_effects(report, effects, (enum effects_unit)unit, false, name);
		if (rc == 0 && !effects->count)
			rc = report_add_sentence(report, false, "%s%s: no host and no pair stands out.", name,
						 unit_names[unit]);
	}
	return rc < 0 ? rc : describe_rails(report, &document->matrix, name);
}

/*
 * Describes a change of the whole fleet, and what stands out in it.  Leaves a rail out if the value of the fleet changed by less than
 * the noise.
 */
static int describe_fleet_change(struct report *report, const struct effects_change *change, enum effects_unit unit,
				 const char *prefix, bool rail)
{
	double factor = change->after[unit] / change->before[unit], usual = change->effects[unit].usual;
	double least = fmax(log(FLEET_FACTOR), effects_change_noise(change, unit));
	char before[REPORT_TEXT], after[REPORT_TEXT], noise[32];
	enum report_unit shown = unit == EFFECTS_LATENCY ? REPORT_UNIT_TIME : REPORT_UNIT_RATE;
	int rc = 0;

	if (!rail || fabs(usual) > least)
		rc = report_add_sentence(
			report, usual < -least,
			"%s%s of the fleet: median %s before, %s now (%+.1f %%); the noise of a pair is %s.", prefix,
			unit_names[unit], report_value(shown, change->before[unit], before),
			report_value(shown, change->after[unit], after), 100 * (factor - 1),
			effects_percent_text(exp(change->effects[unit].noise) - 1, noise));
	return rc < 0 ? rc : describe_effects(report, &change->effects[unit], unit, true, prefix);
}

/* Copies the groups, which hosts of both matrices have. */
static int read_change_groups(const struct report *report, struct effects_change *change)
{
	struct pl_error error;

	return report->groups ? effects_ranks_read_groups(&change->ranks, report->groups, &error) : 0;
}

/* Describes what changed between two matrices, or, without `names`, between the same rail of both. */
static int describe_values_change(struct report *report, const struct effects_matrix *before,
				  const struct effects_matrix *after, const char *prefix, const char *const names[2])
{
	struct effects_change change;
	int rc = effects_change_match(&change, before, after);

	if (rc < 0)
		return rc;
	if (effects_change_possible(&change)) {
		rc = read_change_groups(report, &change);
		if (rc == 0)
			rc = effects_change_find(&change);
	} else if (names) {
		rc = report_add_sentence(report, true,
					 "%s and %s have results of %zu hosts in common: too few to tell changes.",
					 names[0], names[1], change.ranks.host_count);
	}
	for (int unit = 0; rc == 0 && unit < EFFECTS_UNITS; unit++)
		if (change.effects[unit].ranks)
			rc = describe_fleet_change(report, &change, (enum effects_unit)unit, prefix, !names);
	for (int side = 0; rc == 0 && names && side < 2; side++)
		if (change.only[side])
			rc = report_add_sentence(report, side == 0, "Results only in %s: %s.", names[side],
						 change.only[side]);
	effects_change_free(&change);
	return rc;
}

/* Describes the changes of each rail that both matrices have. */
static int describe_rail_changes(struct report *report, const struct report_matrix *before,
				 const struct report_matrix *after, const char *prefix)
{
	char text[400], name[80], other[80];
	int rc = 0;

	for (size_t i = 0; i < after->rail_count; i++)
		for (size_t j = 0; rc == 0 && j < before->rail_count; j++) {
			struct effects_matrix first = { .count = before->ranks,
							.hosts = before->labels,
							.values = { before->rails[j].rate, before->rails[j].latency } };
			struct effects_matrix second = { .count = after->ranks,
							 .hosts = after->labels,
							 .values = { after->rails[i].rate, after->rails[i].latency } };

			if (strcmp(rail_name(after, i, name), rail_name(before, j, other)))
				continue;
			snprintf(text, sizeof(text), "%sRail %s: ", prefix, name);
			rc = describe_values_change(report, &first, &second, text, NULL);
			break;
		}
	return rc;
}

/* Describes what changed between the last two matrices. */
static int describe_matrix_changes(struct report *report)
{
	const struct report_document *before, *after = report_last_matrix(report, &before);
	const char *names[2];
	char prefix[160], cut[140];
	int rc;

	if (!before)
		return 0;
	if (before->matrix.size != after->matrix.size)
		return report_add_sentence(report, true,
					   "%s and %s have messages of different sizes, so their changes are unknown.",
					   before->name, after->name);
	names[0] = before->name;
	names[1] = after->name;
	snprintf(prefix, sizeof(prefix), "Since %s: ", effects_cut(cut, sizeof(cut), before->name));
	rc = describe_values_change(
		report,
		&(struct effects_matrix){ .count = before->matrix.ranks,
					  .hosts = before->matrix.labels,
					  .values = { before->matrix.rate, before->matrix.latency } },
		&(struct effects_matrix){ .count = after->matrix.ranks,
					  .hosts = after->matrix.labels,
					  .values = { after->matrix.rate, after->matrix.latency } },
		prefix, names);
	return rc < 0 ? rc : describe_rail_changes(report, &before->matrix, &after->matrix, prefix);
}

/* -- fleets ------------------------------------------------------------------------------------------- */

static int describe_fleet_counts(struct report *report, const struct report_document *document)
{
	const struct fleet *fleet = &document->fleet->fleet;
	char text[200] = "";
	size_t length = 0;

	for (int state = 0; state < ROW_WELL && length < sizeof(text); state++)
		if (fleet->counts[state])
			length += (size_t)snprintf(text + length, sizeof(text) - length, ", %zu %s",
						   fleet->counts[state], row_state_name((enum row_state)state));
	return report_add_sentence(report, fleet->counts[ROW_FAIL] > 0,
				   "%s: %zu of %zu hosts answered peerlane fleet %s, %zu are well%s.", document->name,
				   fleet_answered(fleet), fleet->hosts.count,
				   fleet->kind == FLEET_TOPO ? "topo" : "check", fleet->counts[ROW_WELL], text);
}

int report_describe_fleets(struct report *report)
{
	int rc = 0;

	for (int kind = FLEET_CHECK; rc == 0 && kind <= FLEET_TOPO; kind++) {
		const struct report_document *before, *last = report_last_fleet(report, (enum fleet_kind)kind, &before);

		if (last)
			rc = describe_fleet_counts(report, last);
	}
	for (size_t i = 0; rc == 0 && i < report->document_count; i++) {
		rc = describe_left_out(report, &report->documents[i]);
		if (rc == 0 && report->documents[i].matrix.judgement)
			rc = describe_judgement(report, &report->documents[i]);
	}
	return rc < 0 ? rc : describe_matrix_changes(report);
}
