/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Grants that several threads share, revoke and import at the same time, while the engine looks for expired grants.
 * ThreadSanitizer reports an access without the lock of the grants.
 */
#include <pthread.h>

#include "core/context.h"
#include "core/grant.h"
#include "support/cases.h"
#include "support/environment.h"

#define ROUNDS 300
#define SHARERS 2
#define IMPORTERS 2
#define SIZE 4096

struct rig {
	struct scenario_environment environment;
	struct buffer near, far;
	pthread_mutex_t lock;                               /* guards the token */
	uint8_t token[PL_TOKEN_MAX], lasting[PL_TOKEN_MAX]; /* `lasting` is never revoked */
	size_t length, lasting_length;
};

static void publish_token(struct rig *rig, const uint8_t *token, size_t length)
{
	pthread_mutex_lock(&rig->lock);
	memcpy(rig->token, token, length);
	rig->length = length;
	pthread_mutex_unlock(&rig->lock);
}

/* Copies the latest token, which its sharer may have revoked. Returns its length. */
static size_t latest_token(struct rig *rig, uint8_t token[PL_TOKEN_MAX])
{
	size_t length;

	pthread_mutex_lock(&rig->lock);
	length = rig->length;
	memcpy(token, rig->token, length);
	pthread_mutex_unlock(&rig->lock);
	return length;
}

/* Shares and revokes grants of a new region in each round. */
static void *share_and_revoke(void *argument)
{
	static _Thread_local uint8_t memory[SIZE];
	struct rig *rig = argument;
	struct pl_context *context = rig->environment.far;
	struct pl_error error;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint8_t tokens[2][PL_TOKEN_MAX];
		size_t lengths[2] = { PL_TOKEN_MAX, PL_TOKEN_MAX };
		struct pl_region *region;

		check_ok(pl_region_register(context, memory, SIZE, PL_ACCESS_ALL, &region, &error), &error);
		for (unsigned j = 0; j < 2; j++) {
			check_ok(pl_region_share(region, NULL, tokens[j], &lengths[j], &error), &error);
			publish_token(rig, tokens[j], lengths[j]);
		}
		pl_expiry_watch(context);
		check_ok(pl_region_revoke(region, tokens[0], lengths[0]), NULL);
		check_ok(pl_region_deregister(region), NULL);
	}
	return NULL;
}

/* Imports the latest token, which may be refused, and the lasting one in turn; writes and releases. */
static void *import_and_write(void *argument)
{
	struct rig *rig = argument;
	struct pl_peer *peer = rig->environment.near_peer;
	struct pl_completion completion;
	struct pl_operation *operation;
	uint8_t token[PL_TOKEN_MAX];
	struct pl_remote *remote;
	size_t length;

	for (unsigned i = 0; i < ROUNDS; i++) {
		const uint8_t *used = i % 2 ? rig->lasting : token;

		length = i % 2 ? rig->lasting_length : latest_token(rig, token);
		if (pl_remote_import(peer, used, length, AMPLE_TIME, &remote, NULL) < 0)
			continue;
		check_ok(pl_write(peer, &(struct pl_transfer){ remote, 0, rig->near.region, 0, SIZE }, NULL, &operation,
				  NULL),
			 NULL);
		pl_wait(operation, AMPLE_TIME, &completion, NULL);
		pl_remote_release(remote);
	}
	return NULL;
}

static void use_grants_in_threads(void *argument)
{
	const struct setting setting = {
		.name = "threads",
		.fabric = argument,
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_THREAD,
		.lanes = 4,
	};
	struct rig rig = { .lock = PTHREAD_MUTEX_INITIALIZER, .lasting_length = PL_TOKEN_MAX };
	pthread_t threads[SHARERS + IMPORTERS];

	environment_open(&rig.environment, &setting);
	buffer_open(&rig.near, rig.environment.near, SIZE, PL_ACCESS_ALL);
	buffer_open(&rig.far, rig.environment.far, SIZE, PL_ACCESS_ALL);
	check_ok(pl_region_share(rig.far.region, NULL, rig.lasting, &rig.lasting_length, NULL), NULL);
	for (unsigned i = 0; i < SHARERS + IMPORTERS; i++)
		check_number(pthread_create(&threads[i], NULL, i < SHARERS ? share_and_revoke : import_and_write, &rig),
			     0);
	for (unsigned i = 0; i < SHARERS + IMPORTERS; i++)
		check_number(pthread_join(threads[i], NULL), 0);
	buffer_close(&rig.far);
	buffer_close(&rig.near);
	environment_close(&rig.environment);
}

static const struct test_case cases[] = {
	{ "tcp", use_grants_in_threads, "tcp", 30 },
	{ "local", use_grants_in_threads, "local", 30 },
};

int main(void)
{
	return cases_run("grant-threads", cases, sizeof(cases) / sizeof(cases[0]));
}
