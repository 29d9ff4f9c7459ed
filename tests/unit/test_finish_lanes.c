/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lane that receives the last bytes of a large message tells the sender, without the home engine. Each case holds engines' locks,
 * so that lane 1 of the receiver, whose engine is not the home, gets the last bytes while the home does nothing.
 */
#include <sched.h>

#include "core/fabric.h"
#include "fabric/tcp/finish.h"
#include "support/cases.h"
#include "support/pair.h"

/* Four chunks: one for lane 0, and three for lane 1, which are within its share. */
#define LENGTH ((size_t)512 << 10)

/* Contexts have two engines: lanes 0 and 2 are of the home, lane 1 of the other one. */
static const struct setting setting = {
	.name = "finish-lanes", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 2
};

/* A large message under way, of which lane 1 lacks bytes. The test holds the receiver's home, and the sender's engine of lane 1. */
struct message {
	struct pair pair;
	struct tcp_endpoint *sender, *receiver;
	struct pl_operation *send, *receive;
};

static struct pl_engine *home_of(const struct tcp_endpoint *endpoint)
{
	return endpoint->base.peer->home;
}

static struct pl_engine *other_of(const struct tcp_endpoint *endpoint)
{
	return endpoint->lanes[1]->engine;
}

static void message_open(struct message *message)
{
	struct pair *pair = &message->pair;
	struct pl_error error;

	pair_open(pair, &setting, LENGTH);
	check_ok(pl_region_prepare(pair->environment.near_peer, pair->near.region, &error), &error);
	pair_spread(pair, setting.lanes);
	message->sender = tcp_endpoint_of(pair->environment.near_peer->endpoint);
	message->receiver = tcp_endpoint_of(pair->environment.far_peer->endpoint);
	check(other_of(message->receiver) != home_of(message->receiver));
	/* Nothing wakes lane 2. */
	atomic_fetch_or(&message->receiver->blocked, 1u << 2);
}

/* Returns true if lane 1 has taken what lane 0 has not received. The home's lock is held. */
static bool lane_has_the_rest(const struct message *message)
{
	struct tcp_endpoint *receiver = message->receiver;
	bool taken;

	pthread_mutex_lock(&receiver->lock);
	taken = pl_list_empty(&receiver->work) && pl_list_empty(&receiver->small_work);
	pthread_mutex_unlock(&receiver->lock);
	return taken && message->receive->child && pl_list_empty(&receiver->gathered) &&
	       receiver->lanes[0]->request_count == 0;
}

static void message_begin(struct message *message)
{
	struct pair *pair = &message->pair;
	struct pl_error error;

	pattern_fill(pair->near.bytes, LENGTH, 5, 0);
	memset(pair->far.bytes, 0, LENGTH);
	pl_engine_lock(other_of(message->sender));
	check_ok(pl_receive(pair->environment.far_peer, 1, UINT64_MAX,
			    &(struct pl_buffer){ pair->far.region, 0, LENGTH }, NULL, &message->receive, &error),
		 &error);
	check_ok(pl_send(pair->environment.near_peer, 1, &(struct pl_buffer){ pair->near.region, 0, LENGTH }, NULL,
			 &message->send, &error),
		 &error);
	for (pl_engine_lock(home_of(message->receiver)); !lane_has_the_rest(message);
	     pl_engine_lock(home_of(message->receiver))) {
		pl_engine_unlock(home_of(message->receiver));
		sched_yield();
	}
}

static void message_close(struct message *message)
{
	atomic_fetch_and(&message->receiver->blocked, ~(1u << 2));
	pair_close(&message->pair);
}

static void check_received(struct message *message)
{
	struct pl_completion receipt;

	complete(&message->pair.environment, message->receive, &receipt);
	check_number(receipt.bytes, LENGTH);
	pattern_check(message->pair.far.bytes, LENGTH, 5, 0);
}

/* Lets lane 1 receive the rest, and returns when it has given the fetch to the receiver's home, which does nothing. */
static void receive_rest(struct message *message)
{
	pl_engine_unlock(other_of(message->sender));
	while (!atomic_load(&home_of(message->receiver)->finished))
		sched_yield();
}

/* The send completes while the receiver's home does nothing, and the receive cannot be stopped any more. */
static void without_home(void *unused)
{
	struct message message;

	(void)unused;
	message_open(&message);
	message_begin(&message);
	pl_engine_unlock(other_of(message.sender));
	complete(&message.pair.environment, message.send, NULL);
	pl_operation_stop(message.receive, -ECANCELED, NULL);
	pl_engine_unlock(home_of(message.receiver));
	check_received(&message);
	message_close(&message);
}

/* No lane tells the sender of a message whose receive was stopped before. */
static void stopped(void *unused)
{
	struct message message;

	(void)unused;
	message_open(&message);
	message_begin(&message);
	pl_operation_stop(message.receive, -ECANCELED, NULL);
	pl_engine_unlock(other_of(message.sender));
	pl_engine_unlock(home_of(message.receiver));
	fail_with(&message.pair.environment, message.receive, -ECANCELED);
	fail_with(&message.pair.environment, message.send, -ECANCELED);
	message_close(&message);
}

/* No lane tells the sender that a message was received of which some bytes are missing. */
static void failed(void *unused)
{
	struct message message;

	(void)unused;
	message_open(&message);
	message_begin(&message);
	pl_operation_fail(message.receive->child, -EFAULT, NULL);
	receive_rest(&message);
	check_number(atomic_load(&message.receive->child->fetch_end), PL_FETCH_OPEN);
	pl_engine_unlock(home_of(message.receiver));
	fail_with(&message.pair.environment, message.receive, -EFAULT);
	fail_with(&message.pair.environment, message.send, -ECANCELED);
	message_close(&message);
}

/* Home tells a sender of an earlier release, over lane 0. */
static void to_earlier_release(void *unused)
{
	struct message message;

	(void)unused;
	message_open(&message);
	message.pair.environment.far_peer->finish_lanes = false;
	message_begin(&message);
	receive_rest(&message);
	check_number(atomic_load(&message.receive->child->fetch_end), PL_FETCH_OPEN);
	pl_engine_unlock(home_of(message.receiver));
	check_received(&message);
	complete(&message.pair.environment, message.send, NULL);
	check_number(atomic_load(&message.sender->rendezvous), 0);
	message_close(&message);
}

static void send_finish(struct message *message, uint32_t cookie, enum pl_wire_status status)
{
	struct tcp_lane *lane = message->receiver->lanes[1];
	struct tcp_piece *piece;

	pl_engine_lock(lane->engine);
	piece = tcp_piece_new(lane, &(struct pl_frame){ .type = PL_FRAME_FINISH, .cookie = cookie, .offset = status });
	check(piece);
	tcp_lane_queue_piece(lane, piece);
	tcp_lane_flush(lane);
	pl_engine_unlock(lane->engine);
}

static void await_loss(struct message *message)
{
	struct scenario_environment *environment = &message->pair.environment;

	progress_until(environment, atomic_load(&environment->near_peer->state) == PL_PEER_LOST);
}

/* Lanes keep no more ends for the home than there are large sends. */
static void without_send(void *unused)
{
	struct message message;

	(void)unused;
	message_open(&message);
	check_number(atomic_load(&message.sender->rendezvous), 0);
	send_finish(&message, 1, PL_WIRE_OK);
	await_loss(&message);
	message_close(&message);
}

static void with_failure(void *unused)
{
	struct message message;

	(void)unused;
	message_open(&message);
	message.pair.environment.far_peer->finish_lanes = false;
	message_begin(&message);
	pl_engine_unlock(other_of(message.sender));
	send_finish(&message, message.send->cookie, PL_WIRE_CANCELED);
	await_loss(&message);
	pl_engine_unlock(home_of(message.receiver));
	check(await(&message.pair.environment, message.send, NULL, NULL) < 0);
	check(await(&message.pair.environment, message.receive, NULL, NULL) <= 0);
	message_close(&message);
}

/* Ends that a lane gives to the home together. */
#define BATCH 60u

/* A lane gives the home each full batch, and the end of the connection waits for a batch that the lane is filling. */
static void in_batches(void *unused)
{
	struct pl_frame frame = { .type = PL_FRAME_FINISH, .offset = PL_WIRE_OK };
	struct tcp_endpoint *sender;
	struct message message;
	struct tcp_lane *lane;
	unsigned open;

	(void)unused;
	message_open(&message);
	sender = message.sender;
	lane = sender->lanes[1];
	atomic_store(&sender->rendezvous, BATCH + 1);
	pl_engine_lock(home_of(sender));
	pl_engine_lock(lane->engine);
	for (; frame.cookie < BATCH; frame.cookie++) {
		check(!lane->finished == !frame.cookie);
		check_number(tcp_finish_arrived(lane, &frame), 0);
	}
	check(!lane->finished);
	check_number(atomic_load(&sender->finished_count), 1);
	open = atomic_exchange(&sender->lanes_open, 0);
	check(!message.pair.environment.near_peer->ops->drained(&sender->base));
	check_number(tcp_finish_arrived(lane, &frame), 0);
	check_number(atomic_load(&sender->finished_count), 2);
	pl_engine_unlock(home_of(sender));
	progress_until(&message.pair.environment, atomic_load(&sender->finished_count) == 1);
	check(!message.pair.environment.near_peer->ops->drained(&sender->base));
	tcp_lane_hand_finished(lane);
	progress_until(&message.pair.environment, atomic_load(&sender->finished_count) == 0);
	check(message.pair.environment.near_peer->ops->drained(&sender->base));
	/* The same for notifications that the home has not listed. */
	atomic_fetch_add(&sender->held_count, 1);
	check(!message.pair.environment.near_peer->ops->drained(&sender->base));
	atomic_fetch_sub(&sender->held_count, 1);
	atomic_store(&sender->lanes_open, open);
	check(!message.pair.environment.near_peer->ops->drained(&sender->base));
	pl_engine_unlock(lane->engine);
	pl_engine_lock(home_of(sender));
	check(!atomic_load(&message.pair.environment.near_peer->ending));
	pl_engine_unlock(home_of(sender));
	message_close(&message);
}

/* The end of the connection goes on once the home has taken the last batch. */
static void at_the_end(void *unused)
{
	struct tcp_endpoint *sender;
	struct message message;
	struct pl_peer *peer;
	struct tcp_lane *lane;
	unsigned open;

	(void)unused;
	message_open(&message);
	peer = message.pair.environment.near_peer;
	sender = message.sender;
	lane = sender->lanes[1];
	atomic_store(&sender->rendezvous, 1);
	pl_engine_lock(home_of(sender));
	pl_engine_lock(lane->engine);
	check_number(tcp_finish_arrived(lane, &(struct pl_frame){ .type = PL_FRAME_FINISH, .offset = PL_WIRE_OK }), 0);
	open = atomic_exchange(&sender->lanes_open, 0);
	peer->leaving = true;
	atomic_store(&peer->ending, true);
	tcp_lane_hand_finished(lane);
	check_number(atomic_load(&peer->state), PL_PEER_UP);
	pl_engine_unlock(home_of(sender));
	progress_until(&message.pair.environment, atomic_load(&peer->state) == PL_PEER_LOST);
	check_number(atomic_load(&sender->finished_count), 0);
	atomic_store(&sender->lanes_open, open);
	pl_engine_unlock(lane->engine);
	message_close(&message);
}

/* Looks once, as a close does. */
static bool has_sent_last(const struct message *message)
{
	bool all;

	pl_engine_lock(home_of(message->receiver));
	all = message->pair.environment.far_peer->ops->send_last(&message->receiver->base);
	pl_engine_unlock(home_of(message->receiver));
	return all;
}

/* A close waits for FINISH that lane 1 has not sent: its socket is full. The sender learns then that its message was received. */
static void holds_close(void *unused)
{
	struct message message;
	struct tcp_lane *lane;

	(void)unused;
	message_open(&message);
	message_begin(&message);
	lane = message.receiver->lanes[1];
	/* Nothing watches for room in the socket, so that only the test ends this. */
	pl_engine_lock(lane->engine);
	tcp_lane_block(lane);
	/* Without the close, FINISH would wait for an answer that is under way. */
	lane->requests_sent++;
	pl_engine_unlock(lane->engine);
	pl_engine_unlock(other_of(message.sender));
	pl_engine_unlock(home_of(message.receiver));
	check_received(&message);
	for (unsigned looks = 0; looks < 2; looks++) {
		check(!has_sent_last(&message));
		while (atomic_load(&lane->finish) == TCP_FINISH_ASKED)
			sched_yield();
		check_number(atomic_load(&lane->finish), TCP_FINISH_OPEN);
	}
	pl_engine_lock(lane->engine);
	tcp_lane_unblock(lane);
	pl_engine_unlock(lane->engine);
	/* The look has the lane send. */
	while (!has_sent_last(&message))
		sched_yield();
	check_number(atomic_load(&lane->finish), TCP_FINISH_SETTLED);
	pl_engine_lock(lane->engine);
	lane->requests_sent--;
	pl_engine_unlock(lane->engine);
	check_number(atomic_load(&message.receiver->finish_open), 0);
	atomic_fetch_and(&message.receiver->blocked, ~(1u << 2));
	pl_peer_close(message.pair.environment.far_peer);
	message.pair.environment.far_peer = NULL;
	complete(&message.pair.environment, message.send, NULL);
	pair_close(&message.pair);
}

static const struct test_case cases[] = {
	{ "without-home", without_home, NULL, 60 },
	{ "stopped", stopped, NULL, 60 },
	{ "failed", failed, NULL, 60 },
	{ "to-earlier-release", to_earlier_release, NULL, 60 },
	{ "without-send", without_send, NULL, 60 },
	{ "with-failure", with_failure, NULL, 60 },
	{ "in-batches", in_batches, NULL, 60 },
	{ "at-the-end", at_the_end, NULL, 60 },
	{ "holds-close", holds_close, NULL, 60 },
};

int main(void)
{
	return cases_run("finish-lanes", cases, PL_ARRAY_SIZE(cases));
}
