/* SPDX-License-Identifier: BSD-2-Clause */
/* Log of the last events of a peer. */
#include "core/event_log.h"

#include <stdio.h>

/* Entries that the log has room for after its first event. */
#define ROOM_FIRST 8
/* Codes of events are below this number. */
#define CODES 32

void pl_event_log_init(struct pl_event_log *log, const struct pl_allocator *allocator)
{
	*log = (struct pl_event_log){ .allocator = allocator };
	pl_lock_init(&log->lock);
}

static void event_text_free(struct pl_event_log *log, struct pl_event_entry *entry)
{
	if (entry->copied)
		pl_free(log->allocator, (void *)(uintptr_t)entry->text);
	entry->copied = false;
	entry->text = "";
}

void pl_event_log_destroy(struct pl_event_log *log)
{
	for (unsigned i = 0; i < log->count; i++)
		event_text_free(log, &log->entries[i]);
	pl_free(log->allocator, log->entries);
	log->entries = NULL;
	log->count = log->room = 0;
}

/* -- adding: the lock is held --------------------------------------------------------------------- */

static bool events_equal(const struct pl_event_entry *a, const struct pl_event_entry *b)
{
	return a->event == b->event && a->lane == b->lane && a->status == b->status && !strcmp(a->text, b->text);
}

/* Drops the oldest entry of the event with the most entries. */
static void drop_most_frequent_event(struct pl_event_log *log)
{
	uint8_t entries_of[CODES] = { 0 };
	unsigned most = 0, index = 0;

	for (unsigned i = 0; i < log->count; i++)
		entries_of[log->entries[i].event % CODES]++;
	for (unsigned i = 0; i < CODES; i++)
		most = PL_MAX(most, entries_of[i]);
	while (entries_of[log->entries[index].event % CODES] != most)
		index++;
	event_text_free(log, &log->entries[index]);
	log->count--;
	memmove(&log->entries[index], &log->entries[index + 1], (log->count - index) * sizeof(*log->entries));
}

/* Makes room for one more entry.  Returns false if there is no memory. */
static bool event_log_reserve(struct pl_event_log *log)
{
	unsigned room = log->room ? PL_MIN(2u * log->room, (unsigned)PL_EVENTS_MAX) : ROOM_FIRST;
	struct pl_event_entry *entries;

	if (log->count == PL_EVENTS_MAX)
		drop_most_frequent_event(log);
	if (log->count < log->room)
		return true;
	entries = pl_realloc(log->allocator, log->entries, room * sizeof(*entries));
	if (!entries)
		return false;
	log->entries = entries;
	log->room = (uint16_t)room;
	return true;
}

/* Appends an entry that has its number and times, and owns its text.  Without memory the entry is lost. */
static void event_log_append(struct pl_event_log *log, struct pl_event_entry *entry)
{
	if (event_log_reserve(log))
		log->entries[log->count++] = *entry;
	else
		event_text_free(log, entry);
}

/* Replaces the text by a copy.  Returns false if there is no memory. */
static bool event_text_copy(struct pl_event_log *log, struct pl_event_entry *entry)
{
	size_t size = strlen(entry->text) + 1;
	char *copy = pl_alloc(log->allocator, size);

	if (copy)
		entry->text = memcpy(copy, entry->text, size);
	return copy;
}

void pl_event_log_add(struct pl_event_log *log, const struct pl_event_entry *event)
{
	struct pl_event_entry entry = *event, *newest;

	pl_lock_take(&log->lock);
	/* Under the lock, so that times rise with the sequence numbers. */
	entry.first_time = entry.time = pl_now();
	entry.sequence = ++log->sequence;
	entry.count = 1;
	newest = log->count ? &log->entries[log->count - 1] : NULL;
	/* An event that was lost for lack of memory interrupts a row. */
	if (newest && newest->sequence + 1 == entry.sequence && newest->count < UINT32_MAX &&
	    events_equal(newest, &entry)) {
		newest->sequence = entry.sequence;
		newest->time = entry.time;
		newest->key = entry.key;
		newest->count++;
	} else if (!entry.copied || event_text_copy(log, &entry)) {
		event_log_append(log, &entry);
	}
	pl_lock_release(&log->lock);
}

/* Takes all entries out of a log. The lock of the log is held; the result has no lock. */
static struct pl_event_log take_events(struct pl_event_log *log)
{
	struct pl_event_log taken = { .count = log->count, .room = log->room, .entries = log->entries };

	log->entries = NULL;
	log->count = log->room = 0;
	return taken;
}

void pl_event_log_continue(struct pl_event_log *log, struct pl_event_log *earlier)
{
	struct pl_event_log before, after;
	uint64_t shift;

	pl_lock_take(&earlier->lock);
	before = take_events(earlier);
	shift = earlier->sequence;
	pl_lock_release(&earlier->lock);
	pl_lock_take(&log->lock);
	after = take_events(log);
	log->entries = before.entries;
	log->count = before.count;
	log->room = before.room;
	log->sequence += shift;
	for (unsigned i = 0; i < after.count; i++) {
		after.entries[i].sequence += shift;
		event_log_append(log, &after.entries[i]);
	}
	pl_lock_release(&log->lock);
	pl_free(log->allocator, after.entries);
}

/* -- reading -------------------------------------------------------------------------------------- */

/* Copies a text. Another process may have influenced it, so control characters and bytes above ASCII become '?'. */
static void event_text_print(char *to, size_t size, const char *text)
{
	snprintf(to, size, "%s", text);
	for (; *to; to++)
		if (*to < ' ' || *to > '~')
			*to = '?';
}

static void fill_event_record(const struct pl_event_entry *entry, struct pl_event_record *record)
{
	*record = (struct pl_event_record){
		.sequence = entry->sequence,
		.first_time = entry->first_time,
		.time = entry->time,
		.key = entry->key,
		.event = entry->event,
		.count = entry->count,
		.lane = entry->lane,
		.status = entry->status,
	};
	event_text_print(record->text, sizeof(record->text), entry->text);
}

size_t pl_event_log_read(struct pl_event_log *log, uint64_t after, size_t record_size, void *records, size_t capacity)
{
	struct pl_event_record record;
	uint8_t *to = records;
	size_t count = 0;

	pl_lock_take(&log->lock);
	for (unsigned i = 0; i < log->count && count < capacity; i++) {
		if (log->entries[i].sequence <= after)
			continue;
		fill_event_record(&log->entries[i], &record);
		memcpy(to + count++ * record_size, &record, record_size);
	}
	pl_lock_release(&log->lock);
	return count;
}
