/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ends of keys whose gates the peer does not leave: by a release, by the end of a large send, and by the end of a subscription. None
 * keeps the engine; operations, revocations and closes wait for the gate. Each case ends the key under the engine's lock, so
 * no timer ends it before the case has looked.
 */
#include <pthread.h>

#include <peerlane/stream.h>

#include "fabric/local/local.h"
#include "stream/publisher.h"
#include "support/cases.h"
#include "support/local.h"

#define SIZE (64u << 10)
#define SLOT (LOCAL_HOLDER_SLOTS - 1)

struct rig {
	struct scenario_environment environment;
	struct buffer far;
	struct pl_peer *owner; /* whose keys end */
	struct local_gate *gates;
};

static void rig_open(struct rig *rig, const struct setting *setting)
{
	environment_open(&rig->environment, setting);
	buffer_open(&rig->far, rig->environment.far, SIZE, PL_ACCESS_ALL);
	rig->owner = rig->environment.far_peer;
	rig->gates = local_endpoint_of(rig->environment.near_peer->endpoint)->gates;
}

static void rig_close(struct rig *rig)
{
	buffer_close(&rig->far);
	environment_close(&rig->environment);
}

/* Holds the first gates, or leaves them, as a hostile peer can. */
static void hold_gates(struct rig *rig, bool hold)
{
	for (unsigned i = 0; i < 64; i++)
		atomic_store(&rig->gates[i].slots[SLOT], hold);
}

static bool has_ending_keys(struct rig *rig)
{
	bool any;

	pthread_mutex_lock(&rig->environment.far->grant_lock);
	any = !pl_list_empty(&rig->owner->ending_keys);
	pthread_mutex_unlock(&rig->environment.far->grant_lock);
	return any;
}

static bool is_done(struct pl_operation *operation)
{
	return atomic_load(&operation->state) == PL_DONE;
}

/* The peer's RELEASE of a key arrives. The engine's lock is held. */
static void release_arrives(struct rig *rig, const struct pl_remote *remote)
{
	struct pl_control message = { .type = PL_CONTROL_RELEASE };

	message.release.key_length = remote->key_length;
	memcpy(message.release.key, remote->key, remote->key_length);
	pl_peer_control(&rig->owner->channel, &message);
}

/* -- a release ------------------------------------------------------------------------------------ */

static void released(void *argument)
{
	struct pl_remote *remote;
	struct rig rig;

	rig_open(&rig, argument);
	remote = share(&rig.environment, rig.far.region, rig.environment.near_peer, NULL);
	hold_gates(&rig, true);
	pl_engine_lock(rig.owner->home);
	release_arrives(&rig, remote);
	check(has_ending_keys(&rig));
	pthread_mutex_lock(&rig.environment.far->grant_lock);
	check(!pl_key_alive(rig.owner, pl_remote_key_id(remote)));
	pthread_mutex_unlock(&rig.environment.far->grant_lock);
	/* The second one finds no key. */
	release_arrives(&rig, remote);
	hold_gates(&rig, false);
	pl_engine_unlock(rig.owner->home);
	progress_until(&rig.environment, !has_ending_keys(&rig));
	pl_remote_release(remote);
	rig_close(&rig);
}

/* Thread that leaves the gates after 50 ms. */
struct leaving {
	struct rig *rig;
	atomic_bool left;
};

static void *leave_after_50_ms(void *argument)
{
	struct leaving *leaving = argument;

	sleep_ms(50);
	atomic_store(&leaving->left, true);
	hold_gates(leaving->rig, false);
	return NULL;
}

enum end { END_REVOKE, END_DEREGISTER };

/* Checks that the end of a grant or region waits for the gate of a key that its peer has released. */
static void released_then_ended(const struct setting *setting, enum end end)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct leaving leaving = { 0 };
	struct pl_remote *remote;
	struct pl_error error;
	struct rig rig;
	pthread_t thread;
	uint64_t began;

	rig_open(&rig, setting);
	check_ok(pl_region_share(rig.far.region, NULL, token, &length, &error), &error);
	remote = import_token(&rig.environment, rig.environment.near_peer, token, length);
	leaving.rig = &rig;
	hold_gates(&rig, true);
	began = clock_now();
	pl_engine_lock(rig.owner->home);
	release_arrives(&rig, remote);
	pl_engine_unlock(rig.owner->home);
	check(!pthread_create(&thread, NULL, leave_after_50_ms, &leaving));
	if (end == END_REVOKE)
		check_number(pl_region_revoke(rig.far.region, token, length), 0);
	else
		buffer_close(&rig.far);
	check(atomic_load(&leaving.left) || clock_now() - began >= SECOND);
	check(!pthread_join(thread, NULL));
	if (end == END_DEREGISTER)
		buffer_open(&rig.far, rig.environment.far, SIZE, PL_ACCESS_ALL);
	progress_until(&rig.environment, !has_ending_keys(&rig));
	pl_remote_release(remote);
	rig_close(&rig);
}

static void released_then_revoked(void *argument)
{
	released_then_ended(argument, END_REVOKE);
}

static void released_then_deregistered(void *argument)
{
	released_then_ended(argument, END_DEREGISTER);
}

/* -- a large send --------------------------------------------------------------------------------- */

static bool has_source_key(struct rig *rig, const struct pl_operation *operation)
{
	bool has;

	pl_engine_lock(rig->owner->home);
	has = operation->source_key;
	pl_engine_unlock(rig->owner->home);
	return has;
}

/* Posts a send that no receive matches, until its key exists, and holds the key's gate. */
static struct pl_operation *send_large(struct rig *rig)
{
	const struct pl_buffer bytes = { .region = rig->far.region, .length = SIZE };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send(rig->owner, 1, &bytes, NULL, &operation, &error), &error);
	/* The send may wait in the engine's queue. */
	progress_until(&rig->environment, has_source_key(rig, operation));
	hold_gates(rig, true);
	pl_engine_lock(rig->owner->home);
	return operation;
}

static void send_ends(struct rig *rig, struct pl_operation *operation, int status)
{
	check(has_ending_keys(rig));
	check(!is_done(operation));
	hold_gates(rig, false);
	pl_engine_unlock(rig->owner->home);
	check_number(await(&rig->environment, operation, NULL, NULL), status);
	check(!has_ending_keys(rig));
}

static void send_stopped(void *argument)
{
	struct pl_operation *operation;
	struct rig rig;

	rig_open(&rig, argument);
	operation = send_large(&rig);
	pl_operation_stop(operation, -ECANCELED, NULL);
	send_ends(&rig, operation, -ECANCELED);
	rig_close(&rig);
}

static void send_finished(void *argument)
{
	struct pl_operation *operation;
	struct rig rig;

	rig_open(&rig, argument);
	operation = send_large(&rig);
	check_number(pl_message_finished(rig.owner, operation->cookie, PL_WIRE_OK), 0);
	send_ends(&rig, operation, 0);
	rig_close(&rig);
}

/* Checks that the close of a peer ends a send whose key is ending. */
static void send_closed(void *argument)
{
	struct leaving leaving = { 0 };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;
	struct rig rig;
	pthread_t thread;
	uint64_t began;

	rig_open(&rig, argument);
	leaving.rig = &rig;
	operation = send_large(&rig);
	began = clock_now();
	pl_engine_unlock(rig.owner->home);
	check(!pthread_create(&thread, NULL, leave_after_50_ms, &leaving));
	pl_peer_close(rig.owner);
	rig.environment.far_peer = NULL;
	check(atomic_load(&leaving.left) || clock_now() - began >= SECOND);
	check(is_done(operation));
	check_number(pl_wait(operation, 0, &receipt, &error), -ECANCELED);
	check(!pthread_join(thread, NULL));
	rig_close(&rig);
}

/* -- a subscription ------------------------------------------------------------------------------- */

/* Checks that a subscription ends at once, and that the close of its publisher waits for the gates. */
static void subscription_ended(void *argument)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber *subscriber;
	struct pl_publisher *publisher;
	struct leaving leaving = { 0 };
	struct pl_error error;
	struct pump pump = { 0 };
	struct rig rig;
	pthread_t thread;
	uint64_t began;

	rig_open(&rig, argument);
	leaving.rig = &rig;
	options.slot_bytes = 100;
	check_ok(pl_publisher_open(rig.environment.far, "cam0", &options, &publisher, &error), &error);
	pump_start(&rig.environment, &pump, rig.environment.far);
	check_ok(pl_subscriber_open(rig.environment.near_peer, "cam0", NULL, AMPLE_TIME, &subscriber, &error), &error);
	pump_stop(&pump);
	hold_gates(&rig, true);
	began = clock_now();
	pl_engine_lock(rig.owner->home);
	check(!pl_list_empty(&rig.owner->subscriptions));
	pl_subscription_end(pl_list_first(&rig.owner->subscriptions, struct pl_subscription, peer_link));
	check(has_ending_keys(&rig));
	pl_engine_unlock(rig.owner->home);
	check(!pthread_create(&thread, NULL, leave_after_50_ms, &leaving));
	pl_publisher_close(publisher);
	check(atomic_load(&leaving.left) || clock_now() - began >= SECOND);
	check(!pthread_join(thread, NULL));
	pl_subscriber_close(subscriber);
	rig_close(&rig);
}

/* -- the index of an ending key ------------------------------------------------------------------- */

/* The next key gets another gate: the ending one does not wait for its holders, and it is not taken for held. */
static void next_key(void *argument)
{
	struct pl_operation *first;
	struct pl_remote *remote;
	struct rig rig;
	uint32_t gate;

	rig_open(&rig, argument);
	first = send_large(&rig);
	gate = (uint32_t)first->source_key;
	pl_operation_stop(first, -ECANCELED, NULL);
	check(has_ending_keys(&rig));
	hold_gates(&rig, false);
	atomic_store(&rig.gates[gate].slots[SLOT], true);
	pl_engine_unlock(rig.owner->home);
	remote = share(&rig.environment, rig.far.region, rig.environment.near_peer, NULL);
	/* After a second the key ends although its gate is held, and the next key may get that gate. */
	if (has_ending_keys(&rig))
		check(!remote->path_reason || !strstr(remote->path_reason, "through a socket"));
	pl_remote_release(remote);
	hold_gates(&rig, false);
	check_number(await(&rig.environment, first, NULL, NULL), -ECANCELED);
	rig_close(&rig);
}

#define BOTH(name, function) \
	{ name, function, &local_threads, 60 }, \
	{ \
		name ", manual", function, &local_manual, 60 \
	}

int main(void)
{
	static const struct test_case cases[] = {
		BOTH("next key", next_key),
		BOTH("released", released),
		BOTH("released, then revoked", released_then_revoked),
		BOTH("released, then deregistered", released_then_deregistered),
		BOTH("send stopped", send_stopped),
		BOTH("send finished", send_finished),
		BOTH("send closed", send_closed),
		BOTH("subscription ended", subscription_ended),
	};

	return cases_run("local key end", cases, PL_ARRAY_SIZE(cases));
}
