/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that sends requests which its own library would refuse.  The owner of the memory checks each request against the
 * key: rights, range, expiry, revocation, and the peer that got the key.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "support/attack.h"
#include "support/cases.h"
#include "support/socket.h"
#include "support/victim.h"

#define SIZE 4096u
#define WORD 8u
#define MARKER 0xabcdu /* cookie of the READ that follows each request */
#define LIFETIME ((3 + slowness() / 2) * SECOND)

static const struct setting plain = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false };

/* Peer without a library: one control channel and one lane. */
struct intruder {
	struct attack_link link;
	uint64_t readable; /* key of the first bytes, for reading */
};

struct world {
	struct victim victim;
	bool connects; /* the victim connects to the intruder */
	struct buffer buffer; /* SIZE bytes before, SIZE that are shared, SIZE behind */
	struct intruder intruder;
};

static void receive_control(int fd, struct pl_control *message)
{
	uint8_t header[PL_CONTROL_HEADER], body[PL_CONTROL_BODY_MAX];
	uint32_t length;
	uint16_t type;

	check(socket_receive(fd, header, sizeof(header), AMPLE_MS));
	check_number(pl_control_header_decode(header, &type, &length), 0);
	check(socket_receive(fd, body, length, AMPLE_MS));
	check_number(pl_control_decode(type, body, length, message), 0);
}

/* Presents a token.  Returns the key's id. */
static uint64_t import_key(const struct intruder *intruder, const uint8_t *bytes, size_t length)
{
	struct pl_control message = { .type = PL_CONTROL_IMPORT };
	struct pl_reader reader;
	struct pl_token token;
	struct bytes encoded;

	check_number(pl_token_decode(bytes, length, &token), 0);
	message.import.request = 1;
	message.import.grant = token.grant;
	memcpy(message.import.secret, token.secret, sizeof(token.secret));
	encoded = attack_encode(&message);
	check(socket_send(intruder->link.control, encoded.data, encoded.length));
	do {
		receive_control(intruder->link.control, &message);
	} while (message.type != PL_CONTROL_IMPORTED);
	check_number(message.imported.status, PL_WIRE_OK);
	pl_reader_init(&reader, message.imported.key, message.imported.key_length);
	return pl_get_u64(&reader);
}

static void share_middle(struct world *world, unsigned rights, uint64_t lifetime, uint8_t token[PL_TOKEN_MAX],
			 size_t *length)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct pl_error error;

	options.offset = options.length = SIZE;
	options.rights = rights;
	options.lifetime = lifetime;
	*length = PL_TOKEN_MAX;
	check_ok(pl_region_share(world->buffer.region, &options, token, length, &error), &error);
}

/* Shares the middle of the buffer.  Returns the intruder's key. */
static uint64_t get_key(struct world *world, unsigned rights)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length;

	share_middle(world, rights, 0, token, &length);
	return import_key(&world->intruder, token, length);
}

static void world_open(struct world *world, bool connects)
{
	world->connects = connects;
	victim_open(&world->victim, &plain);
	buffer_open(&world->buffer, world->victim.context, 3 * (size_t)SIZE, PL_ACCESS_ALL);
	bytes_set(world->buffer.bytes, 0x11, 3 * (size_t)SIZE);
	attack_open(&world->intruder.link, &world->victim, connects);
	world->intruder.readable = get_key(world, PL_ACCESS_READ);
}

static void world_close(struct world *world)
{
	attack_close(&world->intruder.link);
	buffer_close(&world->buffer);
	victim_close(&world->victim);
}

static void send_frame(const struct intruder *intruder, const struct pl_frame *frame)
{
	uint8_t bytes[PL_FRAME_HEADER + 2 * SIZE] = { 0 };
	bool payload = frame->type == PL_FRAME_WRITE || frame->type == PL_FRAME_ATOMIC;

	pl_frame_encode(frame, bytes);
	if (payload)
		memset(bytes + PL_FRAME_HEADER, 0x22, frame->length);
	check(socket_send(intruder->link.lane, bytes, PL_FRAME_HEADER + (payload ? frame->length : 0)));
}

/* Sends a request, then a READ that succeeds.  Returns the status of the request: a WRITE that succeeds has no answer. */
static enum pl_wire_status request(const struct intruder *intruder, const struct pl_frame *frame)
{
	const struct pl_frame marker = {
		.type = PL_FRAME_READ, .length = WORD, .key = intruder->readable, .cookie = MARKER
	};
	enum pl_wire_status status = PL_WIRE_OK;
	uint8_t header[PL_FRAME_HEADER], payload[2 * SIZE];
	struct pl_frame answer;

	send_frame(intruder, frame);
	send_frame(intruder, &marker);
	do {
		check(socket_receive(intruder->link.lane, header, sizeof(header), AMPLE_MS));
		check_number(pl_frame_decode(header, &answer), 0);
		if (answer.type == PL_FRAME_DATA)
			check(socket_receive(intruder->link.lane, payload, answer.length, AMPLE_MS));
		if (answer.type == PL_FRAME_FAIL) {
			check_number(answer.flags, frame->type);
			status = (enum pl_wire_status)answer.offset;
		}
	} while (answer.type != PL_FRAME_DATA || answer.cookie != MARKER);
	return status;
}

static struct pl_frame frame_of(uint8_t type, uint64_t key, uint64_t offset, uint32_t length)
{
	struct pl_frame frame = { .type = type, .key = key, .offset = offset, .length = length };

	if (type == PL_FRAME_ATOMIC) {
		frame.flags = PL_ATOMIC_ADD;
		frame.length = PL_FRAME_ATOMIC_PAYLOAD;
	}
	frame.cookie = type == PL_FRAME_WRITE ? 0 : 1;
	return frame;
}

static void check_refused(const struct world *world, struct pl_frame frame, enum pl_wire_status status)
{
	check_number(request(&world->intruder, &frame), status);
	value_check(world->buffer.bytes, 3 * (size_t)SIZE, 0x11);
}

static void check_done(const struct world *world, struct pl_frame frame)
{
	check_number(request(&world->intruder, &frame), PL_WIRE_OK);
	bytes_set(world->buffer.bytes, 0x11, 3 * (size_t)SIZE);
}

/* -- cases ------------------------------------------------------------------------------------------- */

/* Each right allows its own kind of request only. */
static void rights(void *argument)
{
	static const struct {
		unsigned right;
		uint8_t type;
	} kinds[] = {
		{ PL_ACCESS_READ, PL_FRAME_READ },
		{ PL_ACCESS_WRITE, PL_FRAME_WRITE },
		{ PL_ACCESS_ATOMIC, PL_FRAME_ATOMIC },
	};
	struct world world;

	world_open(&world, argument);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t key = get_key(&world, kinds[i].right),
			 others = get_key(&world, PL_ACCESS_ALL & ~kinds[i].right);

		for (unsigned k = 0; k < 3; k++) {
			check_done(&world, frame_of(kinds[k].type, i == k ? key : others, 0, WORD));
			check_refused(&world, frame_of(kinds[k].type, i == k ? others : key, 0, WORD), PL_WIRE_RIGHTS);
			if (i == k)
				continue;
			/* No right is needed for no bytes by the other end's library: the owner asks for it all the same. */
			check_refused(&world, frame_of(kinds[k].type, key, 0, 0), PL_WIRE_RIGHTS);
		}
	}
	world_close(&world);
}

static void ranges(void *argument)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
	} outside[] = {
		{ SIZE - 7, 8 },
		{ SIZE, 1 },
		{ 0, SIZE + 1 },
		{ 1, SIZE },
		{ UINT64_MAX, 8 },
		{ UINT64_MAX, 1 },
		{ UINT64_MAX - SIZE + 1, 8 },
		{ 0 - (uint64_t)SIZE, SIZE },
		{ UINT32_MAX, 8 },
	};
	struct world world;
	uint64_t key;

	world_open(&world, argument);
	key = get_key(&world, PL_ACCESS_ALL);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(outside); i++) {
		check_refused(&world, frame_of(PL_FRAME_WRITE, key, outside[i].offset, outside[i].length),
			      PL_WIRE_RANGE);
		check_refused(&world, frame_of(PL_FRAME_READ, key, outside[i].offset, outside[i].length),
			      PL_WIRE_RANGE);
	}
	check_refused(&world, frame_of(PL_FRAME_ATOMIC, key, SIZE, 0), PL_WIRE_RANGE);
	check_refused(&world, frame_of(PL_FRAME_ATOMIC, key, 0 - (uint64_t)WORD, 0), PL_WIRE_RANGE);
	for (uint8_t type = PL_FRAME_WRITE; type <= PL_FRAME_READ; type++) {
		check_done(&world, frame_of(type, key, 0, SIZE));
		check_done(&world, frame_of(type, key, SIZE - 1, 1));
		check_done(&world, frame_of(type, key, SIZE, 0));
	}
	check_done(&world, frame_of(PL_FRAME_ATOMIC, key, SIZE - WORD, 0));
	world_close(&world);
}

/* Sends one request of each kind. */
static void check_all_refused(const struct world *world, uint64_t key, enum pl_wire_status status)
{
	check_refused(world, frame_of(PL_FRAME_WRITE, key, 0, WORD), status);
	check_refused(world, frame_of(PL_FRAME_READ, key, 0, WORD), status);
	check_refused(world, frame_of(PL_FRAME_ATOMIC, key, 0, WORD), status);
}

static void revoked(void *argument)
{
	uint8_t token[PL_TOKEN_MAX];
	struct world world;
	size_t length;
	uint64_t key;

	world_open(&world, argument);
	share_middle(&world, PL_ACCESS_ALL, 0, token, &length);
	key = import_key(&world.intruder, token, length);
	check_done(&world, frame_of(PL_FRAME_WRITE, key, 0, WORD));
	check_number(pl_region_revoke(world.buffer.region, token, length), 0);
	check_all_refused(&world, key, PL_WIRE_UNKNOWN_KEY);
	world_close(&world);
}

static void expired(void *argument)
{
	uint8_t token[PL_TOKEN_MAX];
	struct world world;
	size_t length;
	uint64_t key;

	world_open(&world, argument);
	share_middle(&world, PL_ACCESS_ALL, LIFETIME, token, &length);
	key = import_key(&world.intruder, token, length);
	sleep_ms(LIFETIME / MS + 50);
	check_all_refused(&world, key, PL_WIRE_EXPIRED);
	world_close(&world);
}

static void released(void *argument)
{
	struct pl_control message = { .type = PL_CONTROL_RELEASE };
	struct pl_writer writer;
	struct world world;
	struct bytes bytes;
	uint64_t key;

	world_open(&world, argument);
	key = get_key(&world, PL_ACCESS_ALL);
	check_done(&world, frame_of(PL_FRAME_WRITE, key, 0, WORD));
	pl_writer_init(&writer, message.release.key, sizeof(message.release.key));
	pl_put_u64(&writer, key);
	message.release.key_length = sizeof(key);
	bytes = attack_encode(&message);
	check(socket_send(world.intruder.link.control, bytes.data, bytes.length));
	/* The victim answers this import after the release. */
	get_key(&world, PL_ACCESS_READ);
	check_all_refused(&world, key, PL_WIRE_UNKNOWN_KEY);
	world_close(&world);
}

/* Imports one token in batches, until the victim refuses.  Returns the number of keys. */
static unsigned import_until_refused(const struct intruder *intruder, const struct pl_token *token,
				     enum pl_wire_status *status)
{
	enum { BATCH = 255 };
	struct pl_control message = { .type = PL_CONTROL_IMPORT, .import = { .request = 1, .grant = token->grant } };
	unsigned granted = 0;
	struct bytes encoded;

	memcpy(message.import.secret, token->secret, sizeof(token->secret));
	encoded = attack_encode(&message);
	*status = PL_WIRE_OK;
	while (*status == PL_WIRE_OK) {
		for (unsigned i = 0; i < BATCH; i++)
			check(socket_send(intruder->link.control, encoded.data, encoded.length));
		for (unsigned i = 0; i < BATCH;) {
			receive_control(intruder->link.control, &message);
			if (message.type != PL_CONTROL_IMPORTED)
				continue;
			i++;
			if (message.imported.status == PL_WIRE_OK) {
				check_number(*status, PL_WIRE_OK);
				granted++;
			} else {
				*status = (enum pl_wire_status)message.imported.status;
			}
		}
	}
	return granted;
}

/* A peer has at most 65,536 keys: the victim refuses the next one, and serves the keys that it gave. */
static void most_keys(void *argument)
{
	enum pl_wire_status status;
	uint8_t bytes[PL_TOKEN_MAX];
	struct pl_token token;
	struct world world;
	size_t length;

	world_open(&world, argument);
	share_middle(&world, PL_ACCESS_READ, 0, bytes, &length);
	check_number(pl_token_decode(bytes, length, &token), 0);
	/* The intruder has one key already. */
	check_number(import_until_refused(&world.intruder, &token, &status), 65535);
	check_number(status, PL_WIRE_BUSY);
	check_done(&world, frame_of(PL_FRAME_READ, world.intruder.readable, 0, WORD));
	world_close(&world);
}

/* A key is that of the peer that imported it, and the number in front of its index must be right. */
static void of_others(void *argument)
{
	struct intruder second;
	struct world world;
	uint64_t key;

	world_open(&world, argument);
	key = get_key(&world, PL_ACCESS_ALL);
	for (unsigned bit = 0; bit < 64; bit++)
		check_refused(&world, frame_of(PL_FRAME_WRITE, key ^ 1ull << bit, 0, WORD), PL_WIRE_UNKNOWN_KEY);
	second = world.intruder;
	attack_open(&world.intruder.link, &world.victim, world.connects);
	world.intruder.readable = get_key(&world, PL_ACCESS_READ);
	check_all_refused(&world, key, PL_WIRE_UNKNOWN_KEY);
	attack_close(&second.link);
	world_close(&world);
}

/* -- the owner's log ---------------------------------------------------------------------------------- */

static int read_log(const struct world *world, struct pl_event_record records[PL_EVENTS_MAX])
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;

	return pl_peer_events(world->intruder.link.peer, &query, records, PL_EVENTS_MAX);
}

/* Returns the events of one kind, and sets *entries to the number of their records. */
static unsigned count_events(const struct world *world, enum pl_event event, unsigned *entries)
{
	struct pl_event_record records[PL_EVENTS_MAX];
	int count = read_log(world, records);
	unsigned events = 0;

	*entries = 0;
	for (int i = 0; i < count; i++) {
		if (records[i].event != (uint32_t)event)
			continue;
		events += records[i].count;
		(*entries)++;
	}
	return events;
}

#define EQUAL_REFUSALS 3000u
#define VARIED_REFUSALS 600u

/* A flood of refused requests takes one record if they are equal, and pushes no other event out if they are not. */
static void refusals_merge(void *argument)
{
	struct pl_event_record records[PL_EVENTS_MAX];
	unsigned entries, count;
	struct world world;
	uint64_t key;

	world_open(&world, argument);
	key = get_key(&world, PL_ACCESS_WRITE);
	for (unsigned i = 0; i < EQUAL_REFUSALS; i++) {
		struct pl_frame frame = frame_of(PL_FRAME_WRITE, key, SIZE + i, 1 + i % 8);

		check_number(request(&world.intruder, &frame), PL_WIRE_RANGE);
	}
	check_number(count_events(&world, PL_EVENT_REFUSED_HERE, &entries), EQUAL_REFUSALS);
	check_number(entries, 1);
	count = (unsigned)read_log(&world, records);
	check_text(records[count - 1].text, "write: the range leaves the grant");
	check(records[count - 1].key == key && records[count - 1].status == -ERANGE);
	for (unsigned i = 0; i < VARIED_REFUSALS; i++) {
		static const uint8_t types[] = { PL_FRAME_WRITE, PL_FRAME_READ, PL_FRAME_ATOMIC };
		struct pl_frame frame = frame_of(types[i % 3], i % 2 ? key + i : key, i % 2 ? 0 : 2 * SIZE, WORD);

		check(request(&world.intruder, &frame) != PL_WIRE_OK);
	}
	count_events(&world, PL_EVENT_REFUSED_HERE, &entries);
	check(entries > 1);
	check(read_log(&world, records) <= PL_EVENTS_MAX);
	check_number(count_events(&world, PL_EVENT_CONNECTED, &entries), 1);
	check_number(count_events(&world, PL_EVENT_LANE_OPENED, &entries), 1);
	check_number(count_events(&world, PL_EVENT_ENCRYPTION_OFF, &entries), 1);
	/* Each refusal was read before the next request. */
	check_number(count_events(&world, PL_EVENT_LIMIT_REACHED, &entries), 0);
	world_close(&world);
}

/* A connection that breaks without a goodbye: the lane first, then the peer, whose log stays. */
static void broken_connection(void *argument)
{
	struct pl_event_record records[PL_EVENTS_MAX];
	struct world world;
	unsigned entries;
	int count;

	world_open(&world, argument);
	close(world.intruder.link.lane);
	close(world.intruder.link.control);
	world.intruder.link.lane = world.intruder.link.control = -1;
	for (uint64_t end = clock_now() + AMPLE_TIME;
	     !count_events(&world, PL_EVENT_LOST, &entries) && clock_now() < end;)
		sleep_ms(10);
	check_number(count_events(&world, PL_EVENT_LANE_LOST, &entries), 1);
	count = read_log(&world, records);
	check_number(records[count - 1].event, PL_EVENT_LOST);
	check_number(records[count - 1].status, -ECONNRESET);
	check_text(records[count - 1].text, "the connection broke without an orderly end");
	for (int i = 0; i < count; i++)
		if (records[i].event == PL_EVENT_LANE_LOST)
			check(records[i].lane == 0 && records[i].status < 0 && records[i].text[0]);
	check_number(count_events(&world, PL_EVENT_CONNECTED, &entries), 1);
	world_close(&world);
}

static const bool connects = true;

/* The intruder connects to the victim, or the victim to the intruder. */
#define BOTH_WAYS(name, run, seconds) { name, run, NULL, seconds }, { name ", victim connects", run, &connects, seconds }

int main(void)
{
	static const struct test_case cases[] = {
		BOTH_WAYS("rights", rights, 20),
		BOTH_WAYS("ranges", ranges, 20),
		BOTH_WAYS("revoked", revoked, 20),
		BOTH_WAYS("expired", expired, 20),
		BOTH_WAYS("released", released, 20),
		BOTH_WAYS("of others", of_others, 20),
		BOTH_WAYS("most keys", most_keys, 60),
		BOTH_WAYS("refusals merge", refusals_merge, 30),
		BOTH_WAYS("broken connection", broken_connection, 20),
	};

	return cases_run("hostile-keys", cases, PL_ARRAY_SIZE(cases));
}
