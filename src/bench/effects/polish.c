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

/* Moves the median of one row or column from the rests into its effect.  `step` leads to its next value. */
static void polish_line(double *rest, size_t step, size_t count, double *effect, double *room)
{
	size_t known = 0;
	double median;

	for (size_t i = 0; i < count; i++)
		if (!isnan(rest[i * step]))
			room[known++] = rest[i * step];
	if (known < VALUES_MIN) {
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

int effects_polish(struct effects *effects)
{
	size_t count = effects->ranks->count;
	double *room = malloc((count + 1) * sizeof(*room));

	if (!room)
		return -ENOMEM;
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
