/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/pair.h"

void pair_open(struct pair *pair, const struct setting *setting, size_t length)
{
	environment_open(&pair->environment, setting);
	buffer_open(&pair->near, pair->environment.near, length, PL_ACCESS_LOCAL);
	buffer_open(&pair->far, pair->environment.far, length, PL_ACCESS_ALL);
	pair->remote = share(&pair->environment, pair->far.region, pair->environment.near_peer, NULL);
}

void pair_spread(struct pair *pair, unsigned lanes)
{
	const struct pl_transfer all = { pair->remote, 0, pair->near.region, 0, pair->near.length };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	await_lanes(&pair->environment, lanes);
	do {
		check_ok(pl_write(pair->environment.near_peer, &all, NULL, &operation, &error), &error);
		complete(&pair->environment, operation, &receipt);
	} while (receipt.lanes < lanes);
}

void pair_close(struct pair *pair)
{
	pl_remote_release(pair->remote);
	buffer_close(&pair->near);
	buffer_close(&pair->far);
	environment_close(&pair->environment);
}
