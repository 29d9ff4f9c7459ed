/* SPDX-License-Identifier: BSD-2-Clause */
/* Two connected ends, a buffer at each, and access of the near end to the far buffer. */
#ifndef TEST_PAIR_H
#define TEST_PAIR_H

#include "support/environment.h"

struct pair {
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;
};

/* length: bytes of each buffer */
void pair_open(struct pair *pair, const struct setting *setting, size_t length);
/* Waits until a write to all of the far buffer uses so many lanes, so that this end knows their keys. */
void pair_spread(struct pair *pair, unsigned lanes);
void pair_close(struct pair *pair);

#endif
