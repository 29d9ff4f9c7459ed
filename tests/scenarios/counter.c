/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters of a context: what has ended, by kind and fabric, with bytes and times; errors by identifier. */
#include <pthread.h>
#include <stdio.h>

#include <peerlane/counters.h>

#include "scenarios/scenario.h"

#define SIZE ((size_t)1 << 20)
#define EXACT UINT64_MAX

struct pair {
	struct buffer near, far;
	struct pl_remote *remote;
	char fabric[16];
};

static void counter_pair_open(struct scenario_environment *environment, struct pair *pair)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	buffer_open(&pair->near, environment->near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&pair->far, environment->far, SIZE, PL_ACCESS_ALL);
	pair->remote = share(environment, pair->far.region, environment->near_peer, NULL);
	check_number(pl_peer_query(environment->near_peer, &info), 0);
	snprintf(pair->fabric, sizeof(pair->fabric), "%s", info.fabric);
}

static void counter_pair_close(struct pair *pair)
{
	pl_remote_release(pair->remote);
	buffer_close(&pair->near);
	buffer_close(&pair->far);
}

static struct pl_traffic traffic_of(struct pl_context *context, enum pl_kind kind, const char *fabric)
{
	struct pl_traffic traffic = PL_TRAFFIC_INIT;
	struct pl_error error;

	check_ok(pl_context_traffic(context, kind, fabric, &traffic, &error), &error);
	return traffic;
}

/* What the receipts of one kind add up to. */
struct sum {
	uint64_t done, bytes, staged, time;
};

static void add_receipt(struct sum *sum, const struct pl_completion *receipt)
{
	sum->done++;
	sum->bytes += receipt->bytes;
	sum->staged += receipt->bytes_staged;
	sum->time += receipt->completed - receipt->posted;
}

static void check_traffic(struct pl_context *context, enum pl_kind kind, const struct pair *pair, const struct sum *sum)
{
	static const char *const fabrics[] = { "local", "verbs", "tcp" };
	struct pl_traffic all = traffic_of(context, kind, NULL);
	uint64_t in_buckets = 0;

	for (unsigned i = 0; i < 3; i++)
		check_number(traffic_of(context, kind, fabrics[i]).done,
			     strcmp(fabrics[i], pair->fabric) ? 0 : sum->done);
	for (unsigned i = 0; i < PL_TIME_BUCKETS; i++)
		in_buckets += all.times[i];
	check_number(all.done, sum->done);
	check_number(in_buckets, sum->done);
	check_number(all.failed, 0);
	check_number(all.bytes, sum->bytes);
	check_number(all.staged, sum->staged);
	check_number(all.time, sum->time);
}

static void transfer_at(struct scenario_environment *environment, const struct pair *pair, bool write, uint64_t offset,
			size_t length, struct sum *sum)
{
	struct pl_transfer one = { pair->remote, offset, pair->near.region, offset, length };
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct pl_error error;

	check_ok((write ? pl_write : pl_read)(environment->near_peer, &one, NULL, &operation, &error), &error);
	complete(environment, operation, &receipt);
	add_receipt(sum, &receipt);
}

static void transfer(struct scenario_environment *environment, const struct pair *pair, bool write, size_t length,
		     struct sum *sum)
{
	transfer_at(environment, pair, write, 0, length, sum);
}

static void message(struct scenario_environment *environment, const struct pair *pair, size_t length, struct sum *sent,
		    struct sum *received)
{
	struct pl_operation *send, *receive;
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(pl_receive(environment->far_peer, 1, EXACT, &(struct pl_buffer){ pair->far.region, 0, SIZE }, NULL,
			    &receive, &error),
		 &error);
	check_ok(pl_send(environment->near_peer, 1, &(struct pl_buffer){ pair->near.region, 0, length }, NULL, &send,
			 &error),
		 &error);
	complete(environment, send, &receipt);
	add_receipt(sent, &receipt);
	complete(environment, receive, &receipt);
	add_receipt(received, &receipt);
}

static void counted(struct scenario_environment *environment)
{
	static const size_t lengths[] = { 0, 8, 5000, SIZE };
	struct sum writes = { 0 }, reads = { 0 }, sent = { 0 }, received = { 0 }, none = { 0 };
	struct pair pair;

	counter_pair_open(environment, &pair);
	for (unsigned i = 0; i < 4; i++) {
		transfer(environment, &pair, true, lengths[i], &writes);
		transfer(environment, &pair, true, lengths[i], &writes);
		transfer(environment, &pair, false, lengths[i], &reads);
		message(environment, &pair, lengths[i], &sent, &received);
	}
	check_traffic(environment->near, PL_KIND_WRITE, &pair, &writes);
	check_traffic(environment->near, PL_KIND_READ, &pair, &reads);
	check_traffic(environment->near, PL_KIND_SEND, &pair, &sent);
	check_traffic(environment->near, PL_KIND_RECEIVE, &pair, &none);
	/* The reads that fetch large messages are not counted. */
	check_traffic(environment->far, PL_KIND_READ, &pair, &none);
	check_traffic(environment->far, PL_KIND_RECEIVE, &pair, &received);
	counter_pair_close(&pair);
}

/* Operations without a handle. */
static void counted_polled(struct scenario_environment *environment)
{
	struct pl_completion completions[8];
	struct sum sum = { 0 };
	struct pl_error error;
	struct pair pair;

	counter_pair_open(environment, &pair);
	for (unsigned i = 0; i < 8; i++) {
		struct pl_transfer one = { pair.remote, 0, pair.near.region, 0, 100 };

		check_ok(pl_write(environment->near_peer, &one, NULL, NULL, &error), &error);
	}
	collect(environment, environment->near, completions, 8);
	for (unsigned i = 0; i < 8; i++)
		add_receipt(&sum, &completions[i]);
	check_traffic(environment->near, PL_KIND_WRITE, &pair, &sum);
	counter_pair_close(&pair);
}

#define THREADS 3u
#define WRITES 200u

struct writer {
	struct scenario_environment *environment;
	const struct pair *pair;
	uint64_t offset; /* bytes of its own */
	pthread_t thread;
};

static void *write_often(void *argument)
{
	struct writer *writer = argument;
	struct sum sum = { 0 };

	for (unsigned i = 0; i < WRITES; i++)
		transfer_at(writer->environment, writer->pair, true, writer->offset, 8, &sum);
	return NULL;
}

/* No thread's additions are lost. */
static void counted_threads(struct scenario_environment *environment)
{
	struct writer writers[THREADS];
	struct pair pair;

	if (environment_manual(environment))
		return;
	counter_pair_open(environment, &pair);
	for (unsigned i = 0; i < THREADS; i++) {
		writers[i] = (struct writer){ .environment = environment, .pair = &pair, .offset = 8 * i };
		check_number(pthread_create(&writers[i].thread, NULL, write_often, &writers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(writers[i].thread, NULL);
	check_number(traffic_of(environment->near, PL_KIND_WRITE, NULL).done, THREADS * WRITES);
	check_number(traffic_of(environment->near, PL_KIND_WRITE, pair.fabric).bytes, THREADS * WRITES * 8);
	counter_pair_close(&pair);
}

static void counted_errors(struct scenario_environment *environment)
{
	struct pl_error_count count = PL_ERROR_COUNT_INIT;
	struct pl_context_info info = PL_CONTEXT_INFO_INIT;
	struct pl_operation *receive;
	struct pl_error error;
	struct pair pair;

	counter_pair_open(environment, &pair);
	check_status(pl_context_error_count(environment->near, 0, &count, &error), -ENOENT, &error);
	for (unsigned i = 0; i < 2; i++) {
		check_ok(pl_receive(environment->near_peer, 1, EXACT, &(struct pl_buffer){ pair.near.region, 0, 8 },
				    NULL, &receive, &error),
			 &error);
		pl_cancel(receive);
		fail_with(environment, receive, -ECANCELED);
	}
	check_ok(pl_context_error_count(environment->near, 0, &count, &error), &error);
	check_text(count.id, "OPERATION-CANCELED");
	check_number(count.count, 2);
	check_status(pl_context_error_count(environment->near, 1, &count, &error), -ENOENT, &error);
	check_number(traffic_of(environment->near, PL_KIND_RECEIVE, pair.fabric).failed, 2);
	check_number(traffic_of(environment->near, PL_KIND_RECEIVE, pair.fabric).done, 0);
	check_ok(pl_context_query(environment->near, &info, &error), &error);
	check_number(info.errors, 2);
	counter_pair_close(&pair);
}

static void state(struct scenario_environment *environment)
{
	struct pl_context_info before = PL_CONTEXT_INFO_INIT, info = PL_CONTEXT_INFO_INIT;
	struct pair pair;

	check_number(pl_context_query(environment->near, &before, NULL), 0);
	counter_pair_open(environment, &pair);
	check_number(pl_context_query(environment->near, &info, NULL), 0);
	check_number(info.engines, before.engines);
	check_number(info.peers, 1);
	check_number(info.lost, 0);
	check_number(info.regions, before.regions + 1);
	check_number(info.remotes, before.remotes + 1);
	check_number(info.running, 0);
	check_number(pl_context_query(environment->far, &info, NULL), 0);
	check_number(info.peers, 1);
	pl_peer_close(environment->far_peer);
	environment->far_peer = NULL;
	do {
		settle(environment, 1);
		check_number(pl_context_query(environment->near, &info, NULL), 0);
	} while (info.lost == 0);
	check_number(info.peers, 0);
	counter_pair_close(&pair);
}

static struct pl_queues queues_of(struct pl_context *context, const char *fabric)
{
	struct pl_queues queues = PL_QUEUES_INIT;
	struct pl_error error;

	check_ok(pl_context_queues(context, fabric, &queues, &error), &error);
	return queues;
}

/* Checks the queues of each fabric: only that of the pair has operations. */
static void check_queues(struct pl_context *context, const char *fabric, uint64_t running, uint64_t fenced,
			 uint64_t receives, uint64_t unexpected)
{
	static const char *const names[] = { NULL, "local", "verbs", "tcp" };

	for (unsigned i = 0; i < 4; i++) {
		struct pl_queues queues = queues_of(context, names[i]);
		bool used = !names[i] || !strcmp(names[i], fabric);

		check_number(queues.peers, used);
		check_number(queues.running, used ? running : 0);
		check_number(queues.fenced, used ? fenced : 0);
		check_number(queues.receives, used ? receives : 0);
		check_number(queues.unexpected, used ? unexpected : 0);
	}
}

/* A message without a receive is running at its sender, which holds a fenced write back. */
static void counted_queues(struct scenario_environment *environment)
{
	struct pl_attributes fence = PL_ATTRIBUTES_INIT;
	struct pl_operation *send, *write, *receive, *idle[2];
	struct pl_error error;
	struct pair pair;

	counter_pair_open(environment, &pair);
	check_queues(environment->near, pair.fabric, 0, 0, 0, 0);
	for (unsigned i = 0; i < 2; i++)
		check_ok(pl_receive(environment->near_peer, 7, EXACT, &(struct pl_buffer){ pair.near.region, 0, 8 },
				    NULL, &idle[i], &error),
			 &error);
	check_ok(pl_send(environment->near_peer, 1, &(struct pl_buffer){ pair.near.region, 0, SIZE }, NULL, &send,
			 &error),
		 &error);
	fence.flags = PL_FENCE;
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, 8 },
			  &fence, &write, &error),
		 &error);
	while (queues_of(environment->near, NULL).fenced != 1 || queues_of(environment->far, NULL).unexpected != 1)
		settle(environment, 1);
	check_queues(environment->near, pair.fabric, 1, 1, 2, 0);
	check_queues(environment->far, pair.fabric, 0, 0, 0, 1);
	check_ok(pl_receive(environment->far_peer, 1, EXACT, &(struct pl_buffer){ pair.far.region, 0, SIZE }, NULL,
			    &receive, &error),
		 &error);
	complete(environment, send, NULL);
	complete(environment, write, NULL);
	complete(environment, receive, NULL);
	check_queues(environment->near, pair.fabric, 0, 0, 2, 0);
	check_queues(environment->far, pair.fabric, 0, 0, 0, 0);
	for (unsigned i = 0; i < 2; i++) {
		pl_cancel(idle[i]);
		fail_with(environment, idle[i], -ECANCELED);
	}
	check_queues(environment->near, pair.fabric, 0, 0, 0, 0);
	counter_pair_close(&pair);
}

static void bad_questions(struct scenario_environment *environment)
{
	struct pl_traffic traffic = PL_TRAFFIC_INIT;
	struct pl_context_info info = { 0 };
	struct pl_error_count count = { 0 };
	struct pl_queues queues = PL_QUEUES_INIT;
	struct pl_error error;

	check_status(pl_context_traffic(environment->near, 0, NULL, &traffic, &error), -EINVAL, &error);
	check_status(pl_context_traffic(environment->near, PL_KIND_NOTIFIED, NULL, &traffic, &error), -EINVAL, &error);
	check_status(pl_context_traffic(environment->near, PL_KIND_WRITE, "efa", &traffic, &error), -EINVAL, &error);
	traffic.size--;
	check_status(pl_context_traffic(environment->near, PL_KIND_WRITE, NULL, &traffic, &error), -EINVAL, &error);
	check_status(pl_context_query(environment->near, &info, &error), -EINVAL, &error);
	check_status(pl_context_queues(environment->near, "efa", &queues, &error), -EINVAL, &error);
	queues.size--;
	check_status(pl_context_queues(environment->near, NULL, &queues, &error), -EINVAL, &error);
	check_status(pl_context_error_count(environment->near, 0, &count, &error), -EINVAL, &error);
}

const struct scenario counter_scenarios[] = {
	{ "counters-of-operations", counted, 0 },
	{ "counters-of-polled-operations", counted_polled, 0 },
	{ "counters-of-threads", counted_threads, 0 },
	{ "counters-of-errors", counted_errors, 0 },
	{ "counters-of-objects", state, 0 },
	{ "counters-of-queues", counted_queues, 0 },
	{ "counters-bad-questions", bad_questions, SCENARIO_CONTROL },
	{ NULL, NULL, 0 },
};
