/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of a peer's log, and the functions by which programs read the log. */
#include <stdio.h>

#include "core/fabric.h"

void pl_peer_note(struct pl_peer *peer, enum pl_event event, const char *text)
{
	const struct pl_event_entry entry = { .event = event, .lane = PL_NO_LANE, .text = text };

	pl_event_log_add(&peer->events, &entry);
}

void pl_peer_note_lane(struct pl_peer *peer, enum pl_event event, unsigned lane, int status, const char *text)
{
	const struct pl_event_entry entry = { .event = event, .lane = (int16_t)lane, .status = status, .text = text };

	pl_event_log_add(&peer->events, &entry);
}

void pl_peer_note_rail(struct pl_peer *peer, enum pl_event event, unsigned rail, const char *text)
{
	const struct pl_event_entry entry = { .event = event, .lane = (int16_t)rail, .text = text, .copied = true };

	pl_event_log_add(&peer->events, &entry);
}

void pl_peer_note_key(struct pl_peer *peer, enum pl_event event, uint64_t key, int status, const char *text)
{
	const struct pl_event_entry entry = {
		.event = event, .lane = PL_NO_LANE, .key = key, .status = status, .text = text
	};

	pl_event_log_add(&peer->events, &entry);
}

void pl_peer_note_error(struct pl_peer *peer, enum pl_event event, uint64_t key, const struct pl_error *error)
{
	const struct pl_event_entry entry = {
		.event = event, .lane = PL_NO_LANE, .key = key, .status = error->code, .text = error->message,
		.copied = true,
	};

	pl_event_log_add(&peer->events, &entry);
}

/* -- connections ---------------------------------------------------------------------------------- */

static const char *encryption_reason(const struct pl_peer *peer)
{
	if (peer->encrypt)
		return peer->encrypt_demanded ? "an end demands it" : "the ends are on different hosts";
	if (peer->ops->clear)
		return "RDMA devices do not encrypt";
	return peer->same_host ? "both ends are on one host" : "both ends declined it";
}

void pl_peer_note_connected(struct pl_peer *peer)
{
	pl_peer_note(peer, PL_EVENT_CONNECTED, peer->reason);
	pl_peer_note(peer, peer->encrypt ? PL_EVENT_ENCRYPTION_ON : PL_EVENT_ENCRYPTION_OFF, encryption_reason(peer));
}

void pl_peer_note_loss(struct pl_peer *peer)
{
	bool closed = !strcmp(peer->loss.id, "PEER-CLOSED");

	pl_peer_note_error(peer, closed ? PL_EVENT_CLOSED_THERE : PL_EVENT_LOST, 0, &peer->loss);
}

/* -- refusals ------------------------------------------------------------------------------------- */

/* Few texts without numbers, so that equal refusals merge. */
#define REFUSALS_OF(request) \
	{ \
		[PL_WIRE_UNKNOWN_KEY] = request ": the key is unknown or revoked", \
		[PL_WIRE_EXPIRED] = request ": the grant has expired", \
		[PL_WIRE_RANGE] = request ": the range leaves the grant", \
		[PL_WIRE_RIGHTS] = request ": the grant lacks the right", \
		[PL_WIRE_UNSUPPORTED] = request ": no device reaches the memory", \
		[PL_WIRE_MEMORY] = request ": the memory no longer exists", \
	}

static const char *refusal_text(unsigned right, enum pl_wire_status status)
{
	static const char *const texts[][PL_WIRE_MEMORY + 1] = {
		REFUSALS_OF("import"), REFUSALS_OF("read"), REFUSALS_OF("write"), REFUSALS_OF("atomic operation"),
		REFUSALS_OF("flush"),
	};
	unsigned request = 4;

	if (right == 0 || right == PL_ACCESS_READ || right == PL_ACCESS_WRITE)
		request = right;
	else if (right == PL_ACCESS_ATOMIC)
		request = 3;
	return status <= PL_WIRE_MEMORY && texts[request][status] ? texts[request][status] : "refused";
}

void pl_peer_note_refusal(struct pl_peer *peer, uint64_t key, unsigned right, enum pl_wire_status status)
{
	int code = status == PL_WIRE_RANGE ? -ERANGE : -EACCES;

	if (status == PL_WIRE_BUSY)
		pl_peer_note_key(peer, PL_EVENT_LIMIT_REACHED, 0, -EBUSY,
				 "import: no room for one more key of the other end (at most 65536), no memory, or the "
				 "card may lock no more (see ulimit -l)");
	else if (status == PL_WIRE_IMPORTS)
		pl_peer_note_key(peer, PL_EVENT_LIMIT_REACHED, 0, -EBUSY,
				 "import: the other end holds as many imports as its rights allow");
	else
		pl_peer_note_key(peer, PL_EVENT_REFUSED_HERE, key, code, refusal_text(right, status));
}

void pl_peer_note_refused_operation(const struct pl_operation *operation)
{
	const struct pl_segment *segment = operation->segment_count ? operation->segments : NULL;
	uint64_t key = segment && segment->remote ? pl_remote_key_id(segment->remote) : 0;

	if (operation->peer && operation->error)
		pl_peer_note_error(operation->peer, PL_EVENT_REFUSED_THERE, key, operation->error);
}

/* -- public functions ----------------------------------------------------------------------------- */

const char *pl_event_name(unsigned event)
{
	static const char *const names[] = {
		[PL_EVENT_FABRIC_FAILED] = "fabric-failed",
		[PL_EVENT_LANE_OPENED] = "lane-opened",
		[PL_EVENT_LANE_LOST] = "lane-lost",
		[PL_EVENT_RAIL_OPENED] = "rail-opened",
		[PL_EVENT_RAIL_LOST] = "rail-lost",
		[PL_EVENT_RAIL_REOPENED] = "rail-reopened",
		[PL_EVENT_CONNECTED] = "connected",
		[PL_EVENT_ENCRYPTION_ON] = "encryption-on",
		[PL_EVENT_ENCRYPTION_OFF] = "encryption-off",
		[PL_EVENT_PATH_CHOSEN] = "path-chosen",
		[PL_EVENT_STAGED] = "staged",
		[PL_EVENT_REVOKED_HERE] = "revoked-here",
		[PL_EVENT_REVOKED_THERE] = "revoked-there",
		[PL_EVENT_REFUSED_HERE] = "refused-here",
		[PL_EVENT_REFUSED_THERE] = "refused-there",
		[PL_EVENT_LIMIT_REACHED] = "limit-reached",
		[PL_EVENT_CLOSED_HERE] = "closed-here",
		[PL_EVENT_CLOSED_THERE] = "closed-there",
		[PL_EVENT_LOST] = "lost",
		[PL_EVENT_RECONNECT_BEGUN] = "reconnect-begun",
		[PL_EVENT_RECONNECT_FAILED] = "reconnect-failed",
		[PL_EVENT_RECONNECT_DONE] = "reconnect-done",
		[PL_EVENT_GRANTED] = "granted",
	};

	return event < PL_ARRAY_SIZE(names) && names[event] ? names[event] : "unknown";
}

int pl_peer_events(struct pl_peer *peer, struct pl_event_query *query, struct pl_event_record *records, size_t capacity)
{
	struct pl_event_query full = PL_EVENT_QUERY_INIT;
	size_t size = query->size, count;
	const uint8_t *bytes = (const uint8_t *)records;
	struct pl_event_record last;

	if (size < offsetof(struct pl_event_query, monotonic) || size > sizeof(full))
		return -EINVAL;
	memcpy(&full, query, size);
	if (full.record_size < offsetof(struct pl_event_record, text) || full.record_size > sizeof(last) ||
	    (capacity && !records))
		return -EINVAL;
	count = pl_event_log_read(&peer->events, full.after, full.record_size, records, capacity);
	if (count) {
		memcpy(&last, bytes + (count - 1) * full.record_size, offsetof(struct pl_event_record, text));
		full.after = last.sequence;
	}
	full.realtime = pl_wall_clock();
	full.monotonic = pl_now();
	memcpy(query, &full, size);
	return (int)count;
}
