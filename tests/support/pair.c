/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/pair.h"

void pair_open(struct pair *pair, const struct setting *setting, size_t length)
{
	environment_open(&pair->environment, setting);
	buffer_open(&pair->near, pair->environment.near, length, PL_ACCESS_LOCAL);
	buffer_open(&pair->far, pair->environment.far, length, PL_ACCESS_ALL);
	pair->remote = share(&pair->environment, pair->far.region, pair->environment.near_peer, NULL);
}

void pair_await_lanes(struct pair *pair, unsigned lanes)
{
	struct scenario_environment *environment = &pair->environment;

	progress_until(environment, peer_information_of(environment->near_peer).lanes == lanes &&
					    peer_information_of(environment->far_peer).lanes == lanes);
}

void pair_spread(struct pair *pair, unsigned lanes)
{
	const struct pl_transfer all = { pair->remote, 0, pair->near.region, 0, pair->near.length };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	pair_await_lanes(pair, lanes);
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
