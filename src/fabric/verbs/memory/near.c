/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/verbs/memory/near.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/mempolicy.h>

#include "fabric/verbs/verbs.h"
#include "topology/topology.h"

/* A card that is slower than this part of the fastest one, as measured, is not near. */
#define FAST_PARTS 5
#define FAST_OF 4

/* Ports of the candidates, the best first. */
struct candidates {
	unsigned masks[VERBS_PLACES]; /* one for each device */
	unsigned count;
};

/*
 * GPU memory is near the Data Direct function of a card, where the card has one. Called once for a context, so of a card
 * that is opened later its own place counts.
 */
static void add_data_direct(struct pl_topology *machine, struct pl_sysroot *root, void *user)
{
	const struct verbs_state *state = user;

	pl_list_for_each(at, &state->devices) {
		const struct verbs_device *device = pl_list_entry(at, struct verbs_device, link);

		/* Without memory the card's own place counts. */
		if (verbs_device_has_data_direct(device))
			pl_topology_set_data_direct(machine, root, verbs_device_name(device), device->data_direct_path);
	}
}

void verbs_machine_read(struct verbs_state *state)
{
	unsigned count = atomic_load(&state->place_count);

	for (unsigned i = 1; i < count; i++) {
		if (strcmp(state->places[i]->name, state->places[0]->name)) {
			pl_machine_load(state->context, add_data_direct, state);
			return;
		}
	}
}

/* Returns the places of a device's ports. */
static unsigned ports_of(const struct verbs_state *state, const char *device)
{
	unsigned count = atomic_load_explicit(&state->place_count, memory_order_acquire), mask = 0;

	for (unsigned i = 0; i < count; i++)
		if (!strcmp(state->places[i]->name, device))
			mask |= 1u << i;
	return mask;
}

static void add_candidate(struct candidates *candidates, unsigned mask)
{
	for (unsigned i = 0; i < candidates->count; i++)
		if (candidates->masks[i] == mask)
			return;
	if (mask && candidates->count < VERBS_PLACES)
		candidates->masks[candidates->count++] = mask;
}

/* -- topology ------------------------------------------------------------------------------------- */

/* Returns the NUMA node of a byte, or -1. */
static int node_of(const void *address)
{
	int node = -1;

	if (syscall(SYS_get_mempolicy, &node, NULL, 0ul, address, (unsigned long)(MPOL_F_NODE | MPOL_F_ADDR)) < 0)
		return -1;
	return node;
}

/* Returns the NUMA node of host memory; -1: unknown, or several. */
static int numa_of(const struct pl_memory *memory)
{
	const uint8_t *bytes = memory->address;
	int node;

	if (memory->dmabuf || !memory->length)
		return -1;
	node = node_of(bytes);
	return node == node_of(bytes + memory->length / 2) && node == node_of(bytes + memory->length - 1) ? node : -1;
}

static void take_ranked(const struct verbs_state *state, const struct pl_topology *machine,
			const struct pl_card_rank *ranks, int count, struct candidates *candidates)
{
	for (int i = 0; i < count && pl_card_rank_alike(machine, &ranks[0], &ranks[i]); i++)
		add_candidate(candidates, ports_of(state, machine->cards[ranks[i].card].name));
}

static void near_by_topology(const struct verbs_state *state, const struct pl_memory *memory, const char *gpu,
			     struct candidates *candidates)
{
	const struct pl_topology *machine = atomic_load(&state->context->machine);
	int node = gpu || !machine || machine->numa_count < 2 ? -1 : numa_of(memory), count;
	struct pl_card_rank *ranks;

	if (!machine || !machine->card_count || (!gpu && node < 0))
		return;
	ranks = calloc(machine->card_count, sizeof(*ranks));
	if (!ranks)
		return;
	count = gpu ? pl_topology_rank_gpu(machine, gpu, ranks) : pl_topology_rank_numa(machine, node, ranks);
	take_ranked(state, machine, ranks, count, candidates);
	free(ranks);
}

/* -- profile -------------------------------------------------------------------------------------- */

/* Leaves out devices that the profile knows to be slower, or to reach the GPU's memory through staging only. */
static void near_by_profile(struct verbs_state *state, const struct pl_memory *memory, struct candidates *candidates)
{
	struct verbs_measured measured[VERBS_PLACES];
	unsigned count = atomic_load_explicit(&state->place_count, memory_order_acquire);
	struct verbs_measured best = { 0 };

	for (unsigned i = 0; i < count; i++) {
		verbs_measure(state, state->places[i], memory, &measured[i]);
		if (measured[i].direct != best.direct ? measured[i].direct : measured[i].rate > best.rate)
			best = measured[i];
	}
	for (unsigned i = 0; i < count && best.rate; i++)
		if (measured[i].direct == best.direct && measured[i].rate >= best.rate / FAST_PARTS * FAST_OF)
			add_candidate(candidates, ports_of(state, state->places[i]->name));
}

/* -- choice --------------------------------------------------------------------------------------- */

/* Keeps the candidates that the topology has among those of the profile, if there are some. */
static void narrow(struct candidates *measured, const struct candidates *placed)
{
	struct candidates both = { .count = 0 };

	for (unsigned i = 0; i < placed->count; i++)
		for (unsigned j = 0; j < measured->count; j++)
			if (measured->masks[j] == placed->masks[i])
				add_candidate(&both, placed->masks[i]);
	if (both.count)
		*measured = both;
}

/* Writes the PCI address of the memory's GPU, as sysfs has it. Returns false for memory of no GPU. */
static bool find_gpu(const struct pl_memory *memory, char address[PL_PCI_ADDRESS_MAX])
{
	struct pl_gpu_info gpu = PL_GPU_INFO_INIT;
	int number = memory->ops->number ? memory->ops->number(memory) : -1;

	if (number < 0 || pl_gpu_query((unsigned)number, &gpu, NULL) < 0)
		return false;
	snprintf(address, PL_PCI_ADDRESS_MAX, "%s", gpu.pci);
	for (char *at = address; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	return true;
}

/* Returns the places near the memory; 0: all are alike. */
static unsigned choose_places(struct verbs_state *state, const struct pl_memory *memory)
{
	unsigned most = PL_MAX(state->context->options.rails, (unsigned)VERBS_CARDS_DEFAULT), near = 0, begin = 0;
	struct candidates chosen = { .count = 0 }, placed = { .count = 0 };
	char address[PL_PCI_ADDRESS_MAX];
	bool of_gpu = find_gpu(memory, address);

	if (of_gpu)
		near_by_profile(state, memory, &chosen);
	near_by_topology(state, memory, of_gpu ? address : NULL, &placed);
	if (chosen.count)
		narrow(&chosen, &placed);
	else
		chosen = placed;
	/* Regions of host memory take turns at the cards of their node. */
	if (!of_gpu && chosen.count > most)
		begin = state->turn++;
	for (unsigned i = 0; i < PL_MIN(chosen.count, most); i++)
		near |= chosen.masks[(begin + i) % chosen.count];
	return near;
}

static void forget_alike(struct pl_region *region)
{
	unsigned alike = VERBS_NEAR_KNOWN;

	atomic_compare_exchange_strong(&region->near, &alike, 0);
}

void verbs_near_forget(struct verbs_state *state)
{
	struct pl_context *context = state->context;

	atomic_fetch_add(&state->place_changes, 1);
	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &context->regions)
		forget_alike(pl_list_entry(at, struct pl_region, link));
	pthread_mutex_unlock(&context->lock);
}

unsigned verbs_near_find(struct verbs_state *state, struct pl_region *region)
{
	unsigned near = atomic_load(&region->near), changes = atomic_load(&state->place_changes);

	if (near)
		return near;
	if (atomic_load(&state->place_count) > 1)
		near = choose_places(state, &region->memory);
	near |= VERBS_NEAR_KNOWN;
	atomic_store(&region->near, near);
	/* The choice may have missed ports that appeared meanwhile. */
	if (atomic_load(&state->place_changes) != changes)
		forget_alike(region);
	return near;
}

unsigned verbs_near_find_unlocked(struct verbs_state *state, struct pl_region *region)
{
	unsigned near;

	pthread_mutex_lock(&state->context->grant_lock);
	near = verbs_near_find(state, region);
	pthread_mutex_unlock(&state->context->grant_lock);
	return near;
}
