/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/topo/judge.h"

#include <stdio.h>
#include <string.h>

#include "cmd/common/prometheus.h"

/* True for rows about what the topology shows; gpu-count and card-driver judge --expect gpus and cards. */
static bool is_topo_row(const struct pl_check_row *row)
{
	static const char *const groups[] = { "Path", "Platform", "Expected" };

	for (size_t i = 0; i < CLI_ARRAY_SIZE(groups); i++)
		if (!strcmp(row->group, groups[i]))
			return true;
	return !strcmp(row->id, "gpu-count") || !strcmp(row->id, "card-driver");
}

/* Begins a sample with the labels of a GPU and a card. */
static void begin_path(FILE *file, const char *metric, const struct pl_topology *topology, const struct pl_path *path)
{
	const struct pl_gpu *gpu = &topology->gpus[path->gpu];

	prometheus_begin(file, metric, "gpu", topology->nodes[gpu->node].address);
	prometheus_label(file, "card", topo_card_label(topology, (size_t)path->card));
}

static void write_topo_metrics(FILE *file, const void *user)
{
	const struct topo_view *view = user;
	const struct pl_topology *topology = view->topology;

	prometheus_describe(file, "topo_path_info", "gauge",
			    "Class of the path between a GPU and a card; the value is 1.");
	for (size_t i = 0; i < topology->path_count; i++) {
		begin_path(file, "topo_path_info", topology, &topology->paths[i]);
		prometheus_label(file, "class", pl_path_class_name(topology->paths[i].class));
		prometheus_label(file, "best", topology->paths[i].best ? "yes" : "no");
		prometheus_end(file, 1);
	}
	prometheus_describe(file, "topo_path_rate_bytes_per_second", "gauge",
			    "Rate of the narrowest link between a GPU and a card, now.");
	for (size_t i = 0; i < topology->path_count; i++) {
		if (!topology->paths[i].bandwidth)
			continue;
		begin_path(file, "topo_path_rate_bytes_per_second", topology, &topology->paths[i]);
		prometheus_end(file, topology->paths[i].bandwidth);
	}
}

int topo_judge_begin(struct check_run *run, struct check *check, const struct topo_view *view, struct pl_error *error)
{
	char summary[TOPO_TEXT];
	int rc = check_judge_begin(run, check, error);

	if (rc < 0)
		return rc;
	pl_check_report_keep(&run->report, is_topo_row);
	snprintf(run->report.summary, sizeof(run->report.summary), "%s", topo_summary(view->topology, summary));
	check->write_metrics = write_topo_metrics;
	check->user = view;
	return 0;
}
