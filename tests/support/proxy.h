/* SPDX-License-Identifier: BSD-2-Clause */
/* TCP proxy that damages passing bytes once, at a given offset. */
#ifndef TEST_PROXY_H
#define TEST_PROXY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum damage_kind {
	DAMAGE_NONE,
	DAMAGE_FLIP,   /* one bit */
	DAMAGE_CUT,    /* the proxy closes both connections */
	DAMAGE_INSERT, /* foreign bytes are inserted */
	DAMAGE_DROP,   /* `length` bytes are left out */
	DAMAGE_STALL,  /* no further byte passes in this direction */
};

struct damage {
	enum damage_kind kind;
	unsigned connection; /* the first one is 0 */
	unsigned direction;  /* 0: from the client, 1: from the server */
	uint64_t offset;     /* byte offset in that direction */
	unsigned bit;
	const void *bytes;
	size_t length;
};

struct proxy {
	char address[32];
	char target[96];
	struct damage damage;
	int listener;
	pthread_t thread;
	atomic_bool stop;
	atomic_bool damaged; /* true once the offset was reached */
	const char *marker;  /* text to look for; NULL: none.  Set before the first connection. */
	atomic_uint seen;    /* received blocks that contain it */
	/* While it is true, the second connection passes no bytes of the server behind its first ones, which are the challenge. */
	atomic_bool holds;
	/* Called with bytes before they pass, and the direction.  NULL: not called.  Set before the first connection. */
	void (*passes)(void *user, unsigned direction, size_t length);
	/*
	 * Called after each TLS record of the first connection, which is the control channel: it carries one control message, or a few
	 * that were sent together. True: the proxy closes all connections.  NULL: not called.
	 */
	bool (*record)(void *user);
	void *user;
};

void proxy_start(struct proxy *proxy, const char *target, const struct damage *damage);
/* The same without damage, with `record` and its argument. */
void proxy_start_recording(struct proxy *proxy, const char *target, bool (*record)(void *user), void *user);
/* Closes all connections.  Returns true if the offset was reached. */
bool proxy_stop(struct proxy *proxy);

#endif
