/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The result of an operation arrives when the time limit of its waiter has passed already: pl_wait() fails the operation in the
 * waiter's thread, and its cancellation waits at home behind the result. The program must get the object, to release it.
 */
#include "core/fabric.h"
#include "support/cases.h"
#include "support/pair.h"

static const struct setting setting = {
	.name = "late-result", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* The first half of what pl_wait() does at its time limit. */
static void time_out(struct pl_operation *operation)
{
	struct pl_error late;

	pl_fail(&late, -ETIMEDOUT, "WAIT-TIMEOUT", "pl_wait", NULL, NULL, "the test's time limit");
	pl_operation_fail(operation, -ETIMEDOUT, &late);
}

static void late_import(void *unused)
{
	struct pl_completion completion;
	struct pl_operation *operation;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &setting, 64);
	check_ok(pl_region_share(pair.far.region, NULL, token, &length, &error), &error);
	check_ok(pl_remote_import_start(pair.environment.near_peer, token, length, 0, &operation, &error), &error);
	check(!pl_list_empty(&pair.environment.near_peer->imports));
	time_out(operation);
	progress_until(&pair.environment, atomic_load(&operation->state) == PL_DONE);
	check_ok(pl_wait(operation, AMPLE_TIME, &completion, &error), &error);
	check_number(completion.status, 0);
	check(completion.remote);
	pl_remote_release(completion.remote);
	pair_close(&pair);
}

static void late_connection(void *unused)
{
	struct scenario_environment environment;
	struct pl_completion completion;
	struct pl_operation *operation;
	struct pl_error error;

	(void)unused;
	environment_open(&environment, &setting);
	check_ok(pl_connect_start(environment.near, environment.address, AMPLE_TIME, 0, &operation, &error), &error);
	progress_until(&environment, operation->connecting);
	time_out(operation);
	progress_until(&environment, atomic_load(&operation->state) == PL_DONE);
	check_ok(pl_wait(operation, AMPLE_TIME, &completion, &error), &error);
	check_number(completion.status, 0);
	check(completion.peer);
	pl_peer_close(completion.peer);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "late-import", late_import, NULL, 30 },
	{ "late-connection", late_connection, NULL, 30 },
};

int main(void)
{
	return cases_run("late-result", cases, PL_ARRAY_SIZE(cases));
}
