/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane serve`: parts of the command. */
#ifndef PL_CMD_TRANSFER_SERVE_H
#define PL_CMD_TRANSFER_SERVE_H

#include "cmd/transfer/audit.h"
#include "cmd/transfer/metrics.h"
#include "cmd/transfer/metrics_http.h"
#include "cmd/transfer/server.h"

#define SERVE_DEFAULT_ADDRESS "127.0.0.1:" CLI_DEFAULT_PORT
#define SERVE_MEMORY_MAX 64

enum sandbox_choice { SANDBOX_AUTO, SANDBOX_OFF, SANDBOX_REQUIRE };

/* Block of memory of one --memory option. */
struct memory_option {
	char *name;
	const char *kind;
	uint64_t size;
};

struct serve {
	struct cli_options common;
	const char *address;
	char **paths;
	int path_count;
	struct memory_option memory[SERVE_MEMORY_MAX];
	size_t memory_count;
	const char *upload;
	struct audit_options audit_options; /* without a target: no log */
	bool writable, read_only, follow, once;
	enum sandbox_choice sandbox;
	uint64_t duration; /* 0: no limit */
	unsigned clients;
	const char *metrics_address; /* NULL: no metrics */
	bool metrics_open;           /* the address may be another than loopback */

	struct server server;
	struct partial_key *key; /* of unfinished uploads; NULL: no memory */
	struct audit *audit;
	struct metrics metrics;
	struct metrics_http *metrics_http; /* NULL: none */
	bool sandboxed;
	int signals, event_signals;
	bool terminal;                    /* began with a terminal as a standard descriptor */
	int reload;                              /* listening socket of reload.c, or -1 */
	int pid_fd;                              /* file of --pid-file, or -1 */
	bool pid_written;                        /* the file has the process id */
	const char *pid_file, *reload_target;    /* NULL: none */
	uint64_t watchdog, watchdog_next; /* interval of the service manager, 0: none; time of the next notice */
	uint64_t end;                     /* time at which to exit; UINT64_MAX: never */
};

/* serve_arguments.c: parses the command line. */
void serve_parse_arguments(struct serve *serve, int argc, char **argv);

/* serve_events.c: prints and logs events. */
void serve_report_event(void *user, const struct server_event_report *report);
void serve_report_refused(void *user, const struct pl_identity *identity, const struct pl_error *error);
/* True if the audit log is strict and cannot be written. */
bool serve_is_blocked(void *user);
/* Logs a reload; `error` NULL: it succeeded. */
void serve_report_reload(struct serve *serve, const struct pl_error *error);
int serve_print_listening(const struct serve *serve, struct pl_error *error);
void serve_print_warnings(const struct serve *serve);

/*
 * sandbox.c: limits this thread, and those that it creates, to the files that the server needs (Landlock).  Returns 0, also
 * if the kernel cannot do that; -ENOTSUP if it must.
 */
int serve_enter_sandbox(struct serve *serve, struct pl_error *error);

/* openssl_memory.c: keeps keys out of core dumps.  Called before the process uses OpenSSL. */
void serve_protect_openssl_memory(void);

/* Reads keys and lists of identities again, and opens the audit log again.  A failure leaves the old ones in force. */
int serve_reload(struct serve *serve, struct pl_error *error);
/* reload.c: opens the socket of `peerlane serve --reload`.  Returns -1, with a warning, if that fails. */
int reload_listen(void);
/* Answers the next request.  Does not wait. */
void reload_serve_request(struct serve *serve);
/* Asks the server with a process id, or with the process id in a file.  Returns its result, or an error of asking. */
int reload_request(const char *process, struct pl_error *error);

#endif
