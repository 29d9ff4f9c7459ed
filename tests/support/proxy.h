/* SPDX-License-Identifier: BSD-2-Clause */
/* A TCP proxy that damages what passes, once, at a place that is told. */
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
	DAMAGE_CUT,    /* both ends are hung up on */
	DAMAGE_INSERT, /* bytes that do not belong there */
	DAMAGE_DROP,   /* `length` bytes are left out */
	DAMAGE_STALL,  /* nothing passes any more in this direction */
};

struct damage {
	enum damage_kind kind;
	unsigned connection; /* the first one is 0 */
	unsigned direction;  /* 0: from the client, 1: from the server */
	uint64_t offset;     /* in that direction */
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
	atomic_bool damaged; /* the place was reached */
};

void proxy_start(struct proxy *proxy, const char *target, const struct damage *damage);
/* Hangs up on everybody; returns whether the place was reached. */
bool proxy_stop(struct proxy *proxy);

#endif
