/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/common/numbers.h"
#include "bench/effects/effects.h"

#define SWEEPS 4
#define VALUES_MIN 3 /* of a rank; fewer have no median that says something */
#define DEVIATION_OF_NORMAL 1.4826
#define NOISE_TAKEN 2.6
#define NOISE_LEFT_MIN 0.3

double effects_median(double *values, size_t count)
{
	size_t known = 0;

	for (size_t i = 0; i < count; i++)
		if (!isnan(values[i]))
			values[known++] = values[i];
	if (!known)
		return NAN;
	qsort(values, known, sizeof(*values), bench_compare_doubles);
	return (values[(known - 1) / 2] + values[known / 2]) / 2;
}

double effects_deviation(double *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		values[i] = fabs(values[i]);
	return DEVIATION_OF_NORMAL * effects_median(values, count);
}

/* Copies the values of pairs between hosts. */
static void copy_values_between_hosts(const struct effects_ranks *ranks, const double *values, double *to)
{
	for (size_t i = 0; i < ranks->count * ranks->count; i++)
		to[i] = ranks->host[i / ranks->count] == ranks->host[i % ranks->count] ? NAN : values[i];
}

size_t effects_count_values(const double *line, size_t step, size_t count)
{
	size_t known = 0;

	for (size_t i = 0; i < count; i++)
		known += !isnan(line[i * step]);
	return known;
}

/*
 * Leaves out the values of rows and columns with too few of them: without an effect of their rank they tell nothing of
 * their pairs.  This may make further lines short.
 */
static void leave_out_short_lines(double *values, size_t count)
{
	bool again = true;

	while (again) {
		again = false;
		for (size_t i = 0; i < 2 * count; i++) {
			double *line = i < count ? values + i * count : values + i - count;
			size_t step = i < count ? 1 : count, known = effects_count_values(line, step, count);

			if (!known || known >= VALUES_MIN)
				continue;
			for (size_t j = 0; j < count; j++)
				line[j * step] = NAN;
			again = true;
		}
	}
}

/* True if a rank of the host has values as sender and as receiver. */
static bool has_host_lines(const struct effects_ranks *ranks, const double *values, size_t host)
{
	size_t count = ranks->count;

	for (size_t i = 0; i < count; i++)
		if (ranks->host[i] == host && effects_count_values(values + i * count, 1, count) &&
		    effects_count_values(values + i, count, count))
			return true;
	return false;
}

bool effects_possible(const struct effects_ranks *ranks, const double *values)
{
	double *left = malloc((ranks->count * ranks->count + 1) * sizeof(*left));
	size_t hosts = 0;

	if (!left)
		return false;
	copy_values_between_hosts(ranks, values, left);
	leave_out_short_lines(left, ranks->count);
	for (size_t host = 0; host < ranks->host_count && hosts < EFFECTS_HOSTS_MIN; host++)
		hosts += has_host_lines(ranks, left, host);
	free(left);
	return hosts >= EFFECTS_HOSTS_MIN;
}

bool effects_judge_schedule(const char *schedule)
{
	return !schedule || !strcmp(schedule, "pairs") || !strcmp(schedule, "all-to-all");
}

/* Moves the median of one row or column from the rests into its effect.  `step` leads to its next value. */
static void polish_line(double *rest, size_t step, size_t count, double *effect, double *room)
{
	size_t known = 0;
	double median;

	for (size_t i = 0; i < count; i++)
		if (!isnan(rest[i * step]))
			room[known++] = rest[i * step];
	if (!known) {
		*effect = NAN;
		return;
	}
	median = effects_median(room, known);
	*effect += median;
	for (size_t i = 0; i < count; i++)
		rest[i * step] -= median;
}

/* Moves the median of all effects of one direction into the usual value. */
static void centre_effects(double *usual, double *effects, size_t count, double *room)
{
	double median;

	memcpy(room, effects, count * sizeof(*room));
	median = effects_median(room, count);
	if (isnan(median))
		return;
	*usual += median;
	for (size_t i = 0; i < count; i++)
		effects[i] -= median;
}

int effects_polish(struct effects *effects, const double *values)
{
	size_t count = effects->ranks->count;
	double *room = malloc((count + 1) * sizeof(*room));

	if (!room)
		return -ENOMEM;
	copy_values_between_hosts(effects->ranks, values, effects->rest);
	leave_out_short_lines(effects->rest, count);
	effects->usual = 0;
	for (int sweep = 0; sweep < SWEEPS; sweep++) {
		for (size_t i = 0; i < count; i++)
			polish_line(effects->rest + i * count, 1, count, &effects->send[i], room);
		centre_effects(&effects->usual, effects->send, count, room);
		for (size_t i = 0; i < count; i++)
			polish_line(effects->rest + i, count, count, &effects->receive[i], room);
		centre_effects(&effects->usual, effects->receive, count, room);
	}
	free(room);
	return 0;
}

/*
 * Computes the deviation of the rests.  Medians of short lines take a part of the noise out of the rests: with n values
 * in each line, a part of 1 - 2.6 / (n + 1) stays, as simulated for 5 to 200 values.
 */
void effects_measure_noise(struct effects *effects)
{
	size_t count = effects->ranks->count, known = 0, lines = 0;
	double *copy = malloc((count * count + 1) * sizeof(*copy)), noise = NAN;

	for (size_t i = 0; copy && i < count; i++) {
		size_t before = known;

		for (size_t j = 0; j < count; j++)
			if (!isnan(effects->rest[i * count + j]))
				copy[known++] = effects->rest[i * count + j];
		lines += known > before;
	}
	if (copy && known)
		noise = effects_deviation(copy, known) /
			fmax(NOISE_LEFT_MIN, 1 - NOISE_TAKEN / ((double)known / (double)lines + 1));
	free(copy);
	effects->noise = isnan(noise) ? 0 : noise;
}
