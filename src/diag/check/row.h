/* SPDX-License-Identifier: BSD-2-Clause */
/* For the files that define rows. */
#ifndef PL_DIAG_CHECK_ROW_H
#define PL_DIAG_CHECK_ROW_H

#include "diag/check/check.h"
#include "diag/check/facts.h"
#include "diag/check/machine.h"

/* Each file has its rows in one array, which ends with an empty row. */
extern const struct pl_check_row pl_check_rows_gpu[];
extern const struct pl_check_row pl_check_rows_driver[];
extern const struct pl_check_row pl_check_rows_peer[];
extern const struct pl_check_row pl_check_rows_module[];
extern const struct pl_check_row pl_check_rows_card[];
extern const struct pl_check_row pl_check_rows_access[];
extern const struct pl_check_row pl_check_rows_port[];
extern const struct pl_check_row pl_check_rows_traffic[];
extern const struct pl_check_row pl_check_rows_path[];
extern const struct pl_check_row pl_check_rows_bus[];
extern const struct pl_check_row pl_check_rows_system[];
extern const struct pl_check_row pl_check_rows_software[];
extern const struct pl_check_row pl_check_rows_nccl[];
extern const struct pl_check_row pl_check_rows_expected[];
extern const struct pl_check_row pl_check_rows_route[];

/* Adds a finding. The result takes the worst status; object may be NULL. */
void pl_check_note(struct pl_check_result *result, enum pl_check_status status, const char *object, const char *format,
		   ...) __attribute__((format(printf, 4, 5)));
/* Sets the remedy for this machine in place of the row's general one. The first one stays. */
void pl_check_remedy(struct pl_check_result *result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sets the command that would tell. */
void pl_check_reveal(struct pl_check_result *result, const char *text);
/* Adds an unknown finding, and the command that would tell. */
void pl_check_unknown(struct pl_check_result *result, const char *object, const char *reveal, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Adds an action, unless the plan has it. */
void pl_check_plan_module(struct pl_check_plan *plan, const char *module);
void pl_check_plan_rescan(struct pl_check_plan *plan, const char *address);
void pl_check_plan_file(struct pl_check_plan *plan, const char *path, const char *content);

#endif
