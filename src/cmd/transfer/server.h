/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Server of the protocol in service.h.  One thread handles all completions of one context.  A client occupies a posted
 * receive, a buffer for it, and its handles.
 */
#ifndef PL_CMD_TRANSFER_SERVER_H
#define PL_CMD_TRANSFER_SERVER_H

#include "cmd/common/cli.h"
#include "cmd/transfer/catalogue.h"
#include "cmd/transfer/committer.h"
#include "cmd/transfer/item.h"
#include "cmd/transfer/service.h"

#define SERVER_HANDLES_MAX 64

/* Open file of a client. */
struct handle {
	struct item *item;
	unsigned rights; /* of the token: PL_ACCESS_... */
	bool area;       /* memory for small files */
	char *name;
	uint64_t opened; /* time */
	uint64_t length; /* bytes to move: of the file, or of the upload */
	uint64_t moved;  /* bytes that the client reported */
	uint64_t staged; /* bytes of those that the client reported as staged */
	bool reported;   /* `moved` is known: a client that resumes does not begin at 0 */
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length; /* 0: no token, because the item is empty */
};

struct quota_account;
struct server;

struct client {
	struct client *next, *previous;
	struct server *server;
	struct pl_peer *peer; /* NULL once the client is disconnected */
	uint64_t number, connected; /* from 1, in the order of connecting; time */
	char address[80], fabric[16];
	uint64_t read, written; /* bytes, as the client reported */
	uint64_t direct, staged; /* the same by route, of reports that tell it */
	uint64_t requests;
	struct pl_identity identity; /* what it proved, and what that allows */
	struct pl_rights rights;
	bool over; /* refused: its requests get the reason, and it is disconnected */
	struct pl_error reason;
	uint8_t buffer[SERVICE_REQUEST_MAX];
	bool held; /* the buffer has a request that waits for the end of a hash */
	uint64_t held_length;
	struct pl_region *region; /* of the buffer */
	uint64_t active;          /* time of the last request */
	unsigned running;         /* operations under way; a disconnected client is freed when there are none */
	uint64_t paced;           /* time until which its requests are taken (budget.c) */
	uint64_t reports_paced;   /* the same of its reports of progress alone */
	bool paused;              /* its next request is received at that time */
	uint64_t rate_waits;      /* number that was seen last */
	uint64_t limit_reported;  /* time of the last SERVER_LIMITED; 0: none */
	struct handle *handles[SERVER_HANDLES_MAX];
	struct commit *commit;   /* of the request that waits for its answer; NULL: none */
	struct hash_state *hash; /* hash being computed in slices; NULL: none */
	struct item *hash_item;
	uint64_t hash_offset, hash_remaining; /* range of the next slices */
	uint32_t hash_request;                /* number of the request to answer */
};

/* Events that a server reports. */
enum server_event {
	SERVER_READS,   /* opened a name to read it */
	SERVER_WRITES,  /* opened a name to write it */
	SERVER_STORED,  /* wrote all bytes of a name */
	SERVER_CLOSED,  /* closed a name, or left without doing so */
	SERVER_DELETED, /* deleted an upload */
	SERVER_REFUSED, /* made a request that failed */
	SERVER_LIMITED, /* had to wait for its rate, or for its requests */
	SERVER_CONNECTED,
	SERVER_LEFT,
	SERVER_HAS_READ,          /* reported that it has read more bytes */
	SERVER_HAS_WRITTEN,       /* the same of writing */
	SERVER_ROUTES_OF_READING, /* reported how many of the last SERVER_HAS_READ bytes were staged */
	SERVER_ROUTES_OF_WRITING, /* the same of SERVER_HAS_WRITTEN */
};

struct server_event_report {
	enum server_event event;
	const struct client *client;
	const char *name;             /* NULL: the event has none */
	uint64_t bytes, duration;     /* duration in nanoseconds; 0: none */
	uint64_t staged;              /* SERVER_ROUTES_...: of `bytes` */
	const struct pl_error *error; /* SERVER_REFUSED */
	const char *limit;            /* SERVER_LIMITED: "rate" or "requests" */
};

struct server {
	struct pl_context *context;
	struct pl_listener *listener; /* NULL once server_stop() has begun */
	struct catalogue catalogue;
	struct items items;
	struct committer committer;
	bool writable;  /* clients may write to blocks of memory */
	bool read_only; /* clients may only read, whatever their rights are */
	bool allow_delete; /* clients may delete uploads that have no owner */
	int upload;    /* descriptor of the folder for uploads, or -1 */
	uint64_t quota;      /* bytes of all uploads; 0: no limit */
	uint64_t keep_parts; /* nanoseconds after which an unchanged partial file is removed; 0: never */
	uint64_t expire_next;
	struct quota_account *accounts; /* the one used last is the first */
	unsigned account_count;
	unsigned clients_max;
	uint64_t idle; /* nanoseconds after which a client that sends nothing is disconnected; 0: never */
	uint64_t idle_check;
	uint64_t limit_check;                 /* time of the next look at the rates of clients */
	uint64_t pace_check;                  /* time of the next request of a paused client; UINT64_MAX: none */
	unsigned client_count;
	unsigned hashing;                     /* clients waiting for a hash */
	uint64_t served;                      /* clients that have disconnected */
	uint64_t numbered;                    /* number of the last client */
	uint64_t read, written;               /* bytes, as clients reported */
	uint64_t direct, staged;              /* the same by route, of reports that tell it */
	/* requests done, by enum service_type (0: not decoded), and that failed */
	uint64_t requests[SERVICE_TYPES][2];
	bool accepting;                       /* set while an accept is posted */
	uint8_t entries[SERVICE_ENTRIES_MAX]; /* buffer for the entries of a listing */
	struct client *clients;
	void (*report_event)(void *user, const struct server_event_report *report);
	/* True if accesses must be refused because they cannot be logged; NULL: never. */
	bool (*is_blocked)(void *user);
	/* Called before the connection of a client is closed; NULL: nothing is to be done. */
	void (*before_close)(const struct client *client);
	void *user;
};

/* Reports an event without duration and error. */
void server_report(const struct client *client, enum server_event event, const char *name, uint64_t bytes);

/* Scans the catalogue and begins to accept clients. */
int server_start(struct server *server, struct pl_error *error);
/* Handles all completions and a slice of each hash.  Returns true if more work is ready. */
bool server_run(struct server *server);
/* Time at which server_run() has work without an event; UINT64_MAX: never. */
uint64_t server_next_time(const struct server *server);
/* Reads the rights of all clients again, after the library did. */
void server_reload(struct server *server);
/* Closes the listener and disconnects all clients.  The caller then closes the context and releases the items. */
void server_stop(struct server *server);

/* -- requests (requests.c) ----------------------------------------------------------------------- */

/* Results of request_handle(): *answer is filled, will be filled later, or is not expected by the client. */
enum { REQUEST_ANSWER = 0, REQUEST_LATER = 1, REQUEST_NO_ANSWER = 2 };
/* Executes a request.  Returns REQUEST_..., or a negative errno with *error filled. */
int request_handle(struct client *client, const struct service_message *request, struct service_message *answer,
		   struct pl_error *error);
/* Hashes one slice.  Returns like request_handle(). */
int request_hash_slice(struct client *client, struct service_message *answer, struct pl_error *error);
/* Discards the hash of a client, if there is one. */
void request_hash_end(struct client *client);
/* Ends a commit that is done, without the commit's memory.  Returns the client to answer; NULL: disconnected. */
struct client *request_commit_end(struct server *server, struct commit *commit, struct service_message *answer);
/* Finds a handle of a client. */
int request_find_handle(struct client *client, uint32_t number, struct handle **handle, struct pl_error *error);
/* Adds a handle for an item, and fills the answer.  The handle owns the item afterwards, also on failure. */
int request_add_handle(struct client *client, struct item *item, const char *name, unsigned rights,
		       struct service_message *answer, struct pl_error *error);

/* -- small files (small_server.c) ------------------------------------------------------------------ */

int small_area_open(struct client *client, const struct service_message *request, struct service_message *answer,
		    struct pl_error *error);
/* Begins PUT_SMALL or GET_SMALL. */
int small_begin(struct client *client, const struct service_message *request, struct pl_error *error);
/* Fills the answer, and frees all but the commit's memory. */
void small_end(struct server *server, struct commit *commit, struct service_message *answer);
/* -- deletions (deletion.c) ------------------------------------------------------------------------- */

/* Deletes the client's upload of a name, and begins to wait for storage. */
int deletion_begin(struct client *client, const struct service_message *request, struct pl_error *error);
/* Fills the answer, and frees all but the commit's memory. */
void deletion_end(struct commit *commit, struct service_message *answer);

/* -- progress (watch_server.c) ---------------------------------------------------------------------- */

/* Counts the bytes up to `moved` of a handle. */
void watch_count(struct client *client, struct handle *handle, uint64_t moved);
/* Counts the bytes up to `moved` of a handle, and by route if the client's EXTENT or COMMIT tells how many were staged. */
void watch_count_report(struct client *client, struct handle *handle, uint64_t moved,
			const struct service_message *report);
/* Counts moved bytes by route.  Returns how many of them count as staged. */
uint64_t watch_count_routes(struct client *client, bool written, uint64_t moved, uint64_t staged);
/* Bytes that a report tells to be staged, beyond those that have counted. */
uint64_t watch_unreported_staged(const struct handle *handle, const struct service_message *report);
/* Counts bytes that the server knows to be moved. */
void watch_count_moved(struct client *client, bool written, uint64_t bytes);
/* Answers WATCH. */
int watch_list(struct client *client, const struct service_message *request, struct service_message *answer);

/* Revokes the token of a handle and frees the handle. */
void request_handle_close(struct client *client, size_t index, bool discard);

#endif
