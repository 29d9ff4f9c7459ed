/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_DIAG_CHECK_VERDICT_H
#define PL_DIAG_CHECK_VERDICT_H

#include "diag/check/check.h"

/* Fills the routes from the machine and the results. Returns 0 or -ENOMEM. */
int pl_check_add_routes(struct pl_check_report *report, const struct pl_check_machine *machine);
/* Fills verdict and summary from the routes and the results. */
void pl_check_judge(struct pl_check_report *report, const struct pl_check_machine *machine);

#endif
