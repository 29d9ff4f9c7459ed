/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/matrix/matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/common/numbers.h"

/* Limits beyond which a pair is slow: robust standard deviations, and factors of the median. */
#define DEVIATIONS 5
#define DEVIATION_OF_NORMAL 1.4826
#define RATE_FACTOR 1.25
#define LATENCY_FACTOR 1.25
/* Two steps of the clock, in microseconds: a smaller difference of latencies is none. */
#define LATENCY_STEPS 0.02

int matrix_rounds(int size)
{
	return size % 2 ? size : size - 1;
}

/* Circle method: one rank keeps its position, the others rotate. */
int matrix_partner(int size, int round, int rank)
{
	int even = size + size % 2, last = even - 1, partner;

	if (rank == last)
		partner = round * (even / 2) % last;
	else
		partner = ((round - rank) % last + last) % last;
	if (partner == rank)
		partner = last;
	return partner < size ? partner : -1;
}

static bool is_same_host(const struct matrix_rank *one, const struct matrix_rank *other)
{
	return !strcmp(one->host, other->host) && !strcmp(one->boot_id, other->boot_id);
}

/* Returns the number of hosts before a rank's host with its name. */
static int count_namesakes(const struct matrix *matrix, int rank)
{
	int count = 0;

	for (int i = 0; i < rank; i++)
		count += matrix->hosts[i] == i && *matrix->ranks[i].host && matrix->hosts[rank] != i &&
			 !strcmp(matrix->ranks[i].host, matrix->ranks[rank].host);
	return count;
}

void matrix_find_hosts(struct matrix *matrix)
{
	for (int i = 0; i < matrix->size; i++) {
		int first = 0;

		while (!is_same_host(&matrix->ranks[first], &matrix->ranks[i]))
			first++;
		matrix->hosts[i] = first;
	}
	/* From the last one on, as names before a rank are compared. */
	for (int i = matrix->size - 1; i >= 0; i--) {
		int before = count_namesakes(matrix, matrix->hosts[i]);
		char *host = matrix->ranks[i].host, number[16];
		size_t room;

		if (!before)
			continue;
		room = MATRIX_HOST - 1 - (size_t)snprintf(number, sizeof(number), "#%d", before + 1);
		strcpy(host + CLI_MIN(strlen(host), room), number);
	}
}

int matrix_turn(const struct matrix *matrix, int round, int rank, int *turns)
{
	int *next = calloc((size_t)matrix->size, sizeof(*next)), mine = INT32_MAX;

	if (!next)
		return -ENOMEM;
	*turns = 0;
	/* A pair's turn is the first one after all turns of its two hosts; every rank computes the same. */
	for (int i = 0; i < matrix->size; i++) {
		int partner = matrix_partner(matrix->size, round, i), turn;

		if (partner < i || (matrix->measured && matrix->measured[i * matrix->size + partner]) ||
		    !matrix_has_rank(matrix, i) || !matrix_has_rank(matrix, partner))
			continue;
		turn = CLI_MAX(next[matrix->hosts[i]], next[matrix->hosts[partner]]);
		next[matrix->hosts[i]] = next[matrix->hosts[partner]] = turn + 1;
		*turns = CLI_MAX(*turns, turn + 1);
		if (i == rank || partner == rank)
			mine = turn;
	}
	free(next);
	return mine;
}

const char *matrix_schedule_name(enum matrix_schedule schedule)
{
	static const char *const names[] = {
		[MATRIX_PAIRS] = "pairs",
		[MATRIX_RING] = "ring",
		[MATRIX_ALL_TO_ALL] = "all-to-all",
		[MATRIX_ONE_TO_ALL] = "one-to-all",
	};

	return names[schedule];
}

int matrix_phases(enum matrix_schedule schedule)
{
	return schedule == MATRIX_PAIRS || schedule == MATRIX_ONE_TO_ALL ? 2 : 1;
}

/* Returns the next rank of a ring without the ranks that are left out. */
static int next_in_ring(const struct matrix *matrix, int rank)
{
	int next = (rank + 1) % matrix->size;

	while (!matrix_has_rank(matrix, next) && next != rank)
		next = (next + 1) % matrix->size;
	return next;
}

bool matrix_writes(const struct matrix *matrix, enum matrix_schedule schedule, int phase, int from, int to)
{
	if (from == to || !matrix_has_rank(matrix, from) || !matrix_has_rank(matrix, to))
		return false;
	switch (schedule) {
	case MATRIX_RING:
		return next_in_ring(matrix, from) == to;
	case MATRIX_ALL_TO_ALL:
		return true;
	case MATRIX_ONE_TO_ALL:
		return phase == 0 ? from == 0 : to == 0;
	default:
		return false;
	}
}

bool matrix_is_measured(const struct matrix *matrix, enum matrix_schedule schedule)
{
	for (int from = 0; from < matrix->size; from++)
		for (int to = 0; to < matrix->size; to++)
			for (int phase = 0; phase < matrix_phases(schedule); phase++)
				if (matrix_writes(matrix, schedule, phase, from, to) &&
				    !matrix->measured[(size_t)from * (size_t)matrix->size + (size_t)to])
					return false;
	return true;
}

int matrix_spread_round(int rounds, int wanted, int number)
{
	return wanted > 0 && wanted < rounds ? (int)((int64_t)number * rounds / wanted) : number;
}

const char *matrix_copy_rail(const char *list, int number, char *rail, size_t size)
{
	for (; list && number > 0; number--)
		list = strchr(list, ',') ? strchr(list, ',') + 1 : "";
	if (list)
		snprintf(rail, size, "%.*s", (int)strcspn(list, ","), list);
	return list ? rail : NULL;
}

static double unsorted_median(double *values, size_t count)
{
	if (!count)
		return NAN;
	qsort(values, count, sizeof(*values), bench_compare_doubles);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static bool is_same_host_pair(const struct matrix *matrix, size_t index)
{
	size_t ranks = (size_t)matrix->size;

	return matrix->hosts[index / ranks] == matrix->hosts[index % ranks];
}

static double cell_value(const struct matrix *matrix, size_t index, bool latency)
{
	return latency ? matrix->cells[index].latency_us : matrix->cells[index].bytes_per_second;
}

/*
 * Returns the logarithm of how many times worse a value is than the median.  Logarithms find outliers even if the other
 * values vary much.
 */
static double log_slowness(double value, double median, bool latency)
{
	return latency ? log(value / median) : log(median / value);
}

/* True if a latency exceeds the median by no more than the clock can tell. */
static bool is_within_clock_steps(double value, double median, bool latency)
{
	/* A thousandth for the rounding of the difference. */
	return latency && value - median <= LATENCY_STEPS * 1.001;
}

static bool cell_counts(const struct matrix *matrix, size_t index, bool latency, bool one_host)
{
	return is_same_host_pair(matrix, index) == one_host && cell_value(matrix, index, latency) > 0;
}

/* Judges pairs within hosts, or pairs between hosts: their routes differ. */
static void judge_pairs(struct matrix *matrix, bool latency, bool one_host, double *values)
{
	size_t cells = (size_t)matrix->size * (size_t)matrix->size, count = 0;
	double median, limit;

	for (size_t i = 0; i < cells; i++)
		if (cell_counts(matrix, i, latency, one_host))
			values[count++] = cell_value(matrix, i, latency);
	median = unsorted_median(values, count);
	for (size_t i = 0; i < count; i++)
		values[i] = fabs(log_slowness(values[i], median, latency));
	limit = DEVIATIONS * DEVIATION_OF_NORMAL * unsorted_median(values, count);
	limit = fmax(limit, log(latency ? LATENCY_FACTOR : RATE_FACTOR));
	for (size_t i = 0; i < cells; i++) {
		double value = cell_value(matrix, i, latency);

		if (cell_counts(matrix, i, latency, one_host) && log_slowness(value, median, latency) > limit &&
		    !is_within_clock_steps(value, median, latency))
			matrix->slow[matrix->slow_count++] =
				(struct matrix_slow){ (int)(i / (size_t)matrix->size), (int)(i % (size_t)matrix->size),
						      latency, value, median };
	}
	*(latency ? &matrix->medians[one_host].latency_us : &matrix->medians[one_host].bytes_per_second) = median;
}

int matrix_judge(struct matrix *matrix)
{
	size_t cells = (size_t)matrix->size * (size_t)matrix->size;
	double *values = calloc(cells, sizeof(*values));

	free(matrix->slow);
	matrix->slow_count = 0;
	matrix->slow = calloc(2 * cells, sizeof(*matrix->slow));
	if (values && matrix->slow) {
		for (int kind = 0; kind < 4; kind++)
			judge_pairs(matrix, kind & 1, kind & 2, values);
	}
	free(values);
	return values && matrix->slow ? 0 : -ENOMEM;
}

bool matrix_has_pair(const struct matrix *matrix, int from, int to)
{
	const struct matrix_cell *there = matrix_cell(matrix, from, to), *back = matrix_cell(matrix, to, from);

	return there->latency_us > 0 && there->bytes_per_second > 0 && back->latency_us > 0 &&
	       back->bytes_per_second > 0;
}

unsigned matrix_count_pairs(const struct matrix *matrix)
{
	unsigned count = 0;

	for (int from = 0; from < matrix->size; from++)
		for (int to = 0; to < from; to++)
			count += matrix_has_pair(matrix, from, to);
	return count;
}
