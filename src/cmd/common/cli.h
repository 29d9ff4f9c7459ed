/* SPDX-License-Identifier: BSD-2-Clause */
/* Interface that all subcommands share: exit codes, options, help and error messages. */
#ifndef PL_CMD_COMMON_CLI_H
#define PL_CMD_COMMON_CLI_H

#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <peerlane/peerlane.h>

/* Differs from 18515, the default port of perftest and similar tools. */
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
	CLI_DEGRADED = 3, /* works, but with less than full performance */
	CLI_OUTPUT = 4,   /* standard output could not be written, whatever the result is */
};

/* Subcommands.  argv[0] is "peerlane NAME".  Each returns an enum cli_exit. */
int pl_cli_bench(int argc, char **argv);
int pl_cli_check(int argc, char **argv);
int pl_cli_delete(int argc, char **argv);
int pl_cli_demo(int argc, char **argv);
int pl_cli_dump(int argc, char **argv);
int pl_cli_fleet(int argc, char **argv);
int pl_cli_get(int argc, char **argv);
int pl_cli_key(int argc, char **argv);
int pl_cli_list(int argc, char **argv);
int pl_cli_publish(int argc, char **argv);
int pl_cli_put(int argc, char **argv);
int pl_cli_record(int argc, char **argv);
int pl_cli_replay(int argc, char **argv);
int pl_cli_relay(int argc, char **argv);
int pl_cli_report(int argc, char **argv);
int pl_cli_routes(int argc, char **argv);
int pl_cli_serve(int argc, char **argv);
int pl_cli_streams(int argc, char **argv);
int pl_cli_subscribe(int argc, char **argv);
int pl_cli_top(int argc, char **argv);
int pl_cli_topo(int argc, char **argv);
int pl_cli_version(int argc, char **argv);

/* -- command line (options.c) --------------------------------------------------------------------- */

/* Values of the shared options. */
struct cli_options {
	const char *key_file; /* NULL: no key */
	const char *old_key_file, *identity, *peer, *known_hosts, *authority, *authorized; /* NULL: none */
	bool trust_new;
	/* set by programs: judge each client, and learn of refused ones; as in struct pl_options */
	pl_authorize_function authorize;
	pl_refused_function refused;
	void *trust_user;
	const char *fabric;   /* NULL: "auto" */
	const char *devices;  /* NULL: all */
	const char *topology; /* NULL: the kernel's view */
	unsigned lanes;       /* 0: the library's default, as for the following ones */
	unsigned rails;
	unsigned traffic_class, service_level, pkey, ack_timeout, retries, rnr_timer;
	unsigned gpu_multiprocessors; /* PL_NO_GPU_KERNEL: none */
	unsigned gid_index;  /* PL_GID_INDEX() */
	unsigned peers_max;  /* set by programs; 0: no limit */
	uint64_t peers_rate; /* bytes a second of each client; set by programs; 0: no limit */
	const char *program; /* set by programs; NULL: no name for clients */
	uint64_t timeout;    /* nanoseconds; 0: the library's defaults */
	uint64_t keepalive;  /* nanoseconds; set by programs; 0: the library's default */
	size_t staging;      /* most host memory to lock for GPUs; set by programs; 0: the library's default */
	size_t keep; /* bytes of registrations to cache, also of host memory; set by programs, not by an option */
	enum pl_choice encrypt, narrow;
	bool insecure, json, quiet;
	bool events; /* set by the --events of get and put */
};

/* Command line of a subcommand: its help and its own options. */
struct cli_command {
	const char *arguments; /* for the usage line, such as "ADDRESS NAME..."; NULL: the command takes none */
	const char *summary;   /* one sentence */
	const char *examples[2];
	const char *notes;                 /* text below the options, wrapped when printed; NULL: none */
	const struct argp_option *options; /* NULL: shared options only */
	argp_parser_t parse;               /* of the own options and the arguments; NULL: there are none */
	const struct argp_child *children; /* more own options, for which `parse` sets child_inputs; NULL: none */
	bool connection;                   /* accepts the connection options, not only the output options */
};

/*
 * Parses a command line: `shared` receives the shared options, `input` is the state->input of command->parse.  Prints
 * the help and ends the process with CLI_OK for --help.  Ends the process with CLI_USAGE if an argument is wrong.
 */
void cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_options *shared, void *input);

/*
 * Parser of the only argument of a command, the ADDRESS of `whose`, such as "a server".  Returns ARGP_ERR_UNKNOWN for all keys
 * but those of arguments.
 */
error_t cli_parse_address(const char **address, const char *whose, int key, char *argument, struct argp_state *state);

/* Prints the help of all shared options. */
void cli_print_shared_options(void);

/* Arguments that repeat the connection options on the command line of another `peerlane` process. */
struct cli_connection_arguments {
	const char *list[44];
	size_t count;
	char lanes[12], rails[12], traffic_class[12], service_level[12], gid_index[12], pkey[12], ack_timeout[12],
		retries[12], rnr_timer[12], gpu_multiprocessors[12];
};

/* Fills *arguments, which points into *options. */
void cli_connection_arguments(const struct cli_options *options, struct cli_connection_arguments *arguments);

/* -- hints (hint_command.c) ------------------------------------------------------------------------- */

/* Fits into pl_error.hint, with some words behind it. */
struct cli_hint_command {
	char text[144];
};

/*
 * Returns hint->text, a `peerlane` command that reaches `address` with the key and the identities of *options. Placeholders
 * stand for all values if the command would be too long, or if a shell would not take a value as it is.
 */
const char *cli_hint_command(struct cli_hint_command *hint, const char *name, const struct cli_options *options,
			     const char *address);

/* -- connections (context.c) ---------------------------------------------------------------------- */

/* Reads the key file and opens a context with the shared options. */
int cli_open(struct pl_context **context, const struct cli_options *options, enum pl_progress progress,
	     struct pl_error *error);

/* Reads the key files again and reloads the files of identities: pl_context_reload(). */
int cli_reload(struct pl_context *context, const struct cli_options *options, struct pl_error *error);

/* True if the options let only known ends connect: there is a key, or a list of identities. */
bool cli_authenticates(const struct cli_options *options);

/* Makes the missing folders of a file's path, for this user only. */
int cli_make_folders(const char *path, struct pl_error *error);
/* Makes the missing folders of a path in the folder of the user's settings, ~/.config/peerlane, but none of other paths. */
int cli_make_settings_folders(const char *path, struct pl_error *error);

/* Copies an address and adds the default port if the address has none.  Returns -EINVAL if it is too long. */
int cli_address(const char *text, char *buffer, size_t size, struct pl_error *error);
/* Names of servers, for cli_options.program. */
#define CLI_PROGRAM_SERVE "peerlane serve"
#define CLI_PROGRAM_PUBLISH "peerlane publish"
#define CLI_PROGRAM_RELAY "peerlane relay"
#define CLI_PROGRAM_REPLAY "peerlane replay"
#define CLI_PROGRAM_BENCH "peerlane bench --server"
#define CLI_PROGRAM_MATRIX "peerlane bench --matrix"
#define CLI_PROGRAM_WORKFLOW "peerlane bench workflow"
/* Fails with OTHER-PROGRAM if a peer at the address that this end connected to is another program. */
int cli_expect_program(struct pl_peer *peer, const char *program, const char *address, struct pl_error *error);

/* -- error messages (message.c) -------------------------------------------------------------------- */

/* Fills *error and returns code; object and hint may be NULL. */
int cli_fail(struct pl_error *error, int code, const char *id, const char *object, const char *hint, const char *format,
	     ...) __attribute__((format(printf, 6, 7)));
/* Fills *error for a failed system call, with strerror(-code) as its message; returns code. */
int cli_fail_errno(struct pl_error *error, int code, const char *call, const char *object);
/* cli_fail_errno() for a path to be created: if -ENOENT, a folder is missing. */
int cli_fail_new_path(struct pl_error *error, int code, const char *call, const char *path);
/* Gives a failure the id of a command's error; all else of it stays.  Returns its code. */
int cli_fail_as(struct pl_error *error, const char *id);
/* Returns the hint of an error, or of its errno for an error SYSTEM of the library, which has none. */
const char *cli_hint(const struct pl_error *error);
/* Prints "peerlane: ERROR" on stderr; returns CLI_FAILED. */
int cli_report(const struct pl_error *error);
/* Prints "peerlane: warning: TEXT" on stderr. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/*
 * Flushes standard output before the end of the command.  Returns the status, or CLI_OUTPUT with a message if not all
 * of the output was written.  A reader that has closed its pipe gets no message.
 */
int cli_finish_output(int status);
/* Bytes of a buffer for an escaped text of up to `length` bytes. */
#define CLI_ESCAPED(length) (4 * (length) + 1)
/*
 * Copies a name with each byte of a control character, or of another character that the locale cannot print, as \xNN: the
 * form that tables have.  Returns buffer.
 */
const char *cli_escape(char *buffer, size_t size, const char *text);
/* Replaces control characters by '?' in place; keeps newlines if `keep_newlines`. */
void cli_printable(char *text, bool keep_newlines);

/*
 * Copies the name of this machine, as its scheduler has it, else its host name (host_name.c).  It is empty if there is
 * none.
 */
void cli_host_name(char *buffer, size_t size);

/* Returns CLOCK_MONOTONIC in nanoseconds. */
uint64_t cli_now(void);

/*
 * Blocks SIGINT, SIGTERM and, if it is not 0, another signal, and opens a descriptor that receives them (signal_fd.c).
 * Called before the library creates threads, which inherit the blocked signals.
 */
int cli_signal_fd(int other, struct pl_error *error);
/* Returns SIGHUP for cli_signal_fd(); 0 if the process ignores it, as after nohup(1) (signal_fd.c). */
int cli_signal_hangup(void);
/* True if SIGINT, SIGTERM or SIGHUP is blocked, has arrived, and has not been read (signal_fd.c). */
bool cli_signal_pending(void);
/*
 * Discards pending and later SIGINT, SIGTERM and SIGHUP (signal_fd.c). For a command that has its results: it exits with its own status,
 * also if a signal arrives while it prints them.
 */
void cli_signal_ignore(void);

/*
 * Writes bytes into a pipe, socket or device, and waits while it is full (write_stream.c).  Returns 0; -EINTR once
 * SIGINT or SIGTERM is pending, which leaves the rest unwritten; or the error of write(2).  *count receives the bytes that
 * were written.
 */
int cli_write_stream(int fd, const void *bytes, uint64_t length, uint64_t *count);

/* Most bytes of a document of results.  One of 1,024 ranks with 8 rails apart has 173 MiB. */
#define CLI_DOCUMENT_MAX (256u << 20)

/*
 * Reads a descriptor up to its end, and appends a NUL (read_all.c).  The buffer has the size of the file, or grows, and
 * belongs to the caller; *text is NULL after a failure.  Returns 0, -EFBIG if there are more than `limit` bytes, -ENOMEM,
 * or the error of read(2).
 */
int cli_read_all(int fd, size_t limit, char **text, size_t *length);
/* Does read(2), again after a signal.  Returns the bytes, 0 at the end, or a negative errno. */
ssize_t cli_read(int fd, void *bytes, size_t size);
/* Does the same once bytes are there, within the time from now, which no signal extends.  -ETIMEDOUT at its end. */
ssize_t cli_read_within(int fd, void *bytes, size_t size, uint64_t nanoseconds);

/* Raises the limit of descriptors to 65536, as far as the process may (descriptor_limit.c). */
void cli_raise_descriptor_limit(void);

/* -- paragraphs (wrap.c) --------------------------------------------------------------------------- */

/* Returns the width of the terminal in columns, 40 to 120; 100 if standard output is no terminal. */
unsigned wrap_width(void);
/*
 * Prints up to 1023 bytes of text.  The first line begins at column `at`, further lines at column `indent`.  Control
 * characters are replaced by '?'.
 */
void wrap_print(const char *words, unsigned at, unsigned indent);

/*
 * Copies a line of text.  If the file is a terminal, rows of its width end between words, and further rows begin with
 * `indent` spaces.  Commands between backticks stay whole.  Returns the bytes; a text that is too long is cut.
 */
size_t wrap_rows(char *to, size_t size, const char *text, FILE *for_file, unsigned indent);

/* Line of results, for programs that read lines: only terminals get it in several rows. */
struct wrap_line {
	char text[1024];
	size_t length;
};

void wrap_line_add(struct wrap_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints the line, on a terminal in rows that end between words, and empties it. */
void wrap_line_print(struct wrap_line *line, FILE *to);

#endif
