/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of the local fabric have in common. */
#ifndef TEST_LOCAL_H
#define TEST_LOCAL_H

#include "support/environment.h"

extern const struct setting local_threads;
extern const struct setting local_manual;

/* Writes the first bytes of a region to the far end's; the operation's status, or the call's. */
int write_some(struct scenario_environment *environment, struct pl_remote *remote, struct pl_region *region,
	       uint64_t length, struct pl_receipt *receipt);
/* That this goes by the local fabric, without a buffer between, for a reason that has this word in it. */
void check_reason(struct scenario_environment *environment, struct pl_remote *remote, struct pl_region *region,
		  const char *word);

#endif
