/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/effects/effects.h"

/* Limits beyond which an effect counts: robust standard deviations, and factors. */
#define LINE_DEVIATIONS 5
#define PAIR_DEVIATIONS 6
#define LINE_FACTOR 1.05
#define PAIR_FACTOR 1.10
#define MEDIAN_ERROR 1.25 /* standard error of a median of n normal values, times sqrt(n) */
#define GROUP_SHARE 0.8   /* of a group's ranks, that make it an effect of the group */
#define GROUP_RANKS_MIN 3

/* State of effects_find(). */
struct search {
	struct effects *effects;
	const struct effects_ranks *ranks;
	const double *values;
	bool changes;
	double *room; /* for the ranks */
	size_t *part; /* by rank: its group in this step */
	bool *affected; /* by rank: it has the effect of its part */
	size_t parts;
	double limits[2];       /* of sending and receiving ranks */
	double *line_errors[2]; /* by rank: standard error of its effect */
};

static double *direction_effects(const struct search *search, int direction)
{
	return direction ? search->effects->receive : search->effects->send;
}

static bool is_beyond(const struct search *search, double effect, double limit)
{
	return effect < -limit || (search->changes && effect > limit);
}

/* Computes the standard error of each rank's effects. */
static void measure_line_errors(struct search *search)
{
	size_t count = search->ranks->count;

	for (int direction = 0; direction < 2; direction++) {
		size_t step = direction ? count : 1, line = direction ? 1 : count;

		for (size_t i = 0; i < count; i++) {
			size_t known = effects_count_values(search->effects->rest + i * line, step, count);

			search->line_errors[direction][i] =
				known ? MEDIAN_ERROR * search->effects->noise / sqrt((double)known) : 0;
		}
	}
}

static void set_limits(struct search *search)
{
	for (int direction = 0; direction < 2; direction++) {
		double deviation;

		memcpy(search->room, direction_effects(search, direction), search->ranks->count * sizeof(double));
		deviation = effects_deviation(search->room, search->ranks->count);
		search->limits[direction] = fmax(isnan(deviation) ? 0 : LINE_DEVIATIONS * deviation, log(LINE_FACTOR));
	}
}

static bool is_rank_beyond(const struct search *search, int direction, size_t rank)
{
	double limit = fmax(search->limits[direction], LINE_DEVIATIONS * search->line_errors[direction][rank]);

	return is_beyond(search, direction_effects(search, direction)[rank], limit);
}

static struct effect *add_effect(struct effects *effects, const struct effect *effect)
{
	struct effect *list = effects->list;

	/* The list grows to the next power of two. */
	if (!(effects->count & (effects->count - 1))) {
		list = realloc(list, (effects->count ? 2 * effects->count : 1) * sizeof(*list));
		if (!list)
			return NULL;
		effects->list = list;
	}
	list[effects->count] = *effect;
	return &list[effects->count++];
}

/* -- groups of ranks --------------------------------------------------------------------------------- */

/* Returns the median effect of a part if most of its ranks have one in the same sense, else 0. */
static double part_effect(struct search *search, int direction, size_t part)
{
	const double *line = direction_effects(search, direction);
	size_t count = 0, less = 0, more = 0;

	for (size_t i = 0; i < search->ranks->count; i++) {
		if (search->part[i] != part || isnan(line[i]))
			continue;
		search->room[count++] = line[i];
		if (is_rank_beyond(search, direction, i))
			*(line[i] < 0 ? &less : &more) += 1;
	}
	if (!count || (double)CLI_MAX(less, more) < GROUP_SHARE * (double)count)
		return 0;
	return effects_median(search->room, count);
}

/* Returns the median of the values between hosts of a part, less the usual value; NAN if there are none. */
static double median_within_part(const struct search *search, size_t part, double *room)
{
	size_t count = search->ranks->count, known = 0;

	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < count && search->part[i] == part; j++)
			if (search->part[j] == part && search->ranks->host[i] != search->ranks->host[j])
				room[known++] = search->values[i * count + j];
	return effects_median(room, known) - search->effects->usual;
}

/* True if a rank has a good part of an effect, in the same sense. */
static bool has_effect(double rank, double effect)
{
	return rank * effect > 0 && fabs(rank) > fabs(effect) / 2;
}

/* Marks the ranks of a part that have its effect: the others would seem to be better without it. */
static void mark_affected_ranks(struct search *search, size_t part, const struct effect *effect)
{
	for (size_t i = 0; i < search->ranks->count; i++)
		search->affected[i] =
			search->part[i] == part && (has_effect(search->effects->send[i], effect->sending) ||
						    has_effect(search->effects->receive[i], effect->receiving));
}

/* Takes the effect of a part off its ranks, and off pairs among them, if only pairs to the others have it. */
static void take_off_part(struct search *search, int direction, double effect, bool outside)
{
	double *line = direction_effects(search, direction), *rest = search->effects->rest;
	size_t count = search->ranks->count;

	for (size_t i = 0; i < count; i++) {
		if (!search->affected[i] || !has_effect(line[i], effect))
			continue;
		line[i] -= effect;
		for (size_t j = 0; outside && j < count; j++)
			if (search->affected[j])
				rest[direction ? j * count + i : i * count + j] += effect;
	}
}

/* Lists the hosts of a part in the effect. */
static int list_members(const struct search *search, size_t part, struct effect *effect)
{
	const struct effects_ranks *ranks = search->ranks;

	effect->members = calloc(ranks->host_count + 1, sizeof(*effect->members));
	if (!effect->members)
		return -ENOMEM;
	for (size_t host = 0; host < ranks->host_count; host++)
		for (size_t i = 0; i < ranks->count; i++)
			if (ranks->host[i] == host && search->part[i] == part) {
				effect->members[effect->member_count++] = host;
				break;
			}
	return 0;
}

static int judge_part(struct search *search, size_t part, struct effect effect, double *room)
{
	double usual = search->effects->usual, within;

	effect.sending = part_effect(search, 0, part);
	effect.receiving = part_effect(search, 1, part);
	effect.sends = effect.sending != 0;
	effect.receives = effect.receiving != 0;
	if (!effect.sends && !effect.receives)
		return 0;
	effect.usual = usual;
	effect.value = usual + (effect.sends ? effect.sending : effect.receiving);
	if (effect.kind == EFFECT_GROUP) {
		within = median_within_part(search, part, room);
		effect.outside = fabs(within) < fabs(effect.sending + effect.receiving) / 2;
		effect.inside = !effect.outside && !isnan(within);
		if (list_members(search, part, &effect) < 0)
			return -ENOMEM;
	}
	mark_affected_ranks(search, part, &effect);
	take_off_part(search, 0, effect.sending, effect.outside);
	take_off_part(search, 1, effect.receiving, effect.outside);
	if (add_effect(search->effects, &effect))
		return 0;
	free(effect.members);
	return -ENOMEM;
}

static size_t count_part_ranks(const struct search *search, size_t part)
{
	size_t count = 0;

	for (size_t i = 0; i < search->ranks->count; i++)
		count += search->part[i] == part;
	return count;
}

/* Judges parts of the ranks.  Parts with less than `least` ranks stay. */
static int judge_parts(struct search *search, enum effect_kind kind, size_t least, bool named)
{
	size_t cells = search->ranks->count * search->ranks->count;
	double *room = kind == EFFECT_GROUP ? malloc((cells + 1) * sizeof(*room)) : NULL;
	int rc = kind == EFFECT_GROUP && !room ? -ENOMEM : 0;

	for (size_t part = 0; rc == 0 && part < search->parts; part++)
		if (count_part_ranks(search, part) >= least)
			rc = judge_part(search, part,
					(struct effect){ .kind = kind, .at = named ? part : EFFECTS_NONE }, room);
	free(room);
	set_limits(search);
	return rc;
}

/* -- groups that nobody named ------------------------------------------------------------------------ */

static double known_or_zero(double value)
{
	return isnan(value) ? 0 : value;
}

/* Returns the larger of the effects of a rank that count; 0 if none does. */
static double rank_effect(const struct search *search, size_t rank)
{
	double effect = 0;

	for (int direction = 0; direction < 2; direction++) {
		double one = known_or_zero(direction_effects(search, direction)[rank]);

		if (is_rank_beyond(search, direction, rank) && fabs(one) > fabs(effect))
			effect = one;
	}
	return effect;
}

/* True if the values between two ranks with effects are usual: the effects come from a link to the others. */
static bool are_usual_together(const struct search *search, size_t a, size_t b, const double *effects)
{
	size_t count = search->ranks->count;
	double there = search->values[a * count + b], back = search->values[b * count + a];
	double value = isnan(there) ? back : isnan(back) ? there : (there + back) / 2;

	return effects[a] * effects[b] > 0 &&
	       fabs(value - search->effects->usual) < fmin(fabs(effects[a]), fabs(effects[b])) / 2;
}

/* Sets the part of all ranks that are usual together with ranks of the part. */
static void spread_part(struct search *search, const double *effects)
{
	size_t count = search->ranks->count;
	bool again = true;

	while (again) {
		again = false;
		for (size_t a = 0; a < count; a++)
			for (size_t b = 0; search->part[a] == search->parts && b < count; b++)
				if (search->part[b] == EFFECTS_NONE && effects[b] != 0 &&
				    are_usual_together(search, a, b, effects)) {
					search->part[b] = search->parts;
					again = true;
				}
	}
}

static int guess_groups(struct search *search)
{
	size_t count = search->ranks->count;
	double *effects = malloc((count + 1) * sizeof(*effects));

	if (!effects)
		return -ENOMEM;
	search->parts = 0;
	for (size_t i = 0; i < count; i++) {
		search->part[i] = EFFECTS_NONE;
		effects[i] = rank_effect(search, i);
	}
	for (size_t i = 0; i < count; i++) {
		if (search->part[i] != EFFECTS_NONE || effects[i] == 0)
			continue;
		search->part[i] = search->parts;
		spread_part(search, effects);
		search->parts++;
	}
	free(effects);
	return 0;
}

/* -- ranks and pairs --------------------------------------------------------------------------------- */

static int judge_ranks(struct search *search)
{
	for (size_t i = 0; i < search->ranks->count; i++) {
		struct effect effect = { .kind = EFFECT_RANK, .at = i, .usual = search->effects->usual };

		effect.sends = is_rank_beyond(search, 0, i);
		effect.receives = is_rank_beyond(search, 1, i);
		effect.sending = effect.sends ? search->effects->send[i] : 0;
		effect.receiving = effect.receives ? search->effects->receive[i] : 0;
		effect.value = effect.usual + (effect.sends ? effect.sending : effect.receiving);
		if ((effect.sends || effect.receives) && !add_effect(search->effects, &effect))
			return -ENOMEM;
	}
	return 0;
}

static int judge_pair(struct search *search, size_t a, size_t b, double limit)
{
	size_t count = search->ranks->count;
	double there = search->effects->rest[a * count + b], back = search->effects->rest[b * count + a];
	bool slow_there = is_beyond(search, there, limit), slow_back = is_beyond(search, back, limit);
	struct effect effect = { .kind = EFFECT_PAIR, .at = a, .to = b, .sends = slow_there, .receives = slow_back };

	if (!slow_there && !slow_back)
		return 0;
	if (search->changes && slow_there && slow_back && there * back < 0)
		return 0;
	/* One direction is from `at` to `to`. */
	if (!slow_there) {
		effect = (struct effect){ .kind = EFFECT_PAIR, .at = b, .to = a, .sends = true };
		there = back;
	}
	effect.sending = there;
	effect.receiving = effect.receives ? back : 0;
	effect.value = search->values[effect.at * count + effect.to];
	effect.usual = effect.value - there;
	effect.unconfirmed = search->changes && !effect.receives;
	search->effects->unconfirmed += effect.unconfirmed;
	return add_effect(search->effects, &effect) ? 0 : -ENOMEM;
}

static int judge_pairs(struct search *search)
{
	double limit = fmax(PAIR_DEVIATIONS * search->effects->noise, log(PAIR_FACTOR));
	size_t count = search->ranks->count;
	int rc = 0;

	for (size_t a = 0; rc == 0 && a < count; a++)
		for (size_t b = a + 1; rc == 0 && b < count; b++)
			rc = judge_pair(search, a, b, limit);
	return rc;
}

/* -- whole ------------------------------------------------------------------------------------------- */

static int compare_effects(const void *left, const void *right)
{
	const struct effect *a = left, *b = right;
	double size_a = fmax(fabs(a->sending), fabs(a->receiving)), size_b = fmax(fabs(b->sending), fabs(b->receiving));

	if (a->kind != b->kind)
		return (a->kind > b->kind) - (a->kind < b->kind);
	if (a->unconfirmed != b->unconfirmed)
		return a->unconfirmed - b->unconfirmed;
	if (size_a != size_b)
		return size_a < size_b ? 1 : -1;
	return (a->at > b->at) - (a->at < b->at);
}

/* Groups first, as their effects are not those of their hosts. */
static int judge_levels(struct search *search)
{
	const struct effects_ranks *ranks = search->ranks;
	bool named = ranks->group_count > 1;
	int rc = 0;

	if (named) {
		memcpy(search->part, ranks->group, ranks->count * sizeof(*search->part));
		search->parts = ranks->group_count;
	} else {
		rc = guess_groups(search);
	}
	if (rc == 0)
		rc = judge_parts(search, EFFECT_GROUP, GROUP_RANKS_MIN, named);
	memcpy(search->part, ranks->host, ranks->count * sizeof(*search->part));
	search->parts = ranks->host_count;
	if (rc == 0)
		rc = judge_parts(search, EFFECT_HOST, 1, true);
	if (rc == 0 && ranks->count > ranks->host_count)
		rc = judge_ranks(search);
	return rc < 0 ? rc : judge_pairs(search);
}

static bool has_rank_values(const struct effects_ranks *ranks, const double *values, size_t rank)
{
	for (size_t i = 0; i < ranks->count; i++)
		if (ranks->host[i] != ranks->host[rank] &&
		    (!isnan(values[rank * ranks->count + i]) || !isnan(values[i * ranks->count + rank])))
			return true;
	return false;
}

/* Lists hosts without values. */
static void list_silent_hosts(struct effects *effects, const double *values)
{
	const struct effects_ranks *ranks = effects->ranks;

	for (size_t host = 0; host < ranks->host_count; host++) {
		bool known = false;

		for (size_t i = 0; i < ranks->count && !known; i++)
			known = ranks->host[i] == host && has_rank_values(ranks, values, i);
		/* Ranks that left before they told their host have none. */
		if (!known && strcmp(ranks->host_names[host], EFFECTS_NO_NAME))
			effects->silent[effects->silent_count++] = host;
	}
}

static int find_all_effects(struct search *search)
{
	struct effects *effects = search->effects;
	int rc;

	list_silent_hosts(effects, search->values);
	rc = effects_polish(effects, search->values);
	if (rc < 0)
		return rc;
	effects_measure_noise(effects);
	measure_line_errors(search);
	set_limits(search);
	rc = judge_levels(search);
	if (rc == 0 && effects->count)
		qsort(effects->list, effects->count, sizeof(*effects->list), compare_effects);
	return rc;
}

int effects_find(struct effects *effects, const struct effects_ranks *ranks, const double *values, bool changes)
{
	size_t count = ranks->count + 1;
	struct search search = { .effects = effects, .ranks = ranks, .values = values, .changes = changes };
	int rc = -ENOMEM;

	*effects = (struct effects){ .ranks = ranks };
	effects->send = calloc(count, sizeof(*effects->send));
	effects->receive = calloc(count, sizeof(*effects->receive));
	effects->rest = calloc(count * count, sizeof(*effects->rest));
	effects->silent = calloc(ranks->host_count + 1, sizeof(*effects->silent));
	search.room = calloc(count, sizeof(*search.room));
	search.part = calloc(count, sizeof(*search.part));
	search.affected = calloc(count, sizeof(*search.affected));
	search.line_errors[0] = calloc(count, sizeof(double));
	search.line_errors[1] = calloc(count, sizeof(double));
	if (effects->send && effects->receive && effects->rest && effects->silent && search.room && search.part &&
	    search.affected && search.line_errors[0] && search.line_errors[1])
		rc = find_all_effects(&search);
	free(search.room);
	free(search.part);
	free(search.affected);
	free(search.line_errors[0]);
	free(search.line_errors[1]);
	if (rc < 0)
		effects_free(effects);
	return rc;
}

void effects_free(struct effects *effects)
{
	for (size_t i = 0; i < effects->count; i++)
		free(effects->list[i].members);
	free(effects->list);
	free(effects->send);
	free(effects->receive);
	free(effects->rest);
	free(effects->silent);
	*effects = (struct effects){ .ranks = NULL };
}
