/* SPDX-License-Identifier: BSD-2-Clause */
/* The log of a peer's events: each event is recorded when it happens, at the end that it concerns. */
#include <pthread.h>
#include <time.h>

#include "scenarios/scenario.h"

#define SIZE 100000
#define NOTIFICATIONS 1100 /* more than the window of 1024 */

/* Records of a peer, the oldest first. */
struct peer_log {
	struct pl_event_record records[PL_EVENTS_MAX];
	int count;
};

static void peer_log_read(struct pl_peer *peer, struct peer_log *log)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	uint64_t last = 0, time = 0, now = clock_now();

	log->count = pl_peer_events(peer, &query, log->records, PL_EVENTS_MAX);
	check(log->count > 0);
	check(query.monotonic >= now && query.monotonic - now < AMPLE_TIME);
	check_number(query.after, log->records[log->count - 1].sequence);
	for (int i = 0; i < log->count; i++) {
		const struct pl_event_record *record = &log->records[i];

		check(record->count >= 1 && record->sequence - record->count >= last);
		check(record->first_time >= time && record->time >= record->first_time);
		check(record->time <= query.monotonic);
		check(strcmp(pl_event_name(record->event), "unknown"));
		last = record->sequence;
		time = record->time;
	}
}

/* Returns the newest record of an event; NULL if there is none. */
static const struct pl_event_record *peer_log_find(const struct peer_log *log, enum pl_event event)
{
	for (int i = log->count; i-- > 0;)
		if (log->records[i].event == (uint32_t)event)
			return &log->records[i];
	return NULL;
}

/* Reads the log until it has an event, which another engine may add a little later. */
static const struct pl_event_record *peer_log_await(struct scenario_environment *environment, struct pl_peer *peer,
						    enum pl_event event, struct peer_log *log)
{
	uint64_t end = clock_now() + AMPLE_TIME;
	const struct pl_event_record *found;

	do {
		progress(environment);
		peer_log_read(peer, log);
		found = peer_log_find(log, event);
	} while (!found && clock_now() < end);
	if (!found)
		check_text(pl_event_name(0), pl_event_name(event)); /* names the missing event */
	return found;
}

static bool text_begins(const char *text, const char *beginning)
{
	return !strncmp(text, beginning, strlen(beginning));
}

/* Checks the events of a new connection at one end. */
static void check_opening(struct pl_peer *peer)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	const struct pl_event_record *opened, *connected, *encryption;
	struct peer_log log;
	bool verbs;

	check_number(pl_peer_query(peer, &info), 0);
	verbs = !strcmp(info.fabric, "verbs");
	peer_log_read(peer, &log);
	opened = peer_log_find(&log, verbs ? PL_EVENT_RAIL_OPENED : PL_EVENT_LANE_OPENED);
	connected = peer_log_find(&log, PL_EVENT_CONNECTED);
	encryption = peer_log_find(&log, info.encrypted ? PL_EVENT_ENCRYPTION_ON : PL_EVENT_ENCRYPTION_OFF);
	check(opened && connected && encryption);
	check(opened->lane >= 0 && opened->lane < 16);
	check(text_begins(connected->text, info.fabric));
	check_number(connected->lane, -1);
	check(encryption->text[0]);
	check(!peer_log_find(&log, info.encrypted ? PL_EVENT_ENCRYPTION_OFF : PL_EVENT_ENCRYPTION_ON));
	check(!peer_log_find(&log, PL_EVENT_LOST) && !peer_log_find(&log, PL_EVENT_LANE_LOST));
}

static void log_of_opening(struct scenario_environment *environment)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record record;
	struct timespec wall;

	check_opening(environment->near_peer);
	check_opening(environment->far_peer);
	clock_gettime(CLOCK_REALTIME, &wall);
	check_number(pl_peer_events(environment->near_peer, &query, &record, 1), 1);
	check_number(record.sequence, record.count);
	check_number(query.after, record.sequence);
	check(query.realtime / SECOND - (uint64_t)wall.tv_sec <= 10);
	check_number(pl_peer_events(environment->near_peer, &query, &record, 1), 1);
	check(query.after > 1 && record.sequence == query.after);
}

static void log_of_wrong_queries(struct scenario_environment *environment)
{
	struct pl_event_record records[2];
	struct pl_event_query query = PL_EVENT_QUERY_INIT;

	query.size = 4;
	check_number(pl_peer_events(environment->near_peer, &query, records, 2), -EINVAL);
	query.size = sizeof(query) + 8;
	check_number(pl_peer_events(environment->near_peer, &query, records, 2), -EINVAL);
	query = (struct pl_event_query)PL_EVENT_QUERY_INIT;
	query.record_size = 8;
	check_number(pl_peer_events(environment->near_peer, &query, records, 2), -EINVAL);
	query.record_size = sizeof(records[0]) + 8;
	check_number(pl_peer_events(environment->near_peer, &query, records, 2), -EINVAL);
	query.record_size = sizeof(records[0]);
	check_number(pl_peer_events(environment->near_peer, &query, NULL, 2), -EINVAL);
	check_number(pl_peer_events(environment->near_peer, &query, NULL, 0), 0);
	query.after = UINT64_MAX;
	check_number(pl_peer_events(environment->near_peer, &query, records, 2), 0);
	/* A program with an older and shorter record. */
	query.after = 0;
	query.record_size = offsetof(struct pl_event_record, text) + 8;
	memset(records, 0x77, sizeof(records));
	check_number(pl_peer_events(environment->near_peer, &query, records, 1), 1);
	check_number(records[0].text[8], 0x77);
}

/* Checks the access path, staging, revocation and refusal of a grant. */
static void log_of_grant(struct scenario_environment *environment)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	const struct pl_event_record *record;
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_error error;
	struct buffer near, far;
	struct peer_log log;
	bool mapped;
	uint64_t key;

	check_number(pl_peer_query(environment->near_peer, &info), 0);
	buffer_open(&near, environment->near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, SIZE, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	peer_log_read(environment->near_peer, &log);
	record = peer_log_find(&log, PL_EVENT_PATH_CHOSEN);
	check(record && record->key && text_begins(record->text, info.fabric));
	key = record->key;
	mapped = strstr(record->text, "mapped by both");
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, SIZE }, NULL,
			  &operation, &error),
		 &error);
	complete(environment, operation, &receipt);
	peer_log_read(environment->near_peer, &log);
	record = peer_log_find(&log, PL_EVENT_STAGED);
	check((receipt.bytes_staged > 0) == (record != NULL));
	if (record)
		check_text(record->text, receipt.reason);
	buffer_close(&far);
	record = peer_log_await(environment, environment->far_peer, PL_EVENT_REVOKED_HERE, &log);
	check(record->key == key);
	check_text(record->text, "the region was deregistered");
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 8 }, NULL,
			  &operation, &error),
		 &error);
	fail_with(environment, operation, -EACCES);
	record = peer_log_await(environment, environment->near_peer, PL_EVENT_REFUSED_THERE, &log);
	check(record->key == key && record->status == -EACCES);
	if (!strcmp(info.fabric, "tcp")) {
		record = peer_log_await(environment, environment->far_peer, PL_EVENT_REFUSED_HERE, &log);
		check(record->key == key && record->status == -EACCES);
		check_text(record->text, "write: the key is unknown or revoked");
	} else if (mapped) {
		record = peer_log_await(environment, environment->near_peer, PL_EVENT_REVOKED_THERE, &log);
		check(record->key == key);
	}
	pl_remote_release(remote);
	buffer_close(&near);
}

/* Checks that refused imports are in the logs of both ends. */
static void log_of_refused_imports(struct scenario_environment *environment)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	uint8_t token[PL_TOKEN_MAX], expiring[PL_TOKEN_MAX];
	size_t length = sizeof(token), expiring_length = sizeof(expiring);
	const struct pl_event_record *record;
	struct pl_error error;
	struct buffer far;
	struct peer_log log;

	buffer_open(&far, environment->far, 64, PL_ACCESS_ALL);
	check_ok(pl_region_share(far.region, NULL, token, &length, &error), &error);
	options.lifetime = 1000000;
	check_ok(pl_region_share(far.region, &options, expiring, &expiring_length, &error), &error);
	check_number(pl_region_revoke(far.region, token, length), 0);
	for (unsigned i = 0; i < 3; i++)
		check_number(import_status(environment, environment->near_peer, token, length), -EACCES);
	peer_log_read(environment->far_peer, &log);
	record = peer_log_find(&log, PL_EVENT_REFUSED_HERE);
	check(record && record->count == 3);
	check_text(record->text, "import: the key is unknown or revoked");
	peer_log_read(environment->near_peer, &log);
	record = peer_log_find(&log, PL_EVENT_REFUSED_THERE);
	check(record && record->count == 3);
	settle(environment, 20);
	check_number(import_status(environment, environment->near_peer, expiring, expiring_length), -EACCES);
	peer_log_read(environment->far_peer, &log);
	record = peer_log_find(&log, PL_EVENT_REFUSED_HERE);
	check(record && record->count == 1);
	check_text(record->text, "import: the grant has expired");
	buffer_close(&far);
}

/* Checks that the sender's log shows a receiver that consumes nothing. */
static void log_of_full_window(struct scenario_environment *environment)
{
	static struct pl_completion sent[NOTIFICATIONS], arrived[NOTIFICATIONS];
	struct pl_error error;
	struct peer_log log;

	for (unsigned i = 0; i < NOTIFICATIONS; i++)
		check_ok(pl_notify(environment->near_peer, i, NULL, 0, NULL, NULL, &error), &error);
	peer_log_await(environment, environment->near_peer, PL_EVENT_LIMIT_REACHED, &log);
	collect(environment, environment->far, arrived, NOTIFICATIONS);
	collect(environment, environment->near, sent, NOTIFICATIONS);
	peer_log_read(environment->far_peer, &log);
	check(!peer_log_find(&log, PL_EVENT_LIMIT_REACHED));
}

/* Checks that a lost peer keeps its log, whose newest loss is that of the completion. */
static void log_of_closed_peer(struct scenario_environment *environment)
{
	const struct pl_event_record *record;
	struct pl_completion completion;
	struct pl_error error;
	struct peer_log log;
	bool closed;

	pl_peer_close(environment->far_peer);
	environment->far_peer = NULL;
	collect(environment, environment->near, &completion, 1);
	check_number(completion.kind, PL_KIND_LOST);
	peer_log_read(environment->near_peer, &log);
	check_number(pl_completion_error(environment->near, &completion, &error), -ECONNRESET);
	/* The goodbye of the other end may come after the end of a data socket. */
	closed = !strcmp(error.id, "PEER-CLOSED");
	record = peer_log_find(&log, closed ? PL_EVENT_CLOSED_THERE : PL_EVENT_LOST);
	check(record && record->status == -ECONNRESET && record->count == 1);
	check_text(record->text, error.message);
	check(!peer_log_find(&log, closed ? PL_EVENT_LOST : PL_EVENT_CLOSED_THERE));
	check(peer_log_find(&log, PL_EVENT_CONNECTED));
}

/*
 * Checks that imports after the other end closed end with the reason, which the log has by then. The first ones meet a
 * socket that takes no more, before this end has read the goodbye.
 */
static void log_of_late_imports(struct scenario_environment *environment)
{
	enum { COUNT = 4 };
	struct pl_operation *imports[COUNT];
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	unsigned count = 0;
	struct buffer far;
	struct pl_error error;
	struct peer_log log;

	buffer_open(&far, environment->far, SIZE, PL_ACCESS_ALL);
	check_ok(pl_region_share(far.region, NULL, token, &length, &error), &error);
	pl_peer_close(environment->far_peer);
	environment->far_peer = NULL;
	while (count < COUNT &&
	       !pl_remote_import_start(environment->near_peer, token, length, 0, &imports[count], &error))
		count++;
	for (unsigned i = 0; i < count; i++) {
		check_status(await(environment, imports[i], NULL, &error), -ECONNRESET, &error);
		check(strcmp(error.id, "IMPORT-FAILED"));
		peer_log_read(environment->near_peer, &log);
		check(peer_log_find(&log, PL_EVENT_LOST) || peer_log_find(&log, PL_EVENT_CLOSED_THERE));
	}
	buffer_close(&far);
}

struct log_acceptor {
	struct pl_listener *listener;
	struct pl_peer *peer;
};

static void *accept_for_log(void *argument)
{
	struct log_acceptor *acceptor = argument;
	struct pl_error error;

	check_ok(pl_accept(acceptor->listener, AMPLE_TIME, &acceptor->peer, &error), &error);
	return NULL;
}

static void reconnect_near(struct scenario_environment *environment)
{
	struct log_acceptor acceptor = { .listener = environment->listener };
	struct pl_error error;
	struct pump pump;
	pthread_t thread;

	pump_start(environment, &pump, environment->far);
	check_number(pthread_create(&thread, NULL, accept_for_log, &acceptor), 0);
	check_ok(pl_peer_reconnect(&environment->near_peer, NULL, AMPLE_TIME, &error), &error);
	pthread_join(thread, NULL);
	pump_stop(&pump);
	pl_peer_close(environment->far_peer);
	environment->far_peer = acceptor.peer;
}

/* Checks that the log goes on in the new peer: the old connection, the attempts, the new connection. */
static void log_of_reconnect(struct scenario_environment *environment)
{
	static const enum pl_event order[] = { PL_EVENT_CONNECTED,        PL_EVENT_RECONNECT_BEGUN,
					       PL_EVENT_RECONNECT_FAILED, PL_EVENT_RECONNECT_BEGUN,
					       PL_EVENT_CONNECTED,        PL_EVENT_CLOSED_HERE,
					       PL_EVENT_RECONNECT_DONE };
	const struct pl_event_record *failed;
	struct pl_error error;
	struct peer_log log;
	unsigned found = 0;

	check_status(pl_peer_reconnect(&environment->near_peer, "127.0.0.1:1", 0, &error), -ECONNREFUSED, &error);
	peer_log_read(environment->near_peer, &log);
	failed = peer_log_find(&log, PL_EVENT_RECONNECT_FAILED);
	check(failed && failed->status == -ECONNREFUSED);
	check_text(failed->text, error.message);
	reconnect_near(environment);
	peer_log_read(environment->near_peer, &log);
	for (int i = 0; i < log.count && found < sizeof(order) / sizeof(order[0]); i++)
		found += log.records[i].event == (uint32_t)order[found];
	check_number(found, sizeof(order) / sizeof(order[0]));
	check_number(log.records[log.count - 1].event, PL_EVENT_RECONNECT_DONE);
	check_opening(environment->far_peer);
}

const struct scenario log_scenarios[] = {
	{ "log-of-opening", log_of_opening, 0 },
	{ "log-of-wrong-queries", log_of_wrong_queries, SCENARIO_SETTING },
	{ "log-of-grant", log_of_grant, 0 },
	{ "log-of-refused-imports", log_of_refused_imports, SCENARIO_SETTING },
	{ "log-of-full-window", log_of_full_window, SCENARIO_SETTING },
	{ "log-of-closed-peer", log_of_closed_peer, 0 },
	{ "log-of-late-imports", log_of_late_imports, 0 },
	{ "log-of-reconnect", log_of_reconnect, 0 },
	{ NULL, NULL, 0 },
};
