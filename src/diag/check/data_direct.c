/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/check/data_direct.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "diag/check/probe.h"

int pl_data_direct_add(struct pl_topology *topology, struct pl_sysroot *root, const struct pl_facts *facts)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < topology->card_count; i++) {
		const char *name = topology->cards[i].name;
		const char *path = pl_facts_get(facts, "verbs.device.%s.data-direct", name);

		if (path)
			rc = pl_topology_set_data_direct(topology, root, name, path);
	}
	return rc;
}

static bool may_have_function(const struct pl_topology *topology, const struct pl_card *card)
{
	return card->name[0] && card->node >= 0 && topology->nodes[card->node].vendor == PL_PCI_VENDOR_MELLANOX;
}

static bool may_have_functions(const struct pl_topology *topology)
{
	for (size_t i = 0; topology->gpu_count && i < topology->card_count; i++)
		if (may_have_function(topology, &topology->cards[i]))
			return true;
	return false;
}

/*
 * Notes a child process that did not end, or a driver that did not answer it. In a dump the child is that of all questions to
 * libibverbs.
 */
static void note_silence(struct pl_topology *topology, const struct pl_facts *facts, bool live)
{
	const char *state = pl_facts_get(facts, "%s.state", live ? "data-direct" : "verbs");

	if (state && strcmp(state, "done")) {
		snprintf(topology->data_direct_silent, sizeof(topology->data_direct_silent), "%s", state);
		return;
	}
	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_card *card = &topology->cards[i];

		if (may_have_function(topology, card) &&
		    pl_facts_number(facts, 0, "verbs.device.%s.open", card->name) == ETIMEDOUT)
			snprintf(topology->data_direct_silent, sizeof(topology->data_direct_silent),
				 "no answer about %.40s", card->name);
	}
}

int pl_data_direct_read(struct pl_topology *topology, struct pl_sysroot *root, uint64_t timeout)
{
	static const struct pl_probe probe = { .name = "data-direct", .run = pl_probe_data_direct };
	struct pl_facts *facts;
	int rc;

	if (topology->file_foreign || !may_have_functions(topology))
		return 0;
	facts = pl_probe_one(root, &probe, timeout);
	if (!facts)
		return -ENOMEM;
	rc = pl_data_direct_add(topology, root, facts);
	note_silence(topology, facts, pl_sysroot_is_live(root));
	pl_facts_free(facts);
	return rc;
}
