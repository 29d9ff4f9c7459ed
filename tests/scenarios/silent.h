/* SPDX-License-Identifier: BSD-2-Clause */
/* Silent peer: connects and then makes no further progress. */
#ifndef TEST_SILENT_H
#define TEST_SILENT_H

#include "scenarios/scenario.h"

struct silent {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_peer *near_peer; /* peer object of `near` for the silent context */
	struct pl_peer *peer;
	struct buffer near, target;
	struct pl_remote *remote;
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
};

/* Returns a transfer size larger than the buffers of sockets, and large enough that a card takes measurable time. */
size_t silent_size(const struct scenario_environment *environment);
void silent_open(struct scenario_environment *environment, struct silent *silent, size_t size);
void silent_close(struct silent *silent);
/* Completes an operation, which must succeed, while both ends make progress. receipt: may be NULL. */
void silent_complete(struct scenario_environment *environment, struct silent *silent, struct pl_operation *operation,
		     struct pl_completion *receipt);
/* Lets the silent context make progress for this time. */
void silent_awake(struct scenario_environment *environment, struct silent *silent, unsigned milliseconds);

#endif
