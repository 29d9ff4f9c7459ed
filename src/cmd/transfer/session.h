/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client's end: one context, one peer, one event loop.  All operations complete through
 * session_pump(), which also notices SIGINT and SIGTERM.
 */
#ifndef PL_CLI_SESSION_H
#define PL_CLI_SESSION_H

#include "cmd/common/cli.h"
#include "cmd/transfer/service.h"

struct session {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *answers; /* where answers arrive */
	struct pl_peer_info info;
	char address[300];
	int signals; /* signalfd, or -1 */
	uint32_t requests;
	bool interrupted;
};

/* An operation under way; its address is the operation's user_data. */
struct await {
	bool done;
	int status;
	struct pl_receipt receipt;
	struct pl_error error;
};

/* A request under way. */
struct call {
	struct await received, sent;
	uint32_t request;
	enum service_type type;
};

/* Connects to `peerlane serve`.  On failure there is nothing to close. */
int session_open(struct session *session, const struct cli_options *options, const char *address,
		 struct pl_error *error);
/* Ends everything of it; no buffer is in use afterwards. */
void session_close(struct session *session);

/*
 * Takes completions, after waiting for one up to `milliseconds` (-1: as long as it takes).
 * 0, or -EINTR with *error filled once a signal asked to end; then the connection is closed.
 */
int session_pump(struct session *session, int milliseconds, struct pl_error *error);
/* Pumps until it is done.  The operation's status, or -EINTR. */
int session_await(struct session *session, struct await *await, struct pl_error *error);
/* Pumps until it is done even if a signal arrives or the connection is lost. */
void session_settle(struct session *session, struct await *await);

/* Imports what a token stands for; a signal ends that too. */
int session_import(struct session *session, const struct service_message *answer, struct pl_remote **remote,
		   struct pl_error *error);

/* Attributes for an operation that completes at `await`. */
struct pl_attributes session_attributes(struct await *await, uint64_t timeout);

/* Asks; request->request is filled in.  The call must stay until session_answer() returned. */
int session_ask(struct session *session, struct service_message *request, struct call *call, struct pl_error *error);
/* Takes the answer: 0, or the status that the server answered with, or the connection's. */
int session_answer(struct session *session, struct call *call, struct service_message *answer, struct pl_error *error);
/* Both in one. */
int session_call(struct session *session, struct service_message *request, struct service_message *answer,
		 struct pl_error *error);
/* Sends what has no answer. */
int session_tell(struct session *session, struct service_message *message, struct pl_error *error);

/* Fills a request that is about a name; -EINVAL if it is too long or not allowed. */
int session_name(struct service_message *request, enum service_type type, const char *name, struct pl_error *error);

#endif
