/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Malformed bytes, sent to a listener and to a connecting context.  The attacked context reports a named error, keeps
 * nothing open, and serves a well-behaved client during the attack.
 */
#include <stdlib.h>
#include <unistd.h>

#include "support/attack.h"
#include "support/cases.h"
#include "support/proxy.h"
#include "support/socket.h"
#include "support/tls_link.h"
#include "support/victim.h"
#include "wire/wire.h"

static const struct setting plain = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false };
static const struct setting keyed = { "keyed", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, true, false, false, false };
static const struct setting encrypted = { "encrypted", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, true,
					  true,        false, false };

/* Returns the first bytes of attack number n: a hello or a lane greeting, damaged at one of many places, or noise. */
static struct bytes damaged_greeting(unsigned n, uint64_t *state)
{
	struct pl_control hello = attack_hello();
	struct bytes bytes = attack_encode(&hello);

	if (n % 3 == 0) {
		struct pl_lane_hello lane = { PL_PROTOCOL_VERSION, (uint16_t)(n % 20), random_next(state), { 1 } };

		pl_lane_hello_encode(&lane, bytes.data);
		bytes.length = PL_LANE_HELLO;
	}
	switch (n % 7) {
	case 0:
		break;
	case 1:
		bytes.length = random_next(state) % bytes.length;
		break;
	case 2:
		for (size_t i = 0; i < sizeof(bytes.data); i++)
			bytes.data[i] = (uint8_t)random_next(state);
		bytes.length = sizeof(bytes.data);
		break;
	case 3: /* a length far over the limit, or the field's maximum */
		memset(bytes.data + 8, n % 2 ? 0xff : 0x7f, 4);
		break;
	case 4: /* unknown and reserved values in the header */
		bytes.data[4 + n % 4] ^= (uint8_t)(1u << random_next(state) % 8);
		break;
	default:
		for (unsigned i = 0; i < 1 + n % 4; i++)
			bytes.data[random_next(state) % bytes.length] ^= (uint8_t)(1u << random_next(state) % 8);
	}
	return bytes;
}

static void raw_greetings(void *argument)
{
	uint64_t state = 42;
	struct victim victim;

	victim_open(&victim, argument);
	for (unsigned n = 0; n < 420; n++) {
		struct bytes bytes = damaged_greeting(n, &state);
		int fd = socket_connect(victim.address);

		check(fd >= 0);
		socket_send(fd, bytes.data, bytes.length);
		if (n % 5 == 0)
			socket_wait_closed(fd, 5);
		if (n % 2)
			socket_reset(fd);
		else
			close(fd);
		if (n % 60 == 59)
			victim_check(&victim);
	}
	victim_close(&victim);
}

/* Sends control messages that are not valid at that point, after a valid greeting. */
static void control_messages(void *argument)
{
	enum { COUNT = 24 };
	uint64_t state = 5;
	struct victim victim;

	victim_open(&victim, argument);
	for (unsigned n = 0; n < COUNT * 4; n++) {
		struct pl_control control = { .type = 1 + n % 7 };
		struct bytes bytes;
		int fd = attack_greet(victim.address, NULL);

		if (control.type == PL_CONTROL_HELLO)
			control = attack_hello();
		else if (control.type == PL_CONTROL_REJECT)
			control.reject.code = PL_WIRE_INTERNAL;
		else if (control.type == PL_CONTROL_IMPORT)
			control.import = (struct pl_import){ n, random_next(&state) % 4, { 0 } };
		else if (control.type == PL_CONTROL_IMPORTED)
			control.imported = (struct pl_imported){
				.request = n, .length = UINT64_MAX, .rights = 7, .key_length = 8
			};
		else if (control.type == PL_CONTROL_RELEASE)
			control.release.key_length = PL_KEY_BLOB_MAX;
		else if (control.type == PL_CONTROL_LANES)
			control.lanes = 16;
		bytes = attack_encode(&control);
		if (n >= COUNT * 2)
			bytes.data[random_next(&state) % bytes.length] ^= (uint8_t)(1u << random_next(&state) % 8);
		for (unsigned i = 0; i < (n % 3 ? 1 : 200); i++)
			socket_send(fd, bytes.data, bytes.length);
		socket_wait_closed(fd, 3);
		close(fd);
		if (n % 24 == 23)
			victim_check(&victim);
	}
	victim_close(&victim);
}

/* Time of a connection in slow_greetings, in which the honest client must connect as well. */
#define GREETING_MS (2000 * slowness())

/*
 * Opens many connections, which send the greeting of a lane byte by byte, or nothing.  Goes on until the listener's time
 * limit has closed all of them; a whole greeting would take twice that time.
 */
static void *drip_run(void *argument)
{
	enum { COUNT = 40 };
	const char *address = argument;
	struct pl_lane_hello hello = { PL_PROTOCOL_VERSION, 0, 1, { 1 } };
	uint8_t bytes[PL_LANE_HELLO];
	uint64_t end = clock_now() + AMPLE_TIME;
	unsigned left = COUNT;
	int fds[COUNT];

	pl_lane_hello_encode(&hello, bytes);
	for (unsigned i = 0; i < COUNT; i++) {
		fds[i] = socket_connect(address);
		check(fds[i] >= 0);
	}
	for (size_t at = 0; left; at++) {
		check(clock_now() < end);
		for (unsigned i = 0; i < COUNT; i++) {
			if (fds[i] < 0)
				continue;
			if (at < sizeof(bytes) && i % 2)
				socket_send(fds[i], bytes + at, 1);
			if (socket_wait_closed(fds[i], 1)) {
				close(fds[i]);
				fds[i] = -1;
				left--;
			}
		}
		sleep_ms(2 * GREETING_MS / PL_LANE_HELLO);
	}
	return NULL;
}

static void slow_greetings(void *argument)
{
	struct victim victim;
	pthread_t thread;

	victim_open_for(&victim, argument, GREETING_MS * MS);
	check_number(pthread_create(&thread, NULL, drip_run, victim.address), 0);
	for (unsigned i = 0; i < 10; i++) {
		victim_check(&victim);
		sleep_ms(100);
	}
	pthread_join(thread, NULL);
	victim_check(&victim);
	victim_close(&victim);
}

#define PATIENCE (150 * MS)

/*
 * Runs a session through the damaging proxy.  Returns true if the session reached the offset to damage.  A damaged
 * session may last for the whole time limit.
 */
static bool through_proxy(struct victim *victim, const struct damage *damage, bool exact, uint64_t patience)
{
	struct proxy proxy;

	proxy_start(&proxy, victim->address, damage);
	client_session(victim, proxy.address, patience, exact);
	return proxy_stop(&proxy);
}

/* Damages a session at an offset that every session reaches, with longer time limits on a busy machine. */
static void damage_session(struct victim *victim, const struct damage *damage)
{
	uint64_t patience = PATIENCE;

	while (!through_proxy(victim, damage, false, patience)) {
		check(patience < 64 * PATIENCE);
		patience *= 2;
	}
}

/* Damages many sessions, which have this time each.  Returns the number of those that reached their offset. */
static unsigned damage_sessions(struct victim *victim, uint64_t patience)
{
	static const enum damage_kind kinds[] = { DAMAGE_FLIP, DAMAGE_FLIP, DAMAGE_INSERT,
						  DAMAGE_DROP, DAMAGE_CUT,  DAMAGE_STALL };
	uint8_t noise[100];
	uint64_t state = 8;
	unsigned damaged = 0;

	for (unsigned n = 0; n < 120; n++) {
		struct damage damage = {
			.kind = kinds[n % 6],
			.connection = n / 2 % 2,
			.direction = random_next(&state) % 2,
			.offset = random_next(&state) % (n % 4 ? 400 : 60000),
			.bit = n % 8,
			.bytes = noise,
			.length = 1 + random_next(&state) % sizeof(noise),
		};

		for (size_t i = 0; i < sizeof(noise); i++)
			noise[i] = (uint8_t)random_next(&state);
		damaged += through_proxy(victim, &damage, victim->setting->encrypted, patience);
		if (n % 20 == 19)
			victim_check(victim);
	}
	return damaged;
}

/*
 * Damages valid sessions in transit, at random offsets.  With encryption, data that the library reports as arrived must
 * be correct.
 */
static void damaged_sessions(void *argument)
{
	uint64_t patience = PATIENCE;
	struct victim victim;

	victim_open(&victim, argument);
	/* Most sessions must reach their offset, or the test would test nothing.  A busy machine needs more time. */
	while (damage_sessions(&victim, patience) <= 50) {
		check(patience < 16 * PATIENCE);
		patience *= 4;
	}
	victim_close(&victim);
}

/* Inserts frames that match no operation before the first frame of a lane, in both directions. */
static void forged_frames(void *argument)
{
	static const struct {
		struct pl_frame frame;
		unsigned payload, repeat;
	} forged[] = {
		{ { .type = PL_FRAME_WRITE, .length = 64, .key = 0, .offset = 0 }, 64, 1 },
		{ { .type = PL_FRAME_WRITE, .length = 64, .key = UINT64_MAX, .offset = UINT64_MAX }, 64, 1 },
		{ { .type = PL_FRAME_WRITE, .length = PL_FRAME_BULK_MAX, .key = 1 }, 0, 1 },
		{ { .type = PL_FRAME_READ, .length = 64, .key = 12345, .cookie = 1 }, 0, 1000 },
		{ { .type = PL_FRAME_READ, .length = UINT32_MAX, .key = 1, .cookie = 1 }, 0, 1 },
		{ { .type = PL_FRAME_READ, .length = 0, .key = 1, .offset = UINT64_MAX }, 0, 1 },
		{ { .type = PL_FRAME_DATA, .length = 100, .cookie = 77 }, 100, 1 },
		{ { .type = PL_FRAME_DATA, .length = 100, .cookie = 0, .flags = 1 }, 100, 3 },
		{ { .type = PL_FRAME_ATOMIC, .length = 16, .flags = PL_ATOMIC_ADD, .key = 1, .offset = 3 }, 16, 1 },
		{ { .type = PL_FRAME_ATOMIC, .length = 16, .flags = 9, .key = 1 }, 16, 1 },
		{ { .type = PL_FRAME_ATOMIC, .length = 3, .flags = PL_ATOMIC_ADD, .key = 1 }, 3, 1 },
		{ { .type = PL_FRAME_VALUE, .cookie = 0 }, 0, 2 },
		{ { .type = PL_FRAME_VALUE, .cookie = UINT32_MAX }, 0, 1 },
		{ { .type = PL_FRAME_FAIL, .cookie = 5, .offset = 1, .flags = PL_FRAME_READ }, 0, 1 },
		{ { .type = PL_FRAME_FAIL, .cookie = 0, .offset = UINT64_MAX, .flags = 255 }, 0, 1 },
		{ { .type = PL_FRAME_ACK, .ack = 1 }, 0, 1 },
		{ { .type = PL_FRAME_ACK, .ack = UINT32_MAX }, 0, 1 },
		{ { .type = PL_FRAME_EAGER, .length = 8192, .key = 9 }, 8192, 100 },
		{ { .type = PL_FRAME_EAGER, .length = 0, .key = 9 }, 0, 20000 },
		{ { .type = PL_FRAME_RENDEZVOUS, .key = 9, .offset = UINT64_MAX, .cookie = 1, .length = 64 }, 64, 1 },
		{ { .type = PL_FRAME_RENDEZVOUS, .key = 9, .offset = 1 << 20, .cookie = 1 }, 0, 5000 },
		{ { .type = PL_FRAME_FINISH, .cookie = 3 }, 0, 1 },
		{ { .type = PL_FRAME_NOTIFY, .offset = 1 }, 0, 20000 },
		{ { .type = PL_FRAME_CREDIT, .offset = UINT64_MAX }, 0, 1 },
		{ { .type = PL_FRAME_CREDIT, .offset = 1u << 31 }, 0, 2 },
	};
	struct victim victim;
	uint64_t before = resident_memory();

	victim_open(&victim, argument);
	for (size_t i = 0; i < 2 * sizeof(forged) / sizeof(forged[0]); i++) {
		size_t one = PL_FRAME_HEADER + forged[i / 2].payload, count = forged[i / 2].repeat;
		uint8_t *bytes = calloc(count, one);
		struct damage damage = { .kind = DAMAGE_INSERT, .connection = 1, .direction = i % 2, .bytes = bytes };

		for (size_t n = 0; n < count; n++)
			pl_frame_encode(&forged[i / 2].frame, bytes + n * one);
		damage.offset = i % 2 ? PL_LANE_CHALLENGE + PL_LANE_WELCOME : PL_LANE_HELLO + PL_TAG;
		damage.length = one * count;
		damage_session(&victim, &damage);
		free(bytes);
		if (i % 10 == 9)
			victim_check(&victim);
	}
	check(resident_within(before, 256u << 20));
	victim_close(&victim);
}

/* Sends malformed frames after a valid lane greeting. */
static void malformed_frames(void *argument)
{
	uint64_t state = 3;
	struct victim victim;

	victim_open(&victim, argument);
	for (unsigned n = 0; n < 60; n++) {
		uint8_t header[PL_FRAME_HEADER] = { (uint8_t)(n % 16), 0 };
		struct damage damage = { .kind = DAMAGE_INSERT,
					 .connection = 1,
					 .direction = n % 2,
					 .bytes = header,
					 .length = 1 + n % PL_FRAME_HEADER };

		for (size_t i = 1; n % 3 && i < sizeof(header); i++)
			header[i] = (uint8_t)random_next(&state);
		damage.offset = n % 2 ? PL_LANE_CHALLENGE + PL_LANE_WELCOME : PL_LANE_HELLO + PL_TAG;
		damage_session(&victim, &damage);
		if (n % 20 == 19)
			victim_check(&victim);
	}
	victim_close(&victim);
}

struct liar {
	int listener;
	bool tls; /* speaks TLS without a key */
	struct bytes answer;
	pthread_t thread;
};

static void lie_over_tls(const struct liar *liar, int fd)
{
	uint8_t header[PL_CONTROL_HEADER], end;
	struct tls_link link;

	if (tls_link_open(&link, fd, true) && tls_link_receive(&link, header, sizeof(header), AMPLE_MS)) {
		tls_link_send(&link, liar->answer.data, liar->answer.length);
		/* Until the client closes. */
		while (tls_link_receive(&link, &end, 1, AMPLE_MS))
			;
	}
	tls_link_close(&link);
}

static void *liar_run(void *argument)
{
	struct liar *liar = argument;
	int fd = socket_accept(liar->listener);
	uint8_t header[PL_CONTROL_HEADER];

	if (liar->tls) {
		lie_over_tls(liar, fd);
		return NULL;
	}
	if (socket_receive(fd, header, sizeof(header), AMPLE_MS))
		socket_send(fd, liar->answer.data, liar->answer.length);
	socket_wait_closed(fd, AMPLE_MS);
	close(fd);
	return NULL;
}

/* Connects to a server that gives this answer to the greeting. */
static int connect_to_liar(struct pl_context *context, bool tls, const struct bytes *answer, uint64_t timeout,
			   struct pl_error *error)
{
	struct liar liar = { .tls = tls, .answer = *answer };
	struct pl_peer *peer = NULL;
	char address[32];
	int status;

	liar.listener = socket_listen(address);
	check_number(pthread_create(&liar.thread, NULL, liar_run, &liar), 0);
	status = pl_connect(context, address, timeout, &peer, error);
	if (!status)
		pl_peer_close(peer);
	pthread_join(liar.thread, NULL);
	close(liar.listener);
	return status;
}

static void fake_server(void *argument)
{
	struct pl_context *context = context_open(argument);
	unsigned descriptors = open_descriptors();
	uint64_t state = 10;
	struct pl_error error;

	for (unsigned n = 0; n < 280; n++) {
		struct bytes answer = damaged_greeting(n / 2, &state);
		int status = connect_to_liar(context, n % 2, &answer, 100 * MS, &error);

		check_one_of(status, -EPROTO, -ECONNRESET, -ETIMEDOUT, -EACCES, -EMSGSIZE, -ENOTSUP, -ECONNREFUSED);
		check_status(status, status, &error);
	}
	check_number(open_descriptors(), descriptors);
	pl_close(context);
}

/* Checks that a peer's refusal text reaches the error without characters that a terminal interprets. */
static void fake_refusal(void *argument)
{
	struct pl_context *context = context_open(argument);
	struct pl_control control = { .type = PL_CONTROL_REJECT };
	struct bytes answer;
	struct pl_error error;
	char text[512];

	control.reject.code = PL_WIRE_NEEDS_KEY;
	strcpy(control.reject.id, "AUTH-NEEDS-KEY");
	strcpy(control.reject.message, "escape \x1b[2J and bell \a and \xff");
	answer = attack_encode(&control);
	check_status(connect_to_liar(context, true, &answer, AMPLE_TIME, &error), -EACCES, &error);
	pl_error_format(&error, text, sizeof(text));
	for (const char *c = text; *c; c++)
		check((*c >= ' ' && *c < 0x7f) || *c == '\n');
	control.reject.code = PL_WIRE_VERSION;
	answer = attack_encode(&control);
	check_status(connect_to_liar(context, true, &answer, AMPLE_TIME, &error), -EPROTO, &error);
	/* The other end knows best why its fabrics do not fit, unless it gives no reason. */
	control.reject.code = PL_WIRE_NO_FABRIC;
	strcpy(control.reject.message, "cards of another kind");
	answer = attack_encode(&control);
	check_status(connect_to_liar(context, true, &answer, AMPLE_TIME, &error), -EPROTO, &error);
	check_text(error.id, "FABRIC-NONE");
	check_text(error.message, "cards of another kind");
	control.reject.message[0] = '\0';
	answer = attack_encode(&control);
	check_status(connect_to_liar(context, true, &answer, AMPLE_TIME, &error), -EPROTO, &error);
	check_text(error.message, "the two ends have no fabric in common");
	pl_close(context);
}

/* Imports a changed token with a valid checksum, and tries the access that the token claims to allow. */
static int present(const struct victim *victim, const struct pl_token *token, struct pl_operation **operation)
{
	uint8_t bytes[PL_TOKEN_SIZE];
	struct pl_remote *remote = NULL;
	struct pl_error error;
	int status;

	pl_token_encode(token, bytes);
	status = pl_remote_import(victim->good_peer, bytes, sizeof(bytes), 0, &remote, &error);
	if (status) {
		check_status(status, status, &error);
		return status;
	}
	check_number(pl_remote_rights(remote), PL_ACCESS_READ);
	check_number(pl_remote_length(remote), 100);
	status = pl_write(victim->good_peer, &(struct pl_transfer){ remote, 0, victim->good_buffer.region, 0, 8 }, NULL,
			  operation, &error);
	check_status(status, -EACCES, &error);
	status = pl_read(victim->good_peer, &(struct pl_transfer){ remote, 99, victim->good_buffer.region, 0, 2 }, NULL,
			 operation, &error);
	check_status(status, -ERANGE, &error);
	pl_remote_release(remote);
	return 0;
}

static void forged_tokens(void *argument)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	uint8_t bytes[PL_TOKEN_MAX];
	size_t length = sizeof(bytes);
	struct pl_operation *operation;
	struct pl_token good, forged;
	struct victim victim;
	struct pl_error error;

	victim_open(&victim, argument);
	options.length = 100;
	options.rights = PL_ACCESS_READ;
	options.lifetime = 3600 * SECOND;
	check_ok(pl_region_share(victim.buffer.region, &options, bytes, &length, &error), &error);
	check_number(pl_token_decode(bytes, length, &good), 0);
	forged = good;
	check_number(present(&victim, &forged, &operation), 0);
	forged.rights = PL_ACCESS_ALL;
	check_one_of(present(&victim, &forged, &operation), 0, -EACCES);
	forged = good;
	forged.length = UINT64_MAX;
	check_one_of(present(&victim, &forged, &operation), 0, -EACCES);
	forged = good;
	forged.expires = 0;
	check_one_of(present(&victim, &forged, &operation), 0, -EACCES);
	for (unsigned bit = 0; bit < 128; bit += 7) {
		forged = good;
		forged.secret[bit / 8] ^= (uint8_t)(1u << bit % 8);
		check_number(present(&victim, &forged, &operation), -EACCES);
		forged = good;
		forged.context_id[bit / 8] ^= (uint8_t)(1u << bit % 8);
		check_number(present(&victim, &forged, &operation), -EACCES);
		forged = good;
		forged.grant ^= 1ull << bit % 64;
		check_number(present(&victim, &forged, &operation), -EACCES);
	}
	victim_close(&victim);
}

int main(void)
{
	const struct test_case cases[] = {
		{ "raw greetings", raw_greetings, &plain, 20 },
		{ "raw greetings, keyed", raw_greetings, &keyed, 20 },
		{ "control messages", control_messages, &plain, 20 },
		{ "slow greetings", slow_greetings, &plain, 20 },
		{ "slow greetings, keyed", slow_greetings, &keyed, 20 },
		{ "damaged sessions", damaged_sessions, &plain, 40 },
		{ "damaged sessions, encrypted", damaged_sessions, &encrypted, 40 },
		{ "forged frames", forged_frames, &plain, 30 },
		{ "malformed frames", malformed_frames, &plain, 30 },
		{ "fake server", fake_server, &plain, 30 },
		{ "fake server, keyed", fake_server, &keyed, 30 },
		{ "fake refusal", fake_refusal, &plain, 10 },
		{ "forged tokens", forged_tokens, &plain, 10 },
	};

	return cases_run("hostile", cases, sizeof(cases) / sizeof(cases[0]));
}
