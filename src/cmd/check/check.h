/* SPDX-License-Identifier: BSD-2-Clause */
/* Options and outputs of `peerlane check`. */
#ifndef PL_CMD_CHECK_CHECK_H
#define PL_CMD_CHECK_CHECK_H

#include "cmd/check/run.h"
#include "cmd/common/output.h"
#include "diag/check/decode.h"

struct check {
	struct cli_options common;
	const char *sysroot; /* NULL: this machine */
	const char *host;    /* name of the machine; NULL: its own */
	const char *explain, *error, *call;
	bool list, fix, yes, all, strict;
	unsigned gpus_expected, cards_expected; /* 0: any number */
};

/* -- text (render_text.c) -------------------------------------------------------------------------- */

/* Prints the verdict, the routes and all results. */
void render_check(const struct pl_check_report *report, const struct check *check);
/* Explains one check. */
void render_row(const struct pl_check_row *row);
/* Lists all checks. */
void render_rows(void);

/* Explanation of an error of a call. */
struct decoded {
	const char *call; /* as given by the user */
	enum pl_decode_kind kind;
	int number;
	const struct pl_decode_entry *entry;
	const struct pl_check_report *report; /* of this machine; NULL if unknown */
};

/* Prints the causes of the error. */
void render_decoded(const struct decoded *decoded);
/* Prints the commands of --fix and the remedies that it leaves to the user. */
void render_plan(const struct pl_check_plan *plan, const struct pl_check_report *report, bool quiet);

/* -- JSON (render_json.c) -------------------------------------------------------------------------- */

void render_check_json(const struct check_run *run);
/* Returns the members that tell which run this is: format, host, time, counts, inventory (document.c). */
struct json_object *check_document_head(const struct check_run *run);
/* Prints one check, or all if `only` is NULL. */
void render_rows_json(const struct pl_check_row *only);
void render_decoded_json(const struct decoded *decoded);

#endif
