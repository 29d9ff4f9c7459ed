/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Audit log of a server: a line for each connection, refusal and access.  A thread writes the lines, so that nobody waits
 * for the disk.  When the log cannot keep up, lines are dropped, and the next line says how many.  A strict log keeps the
 * lines of accesses, and the server refuses accesses meanwhile.
 */
#ifndef PL_CMD_TRANSFER_AUDIT_H
#define PL_CMD_TRANSFER_AUDIT_H

#include "cmd/common/cli.h"

struct audit;

/* Severity, as syslog(3) numbers them. */
enum audit_priority { AUDIT_LOST = 3, AUDIT_REFUSED = 4, AUDIT_NORMAL = 6 };

/* Event; members that are NULL or 0 are left out, except for `event`. */
struct audit_event {
	enum audit_priority priority;
	const char *event;
	const struct pl_identity *identity;
	const char *name; /* of a file or a block of memory; FILE:LINE of a reload that failed */
	const char *fabric;
	const struct pl_error *error; /* reason of a refusal */
	const char *limit;            /* budget that a client has used up */
	uint64_t bytes, duration;     /* duration in nanoseconds */
	bool has_bytes, encrypted;
	bool connection; /* tells of a connection alone: a strict log may drop it too */
};

struct audit_options {
	const char *target; /* a file, to which lines are appended; "journal" for systemd-journald, or "journal=SOCKET" */
	bool json;          /* lines are JSON objects */
	bool strict;
};

int audit_open(struct audit **audit, const struct audit_options *options, struct pl_error *error);
/* True if the log is strict, and its last line could not be written or too many lines wait.  `audit` may be NULL. */
bool audit_is_blocked(struct audit *audit);
/* Adds a line.  Any thread; never waits for the log.  `audit` may be NULL. */
void audit_write(struct audit *audit, const struct audit_event *event);
/* Opens the file again, after it was renamed.  The lines go to the old file if that fails. */
void audit_reopen(struct audit *audit);
/* Writes what is left, for at most 5 s, and closes. */
void audit_close(struct audit *audit);

#endif
