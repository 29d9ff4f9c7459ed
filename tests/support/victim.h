/* SPDX-License-Identifier: BSD-2-Clause */
/* A listening context that is attacked, and a well-behaved client that it must go on serving. */
#ifndef TEST_VICTIM_H
#define TEST_VICTIM_H

#include "support/environment.h"

#define VICTIM_SIZE (96 << 10)

struct victim {
	const struct setting *setting;
	struct pl_context *context;
	struct pl_listener *listener;
	struct buffer buffer;
	char address[96];
	uint8_t token[PL_TOKEN_MAX]; /* of the first VICTIM_SIZE bytes: all that attackers may change */
	size_t token_length;
	struct pl_context *good;
	struct pl_peer *good_peer, *served;
	struct pl_remote *good_remote;
	struct buffer good_buffer;
	uint64_t rounds;
	unsigned descriptors; /* with only the good client connected */
};

void victim_open(struct victim *victim, const struct setting *setting);
/* The good client writes and reads back; a new one connects too, quickly. */
void victim_check(struct victim *victim);
/* Nothing of the attackers is left open, then closes it. */
void victim_close(struct victim *victim);

/*
 * One whole client session with an address: connects, imports, writes, reads, adds, sends.  Returns 0,
 * or the first failure, which must be described.  Contents are checked if `exact`.
 */
int client_session(const struct victim *victim, const char *address, uint64_t timeout, bool exact);

#endif
