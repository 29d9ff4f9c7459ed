/* SPDX-License-Identifier: BSD-2-Clause */
/* Policy of an operator: what a machine must have, which findings are accepted, and an earlier check to compare with. */
#ifndef PL_DIAG_CHECK_POLICY_H
#define PL_DIAG_CHECK_POLICY_H

#include "diag/check/inventory.h"

/* Zero, or an empty text, of a member: anything is right. */
struct pl_check_expected {
	unsigned gpus, cards;       /* at least */
	uint64_t rate;              /* bytes per second of each port, at least */
	unsigned lanes, generation; /* of the PCI Express link of each GPU and card, at least */
	unsigned direct;            /* cards that each GPU reaches directly, in both directions; for tested routes */
	char driver[64];            /* fnmatch(3) pattern of NVIDIA's driver */
};

/* Findings that an operator accepts. They stay in the report, and do not count. */
struct pl_check_acceptance {
	const struct pl_check_row *row;
	char object[48];  /* empty: all findings of the row */
	char reason[160]; /* never empty */
};

/* An earlier check. */
struct pl_check_baseline {
	char host[256]; /* empty: unknown */
	char time[32];
	struct pl_inventory inventory;
};

struct pl_check_policy {
	struct pl_check_expected expected;
	struct pl_check_acceptance *accepted;
	size_t accepted_count;
	const struct pl_check_baseline *baseline; /* NULL: none */
	char host[256];                           /* of this machine; empty: unknown */
};

/* Marks accepted findings, and takes them out of the statuses. */
void pl_check_accept(struct pl_check_report *report, const struct pl_check_policy *policy);
/* True if a finding of the report was accepted for this. */
bool pl_check_acceptance_used(const struct pl_check_report *report, const struct pl_check_acceptance *acceptance);

/* Compares an inventory with an earlier one (compare.c). */
void pl_check_compare(struct pl_check_result *result, const struct pl_inventory *now,
		      const struct pl_check_baseline *baseline);

/* Returns the speed of a PCI Express generation in millions of transfers per second; 0 if there is none. */
uint32_t pl_check_generation_speed(unsigned generation);

#endif
