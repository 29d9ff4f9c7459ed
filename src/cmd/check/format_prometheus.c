/* SPDX-License-Identifier: BSD-2-Clause */
/* Metrics for the textfile collector of Prometheus' node_exporter: base units, and no time stamps. */
#include <string.h>

#include "cmd/check/check.h"
#include "cmd/common/prometheus.h"

/* Writes the lines that describe a gauge. */
static void describe_gauge(FILE *file, const char *metric, const char *help)
{
	prometheus_describe(file, metric, "gauge", help);
}

/*
 * Metric of a command: "check_status", "topo_status", "routes_status".  The collector refuses a series that two files of
 * its folder have.
 */
struct command_metric {
	char name[64];
};

static struct command_metric command_metric(const struct check *check, const char *name)
{
	static const char *const commands[] = { "check", "topo", "routes" };
	struct command_metric metric;

	snprintf(metric.name, sizeof(metric.name), "%s_%s", commands[check->command], name);
	return metric;
}

/* Describes a metric of a command, and returns its name. */
static struct command_metric describe_command_gauge(FILE *file, const struct check *check, const char *name,
						    const char *help)
{
	struct command_metric metric = command_metric(check, name);

	describe_gauge(file, metric.name, help);
	return metric;
}

const char *check_metric_status(enum pl_check_status status)
{
	static const char *const names[] = { "none", "ok", "unknown", "warn", "fail" };

	return names[status];
}

static void write_statuses(FILE *file, const struct pl_check_report *report, const struct check *check)
{
	struct command_metric metric =
		describe_command_gauge(file, check, "status", "1 for the present status of a check, 0 for the others.");
	size_t findings[PL_CHECK_FAIL + 1] = { 0 };

	for (size_t i = 0; i < report->count; i++) {
		const struct pl_check_result *result = &report->results[i];

		for (size_t j = 0; j < result->count; j++)
			findings[result->findings[j].status] += !result->findings[j].accepted;
		for (size_t j = 0; j < CLI_ARRAY_SIZE(findings); j++) {
			prometheus_begin(file, metric.name, "check", result->row->id);
			prometheus_label(file, "group", result->row->group);
			prometheus_label(file, "status", check_metric_status(j));
			prometheus_end(file, result->status == j);
		}
	}
	metric = describe_command_gauge(file, check, "findings", "Findings with this status that count.");
	for (size_t j = PL_CHECK_OK; j < CLI_ARRAY_SIZE(findings); j++) {
		prometheus_begin(file, metric.name, "status", check_metric_status(j));
		prometheus_end(file, findings[j]);
	}
}

static void write_verdict(FILE *file, enum pl_check_verdict verdict)
{
	describe_gauge(file, "check_verdict", "1 for the present verdict of the check, 0 for the others.");
	for (int i = PL_CHECK_READY; i <= PL_CHECK_NO_RDMA; i++) {
		prometheus_begin(file, "check_verdict", "verdict", pl_check_verdict_name(i));
		prometheus_end(file, verdict == (enum pl_check_verdict)i);
	}
}

static void write_run(FILE *file, const struct check_run *run, const struct check *check)
{
	struct command_metric metric =
		describe_command_gauge(file, check, "duration_seconds", "Time that the check took.");

	fprintf(file, "peerlane_%s %.6f\n", metric.name, (double)run->duration / CLI_NS_PER_S);
	metric = describe_command_gauge(file, check, "last_success_timestamp_seconds",
					"Time at which the last check that ended began, since 1970.");
	fprintf(file, "peerlane_%s %.3f\n", metric.name, (double)run->wall / CLI_NS_PER_S);
	metric = describe_command_gauge(file, check, "accepted",
					"Findings that the operator accepts, and that do not count.");
	fprintf(file, "peerlane_%s %zu\n", metric.name, pl_check_count(&run->report).accepted);
}

static const char *rdma_layer(const struct pl_inventory *inventory, const char *device)
{
	for (size_t i = 0; i < inventory->port_count; i++)
		if (!strcmp(inventory->ports[i].device, device) && *inventory->ports[i].layer)
			return inventory->ports[i].layer;
	return "";
}

static void write_devices(FILE *file, const struct pl_inventory *inventory)
{
	char number[24];

	describe_gauge(file, "gpus", "GPUs on the PCI bus.");
	fprintf(file, "peerlane_gpus %zu\n", inventory->gpu_count);
	describe_gauge(file, "cards", "RDMA cards on the PCI bus.");
	fprintf(file, "peerlane_cards %zu\n", inventory->card_count);
	describe_gauge(file, "gpu_info", "Model and NUMA node of a GPU, -1 if the node is not known; the value is 1.");
	for (size_t i = 0; i < inventory->gpu_count; i++) {
		snprintf(number, sizeof(number), "%d", inventory->gpus[i].numa);
		prometheus_begin(file, "gpu_info", "pci", inventory->gpus[i].address);
		prometheus_label(file, "model", inventory->gpus[i].model);
		prometheus_label(file, "numa", number);
		prometheus_end(file, 1);
	}
	describe_gauge(file, "device_info", "Card, firmware and link layer of an RDMA device; the value is 1.");
	for (size_t i = 0; i < inventory->device_count; i++) {
		prometheus_begin(file, "device_info", "device", inventory->devices[i].name);
		prometheus_label(file, "pci", inventory->devices[i].address);
		prometheus_label(file, "firmware", inventory->devices[i].firmware);
		prometheus_label(file, "layer", rdma_layer(inventory, inventory->devices[i].name));
		prometheus_end(file, 1);
	}
	describe_gauge(file, "port_rate_bytes_per_second", "Rate of an RDMA port in one direction.");
	for (size_t i = 0; i < inventory->port_count; i++) {
		if (!inventory->ports[i].rate)
			continue;
		snprintf(number, sizeof(number), "%u", inventory->ports[i].number);
		prometheus_begin(file, "port_rate_bytes_per_second", "device", inventory->ports[i].device);
		prometheus_label(file, "port", number);
		prometheus_end(file, inventory->ports[i].rate);
	}
}

/* Writes the widths, or the speeds, of the links of GPUs and cards. */
static void write_links(FILE *file, const struct pl_inventory *inventory, bool widths)
{
	const char *metric = widths ? "pcie_width_lanes" : "pcie_speed_transfers_per_second";
	size_t gpus = inventory->gpu_count;

	describe_gauge(file, metric,
		       widths ? "Lanes of the PCI Express link of a GPU or card, now."
			      : "Speed of the PCI Express link of a GPU or card, now; an idle GPU lowers its speed.");
	for (size_t i = 0; i < gpus + inventory->card_count; i++) {
		const struct pl_inventory_device *device = i < gpus ? &inventory->gpus[i] : &inventory->cards[i - gpus];
		uint64_t value = widths ? device->link.width : (uint64_t)device->link.speed * 1000000;

		if (!value)
			continue;
		prometheus_begin(file, metric, "pci", device->address);
		prometheus_end(file, value);
	}
}

static const struct pl_check_result *find_result(const struct pl_check_report *report, const char *id)
{
	for (size_t i = 0; i < report->count; i++)
		if (!strcmp(report->results[i].row->id, id))
			return &report->results[i];
	return NULL;
}

/* Tells of each given expectation whether it is met. An expectation that could not be checked has no sample. */
static void write_expectations(FILE *file, const struct check_run *run, const struct check *check)
{
	static const struct {
		const char *key, *check;
	} rows[] = { { "rate", "expect-rate" },       { "links", "expect-links" },   { "driver", "expect-driver" },
		     { "baseline", "baseline" },      { "direct", "expect-direct" }, { "rate", "expect-route-rate" },
		     { "baseline", "route-baseline" } };
	const struct pl_check_expected *expected = &check->policy.expected;
	struct command_metric metric =
		describe_command_gauge(file, check, "expected_met", "1 if the machine is as expected, else 0.");

	if (expected->gpus) {
		prometheus_begin(file, metric.name, "key", "gpus");
		prometheus_end(file, run->inventory->gpu_count >= expected->gpus);
	}
	if (expected->cards) {
		prometheus_begin(file, metric.name, "key", "cards");
		prometheus_end(file, run->inventory->card_count >= expected->cards);
	}
	for (size_t i = 0; i < CLI_ARRAY_SIZE(rows); i++) {
		const struct pl_check_result *result = find_result(&run->report, rows[i].check);

		if (!result || result->status == PL_CHECK_NONE || result->status == PL_CHECK_UNKNOWN)
			continue;
		prometheus_begin(file, metric.name, "key", rows[i].key);
		prometheus_end(file, result->status < PL_CHECK_FAIL);
	}
}

/* Writes facts about the machine, which only one file of a folder may have. */
static void write_machine(FILE *file, const struct check_run *run)
{
	describe_gauge(file, "build_info", "Version of Peerlane; the value is 1.");
	prometheus_begin(file, "build_info", "version", pl_version());
	prometheus_end(file, 1);
	write_verdict(file, run->report.verdict);
	write_devices(file, run->inventory);
	write_links(file, run->inventory, true);
	write_links(file, run->inventory, false);
}

void check_write_prometheus(FILE *file, const struct check_run *run, const struct check *check)
{
	write_run(file, run, check);
	write_statuses(file, &run->report, check);
	write_expectations(file, run, check);
	if (check->command == CHECK_CHECK)
		write_machine(file, run);
	if (check->write_metrics)
		check->write_metrics(file, check->user);
}
