/* SPDX-License-Identifier: BSD-2-Clause */
/* Comparison of two matrices by hosts and pairs, and its outputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/common/numbers.h"
#include "bench/compare/compare.h"
#include "cmd/common/output.h"

#define UNCONFIRMED_SHOWN 5

static const char *const unit_names[EFFECTS_UNITS] = { "bandwidth", "latency" };
static const char *const kind_names[] = {
	[EFFECT_GROUP] = "group", [EFFECT_HOST] = "host", [EFFECT_RANK] = "rank", [EFFECT_PAIR] = "pair"
};

static bool is_within_threshold(const struct comparisons *comparisons, double change)
{
	return fabs(change) <= log(1 + comparisons->threshold / 100);
}

enum verdict judge_effect(const struct comparisons *comparisons, const struct effect *effect)
{
	double worst = fmin(effect->sending, effect->receiving), best = fmax(effect->sending, effect->receiving);

	if (effect->unconfirmed)
		return VERDICT_SAME;
	/* A host that sends less and receives more is worse. */
	if (worst < 0 && !is_within_threshold(comparisons, worst))
		return VERDICT_WORSE;
	return best > 0 && !is_within_threshold(comparisons, best) ? VERDICT_BETTER : VERDICT_SAME;
}

enum verdict judge_fleet_change(const struct comparisons *comparisons, const struct effects_change *change,
				enum effects_unit unit)
{
	double usual = change->effects[unit].usual;

	if (is_within_threshold(comparisons, usual) || fabs(usual) <= effects_change_noise(change, unit))
		return VERDICT_SAME;
	return usual < 0 ? VERDICT_WORSE : VERDICT_BETTER;
}

static void count_verdicts(struct comparisons *comparisons, const struct effects_change *change)
{
	for (int unit = 0; unit < EFFECTS_UNITS; unit++) {
		const struct effects *effects = &change->effects[unit];

		if (!effects->ranks)
			continue;
		comparisons->compared++;
		comparisons->verdicts[judge_fleet_change(comparisons, change, (enum effects_unit)unit)]++;
		for (size_t i = 0; i < effects->count; i++)
			comparisons->verdicts[judge_effect(comparisons, &effects->list[i])]++;
	}
}

static struct effects_matrix effects_matrix_of(const struct document_matrix *matrix, size_t set)
{
	return (struct effects_matrix){ .count = matrix->ranks,
					.hosts = (const char *const *)matrix->hosts,
					.memory = (const char *const *)matrix->memory,
					.values = { matrix->sets[set].values[0], matrix->sets[set].values[1] } };
}

/* Warns if a rank was on another host: rows of matrices are compared by the numbers of ranks. */
static void warn_other_hosts(const struct comparisons *comparisons)
{
	const struct document_matrix *before = &comparisons->documents[0].matrix;
	const struct document_matrix *after = &comparisons->documents[1].matrix;

	for (size_t i = 0; i < CLI_MIN(before->ranks, after->ranks); i++)
		if (before->hosts[i] && after->hosts[i] && strcmp(before->hosts[i], after->hosts[i])) {
			cli_warn("rank %zu is on %s in %s, and on %s in %s: ranks are compared by their numbers", i,
				 before->hosts[i], comparisons->names[0], after->hosts[i], comparisons->names[1]);
			return;
		}
}

/* Leaves the matrices to the comparison of rows, if these are few enough. */
static int compare_by_rows(struct comparisons *comparisons, struct pl_error *error)
{
	if (!comparisons->documents[0].rows || !comparisons->documents[1].rows)
		return cli_fail(error, -ENOENT, "BENCH-COMPARE-NOTHING", comparisons->names[1],
				"compare matrices of the same hosts and memory",
				"%u hosts in common are needed, each with 3 results as sender and as receiver",
				EFFECTS_HOSTS_MIN);
	warn_other_hosts(comparisons);
	compare_free_matrices(comparisons);
	return 0;
}

/* Returns the set of the same rail; SIZE_MAX: there is none. */
static size_t find_rail(const struct document_matrix *matrix, const char *rail)
{
	for (size_t i = 1; rail && i < matrix->set_count; i++)
		if (!strcmp(matrix->sets[i].rail, rail))
			return i;
	return rail ? SIZE_MAX : 0;
}

/* Adds the change of a set of values that both matrices have. */
static int add_matrix_change(struct comparisons *comparisons, size_t before, size_t after, struct pl_error *error)
{
	const struct document_matrix *matrices[2] = { &comparisons->documents[0].matrix,
						      &comparisons->documents[1].matrix };
	struct effects_matrix first = effects_matrix_of(matrices[0], before);
	struct effects_matrix second = effects_matrix_of(matrices[1], after);
	struct matrix_change *change = &comparisons->changes[comparisons->change_count];
	int rc;

	if (effects_change_match(&change->change, &first, &second) < 0)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	comparisons->change_count++;
	change->rail = matrices[1]->sets[after].rail;
	if (!effects_change_possible(&change->change))
		return 0;
	rc = comparisons->groups ? effects_ranks_read_groups(&change->change.ranks, comparisons->groups, error) : 0;
	if (rc == 0 && effects_change_find(&change->change) < 0)
		rc = cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	if (rc == 0)
		count_verdicts(comparisons, &change->change);
	return rc;
}

int compare_matrices(struct comparisons *comparisons, struct pl_error *error)
{
	const struct document_matrix *before = &comparisons->documents[0].matrix;
	const struct document_matrix *after = &comparisons->documents[1].matrix;
	int rc = 0;

	if (!before->ranks || !after->ranks)
		return 0;
	if (before->size != after->size)
		return cli_fail(error, -ENOENT, "BENCH-COMPARE-NOTHING", comparisons->names[1],
				"compare matrices of the same size",
				"one has messages of %llu bytes, the other of %llu", (unsigned long long)before->size,
				(unsigned long long)after->size);
	/* Of a ring or of one rank to all, each pair is compared by itself. */
	if (!before->judged || !after->judged)
		return compare_by_rows(comparisons, error);
	comparisons->changes = calloc(after->set_count, sizeof(*comparisons->changes));
	if (!comparisons->changes)
		return cli_fail_errno(error, -ENOMEM, "calloc", NULL);
	for (size_t i = 0; rc == 0 && i < after->set_count; i++) {
		size_t same = find_rail(before, after->sets[i].rail);

		if (same != SIZE_MAX)
			rc = add_matrix_change(comparisons, same, i, error);
	}
	if (rc < 0 || comparisons->compared)
		return rc;
	return compare_by_rows(comparisons, error);
}

void compare_free_matrices(struct comparisons *comparisons)
{
	for (size_t i = 0; i < comparisons->change_count; i++)
		effects_change_free(&comparisons->changes[i].change);
	free(comparisons->changes);
	comparisons->changes = NULL;
	comparisons->change_count = 0;
}

/* -- text -------------------------------------------------------------------------------------------- */

/* Writes "bandwidth", or "bandwidth, rail mlx5_3". */
static const char *quantity_text(const struct matrix_change *change, enum effects_unit unit, char text[64])
{
	char rail[40];

	snprintf(text, 64, "%s%s%s", unit_names[unit], change->rail ? ", rail " : "",
		 change->rail ? effects_cut(rail, sizeof(rail), change->rail) : "");
	return text;
}

static void print_fleet_change(const struct comparisons *comparisons, const struct matrix_change *rail,
			       enum effects_unit unit)
{
	const struct effects_change *change = &rail->change;
	enum verdict verdict = judge_fleet_change(comparisons, change, unit);
	char before[32], after[32], quantity[64];
	double sign = unit == EFFECTS_LATENCY ? -1 : 1;

	if (comparisons->common.quiet && verdict != VERDICT_WORSE)
		return;
	effects_value_text(sign * log(change->before[unit]), unit, before);
	effects_value_text(sign * log(change->after[unit]), unit, after);
	printf("%-6s  %s of the fleet: median %s before, %s after (%+.1f %%)\n", verdict_name(verdict),
	       quantity_text(rail, unit, quantity), before, after,
	       100 * (change->after[unit] / change->before[unit] - 1));
}

static void print_effects(const struct comparisons *comparisons, const struct matrix_change *rail,
			  enum effects_unit unit)
{
	const struct effects *effects = &rail->change.effects[unit];
	char text[EFFECTS_TEXT], quantity[64];
	size_t unconfirmed = 0;

	for (size_t i = 0; i < effects->count; i++) {
		const struct effect *effect = &effects->list[i];
		enum verdict verdict = judge_effect(comparisons, effect);
		bool shown = effect->unconfirmed ? unconfirmed++ < UNCONFIRMED_SHOWN : verdict != VERDICT_SAME;

		if (!shown || (comparisons->common.quiet && verdict != VERDICT_WORSE))
			continue;
		effects_describe(effects, effect, unit, true, text);
		printf("%-6s  %s: %s\n", effect->unconfirmed ? "unsure" : verdict_name(verdict),
		       quantity_text(rail, unit, quantity), text);
	}
}

static void print_noise(const struct matrix_change *rail, enum effects_unit unit)
{
	const struct effects *effects = &rail->change.effects[unit];
	char quantity[64], noise[32];

	printf("%s: the noise of a pair is %s", quantity_text(rail, unit, quantity),
	       effects_percent_text(exp(effects->noise) - 1, noise));
	if (effects->unconfirmed)
		printf("; %zu pair%s changed in one direction only, which may be a passing dip: measure again",
		       effects->unconfirmed, effects->unconfirmed == 1 ? "" : "s");
	putchar('\n');
}

/* Prints changes or noise of each quantity of each rail. */
static void print_each_quantity(const struct comparisons *comparisons, bool noise)
{
	for (size_t i = 0; i < comparisons->change_count; i++)
		for (int unit = 0; unit < EFFECTS_UNITS; unit++) {
			const struct matrix_change *rail = &comparisons->changes[i];

			if (!rail->change.effects[unit].ranks)
				continue;
			if (noise) {
				print_noise(rail, (enum effects_unit)unit);
			} else {
				print_fleet_change(comparisons, rail, (enum effects_unit)unit);
				print_effects(comparisons, rail, (enum effects_unit)unit);
			}
		}
}

void compare_render_matrices(const struct comparisons *comparisons)
{
	const struct effects_change *change = &comparisons->changes[0].change;
	const uint32_t *verdicts = comparisons->verdicts;

	print_each_quantity(comparisons, false);
	if (comparisons->common.quiet)
		return;
	print_each_quantity(comparisons, true);
	for (int side = 0; side < 2; side++)
		if (change->only[side])
			printf("results only in %s: %s\n", comparisons->names[side], change->only[side]);
	printf("%zu hosts, %zu pairs: %u better, %u worse; changes of hosts and pairs are those beyond the change of "
	       "the fleet\n",
	       change->ranks.host_count, CLI_MAX(change->pairs[0], change->pairs[1]), verdicts[VERDICT_BETTER],
	       verdicts[VERDICT_WORSE]);
}

/* -- JSON -------------------------------------------------------------------------------------------- */

static struct json_object *json_members(const struct effects_ranks *ranks, const struct effect *effect)
{
	struct json_object *hosts = json_object_new_array();

	if (effect->kind == EFFECT_GROUP)
		for (size_t i = 0; i < effect->member_count; i++)
			cli_json_append(hosts, cli_json_text(ranks->host_names[effect->members[i]]));
	else if (effect->kind == EFFECT_HOST)
		cli_json_append(hosts, cli_json_text(ranks->host_names[effect->at]));
	else
		cli_json_append(hosts, cli_json_text(ranks->host_names[ranks->host[effect->at]]));
	if (effect->kind == EFFECT_PAIR)
		cli_json_append(hosts, cli_json_text(ranks->host_names[ranks->host[effect->to]]));
	return hosts;
}

static struct json_object *json_effect(const struct comparisons *comparisons, const struct effects *effects,
				       const struct effect *effect, enum effects_unit unit)
{
	struct json_object *object = json_object_new_object();
	double sign = unit == EFFECTS_LATENCY ? -1 : 1;
	char text[EFFECTS_TEXT];

	effects_describe(effects, effect, unit, true, text);
	cli_json_add(object, "kind", cli_json_text(kind_names[effect->kind]));
	cli_json_add(object, "verdict", cli_json_text(verdict_name(judge_effect(comparisons, effect))));
	cli_json_add(object, "confirmed", json_object_new_boolean(!effect->unconfirmed));
	cli_json_add(object, "hosts", json_members(effects->ranks, effect));
	cli_json_add(object, "group",
		     effect->kind == EFFECT_GROUP && effect->at != EFFECTS_NONE
			     ? cli_json_text(effects->ranks->group_names[effect->at])
			     : NULL);
	cli_json_add(object, "sending_ratio", effect->sends ? bench_json_number(exp(sign * effect->sending), 4) : NULL);
	cli_json_add(object, "receiving_ratio",
		     effect->receives ? bench_json_number(exp(sign * effect->receiving), 4) : NULL);
	cli_json_add(object, "text", cli_json_text(text));
	return object;
}

static struct json_object *json_fleet_change(const struct comparisons *comparisons, const struct matrix_change *rail,
					     enum effects_unit unit)
{
	const struct effects_change *change = &rail->change;
	const struct effects *effects = &change->effects[unit];
	struct json_object *object = json_object_new_object(), *list = json_object_new_array();

	cli_json_add(object, "quantity", cli_json_text(unit_names[unit]));
	cli_json_add(object, "rail", cli_json_text(rail->rail));
	cli_json_add(object, "unit", cli_json_text(unit == EFFECTS_LATENCY ? "us" : "bytes/s"));
	cli_json_add(object, "verdict", cli_json_text(verdict_name(judge_fleet_change(comparisons, change, unit))));
	cli_json_add(object, "pairs", json_object_new_uint64(change->pairs[unit]));
	cli_json_add(object, "median_before", bench_json_number(change->before[unit], 3));
	cli_json_add(object, "median_after", bench_json_number(change->after[unit], 3));
	cli_json_add(object, "noise_percent", bench_json_number(100 * (exp(effects->noise) - 1), 3));
	for (size_t i = 0; i < effects->count; i++)
		cli_json_append(list, json_effect(comparisons, effects, &effects->list[i], unit));
	cli_json_add(object, "effects", list);
	return object;
}

void compare_add_matrices_json(struct json_object *object, const struct comparisons *comparisons)
{
	const struct effects_change *change = &comparisons->changes[0].change;
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < comparisons->change_count; i++)
		for (int unit = 0; unit < EFFECTS_UNITS; unit++)
			if (comparisons->changes[i].change.effects[unit].ranks)
				cli_json_append(list, json_fleet_change(comparisons, &comparisons->changes[i],
									(enum effects_unit)unit));
	cli_json_add(object, "hosts", json_object_new_uint64(change->ranks.host_count));
	cli_json_add(object, "hosts_only_before", cli_json_text(change->only[0]));
	cli_json_add(object, "hosts_only_after", cli_json_text(change->only[1]));
	cli_json_add(object, "matrices", list);
}

/* -- CSV --------------------------------------------------------------------------------------------- */

/* Begins a line of a quantity; the kind "fleet" is all pairs. */
static void begin_csv_change(struct csv *csv, const struct matrix_change *rail, enum effects_unit unit,
			     const char *kind)
{
	csv_text(csv, unit_names[unit]);
	csv_text(csv, rail->rail);
	csv_text(csv, kind);
}

static void print_csv_effect(struct csv *csv, const struct comparisons *comparisons, const struct matrix_change *rail,
			     const struct effect *effect, enum effects_unit unit)
{
	const struct effects *effects = &rail->change.effects[unit];
	struct json_object *members = json_members(effects->ranks, effect);
	bool named = effect->kind == EFFECT_GROUP && effect->at != EFFECTS_NONE;
	double sign = unit == EFFECTS_LATENCY ? -1 : 1;
	char text[EFFECTS_TEXT];
	size_t length = 1;
	char *hosts;

	for (size_t i = 0; i < json_object_array_length(members); i++)
		length += (size_t)json_object_get_string_len(json_object_array_get_idx(members, i)) + 1;
	hosts = calloc(1, length);
	for (size_t i = 0, at = 0; hosts && i < json_object_array_length(members); i++)
		at += (size_t)snprintf(hosts + at, length - at, "%s%s", i ? " " : "",
				       json_object_get_string(json_object_array_get_idx(members, i)));
	json_object_put(members);
	effects_describe(effects, effect, unit, true, text);
	begin_csv_change(csv, rail, unit, kind_names[effect->kind]);
	csv_text(csv, hosts);
	csv_text(csv, named ? effects->ranks->group_names[effect->at] : NULL);
	csv_text(csv, verdict_name(judge_effect(comparisons, effect)));
	csv_text(csv, effect->unconfirmed ? "false" : "true");
	csv_number(csv, effect->sends ? exp(sign * effect->sending) : NAN);
	csv_number(csv, effect->receives ? exp(sign * effect->receiving) : NAN);
	for (int i = 0; i < 3; i++)
		csv_text(csv, NULL);
	csv_text(csv, text);
	csv_end(csv);
	free(hosts);
}

static void print_csv_fleet(struct csv *csv, const struct comparisons *comparisons, const struct matrix_change *rail,
			    enum effects_unit unit)
{
	const struct effects_change *change = &rail->change;
	enum verdict verdict = judge_fleet_change(comparisons, change, unit);

	if (!comparisons->common.quiet || verdict == VERDICT_WORSE) {
		begin_csv_change(csv, rail, unit, "fleet");
		csv_text(csv, NULL);
		csv_text(csv, NULL);
		csv_text(csv, verdict_name(verdict));
		for (int i = 0; i < 3; i++)
			csv_text(csv, NULL);
		csv_text(csv, unit == EFFECTS_LATENCY ? "us" : "bytes/s");
		csv_number(csv, change->before[unit]);
		csv_number(csv, change->after[unit]);
		csv_text(csv, NULL);
		csv_end(csv);
	}
	for (size_t i = 0; i < change->effects[unit].count; i++) {
		const struct effect *effect = &change->effects[unit].list[i];

		if (!comparisons->common.quiet || judge_effect(comparisons, effect) == VERDICT_WORSE)
			print_csv_effect(csv, comparisons, rail, effect, unit);
	}
}

void compare_print_matrices_csv(struct csv *csv, const struct comparisons *comparisons)
{
	for (size_t i = 0; i < comparisons->change_count; i++)
		for (int unit = 0; unit < EFFECTS_UNITS; unit++)
			if (comparisons->changes[i].change.effects[unit].ranks)
				print_csv_fleet(csv, comparisons, &comparisons->changes[i], (enum effects_unit)unit);
}
