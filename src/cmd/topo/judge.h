/* SPDX-License-Identifier: BSD-2-Clause */
/* Judgement of a topology by the checks that are about it. */
#ifndef PL_CMD_TOPO_JUDGE_H
#define PL_CMD_TOPO_JUDGE_H

#include "cmd/check/check.h"
#include "cmd/topo/topo.h"

/*
 * Runs the checks about paths, platform and expectations.  The view stays in use until check_judge_end().  Nothing is left
 * to release after a failure.
 */
int topo_judge_begin(struct check_run *run, struct check *check, const struct topo_view *view, struct pl_error *error);

#endif
