/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines of the audit log. */
#ifndef PL_CMD_TRANSFER_AUDIT_FORMAT_H
#define PL_CMD_TRANSFER_AUDIT_FORMAT_H

#include "cmd/transfer/audit.h"

enum audit_format { AUDIT_TEXT, AUDIT_JSON, AUDIT_JOURNAL };

/* Longest line; a name has at most 1,024 bytes, each of which takes up to 6. */
#define AUDIT_LINE_MAX 16384

/*
 * Formats an event; `dropped`: lines that are missing before it.  Lines end in a newline; a message for journald has no
 * end.  Returns the length, at most AUDIT_LINE_MAX.
 */
size_t audit_format(enum audit_format format, const struct audit_event *event, uint64_t sequence, uint64_t dropped,
		    char line[AUDIT_LINE_MAX]);

#endif
