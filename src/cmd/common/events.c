/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/events.h"

#include <poll.h>
#include <string.h>
#include <time.h>

#define DATE_MAX 32

void cli_events_read(struct cli_events *events, struct pl_peer *peer)
{
	events->query = (struct pl_event_query)PL_EVENT_QUERY_INIT;
	events->count = peer ? pl_peer_events(peer, &events->query, events->records, PL_EVENTS_MAX) : 0;
	events->count = CLI_MAX(events->count, 0);
}

/* Returns the seconds from the first event of the log to a time of its clock. */
static double seconds_since_first(const struct cli_events *events, uint64_t time)
{
	return ((double)time - (double)events->records[0].first_time) / (double)CLI_NS_PER_S;
}

/* Formats the date of a time of the log, such as "2026-11-23T20:00:00.123Z". */
static const char *event_date(const struct cli_events *events, uint64_t time, char text[DATE_MAX])
{
	uint64_t wall = events->query.realtime - (events->query.monotonic - time);
	time_t seconds = (time_t)(wall / CLI_NS_PER_S);
	struct tm date;
	size_t length;

	gmtime_r(&seconds, &date);
	length = strftime(text, DATE_MAX, "%Y-%m-%dT%H:%M:%S", &date);
	snprintf(text + length, DATE_MAX - length, ".%03uZ", (unsigned)(wall % CLI_NS_PER_S / CLI_NS_PER_MS));
	return text;
}

/* -- text ------------------------------------------------------------------------------------------ */

bool cli_has_room(FILE *file)
{
	struct pollfd output = { .fd = fileno(file), .events = POLLOUT };

	return poll(&output, 1, 0) == 1;
}

/* Prints one line by one call, so that a pipe takes it as a whole. */
static void print_event(FILE *file, const struct cli_events *events, const struct pl_event_record *record)
{
	char number[32] = "", merged[64] = "", key[32] = "";

	if (record->lane >= 0)
		snprintf(number, sizeof(number), " %d", record->lane);
	if (record->count > 1)
		snprintf(merged, sizeof(merged), " (%u times, until +%.6f s)", record->count,
			 seconds_since_first(events, record->time));
	if (record->key)
		snprintf(key, sizeof(key), " [key %016llx]", (unsigned long long)record->key);
	fprintf(file, "  +%.6f s  %s%s%s%s%s%s\n", seconds_since_first(events, record->first_time),
		pl_event_name(record->event), number, merged, record->text[0] ? ": " : "", record->text, key);
}

void cli_events_print(FILE *file, const struct cli_events *events, const char *address, bool wait)
{
	char date[DATE_MAX];

	if (!wait && !cli_has_room(file))
		return;
	if (events->count == 0) {
		fprintf(file, "events of %s: none\n", address);
		return;
	}
	fprintf(file, "events of %s since %s:\n", address, event_date(events, events->records[0].first_time, date));
	for (int i = 0; i < events->count && (wait || cli_has_room(file)); i++)
		print_event(file, events, &events->records[i]);
	fflush(file);
}

/* -- JSON ------------------------------------------------------------------------------------------ */

/* Returns the seconds since the first event, to the nanosecond. */
static struct json_object *json_seconds(const struct cli_events *events, uint64_t time)
{
	char text[32];

	snprintf(text, sizeof(text), "%.9f", seconds_since_first(events, time));
	return json_object_new_double_s(seconds_since_first(events, time), text);
}

static struct json_object *event_json(const struct cli_events *events, const struct pl_event_record *record)
{
	struct json_object *object = json_object_new_object();
	char date[DATE_MAX], key[32];

	snprintf(key, sizeof(key), "%016llx", (unsigned long long)record->key);
	cli_json_add(object, "sequence", json_object_new_uint64(record->sequence));
	cli_json_add(object, "event", cli_json_text(pl_event_name(record->event)));
	cli_json_add(object, "seconds", json_seconds(events, record->first_time));
	cli_json_add(object, "last_seconds", json_seconds(events, record->time));
	cli_json_add(object, "date", cli_json_text(event_date(events, record->first_time, date)));
	cli_json_add(object, "count", json_object_new_int64(record->count));
	cli_json_add(object, "lane", record->lane >= 0 ? json_object_new_int(record->lane) : NULL);
	cli_json_add(object, "key", record->key ? cli_json_text(key) : NULL);
	cli_json_add(object, "status", json_object_new_int(record->status));
	cli_json_add(object, "text", cli_json_text(record->text));
	return object;
}

struct json_object *cli_events_json(const struct cli_events *events)
{
	struct json_object *list = json_object_new_array();

	for (int i = 0; i < events->count; i++)
		cli_json_append(list, event_json(events, &events->records[i]));
	return list;
}
