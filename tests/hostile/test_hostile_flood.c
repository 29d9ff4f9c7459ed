/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers that ask and do not read the answers, or that flood the control channel.  The attacked context keeps its memory
 * within a limit and serves a well-behaved client meanwhile.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "support/attack.h"
#include "support/cases.h"
#include "support/socket.h"
#include "support/victim.h"

#define FRAMES 4096
#define FLOOD ((size_t)64 << 20) /* bytes that an attacker sends at most */
#define FLOOD_TIME (3 * SECOND)  /* of the control channel: fills the table of keys */
#define MEMORY ((uint64_t)48 << 20)

static const struct setting plain = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false };

struct flood {
	struct victim victim;
	int control, lane;
	uint8_t *bytes; /* FRAMES frames */
	size_t one;     /* bytes of a frame */
	uint64_t memory;
	struct pl_peer *peer; /* the attacker, at the victim */
};

static void flood_open(struct flood *flood, const struct pl_frame *frame, size_t payload)
{
	struct pl_error error;

	flood->one = PL_FRAME_HEADER + payload;
	flood->bytes = calloc(FRAMES, flood->one);
	check(flood->bytes);
	for (size_t i = 0; i < FRAMES; i++)
		pl_frame_encode(frame, flood->bytes + i * flood->one);
	victim_open(&flood->victim, &plain);
	flood->memory = resident_memory();
	flood->lane = attack_first_lane(flood->victim.address, &flood->control);
	check_ok(pl_accept(flood->victim.listener, 5 * SECOND, &flood->peer, &error), &error);
}

static void flood_close(struct flood *flood)
{
	close(flood->lane);
	close(flood->control);
	pl_peer_close(flood->peer);
	free(flood->bytes);
	victim_check(&flood->victim);
	check(resident_within(flood->memory, MEMORY));
	victim_close(&flood->victim);
}

/* Sends frames until the victim closes the lane or takes nothing for a second.  Returns the bytes sent. */
static size_t flood_send(struct flood *flood)
{
	struct timeval second = { .tv_sec = 1 };
	size_t sent = 0;

	check(setsockopt(flood->lane, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second)) == 0);
	while (sent < FLOOD && socket_send(flood->lane, flood->bytes, FRAMES * flood->one)) {
		sent += FRAMES * flood->one;
		check(resident_within(flood->memory, MEMORY));
	}
	return sent;
}

/* An end has at most 256 requests under way on a lane, so more of them violate the protocol. */
static void refused_requests(const struct pl_frame *frame, size_t payload)
{
	struct flood flood;

	flood_open(&flood, frame, payload);
	check(flood_send(&flood) < FLOOD);
	victim_check(&flood.victim);
	check(socket_wait_closed(flood.lane, 5000));
	flood_close(&flood);
}

static void refused_reads(void *argument)
{
	(void)argument;
	refused_requests(&(struct pl_frame){ .type = PL_FRAME_READ, .length = 8, .key = 12345, .cookie = 1 }, 0);
}

static void refused_atomics(void *argument)
{
	(void)argument;
	refused_requests(&(struct pl_frame){ .type = PL_FRAME_ATOMIC,
					     .flags = PL_ATOMIC_ADD,
					     .length = PL_FRAME_ATOMIC_PAYLOAD,
					     .key = 12345 },
			 PL_FRAME_ATOMIC_PAYLOAD);
}

/* A victim stops reading WRITEs whose refusals are not read, and goes on when they are. */
static void refused_writes(void *argument)
{
	static const struct pl_frame frame = { .type = PL_FRAME_WRITE, .key = 12345 };
	uint8_t answer[PL_FRAME_HEADER];
	struct pl_frame refusal;
	struct flood flood;
	size_t sent;

	(void)argument;
	flood_open(&flood, &frame, 0);
	sent = flood_send(&flood);
	check(sent < FLOOD);
	victim_check(&flood.victim);
	/* The refusals come in order and without a gap. */
	for (uint32_t i = 1; i <= sent / flood.one; i++) {
		check(socket_receive(flood.lane, answer, sizeof(answer), 5000));
		check_number(pl_frame_decode(answer, &refusal), 0);
		if (refusal.type == PL_FRAME_ACK) {
			i--;
			continue;
		}
		check_number(refusal.type, PL_FRAME_FAIL);
		check_number(refusal.cookie, i);
		check_number(refusal.ack, i);
	}
	victim_check(&flood.victim);
	flood_close(&flood);
}

/* Refusals that are read at once: their number must not make each of them slower. */
static void *read_all(void *argument)
{
	uint8_t dropped[65536];

	while (recv(*(int *)argument, dropped, sizeof(dropped), 0) > 0)
		;
	return NULL;
}

static void refused_writes_read(void *argument)
{
	static const struct pl_frame frame = { .type = PL_FRAME_WRITE, .key = 12345 };
	struct flood flood;
	pthread_t thread;

	(void)argument;
	flood_open(&flood, &frame, 0);
	check_number(pthread_create(&thread, NULL, read_all, &flood.lane), 0);
	for (unsigned i = 0; i < 30; i++) {
		check(socket_send(flood.lane, flood.bytes, FRAMES * flood.one));
		victim_check(&flood.victim);
	}
	shutdown(flood.lane, SHUT_RDWR);
	pthread_join(thread, NULL);
	flood_close(&flood);
}

/* -- the control channel -------------------------------------------------------------------------- */

struct control_flood {
	int fd;
	struct bytes message;
	atomic_bool stop;
};

static void *send_control(void *argument)
{
	struct control_flood *flood = argument;
	size_t count = 65536 / flood->message.length;
	uint8_t *many = malloc(count * flood->message.length);

	for (size_t i = 0; i < count; i++)
		memcpy(many + i * flood->message.length, flood->message.data, flood->message.length);
	while (!atomic_load(&flood->stop) && socket_send(flood->fd, many, count * flood->message.length))
		;
	free(many);
	return NULL;
}

static void control_flood(enum pl_control_type type, bool read)
{
	struct pl_control message = { .type = type };
	struct control_flood flood = { 0 };
	pthread_t sender, reader;
	struct pl_token token;
	struct pl_error error;
	struct pl_peer *peer;
	struct victim victim;
	uint64_t memory;
	int lane;

	victim_open(&victim, &plain);
	memory = resident_memory();
	check_number(pl_token_decode(victim.token, victim.token_length, &token), 0);
	if (type == PL_CONTROL_IMPORT) {
		message.import.grant = token.grant;
		memcpy(message.import.secret, token.secret, sizeof(token.secret));
	}
	flood.message = attack_encode(&message);
	lane = attack_first_lane(victim.address, &flood.fd);
	check_ok(pl_accept(victim.listener, 5 * SECOND, &peer, &error), &error);
	check_number(pthread_create(&sender, NULL, send_control, &flood), 0);
	if (read)
		check_number(pthread_create(&reader, NULL, read_all, &flood.fd), 0);
	for (uint64_t end = clock_now() + FLOOD_TIME; clock_now() < end;) {
		victim_check(&victim);
		check(resident_within(memory, MEMORY));
		sleep_ms(100); /* more checks would move so many bytes that the honest client opens another lane */
	}
	atomic_store(&flood.stop, true);
	shutdown(flood.fd, SHUT_RDWR);
	pthread_join(sender, NULL);
	if (read)
		pthread_join(reader, NULL);
	close(flood.fd);
	close(lane);
	pl_peer_close(peer);
	victim_close(&victim);
}

static void releases(void *argument)
{
	(void)argument;
	control_flood(PL_CONTROL_RELEASE, true);
}

static void imports(void *argument)
{
	(void)argument;
	control_flood(PL_CONTROL_IMPORT, true);
}

static void imports_unread(void *argument)
{
	(void)argument;
	control_flood(PL_CONTROL_IMPORT, false);
}

static const struct test_case cases[] = {
	{ "refused-reads", refused_reads, NULL, 60 },
	{ "refused-atomics", refused_atomics, NULL, 60 },
	{ "refused-writes", refused_writes, NULL, 60 },
	{ "refused-writes-read", refused_writes_read, NULL, 60 },
	{ "releases", releases, NULL, 60 },
	{ "imports", imports, NULL, 60 },
	{ "imports-unread", imports_unread, NULL, 60 },
};

int main(void)
{
	return cases_run("hostile-flood", cases, sizeof(cases) / sizeof(cases[0]));
}
