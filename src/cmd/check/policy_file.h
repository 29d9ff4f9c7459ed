/* SPDX-License-Identifier: BSD-2-Clause */
/* Policies from options and from files.  Any content of a file is either understood or refused. */
#ifndef PL_CMD_CHECK_POLICY_FILE_H
#define PL_CMD_CHECK_POLICY_FILE_H

#include "cmd/common/output.h"
#include "diag/check/policy.h"

#define CHECK_CONFIG "/etc/peerlane/check.conf"
#define CHECK_CONFIG_MAX (1u << 20)    /* bytes of a configuration */
#define CHECK_BASELINE_MAX (16u << 20) /* bytes of a baseline */

/* Parses KEY=VALUE,... into expectations; the values of later calls count. */
int check_parse_expected(struct pl_check_expected *expected, const char *text, struct pl_error *error);
/* Returns the status that a value of --fail-on names; PL_CHECK_NONE for another text. */
enum pl_check_status check_parse_fail_on(const char *name);
/* Parses ID[:OBJECT][=REASON],... and adds acceptances. */
int check_parse_ignored(struct pl_check_policy *policy, const char *text, struct pl_error *error);

/*
 * Parses lines of a configuration: "ignore ID[:OBJECT] REASON", "expect KEY=VALUE".  Expectations that the policy has
 * already stay.  An error names `file` and the line.
 */
int check_parse_config(struct pl_check_policy *policy, const char *file, const char *text, size_t length,
		       struct pl_error *error);
/* Reads a configuration; a missing file is no error if `optional`. */
int check_read_config(struct pl_check_policy *policy, const char *file, bool optional, struct pl_error *error);

/* Parses a JSON document of the check. */
int check_parse_baseline(struct pl_check_baseline *baseline, const char *file, const char *text, size_t length,
			 struct pl_error *error);
int check_read_baseline(struct pl_check_baseline *baseline, const char *file, struct pl_error *error);

/* Reads a file of at most `limit` bytes and appends a NUL.  The caller frees the text (read_file.c). */
int check_read_file(const char *path, size_t limit, char **text, size_t *length, struct pl_error *error);
/* Reads an open descriptor, such as standard input, as check_read_file() reads a file; `path` is for errors. */
int check_read_descriptor(int fd, const char *path, size_t limit, char **text, size_t *length, struct pl_error *error);

#endif
