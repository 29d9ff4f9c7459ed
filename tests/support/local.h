/* SPDX-License-Identifier: BSD-2-Clause */
/* Helpers of the tests of the local fabric. */
#ifndef TEST_LOCAL_H
#define TEST_LOCAL_H

#include "support/environment.h"

extern const struct setting local_threads;
extern const struct setting local_manual;

/* Writes the first bytes of a region to the far end's region.  Returns the status of the call or the operation. */
int write_some(struct scenario_environment *environment, struct pl_remote *remote, struct pl_region *region,
	       uint64_t length, struct pl_completion *receipt);
/* Checks that a transfer uses the local fabric, without staging, and that its reason contains this word. */
void check_reason(struct scenario_environment *environment, struct pl_remote *remote, struct pl_region *region,
		  const char *word);

#endif
