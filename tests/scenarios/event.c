/* SPDX-License-Identifier: BSD-2-Clause */
/* Events and operations without a handle: data of notifications, loss of a peer, cancellation, waiting. */
#include <pthread.h>

#include "scenarios/scenario.h"

#define SIZE 100000

struct pair {
	struct buffer near, far;
	struct pl_remote *remote;
};

static void event_pair_open(struct scenario_environment *environment, struct pair *pair)
{
	buffer_open(&pair->near, environment->near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&pair->far, environment->far, SIZE, PL_ACCESS_ALL);
	pair->remote = share(environment, pair->far.region, environment->near_peer, NULL);
}

static void event_pair_close(struct pair *pair)
{
	pl_remote_release(pair->remote);
	buffer_close(&pair->near);
	buffer_close(&pair->far);
}

/* Waits for the next notification at `far`, and checks its value and data. */
static void check_notification(struct scenario_environment *environment, uint64_t value, const uint8_t *data,
			       uint32_t length)
{
	struct pl_completion completion;

	collect(environment, environment->far, &completion, 1);
	check_number(completion.kind, PL_KIND_NOTIFIED);
	check_number(completion.value, value);
	check_number(completion.user_data, pl_peer_user_data(environment->far_peer));
	check_number(completion.data_length, length);
	check(length ? !memcmp(completion.data, data, length) : !completion.data);
	pl_notification_free(environment->far, &completion);
	check(!completion.data && !completion.data_length);
}

static void notification_data(struct scenario_environment *environment)
{
	static const size_t lengths[] = { 0, 1, 100, PL_NOTIFY_DATA_MAX };
	uint8_t data[PL_NOTIFY_DATA_MAX + 1];
	struct pl_operation *operation;
	struct pl_error error;

	pattern_fill(data, sizeof(data), 1, 0);
	for (unsigned i = 0; i < 4; i++) {
		uint8_t copy[sizeof(data)];

		memcpy(copy, data, sizeof(data));
		pl_peer_set_user_data(environment->far_peer, i + 4711);
		check_ok(pl_notify(environment->near_peer, i, copy, lengths[i], NULL, &operation, &error), &error);
		/* The call has copied the data. */
		memset(copy, 0, sizeof(copy));
		complete(environment, operation, NULL);
		check_notification(environment, i, data, (uint32_t)lengths[i]);
	}
	check_status(pl_notify(environment->near_peer, 1, data, sizeof(data), NULL, &operation, &error), -EMSGSIZE,
		     &error);
	check_status(pl_notify(environment->near_peer, 1, NULL, 1, NULL, &operation, &error), -EINVAL, &error);
}

/* Checks that writes, reads and vectors notify with data once their bytes are moved. */
static void notification_data_of_transfers(struct scenario_environment *environment)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint8_t data[200];
	struct pl_operation *operation;
	struct pl_error error;
	struct pair pair;

	event_pair_open(environment, &pair);
	for (unsigned round = 0; round < 6; round++) {
		size_t length = round < 3 ? 100 : SIZE;
		struct pl_transfer transfer = { pair.remote, 0, pair.near.region, 0, length };
		struct pl_transfer halves[2] = { { pair.remote, 0, pair.near.region, 0, length / 2 },
						 { pair.remote, length / 2, pair.near.region, length / 2,
						   length / 2 } };

		pattern_fill(data, sizeof(data), round, 0);
		pattern_fill(pair.near.bytes, length, 10 + round, 0);
		attributes.flags = PL_NOTIFY;
		attributes.notify = 70 + round;
		attributes.notify_data = data;
		attributes.notify_length = 1 + 30 * round;
		if (round % 3 == 0)
			check_ok(pl_write(environment->near_peer, &transfer, &attributes, &operation, &error), &error);
		else if (round % 3 == 1)
			check_ok(pl_writev(environment->near_peer, halves, 2, &attributes, &operation, &error), &error);
		else
			check_ok(pl_read(environment->near_peer, &transfer, &attributes, &operation, &error), &error);
		check_notification(environment, 70 + round, data, 1 + 30 * round);
		if (round % 3 < 2)
			pattern_check(pair.far.bytes, length, 10 + round, 0);
		complete(environment, operation, NULL);
	}
	event_pair_close(&pair);
}

/* Checks that operations without PL_NOTIFY ignore notification data, which is not even readable. */
static void notification_data_without_flag(struct scenario_environment *environment)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation, *receive;
	struct pl_transfer halves[2];
	struct pl_completion receipt;
	struct pl_vector *vector;
	struct pl_error error;
	struct pair pair;

	attributes.notify_data = NULL;
	attributes.notify_length = 100000;
	event_pair_open(environment, &pair);
	pattern_fill(pair.near.bytes, SIZE, 3, 0);
	for (unsigned i = 0; i < 2; i++)
		halves[i] = (struct pl_transfer){ pair.remote, i * SIZE / 2, pair.near.region, i * SIZE / 2, SIZE / 2 };
	check_ok(pl_writev(environment->near_peer, halves, 2, &attributes, &operation, &error), &error);
	complete(environment, operation, NULL);
	pattern_check(pair.far.bytes, SIZE, 3, 0);
	check_ok(pl_readv(environment->near_peer, halves, 2, &attributes, &operation, &error), &error);
	complete(environment, operation, NULL);
	check_ok(pl_vector_prepare(environment->near_peer, PL_KIND_WRITE, halves, 2, &vector, &error), &error);
	check_ok(pl_vector_post(vector, 0, 0, &attributes, &operation, &error), &error);
	complete(environment, operation, NULL);
	pl_vector_free(vector);
	/* The message is a copy, which the notification data must not replace. */
	attributes.notify_data = "NOTE";
	attributes.notify_length = 4;
	check_ok(pl_receive(environment->far_peer, 7, UINT64_MAX, &(struct pl_buffer){ pair.far.region, 0, SIZE }, NULL,
			    &receive, &error),
		 &error);
	check_ok(pl_send_copy(environment->near_peer, 7, "message", 8, &attributes, &operation, &error), &error);
	complete(environment, operation, NULL);
	complete(environment, receive, &receipt);
	check_number(receipt.bytes, 8);
	check(bytes_equal(pair.far.bytes, "message", 8));
	event_pair_close(&pair);
}

/* Checks that a failed read does not notify. */
static void failed_read_does_not_notify(struct scenario_environment *environment)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_operation *operation;
	struct pl_completion spare;
	struct pl_remote *remote;
	struct buffer near, far;
	struct pl_error error;

	buffer_open(&near, environment->near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, SIZE, PL_ACCESS_ALL);
	check_ok(pl_region_share(far.region, NULL, token, &length, &error), &error);
	remote = import_token(environment, environment->near_peer, token, length);
	check_number(pl_region_revoke(far.region, token, length), 0);
	attributes.flags = PL_NOTIFY;
	attributes.notify_data = "failed";
	attributes.notify_length = 6;
	check_ok(pl_read(environment->near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, SIZE }, &attributes,
			 &operation, &error),
		 &error);
	fail_with(environment, operation, -EACCES);
	settle(environment, 20);
	check_number(pl_poll(environment->far, &spare, 1), 0);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

/* Checks that pl_poll() reports the loss of a peer once, to a program that only waits for notifications. */
static void loss_is_an_event(struct scenario_environment *environment)
{
	struct pl_completion completion, spare;
	struct pl_error error;

	pl_peer_set_user_data(environment->near_peer, 4711);
	pl_peer_close(environment->far_peer);
	environment->far_peer = NULL;
	collect(environment, environment->near, &completion, 1);
	check_number(completion.kind, PL_KIND_LOST);
	check(completion.peer == environment->near_peer);
	check_number(completion.user_data, 4711);
	check_number(pl_completion_error(environment->near, &completion, &error), -ECONNRESET);
	check(!strncmp(error.id, "PEER-", 5) && error.message[0]);
	settle(environment, 10);
	check_number(pl_poll(environment->near, &spare, 1), 0);
	check_number(pl_poll(environment->far, &spare, 1), 0);
}

struct acceptor {
	struct pl_listener *listener;
	struct pl_peer *peer;
};

static void *accept_again(void *argument)
{
	struct acceptor *acceptor = argument;
	struct pl_error error;

	check_ok(pl_accept(acceptor->listener, AMPLE_TIME, &acceptor->peer, &error), &error);
	return NULL;
}

/* Checks that imports survive a new connection, and that the old ones work again through it. */
static void reconnect_with_imports(struct scenario_environment *environment)
{
	struct acceptor acceptor = { .listener = environment->listener };
	struct pl_peer *before = environment->near_peer;
	struct pl_remote *remotes[3];
	struct buffer near, far[3];
	struct pl_operation *operation;
	struct pl_error error;
	struct pump pump;
	pthread_t thread;

	buffer_open(&near, environment->near, SIZE, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < 3; i++) {
		buffer_open(&far[i], environment->far, SIZE, PL_ACCESS_ALL);
		remotes[i] = share(environment, far[i].region, environment->near_peer, NULL);
	}
	pl_peer_set_user_data(environment->near_peer, 99);
	pl_peer_close(environment->far_peer);
	check_status(pl_peer_reconnect(&(struct pl_peer *){ before }, "127.0.0.1:1", 0, &error), -ECONNREFUSED, &error);
	pump_start(environment, &pump, environment->far);
	check_number(pthread_create(&thread, NULL, accept_again, &acceptor), 0);
	check_ok(pl_peer_reconnect(&environment->near_peer, NULL, AMPLE_TIME, &error), &error);
	pthread_join(thread, NULL);
	pump_stop(&pump);
	environment->far_peer = acceptor.peer;
	check_number(pl_peer_user_data(environment->near_peer), 99);
	for (unsigned i = 0; i < 3; i++) {
		pattern_fill(near.bytes, SIZE, 50 + i, 0);
		check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remotes[i], 0, near.region, 0, SIZE },
				  NULL, &operation, &error),
			 &error);
		complete(environment, operation, NULL);
		pattern_check(far[i].bytes, SIZE, 50 + i, 0);
	}
	check_status(pl_peer_reconnect(&environment->far_peer, NULL, 0, &error), -EINVAL, &error);
	for (unsigned i = 0; i < 3; i++) {
		pl_remote_release(remotes[i]);
		buffer_close(&far[i]);
	}
	buffer_close(&near);
}

/* Checks that a revoked token fails the reconnection, which leaves the old handle as it was. */
static void reconnect_after_revocation(struct scenario_environment *environment)
{
	struct acceptor acceptor = { .listener = environment->listener };
	struct pl_peer *before = environment->near_peer;
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_remote *remote;
	struct buffer far;
	struct pl_error error;
	struct pump pump;
	pthread_t thread;

	buffer_open(&far, environment->far, SIZE, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	buffer_close(&far);
	pump_start(environment, &pump, environment->far);
	check_number(pthread_create(&thread, NULL, accept_again, &acceptor), 0);
	check_status(pl_peer_reconnect(&environment->near_peer, NULL, AMPLE_TIME, &error), -EACCES, &error);
	pthread_join(thread, NULL);
	pump_stop(&pump);
	check(environment->near_peer == before);
	check_number(pl_peer_query(before, &info), 0);
	check(info.connected);
	pl_remote_release(remote);
	pl_peer_close(acceptor.peer);
}

/* Checks that pl_cancel_posted() ends the operations of one user_data, and no others, and pl_cancel_all_posted() those of all. */
static void cancel_posted(struct scenario_environment *environment)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_completion completions[3], spare;
	struct pl_operation *handle;
	struct pl_error error;
	struct buffer buffer;

	buffer_open(&buffer, environment->near, 64, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < 4; i++) {
		attributes.user_data = i == 3 ? 8 : 7;
		check_ok(pl_receive(environment->near_peer, i, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, 64 },
				    &attributes, NULL, &error),
			 &error);
	}
	check_number(pl_cancel_posted(environment->near, 99), 0);
	check_number(pl_cancel_posted(environment->near, 7), 3);
	collect(environment, environment->near, completions, 3);
	for (unsigned i = 0; i < 3; i++) {
		check_number(completions[i].user_data, 7);
		check_number(completions[i].kind, PL_KIND_RECEIVE);
		check_completion(environment->near, &completions[i], -ECANCELED);
	}
	check_number(pl_cancel_posted(environment->near, 7), 0);
	check_ok(pl_receive(environment->near_peer, 9, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, 64 }, NULL,
			    &handle, &error),
		 &error);
	for (unsigned i = 0; i < 2; i++) {
		attributes.user_data = 20 + i;
		check_ok(pl_receive(environment->near_peer, 20 + i, UINT64_MAX,
				    &(struct pl_buffer){ buffer.region, 0, 64 }, &attributes, NULL, &error),
			 &error);
	}
	/* An operation with a handle goes on. */
	check_number(pl_cancel_all_posted(environment->near), 3);
	collect(environment, environment->near, completions, 3);
	for (unsigned i = 0; i < 3; i++)
		check_completion(environment->near, &completions[i], -ECANCELED);
	check_number(pl_cancel_all_posted(environment->near), 0);
	check_number(pl_test(handle, NULL, NULL), -EINPROGRESS);
	pl_cancel(handle);
	check_number(pl_wait(handle, UINT64_MAX, NULL, NULL), -ECANCELED);
	attributes.user_data = 8;
	check_ok(pl_receive(environment->near_peer, 3, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, 64 },
			    &attributes, NULL, &error),
		 &error);
	check_ok(pl_send_copy(environment->far_peer, 3, "x", 1, NULL, NULL, &error), &error);
	collect(environment, environment->near, completions, 1);
	check_number(completions[0].user_data, 8);
	check_completion(environment->near, &completions[0], 0);
	collect(environment, environment->far, &spare, 1);
	buffer_close(&buffer);
}

/* Connects to a listener without an accept. Returns the initiator's peer. */
static struct pl_peer *connect_unaccepted(struct scenario_environment *environment, const char *address)
{
	struct pl_operation *connecting;
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(pl_connect_start(environment->near, address, 0, 0, &connecting, &error), &error);
	complete(environment, connecting, &receipt);
	check(receipt.peer);
	return receipt.peer;
}

/*
 * Sends a notification, and closes the connection. The notification and the loss reach an end that has not accepted the
 * connection, which the program of that end does not know.
 */
static void notify_and_leave(struct scenario_environment *environment, struct pl_peer *peer, uint64_t value)
{
	struct pl_operation *operation;
	struct pl_completion spare;
	struct pl_error error;

	check_ok(pl_notify(peer, value, "data", 4, NULL, &operation, &error), &error);
	complete(environment, operation, NULL);
	settle(environment, 20);
	pl_peer_close(peer);
	settle(environment, 100);
	check_number(pl_poll(environment->far, &spare, 1), 0);
}

/* Checks that events of a peer come after its accept, and not at all if its listener is closed. */
static void events_after_accept(struct scenario_environment *environment)
{
	struct pl_completion completions[3], spare;
	struct pl_listener *listener;
	struct pl_error error;
	char address[96];

	listener = listener_open(environment->setting, environment->far, address);
	notify_and_leave(environment, connect_unaccepted(environment, address), 77);
	check_ok(pl_accept_start(listener, 5, NULL, &error), &error);
	collect(environment, environment->far, completions, 3);
	check_number(completions[0].kind, PL_KIND_ACCEPT);
	check_completion(environment->far, &completions[0], 0);
	check_number(completions[1].kind, PL_KIND_NOTIFIED);
	check_number(completions[1].value, 77);
	check_number(completions[2].kind, PL_KIND_LOST);
	check(completions[0].peer && completions[1].peer == completions[0].peer &&
	      completions[2].peer == completions[0].peer);
	pl_notification_free(environment->far, &completions[1]);
	pl_peer_close(completions[0].peer);
	notify_and_leave(environment, connect_unaccepted(environment, address), 78);
	pl_listener_close(listener);
	settle(environment, 20);
	check_number(pl_poll(environment->far, &spare, 1), 0);
}

/* Checks that pl_cancel_several_posted() ends the operations of its values, and no others. */
static void cancel_several_posted(struct scenario_environment *environment)
{
	static const uint64_t values[] = { 0, 3, 4, 6, 6, UINT64_MAX - 1, UINT64_MAX };
	static const uint64_t unordered[] = { 1, 2, 4, 3 };
	static const uint64_t posted[] = { 1, 2, 3, 4, 5, 6, UINT64_MAX };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_completion completions[4];
	struct pl_error error;
	struct buffer buffer;
	uint64_t seen = 0;

	buffer_open(&buffer, environment->near, 64, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < 7; i++) {
		attributes.user_data = posted[i];
		check_ok(pl_receive(environment->near_peer, i, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, 64 },
				    &attributes, NULL, &error),
			 &error);
	}
	check_number(pl_cancel_several_posted(environment->near, values, 0), 0);
	check_number(pl_cancel_several_posted(environment->near, unordered, 4), -EINVAL);
	check_number(pl_cancel_several_posted(environment->near, values, 7), 4);
	collect(environment, environment->near, completions, 4);
	for (unsigned i = 0; i < 4; i++) {
		check_completion(environment->near, &completions[i], -ECANCELED);
		seen += completions[i].user_data;
	}
	check_number(seen, 3 + 4 + 6 + UINT64_MAX);
	check_number(pl_cancel_several_posted(environment->near, values, 7), 0);
	check_number(pl_cancel_all_posted(environment->near), 3);
	collect(environment, environment->near, completions, 3);
	buffer_close(&buffer);
}

static void cancel_posted_accept(struct scenario_environment *environment)
{
	struct pl_completion completion;
	struct pl_listener *listener;
	struct pl_error error;
	char address[96];

	listener = listener_open(environment->setting, environment->far, address);
	check_ok(pl_accept_start(listener, 12, NULL, &error), &error);
	check_number(pl_cancel_posted(environment->far, 12), 1);
	collect(environment, environment->far, &completion, 1);
	check_number(completion.kind, PL_KIND_ACCEPT);
	check_completion(environment->far, &completion, -ECANCELED);
	pl_listener_close(listener);
}

/* Checks that pl_try_wait() leaves a running operation alone. */
static void try_wait(struct scenario_environment *environment)
{
	struct pl_completion completion;
	struct pl_operation *receive;
	struct pl_error error;
	struct buffer buffer;

	buffer_open(&buffer, environment->near, 64, PL_ACCESS_LOCAL);
	check_ok(pl_receive(environment->near_peer, 1, 0, &(struct pl_buffer){ buffer.region, 0, 64 }, NULL, &receive,
			    &error),
		 &error);
	check_number(pl_try_wait(receive, 0, NULL, &error), -EINPROGRESS);
	check_number(pl_try_wait(receive, 2000000, NULL, &error), -EINPROGRESS);
	check_ok(pl_send_copy(environment->far_peer, 1, "hello", 5, NULL, NULL, &error), &error);
	while (pl_try_wait(receive, 1000000, &completion, &error) == -EINPROGRESS)
		progress(environment);
	check_number(completion.status, 0);
	check_number(completion.bytes, 5);
	collect(environment, environment->far, &completion, 1);
	buffer_close(&buffer);
}

/* Checks that a prepared region works, and that tcp has all its lanes before the first transfer. */
static void prepared_region(struct scenario_environment *environment)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_operation *operation;
	struct pl_error error;
	struct pair pair;
	uint64_t began;

	event_pair_open(environment, &pair);
	check_ok(pl_region_prepare(environment->far_peer, pair.far.region, &error), &error);
	began = clock_now();
	check_ok(pl_region_prepare(environment->near_peer, pair.near.region, &error), &error);
	check_number(pl_peer_query(environment->near_peer, &info), 0);
	if (!strcmp(info.fabric, "tcp") && !environment_manual(environment) &&
	    info.lanes < environment->setting->lanes) {
		/* The call waits at most one second. A busy machine may open lanes later. */
		check(clock_now() - began >= SECOND);
		progress_until(environment, pl_peer_query(environment->near_peer, &info) == 0 &&
						    info.lanes == environment->setting->lanes);
	}
	pattern_fill(pair.near.bytes, SIZE, 5, 0);
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, SIZE },
			  NULL, &operation, &error),
		 &error);
	complete(environment, operation, NULL);
	pattern_check(pair.far.bytes, SIZE, 5, 0);
	check_status(pl_region_prepare(environment->near_peer, pair.far.region, &error), -EINVAL, &error);
	event_pair_close(&pair);
}

/* Checks receives without a region: an empty message fits, a longer one fails. */
static void empty_receive(struct scenario_environment *environment)
{
	struct pl_operation *receive;
	struct pl_completion completion;
	struct pl_error error;

	check_ok(pl_receive(environment->near_peer, 1, UINT64_MAX, NULL, NULL, &receive, &error), &error);
	check_ok(pl_send_copy(environment->far_peer, 1, NULL, 0, NULL, NULL, &error), &error);
	complete(environment, receive, &completion);
	check_number(completion.bytes, 0);
	check_number(completion.tag, 1);
	check_ok(pl_receive(environment->near_peer, 2, UINT64_MAX, NULL, NULL, &receive, &error), &error);
	check_ok(pl_send_copy(environment->far_peer, 2, "x", 1, NULL, NULL, &error), &error);
	fail_with(environment, receive, -EMSGSIZE);
	for (unsigned i = 0; i < 2; i++)
		collect(environment, environment->far, &completion, 1);
}

/* Checks that the error of a vector names the wrong element. */
static void vector_names_the_element(struct scenario_environment *environment)
{
	struct pl_transfer transfers[20];
	struct pl_operation *operation;
	struct pl_error error;
	struct pair pair;

	event_pair_open(environment, &pair);
	for (unsigned i = 0; i < 20; i++)
		transfers[i] = (struct pl_transfer){ pair.remote, i, pair.near.region, i, 1 };
	transfers[17].remote_offset = SIZE;
	check_status(pl_writev(environment->near_peer, transfers, 20, NULL, &operation, &error), -ERANGE, &error);
	check_text(error.object, "element 17");
	transfers[17].remote_offset = 17;
	transfers[3].offset = SIZE;
	check_status(pl_readv(environment->near_peer, transfers, 20, NULL, &operation, &error), -ERANGE, &error);
	check_text(error.object, "element 3");
	event_pair_close(&pair);
}

const struct scenario event_scenarios[] = {
	{ "notification-data", notification_data, 0 },
	{ "notification-data-of-transfers", notification_data_of_transfers, 0 },
	{ "notification-data-without-flag", notification_data_without_flag, 0 },
	{ "failed-read-does-not-notify", failed_read_does_not_notify, 0 },
	{ "loss-is-an-event", loss_is_an_event, 0 },
	{ "events-after-accept", events_after_accept, 0 },
	{ "reconnect-with-imports", reconnect_with_imports, 0 },
	{ "reconnect-after-revocation", reconnect_after_revocation, 0 },
	{ "cancel-posted", cancel_posted, 0 },
	{ "cancel-several-posted", cancel_several_posted, 0 },
	{ "cancel-posted-accept", cancel_posted_accept, SCENARIO_CONTROL },
	{ "try-wait", try_wait, 0 },
	{ "prepared-region", prepared_region, 0 },
	{ "empty-receive", empty_receive, 0 },
	{ "vector-names-the-element", vector_names_the_element, SCENARIO_SETTING },
	{ NULL, NULL, 0 },
};
