/* SPDX-License-Identifier: BSD-2-Clause */
/* Heat maps of the changes between the last two matrices. */
#include <stdlib.h>

#include "report/host_map.h"

/* Returns the factors of a quantity, larger ones are better; to be freed.  NULL: no memory. */
static double *change_factors(const struct effects_change *change, enum effects_unit unit)
{
	size_t cells = change->ranks.count * change->ranks.count;
	double *factors = malloc((cells + 1) * sizeof(*factors));

	for (size_t i = 0; factors && i < cells; i++)
		factors[i] = exp(change->ratios[unit][i]);
	return factors;
}

static int write_change_map(const struct host_map *of, const struct effects_change *change, FILE *file)
{
	struct host_map map = *of;
	double *factors = change_factors(change, map.unit);
	/* Larger factors are better, of latencies as well. */
	bool latency = map.unit == EFFECTS_LATENCY;
	int rc;

	if (!factors)
		return -ENOMEM;
	map.values = factors;
	map.effects = &change->effects[map.unit];
	host_map_measure(&map);
	fprintf(file, "<details%s><summary>Changes of %s since ", map.effects->count ? " open=\"open\"" : "",
		latency ? "latency" : "bandwidth");
	report_escape(file, map.before->name, 80);
	fputs(map.effects->count ? "</summary>\n" : ": no host and no pair stands out</summary>\n", file);
	rc = host_map_write(&map, file);
	fputs("</details>\n", file);
	free(factors);
	return rc;
}

static int write_changes(const struct report *report, struct effects_change *change, struct host_map *map, FILE *file)
{
	struct report_judgement judgement = { .order = NULL };
	struct pl_error error;
	int rc = report->groups ? effects_ranks_read_groups(&change->ranks, report->groups, &error) : 0;

	if (rc == 0)
		rc = effects_change_find(change);
	/* The ranks stay those of the change. */
	judgement.ranks = change->ranks;
	if (rc == 0)
		rc = report_order_ranks(&judgement);
	map->judgement = &judgement;
	map->count = change->ranks.count;
	for (int unit = 0; rc == 0 && unit < EFFECTS_UNITS; unit++) {
		map->unit = (enum effects_unit)unit;
		if (change->effects[unit].ranks && change->ratios[unit])
			rc = write_change_map(map, change, file);
	}
	free(judgement.order);
	return rc;
}

int report_write_change_maps(const struct report *report, const struct report_hosts *hosts, FILE *file)
{
	const struct report_document *before, *after = report_last_matrix(report, &before);
	struct host_map map = { .document = after, .before = before, .hosts = hosts };
	struct effects_change change;
	int rc;

	if (!before || !report_has_map(after) || before->matrix.size != after->matrix.size)
		return 0;
	rc = effects_change_match(&change,
				  &(struct effects_matrix){ .count = before->matrix.ranks,
							    .hosts = before->matrix.labels,
							    .values = { before->matrix.rate, before->matrix.latency } },
				  &(struct effects_matrix){ .count = after->matrix.ranks,
							    .hosts = after->matrix.labels,
							    .values = { after->matrix.rate, after->matrix.latency } });
	if (rc < 0)
		return rc;
	if (effects_change_possible(&change) && change.ranks.count >= REPORT_MAP_RANKS_MIN)
		rc = write_changes(report, &change, &map, file);
	effects_change_free(&change);
	return rc;
}
