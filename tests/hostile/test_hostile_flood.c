/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers that ask and do not read the answers, or that flood the control channel.  The attacked context keeps its memory
 * within a limit and serves a well-behaved client meanwhile.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "support/attack.h"
#include "support/cases.h"
#include "support/socket.h"
#include "support/victim.h"

#define FRAMES 4096
#define FLOOD ((size_t)64 << 20) /* bytes that an attacker sends at most */
#define FLOOD_TIME (3 * SECOND)  /* of the control channel: fills the table of keys */
#define MEMORY ((uint64_t)48 << 20)
#define DESCRIPTORS 40u /* of the lanes that an acceptor may ask for, and of the clients that check the victim */

static const struct setting plain = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false };

struct flood {
	struct victim victim;
	struct attack_link link;
	uint8_t *bytes; /* FRAMES frames */
	size_t one;     /* bytes of a frame */
	uint64_t memory;
};

static void flood_open(struct flood *flood, const struct pl_frame *frame, size_t payload, bool connects)
{
	flood->one = PL_FRAME_HEADER + payload;
	flood->bytes = calloc(FRAMES, flood->one);
	check(flood->bytes);
	for (size_t i = 0; i < FRAMES; i++)
		pl_frame_encode(frame, flood->bytes + i * flood->one);
	victim_open(&flood->victim, &plain);
	flood->memory = resident_memory();
	attack_open(&flood->link, &flood->victim, connects);
}

static void flood_close(struct flood *flood)
{
	attack_close(&flood->link);
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

	check(setsockopt(flood->link.lane, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second)) == 0);
	while (sent < FLOOD && socket_send(flood->link.lane, flood->bytes, FRAMES * flood->one)) {
		sent += FRAMES * flood->one;
		check(resident_within(flood->memory, MEMORY));
	}
	return sent;
}

/* An end has at most 256 requests under way on a lane, so more of them violate the protocol. */
static void refused_requests(const struct pl_frame *frame, size_t payload, bool connects)
{
	struct flood flood;

	flood_open(&flood, frame, payload, connects);
	check(flood_send(&flood) < FLOOD);
	victim_check(&flood.victim);
	check(socket_wait_closed(flood.link.lane, AMPLE_MS));
	flood_close(&flood);
}

static void refused_reads(void *argument)
{
	refused_requests(&(struct pl_frame){ .type = PL_FRAME_READ, .length = 8, .key = 12345, .cookie = 1 }, 0, argument);
}

static void refused_atomics(void *argument)
{
	refused_requests(&(struct pl_frame){ .type = PL_FRAME_ATOMIC,
					     .flags = PL_ATOMIC_ADD,
					     .length = PL_FRAME_ATOMIC_PAYLOAD,
					     .key = 12345 },
			 PL_FRAME_ATOMIC_PAYLOAD, argument);
}

/* A victim stops reading WRITEs whose refusals are not read, and goes on when they are. */
static void refused_writes(void *argument)
{
	static const struct pl_frame frame = { .type = PL_FRAME_WRITE, .key = 12345 };
	uint8_t answer[PL_FRAME_HEADER];
	struct pl_frame refusal;
	struct flood flood;
	size_t sent;

	flood_open(&flood, &frame, 0, argument);
	sent = flood_send(&flood);
	check(sent < FLOOD);
	victim_check(&flood.victim);
	/* The refusals come in order and without a gap. */
	for (uint32_t i = 1; i <= sent / flood.one; i++) {
		check(socket_receive(flood.link.lane, answer, sizeof(answer), AMPLE_MS));
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

	flood_open(&flood, &frame, 0, argument);
	check_number(pthread_create(&thread, NULL, read_all, &flood.link.lane), 0);
	for (unsigned i = 0; i < 30; i++) {
		check(socket_send(flood.link.lane, flood.bytes, FRAMES * flood.one));
		victim_check(&flood.victim);
	}
	shutdown(flood.link.lane, SHUT_RDWR);
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

static void control_flood(enum pl_control_type type, bool read, bool connects)
{
	struct pl_control message = { .type = type };
	struct control_flood flood = { 0 };
	pthread_t sender, reader;
	struct attack_link link;
	struct pl_token token;
	struct victim victim;
	unsigned descriptors;
	uint64_t memory;

	victim_open(&victim, &plain);
	memory = resident_memory();
	check_number(pl_token_decode(victim.token, victim.token_length, &token), 0);
	if (type == PL_CONTROL_IMPORT) {
		message.import.grant = token.grant;
		memcpy(message.import.secret, token.secret, sizeof(token.secret));
	}
	if (type == PL_CONTROL_LANES)
		message.lanes = 16;
	flood.message = attack_encode(&message);
	attack_open(&link, &victim, connects);
	flood.fd = link.control;
	descriptors = open_descriptors();
	check_number(pthread_create(&sender, NULL, send_control, &flood), 0);
	if (read)
		check_number(pthread_create(&reader, NULL, read_all, &flood.fd), 0);
	for (uint64_t end = clock_now() + FLOOD_TIME; clock_now() < end;) {
		victim_check(&victim);
		check(resident_within(memory, MEMORY));
		check(open_descriptors() < descriptors + DESCRIPTORS);
		sleep_ms(100); /* more checks would move so many bytes that the honest client opens another lane */
	}
	atomic_store(&flood.stop, true);
	shutdown(flood.fd, SHUT_RDWR);
	pthread_join(sender, NULL);
	if (read)
		pthread_join(reader, NULL);
	attack_close(&link);
	victim_close(&victim);
}

static void releases(void *argument)
{
	control_flood(PL_CONTROL_RELEASE, true, argument);
}

static void imports(void *argument)
{
	control_flood(PL_CONTROL_IMPORT, true, argument);
}

static void imports_unread(void *argument)
{
	control_flood(PL_CONTROL_IMPORT, false, argument);
}

/* Requests for more lanes, of an acceptor that accepts none of them: the victim opens each lane once. */
static void lanes(void *argument)
{
	control_flood(PL_CONTROL_LANES, true, argument);
}

static const bool connects = true;

/* The attacker connects to the victim, or the victim to the attacker. */
#define BOTH_WAYS(name, run) { name, run, NULL, 60 }, { name ", victim connects", run, &connects, 60 }

static const struct test_case cases[] = {
	BOTH_WAYS("refused-reads", refused_reads),
	BOTH_WAYS("refused-atomics", refused_atomics),
	BOTH_WAYS("refused-writes", refused_writes),
	BOTH_WAYS("refused-writes-read", refused_writes_read),
	BOTH_WAYS("releases", releases),
	BOTH_WAYS("imports", imports),
	BOTH_WAYS("imports-unread", imports_unread),
	{ "lanes, victim connects", lanes, &connects, 60 },
};

int main(void)
{
	return cases_run("hostile-flood", cases, sizeof(cases) / sizeof(cases[0]));
}
