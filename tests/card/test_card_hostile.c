/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attackers that speak the control channel of the verbs fabric and have no card: RAIL messages that are malformed, out
 * of state, repeated, without end, or about rails and queue pairs of others. The victim keeps its memory and its queue
 * pairs within limits, and serves a correct client meanwhile. The card counts objects that are left at the end.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <malloc.h>
#include <sys/socket.h>
#include <unistd.h>

#include "card/card.h"
#include "card/settings.h"
#include "support/attack.h"
#include "support/cases.h"
#include "support/socket.h"
#include "support/victim.h"

/* Receives of all rails of a context, at most 63 MB, and all else. */
#define MEMORY ((uint64_t)(63 + 64) << 20)
#define ATTACKERS 4
#define FLOOD_TIME (2 * SECOND)
#define RAIL_BODY 46

/* -- an attacker ---------------------------------------------------------------------------------- */

/* GID of the only port of the stand-in card that an honest end would choose: 127.0.0.1. */
static const uint8_t card_gid_bytes[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 };

static struct pl_control verbs_hello(void)
{
	struct pl_control hello = attack_hello();

	strcpy(hello.hello.fabrics[0].name, "verbs");
	return hello;
}

/* Hello of an acceptor with one port. */
static struct pl_control verbs_answer(void)
{
	struct pl_control answer = verbs_hello();
	struct pl_writer writer;

	pl_writer_init(&writer, answer.hello.fabrics[0].blob, PL_FABRIC_BLOB_MAX);
	pl_put_u8(&writer, PL_RAILS_MAX);
	pl_put_u8(&writer, 1);
	pl_put_u8(&writer, IBV_LINK_LAYER_ETHERNET);
	pl_put_bytes(&writer, card_gid_bytes, sizeof(card_gid_bytes));
	answer.hello.fabrics[0].blob_length = (uint16_t)(writer.at - writer.begin);
	return answer;
}

/* Returns a message that a victim takes. No queue pair has the number. */
static struct pl_control rail_message(enum pl_rail_step step, uint8_t index, uint16_t generation)
{
	struct pl_control control = { .type = PL_CONTROL_RAIL,
				      .rail = { .step = step, .index = index, .generation = generation } };

	if (step == PL_RAIL_DOWN)
		return control;
	control.rail.count = step == PL_RAIL_CONNECT ? (uint8_t)(index + 1) : 0;
	control.rail.qp_number = 0xfffff0;
	control.rail.psn = 5;
	memcpy(control.rail.gid, card_gid_bytes, sizeof(card_gid_bytes));
	control.rail.mtu = IBV_MTU_1024;
	control.rail.reads = 1;
	return control;
}

static int greet_victim(const struct victim *victim)
{
	const struct pl_control hello = verbs_hello();
	struct pl_control answer;
	int fd = attack_greet_as(victim->address, &hello, &answer);

	check_text(answer.hello.fabrics[0].name, "verbs");
	return fd;
}

static bool send_control(int fd, const struct pl_control *control)
{
	struct bytes bytes = attack_encode(control);

	return socket_send(fd, bytes.data, bytes.length);
}

static bool send_rail(int fd, enum pl_rail_step step, uint8_t index, uint16_t generation)
{
	const struct pl_control control = rail_message(step, index, generation);

	return send_control(fd, &control);
}

/* Receives the victim's next RAIL message. Returns false if it closed the connection. */
static bool receive_rail(int fd, struct pl_control *control)
{
	uint8_t header[PL_CONTROL_HEADER], body[PL_CONTROL_BODY_MAX];
	uint32_t length;
	uint16_t type;

	if (!socket_receive(fd, header, sizeof(header), AMPLE_MS))
		return false;
	check_number(pl_control_header_decode(header, &type, &length), 0);
	check_number(type, PL_CONTROL_RAIL);
	return socket_receive(fd, body, length, AMPLE_MS) && pl_control_decode(type, body, length, control) == 0;
}

static void expect_rail(int fd, enum pl_rail_step step, uint8_t index, uint16_t generation)
{
	struct pl_control control;

	check(receive_rail(fd, &control));
	check_number(control.rail.step, step);
	check_number(control.rail.index, index);
	check_number(control.rail.generation, generation);
}

static void expect_closed(int fd)
{
	check(socket_wait_closed(fd, AMPLE_MS));
	close(fd);
}

/* -- malformed messages --------------------------------------------------------------------------- */

/* Each bit of a request is changed in turn, and each length is tried. */
static void malformed(void *argument)
{
	const struct pl_control good = rail_message(PL_RAIL_CONNECT, 0, 1);
	struct victim victim;

	(void)argument;
	victim_open(&victim, &card_threads);
	for (unsigned n = 0; n < 8 * RAIL_BODY + RAIL_BODY; n++) {
		struct bytes bytes = attack_encode(&good);
		int fd = greet_victim(&victim);

		check_number(bytes.length, PL_CONTROL_HEADER + RAIL_BODY);
		if (n < 8 * RAIL_BODY) {
			bytes.data[PL_CONTROL_HEADER + n / 8] ^= (uint8_t)(1u << n % 8);
		} else {
			bytes.length = PL_CONTROL_HEADER + n - 8 * RAIL_BODY;
			bytes.data[11] = bytes.data[10] = bytes.data[9] = bytes.data[8] = 0;
			bytes.data[8] = (uint8_t)(n - 8 * RAIL_BODY);
		}
		socket_send(fd, bytes.data, bytes.length);
		if (n >= 8 * RAIL_BODY)
			expect_closed(fd);
		else
			close(fd);
		if (n % 64 == 63)
			victim_check(&victim);
	}
	victim_close(&victim);
}

/* Claims of 255 rails, and of ports and rails that are not there. */
static void claims(void *argument)
{
	static const struct {
		unsigned offset;
		uint8_t value;
	} changes[] = {
		{ 1, 8 },    { 1, 255 }, /* number of the rail */
		{ 4, 0 },    { 4, 9 },   { 4, 255 }, /* number of rails */
		{ 5, 1 },    { 5, 255 }, /* number of the port */
		{ 0, 0 },    { 0, 2 },   { 0, 4 },   { 0, 255 }, /* step */
		{ 41, 0 },   { 41, 6 },  { 42, 0 },  { 43, 2 },  { 45, 16 },
	};
	struct victim victim;

	(void)argument;
	victim_open(&victim, &card_threads);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		const struct pl_control good = rail_message(PL_RAIL_CONNECT, 0, 1);
		struct bytes bytes = attack_encode(&good);
		int fd = greet_victim(&victim);

		bytes.data[PL_CONTROL_HEADER + changes[i].offset] = changes[i].value;
		check(socket_send(fd, bytes.data, bytes.length));
		expect_closed(fd);
	}
	victim_close(&victim);
}

/* -- messages out of state ------------------------------------------------------------------------ */

static void out_of_state(void *argument)
{
	const struct pl_control rails = { .type = PL_CONTROL_RAILS, .rails = { 1, 1, 1 } };
	const struct pl_control first = rail_message(PL_RAIL_CONNECT, 1, 1);
	struct pl_control other = rail_message(PL_RAIL_CONNECT, 0, 1);
	struct victim victim;
	int fd;

	(void)argument;
	victim_open(&victim, &card_threads);
	/* An acceptor's message, and messages about rails that nobody asked for. */
	fd = greet_victim(&victim);
	check(send_rail(fd, PL_RAIL_ACCEPT, 0, 1));
	expect_closed(fd);
	fd = greet_victim(&victim);
	check(send_rail(fd, PL_RAIL_DOWN, 0, 1));
	expect_closed(fd);
	fd = greet_victim(&victim);
	check(send_control(fd, &first));
	expect_rail(fd, PL_RAIL_ACCEPT, 1, 1);
	check(send_rail(fd, PL_RAIL_DOWN, 2, 1));
	expect_closed(fd);
	/* RAILS before a rail is up. */
	fd = greet_victim(&victim);
	check(send_control(fd, &rails));
	expect_closed(fd);
	/* Another number of rails than before. */
	fd = greet_victim(&victim);
	check(send_control(fd, &first));
	expect_rail(fd, PL_RAIL_ACCEPT, 1, 1);
	check(send_control(fd, &other));
	expect_closed(fd);
	victim_check(&victim);
	/* Before the greeting. */
	fd = socket_connect(victim.address);
	send_control(fd, &other);
	expect_closed(fd);
	victim_close(&victim);
}

/* A DOWN of another generation changes nothing, and an earlier request is not taken again. */
static void generations(void *argument)
{
	static const uint16_t others[] = { 0, 2, 9, 0x7fff, 0x8000, 0xffff };
	struct victim victim;
	int fd;

	(void)argument;
	victim_open(&victim, &card_threads);
	fd = greet_victim(&victim);
	check(send_rail(fd, PL_RAIL_CONNECT, 0, 1));
	expect_rail(fd, PL_RAIL_ACCEPT, 0, 1);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		check(send_rail(fd, PL_RAIL_DOWN, 0, others[i]));
	/* Repeated, and earlier ones: no answer. The next request gets the next answer. */
	check(send_rail(fd, PL_RAIL_CONNECT, 0, 1));
	check(send_rail(fd, PL_RAIL_CONNECT, 0, 0));
	check(send_rail(fd, PL_RAIL_CONNECT, 0, 0x8001));
	check(send_rail(fd, PL_RAIL_CONNECT, 0, 2));
	expect_rail(fd, PL_RAIL_ACCEPT, 0, 2);
	check(send_rail(fd, PL_RAIL_DOWN, 0, 2));
	expect_rail(fd, PL_RAIL_DOWN, 0, 2);
	victim_check(&victim);
	close(fd);
	victim_close(&victim);
}

/* Requests that name the queue pairs of the honest client, and of its server: their connection goes on. */
static void queue_pairs_of_others(void *argument)
{
	struct victim victim;
	unsigned connects;
	int fd;

	(void)argument;
	victim_open(&victim, &card_threads);
	fd = greet_victim(&victim);
	connects = card_counts_now().connects;
	for (uint16_t i = 1; i <= 40; i++) {
		struct pl_control control = rail_message(PL_RAIL_CONNECT, 0, i);

		/* Numbers of the card count from 17. */
		control.rail.qp_number = 16u + i;
		check(send_control(fd, &control));
	}
	victim_check(&victim);
	close(fd);
	/* The check itself connects one client. */
	check(card_counts_now().connects <= connects + 1);
	victim_close(&victim);
}

/* -- floods --------------------------------------------------------------------------------------- */

struct storm {
	int fds[ATTACKERS];
	atomic_bool *stop;
	bool reads;
};

static atomic_uint next_attacker;

static void drop_input(int fd)
{
	uint8_t bytes[4096];

	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

/* Asks for all rails again and again, until the victim closes the connection. */
static void *ask_for_rails(void *argument)
{
	const struct storm *storm = argument;
	int fd = storm->fds[atomic_fetch_add(&next_attacker, 1)];
	uint16_t generation = 0;
	bool open = true;

	while (open && !atomic_load(storm->stop)) {
		generation++;
		for (uint8_t i = 0; i < PL_RAILS_MAX && open; i++) {
			struct pl_control control = rail_message(PL_RAIL_CONNECT, i, generation);

			control.rail.count = PL_RAILS_MAX;
			open = send_control(fd, &control);
		}
		if (storm->reads)
			drop_input(fd);
		/* All ends share few processors. */
		sleep_ms(1);
	}
	return NULL;
}

static void connect_storm(void *argument)
{
	atomic_bool stop = false;
	struct storm storm = { .reads = argument, .stop = &stop };
	pthread_t threads[ATTACKERS];
	uint64_t memory, begin;
	struct victim victim;
	unsigned made;
	bool many;

	/* Each thread would keep freed memory in an arena of its own: 100 to 118 MiB in all, by chance. */
	mallopt(M_ARENA_MAX, 1);
	victim_open(&victim, &card_threads);
	memory = resident_memory();
	made = card_counts_now().made_qps;
	for (unsigned i = 0; i < ATTACKERS; i++)
		storm.fds[i] = greet_victim(&victim);
	for (unsigned i = 0; i < ATTACKERS; i++)
		check_number(pthread_create(&threads[i], NULL, ask_for_rails, &storm), 0);
	begin = clock_now();
	/* For a time, and until the victim made queue pairs for many requests. */
	do {
		victim_check(&victim);
		check(resident_within(memory, MEMORY));
		/* One queue pair for each rail, and those of the client. */
		check(card_counts_now().qps <= ATTACKERS * PL_RAILS_MAX + 16);
		sleep_ms(50);
		many = card_counts_now().made_qps > made + 10 * ATTACKERS * PL_RAILS_MAX;
		check(clock_now() - begin < AMPLE_TIME);
	} while (clock_now() - begin < FLOOD_TIME || !many);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < ATTACKERS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < ATTACKERS; i++)
		close(storm.fds[i]);
	/*
	 * Queue pairs that never got a proof may have kept receives, so each of the two engines may have made its queue
	 * anew. The honest client keeps the old one, whose channel is a pipe.
	 */
	victim.descriptors += 2 * 2;
	victim_close(&victim);
}

/* -- acceptors ------------------------------------------------------------------------------------ */

/* The victim connects to an acceptor, which answers as the case says. Returns the error of pl_connect(). */
static int connect_victim(struct victim *victim, const struct pl_control *answer, void (*act)(int fd), uint64_t timeout,
			  struct pl_error *error)
{
	struct pl_operation *operation;
	char address[32];
	int listener = socket_listen(address), fd, status;

	check_ok(pl_connect_start(victim->context, address, timeout, 0, &operation, error), error);
	fd = attack_serve_as(listener, answer);
	if (act)
		act(fd);
	status = pl_wait(operation, UINT64_MAX, NULL, error);
	check(status < 0 && error->id[0]);
	close(fd);
	close(listener);
	return status;
}

static void accept_wrongly(int fd)
{
	struct pl_control request;

	check(receive_rail(fd, &request));
	send_rail(fd, PL_RAIL_ACCEPT, 0, (uint16_t)(request.rail.generation + 1));
	send_rail(fd, PL_RAIL_ACCEPT, 7, request.rail.generation);
}

static void accept_twice(int fd)
{
	struct pl_control request;

	while (receive_rail(fd, &request)) {
		if (request.rail.step != PL_RAIL_CONNECT)
			continue;
		for (unsigned i = 0; i < 3; i++)
			if (!send_rail(fd, PL_RAIL_ACCEPT, 0, request.rail.generation))
				return;
	}
}

static void refuse_always(int fd)
{
	struct pl_control request;

	while (receive_rail(fd, &request))
		if (request.rail.step == PL_RAIL_CONNECT)
			send_rail(fd, PL_RAIL_DOWN, 0, request.rail.generation);
}

static void ask_back(int fd)
{
	send_rail(fd, PL_RAIL_CONNECT, 0, 1);
}

/* A question for rails before one is up. */
static void ask_for_rails_early(int fd)
{
	const struct pl_control question = { .type = PL_CONTROL_RAILS, .rails = { 1, 1, 0 } };

	send_control(fd, &question);
}

/* DOWN without end, of this generation and all others. */
static void refuse_in_a_storm(int fd)
{
	for (unsigned i = 0; i < 200000; i++)
		if (!send_rail(fd, PL_RAIL_DOWN, 0, (uint16_t)i))
			return;
}

static void acceptors(void *argument)
{
	static void (*const acts[])(int fd) = { NULL,     accept_wrongly,      accept_twice,     refuse_always,
						ask_back, ask_for_rails_early, refuse_in_a_storm };
	const struct pl_control answer = verbs_answer();
	struct pl_error error;
	struct victim victim;

	(void)argument;
	victim_open(&victim, &card_threads);
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		connect_victim(&victim, &answer, acts[i], 2 * SECOND * slowness(), &error);
		victim_check(&victim);
	}
	victim_close(&victim);
}

/* Descriptions of ports: cut at each length, of 255 ports, and of no rail. */
static void adverts(void *argument)
{
	const struct pl_control good = verbs_answer();
	const uint16_t length = good.hello.fabrics[0].blob_length;
	struct pl_error error;
	struct victim victim;

	(void)argument;
	victim_open(&victim, &card_threads);
	for (uint16_t n = 0; n < length + 3; n++) {
		struct pl_control answer = good;
		struct pl_fabric_advert *advert = &answer.hello.fabrics[0];

		if (n < length)
			advert->blob_length = n;
		else if (n == length)
			advert->blob[0] = 0;
		else if (n == length + 1)
			advert->blob[1] = 255;
		else
			advert->blob_length++;
		check_number(connect_victim(&victim, &answer, NULL, AMPLE_TIME, &error), -EPROTO);
	}
	victim_close(&victim);
}

static const bool reads = true;

static const struct test_case cases[] = {
	{ "malformed", malformed, NULL, 60 },
	{ "claims", claims, NULL, 30 },
	{ "out-of-state", out_of_state, NULL, 30 },
	{ "generations", generations, NULL, 30 },
	{ "queue-pairs-of-others", queue_pairs_of_others, NULL, 30 },
	{ "connect-storm", connect_storm, NULL, 60 },
	{ "connect-storm-read", connect_storm, &reads, 60 },
	{ "acceptors", acceptors, NULL, 60 },
	{ "adverts", adverts, NULL, 60 },
};

int main(void)
{
	return cases_run("card-hostile", cases, sizeof(cases) / sizeof(cases[0]));
}
