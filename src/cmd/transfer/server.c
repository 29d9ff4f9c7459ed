/* SPDX-License-Identifier: BSD-2-Clause */
/* Clients of a server: accept, requests and answers, disconnect. */
#include "cmd/transfer/budget.h"
#include "cmd/transfer/permission.h"
#include "cmd/transfer/quota.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64
#define STOP_POLL_MS 100
/* Time for a refused client to read the reason, and to leave. */
#define REFUSAL_TIME (2 * CLI_NS_PER_S)
/* Most time between two looks at all clients, whose rights may end at a time of the wall clock. */
#define LOOK_TIME (60 * CLI_NS_PER_S)

/* user_data of an accept; that of other operations is the address of a client. */
#define ACCEPT 0

void server_report(const struct client *client, enum server_event event, const char *name, uint64_t bytes)
{
	const struct server_event_report report = {
		.event = event, .client = client, .name = name, .bytes = bytes
	};

	client->server->report_event(client->server->user, &report);
}

static void client_free(struct client *client)
{
	struct server *server = client->server;

	if (client->previous)
		client->previous->next = client->next;
	else
		server->clients = client->next;
	if (client->next)
		client->next->previous = client->previous;
	pl_region_deregister(client->region);
	free(client);
}

/* Disconnects a client and frees its handles.  Frees the client once its operations have ended. */
static void client_drop(struct client *client)
{
	struct server *server = client->server;

	if (!client->peer)
		return;
	request_hash_end(client);
	if (client->commit)
		client->commit->client = NULL;
	client->commit = NULL;
	if (server->before_close)
		server->before_close(client);
	pl_peer_close(client->peer);
	client->peer = NULL;
	for (size_t i = 0; i < SERVER_HANDLES_MAX; i++)
		if (client->handles[i])
			request_handle_close(client, i, false);
	server->client_count--;
	server->served++;
	server_report(client, SERVER_LEFT, NULL, 0);
	if (!client->running)
		client_free(client);
}

/* Receives the next request, unless a receive is posted, or an answer is due or under way. */
static void post_client_receive(struct client *client)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	/* Requests that wait fill the client's window of messages, and then wait at the client. */
	if (client->running || client->held || client->commit || budget_pauses(client))
		return;
	/* An idle client is not disconnected. */
	attributes.timeout = UINT64_MAX;
	attributes.user_data = (uintptr_t)client;
	if (pl_receive(client->peer, 0, 0, &(struct pl_buffer){ client->region, 0, SERVICE_REQUEST_MAX }, &attributes,
		       NULL, NULL) < 0)
		client_drop(client);
	else
		client->running++;
}

/*
 * Sends an answer.  The next request is received after the answer is sent, so a client has one of each at a time; reports of
 * progress are received while a hash is computed.
 */
static void send_client_answer(struct client *client, struct service_message *answer)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint8_t buffer[SERVICE_ANSWER_MAX];
	int length;

	attributes.user_data = (uintptr_t)client;
	attributes.flags = PL_CONFIDENTIAL;
	answer->answer = true;
	/* A hash may have taken longer than a client may be idle. */
	client->active = cli_now();
	length = service_encode(answer, buffer, sizeof(buffer));
	if (length < 0 || pl_send_copy(client->peer, SERVICE_TAG, buffer, (size_t)length, &attributes, NULL, NULL) < 0)
		client_drop(client);
	else
		client->running++;
}

static void send_client_error(struct client *client, struct service_message *answer, int code,
			      const struct pl_error *error)
{
	answer->status = code;
	answer->error = *error;
	send_client_answer(client, answer);
}

/* Counts a request that is done; `type` is 0 if the request could not be decoded. */
static void count_request(struct server *server, enum service_type type, int rc)
{
	if (rc != REQUEST_LATER)
		server->requests[type][rc < 0]++;
}

/* Sends the answer of a request, or receives the next request, according to the result `rc`. */
static void finish_request(struct client *client, struct service_message *answer, int rc, const struct pl_error *error)
{
	if (rc < 0)
		send_client_error(client, answer, rc, error);
	else if (rc == REQUEST_ANSWER)
		send_client_answer(client, answer);
	else if (rc == REQUEST_NO_ANSWER)
		post_client_receive(client);
}

/* Checks that the rights of a client have not ended. */
static int check_client(struct client *client, struct pl_error *error)
{
	if (!client->over && permission_is_over(client)) {
		client->over = true;
		cli_fail(&client->reason, -EACCES, "IDENTITY-REVOKED", NULL, NULL, "the rights of this identity have ended");
	}
	if (!client->over)
		return 0;
	client->server->idle_check = 0;
	*error = client->reason;
	return error->code;
}

/*
 * Checks that the accesses of a request can be logged.  Requests that end an access are not refused.  A refusal has no
 * line in the log, as there is no room for it.
 */
static bool request_can_be_logged(const struct client *client, const struct service_message *request,
				  struct pl_error *error)
{
	static const bool is_access[SERVICE_TYPES] = {
		[SERVICE_OPEN] = true,      [SERVICE_CREATE] = true,    [SERVICE_COMMIT] = true, [SERVICE_COMMIT_UNSYNCED] = true,
		[SERVICE_PUT_SMALL] = true, [SERVICE_GET_SMALL] = true, [SERVICE_DELETE] = true,
	};
	const struct server *server = client->server;

	if (!is_access[request->type] || !server->is_blocked || !server->is_blocked(server->user))
		return true;
	cli_fail(error, -EBUSY, "AUDIT-BUSY", request->name, "try again later; the server's messages tell the reason",
		 "the server cannot write its audit log, and refuses access without it");
	return false;
}

static void report_refused(const struct client *client, const struct service_message *request,
			   const struct pl_error *error)
{
	const struct server_event_report report = {
		.event = SERVER_REFUSED,
		.client = client,
		.name = request->name[0] ? request->name : NULL,
		.error = error,
	};

	client->server->report_event(client->server->user, &report);
}

/* Handles the request in the buffer; `length` is 0 if it was too long. */
static void handle_received_request(struct client *client, uint64_t length)
{
	struct service_message request, answer = { .type = SERVICE_LIST };
	struct pl_error error = { 0 };
	bool decoded = false, logged = true;
	int rc = -EPROTO;

	request.name[0] = '\0';
	if (length)
		rc = service_decode(client->buffer, length, &request);
	if (rc == 0)
		request.handle &= ~SERVICE_HANDLE_STAGED;
	if (client->hash_item && (rc < 0 || request.type != SERVICE_EXTENT)) {
		client->held = true;
		client->held_length = length;
		return;
	}
	client->active = cli_now();
	client->requests++;
	if (rc == 0 && request.type == SERVICE_EXTENT)
		budget_count_report(client);
	else
		budget_count_request(client);
	if (rc == 0 && request.answer)
		rc = -EPROTO;
	if (length && request.type >= SERVICE_LIST && request.type < SERVICE_TYPES) {
		answer.type = request.type;
		answer.request = request.request;
	}
	decoded = rc == 0;
	if (!decoded)
		cli_fail(&error, rc, "SERVICE-PROTOCOL", NULL, "use the same version at both ends",
			 "the server cannot decode the request");
	else if (check_client(client, &error) < 0 ||
		 !(logged = request_can_be_logged(client, &request, &error)))
		rc = error.code;
	else
		rc = request_handle(client, &request, &answer, &error);
	if (rc < 0 && logged)
		report_refused(client, &request, &error);
	count_request(client->server, decoded ? request.type : 0, rc);
	finish_request(client, &answer, rc, &error);
	/* Takes reports of progress meanwhile. */
	if (rc == REQUEST_LATER && client->hash_item)
		post_client_receive(client);
}

static void handle_next_request(struct client *client)
{
	if (!client->held) {
		post_client_receive(client);
		return;
	}
	client->held = false;
	handle_received_request(client, client->held_length);
}

static void handle_client_completion(struct client *client, const struct pl_completion *completion)
{
	bool received = completion->kind == PL_KIND_RECEIVE;

	client->running--;
	if (!client->peer) {
		if (!client->running)
			client_free(client);
	} else if (received && (completion->status == 0 || completion->status == -EMSGSIZE)) {
		handle_received_request(client, completion->status == 0 ? completion->bytes : 0);
	} else if (completion->status < 0) {
		client_drop(client);
	} else {
		handle_next_request(client);
	}
}

static void post_client_accept(struct server *server)
{
	if (!server->listener || server->accepting || server->client_count >= server->clients_max)
		return;
	server->accepting = pl_accept_start(server->listener, ACCEPT, NULL, NULL) == 0;
}

static void add_client(struct server *server, struct pl_peer *peer)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct client *client = calloc(1, sizeof(*client));

	if (!client || pl_region_register(server->context, client->buffer, sizeof(client->buffer), PL_ACCESS_LOCAL,
					  &client->region, NULL) < 0) {
		free(client);
		pl_peer_close(peer);
		return;
	}
	client->server = server;
	client->peer = peer;
	client->active = client->connected = cli_now();
	client->number = ++server->numbered;
	if (pl_peer_query(peer, &info) == 0) {
		memcpy(client->address, info.address, sizeof(client->address));
		memcpy(client->fabric, info.fabric, sizeof(client->fabric));
	}
	client->over = permission_admit(client, &client->reason) < 0;
	if (client->over)
		server->idle_check = 0;
	client->next = server->clients;
	if (client->next)
		client->next->previous = client;
	server->clients = client;
	server->client_count++;
	budget_watch_rate(client);
	server_report(client, SERVER_CONNECTED, NULL, 0);
	post_client_receive(client);
}

static void handle_server_completion(struct server *server, struct pl_completion *completion)
{
	switch (completion->kind) {
	case PL_KIND_ACCEPT:
		server->accepting = false;
		if (completion->peer && server->listener)
			add_client(server, completion->peer);
		else
			pl_peer_close(completion->peer);
		break;
	case PL_KIND_RECEIVE:
	case PL_KIND_SEND:
		handle_client_completion((struct client *)(uintptr_t)completion->user_data, completion);
		break;
	default:
		/* Ignores notifications of clients, whose data takes memory until it is freed. */
		pl_notification_free(server->context, completion);
		break;
	}
}

static void hash_next_slices(struct server *server)
{
	struct client *next;

	for (struct client *client = server->clients; client && server->hashing; client = next) {
		struct service_message answer = { .type = SERVICE_HASH };
		struct pl_error error;
		int rc;

		next = client->next;
		if (!client->hash_item)
			continue;
		answer.request = client->hash_request;
		rc = request_hash_slice(client, &answer, &error);
		if (rc != REQUEST_LATER)
			request_hash_end(client);
		count_request(server, answer.type, rc);
		finish_request(client, &answer, rc, &error);
	}
}

/* Answers the clients whose commits are done. */
static void finish_commits(struct server *server)
{
	struct commit *commit = committer_take_done(&server->committer), *next;

	for (; commit; commit = next) {
		struct service_message answer = { .type = commit->type, .request = commit->request };
		struct client *client = request_commit_end(server, commit, &answer);

		next = commit->next;
		count_request(server, answer.type, commit->rc);
		if (client)
			finish_request(client, &answer, commit->rc, &commit->error);
		free(commit);
	}
}

/*
 * True if the client has open files that it reads or memory, whose transfers need no requests.  Transfers through an area
 * need them, and the client of an upload reports its progress.
 */
static bool has_silent_transfers(const struct client *client)
{
	bool silent = false;

	if (client->commit)
		return true;
	for (size_t i = 0; i < SERVER_HANDLES_MAX; i++) {
		const struct handle *handle = client->handles[i];

		/* An upload that stopped for ever would keep its name from all others. */
		if (handle && handle->item->kind == ITEM_PARTIAL_FILE)
			return false;
		silent |= handle && !handle->area;
	}
	return silent;
}

static bool is_idle_for(const struct client *client, uint64_t time, uint64_t now)
{
	return time && (client->over || !has_silent_transfers(client)) && now - client->active > time;
}

/* Disconnects idle clients, and those whose rights have ended. */
static void drop_idle_clients(struct server *server)
{
	uint64_t now = cli_now();
	struct client *next;

	if (now < server->idle_check)
		return;
	server->idle_check = now + (server->idle ? CLI_MIN(server->idle / 4, LOOK_TIME) : LOOK_TIME);
	for (struct client *client = server->clients; client; client = next) {
		uint64_t time = client->over ? REFUSAL_TIME : server->idle;

		next = client->next;
		if (!client->peer || client->hash_item)
			continue;
		if (permission_is_over(client) || is_idle_for(client, time, now))
			client_drop(client);
		else if (client->over)
			server->idle_check = CLI_MIN(server->idle_check, client->active + REFUSAL_TIME + 1);
	}
}

uint64_t server_next_time(const struct server *server)
{
	uint64_t next = UINT64_MAX;

	if (server->client_count)
		next = CLI_MIN(CLI_MIN(server->limit_check, server->pace_check), server->idle_check);
	return CLI_MIN(next, quota_next_expiry(server));
}

void server_reload(struct server *server)
{
	for (struct client *client = server->clients; client; client = client->next)
		permission_refresh(client);
	server->limit_check = 0;
}

int server_start(struct server *server, struct pl_error *error)
{
	int rc = catalogue_refresh(&server->catalogue, 0, error);

	server->pace_check = server->limit_check = UINT64_MAX;
	if (rc == 0)
		rc = committer_open(&server->committer, error);
	if (rc == 0)
		post_client_accept(server);
	return rc;
}

bool server_run(struct server *server)
{
	struct pl_completion completions[BATCH];
	int count = pl_poll(server->context, completions, BATCH);

	for (int i = 0; i < count; i++)
		handle_server_completion(server, &completions[i]);
	hash_next_slices(server);
	finish_commits(server);
	drop_idle_clients(server);
	budget_resume(server, post_client_receive);
	budget_report_rates(server);
	quota_expire_parts(server);
	post_client_accept(server);
	return count == BATCH || server->hashing;
}

void server_stop(struct server *server)
{
	struct pollfd ready = { .fd = pl_fd(server->context), .events = POLLIN };
	struct client *next;

	pl_listener_close(server->listener);
	server->listener = NULL;
	for (struct client *client = server->clients; client; client = next) {
		next = client->next;
		client_drop(client);
	}
	/* Closing the connections ended all operations; their completions free the clients. */
	while (server->clients) {
		poll(&ready, 1, STOP_POLL_MS);
		server_run(server);
	}
	committer_close(&server->committer);
	finish_commits(server);
	quota_close(server);
}
