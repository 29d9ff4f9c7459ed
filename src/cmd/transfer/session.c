/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/session.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cmd/transfer/sigbus_guard.h"

#define BATCH 16

/* Blocked before the library makes its threads, so that none of these takes the signals. */
static int open_signals(struct pl_error *error)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? cli_fail_errno(error, -errno, "signalfd", NULL) : fd;
}

static int connect_peer(struct session *session, uint64_t timeout, struct pl_error *error)
{
	struct await connected = { .done = false };
	int rc = pl_connect_start(session->context, session->address, timeout, (uintptr_t)&connected, NULL, error);

	/* Without a peer to close, a signal cannot end the attempt: the context's end does. */
	while (rc == 0 && !connected.done)
		rc = session_pump(session, -1, error);
	if (rc == 0 && connected.status < 0)
		*error = connected.error;
	if (rc < 0 || connected.status < 0)
		return rc < 0 ? rc : connected.status;
	session->peer = connected.receipt.peer;
	return 0;
}

int session_open(struct session *session, const struct cli_options *options, const char *address,
		 struct pl_error *error)
{
	int rc;

	*session = (struct session){ .signals = -1, .info = PL_PEER_INFO_INIT };
	guard_install();
	rc = cli_address(address, session->address, sizeof(session->address), error);
	if (rc < 0)
		return rc;
	rc = open_signals(error);
	if (rc < 0)
		return rc;
	session->signals = rc;
	rc = cli_open(&session->context, options, PL_PROGRESS_THREAD, error);
	if (rc == 0)
		rc = pl_region_allocate(session->context, SERVICE_ANSWER_MAX, PL_ACCESS_LOCAL, &session->answers,
					error);
	if (rc == 0)
		rc = connect_peer(session, options->timeout, error);
	if (rc == 0)
		rc = pl_peer_query(session->peer, &session->info);
	if (rc < 0)
		session_close(session);
	return rc;
}

void session_close(struct session *session)
{
	pl_close(session->context);
	if (session->signals >= 0)
		close(session->signals);
	session->context = NULL;
	session->peer = NULL;
	session->signals = -1;
}

/* Returns how many completions there were. */
static int collect(struct session *session)
{
	struct pl_completion completions[BATCH];
	int count, total = 0;

	do {
		count = pl_poll(session->context, completions, BATCH);
		for (int i = 0; i < count; i++) {
			struct await *await = (struct await *)(uintptr_t)completions[i].receipt.user_data;

			if (!await || completions[i].receipt.kind == PL_KIND_NOTIFIED)
				continue;
			await->receipt = completions[i].receipt;
			await->status = completions[i].receipt.status;
			if (await->status < 0)
				await->error = completions[i].error;
			await->done = true;
		}
		total += count;
	} while (count == BATCH);
	return total;
}

static bool signal_arrived(struct session *session)
{
	struct signalfd_siginfo info;

	if (read(session->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return false;
	session->interrupted = true;
	/* What is under way ends now, and with it the use of its buffers. */
	pl_peer_close(session->peer);
	session->peer = NULL;
	return true;
}

static int say_interrupted(struct pl_error *error)
{
	return cli_fail(error, -EINTR, "INTERRUPTED", NULL, NULL, "interrupted by a signal");
}

int session_pump(struct session *session, int milliseconds, struct pl_error *error)
{
	struct pollfd fds[] = {
		{ .fd = pl_fd(session->context), .events = POLLIN },
		{ .fd = session->signals, .events = POLLIN },
	};

	if (collect(session) == 0) {
		poll(fds, CLI_ARRAY_SIZE(fds), milliseconds);
		collect(session);
	}
	if (!session->interrupted && !signal_arrived(session))
		return 0;
	return say_interrupted(error);
}

int session_await(struct session *session, struct await *await, struct pl_error *error)
{
	while (!await->done) {
		int rc = session_pump(session, -1, error);

		if (rc < 0) {
			session_settle(session, await);
			return rc;
		}
	}
	if (await->status < 0)
		*error = await->error;
	return await->status;
}

void session_settle(struct session *session, struct await *await)
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

static int lost(struct pl_error *error, const char *address)
{
	return cli_fail(error, -ENOTCONN, "CONNECTION-LOST", address, NULL, "there is no connection");
}

static int send_message(struct session *session, struct service_message *message, struct await *await,
			struct pl_error *error)
{
	struct pl_attributes attributes = session_attributes(await, 0);
	uint8_t buffer[SERVICE_REQUEST_MAX];
	int length;

	message->request = ++session->requests;
	length = service_encode(message, buffer, sizeof(buffer));
	if (length < 0)
		return cli_fail_errno(error, length, "encode", NULL);
	return pl_send_copy(session->peer, SERVICE_TAG, buffer, (size_t)length, &attributes, NULL, error);
}

int session_ask(struct session *session, struct service_message *request, struct call *call, struct pl_error *error)
{
	/* How long the server hashes depends on the file; that it is alive is the connection's to know. */
	uint64_t timeout = request->type == SERVICE_HASH ? UINT64_MAX : 0;
	struct pl_attributes attributes = session_attributes(&call->received, timeout);
	int rc;

	if (!session->peer)
		return session->interrupted ? say_interrupted(error) : lost(error, session->address);
	rc = pl_receive(session->peer, SERVICE_TAG, UINT64_MAX, session->answers, 0, SERVICE_ANSWER_MAX, &attributes,
			NULL, error);
	if (rc < 0)
		return rc;
	call->type = request->type;
	rc = send_message(session, request, &call->sent, error);
	call->request = session->requests;
	if (rc < 0) {
		/* The receive's buffer must not be waited for by a call that never was. */
		pl_peer_close(session->peer);
		session->peer = NULL;
		session_settle(session, &call->received);
	}
	return rc;
}

static int take_answer(struct session *session, struct call *call, struct service_message *answer,
		       struct pl_error *error)
{
	int rc = service_decode(pl_region_address(session->answers), call->received.receipt.bytes, answer);

	if (rc < 0 || !answer->answer || answer->request != call->request || answer->type != call->type)
		return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", session->address,
				"run `peerlane serve` there, of a version that fits this one",
				"the other end does not answer as a Peerlane server does");
	if (answer->status < 0)
		*error = answer->error;
	return answer->status;
}

int session_answer(struct session *session, struct call *call, struct service_message *answer, struct pl_error *error)
{
	struct pl_error unsent;
	int sent = session_await(session, &call->sent, &unsent);
	int rc;

	if (sent < 0 && sent != -EINTR && session->peer) {
		pl_peer_close(session->peer);
		session->peer = NULL;
	}
	rc = session_await(session, &call->received, error);
	if (sent < 0)
		*error = unsent;
	if (sent < 0 || rc < 0)
		return sent < 0 ? sent : rc;
	return take_answer(session, call, answer, error);
}

int session_call(struct session *session, struct service_message *request, struct service_message *answer,
		 struct pl_error *error)
{
	struct call call;
	int rc = session_ask(session, request, &call, error);

	return rc < 0 ? rc : session_answer(session, &call, answer, error);
}

int session_tell(struct session *session, struct service_message *message, struct pl_error *error)
{
	struct await sent;
	int rc;

	if (!session->peer)
		return lost(error, session->address);
	rc = send_message(session, message, &sent, error);
	return rc < 0 ? rc : session_await(session, &sent, error);
}

int session_import(struct session *session, const struct service_message *answer, struct pl_remote **remote,
		   struct pl_error *error)
{
	struct await imported = { .done = false };
	int rc;

	if (!session->peer)
		return lost(error, session->address);
	rc = pl_remote_import_start(session->peer, answer->token, answer->token_length, (uintptr_t)&imported, NULL,
				    error);
	if (rc == 0)
		rc = session_await(session, &imported, error);
	if (rc == 0)
		*remote = imported.receipt.remote;
	return rc;
}

int session_name(struct service_message *request, enum service_type type, const char *name, struct pl_error *error)
{
	memset(request, 0, sizeof(*request));
	request->type = type;
	if (!service_name_valid(name))
		return cli_fail(error, -EINVAL, "NAME-SYNTAX", name, "take a name as `peerlane list` prints it",
				"this cannot be the name of something published");
	strcpy(request->name, name);
	return 0;
}
