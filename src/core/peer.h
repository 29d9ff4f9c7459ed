/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer: the other end of a connection.
 *
 * A peer belongs to one engine, its home.  Everything of the peer, and the life of its operations from submission to
 * completion, happens under the home engine's lock.  A fabric may spread the bytes of one operation over other
 * engines: each piece of work counts `pending` down, and the last one has the home engine finish the operation.
 */
#ifndef PL_CORE_PEER_H
#define PL_CORE_PEER_H

#include <sys/socket.h>

#include "control/channel.h"
#include "core/grant.h"
#include "core/operation.h"

struct pl_endpoint;
struct pl_listener;

/* Why a peer is not reached by the local fabric, or by RDMA cards.  Travels in hellos; see choice.c. */
enum pl_refusal {
	PL_REFUSAL_NONE,
	PL_REFUSAL_USER,
	PL_REFUSAL_NAMESPACE,
	PL_REFUSAL_SOCKET,
	PL_REFUSAL_CARDS = 5, /* 4 was one of an earlier release */
	PL_REFUSAL_END,
};

enum pl_peer_state { PL_PEER_OPENING, PL_PEER_UP, PL_PEER_LOST };

struct pl_peer {
	/* First, side by side, what each operation looks at. */
	struct pl_context *context;
	struct pl_engine *home;
	const struct pl_fabric_ops *ops;
	struct pl_endpoint *endpoint;
	atomic_int state;      /* enum pl_peer_state; written at home */
	atomic_uint fences;    /* operations with PL_FENCE that are not complete */
	atomic_uint sync_count; /* operations done at once: now and then the sockets must be looked at */

	struct pl_list link;
	size_t peer_index;             /* its place in context->peer_table */
	uint8_t join_secret[16]; /* what a socket must know to join */
	atomic_uint pins;          /* sockets on their way to join it, and others that must find it */
	bool joinable;             /* its endpoint takes sockets; context->lock */
	bool initiator;
	_Atomic uint64_t user_data;
	bool dead;    /* opening failed; freed soon */
	bool claimed; /* by whoever frees it; context->lock */

	struct pl_source dialing; /* a connect(2) under way */
	struct pl_channel channel;
	struct pl_task task;          /* opening and dying happen outside their callers */
	struct pl_timer timer;        /* the handshake's deadline; the grace after a loss */
	struct pl_operation *opening; /* connect: the operation */
	struct pl_listener *listener; /* accept: who gets it */
	struct pl_list backlog_link;
	struct sockaddr_storage *targets; /* connect: addresses to try */
	unsigned target_count, target_next;
	struct pl_stream incoming; /* accept: handed over to the home engine */
	uint8_t incoming_prefix[4];

	struct sockaddr_storage address, local_address;
	char software[32];
	uint8_t context_id[16];
	bool same_host, encrypt;
	bool asks;    /* PL_CAPABILITY_ASKS */
	bool flushes; /* PL_CAPABILITY_VISIBLE */
	bool headerless; /* PL_CAPABILITY_HEADERLESS */
	bool packs;   /* PL_CAPABILITY_PACKED */
	uint32_t window, eager_max;
	unsigned streams;

	const char *reason;                 /* why bytes go the way they go, for receipts */
	enum pl_refusal refusal;                /* what the local fabric found at this end, or the other told */
	const struct pl_fabric_ops *failed; /* connect: by which it was tried before, in vain; `loss` says why */

	struct pl_list operations; /* all that began and did not complete */
	struct pl_timer deadline;  /* of the first of these that has one; it may have completed since */
	uint64_t next_deadline;    /* when that timer is set */
	struct pl_list fenced;     /* waiting for earlier ones */
	unsigned running;          /* begun, not fenced, not complete */
	bool releasing;            /* in pl_peer_fence_release() */
	struct pl_list receives;   /* posted, unmatched */
	struct pl_list unexpected; /* arrived, unmatched: struct pl_arrival */
	struct pl_list landing;    /* operations whose message came, being copied to its place, or behind such */
	struct pl_list unsent;     /* messages that wait for the peer's window, or for their bytes, or behind such */
	struct pl_list rendezvous;    /* large sends that the peer has not fetched */
	struct pl_list imports;    /* waiting for an answer */
	uint64_t sent, consumed_there; /* messages; the window is between them */
	_Atomic uint64_t consumed;
	uint64_t arrived;
	_Atomic uint64_t consumed_told;
	struct pl_task credit_task; /* tell the peer of `consumed` */
	uint32_t next_cookie;
	uint64_t next_request;
	struct pl_key_table keys; /* grant_lock */

	bool leaving;         /* it said BYE */
	struct pl_error loss; /* why it is lost */
};

/*
 * For going through a peer's operations while they end, or begin others: takes the first of `rest`, into
 * which they were moved, back into the peer's list.  NULL: that was all.
 */
static inline struct pl_operation *pl_peer_operation_next(struct pl_peer *peer, struct pl_list *rest)
{
	struct pl_operation *operation;

	if (pl_list_empty(rest))
		return NULL;
	operation = pl_list_first(rest, struct pl_operation, peer_link);
	pl_list_remove(&operation->peer_link);
	pl_list_append(&peer->operations, &operation->peer_link);
	return operation;
}

struct pl_peer *pl_peer_new(struct pl_context *context, bool initiator, struct pl_error *error);
/* The right to free a peer, given once; pl_close() and a failed opening may both want it. */
bool pl_peer_claim(struct pl_peer *peer);
/* Without an engine's lock: closes everything of it and frees it. The caller claimed it, or owns it. */
void pl_peer_destroy(struct pl_peer *peer, int status, const struct pl_error *error);
/* Finds a peer that is opening or up by ticket, pins it; NULL if there is none. */
struct pl_peer *pl_peer_by_index(struct pl_context *context, uint64_t peer_index, const uint8_t secret[16]);
void pl_peer_unpin(struct pl_peer *peer);
/* Control messages of an opening and of a running peer. */
void pl_peer_control(struct pl_channel *channel, const struct pl_control *message);
void pl_peer_channel_closed(struct pl_channel *channel, const struct pl_error *error);
/* Opening failed: tells whoever waits, and frees the peer, later. Home. */
void pl_peer_open_failed(struct pl_peer *peer, const struct pl_error *error);
/*
 * Initiator: limits the time of a fabric that may not come to connect, and, when it failed, has a new peer take over
 * the connecting, without that fabric.  False: there is no other one.
 */
void pl_peer_limit_attempt(struct pl_peer *peer);
bool pl_peer_replace(struct pl_peer *peer, const struct pl_error *error);
/* Initiator: what to say first. */
int pl_peer_hello(struct pl_peer *peer, struct pl_hello *hello, struct pl_error *error);

/* Runs an operation that began, or holds it behind a fence. Home. */
void pl_peer_start(struct pl_peer *peer, struct pl_operation *operation);
/* One of those that ran is complete: what waits for that goes on. */
void pl_peer_fence_release(struct pl_peer *peer);

/* Calls of fabrics.  Home. */
void pl_peer_up(struct pl_peer *peer);                                 /* the endpoint can carry data */
void pl_peer_lose(struct pl_peer *peer, const struct pl_error *error); /* it cannot any more */
/* The connection ended; what arrived before is still being read. Loses the peer now or soon. */
void pl_peer_ending(struct pl_peer *peer);

/* connect.c: a control connection that said its magic. Takes the stream over. */
void pl_peer_accept_stream(struct pl_listener *listener, struct pl_stream *stream, const uint8_t magic[4]);

#endif
