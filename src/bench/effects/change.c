/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/effects/change.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ranks of two matrices, and which of them are the same. */
struct match {
	const struct effects_matrix *matrices[2];
	struct effects_ranks ranks[2];
	size_t *same[2]; /* by matched rank: its rank in each matrix */
	bool *known[2];  /* by host: it has a result with another host */
	size_t count;
};

static bool have_same_memory(const struct match *match, size_t a, size_t b)
{
	const char *const *first = match->matrices[0]->memory, *const *second = match->matrices[1]->memory;

	return !first || !second || !first[a] || !second[b] || !strcmp(first[a], second[b]);
}

/* Returns the host of this name; EFFECTS_NONE: there is none.  Host names are sorted. */
static size_t find_host(const struct effects_ranks *ranks, const char *name)
{
	size_t low = 0, high = ranks->host_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strverscmp(ranks->host_names[middle], name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < ranks->host_count && !strcmp(ranks->host_names[low], name) ? low : EFFECTS_NONE;
}

/* Returns the rank of the first matrix that is the same as one of the second. */
static size_t find_same_rank(const struct match *match, size_t rank)
{
	const struct effects_ranks *before = &match->ranks[0], *after = &match->ranks[1];
	size_t host = find_host(before, after->host_names[after->host[rank]]);

	for (size_t i = 0; host != EFFECTS_NONE && i < before->count; i++)
		if (before->host[i] == host && before->rank_on_host[i] == after->rank_on_host[rank] &&
		    have_same_memory(match, i, rank))
			return i;
	return EFFECTS_NONE;
}

static int match_ranks(struct match *match)
{
	size_t count = match->matrices[1]->count;

	for (int side = 0; side < 2; side++)
		match->same[side] = malloc((count + 1) * sizeof(*match->same[side]));
	if (!match->same[0] || !match->same[1])
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		size_t same = find_same_rank(match, i);

		if (same == EFFECTS_NONE)
			continue;
		match->same[0][match->count] = same;
		match->same[1][match->count++] = i;
	}
	return 0;
}

static int name_matched_ranks(struct effects_change *change, const struct match *match)
{
	const char **hosts = malloc((match->count + 1) * sizeof(*hosts));
	int rc = -ENOMEM;

	for (size_t i = 0; hosts && i < match->count; i++)
		hosts[i] = match->ranks[1].host_names[match->ranks[1].host[match->same[1][i]]];
	if (hosts)
		rc = effects_ranks_make(&change->ranks, hosts, match->count);
	free(hosts);
	return rc;
}

/* Marks the hosts that have a result with another host. */
static int mark_known_hosts(struct match *match, int side)
{
	const struct effects_matrix *matrix = match->matrices[side];
	const size_t *hosts = match->ranks[side].host;

	match->known[side] = calloc(match->ranks[side].host_count + 1, sizeof(bool));
	if (!match->known[side])
		return -ENOMEM;
	for (int unit = 0; unit < EFFECTS_UNITS; unit++)
		for (size_t i = 0; matrix->values[unit] && i < matrix->count * matrix->count; i++) {
			size_t from = hosts[i / matrix->count], to = hosts[i % matrix->count];

			if (from != to && matrix->values[unit][i] > 0)
				match->known[side][from] = match->known[side][to] = true;
		}
	return 0;
}

static bool is_host_known(const struct match *match, int side, size_t host)
{
	return host != EFFECTS_NONE && match->known[side][host];
}

/* Names the hosts that only one matrix has results of. */
static int name_other_hosts(struct effects_change *change, const struct match *match, int side)
{
	const struct effects_ranks *ranks = &match->ranks[side];
	size_t *hosts = malloc((ranks->host_count + 1) * sizeof(*hosts)), count = 0;
	char text[EFFECTS_TEXT];

	if (!hosts)
		return -ENOMEM;
	for (size_t host = 0; host < ranks->host_count; host++)
		if (is_host_known(match, side, host) &&
		    !is_host_known(match, !side, find_host(&match->ranks[!side], ranks->host_names[host])))
			hosts[count++] = host;
	effects_fold_hosts(ranks, hosts, count, text, sizeof(text));
	free(hosts);
	change->only[side] = count ? strdup(text) : NULL;
	return count && !change->only[side] ? -ENOMEM : 0;
}

static double matched_value(const struct match *match, int side, int unit, size_t from, size_t to)
{
	const struct effects_matrix *matrix = match->matrices[side];

	return matrix->values[unit][match->same[side][from] * matrix->count + match->same[side][to]];
}

/* Computes the ratios of one quantity, and the medians of both matrices over the same pairs. */
static int compute_ratios(struct effects_change *change, const struct match *match, int unit)
{
	size_t count = match->count, cells = count * count;
	double *values[2] = { calloc(cells + 1, sizeof(double)), calloc(cells + 1, sizeof(double)) };
	double *ratios = malloc((cells + 1) * sizeof(*ratios));
	int rc = values[0] && values[1] && ratios ? 0 : -ENOMEM;

	for (size_t i = 0; rc == 0 && i < cells; i++) {
		double before = matched_value(match, 0, unit, i / count, i % count);
		double after = matched_value(match, 1, unit, i / count, i % count);
		bool known = before > 0 && after > 0;
		bool between = known && change->ranks.host[i / count] != change->ranks.host[i % count];

		ratios[i] = !known ? NAN : unit == EFFECTS_LATENCY ? log(before / after) : log(after / before);
		change->pairs[unit] += between;
		values[0][i] = between ? before : NAN;
		values[1][i] = between ? after : NAN;
	}
	if (rc == 0) {
		change->before[unit] = effects_median(values[0], cells);
		change->after[unit] = effects_median(values[1], cells);
		change->ratios[unit] = ratios;
		ratios = NULL;
	}
	free(values[0]);
	free(values[1]);
	free(ratios);
	return rc;
}

int effects_change_match(struct effects_change *change, const struct effects_matrix *before,
			 const struct effects_matrix *after)
{
	struct match match = { .matrices = { before, after } };
	int rc = 0;

	*change = (struct effects_change){ .ratios = { NULL } };
	for (int side = 0; rc == 0 && side < 2; side++)
		rc = effects_ranks_make(&match.ranks[side], match.matrices[side]->hosts, match.matrices[side]->count);
	for (int side = 0; rc == 0 && side < 2; side++)
		rc = mark_known_hosts(&match, side);
	if (rc == 0)
		rc = match_ranks(&match);
	if (rc == 0)
		rc = name_matched_ranks(change, &match);
	for (int side = 0; rc == 0 && side < 2; side++)
		rc = name_other_hosts(change, &match, side);
	for (int unit = 0; rc == 0 && unit < EFFECTS_UNITS; unit++)
		if (before->values[unit] && after->values[unit])
			rc = compute_ratios(change, &match, unit);
	for (int side = 0; side < 2; side++) {
		effects_ranks_free(&match.ranks[side]);
		free(match.same[side]);
		free(match.known[side]);
	}
	if (rc < 0)
		effects_change_free(change);
	return rc;
}

bool effects_change_possible(const struct effects_change *change)
{
	for (int unit = 0; unit < EFFECTS_UNITS; unit++)
		if (change->ratios[unit] && effects_possible(&change->ranks, change->ratios[unit]))
			return true;
	return false;
}

int effects_change_find(struct effects_change *change)
{
	int rc = 0;

	for (int unit = 0; rc == 0 && unit < EFFECTS_UNITS; unit++)
		if (change->ratios[unit] && effects_possible(&change->ranks, change->ratios[unit]))
			rc = effects_find(&change->effects[unit], &change->ranks, change->ratios[unit], true);
	return rc;
}

double effects_change_noise(const struct effects_change *change, enum effects_unit unit)
{
	/* Five standard errors of the median, as for the effects of ranks. */
	return 5 * 1.25 * change->effects[unit].noise / sqrt((double)CLI_MAX(change->pairs[unit], (size_t)1));
}

void effects_change_free(struct effects_change *change)
{
	for (int unit = 0; unit < EFFECTS_UNITS; unit++) {
		effects_free(&change->effects[unit]);
		free(change->ratios[unit]);
	}
	effects_ranks_free(&change->ranks);
	free(change->only[0]);
	free(change->only[1]);
	*change = (struct effects_change){ .ratios = { NULL } };
}
