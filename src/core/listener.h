/* SPDX-License-Identifier: BSD-2-Clause */
/* Listeners, and accepted connections that have not identified themselves. */
#ifndef PL_CORE_LISTENER_H
#define PL_CORE_LISTENER_H

#include "core/peer.h"
#include "core/socket.h"

struct greeting;

struct pl_listener {
	struct pl_list link; /* of context->listeners, in the order of their numbers */
	uint64_t number;     /* from 1 */
	struct pl_context *context;
	struct pl_engine *engine;
	struct pl_source source;
	struct sockaddr_storage address;
	struct pl_timer pause;  /* out of descriptors, or of room for greetings: accepts again later */
	struct pl_timer expiry; /* closes the oldest greeting */
	atomic_uint evicted;    /* greetings that their engines have not freed */
	atomic_uint references; /* of peers that it accepted, and of the program */
	char paced[PL_CONGESTION_NAME]; /* algorithm of connections to other hosts; "": the socket's */
	bool lanes_only;        /* of the local fabric: accepts data sockets of known peers, no new peers */
	pthread_mutex_t lock;   /* protects the members below */
	struct pl_list greetings; /* connections that have not identified themselves, the oldest first */
	unsigned greeting_count;
	unsigned greeting_counts[256]; /* the same by address */
	struct greeting *victim;       /* closed when one more is accepted; pl_greeting_room() found it; NULL: none */
	struct pl_list backlog; /* peers not yet accepted by the program */
	struct pl_list accepts; /* accept operations */
	bool closed;
};

/* Socket of a listener: the library opened it; the program gave it, and may share it with others; or it is for lanes only. */
enum pl_listener_kind { PL_LISTENER_OPENED, PL_LISTENER_GIVEN, PL_LISTENER_LANES };

/* listener.c: listens on a socket. Takes over the descriptor, also on failure. */
int pl_listener_open(struct pl_context *context, int fd, enum pl_listener_kind kind, struct pl_listener **listener,
		     struct pl_error *error);

/* Gives a peer that is up to a waiting accept, or keeps it. Returns false if the listener was closed. */
bool pl_listener_deliver(struct pl_listener *listener, struct pl_peer *peer);
/* Takes back an accept or a peer. Returns true if it was in the list. */
bool pl_listener_withdraw(struct pl_listener *listener, struct pl_list *link);
void pl_listener_put(struct pl_listener *listener);
/* Cancels accepts without a handle that are in the set, of all listeners. Returns their number. */
int pl_listeners_cancel(struct pl_context *context, const struct pl_cancel_set *set);
/*
 * greeting_list.c: takes over the descriptor of an accepted connection. `most`: pl_greetings_most(). Listener's engine, as
 * the functions below if they do not say otherwise.
 */
void pl_greeting_new(struct pl_listener *listener, int fd, unsigned most);
/* Returns how many connections a listener may have; younger ones may exceed that number. Any thread. */
unsigned pl_greetings_most(void);
/* Closes all connections. No engine's lock is held, and the listener accepts no more. */
void pl_greetings_clear(struct pl_listener *listener);
/* Timer of a listener: closes the connections that have not identified themselves in time. */
void pl_greetings_expire(struct pl_timer *timer);
/*
 * Closes the oldest connection that is `age` nanoseconds old, of the address that has most of them. `idle`: not one of the last
 * second that has sent bytes in this time, or whose bytes this end has not read: it is busy, and not the other end. Returns false if
 * there is none.
 */
bool pl_greeting_evict(struct pl_listener *listener, uint64_t age, uint64_t idle);
/* True if there is room for one more connection, or one would be closed for it. Else the others need time. */
bool pl_greeting_room(struct pl_listener *listener, unsigned most);

#endif
