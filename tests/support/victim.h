/* SPDX-License-Identifier: BSD-2-Clause */
/* Victim: a listening context under attack, with an honest client that must still be served. */
#ifndef TEST_VICTIM_H
#define TEST_VICTIM_H

#include "support/environment.h"

#define VICTIM_SIZE (96 << 10)
/* Time in nanoseconds of an attacker's connection.  Tests wait AMPLE_TIME for a refusal, which must come before. */
#define VICTIM_CONNECT_TIME (3 * AMPLE_TIME)

struct victim {
	const struct setting *setting;
	struct pl_context *context;
	struct pl_listener *listener;
	struct buffer buffer;
	char address[96];
	uint8_t token[PL_TOKEN_MAX]; /* token of the first VICTIM_SIZE bytes, which attackers may change */
	size_t token_length;
	struct pl_context *good;
	struct pl_peer *good_peer, *served;
	struct pl_remote *good_remote;
	struct buffer good_buffer;
	uint64_t rounds;
	unsigned descriptors; /* open descriptors with only the honest client connected */
};

void victim_open(struct victim *victim, const struct setting *setting);
/*
 * The same, with the time in nanoseconds in which an attacker's connection must be complete.  Cases that wait for the
 * end of that time need a short one.
 */
void victim_open_for(struct victim *victim, const struct setting *setting, uint64_t connect_timeout);
/*
 * Checks that the honest client writes and reads back, and that a new client connects and is accepted, within SLACK.
 * Closes all peers in the backlog.
 */
void victim_check(struct victim *victim);
/* Checks that no descriptor of the attackers stays open, then closes the victim. */
void victim_close(struct victim *victim);

/*
 * Runs one client session with an address: connects, imports, writes, adds, sends, notifies and reads.
 * Returns 0 or the first failure, whose error must be described.  Checks the contents if `exact` is true.
 */
int client_session(const struct victim *victim, const char *address, uint64_t timeout, bool exact);

#endif
