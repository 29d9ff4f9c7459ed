/* SPDX-License-Identifier: BSD-2-Clause */
/* Log of a peer's events, as text and as JSON (--events). */
#ifndef PL_CMD_COMMON_EVENTS_H
#define PL_CMD_COMMON_EVENTS_H

#include "cmd/common/output.h"

/* Copy of a peer's log. */
struct cli_events {
	struct pl_event_record records[PL_EVENTS_MAX];
	int count;
	struct pl_event_query query;
};

/* Copies the log of a peer.  NULL: no events. */
void cli_events_read(struct cli_events *events, struct pl_peer *peer);

/*
 * Prints the events, the oldest first, with their times since the first one.  `wait` false: drops the lines for which a
 * pipe has no room.
 */
void cli_events_print(FILE *file, const struct cli_events *events, const char *address, bool wait);

/* True if a line can be written without waiting. */
bool cli_has_room(FILE *file);

/* Returns a list of { "sequence", "event", "seconds", "last_seconds", "date", "count", "lane", "key", "status", "text" }. */
struct json_object *cli_events_json(const struct cli_events *events);

#endif
