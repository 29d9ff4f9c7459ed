/* SPDX-License-Identifier: BSD-2-Clause */
/* What the subcommands of `peerlane` share: exit codes, common options, errors. */
#ifndef PL_CLI_H
#define PL_CLI_H

#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <peerlane/peerlane.h>

/* 18515, which other tools of this trade use, is left to them. */
#define CLI_DEFAULT_PORT "19875"
#define CLI_NS_PER_S 1000000000ull
#define CLI_NS_PER_MS 1000000ull
#define CLI_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define CLI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CLI_MAX(a, b) ((a) > (b) ? (a) : (b))

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_DEGRADED = 3, /* works, but not as well as it should */
};

/* One file a subcommand; argv[0] is "peerlane NAME".  Each returns an enum cli_exit. */
int pl_cli_bench(int argc, char **argv);
int pl_cli_check(int argc, char **argv);
int pl_cli_demo(int argc, char **argv);
int pl_cli_dump(int argc, char **argv);
int pl_cli_get(int argc, char **argv);
int pl_cli_list(int argc, char **argv);
int pl_cli_put(int argc, char **argv);
int pl_cli_report(int argc, char **argv);
int pl_cli_routes(int argc, char **argv);
int pl_cli_serve(int argc, char **argv);
int pl_cli_topo(int argc, char **argv);
int pl_cli_version(int argc, char **argv);

/* -- common options (options.c) ------------------------------------------------------------------ */

struct cli_options {
	const char *key_file; /* NULL: no key */
	const char *fabric;   /* NULL: "auto" */
	const char *devices;  /* NULL: all */
	unsigned streams;     /* 0: the library's default; so are the next two */
	unsigned rails;
	unsigned traffic_class;
	uint64_t timeout; /* nanoseconds; 0: the library's defaults */
	size_t keep;      /* no option: bytes of registrations to keep, of host memory, too */
	bool encrypt, insecure, json, quiet, narrow;
};

/*
 * Children for a subcommand's argp: its parser sets state->child_inputs[i] to its cli_options on
 * ARGP_KEY_INIT.  The first has all common options, the second only those about output.
 */
extern const struct argp cli_connection_argp;
extern const struct argp cli_output_argp;

/* For a subcommand's argp: leaves out of --help what says nothing. */
char *cli_help_filter(int key, const char *text, void *input);

/* Parses with argp; ends the process with CLI_USAGE where the arguments are wrong. */
void cli_parse(const struct argp *argp, int argc, char **argv, void *input);

/* Opens a context as the options say; reads the key file. */
int cli_open(struct pl_context **context, const struct cli_options *options, enum pl_progress progress,
	     struct pl_error *error);

/* What these options say of the connection, for another process of the command.  `options` must outlive it. */
struct cli_connection_arguments {
	const char *list[14];
	size_t count;
	char streams[12], rails[12], traffic_class[12];
};

void cli_connection_arguments(const struct cli_options *options, struct cli_connection_arguments *arguments);

/* Copies an address, with the default port if it has none. -EINVAL if it is too long. */
int cli_address(const char *text, char *buffer, size_t size, struct pl_error *error);

/* -- errors (report.c) --------------------------------------------------------------------------- */

/* Fills *error and returns code; object and hint may be NULL. */
int cli_fail(struct pl_error *error, int code, const char *id, const char *object, const char *hint, const char *format,
	     ...) __attribute__((format(printf, 6, 7)));
/* The same for a failed system call: the fact is strerror(-code). */
int cli_fail_errno(struct pl_error *error, int code, const char *call, const char *object);
/* Prints "peerlane: ..." on stderr; returns CLI_FAILED. */
int cli_report(const struct pl_error *error);
/* Prints "peerlane: warning: ..." on stderr. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Replaces what could control a terminal by '?', in place.  Newlines stay only if asked for. */
void cli_printable(char *text, bool keep_newlines);

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t cli_now(void);

/* -- text that fits the terminal (wrap.c) ----------------------------------------------------------- */

/* Columns of the terminal, 100 where there is none, at least 40. */
unsigned wrap_width(void);
/*
 * Prints words, of up to 1023 bytes, from column `at` on, with further lines from column `indent` on.  What could control
 * the terminal is replaced.
 */
void wrap_print(const char *words, unsigned at, unsigned indent);

#endif
