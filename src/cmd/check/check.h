/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of `peerlane check` share. */
#ifndef PL_CLI_CHECK_H
#define PL_CLI_CHECK_H

#include "diag/check/check.h"
#include "diag/check/decode.h"
#include "cmd/common/output.h"

struct check {
	struct cli_options common;
	const char *sysroot; /* NULL: this machine */
	const char *explain, *error, *call;
	bool list, fix, yes, all;
};

/* -- for people (render_check.c) -------------------------------------------------------------------- */

void render_check(const struct pl_check_report *report, const struct check *check);
void render_row(const struct pl_check_row *row);
void render_rows(void);

struct decoded {
	const char *call; /* as the user wrote it */
	enum pl_decode_kind kind;
	int number;
	const struct pl_decode_entry *entry;
	const struct pl_check_report *report; /* what holds on this machine; NULL if that is not known */
};

void render_decoded(const struct decoded *decoded);
void render_plan(const struct pl_check_plan *plan, const struct pl_check_report *report, bool quiet);

/* -- as JSON (render_check_json.c) ------------------------------------------------------------------ */

void render_check_json(const struct pl_check_report *report);
void render_rows_json(const struct pl_check_row *only);
void render_decoded_json(const struct decoded *decoded);

#endif
