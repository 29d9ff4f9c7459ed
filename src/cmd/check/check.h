/* SPDX-License-Identifier: BSD-2-Clause */
/* Options and outputs of `peerlane check`. */
#ifndef PL_CMD_CHECK_CHECK_H
#define PL_CMD_CHECK_CHECK_H

#include "cmd/check/policy_file.h"
#include "cmd/check/run.h"
#include "cmd/common/output.h"
#include "diag/check/decode.h"

enum check_format { CHECK_TEXT, CHECK_JSON, CHECK_LINE, CHECK_PROMETHEUS, CHECK_NAGIOS };

/* Command that judges a machine: each shows rows of its own, and takes the same options about them. */
enum check_command { CHECK_CHECK, CHECK_TOPO, CHECK_ROUTES };

struct check {
	struct cli_options common;
	enum check_command command;
	enum check_format format;
	bool format_given;
	const char *output;  /* file; NULL: standard output */
	const char *sysroot; /* NULL: this machine */
	const char *host;    /* name of the machine; NULL: its own */
	const char *explain, *error, *call;
	const char *cached; /* metrics of an earlier check; NULL: check now */
	uint64_t max_age;   /* of cached, in nanoseconds */
	bool list, fix, yes, all, strict;
	enum pl_check_status fail_on; /* PL_CHECK_NONE: the exit status is that of the verdict */
	struct pl_check_policy policy;
	const char *config, *baseline_file; /* NULL: none, or the default one */
	struct pl_check_baseline baseline;
	/* Writes metrics of the command's own, behind the others; NULL: none. */
	void (*write_metrics)(FILE *file, const void *user);
	const void *user;
};

/* Parses the command line into zeros; ends the process if it is wrong (check_options.c). */
void check_parse_arguments(struct check *check, int argc, char **argv);

/* -- judgement, which `check`, `topo` and `routes` share -------------------------------------------- */

/* Parses the options about it; the input is a struct check (judge_options.c). */
extern const struct argp check_judge_argp;
/* True if something is expected of the machine. */
bool check_has_expectations(const struct check *check);
/* True if an option asks for a judgement. */
bool check_is_judged(const struct check *check);
/*
 * Lets --json and --format agree.  Refuses formats of results if none are shown: `others` are the options of which one is
 * given.
 */
void check_settle_format(struct check *check, bool results, const char *others, struct argp_state *state);

/* Reads the configuration of this machine, or that of --config (judge.c). */
int check_judge_read_config(struct check *check, struct pl_error *error);
/* Reads configuration and baseline, and runs the checks.  Nothing is left to release after a failure. */
int check_judge_begin(struct check_run *run, struct check *check, struct pl_error *error);
/* Ends the run, and frees the policy. */
void check_judge_end(struct check_run *run, struct check *check);
/* Frees the policy. */
void check_release_policy(struct check *check);
/* Writes the run for programs, to standard output or as a file. */
int check_write_run(const struct check_run *run, const struct check *check, struct pl_error *error);
/* The same of a document, which it frees. */
int check_write_document(struct json_object *object, const struct check *check, struct pl_error *error);
/* Reports that the command could not judge; returns the exit status. */
int check_report_failure(const struct check *check, const struct pl_error *error);
/* Names entries of --ignore and of the configuration that match no finding. */
void check_name_unused(const struct check_run *run, const struct check *check);
/*
 * Shows the results of `topo` or `routes`, in text behind the command's own output.  Returns the exit status: `status` of
 * the command itself, unless an option or a failed row sets another one.
 */
int check_show_judgement(const struct check_run *run, const struct check *check, enum cli_exit status);

/* Returns the exit status by --fail-on, or by the verdict (check.c). */
int check_exit_status(enum pl_check_verdict verdict, const struct pl_check_counts *counts, const struct check *check);
/* Tells the result of an earlier check; returns the exit status, or a negative errno (cached.c). */
int check_answer_cached(const struct check *check, struct pl_error *error);

/* -- text (render_text.c) -------------------------------------------------------------------------- */

/* Prints the verdict, the routes and all results. */
void render_check(const struct pl_check_report *report, const struct check *check);
/* Prints all results, by groups. */
void render_results(const struct pl_check_report *report, bool quiet);
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

/* -- formats for programs -------------------------------------------------------------------------- */

/* Returns a document as text, to be freed; NULL without memory.  Frees the document. */
char *check_format_document(struct json_object *object);
/* Returns a run in a format but CHECK_TEXT, to be freed; NULL without memory. */
char *check_format_run(const struct check_run *run, const struct check *check);
/* Each writes one format (format_line.c, format_prometheus.c, format_nagios.c). */
void check_write_line(FILE *file, const struct check_run *run);
void check_write_prometheus(FILE *file, const struct check_run *run, const struct check *check);
void check_write_nagios(FILE *file, const struct check_run *run, const struct check *check);
/* Name of a status in metrics (format_prometheus.c). */
const char *check_metric_status(enum pl_check_status status);

/* Result that tells the most: the one to fix first, else the first UNKNOWN one; NULL if all is well (format.c). */
const struct pl_check_result *check_leading_result(const struct pl_check_report *report);
/* Writes the worst finding of a result, or the summary if result is NULL, with '|' replaced; returns buffer (format.c). */
char *check_leading_text(char *buffer, size_t size, const struct pl_check_report *report,
			 const struct pl_check_result *result);

/* Plugin of Nagios: its exit statuses. */
enum check_nagios { NAGIOS_OK, NAGIOS_WARNING, NAGIOS_CRITICAL, NAGIOS_UNKNOWN };
enum check_nagios check_nagios_status(const struct check_run *run, const struct check *check);
/* Prints an error as a plugin does; returns NAGIOS_UNKNOWN. */
int check_report_nagios(const struct pl_error *error);

/* -- JSON (render_json.c) -------------------------------------------------------------------------- */

/* Returns the document of a run (document.c). */
struct json_object *check_document(const struct check_run *run, const struct check *check);
/* Returns the member "nccl" (nccl_json.c). */
struct json_object *check_nccl_json(const struct pl_nccl *nccl);
/* Returns the judgement of another command than `check`, for its document. */
struct json_object *check_judgement_json(const struct check_run *run, const struct check *check);
/* Adds the checks and their findings. */
void check_document_add_results(struct json_object *object, const struct pl_check_report *report);
/* Adds the members about results: verdict, routes, checks. */
void check_document_add_report(struct json_object *object, const struct pl_check_report *report);
/* Prints one check, or all if `only` is NULL. */
void render_rows_json(const struct pl_check_row *only);
void render_decoded_json(const struct decoded *decoded);

#endif
