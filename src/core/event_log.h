/* SPDX-License-Identifier: BSD-2-Clause */
/* Log of the last events of a peer: connections, refusals, revocations, limits, loss. */
#ifndef PL_CORE_EVENT_LOG_H
#define PL_CORE_EVENT_LOG_H

#include "base/base.h"
#include "base/lock.h"

/* Event without a lane or rail. */
#define PL_NO_LANE (-1)

/* Event, or several equal ones in a row. */
struct pl_event_entry {
	uint64_t sequence;         /* number of the newest of the merged events */
	uint64_t first_time, time; /* CLOCK_MONOTONIC: oldest and newest of the merged events */
	uint64_t key;              /* of the newest; 0: none */
	const char *text;          /* static storage, or a copy that the log owns */
	uint32_t count;            /* merged events, at least 1 */
	int32_t status;            /* 0 or a negative errno */
	int16_t lane;              /* lane or rail; PL_NO_LANE: none */
	uint8_t event;             /* enum pl_event */
	bool copied;               /* `text` is a copy; to pl_event_log_add(): must be copied */
};

/*
 * Up to PL_EVENTS_MAX entries, the oldest first. The array grows with the events. The lock is the innermost one: its
 * holder takes no other lock, so a thread may add an event with any lock held.
 */
struct pl_event_log {
	struct pl_lock lock;
	uint16_t count, room;
	uint64_t sequence; /* number of the newest event; 0: none */
	const struct pl_allocator *allocator;
	struct pl_event_entry *entries; /* NULL until the first event */
};

void pl_event_log_init(struct pl_event_log *log, const struct pl_allocator *allocator);
void pl_event_log_destroy(struct pl_event_log *log);

/*
 * Adds an event: sets its sequence number and its times, and merges the event with the newest entry if both are equal
 * except for their keys. A full log drops the oldest entry of the most frequent kind, so that a flood of one kind keeps
 * all other kinds. Without memory the event leaves a gap in the sequence numbers. Any thread, any locks.
 */
void pl_event_log_add(struct pl_event_log *log, const struct pl_event_entry *event);

/* Puts the entries of an earlier log before those of this one; the earlier log is empty afterwards. */
void pl_event_log_continue(struct pl_event_log *log, struct pl_event_log *earlier);

/* Copies up to `capacity` entries whose sequence number is over `after`, the oldest first.  Returns their number. */
size_t pl_event_log_read(struct pl_event_log *log, uint64_t after, size_t record_size, void *records, size_t capacity);

#endif
