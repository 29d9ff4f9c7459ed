/* SPDX-License-Identifier: BSD-2-Clause */
/* Listeners, and connections that have not identified themselves. */
#ifndef PL_CORE_LISTENER_H
#define PL_CORE_LISTENER_H

#include "core/peer.h"

#define PL_BACKLOG_MAX 1024

struct pl_listener {
	struct pl_list link;
	struct pl_context *context;
	struct pl_engine *engine;
	struct pl_source source;
	struct sockaddr_storage address;
	struct pl_list greetings; /* connections that have not said who they are */
	unsigned greeting_count;
	struct pl_timer pause;  /* out of descriptors: accept again later */
	atomic_uint references; /* peers that came through it, and the program */
	bool lanes_only;        /* the local fabric's: takes data sockets of known peers, no new peers */
	pthread_mutex_t lock;   /* what follows */
	struct pl_list backlog; /* peers nobody accepted yet */
	struct pl_list accepts; /* operations */
	bool closed;
};

/* listen.c: listens on a socket, which is taken over in any case */
int pl_listener_open(struct pl_context *context, int fd, bool lanes_only, struct pl_listener **listener,
		     struct pl_error *error);

/* A peer is up: gives it to an accept, or keeps it for one. False if the listener was closed. */
bool pl_listener_deliver(struct pl_listener *listener, struct pl_peer *peer);
/* Takes an accept or a peer back out; true if it was there. */
bool pl_listener_withdraw(struct pl_listener *listener, struct pl_list *link);
void pl_listener_put(struct pl_listener *listener);
/* greeting.c: a connection was accepted; fd is taken over. Listener's engine. */
void pl_greeting_new(struct pl_listener *listener, int fd);
void pl_greetings_clear(struct pl_listener *listener);

#endif
