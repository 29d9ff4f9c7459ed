/* SPDX-License-Identifier: BSD-2-Clause */
/* Rank, number of ranks and rendezvous of this process, from options or from the environment of its launcher. */
#ifndef PL_BENCH_MATRIX_MEMBERSHIP_H
#define PL_BENCH_MATRIX_MEMBERSHIP_H

#include "cmd/fleet/host_list.h"

#define MEMBERSHIP_ADDRESS (FLEET_NAME_MAX + 16)
#define MEMBERSHIP_RUN 64
#define MEMBERSHIP_PORT 19876 /* of the rendezvous; Slurm's runs have ports of their own */

/* Options of the command line. */
struct membership_options {
	int rank, ranks;                             /* -1: not given */
	const char *rendezvous, *hosts, *run, *host; /* NULL: not given */
};

struct membership {
	int rank, size;
	char address[MEMBERSHIP_ADDRESS]; /* of rank 0, with a port */
	char run[MEMBERSHIP_RUN];         /* differs between runs; "": not known */
	char host[64];                    /* of this process */
	struct host_list hosts;           /* by rank; empty: not known */
};

/*
 * Fills *membership, to be freed.  The first launcher that set its variables counts, and variables of several launchers
 * are never combined.
 */
int membership_find(struct membership *membership, const struct membership_options *options, struct pl_error *error);
void membership_free(struct membership *membership);

#endif
