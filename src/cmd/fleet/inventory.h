/* SPDX-License-Identifier: BSD-2-Clause */
/* Inventory of a fleet: what each host has, one line for hosts that have the same. */
#ifndef PL_CMD_FLEET_INVENTORY_H
#define PL_CMD_FLEET_INVENTORY_H

#include "cmd/fleet/judge.h"

enum inventory_column {
	INVENTORY_PLATFORM,
	INVENTORY_GPUS,
	INVENTORY_CARDS,
	INVENTORY_PORTS,
	INVENTORY_FIRMWARE,
	INVENTORY_DRIVER,
	INVENTORY_KERNEL,
	INVENTORY_MEMORY,
	INVENTORY_COLUMNS,
};

struct inventory_line {
	char *cells[INVENTORY_COLUMNS]; /* such as "8 x NVIDIA H100"; empty: unknown, or none */
	size_t *hosts, host_count;      /* indices, ascending */
};

struct inventory {
	struct inventory_line *lines; /* most hosts first; hosts without a document are in no line */
	size_t count;
	bool used[INVENTORY_COLUMNS]; /* a line has a text in this column */
};

/* Returns "GPUS" and so on. */
const char *inventory_column_name(enum inventory_column column);
/*
 * Collects the inventory of all hosts with a document.  A run of another command on the same hosts, or NULL, has what the
 * first one does not tell.  Returns 0 or -ENOMEM.
 */
int inventory_collect(struct inventory *inventory, const struct fleet *fleet, const struct fleet *more);
/* Prints the table.  Returns 0 or -ENOMEM. */
int inventory_print(const struct inventory *inventory, const struct fleet *fleet);
void inventory_free(struct inventory *inventory);

#endif
