/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/session.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/transfer/sigbus_guard.h"

#define BATCH 16
/* Most batches before the caller looks for signals and for its own operation. */
#define BATCHES 64
/* Time of a hash: the default of all requests, and 1 us for each byte. */
#define HASH_TIME (30 * CLI_NS_PER_S)
#define HASH_TIME_OF_BYTE 1000u

static int connect_session(struct session *session, uint64_t timeout, struct pl_error *error)
{
	struct await connected = { .done = false };
	int rc = pl_connect_start(session->context, session->address, timeout, (uintptr_t)&connected, NULL, error);

	/* Until the connection exists there is no peer to close; after a signal, closing the context ends the attempt. */
	while (rc == 0 && !connected.done)
		rc = session_pump(session, -1, error);
	if (rc == 0 && connected.status < 0)
		*error = connected.error;
	if (rc < 0 || connected.status < 0)
		return rc < 0 ? rc : connected.status;
	session->peer = connected.completion.peer;
	return 0;
}

int session_open(struct session *session, const struct cli_options *options, const char *address,
		 struct pl_error *error)
{
	int rc;

	*session = (struct session){ .signals = -1,
				     .timeout = options->timeout,
				     .with_events = options->events,
				     .info = PL_PEER_INFO_INIT };
	sigbus_guard_install();
	rc = cli_address(address, session->address, sizeof(session->address), error);
	if (rc < 0)
		return rc;
	rc = cli_signal_fd(0, error);
	if (rc < 0)
		return rc;
	session->signals = rc;
	rc = cli_open(&session->context, options, PL_PROGRESS_THREAD, error);
	if (rc == 0)
		rc = pl_region_allocate(session->context, SERVICE_ANSWER_MAX, PL_ACCESS_LOCAL, &session->answers,
					error);
	if (rc == 0)
		rc = connect_session(session, options->timeout, error);
	if (rc == 0)
		rc = cli_expect_program(session->peer, CLI_PROGRAM_SERVE, session->address, error);
	if (rc == 0)
		rc = pl_peer_query(session->peer, &session->info);
	if (rc < 0)
		session_close(session);
	return rc;
}

void session_disconnect(struct session *session)
{
	if (session->peer && session->with_events)
		cli_events_read(&session->events, session->peer);
	pl_peer_close(session->peer);
	session->peer = NULL;
}

void session_close(struct session *session)
{
	session_disconnect(session);
	pl_close(session->context);
	if (session->signals >= 0)
		close(session->signals);
	session->context = NULL;
	session->signals = -1;
}

/* Handles all completions and returns their number. */
static int collect_completions(struct session *session)
{
	struct pl_completion completions[BATCH];
	int count = BATCH, total = 0;

	for (unsigned batches = 0; count == BATCH && batches < BATCHES; batches++) {
		count = pl_poll(session->context, completions, BATCH);
		for (int i = 0; i < count; i++) {
			struct await *await = (struct await *)(uintptr_t)completions[i].user_data;

			/* Nobody asked for notifications, whose data takes memory until it is freed. */
			pl_notification_free(session->context, &completions[i]);
			if (!await || completions[i].kind == PL_KIND_NOTIFIED || completions[i].kind == PL_KIND_LOST)
				continue;
			await->completion = completions[i];
			await->status = completions[i].status;
			if (await->status < 0)
				pl_completion_error(session->context, &completions[i], &await->error);
			await->done = true;
		}
		total += count;
	}
	return total;
}

/*
 * Closes the peer, which ends all operations, if a signal is pending.  The signal stays pending: it ends the process
 * after the results are printed (main.c).  Returns false if there is no signal.
 */
static bool handle_signal(struct session *session)
{
	if (!cli_signal_pending())
		return false;
	session->interrupted = true;
	session_disconnect(session);
	return true;
}

static int fail_interrupted(struct pl_error *error)
{
	return cli_fail(error, -EINTR, "INTERRUPTED", NULL, NULL, "interrupted by a signal");
}

int session_pump(struct session *session, int milliseconds, struct pl_error *error)
{
	struct pollfd fds[] = {
		{ .fd = pl_fd(session->context), .events = POLLIN },
		{ .fd = session->signals, .events = POLLIN },
	};

	if (collect_completions(session) == 0) {
		poll(fds, CLI_ARRAY_SIZE(fds), milliseconds);
		collect_completions(session);
	}
	if (!session->interrupted && !handle_signal(session))
		return 0;
	return fail_interrupted(error);
}

int session_await(struct session *session, struct await *await, struct pl_error *error)
{
	while (!await->done) {
		int rc = session_pump(session, -1, error);

		if (rc < 0) {
			session_drain(session, await);
			return rc;
		}
	}
	if (await->status < 0)
		*error = await->error;
	return await->status;
}

void session_drain(struct session *session, struct await *await)
{
	struct pl_error ignored;

	while (!await->done)
		session_pump(session, 100, &ignored);
}

struct pl_attributes session_attributes(struct await *await, uint64_t timeout)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	await->done = false;
	attributes.timeout = timeout;
	attributes.user_data = (uintptr_t)await;
	return attributes;
}

static int fail_connection_closed(struct pl_error *error, const char *address)
{
	return cli_fail(error, -ENOTCONN, "CONNECTION-LOST", address, NULL, "the connection is closed");
}

static int send_service_message(struct session *session, struct service_message *message, struct await *await,
				struct pl_error *error)
{
	struct pl_attributes attributes = session_attributes(await, 0);
	uint8_t buffer[SERVICE_REQUEST_MAX];
	int length;

	/* Names, tokens and hashes are secrets. */
	attributes.flags = PL_CONFIDENTIAL;
	message->request = ++session->requests;
	length = service_encode(message, buffer, sizeof(buffer));
	if (length < 0)
		return cli_fail_errno(error, length, "encode", NULL);
	return pl_send_copy(session->peer, SERVICE_TAG, buffer, (size_t)length, &attributes, NULL, error);
}

/* A hash takes as long as the file is large. */
static uint64_t hash_time(const struct session *session, uint64_t length)
{
	uint64_t base = session->timeout ? session->timeout : HASH_TIME;

	return length > (UINT64_MAX - base) / HASH_TIME_OF_BYTE ? UINT64_MAX : base + length * HASH_TIME_OF_BYTE;
}

int session_send_request(struct session *session, struct service_message *request, struct session_request *pending,
			 struct pl_error *error)
{
	uint64_t timeout = request->type == SERVICE_HASH ? hash_time(session, request->length) : 0;
	struct pl_attributes attributes = session_attributes(&pending->received, timeout);
	int rc;

	if (!session->peer)
		return session->interrupted ? fail_interrupted(error) : fail_connection_closed(error, session->address);
	rc = pl_receive(session->peer, SERVICE_TAG, UINT64_MAX,
			&(struct pl_buffer){ session->answers, 0, SERVICE_ANSWER_MAX }, &attributes, NULL, error);
	if (rc < 0)
		return rc;
	pending->type = request->type;
	rc = send_service_message(session, request, &pending->sent, error);
	pending->request = session->requests;
	if (rc < 0) {
		/* Ends the receive, because no answer will arrive. */
		session_disconnect(session);
		session_drain(session, &pending->received);
	}
	return rc;
}

static int decode_answer(struct session *session, struct session_request *pending, struct service_message *answer,
			 struct pl_error *error)
{
	int rc = service_decode(pl_region_address(session->answers), pending->received.completion.bytes, answer);

	if (rc < 0 || !answer->answer || answer->request != pending->request || answer->type != pending->type)
		return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", session->address,
				"run `peerlane serve` of the same version at that address",
				"the answer is not that of a Peerlane server");
	if (answer->status < 0) {
		size_t used = strlen(answer->error.message);

		*error = answer->error;
		snprintf(error->message + used, sizeof(error->message) - used, " (at the server %s)", session->address);
	}
	return answer->status;
}

int session_wait_answer(struct session *session, struct session_request *pending, struct service_message *answer,
			struct pl_error *error)
{
	struct pl_error unsent;
	int sent = session_await(session, &pending->sent, &unsent);
	int rc;

	if (sent < 0 && sent != -EINTR && session->peer) {
		session_disconnect(session);
	}
	rc = session_await(session, &pending->received, error);
	if (sent < 0)
		*error = unsent;
	if (sent < 0 || rc < 0)
		return sent < 0 ? sent : rc;
	return decode_answer(session, pending, answer, error);
}

int session_call(struct session *session, struct service_message *request, struct service_message *answer,
		 struct pl_error *error)
{
	struct session_request pending;
	int rc = session_send_request(session, request, &pending, error);

	return rc < 0 ? rc : session_wait_answer(session, &pending, answer, error);
}

int session_post(struct session *session, struct service_message *message, struct await *sent, struct pl_error *error)
{
	if (!session->peer)
		return fail_connection_closed(error, session->address);
	return send_service_message(session, message, sent, error);
}

int session_send(struct session *session, struct service_message *message, struct pl_error *error)
{
	struct await sent;
	int rc = session_post(session, message, &sent, error);

	return rc < 0 ? rc : session_await(session, &sent, error);
}

int session_import(struct session *session, const struct service_message *answer, struct pl_remote **remote,
		   struct pl_error *error)
{
	struct await imported = { .done = false };
	int rc;

	if (!session->peer)
		return fail_connection_closed(error, session->address);
	rc = pl_remote_import_start(session->peer, answer->token, answer->token_length, (uintptr_t)&imported, NULL,
				    error);
	if (rc == 0)
		rc = session_await(session, &imported, error);
	if (rc == 0)
		*remote = imported.completion.remote;
	return rc;
}

int session_name(struct service_message *request, enum service_type type, const char *name, struct pl_error *error)
{
	memset(request, 0, sizeof(*request));
	request->type = type;
	if (!service_name_valid(name))
		return cli_fail(error, -EINVAL, "NAME-SYNTAX", name, "use a name that `peerlane list` prints",
				"not a valid name of a published file");
	strcpy(request->name, name);
	return 0;
}
