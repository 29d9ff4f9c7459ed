/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer that is connected and then makes no progress any more. */
#ifndef TEST_SILENT_H
#define TEST_SILENT_H

#include "scenarios/scenario.h"

struct silent {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_peer *near_peer; /* the silent one, as near sees it */
	struct pl_peer *peer;
	struct buffer near, target;
	struct pl_remote *remote;
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
};

/* More than sockets hold; and a card takes its time. */
size_t silent_size(const struct scenario_environment *environment);
void silent_open(struct scenario_environment *environment, struct silent *silent, size_t size);
void silent_close(struct silent *silent);
/* Lets it make progress for that long. */
void silent_awake(struct scenario_environment *environment, struct silent *silent, unsigned milliseconds);

#endif
