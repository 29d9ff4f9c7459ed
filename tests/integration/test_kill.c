/* SPDX-License-Identifier: BSD-2-Clause */
/* Death or stop of the other process at every stage of a connection: operations end in time, with named errors. */
#include <signal.h>
#include <unistd.h>

#include "support/agent.h"
#include "support/cases.h"
#include "support/socket.h"
#include "support/tls_link.h"
#include "wire/wire.h"

#define LARGE (128u << 20)
#define SEED 5u /* of the agent's bytes */
/* Longest time until an operation fails.  The kernel reports a death at once; a busy machine needs longer. */
#define SOON SLACK

static const struct setting plain = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false };
static const struct setting keyed = { "keyed", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, true, false, false, false };
static const struct setting manual = {
	"manual", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 2, false, false, false, false
};

struct session {
	const struct setting *setting;
	struct agent agent;
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct buffer buffer;
};

static void session_open(struct session *session, const struct setting *setting, size_t size)
{
	struct pl_error error;

	/* The agent always has a progress thread; only this end makes manual progress. */
	agent_start(&session->agent, setting == &keyed ? &keyed : &plain, size);
	session->setting = setting;
	session->context = context_open(setting);
	check_ok(pl_connect(session->context, session->agent.address, 0, &session->peer, &error), &error);
	agent_accept(&session->agent);
	check_ok(pl_remote_import(session->peer, session->agent.token, session->agent.token_length, 0, &session->remote,
				  &error),
		 &error);
	buffer_open(&session->buffer, session->context, size, PL_ACCESS_ALL);
	memset(session->buffer.bytes, 1, size);
}

/* Closes a session after the peer's death: handles stay valid, and operations fail with -ENOTCONN. */
static void session_close(struct session *session)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	check_number(pl_peer_query(session->peer, &info), 0);
	check(!info.connected);
	check_status(pl_write(session->peer, &(struct pl_transfer){ session->remote, 0, session->buffer.region, 0, 1 },
			      NULL, &operation, &error),
		     -ENOTCONN, &error);
	pl_remote_release(session->remote);
	pl_peer_close(session->peer);
	buffer_close(&session->buffer);
	pl_close(session->context);
}

enum stage { STAGE_IDLE, STAGE_IMPORT, STAGE_WRITE, STAGE_READ, STAGE_SEND, STAGE_RECEIVE, STAGE_TARGET };

static void post(struct session *session, enum stage stage, const struct pl_attributes *attributes,
		 struct pl_operation **operation)
{
	struct pl_region *region = session->buffer.region;
	struct pl_error error;
	size_t size = session->buffer.length;

	switch (stage) {
	case STAGE_IMPORT:
		check_ok(pl_remote_import_start(session->peer, session->agent.token, session->agent.token_length, 0,
						operation, &error),
			 &error);
		break;
	case STAGE_WRITE:
		check_ok(pl_write(session->peer, &(struct pl_transfer){ session->remote, 0, region, 0, size },
				  attributes, operation, &error),
			 &error);
		break;
	case STAGE_READ:
		check_ok(pl_read(session->peer, &(struct pl_transfer){ session->remote, 0, region, 0, size },
				 attributes, operation, &error),
			 &error);
		break;
	case STAGE_SEND:
		check_ok(pl_send(session->peer, 1, &(struct pl_buffer){ region, 0, size }, attributes, operation,
				 &error),
			 &error);
		break;
	case STAGE_IDLE:
	case STAGE_RECEIVE:
	case STAGE_TARGET:
		check_ok(pl_receive(session->peer, 1, 0, &(struct pl_buffer){ region, 0, size }, attributes, operation,
				    &error),
			 &error);
		break;
	}
}

/* Returns true if the operation of the stage ends with the agent's bytes in the buffer of this end. */
static bool brings_bytes(enum stage stage)
{
	return stage == STAGE_READ || stage == STAGE_RECEIVE;
}

/* Kills the agent during the operation of the stage. Returns false if the operation ended before, as on a busy machine. */
static bool killed_during(const struct setting *setting, enum stage stage)
{
	struct pl_operation *operation;
	struct session session;
	struct pl_completion receipt;
	struct pl_error error;
	uint64_t killed;
	int status;

	session_open(&session, setting, stage == STAGE_IDLE ? 64 : LARGE);
	agent_fill(&session.agent, SEED);
	if (stage == STAGE_SEND)
		agent_receive(&session.agent, 1, LARGE);
	if (stage == STAGE_RECEIVE)
		agent_send(&session.agent, 1, LARGE);
	if (stage == STAGE_TARGET) {
		uint8_t token[PL_TOKEN_MAX];
		size_t length = sizeof(token);

		check_ok(pl_region_share(session.buffer.region, NULL, token, &length, &error), &error);
		agent_write(&session.agent, token, length, LARGE);
	}
	/* Stops the agent first: it must not complete its part before this end makes progress. */
	if (stage == STAGE_IMPORT || setting == &manual)
		process_stop(session.agent.pid);
	post(&session, stage, NULL, &operation);
	if (stage != STAGE_IDLE && stage != STAGE_IMPORT && setting != &manual)
		usleep(2000);
	if (setting == &manual)
		check_number(pl_test(operation, NULL, NULL), -EINPROGRESS);
	agent_kill(&session.agent);
	killed = clock_now();
	status = pl_wait(operation, UINT64_MAX, &receipt, &error);
	check(clock_now() - killed < SOON);
	check_number(receipt.status, status);
	if (status) {
		check_status(status, -ECONNRESET, &error);
		check(strstr(error.object, session.agent.address) || strstr(error.message, session.agent.address));
		session_close(&session);
	} else {
		if (brings_bytes(stage))
			pattern_check(session.buffer.bytes, LARGE, SEED, 0);
		else if (stage == STAGE_IMPORT)
			pl_remote_release(receipt.remote);
		else
			check(stage == STAGE_WRITE || stage == STAGE_SEND);
		pl_remote_release(session.remote);
		pl_peer_close(session.peer);
		buffer_close(&session.buffer);
		pl_close(session.context);
	}
	return status;
}

static void kill_in(const struct setting *setting, enum stage stage)
{
	unsigned tries = 20;

	while (!killed_during(setting, stage))
		check(--tries);
}

static void kill_idle(void *argument)
{
	kill_in(argument, STAGE_IDLE);
}

static void kill_importing(void *argument)
{
	kill_in(argument, STAGE_IMPORT);
}

static void kill_writing(void *argument)
{
	kill_in(argument, STAGE_WRITE);
}

static void kill_reading(void *argument)
{
	kill_in(argument, STAGE_READ);
}

static void kill_sending(void *argument)
{
	kill_in(argument, STAGE_SEND);
}

static void kill_receiving(void *argument)
{
	kill_in(argument, STAGE_RECEIVE);
}

/* Kills the agent while it writes to this process. */
static void kill_writer(void *argument)
{
	kill_in(argument, STAGE_TARGET);
}

/* Stops the agent: operations end by their deadline, the connection stays, and works after the agent continues. */
static void stop_and_continue(void *argument)
{
	static const enum stage stages[] = { STAGE_WRITE, STAGE_READ, STAGE_SEND, STAGE_RECEIVE };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operations[4];
	struct session session;
	struct pl_remote *remote;
	struct pl_error error;
	uint64_t posted;
	int status;

	attributes.timeout = 200 * MS;
	session_open(&session, argument, LARGE / 8);
	process_stop(session.agent.pid);
	posted = clock_now();
	for (unsigned i = 0; i < 4; i++)
		post(&session, stages[i], &attributes, &operations[i]);
	for (unsigned i = 0; i < 4; i++)
		check_status(pl_wait(operations[i], UINT64_MAX, NULL, &error), -ETIMEDOUT, &error);
	check_status(pl_remote_import(session.peer, session.agent.token, session.agent.token_length, 100 * MS, &remote,
				      &error),
		     -ETIMEDOUT, &error);
	check(clock_now() - posted >= 290 * MS && clock_now() - posted < SOON);
	agent_kill(&session.agent);
	/* The buffer belongs to the caller again; a late write must not change it. */
	memset(session.buffer.bytes, POISON, session.buffer.length);
	status = pl_receive(session.peer, 9, 0, &(struct pl_buffer){ session.buffer.region, 0, 9 }, NULL,
			    &operations[0], &error);
	if (!status)
		status = pl_wait(operations[0], UINT64_MAX, NULL, &error);
	check_one_of(status, -ENOTCONN, -ECONNRESET);
	value_check(session.buffer.bytes, session.buffer.length, POISON);
	session_close(&session);
}

/* Starts a server that accepts, sends the first `bytes` bytes of a greeting, and waits to be killed. */
static pid_t half_server(char address[32], size_t bytes)
{
	int listener = socket_listen(address);
	pid_t pid = process_fork();

	if (!pid) {
		struct pl_control control = { .type = PL_CONTROL_HELLO };
		uint8_t buffer[PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX];
		struct tls_link link;

		control.hello.version_min = control.hello.version_max = PL_PROTOCOL_VERSION;
		control.hello.lanes = 1;
		control.hello.fabric_count = 1;
		strcpy(control.hello.software, "peerlane 0.1.0");
		strcpy(control.hello.fabrics[0].name, "tcp");
		check(pl_control_encode(&control, buffer, sizeof(buffer)) > (int)bytes);
		/* A client with a key ends the handshake, as this server has none. */
		if (tls_link_open(&link, socket_accept(listener), true))
			tls_link_send(&link, buffer, bytes);
		for (;;)
			pause();
	}
	close(listener);
	return pid;
}

static void kill_greeting(void *argument)
{
	static const size_t bytes[] = { 0, 1, PL_CONTROL_HEADER, PL_CONTROL_HEADER + 9 };
	const struct setting *setting = argument;

	for (unsigned i = 0; i < 4; i++) {
		struct pl_context *context;
		struct pl_operation *operation;
		struct pl_error error;
		char address[32];
		pid_t pid = half_server(address, bytes[i]);
		uint64_t killed;
		int status;

		context = context_open(setting);
		check_ok(pl_connect_start(context, address, 0, 0, &operation, &error), &error);
		for (unsigned n = 0; n < 20; n++) {
			pl_poll(context, NULL, 0);
			sleep_ms(1);
		}
		process_kill(pid, SIGKILL);
		killed = clock_now();
		status = pl_wait(operation, UINT64_MAX, NULL, &error);
		/* A client with a key ends the handshake itself, unless the server is killed before. */
		check_one_of(status, -ECONNRESET, setting->key ? -EACCES : -ECONNRESET);
		check_status(status, status, &error);
		check(clock_now() - killed < SOON);
		pl_close(context);
	}
}

/* Waits for an address, connects, sends the first bytes of a greeting and waits to be killed. */
static void greet_in_part(int addresses, size_t bytes)
{
	char address[96];
	int fd;

	check_number(read(addresses, address, sizeof(address)), sizeof(address));
	fd = socket_connect(address);
	check(fd >= 0);
	socket_send(fd, "\x16\3\1\2\0\1\0\1", bytes); /* a TLS handshake */
	for (;;)
		pause();
}

/* Kills clients during their greeting: they do not become peers, and their resources are freed. */
static void kill_greeting_client(void *argument)
{
	struct pl_context *context, *good;
	struct pl_listener *listener;
	struct pl_peer *peer, *served;
	struct pl_error error;
	unsigned descriptors;
	char address[96];
	pid_t children[10];
	int go[2];

	check(!pipe(go));
	for (unsigned i = 0; i < 10; i++) {
		children[i] = process_fork();
		if (!children[i])
			greet_in_part(go[0], i % 9);
	}
	context = context_open(argument);
	listener = listener_open(argument, context, address);
	descriptors = open_descriptors();
	for (unsigned i = 0; i < 10; i++)
		check_number(write(go[1], address, sizeof(address)), sizeof(address));
	sleep_ms(100);
	for (unsigned i = 0; i < 10; i++)
		process_kill(children[i], SIGKILL);
	good = context_open(argument);
	check_ok(pl_connect(good, address, 0, &peer, &error), &error);
	check_ok(pl_accept(listener, AMPLE_TIME, &served, &error), &error);
	check_status(pl_accept(listener, 0, &served, &error), -ETIMEDOUT, &error);
	pl_close(good);
	for (unsigned i = 0; i < 300 && open_descriptors() > descriptors; i++)
		sleep_ms(10);
	pl_peer_close(served);
	pl_close(context);
}

static const struct test_case cases[] = {
	{ "kill greeting", kill_greeting, &plain, 15 },
	{ "kill greeting, keyed", kill_greeting, &keyed, 15 },
	{ "kill greeting, manual", kill_greeting, &manual, 15 },
	{ "kill greeting client", kill_greeting_client, &plain, 15 },
	{ "kill greeting client, keyed", kill_greeting_client, &keyed, 15 },
	{ "kill idle", kill_idle, &plain, 15 },
	{ "kill idle, keyed", kill_idle, &keyed, 15 },
	{ "kill idle, manual", kill_idle, &manual, 15 },
	{ "kill importing", kill_importing, &plain, 15 },
	{ "kill importing, keyed", kill_importing, &keyed, 15 },
	{ "kill importing, manual", kill_importing, &manual, 15 },
	{ "kill writing", kill_writing, &plain, 15 },
	{ "kill writing, manual", kill_writing, &manual, 15 },
	{ "kill reading", kill_reading, &plain, 15 },
	{ "kill reading, manual", kill_reading, &manual, 15 },
	{ "kill sending", kill_sending, &plain, 15 },
	{ "kill receiving", kill_receiving, &plain, 15 },
	{ "kill writer", kill_writer, &plain, 15 },
	{ "stop and continue", stop_and_continue, &plain, 15 },
	{ "stop and continue, manual", stop_and_continue, &manual, 15 },
};

int main(void)
{
	return cases_run("kill", cases, sizeof(cases) / sizeof(cases[0]));
}
