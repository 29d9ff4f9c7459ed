/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The serving end of the protocol in service.h.  Everything happens in one thread, on completions
 * of one context.  A client costs a receive that is posted, a buffer for it, and its handles.
 */
#ifndef PL_CLI_SERVER_H
#define PL_CLI_SERVER_H

#include "cmd/transfer/catalogue.h"
#include "cmd/common/cli.h"
#include "cmd/transfer/item.h"
#include "cmd/transfer/service.h"

#define SERVER_HANDLES_MAX 64

struct handle {
	struct item *item; /* NULL: free */
	bool writing;
	char *name;
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length; /* 0: there is none, as there are no bytes */
};

struct server;

struct client {
	struct client *next, *previous;
	struct server *server;
	struct pl_peer *peer; /* NULL once it is gone */
	char address[80];
	uint8_t buffer[SERVICE_REQUEST_MAX];
	struct pl_region *region; /* the buffer */
	unsigned running;         /* operations: the client is freed when there are none */
	struct handle *handles[SERVER_HANDLES_MAX];
	struct hash_state *hash; /* one under way, in slices */
	struct item *hash_item;
	uint64_t hash_offset, hash_left;
	uint32_t hash_request;
};

/* What a server tells of: for people and for scripts. */
enum server_event { SERVER_READS, SERVER_WRITES, SERVER_STORED, SERVER_CONNECTED, SERVER_LEFT };

struct server {
	struct pl_context *context;
	struct pl_listener *listener; /* NULL once it stops */
	struct catalogue catalogue;
	struct items items;
	bool writable; /* blocks of memory */
	int upload;    /* where files are put, or -1 */
	unsigned clients_max;
	unsigned client_count;
	unsigned hashing;                     /* clients that wait for a hash */
	uint64_t served;                      /* clients that came and went */
	bool accepting;                       /* an accept is posted */
	uint8_t entries[SERVICE_ENTRIES_MAX]; /* of the listing being answered */
	struct client *clients;
	/* name is NULL for events about the client as such */
	void (*tell)(void *user, enum server_event event, const struct client *client, const char *name,
		     uint64_t bytes);
	void *user;
};

/* Begins to accept. */
int server_start(struct server *server, struct pl_error *error);
/* Handles all completions there are, and a slice of each hash; true if there is more to do at once. */
bool server_run(struct server *server);
/* Closes the listener and ends all clients.  The context is the caller's to close, before the items go. */
void server_stop(struct server *server);

/* -- of server.c, for requests.c ----------------------------------------------------------------- */

/* What became of a request: *answer is filled, will be later, or is not wanted; or a negative errno with *error filled. */
enum { REQUEST_ANSWER = 0, REQUEST_LATER = 1, REQUEST_NO_ANSWER = 2 };
/* Does what a request asks for. */
int request_handle(struct client *client, const struct service_message *request, struct service_message *answer,
		   struct pl_error *error);
/* Goes on with a hash. */
int request_hash_slice(struct client *client, struct service_message *answer, struct pl_error *error);
void request_hash_end(struct client *client);
void request_handle_close(struct client *client, size_t index, bool discard);

#endif
