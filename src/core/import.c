/* SPDX-License-Identifier: BSD-2-Clause */
/* Remote regions: a token goes to the peer over the control channel, and a remote key comes back. */
#include <stdio.h>

#include "core/fabric.h"
#include "core/stream_ops.h"

/* Imports under way at a time. Their answers fit the control channel of a peer that reads them later. */
#define IMPORTS_TOGETHER 256
/*
 * Most imports of a peer that are sent and not answered. Their answers, and the releases that answers to cancelled imports cause, are
 * few enough for both ends to go on reading (UNSENT_ANSWERS_MAX, UNSENT_STOP).
 */
#define IMPORTS_UNDER_WAY 512
/* Time until releases that were left out for lack of memory are sent again. */
#define RELEASE_AGAIN (10 * PL_NS_PER_MS)
#define HINT_BUSY \
	"if the peer's card must register the region, raise the peer's limit of locked memory (ulimit -l); or release " \
	"remote regions that are no longer used"

/* State of an import in operation->fabric. */
struct import_state {
	struct pl_import import;
	uint8_t token[PL_TOKEN_SIZE];
};

static struct import_state *import_state_of(struct pl_operation *operation)
{
	_Static_assert(sizeof(struct import_state) <= PL_OPERATION_FABRIC_SPACE, "the state fits");
	return (struct import_state *)operation->fabric;
}

static void send_releases_again(struct pl_timer *timer)
{
	struct pl_peer *peer = pl_container_of(timer, struct pl_peer, release_timer);

	if (atomic_load(&peer->state) == PL_PEER_UP)
		pl_imports_resume(peer);
}

static struct pl_remote *first_release(struct pl_peer *peer)
{
	struct pl_remote *remote = pl_list_first(&peer->unsent_releases, struct pl_remote, peer_link);

	pl_list_remove(&remote->peer_link);
	return remote;
}

void pl_imports_init(struct pl_peer *peer)
{
	pl_list_init(&peer->imports);
	pl_list_init(&peer->unsent_imports);
	pl_list_init(&peer->held_imports);
	pl_list_init(&peer->unsent_answers);
	pl_list_init(&peer->unsent_releases);
	pl_timer_init(&peer->release_timer, send_releases_again);
}

void pl_imports_drop(struct pl_peer *peer)
{
	pl_held_imports_drop(peer);
	pl_answers_drop(peer);
	while (!pl_list_empty(&peer->unsent_releases))
		pl_remote_free(first_release(peer));
}

static void send_import(struct pl_peer *peer, struct pl_operation *operation)
{
	struct pl_control message = { .type = PL_CONTROL_IMPORT };
	struct pl_error error;
	int rc;

	message.import = import_state_of(operation)->import;
	message.import.request = operation->request = ++peer->next_request;
	pl_list_remove(&operation->queue_link);
	pl_list_append(&peer->imports, &operation->queue_link);
	rc = pl_channel_send(&peer->channel, &message);
	peer->imports_under_way += rc == 0;
	/* The channel has ended, or learns of the end of its socket. The loss of the peer follows, with the reason. */
	if (rc == 0 || rc == -EPIPE || rc == -ECONNRESET)
		return;
	pl_fail_errno(&error, rc, "IMPORT-FAILED", "pl_remote_import", NULL);
	pl_operation_stop(operation, error.code, &error);
}

static void fill_release(struct pl_control *message, const uint8_t *key, uint16_t length)
{
	*message = (struct pl_control){ .type = PL_CONTROL_RELEASE };
	message->release.key_length = length;
	memcpy(message->release.key, key, length);
}

/* Keeps a release for a later attempt: a lost one would leave the key granted. */
static void keep_release(struct pl_peer *peer, struct pl_remote *remote)
{
	pl_list_prepend(&peer->unsent_releases, &remote->peer_link);
	if (pl_list_empty(&peer->release_timer.link))
		pl_timer_set(peer->home, &peer->release_timer, pl_now() + RELEASE_AGAIN);
}

/* Releases a key that has no remote region. Without memory for the message, and for the key, the connection ends. */
static void release_imported_key(struct pl_peer *peer, const uint8_t *key, uint16_t length)
{
	struct pl_control message;
	struct pl_remote *remote;

	fill_release(&message, key, length);
	if (!pl_channel_left_out(pl_channel_send(&peer->channel, &message)))
		return;
	remote = pl_zalloc(&peer->context->allocator, sizeof(*remote));
	if (!remote) {
		pl_channel_send_awaited(&peer->channel, &message);
		return;
	}
	remote->context = peer->context;
	remote->key_length = length;
	memcpy(remote->key, key, length);
	pl_list_init(&remote->peer_link);
	keep_release(peer, remote);
}

void pl_imports_resume(struct pl_peer *peer)
{
	while (!pl_list_empty(&peer->unsent_releases)) {
		struct pl_control message;
		struct pl_remote *remote;

		if (!pl_channel_has_room(&peer->channel))
			return;
		remote = first_release(peer);
		fill_release(&message, remote->key, remote->key_length);
		if (pl_channel_left_out(pl_channel_send(&peer->channel, &message))) {
			keep_release(peer, remote);
			return;
		}
		pl_remote_free(remote);
	}
	/* Behind the releases: the owner limits the keys of a peer. */
	while (!pl_list_empty(&peer->unsent_imports) && peer->imports_under_way < IMPORTS_UNDER_WAY &&
	       pl_channel_has_room(&peer->channel))
		send_import(peer, pl_list_first(&peer->unsent_imports, struct pl_operation, queue_link));
}

static void import_run(struct pl_task *task)
{
	struct pl_operation *operation = pl_operation_of_task(task);
	struct pl_peer *peer = operation->peer;

	if (!pl_operation_begin(operation))
		return;
	pl_list_append(&peer->unsent_imports, &operation->queue_link);
	pl_imports_resume(peer);
}

static struct pl_remote *remote_new(struct pl_peer *peer, const struct pl_imported *answer);

/* Ends the import of an answer. */
static void finish_import(struct pl_peer *peer, struct pl_operation *operation, const struct pl_imported *answer)
{
	struct pl_error error;

	pl_list_remove(&operation->queue_link);
	if (answer->status != PL_WIRE_OK) {
		pl_wire_fail(&error, (uint32_t)answer->status, "pl_remote_import", NULL);
		if (answer->status == PL_WIRE_BUSY)
			snprintf(error.hint, sizeof(error.hint), "%s", HINT_BUSY);
		pl_operation_fail(operation, error.code, &error);
	} else {
		operation->completion.remote = remote_new(peer, answer);
		if (operation->completion.remote && atomic_load(&operation->status)) {
			/* The fabric has lost the peer meanwhile, and so failed the import. */
			pl_remote_release(operation->completion.remote);
			operation->completion.remote = NULL;
		} else if (operation->completion.remote) {
			memcpy(operation->completion.remote->token, import_state_of(operation)->token, PL_TOKEN_SIZE);
		} else {
			release_imported_key(peer, answer->key, answer->key_length);
			pl_fail_memory(&error, "pl_remote_import");
			pl_operation_fail(operation, -ENOMEM, &error);
		}
	}
	pl_operation_pending_done(operation);
}

void pl_imported_arrived(struct pl_peer *peer, const struct pl_imported *answer)
{
	struct pl_operation *operation = NULL;

	pl_list_for_each(at, &peer->imports) {
		operation = pl_list_entry(at, struct pl_operation, queue_link);
		if (operation->request == answer->request)
			break;
		operation = NULL;
	}
	if (operation)
		finish_import(peer, operation, answer);
	else if (answer->status == PL_WIRE_OK) /* the operation was cancelled */
		/* The channel has room: it reads nothing while much is unsent, and an answer is longer than its release. */
		release_imported_key(peer, answer->key, answer->key_length);
	/* Behind the release, as pl_imports_resume() sends them. */
	if (peer->imports_under_way) {
		peer->imports_under_way--;
		pl_imports_resume(peer);
	}
}

int pl_remote_import_start(struct pl_peer *peer, const void *data, size_t length, uint64_t user_data,
			   struct pl_operation **handle, struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	attributes.user_data = user_data;
	return pl_import_post(peer, data, length, &attributes, handle, error);
}

/* Makes the operation of an import. Returns 0 or the reason. */
static int import_new(struct pl_peer *peer, const void *data, size_t length, const struct pl_attributes *attributes,
		      struct pl_operation **result, struct pl_error *error)
{
	struct pl_operation *operation;
	struct import_state *import;
	struct pl_token token;
	int rc = pl_token_read_kind(data, length, PL_TOKEN_REGION, &token, error);

	if (rc < 0)
		return rc;
	if (memcmp(token.context_id, peer->context_id, sizeof(token.context_id)))
		return pl_fail(error, -EACCES, "TOKEN-FOREIGN", "pl_remote_import", NULL,
			       "present it to the peer that made it, and ask for a new one after a restart",
			       "the token was made by another process than this peer");
	operation = pl_operation_new(peer->context, peer, PL_KIND_IMPORT, attributes, error);
	if (!operation)
		return -ENOMEM;
	import = import_state_of(operation);
	memset(import, 0, sizeof(*import));
	import->import.grant = token.grant;
	memcpy(import->import.secret, token.secret, sizeof(token.secret));
	memcpy(import->token, data, PL_TOKEN_SIZE);
	*result = operation;
	return 0;
}

int pl_import_post(struct pl_peer *peer, const void *data, size_t length, const struct pl_attributes *attributes,
		   struct pl_operation **handle, struct pl_error *error)
{
	struct pl_operation *operation;
	int rc = import_new(peer, data, length, attributes, &operation, error);

	if (rc == 0)
		pl_operation_submit(operation, import_run, handle);
	return rc;
}

struct pl_operation *pl_import_begin(struct pl_peer *peer, const uint8_t token[PL_TOKEN_SIZE], uint64_t user_data,
				     void (*finished)(struct pl_operation *operation), int *status)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;

	attributes.user_data = user_data;
	*status = import_new(peer, token, PL_TOKEN_SIZE, &attributes, &operation, NULL);
	if (*status < 0)
		return NULL;
	operation->internal = true;
	operation->finished = finished;
	pl_operation_submit(operation, import_run, NULL);
	return operation;
}

int pl_remote_import(struct pl_peer *peer, const void *data, size_t length, uint64_t timeout, struct pl_remote **remote,
		     struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_completion completion;
	int rc;

	*remote = NULL;
	attributes.timeout = timeout;
	rc = pl_import_post(peer, data, length, &attributes, &operation, error);
	if (rc == 0)
		rc = pl_wait(operation, UINT64_MAX, &completion, error);
	if (rc == 0)
		*remote = completion.remote;
	return rc;
}

/* Waits for the oldest import. The first failure of all is kept. */
static int import_collect(struct pl_operation *operation, size_t index, struct pl_remote **remote, int rc,
			  struct pl_error *error)
{
	struct pl_completion completion;
	struct pl_error own;
	int ended = pl_wait(operation, UINT64_MAX, &completion, &own);

	if (ended == 0)
		*remote = completion.remote;
	if (ended == 0 || rc < 0)
		return rc;
	if (error) {
		*error = own;
		snprintf(error->object, sizeof(error->object), "region %zu", index);
	}
	return ended;
}

int pl_import_many(struct pl_peer *peer, const uint8_t *const *tokens, struct pl_remote **remotes, size_t count,
		   uint64_t deadline, struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *posted[IMPORTS_TOGETHER];
	size_t begun = 0, done = 0;
	int rc = 0;

	memset(remotes, 0, count * sizeof(struct pl_remote *));
	while (done < count) {
		if (rc == 0 && begun < count && begun - done < IMPORTS_TOGETHER) {
			uint64_t now = pl_now();

			attributes.timeout = now < deadline ? deadline - now : 1;
			rc = pl_import_post(peer, tokens[begun], PL_TOKEN_SIZE, &attributes,
					    &posted[begun % IMPORTS_TOGETHER], error);
			begun += rc == 0;
			continue;
		}
		if (done == begun)
			break;
		rc = import_collect(posted[done % IMPORTS_TOGETHER], done, &remotes[done], rc, error);
		done++;
	}
	for (size_t i = 0; rc < 0 && i < done; i++) {
		pl_remote_release(remotes[i]);
		remotes[i] = NULL;
	}
	return rc;
}

/* -- handles ------------------------------------------------------------------------------------ */

void pl_remote_free(struct pl_remote *remote)
{
	if (remote->forget)
		remote->forget(remote);
	if (!remote->unlisted || !pl_pool_keep(&remote->unlisted->spare_sources, remote))
		pl_free(&remote->context->allocator, remote);
}

static void release_run(struct pl_task *task)
{
	struct pl_remote *remote = pl_container_of(task, struct pl_remote, task);
	struct pl_peer *peer = remote->peer;

	/* The release may wait, and the memory need not. */
	if (remote->forget)
		remote->forget(remote);
	remote->forget = NULL;
	pl_list_append(&peer->unsent_releases, &remote->peer_link);
	pl_imports_resume(peer);
	pl_peer_unpin(peer);
}

static struct pl_remote *remote_new(struct pl_peer *peer, const struct pl_imported *answer)
{
	struct pl_context *context = peer->context;
	struct pl_remote *remote = pl_zalloc(&context->allocator, sizeof(*remote));

	if (!remote)
		return NULL;
	remote->context = context;
	remote->peer = peer;
	pl_list_init(&remote->peer_link);
	atomic_init(&remote->references, 1);
	remote->length = answer->length;
	remote->rights = answer->rights;
	remote->key_length = answer->key_length;
	memcpy(remote->key, answer->key, answer->key_length);
	pl_task_init(&remote->task, release_run);
	if (peer->ops->imported)
		peer->ops->imported(peer->endpoint, remote);
	pl_peer_note_key(peer, PL_EVENT_PATH_CHOSEN, pl_remote_key_id(remote), 0,
			 remote->path_reason ? remote->path_reason : peer->reason);
	pthread_mutex_lock(&context->lock);
	/* A peer that is being closed has left its remote regions, and is freed before this one is released. */
	if (pl_list_empty(&peer->link))
		remote->peer = NULL;
	else
		pl_list_append(&peer->remotes, &remote->peer_link);
	pl_list_append(&context->remotes, &remote->link);
	pthread_mutex_unlock(&context->lock);
	return remote;
}

uint64_t pl_remote_key_id(const struct pl_remote *remote)
{
	struct pl_reader reader;

	/* A key blob begins with the key's id on every fabric. */
	pl_reader_init(&reader, remote->key, remote->key_length);
	return pl_get_u64(&reader);
}

void pl_remote_unused(struct pl_remote *remote)
{
	struct pl_context *context = remote->context;
	struct pl_peer *peer;

	if (remote->unlisted) {
		pl_remote_free(remote);
		return;
	}
	pthread_mutex_lock(&context->lock);
	pl_list_remove(&remote->link);
	pl_list_remove(&remote->peer_link);
	peer = remote->peer;
	if (peer)
		atomic_fetch_add(&peer->pins, 1);
	pthread_mutex_unlock(&context->lock);
	if (peer)
		pl_engine_post(peer->home, &remote->task);
	else
		pl_remote_free(remote);
}

void pl_remote_release(struct pl_remote *remote)
{
	if (remote && !pl_context_forked(remote->context))
		pl_remote_put(remote);
}

size_t pl_remote_length(const struct pl_remote *remote)
{
	return remote->length;
}

unsigned pl_remote_rights(const struct pl_remote *remote)
{
	return remote->rights;
}
