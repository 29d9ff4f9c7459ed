/* SPDX-License-Identifier: BSD-2-Clause */
/* Strangers that saw a peer's bytes on the network and try to open its lanes. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/lane_auth.h"
#include "support/attack.h"
#include "support/cases.h"
#include "support/socket.h"
#include "support/victim.h"

static const struct setting plain = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false };

/* A peer that greeted and opened lane 0, and whose next lanes are tried in wrong ways. */
struct stranger {
	struct victim victim;
	struct attack_target target;
	struct pl_peer *peer; /* has only the secret */
	struct pl_peer *served;
	int control, lane;
};

static void stranger_open(struct stranger *stranger)
{
	struct pl_error error;

	victim_open(&stranger->victim, &plain);
	stranger->control = attack_greet(stranger->victim.address, &stranger->target);
	stranger->lane = attack_lane(stranger->victim.address, &stranger->target, 0);
	check_ok(pl_accept(stranger->victim.listener, AMPLE_TIME, &stranger->served, &error), &error);
	stranger->peer = calloc(1, sizeof(*stranger->peer));
	check(stranger->peer);
	stranger->peer->secret = stranger->target.secret;
}

/* The peer itself must not suffer. */
static void stranger_close(struct stranger *stranger)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	check_number(pl_peer_query(stranger->served, &info), 0);
	check(info.connected);
	victim_check(&stranger->victim);
	close(stranger->lane);
	close(stranger->control);
	pl_peer_close(stranger->served);
	free(stranger->peer);
	victim_close(&stranger->victim);
}

/* Sends a hello and receives the challenge.  Returns the socket. */
static int challenge(const struct stranger *stranger, struct pl_lane_auth *auth)
{
	int fd = socket_connect(stranger->victim.address);

	check(fd >= 0);
	check(socket_send(fd, auth->hello, sizeof(auth->hello)));
	check(socket_receive(fd, auth->challenge, sizeof(auth->challenge), AMPLE_MS));
	return fd;
}

/* Sends a proof that the victim must refuse, without any byte of an answer. */
static void expect_refusal(int fd, const void *proof)
{
	check(socket_send(fd, proof, PL_TAG));
	check(socket_ends_silently(fd, AMPLE_MS));
	close(fd);
}

/* Repeats the bytes of a lane that was opened, as somebody does who has recorded them. */
static void replayed(void *argument)
{
	struct stranger stranger;
	struct pl_lane_auth first, second;
	uint8_t proof[PL_TAG];
	int fd;

	(void)argument;
	stranger_open(&stranger);
	check_number(pl_lane_auth_hello(&first, stranger.target.peer_index, 1), 0);
	fd = challenge(&stranger, &first);
	check_number(pl_lane_auth_prove(&first, stranger.peer, proof), 0);
	close(fd);
	second = first;
	fd = challenge(&stranger, &second);
	check(memcmp(first.challenge, second.challenge, sizeof(first.challenge)));
	expect_refusal(fd, proof);
	stranger_close(&stranger);
}

/* Sends the acceptor's own tag back. */
static void reflected(void *argument)
{
	struct stranger stranger;
	struct pl_lane_auth auth;

	(void)argument;
	stranger_open(&stranger);
	check_number(pl_lane_auth_hello(&auth, stranger.target.peer_index, 1), 0);
	expect_refusal(challenge(&stranger, &auth), auth.challenge + PL_LANE_CHALLENGE - PL_TAG);
	stranger_close(&stranger);
}

/* Proves one lane and opens another: the number, or any other byte of the hello, differs from the proven one. */
static void changed(void *argument)
{
	struct stranger stranger;

	(void)argument;
	stranger_open(&stranger);
	for (unsigned at = 6; at < 32; at += at < 8 ? 1 : 4) {
		struct pl_lane_auth auth;
		uint8_t proof[PL_TAG];
		int fd;

		check_number(pl_lane_auth_hello(&auth, stranger.target.peer_index, 1), 0);
		fd = challenge(&stranger, &auth);
		auth.hello[at] ^= 2;
		check_number(pl_lane_auth_prove(&auth, stranger.peer, proof), -EACCES);
		/* As if the acceptor's tag had been right. */
		auth.hello[at] ^= 2;
		check_number(pl_lane_auth_prove(&auth, stranger.peer, proof), 0);
		proof[at % PL_TAG] ^= 1;
		expect_refusal(fd, proof);
	}
	stranger_close(&stranger);
}

/* An unknown peer and a wrong secret look the same. */
static void unknown(void *argument)
{
	static const uint8_t zeros[PL_TAG];
	struct stranger stranger;

	(void)argument;
	stranger_open(&stranger);
	for (uint64_t index = 0; index < 64; index++) {
		struct pl_lane_auth auth;

		check_number(pl_lane_auth_hello(&auth, index % 2 ? index : UINT64_MAX - index, 1), 0);
		expect_refusal(challenge(&stranger, &auth), zeros);
	}
	stranger_close(&stranger);
}

/* Lanes in use, beyond the agreed number, and of the local fabric. */
static void out_of_place(void *argument)
{
	static const uint16_t lanes[] = { 0, 5, 15, 16, 255, 0x7fff };
	struct stranger stranger;

	(void)argument;
	stranger_open(&stranger);
	for (unsigned i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
		struct pl_lane_auth auth;
		uint8_t proof[PL_TAG];
		int fd;

		check_number(pl_lane_auth_hello(&auth, stranger.target.peer_index, lanes[i]), 0);
		fd = challenge(&stranger, &auth);
		check_number(pl_lane_auth_prove(&auth, stranger.peer, proof), 0);
		expect_refusal(fd, proof);
	}
	stranger_close(&stranger);
}

/* Sends bytes one by one, each in a packet of its own. */
static void send_slowly(int fd, const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		check(socket_send(fd, bytes + i, 1));
		sleep_ms(1);
	}
}

/* A right lane whose bytes come one by one. */
static void slow(void *argument)
{
	uint8_t proof[PL_TAG], welcome[PL_LANE_WELCOME];
	struct pl_lane_auth auth;
	struct stranger stranger;
	uint32_t status;
	int fd, on = 1;

	(void)argument;
	stranger_open(&stranger);
	check_number(pl_lane_auth_hello(&auth, stranger.target.peer_index, 1), 0);
	fd = socket_connect(stranger.victim.address);
	check(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
	send_slowly(fd, auth.hello, sizeof(auth.hello));
	check(socket_receive(fd, auth.challenge, sizeof(auth.challenge), AMPLE_MS));
	check_number(pl_lane_auth_prove(&auth, stranger.peer, proof), 0);
	send_slowly(fd, proof, sizeof(proof));
	check(socket_receive(fd, welcome, sizeof(welcome), AMPLE_MS));
	check_number(pl_lane_welcome_decode(welcome, &status), 0);
	check_number(status, PL_WIRE_OK);
	close(fd);
	stranger_close(&stranger);
}

/* A client of an earlier release, which greets in the clear, is refused by name. */
static void older_release(void *argument)
{
	struct pl_control hello = attack_hello(), answer;
	struct bytes bytes = attack_encode(&hello);
	uint8_t header[PL_CONTROL_HEADER], body[PL_CONTROL_BODY_MAX];
	struct victim victim;
	uint16_t type;
	uint32_t length;
	int fd;

	victim_open(&victim, argument);
	fd = socket_connect(victim.address);
	check(fd >= 0 && socket_send(fd, bytes.data, bytes.length));
	check(socket_receive(fd, header, sizeof(header), AMPLE_MS));
	check_number(pl_control_header_decode(header, &type, &length), 0);
	check(socket_receive(fd, body, length, AMPLE_MS));
	check_number(pl_control_decode(type, body, length, &answer), 0);
	check_number(answer.type, PL_CONTROL_REJECT);
	check_number(answer.reject.code, PL_WIRE_VERSION);
	check_text(answer.reject.id, "PROTOCOL-VERSION");
	check(socket_wait_closed(fd, AMPLE_MS));
	close(fd);
	victim_check(&victim);
	victim_close(&victim);
}

/* Waits until the victim has handled the end of the lane, so that the farewell comes after it. */
static void wait_lane_lost(struct pl_peer *peer)
{
	struct pl_event_record records[PL_EVENTS_MAX];
	bool lost = false;

	for (uint64_t end = clock_now() + AMPLE_TIME; !lost; sleep_ms(1)) {
		struct pl_event_query query = PL_EVENT_QUERY_INIT;
		int count = pl_peer_events(peer, &query, records, PL_EVENTS_MAX);

		check(clock_now() < end);
		for (int i = 0; i < count; i++)
			lost |= records[i].event == PL_EVENT_LANE_LOST;
	}
}

/* Time within which a farewell must come after the end of a data socket. */
#define REASON_TIME (200 * MS)

/*
 * Ends the data socket of a peer before its farewell arrives, or without one, and checks the reason that the owner sees.
 * Returns false if the farewell may have come too late on a busy machine.
 */
static bool leave(bool says_bye)
{
	const struct pl_control bye = { .type = PL_CONTROL_BYE };
	struct bytes bytes = attack_encode(&bye);
	struct pl_operation *receive;
	struct pl_region *region;
	struct stranger stranger;
	struct pl_error error;
	uint64_t began;
	char memory[64];
	bool right;

	stranger_open(&stranger);
	check_ok(pl_region_register(stranger.victim.context, memory, sizeof(memory), 0, &region, &error), &error);
	check_ok(pl_receive(stranger.served, 1, 0, &(struct pl_buffer){ region, 0, sizeof(memory) }, NULL, &receive,
			    &error),
		 &error);
	began = clock_now();
	close(stranger.lane);
	wait_lane_lost(stranger.served);
	if (says_bye) {
		check(socket_send(stranger.control, bytes.data, bytes.length));
		close(stranger.control);
	}
	check_status(pl_wait(receive, AMPLE_TIME, NULL, &error), -ECONNRESET, &error);
	right = !strcmp(error.id, says_bye ? "PEER-CLOSED" : "PEER-LOST");
	check(right || (says_bye && clock_now() - began >= REASON_TIME));
	if (!says_bye)
		close(stranger.control);
	pl_region_deregister(region);
	pl_peer_close(stranger.served);
	victim_check(&stranger.victim);
	free(stranger.peer);
	victim_close(&stranger.victim);
	return right;
}

static void farewell(void *argument)
{
	unsigned tries = 10;

	while (!leave(*(const bool *)argument))
		check(--tries);
}

/* -- the victim is the initiator --------------------------------------------------------------------------------- */

enum acceptor_lie {
	SILENT,        /* never answers the hello of the lane */
	HALF,          /* sends a half of the challenge, and nothing more */
	WRONG_TAG,     /* proves nothing */
	REFLECTED,     /* answers with bytes of the hello itself */
	OTHER_SECRET,  /* has the secret of another peer */
	NO_WELCOME,    /* closes after the proof */
	REFUSED,       /* refuses after the proof */
	WRONG_WELCOME, /* sends frames in place of the welcome */
	ACCEPTOR_LIES,
};

/* Answers the hello of lane 0 wrongly, or its proof. */
static int lie_about_lane(int listener, const struct attack_target *target, enum acceptor_lie lie)
{
	struct pl_peer *peer = calloc(1, sizeof(*peer));
	uint8_t proof[PL_TAG], welcome[PL_LANE_WELCOME] = { 0 }, secret[PL_SECRET];
	struct pl_lane_auth auth;
	int fd = socket_accept(listener);

	check(peer);
	peer->secret = secret;
	memcpy(secret, target->secret, sizeof(secret));
	peer->secret[0] ^= lie == OTHER_SECRET;
	check(socket_receive(fd, auth.hello, sizeof(auth.hello), AMPLE_MS));
	check_number(pl_lane_auth_challenge(&auth, lie == WRONG_TAG ? NULL : peer), 0);
	if (lie == REFLECTED)
		memcpy(auth.challenge, auth.hello, sizeof(auth.challenge));
	if (lie != SILENT)
		check(socket_send(fd, auth.challenge, sizeof(auth.challenge) / (lie == HALF ? 2 : 1)));
	if (lie >= NO_WELCOME) {
		check(socket_receive(fd, proof, sizeof(proof), AMPLE_MS));
		check(pl_lane_auth_check(&auth, peer, proof));
	} else if (lie > HALF) {
		/* The victim must not prove anything to an end without the secret. */
		check(!socket_receive(fd, proof, 1, AMPLE_MS));
	}
	if (lie == REFUSED)
		pl_lane_welcome_encode(PL_WIRE_BUSY, welcome);
	if (lie > NO_WELCOME)
		check(socket_send(fd, welcome, sizeof(welcome)));
	free(peer);
	return fd;
}

/* Time of an attempt that must expire; the acceptor answers within it, also if the machine stands still for seconds. */
#define CONNECT_TIME ((3 + slowness() / 2) * SECOND)

/* Each lie ends the attempt with a named error, in its time; other connections of the context go on. */
static void false_acceptor(void *argument)
{
	struct victim victim;

	(void)argument;
	victim_open(&victim, &plain);
	for (unsigned lie = 0; lie < ACCEPTOR_LIES; lie++) {
		struct attack_target target;
		struct pl_operation *operation;
		struct pl_error error;
		const bool expires = lie == SILENT || lie == HALF;
		int listener, control, lane, status;
		char address[32];

		listener = socket_listen(address);
		check_ok(pl_connect_start(victim.context, address, expires ? CONNECT_TIME : AMPLE_TIME, 0, &operation,
					  &error),
			 &error);
		control = attack_serve(listener, &target);
		lane = lie_about_lane(listener, &target, (enum acceptor_lie)lie);
		if (lie == NO_WELCOME)
			close(lane);
		victim_check(&victim);
		status = pl_wait(operation, UINT64_MAX, NULL, &error);
		check_status(status, status, &error);
		if (expires)
			check_number(status, -ETIMEDOUT);
		else
			check_one_of(status, -EPROTO, -EACCES, -ECONNRESET);
		if (lie != NO_WELCOME)
			close(lane);
		close(control);
		close(listener);
		victim_check(&victim);
	}
	victim_close(&victim);
}

static void *poll_until_stopped(void *argument)
{
	struct pump *pump = argument;

	while (!atomic_load(&pump->stop))
		pl_poll(pump->context, NULL, 0);
	return NULL;
}

/* A program that waits for a connection to an acceptor that says nothing sleeps, also if it makes progress itself. */
static void silent_acceptor(void *argument)
{
	static const struct setting manual = { "manual", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 2, false,
					       false,    false, false };
	struct pl_context *context = context_open(&manual);
	struct attack_target target;
	struct pl_operation *operation;
	struct pl_error error;
	struct pump pump = { .context = context, .running = true };
	int listener, control, lane;
	char address[32];
	uint64_t before;

	(void)argument;
	listener = socket_listen(address);
	check_ok(pl_connect_start(context, address, 2 * CONNECT_TIME, 0, &operation, &error), &error);
	check_number(pthread_create(&pump.thread, NULL, poll_until_stopped, &pump), 0);
	control = attack_serve(listener, &target);
	lane = lie_about_lane(listener, &target, HALF);
	atomic_store(&pump.stop, true);
	pthread_join(pump.thread, NULL);
	before = cpu_time();
	check_status(pl_wait(operation, UINT64_MAX, NULL, &error), -ETIMEDOUT, &error);
	check(cpu_time() - before < SECOND / 4);
	close(lane);
	close(control);
	close(listener);
	pl_close(context);
}

int main(void)
{
	static const bool says_bye = true, says_nothing = false;
	static const struct setting keyed = { "keyed", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, true,
					      false,   false, false };
	const struct test_case cases[] = {
		{ "replayed", replayed, NULL, 20 },
		{ "reflected", reflected, NULL, 20 },
		{ "changed", changed, NULL, 60 },
		{ "unknown", unknown, NULL, 60 },
		{ "out of place", out_of_place, NULL, 30 },
		{ "slow", slow, NULL, 20 },
		{ "farewell", farewell, (void *)&says_bye, 20 },
		{ "no farewell", farewell, (void *)&says_nothing, 20 },
		{ "false acceptor", false_acceptor, NULL, 60 },
		{ "silent acceptor", silent_acceptor, NULL, 20 },
		{ "older release", older_release, &plain, 20 },
		{ "older release, keyed", older_release, &keyed, 20 },
	};

	return cases_run("hostile-lanes", cases, sizeof(cases) / sizeof(cases[0]));
}
