/* SPDX-License-Identifier: BSD-2-Clause */
/* One run of the check: its results, and the facts that tell it from other runs. */
#ifndef PL_CMD_CHECK_RUN_H
#define PL_CMD_CHECK_RUN_H

#include "cmd/common/cli.h"
#include "diag/check/check.h"
#include "diag/check/policy.h"

#define CHECK_HOST_MAX 256 /* of a name, with its NUL */
#define CHECK_TIME_MAX 24  /* of "2026-11-22T23:10:05Z" */
#define CHECK_BOOT_MAX 40  /* of a UUID */

struct check_run {
	struct pl_sysroot *root;
	struct pl_check_machine *machine;
	struct pl_check_report report;
	const struct pl_inventory *inventory; /* of the machine */
	char host[CHECK_HOST_MAX];    /* empty: unknown, as for a dump */
	char boot_id[CHECK_BOOT_MAX]; /* empty: unknown */
	char time[CHECK_TIME_MAX];    /* of the beginning, UTC */
	uint64_t wall;                /* the same in nanoseconds since 1970 */
	uint64_t duration;            /* nanoseconds */
	double uptime;                /* seconds since the start of the machine; negative: unknown */
	int root_user;                /* 1: the user is root; 0: another user; -1: unknown */
};

/*
 * Reads a machine and runs the checks.  `host` overrides the name of the machine; NULL: its own.  The run uses the
 * policy, whose host it sets, until its end.
 */
int check_run_begin(struct check_run *run, const char *sysroot, const char *host, struct pl_check_policy *policy,
		    struct pl_error *error);
/* Notes host and time of a run that check_run_begin() does not begin; `dump`: not of this machine. */
void check_run_identify(struct check_run *run, const char *host, bool dump);
/* Frees the results. */
void check_run_end(struct check_run *run);

#endif
