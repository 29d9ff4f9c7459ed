/* SPDX-License-Identifier: BSD-2-Clause */
#include "scenarios/silent.h"

void silent_complete(struct scenario_environment *environment, struct silent *silent, struct pl_operation *operation,
		     struct pl_completion *receipt)
{
	struct pl_error error;
	int status;

	while ((status = pl_test(operation, receipt, &error)) == -EINPROGRESS) {
		pl_poll(silent->context, NULL, 0);
		progress(environment);
	}
	check_status(status, 0, &error);
}

size_t silent_size(const struct scenario_environment *environment)
{
	return environment->setting->slow ? 16u << 20 : 64u << 20;
}

void silent_open(struct scenario_environment *environment, struct silent *silent, size_t size)
{
	struct pl_options options = setting_options(environment->setting);
	struct pl_operation *connecting, *accepting, *importing;
	struct pl_completion receipt;
	struct pl_error error;
	char address[96];

	options.progress = PL_PROGRESS_MANUAL;
	silent->context = context_open_with(&options);
	silent->listener = listener_open(environment->setting, silent->context, address);
	check_ok(pl_accept_start(silent->listener, 0, &accepting, &error), &error);
	check_ok(pl_connect_start(environment->near, address, 0, 0, &connecting, &error), &error);
	silent_complete(environment, silent, connecting, &receipt);
	silent->near_peer = receipt.peer;
	silent_complete(environment, silent, accepting, &receipt);
	silent->peer = receipt.peer;
	buffer_open(&silent->near, environment->near, size, PL_ACCESS_ALL);
	buffer_open(&silent->target, silent->context, size, PL_ACCESS_ALL);
	silent->token_length = PL_TOKEN_MAX;
	check_ok(pl_region_share(silent->target.region, NULL, silent->token, &silent->token_length, &error), &error);
	check_ok(pl_remote_import_start(silent->near_peer, silent->token, silent->token_length, 0, &importing, &error),
		 &error);
	silent_complete(environment, silent, importing, &receipt);
	silent->remote = receipt.remote;
	/* Lanes may still be connecting. */
	silent_awake(environment, silent, 20);
}

void silent_awake(struct scenario_environment *environment, struct silent *silent, unsigned milliseconds)
{
	uint64_t end = clock_now() + milliseconds * MS;

	while (clock_now() < end) {
		pl_poll(silent->context, NULL, 0);
		progress(environment);
	}
}

void silent_close(struct silent *silent)
{
	pl_remote_release(silent->remote);
	pl_peer_close(silent->near_peer);
	pl_close(silent->context);
	silent->target.region = NULL;
	buffer_close_bare(&silent->target);
	buffer_close(&silent->near);
}
