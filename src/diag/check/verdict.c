/* SPDX-License-Identifier: BSD-2-Clause */
/* Verdict: usable paths of this machine for each GPU and card, and a summary in a sentence. */
#include "diag/check/verdict.h"

#include <stdio.h>
#include <stdlib.h>

#include "diag/check/row.h"
#include "topology/topology.h"

/* Finds the reason why no byte can pass this device; empty if bytes can. */
static void find_obstacle(const struct pl_check_machine *machine, const struct check_device *device, char *text,
			  size_t size)
{
	int error = check_node_errno(machine, device);
	bool active = false;

	for (size_t i = 0; i < device->rdma->port_count; i++)
		active = active || device->rdma->ports[i].active;
	text[0] = '\0';
	if (!active)
		snprintf(text, size, "no port of %s is active", device->name);
	else if (error > 0)
		snprintf(text, size, "%s cannot be opened: %s", device->name, strerrordesc_np(error));
}

static enum pl_check_way weaker(enum pl_check_way a, enum pl_check_way b)
{
	return PL_MIN(a, b);
}

static void judge_dmabuf(const struct pl_check_machine *machine, const struct check_gpu *gpu,
			 const struct check_device *device, struct pl_check_route *route)
{
	char of_gpu[160], of_device[160];
	enum pl_check_way one = check_gpu_dmabuf(machine, gpu, of_gpu, sizeof(of_gpu));
	enum pl_check_way other = check_device_dmabuf(machine, device, of_device, sizeof(of_device));

	route->dmabuf = weaker(one, other);
	snprintf(route->dmabuf_reason, sizeof(route->dmabuf_reason), "%s", one <= other ? of_gpu : of_device);
}

static void judge_peer(const struct pl_check_machine *machine, const struct check_gpu *gpu,
		       const struct check_device *device, struct pl_check_route *route)
{
	const char *client = check_peer_client(machine);

	route->peer = PL_CHECK_WAY_NO;
	if (gpu->pci->vendor != PL_PCI_VENDOR_NVIDIA) {
		route->peer = PL_CHECK_WAY_UNKNOWN;
		snprintf(route->peer_reason, sizeof(route->peer_reason),
			 "clients of other GPUs are not looked at here");
	} else if (device->rdma->software) {
		snprintf(route->peer_reason, sizeof(route->peer_reason),
			 "%s is made of software, which needs the "
			 "processor to reach memory",
			 device->name);
	} else if (!check_module(machine, "nvidia")) {
		snprintf(route->peer_reason, sizeof(route->peer_reason), "the driver of NVIDIA is not loaded");
	} else if (client) {
		route->peer = PL_CHECK_WAY_YES;
		snprintf(route->peer_reason, sizeof(route->peer_reason), "%s is loaded", client);
	} else {
		snprintf(route->peer_reason, sizeof(route->peer_reason), "no peer memory client is loaded%s",
			 check_peer_core(machine) == PL_CHECK_WAY_NO ? ", and the RDMA drivers have no place for one"
								     : "");
	}
}

/* An IOMMU that translates, and a GPU without support, stop both direct paths. */
static void apply_stops(const struct pl_check_machine *machine, const struct pl_check_report *report,
			const struct check_gpu *gpu, struct pl_check_route *route)
{
	static const char *const stops[] = { "bus-platform", "gpu-partition", "kernel-health" };
	char reason[160];

	if (check_gpu_capable(machine, gpu, reason, sizeof(reason)) == PL_CHECK_WAY_NO) {
		route->dmabuf = route->peer = PL_CHECK_WAY_NO;
		snprintf(route->dmabuf_reason, sizeof(route->dmabuf_reason), "%s", reason);
		snprintf(route->peer_reason, sizeof(route->peer_reason), "%s", reason);
	}
	for (size_t i = 0; i < report->count; i++) {
		const struct pl_check_result *result = &report->results[i];
		bool stops_it = false;

		for (size_t j = 0; j < PL_ARRAY_SIZE(stops); j++)
			stops_it = stops_it || !strcmp(result->row->id, stops[j]);
		if (result->status != PL_CHECK_FAIL || (!stops_it && strcmp(result->row->id, "bus-iommu")))
			continue;
		/* The kernel maps dma-buf attachments for the card, so an IOMMU certainly stops peer memory only. */
		if (stops_it) {
			route->dmabuf = weaker(route->dmabuf, PL_CHECK_WAY_UNKNOWN);
			snprintf(route->dmabuf_reason, sizeof(route->dmabuf_reason), "see %s", result->row->id);
		}
		route->peer = weaker(route->peer, PL_CHECK_WAY_UNKNOWN);
		snprintf(route->peer_reason, sizeof(route->peer_reason), "see %s", result->row->id);
	}
}

static void fill_device(const struct pl_check_machine *machine, const struct check_device *device,
			struct pl_check_route *route)
{
	char obstacle[200];

	snprintf(route->device, sizeof(route->device), "%s", device->name);
	snprintf(route->card, sizeof(route->card), "%.23s", device->card ? device->card->pci->address : device->name);
	find_obstacle(machine, device, obstacle, sizeof(obstacle));
	route->staged = *obstacle ? PL_CHECK_WAY_NO : PL_CHECK_WAY_YES;
	snprintf(route->staged_reason, sizeof(route->staged_reason), "%s",
		 *obstacle ? obstacle : "the card reads and writes memory of the host");
	if (*obstacle) {
		route->dmabuf = route->peer = PL_CHECK_WAY_NO;
		strcpy(route->dmabuf_reason, route->staged_reason);
		strcpy(route->peer_reason, route->staged_reason);
	}
}

static void fill_class(const struct pl_check_machine *machine, struct pl_check_route *route)
{
	const struct pl_topology *topology = machine->topology;

	for (size_t i = 0; i < topology->path_count; i++) {
		const struct pl_path *path = &topology->paths[i];
		const struct pl_card *card = &topology->cards[path->card];

		/* Two devices of one card have the same address; a card of a topology file may have no name. */
		if (strcmp(topology->nodes[topology->gpus[path->gpu].node].address, route->gpu) ||
		    (*card->name ? strcmp(card->name, route->device)
				 : card->node < 0 || strcmp(topology->nodes[card->node].address, route->card)))
			continue;
		route->best = path->best;
		snprintf(route->class, sizeof(route->class), "%s", pl_path_class_name(path->class));
	}
}

int pl_check_add_routes(struct pl_check_report *report, const struct pl_check_machine *machine)
{
	size_t gpus = PL_MAX(machine->gpu_count, 1), devices = machine->device_count;

	if (!devices)
		return 0;
	report->routes = calloc(gpus * devices, sizeof(*report->routes));
	if (!report->routes)
		return -ENOMEM;
	for (size_t i = 0; i < gpus; i++) {
		const struct check_gpu *gpu = i < machine->gpu_count ? &machine->gpus[i] : NULL;

		for (size_t j = 0; j < devices; j++) {
			struct pl_check_route *route = &report->routes[report->route_count++];

			if (gpu) {
				snprintf(route->gpu, sizeof(route->gpu), "%s", gpu->pci->address);
				snprintf(route->gpu_model, sizeof(route->gpu_model), "%s", gpu->model);
				judge_dmabuf(machine, gpu, &machine->devices[j], route);
				judge_peer(machine, gpu, &machine->devices[j], route);
				apply_stops(machine, report, gpu, route);
			}
			fill_device(machine, &machine->devices[j], route);
			if (gpu)
				fill_class(machine, route);
		}
	}
	return 0;
}

static bool is_direct(const struct pl_check_route *route)
{
	return route->dmabuf == PL_CHECK_WAY_YES || route->peer == PL_CHECK_WAY_YES;
}

static bool may_be_direct(const struct pl_check_route *route)
{
	return route->dmabuf != PL_CHECK_WAY_NO || route->peer != PL_CHECK_WAY_NO;
}

struct tally {
	size_t usable;        /* devices that can carry data */
	size_t direct, maybe; /* GPUs that a card reaches directly, or may reach */
	bool by_dmabuf;
};

static struct tally count(const struct pl_check_report *report, const struct pl_check_machine *machine)
{
	size_t devices = machine->device_count;
	struct tally tally = { 0 };

	for (size_t j = 0; j < devices; j++)
		tally.usable += check_device_usable(machine, &machine->devices[j]);
	for (size_t i = 0; i < machine->gpu_count; i++) {
		bool direct = false, maybe = false;

		for (size_t j = 0; j < devices; j++) {
			const struct pl_check_route *route = &report->routes[i * devices + j];

			direct = direct || is_direct(route);
			maybe = maybe || may_be_direct(route);
			tally.by_dmabuf = tally.by_dmabuf || route->dmabuf == PL_CHECK_WAY_YES;
		}
		tally.direct += direct;
		tally.maybe += maybe && !direct;
	}
	return tally;
}

static const char *plural(size_t count)
{
	return count == 1 ? "" : "s";
}

static void summarise_without(struct pl_check_report *report, const struct pl_check_machine *machine)
{
	const char *gpu = machine->gpu_count ? "A GPU is here" : "There is no GPU";

	if (!machine->card_count && !machine->device_count)
		snprintf(report->summary, sizeof(report->summary),
			 machine->gpu_count
				 ? "%s, and no RDMA card: data goes through host memory and sockets (the tcp fabric)."
				 : "%s and no RDMA card: data goes by sockets (the tcp fabric).",
			 gpu);
	else
		snprintf(report->summary, sizeof(report->summary),
			 "%s%s No RDMA card can be used: data goes by sockets (the tcp fabric).", gpu,
			 machine->gpu_count ? "." : ".");
}

static void summarise_with(struct pl_check_report *report, const struct pl_check_machine *machine, struct tally tally)
{
	size_t gpus = machine->gpu_count;
	char cards[64];

	snprintf(cards, sizeof(cards), "%zu RDMA device%s", tally.usable, plural(tally.usable));
	if (!gpus)
		snprintf(report->summary, sizeof(report->summary),
			 "There is no GPU. Memory of the host goes by RDMA: %s.", cards);
	else if (tally.direct == gpus)
		snprintf(report->summary, sizeof(report->summary),
			 "GPUDirect RDMA works for %s%zu GPU%s, by %s, with %s.", gpus > 1 ? "all " : "", gpus,
			 plural(gpus), tally.by_dmabuf ? "dma-buf" : "peer memory", cards);
	else if (tally.direct)
		snprintf(report->summary, sizeof(report->summary),
			 "GPUDirect RDMA works for %zu of %zu GPUs; data of the others is staged through host memory.",
			 tally.direct, gpus);
	else if (tally.maybe)
		snprintf(report->summary, sizeof(report->summary),
			 "GPUDirect RDMA may work: not all could be found out. At worst data is staged through host "
			 "memory, "
			 "with %s.",
			 cards);
	else
		snprintf(report->summary, sizeof(report->summary),
			 "No GPUDirect RDMA: GPU data is staged through host memory, then goes by RDMA, with %s.",
			 cards);
}

void pl_check_judge(struct pl_check_report *report, const struct pl_check_machine *machine)
{
	struct tally tally = count(report, machine);

	if (!tally.usable) {
		report->verdict = PL_CHECK_NO_RDMA;
		summarise_without(report, machine);
		return;
	}
	report->verdict = tally.direct < machine->gpu_count || report->first ? PL_CHECK_DEGRADED : PL_CHECK_READY;
	summarise_with(report, machine, tally);
}
