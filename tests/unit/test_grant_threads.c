/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Grants that several threads share, revoke and import at the same time, while the engine looks for expired grants.
 * Other threads use a key as sockets of the peer do, and send messages whose memory has keys of its own.
 * ThreadSanitizer reports an access without the lock of the grants.
 */
#include <pthread.h>

#include "core/context.h"
#include "core/fabric.h"
#include "core/grant.h"
#include "core/remote.h"
#include "core/stream_ops.h"
#include "support/cases.h"
#include "support/environment.h"

#define ROUNDS 300
#define SHARERS 2
#define KEY_USERS 2
#define GUESSES 4
#define SIZE 4096
#define MESSAGE 65536
#define BINDINGS 5000

struct rig {
	struct scenario_environment environment;
	struct buffer near, far, sent, received;
	uint64_t key;      /* of the lasting token */
	unsigned released; /* registrations of regions; grant_lock */
	atomic_bool done;
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

/* Registration of a region with a device that counts its ends. */
struct device_registration {
	struct pl_registration base;
	struct rig *rig;
};

static void release_device_registration(struct pl_registration *base)
{
	pl_container_of(base, struct device_registration, base)->rig->released++;
}

static void register_with_device(struct rig *rig, struct pl_region *region, struct device_registration *registration)
{
	*registration = (struct device_registration){ { .device = rig, .release = release_device_registration }, rig };
	pthread_mutex_lock(&region->context->grant_lock);
	pl_list_append(&region->registrations, &registration->base.link);
	pthread_mutex_unlock(&region->context->grant_lock);
}

/* Shares and revokes grants of a new region in each round. */
static void *share_and_revoke(void *argument)
{
	static _Thread_local uint8_t memory[SIZE];
	struct device_registration registration;
	struct rig *rig = argument;
	struct pl_context *context = rig->environment.far;
	struct pl_error error;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint8_t tokens[2][PL_TOKEN_MAX];
		size_t lengths[2] = { PL_TOKEN_MAX, PL_TOKEN_MAX };
		struct pl_region *region;

		check_ok(pl_region_register(context, memory, SIZE, PL_ACCESS_ALL, &region, &error), &error);
		register_with_device(rig, region, &registration);
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

/*
 * Uses the lasting key of the peer in far's context, and guesses the next ones and those of messages, until the other threads end.
 */
static void *use_key(void *argument)
{
	struct rig *rig = argument;
	struct pl_peer *peer = rig->environment.far_peer;
	enum pl_wire_status status;

	for (unsigned i = 0; !atomic_load(&rig->done); i++) {
		pl_key_release(pl_key_acquire(peer, rig->key + i % GUESSES, 0, SIZE, PL_ACCESS_WRITE, &status));
		check(!pl_key_acquire(peer, PL_SOURCE_KEY | i % GUESSES, 0, SIZE, PL_ACCESS_READ, &status));
	}
	return NULL;
}

/* Sends messages that near reads from far's memory, with a key for each. */
static void *send_messages(void *argument)
{
	struct rig *rig = argument;
	struct pl_operation *sending, *receiving;
	struct pl_error error;

	for (unsigned i = 0; i < ROUNDS; i++) {
		check_ok(pl_receive(rig->environment.near_peer, i, UINT64_MAX,
				    &(struct pl_buffer){ rig->received.region, 0, MESSAGE }, NULL, &receiving, &error),
			 &error);
		check_ok(pl_send(rig->environment.far_peer, i, &(struct pl_buffer){ rig->sent.region, 0, MESSAGE }, NULL,
				 &sending, &error),
			 &error);
		check_ok(pl_wait(receiving, AMPLE_TIME, NULL, &error), &error);
		check_ok(pl_wait(sending, AMPLE_TIME, NULL, &error), &error);
	}
	return NULL;
}

/* Opens the connection and its memory, and imports the lasting token. */
static struct pl_remote *rig_open(struct rig *rig, const struct setting *setting)
{
	struct pl_remote *remote;

	environment_open(&rig->environment, setting);
	buffer_open(&rig->near, rig->environment.near, SIZE, PL_ACCESS_ALL);
	buffer_open(&rig->far, rig->environment.far, SIZE, PL_ACCESS_ALL);
	buffer_open(&rig->sent, rig->environment.far, MESSAGE, PL_ACCESS_LOCAL);
	buffer_open(&rig->received, rig->environment.near, MESSAGE, PL_ACCESS_LOCAL);
	check_ok(pl_region_share(rig->far.region, NULL, rig->lasting, &rig->lasting_length, NULL), NULL);
	remote = import_token(&rig->environment, rig->environment.near_peer, rig->lasting, rig->lasting_length);
	rig->key = pl_remote_key_id(remote);
	return remote;
}

static void rig_close(struct rig *rig, struct pl_remote *lasting)
{
	pl_remote_release(lasting);
	buffer_close(&rig->received);
	buffer_close(&rig->sent);
	buffer_close(&rig->far);
	buffer_close(&rig->near);
	environment_close(&rig->environment);
}

static void use_grants_in_threads(void *argument)
{
	static void *(*const work[])(void *) = { share_and_revoke, share_and_revoke, import_and_write,
						 import_and_write, send_messages };
	const struct setting setting = {
		.name = "threads",
		.fabric = argument,
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_THREAD,
		.lanes = 4,
	};
	struct rig rig = { .lock = PTHREAD_MUTEX_INITIALIZER, .lasting_length = PL_TOKEN_MAX };
	pthread_t threads[PL_ARRAY_SIZE(work)], users[KEY_USERS];
	struct pl_remote *remote = rig_open(&rig, &setting);

	for (unsigned i = 0; i < KEY_USERS; i++)
		check_number(pthread_create(&users[i], NULL, use_key, &rig), 0);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(work); i++)
		check_number(pthread_create(&threads[i], NULL, work[i], &rig), 0);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(work); i++)
		check_number(pthread_join(threads[i], NULL), 0);
	atomic_store(&rig.done, true);
	for (unsigned i = 0; i < KEY_USERS; i++)
		check_number(pthread_join(users[i], NULL), 0);
	check_number(rig.released, SHARERS * ROUNDS);
	rig_close(&rig, remote);
}

/* Revokes all tokens that the program has shared, until the other thread ends. */
static void *revoke_shared(void *argument)
{
	struct rig *rig = argument;

	while (!atomic_load(&rig->done))
		check_ok(pl_region_revoke(rig->far.region, NULL, 0), NULL);
	return NULL;
}

/* The library's own grants remain while another thread revokes those of the program. */
static void bind_while_revoking(void *unused)
{
	const struct setting setting = {
		.name = "bind",
		.fabric = "tcp",
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_THREAD,
		.lanes = 1,
	};
	struct rig rig = { .lasting_length = PL_TOKEN_MAX };
	struct pl_remote *remote = rig_open(&rig, &setting);
	struct pl_peer *peer = rig.environment.far_peer;
	uint8_t token[PL_TOKEN_SIZE];
	struct pl_lent lent;
	pthread_t revoker;

	(void)unused;
	check_number(pthread_create(&revoker, NULL, revoke_shared, &rig), 0);
	for (unsigned i = 0; i < BINDINGS; i++) {
		check_number(pl_grant_bind(rig.far.region, PL_ACCESS_READ, peer, NULL, token), 0);
		check(pl_grant_revoke(rig.environment.far, NULL, token));
		pl_engine_lock(peer->home);
		check_number(pl_grant_lend(rig.far.region, PL_ACCESS_READ, peer, &lent), 0);
		pl_key_release(pl_grant_take_back(peer, &lent));
		pl_engine_unlock(peer->home);
	}
	atomic_store(&rig.done, true);
	check_number(pthread_join(revoker, NULL), 0);
	rig_close(&rig, remote);
}

static const struct test_case cases[] = {
	{ "tcp", use_grants_in_threads, "tcp", 30 },
	{ "local", use_grants_in_threads, "local", 30 },
	{ "bind", bind_while_revoking, NULL, 300 },
};

int main(void)
{
	return cases_run("grant-threads", cases, sizeof(cases) / sizeof(cases[0]));
}
