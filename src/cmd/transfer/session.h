/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Session of a client with a server: one context, one peer, one event loop.  All operations complete in session_pump(),
 * which also handles SIGINT and SIGTERM.
 */
#ifndef PL_CMD_TRANSFER_SESSION_H
#define PL_CMD_TRANSFER_SESSION_H

#include "cmd/common/events.h"
#include "cmd/transfer/service.h"

struct session {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *answers; /* receive buffer */
	struct pl_peer_info info;
	char address[300];
	int signals;       /* signalfd, or -1 */
	uint32_t requests; /* number of the last request */
	bool interrupted;  /* set once a signal has arrived */
	uint64_t timeout; /* of operations, in nanoseconds; 0: the default */
	bool with_events;
	struct cli_events events; /* of the connection, when it was closed; if `with_events` */
};

/* Operation under way.  Its address is the user_data of the operation. */
struct await {
	bool done;
	int status;
	struct pl_completion completion;
	struct pl_error error;
};

/* Request under way. */
struct session_request {
	struct await received, sent;
	uint32_t request;
	enum service_type type;
};

/* Connects to `peerlane serve`.  After a failure, the session needs no session_close(). */
int session_open(struct session *session, const struct cli_options *options, const char *address,
		 struct pl_error *error);
/* Closes the connection, which ends all operations, and keeps its events. */
void session_disconnect(struct session *session);
/* Closes the session.  No buffer is in use afterwards. */
void session_close(struct session *session);

/*
 * Handles completions, after waiting for one for up to `milliseconds` (-1: without limit).  Returns 0; or, after a
 * signal, closes the connection, fills *error and returns -EINTR.
 */
int session_pump(struct session *session, int milliseconds, struct pl_error *error);
/* Pumps until the operation is done.  Returns its status, or -EINTR. */
int session_await(struct session *session, struct await *await, struct pl_error *error);
/* Pumps until the operation is done, even after a signal or the loss of the connection. */
void session_drain(struct session *session, struct await *await);

/* Imports the token of an answer.  A signal interrupts the import. */
int session_import(struct session *session, const struct service_message *answer, struct pl_remote **remote,
		   struct pl_error *error);

/* Returns the attributes of an operation that completes *await. */
struct pl_attributes session_attributes(struct await *await, uint64_t timeout);

/* Sends a request and fills request->request.  *pending must stay valid until session_wait_answer() has returned. */
int session_send_request(struct session *session, struct service_message *request, struct session_request *pending,
			 struct pl_error *error);
/* Waits for the answer.  Returns its status, or the error of the connection. */
int session_wait_answer(struct session *session, struct session_request *pending, struct service_message *answer,
			struct pl_error *error);
/* Sends a request and waits for its answer. */
int session_call(struct session *session, struct service_message *request, struct service_message *answer,
		 struct pl_error *error);
/* Begins to send a message that has no answer.  *sent must stay valid until it is done. */
int session_post(struct session *session, struct service_message *message, struct await *sent, struct pl_error *error);
/* Sends a message that has no answer. */
int session_send(struct session *session, struct service_message *message, struct pl_error *error);

/* Fills a request about a name.  Returns -EINVAL if the name is not valid. */
int session_name(struct service_message *request, enum service_type type, const char *name, struct pl_error *error);

#endif
