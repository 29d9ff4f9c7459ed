/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Audit log of a server: a line for each connection, refusal and access.  A thread writes the lines, so that nobody waits
 * for the disk.  When the log cannot keep up, lines are dropped, and the next line says how many.
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
	const char *name; /* of a file or a block of memory */
	const char *fabric;
	const struct pl_error *error; /* reason of a refusal */
	const char *limit;            /* budget that a client has used up */
	uint64_t bytes, duration;     /* duration in nanoseconds */
	bool has_bytes, encrypted;
};

/*
 * Opens a log: a file, to which lines are appended, or "journal" for systemd-journald.  `json`: lines are JSON objects.
 * "journal=PATH" names another socket than journald's.
 */
int audit_open(struct audit **audit, const char *target, bool json, struct pl_error *error);
/* Adds a line.  Any thread; never waits for the log.  `audit` may be NULL. */
void audit_write(struct audit *audit, const struct audit_event *event);
/* Opens the file again, after it was renamed.  The lines go to the old file if that fails. */
void audit_reopen(struct audit *audit);
/* Writes what is left, for at most 5 s, and closes. */
void audit_close(struct audit *audit);

#endif
