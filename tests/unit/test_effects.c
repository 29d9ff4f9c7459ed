/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slow groups, hosts and pairs in matrices of simulated fleets, and changes between two of them.  Each planted defect must
 * be found, and no host or group besides.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/common/numbers.h"
#include "bench/effects/effects.h"

#define HOSTS 200u
#define LEAF 20u /* hosts of a leaf switch */
#define USUAL 48e9
#define SEEDS 3
#define DIPS 2 /* of 1,000 pairs, in one direction */

enum {
	SLOW_SENDER = 17,
	SLOW_RECEIVER = 42,
	SLOW_LEAF = 3,
	PAIR_FROM = 101,
	PAIR_TO = 151,
	SILENT = 88,
	SILENT_TOO = 5
};

struct fleet {
	char names[HOSTS][16];
	const char *hosts[HOSTS];
	struct effects_ranks ranks;
	double values[HOSTS * HOSTS]; /* bytes a second */
	bool dips[HOSTS * HOSTS];
	uint64_t state;
};

struct counts {
	unsigned runs, senders, receivers, leaves, pairs, silent; /* found */
	unsigned dips, wrong_hosts, wrong_groups, wrong_pairs;
};

static double uniform(struct fleet *fleet)
{
	return ((double)(bench_splitmix(fleet->state += BENCH_SPLITMIX_STEP) >> 11) + 0.5) * 0x1p-53;
}

/* Returns a normal random number of deviation 1 (Box and Muller). */
static double normal(struct fleet *fleet)
{
	double radius = sqrt(-2 * log(uniform(fleet)));

	return radius * cos(6.283185307179586 * uniform(fleet));
}

static struct fleet *make_fleet(uint64_t seed, bool groups)
{
	struct fleet *fleet = calloc(1, sizeof(*fleet));
	char path[] = "/tmp/peerlane-groups-XXXXXX";
	struct pl_error error;
	int fd;

	assert_non_null(fleet);
	fleet->state = seed * 1000003;
	for (unsigned i = 0; i < HOSTS; i++) {
		snprintf(fleet->names[i], sizeof(fleet->names[i]), "gpu%03u", i);
		fleet->hosts[i] = fleet->names[i];
	}
	assert_int_equal(effects_ranks_make(&fleet->ranks, fleet->hosts, HOSTS), 0);
	if (!groups)
		return fleet;
	fd = mkstemp(path);
	assert_true(fd >= 0);
	for (unsigned i = 0; i < HOSTS / LEAF; i++)
		dprintf(fd, "gpu[%03u-%03u] leaf%u\n", i * LEAF, (i + 1) * LEAF - 1, i);
	close(fd);
	assert_int_equal(effects_ranks_read_groups(&fleet->ranks, path, &error), 0);
	unlink(path);
	assert_int_equal(fleet->ranks.group_count, HOSTS / LEAF);
	return fleet;
}

static void free_fleet(struct fleet *fleet)
{
	effects_ranks_free(&fleet->ranks);
	free(fleet);
}

static double planted_factor(unsigned from, unsigned to)
{
	double factor = 1;

	factor *= from == SLOW_SENDER ? 0.85 : 1;
	factor *= to == SLOW_RECEIVER ? 0.5 : 1;
	factor *= (from / LEAF == SLOW_LEAF) != (to / LEAF == SLOW_LEAF) ? 0.8 : 1;
	return factor * (from == PAIR_FROM && to == PAIR_TO ? 0.5 : 1);
}

static void measure_fleet(struct fleet *fleet, double noise, bool defects)
{
	for (unsigned from = 0; from < HOSTS; from++)
		for (unsigned to = 0; to < HOSTS; to++) {
			double *value = &fleet->values[from * HOSTS + to];
			bool silent =
				defects && (from == SILENT || to == SILENT || from == SILENT_TOO || to == SILENT_TOO);

			fleet->dips[from * HOSTS + to] = uniform(fleet) * 1000 < DIPS;
			*value = USUAL * exp(noise * normal(fleet)) * (defects ? planted_factor(from, to) : 1);
			*value *= fleet->dips[from * HOSTS + to] ? 0.4 : 1;
			if (silent || from == to)
				*value = NAN;
		}
}

/* Counts a found effect as the planted one, or as wrong. */
static void count_effect(struct counts *counts, const struct fleet *fleet, const struct effect *effect, bool defects)
{
	switch (effect->kind) {
	case EFFECT_GROUP:
		if (defects && effect->member_count == LEAF && effect->members[0] == SLOW_LEAF * LEAF &&
		    effect->members[LEAF - 1] == SLOW_LEAF * LEAF + LEAF - 1 && effect->outside && effect->sends &&
		    effect->receives && fabs(exp(effect->sending) - 0.8) < 0.02 &&
		    fabs(exp(effect->receiving) - 0.8) < 0.02)
			counts->leaves++;
		else
			counts->wrong_groups++;
		break;
	case EFFECT_HOST:
		if (defects && effect->at == SLOW_SENDER && effect->sends && !effect->receives &&
		    fabs(exp(effect->sending) - 0.85) < 0.02)
			counts->senders++;
		else if (defects && effect->at == SLOW_RECEIVER && effect->receives && !effect->sends &&
			 fabs(exp(effect->receiving) - 0.5) < 0.02)
			counts->receivers++;
		else
			counts->wrong_hosts++;
		break;
	case EFFECT_PAIR:
		if (defects && effect->at == PAIR_FROM && effect->to == PAIR_TO)
			counts->pairs++;
		else if (fleet->dips[effect->at * HOSTS + effect->to])
			counts->dips++;
		else
			counts->wrong_pairs++;
		break;
	default:
		counts->wrong_hosts++;
	}
}

static void judge_fleet(struct counts *counts, struct fleet *fleet, bool defects)
{
	double *logarithms = effects_logarithms(fleet->values, HOSTS, EFFECTS_RATE);
	struct effects effects;

	assert_non_null(logarithms);
	assert_true(effects_possible(&fleet->ranks, logarithms));
	assert_int_equal(effects_find(&effects, &fleet->ranks, logarithms, false), 0);
	counts->runs++;
	for (size_t i = 0; i < effects.count; i++)
		count_effect(counts, fleet, &effects.list[i], defects);
	for (size_t i = 0; i < effects.silent_count; i++)
		counts->silent += effects.silent[i] == SILENT || effects.silent[i] == SILENT_TOO;
	assert_true(fabs(exp(effects.usual) / USUAL - 1) < 0.01);
	effects_free(&effects);
	free(logarithms);
}

static void print_counts(const char *what, const struct counts *counts)
{
	printf("%-34s %4u %7u %9u %5u %5u %7u %5u %12u %13u %12u\n", what, counts->runs, counts->senders,
	       counts->receivers, counts->leaves, counts->pairs, counts->silent, counts->dips, counts->wrong_hosts,
	       counts->wrong_groups, counts->wrong_pairs);
}

static void test_planted_defects(void **state)
{
	(void)state;
	printf("%-34s %4s %7s %9s %5s %5s %7s %5s %12s %13s %12s\n", "matrices of 200 hosts", "runs", "senders",
	       "receivers", "leafs", "pairs", "missing", "dips", "wrong hosts", "wrong groups", "wrong pairs");
	for (int kind = 0; kind < 4; kind++) {
		bool groups = kind & 1, defects = kind & 2;
		struct counts counts = { 0 };
		unsigned expected = defects ? 2 * SEEDS : 0;
		char text[64];

		for (unsigned seed = 1; seed <= 2 * SEEDS; seed++) {
			struct fleet *fleet = make_fleet(seed, groups);

			measure_fleet(fleet, seed % 2 ? 0.01 : 0.03, defects);
			judge_fleet(&counts, fleet, defects);
			free_fleet(fleet);
		}
		snprintf(text, sizeof(text), "%s, %s", defects ? "defects" : "no defects",
			 groups ? "groups" : "no groups");
		print_counts(text, &counts);
		assert_int_equal(counts.senders, expected);
		assert_int_equal(counts.receivers, expected);
		assert_int_equal(counts.leaves, expected);
		assert_int_equal(counts.pairs, expected);
		assert_int_equal(counts.silent, 2 * expected);
		assert_int_equal(counts.wrong_hosts, 0);
		assert_int_equal(counts.wrong_groups, 0);
		assert_int_equal(counts.wrong_pairs, 0);
	}
}

/* Noise alone stands out nowhere, not even among few hosts. */
static void test_few_hosts(void **state)
{
	static const unsigned sizes[] = { EFFECTS_HOSTS_MIN, 10, 16, 24 };
	struct fleet *fleet = make_fleet(7, false);
	double values[24 * 24], *logarithms;
	struct effects_ranks ranks;
	struct effects effects;

	(void)state;
	for (unsigned run = 0; run < 400; run++) {
		unsigned hosts = sizes[run % 4];

		assert_int_equal(effects_ranks_make(&ranks, fleet->hosts, hosts), 0);
		for (unsigned i = 0; i < hosts * hosts; i++)
			values[i] = USUAL * exp((hosts < 16 ? 0.03 : 0.1) * normal(fleet));
		logarithms = effects_logarithms(values, hosts, EFFECTS_RATE);
		assert_non_null(logarithms);
		assert_true(effects_possible(&ranks, logarithms));
		assert_int_equal(effects_find(&effects, &ranks, logarithms, false), 0);
		if (effects.count)
			fail_msg("%zu effects among %u hosts", effects.count, hosts);
		effects_free(&effects);
		effects_ranks_free(&ranks);
		free(logarithms);
	}
	free_fleet(fleet);
}

/* Fills a matrix of hosts whose numbers are at most `distance` apart on a circle; `died` has results with two hosts. */
static void measure_near_hosts(struct fleet *fleet, double *values, unsigned hosts, unsigned distance, unsigned died)
{
	for (unsigned i = 0; i < hosts * hosts; i++) {
		unsigned from = i / hosts, to = i % hosts, apart = (to + hosts - from) % hosts;
		bool dead = from == died || to == died;
		bool known = apart && CLI_MIN(apart, hosts - apart) <= (dead ? 1 : distance);

		values[i] = known ? USUAL * exp(0.01 * normal(fleet)) : NAN;
	}
}

/* Hosts with few values are not judged, and do not change the judgement of the others. */
static void test_few_values(void **state)
{
	enum { COUNT = 12, DIED = 5, NONE = COUNT };
	static const struct {
		unsigned distance, died;
		bool ring, possible;
	} cases[] = {
		{ COUNT, DIED, false, true }, { COUNT, NONE, false, true }, { 2, NONE, false, true },
		{ 1, NONE, false, false },    { 1, NONE, true, false },     { 2, DIED, false, true },
	};
	struct fleet *fleet = make_fleet(3, false);
	double values[COUNT * COUNT], *logarithms;
	struct effects_ranks ranks;
	struct effects effects;

	(void)state;
	assert_int_equal(effects_ranks_make(&ranks, fleet->hosts, COUNT), 0);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(cases); i++) {
		measure_near_hosts(fleet, values, COUNT, cases[i].distance, cases[i].died);
		for (unsigned j = 0; cases[i].ring && j < COUNT * COUNT; j++)
			if (j % COUNT != (j / COUNT + 1) % COUNT)
				values[j] = NAN;
		logarithms = effects_logarithms(values, COUNT, EFFECTS_RATE);
		assert_non_null(logarithms);
		assert_int_equal(effects_possible(&ranks, logarithms), cases[i].possible);
		assert_int_equal(effects_find(&effects, &ranks, logarithms, false), 0);
		if (effects.count)
			fail_msg("case %zu: %zu effects", i, effects.count);
		assert_true(!cases[i].possible || fabs(exp(effects.usual) / USUAL - 1) < 0.01);
		assert_true(effects.noise < 0.03);
		effects_free(&effects);
		free(logarithms);
	}
	effects_ranks_free(&ranks);
	free_fleet(fleet);
}

/* -- changes ------------------------------------------------------------------------------------------ */

enum { CHANGED_SENDER = 30, BETTER_RECEIVER = 31 };

/* Measures again: the fleet is 3 % slower, one host sends 7 % less, one receives 10 % more, one pair has lost 40 %. */
static void measure_later(struct fleet *fleet, double noise)
{
	measure_fleet(fleet, noise, false);
	for (unsigned from = 0; from < HOSTS; from++)
		for (unsigned to = 0; to < HOSTS; to++) {
			bool pair = (from == PAIR_FROM && to == PAIR_TO) || (from == PAIR_TO && to == PAIR_FROM);

			fleet->values[from * HOSTS + to] *= 0.97 * (from == CHANGED_SENDER ? 0.93 : 1) *
							    (to == BETTER_RECEIVER ? 1.1 : 1) * (pair ? 0.6 : 1);
		}
}

static void check_changes(const struct effects *effects)
{
	static const char *const sentences[] = {
		"host gpu031 receives 10 % more",
		"host gpu030 sends 7 % less",
		"gpu101 to gpu151: 40 % less, and back 40 % less",
	};
	char text[EFFECTS_TEXT];

	assert_int_equal(effects->count - effects->unconfirmed, 3);
	for (size_t i = 0; i < 3; i++) {
		size_t subject = strcspn(sentences[i], "0123456789");

		effects_describe(effects, &effects->list[i], EFFECTS_RATE, true, text);
		assert_true(!strncmp(text, sentences[i], subject + 3));
	}
	assert_true(effects->list[0].receives && !effects->list[0].sends && effects->list[0].receiving > 0.09);
	assert_true(effects->list[1].sends && !effects->list[1].receives &&
		    fabs(effects->list[1].sending + 0.07) < 0.01);
	assert_true(fabs(exp(effects->usual) - 0.97) < 0.003);
	/* Passing dips are in one direction. */
	assert_true(effects->unconfirmed > 50);
}

static void test_changes(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		struct fleet *before = make_fleet(seed, false), *after = make_fleet(seed + 100, false);
		double *ratios;
		struct effects effects;

		measure_fleet(before, seed % 2 ? 0.01 : 0.03, false);
		measure_later(after, seed % 2 ? 0.01 : 0.03);
		for (size_t i = 0; i < HOSTS * HOSTS; i++)
			after->values[i] /= before->values[i];
		ratios = effects_logarithms(after->values, HOSTS, EFFECTS_RATE);
		assert_non_null(ratios);
		assert_int_equal(effects_find(&effects, &after->ranks, ratios, true), 0);
		check_changes(&effects);
		effects_free(&effects);
		free(ratios);
		free_fleet(before);
		free_fleet(after);
	}
}

/* Hosts of a slow group that are as before have not become better. */
static void test_group_that_changed_in_part(void **state)
{
	struct fleet *before = make_fleet(1, true), *after = make_fleet(2, true);
	const unsigned first = SLOW_LEAF * LEAF, end = first + LEAF - 3;
	struct effects effects;
	double *ratios;

	(void)state;
	measure_fleet(before, 0.01, false);
	measure_fleet(after, 0.01, false);
	for (unsigned i = 0; i < HOSTS * HOSTS; i++) {
		unsigned from = i / HOSTS, to = i % HOSTS;

		after->values[i] /= before->values[i];
		if ((from >= first && from < end) != (to >= first && to < end))
			after->values[i] *= 0.8;
	}
	ratios = effects_logarithms(after->values, HOSTS, EFFECTS_RATE);
	assert_non_null(ratios);
	assert_int_equal(effects_find(&effects, &after->ranks, ratios, true), 0);
	assert_int_equal(effects.count - effects.unconfirmed, 1);
	/* The others are dips. */
	for (size_t i = 1; i < effects.count; i++) {
		size_t cell = effects.list[i].at * HOSTS + effects.list[i].to;

		assert_true(before->dips[cell] || after->dips[cell]);
	}
	assert_true(effects.list[0].kind == EFFECT_GROUP && effects.list[0].at == SLOW_LEAF && effects.list[0].outside);
	effects_free(&effects);
	free(ratios);
	free_fleet(before);
	free_fleet(after);
}

/* -- several ranks of a host -------------------------------------------------------------------------- */

enum { RAILS = 8, RAIL_HOSTS = 25, SLOW_RAIL = 5, SLOW_HOST = 9, SLOW_CARD = 7 * RAILS + 3 };

/* A rail whose switch has slow links to the others, a host of which seven ranks of eight are slow, and one slow card. */
static void test_cards_and_rails(void **state)
{
	struct fleet *fleet = calloc(1, sizeof(*fleet));
	static const char *const sentences[] = { "group node[00-24] of 25 hosts sends and receives at 70",
						 "host node09 sends at 60",
						 "rank 59 (number 3 of host node07) receives at 50" };
	struct effects effects;
	char text[EFFECTS_TEXT];
	double *logarithms;

	(void)state;
	assert_non_null(fleet);
	for (unsigned i = 0; i < HOSTS; i++) {
		snprintf(fleet->names[i], sizeof(fleet->names[i]), "node%02u", i / RAILS);
		fleet->hosts[i] = fleet->names[i];
	}
	assert_int_equal(effects_ranks_make(&fleet->ranks, fleet->hosts, HOSTS), 0);
	assert_int_equal(fleet->ranks.host_count, RAIL_HOSTS);
	measure_fleet(fleet, 0.01, false);
	for (unsigned from = 0; from < HOSTS; from++)
		for (unsigned to = 0; to < HOSTS; to++)
			fleet->values[from * HOSTS + to] *=
				(from / RAILS == SLOW_HOST && from % RAILS != SLOW_RAIL ? 0.6 : 1) *
				(to == SLOW_CARD ? 0.5 : 1) *
				((from % RAILS == SLOW_RAIL) != (to % RAILS == SLOW_RAIL) ? 0.7 : 1);
	logarithms = effects_logarithms(fleet->values, HOSTS, EFFECTS_RATE);
	assert_non_null(logarithms);
	assert_int_equal(effects_find(&effects, &fleet->ranks, logarithms, false), 0);
	assert_true(effects.count > 3 && effects.list[3].kind == EFFECT_PAIR);
	for (size_t i = 0; i < 3; i++) {
		effects_describe(&effects, &effects.list[i], EFFECTS_RATE, false, text);
		if (strncmp(text, sentences[i], strlen(sentences[i]) - 2))
			fail_msg("%s\nnot: %s", text, sentences[i]);
	}
	effects_free(&effects);
	free(logarithms);
	free_fleet(fleet);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_planted_defects), cmocka_unit_test(test_few_hosts),
		cmocka_unit_test(test_changes),         cmocka_unit_test(test_group_that_changed_in_part),
		cmocka_unit_test(test_cards_and_rails), cmocka_unit_test(test_few_values),
	};

	cmocka_set_test_filter(getenv("TEST_CASES"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
