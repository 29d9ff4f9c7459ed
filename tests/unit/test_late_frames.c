/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames of an operation that has ended are under way when the program posts a write to the same bytes. The write must come after
 * them. Both ends have manual progress: the test holds the far end back, and chooses the socket that it reads first.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/local/local.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

#define LENGTH ((size_t)8 << 20)
/* Bytes of each range of the failing write: a readable one for lane 0, and an unreadable one for the others. */
#define READABLE ((size_t)1 << 20)
#define UNREADABLE ((size_t)256 << 10)

static const struct setting setting = {
	.name = "late-frames", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 2
};
static const struct setting local_setting = {
	.name = "late-frames", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* Registers the memory of a file that is then cut to nothing, which the kernel cannot read. */
static struct pl_region *register_unreadable(struct pl_context *context, void **memory)
{
	struct pl_region *region;
	struct pl_error error;
	int file = memfd_create("unreadable", MFD_CLOEXEC);

	check(file >= 0 && ftruncate(file, UNREADABLE) == 0);
	*memory = mmap(NULL, UNREADABLE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	check(*memory != MAP_FAILED);
	check_ok(pl_region_register(context, *memory, UNREADABLE, PL_ACCESS_LOCAL, &region, &error), &error);
	check_number(ftruncate(file, 0), 0);
	check_number(close(file), 0);
	return region;
}

static bool all_is_sent(const struct tcp_endpoint *endpoint)
{
	for (unsigned i = 0; i < TCP_SOCKETS_MAX; i++)
		if (endpoint->lanes[i] && !pl_list_empty(&endpoint->lanes[i]->queue))
			return false;
	return !atomic_load(&endpoint->any_work);
}

static bool all_is_acknowledged(const struct tcp_endpoint *endpoint)
{
	for (unsigned i = 0; i < TCP_SOCKETS_MAX; i++)
		if (endpoint->lanes[i] && endpoint->lanes[i]->sequence != endpoint->lanes[i]->acked)
			return false;
	return true;
}

/* Fails a write of two ranges, of which all frames are sent. Returns when its completion is collected. */
static void fail_write(struct pair *pair, struct pl_region *unreadable, enum pl_visible visible)
{
	const struct pl_transfer ranges[] = { { pair->remote, UNREADABLE, pair->near.region, 0, READABLE },
					      { pair->remote, 0, unreadable, 0, UNREADABLE } };
	struct scenario_environment *environment = &pair->environment;
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.visible = visible;
	check_ok(pl_writev(environment->near_peer, ranges, 2, &attributes, &operation, &error), &error);
	while (!all_is_sent(tcp_endpoint_of(environment->near_peer->endpoint)))
		pl_context_progress(environment->near);
	pl_cancel(operation);
	check_status(pl_wait(operation, AMPLE_TIME, NULL, &error), -EFAULT, &error);
}

static struct pl_operation *write_word_with(struct pair *pair, uint64_t word, unsigned flags)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.flags = flags;
	memcpy(pair->near.bytes, &word, sizeof(word));
	check_ok(pl_write(pair->environment.near_peer,
			  &(struct pl_transfer){ pair->remote, 0, pair->near.region, 0, 8 }, &attributes, &operation,
			  &error),
		 &error);
	return operation;
}

static struct pl_operation *write_word(struct pair *pair, uint64_t word)
{
	return write_word_with(pair, word, 0);
}

static void write_after_failed_one(void *visible)
{
	const uint64_t word = 0x1122334455667788;
	struct pl_operation *operation;
	struct tcp_lane *first;
	struct pl_region *region;
	struct pl_error error;
	struct pair pair;
	void *memory;

	pair_open(&pair, &setting, LENGTH);
	check_ok(pl_region_prepare(pair.environment.near_peer, pair.near.region, &error), &error);
	pair_spread(&pair, setting.lanes);
	region = register_unreadable(pair.environment.near, &memory);
	fail_write(&pair, region, *(enum pl_visible *)visible);
	operation = write_word(&pair, word);
	pl_context_progress(pair.environment.near);
	/* The far end reads lane 0 first, which carries small writes. */
	first = tcp_endpoint_of(pair.environment.far_peer->endpoint)->lanes[0];
	pl_engine_lock(first->engine);
	first->source.ready(&first->source, EPOLLIN);
	pl_engine_unlock(first->engine);
	complete(&pair.environment, operation, NULL);
	progress_until(&pair.environment,
		       all_is_acknowledged(tcp_endpoint_of(pair.environment.near_peer->endpoint)));
	check(bytes_equal(pair.far.bytes, &word, sizeof(word)));
	value_check(pair.far.bytes + sizeof(word), UNREADABLE - sizeof(word), 0);
	check_number(pl_region_deregister(region), 0);
	check_number(munmap(memory, UNREADABLE), 0);
	pair_close(&pair);
}

/* Two ends whose near one has a cancelled atomic under way, which a socket carries, as this end does not map the memory. */
struct late_atomic {
	struct pair pair;
	const char *reason; /* of a write without late frames */
};

static void late_atomic_open(struct late_atomic *late)
{
	struct pair *pair = &late->pair;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	pair_open(pair, &local_setting, 64);
	complete(&pair->environment, write_word(pair, 0), &receipt);
	late->reason = receipt.reason;
	check(late->reason == local_process_path.reason || late->reason == local_denied_path.reason);
	check_ok(pl_fetch_add(pair->environment.near_peer, &(struct pl_atomic){ .remote = pair->remote, .operand = 1 },
			      NULL, &operation, &error),
		 &error);
	pl_cancel(operation);
	check_status(pl_wait(operation, AMPLE_TIME, NULL, &error), -ECANCELED, &error);
}

static bool frames_are_late(const struct late_atomic *late)
{
	const struct local_endpoint *endpoint = local_endpoint_of(late->pair.environment.near_peer->endpoint);

	return atomic_load(&tcp_endpoint_of(endpoint->lanes)->late);
}

static void check_word(const struct late_atomic *late, uint64_t expected)
{
	uint64_t word;

	bytes_get(late->pair.far.bytes, &word, sizeof(word));
	check_number(word, expected);
}

/* Local: the processor writes to memory that an atomic is still to change. */
static void write_after_atomic(void *unused)
{
	struct late_atomic late;
	struct pl_completion receipt;

	(void)unused;
	late_atomic_open(&late);
	complete(&late.pair.environment, write_word(&late.pair, 1000), &receipt);
	progress_until(&late.pair.environment, !frames_are_late(&late));
	check_word(&late, 1000);
	/* Later writes go as before. */
	complete(&late.pair.environment, write_word(&late.pair, 2000), &receipt);
	check(receipt.reason == late.reason);
	check_word(&late, 2000);
	pair_close(&late.pair);
}

/* The sockets would stage GPU memory: a direct write waits for the atomic, and then goes its own path. */
static void direct_write_after_atomic(void *unused)
{
	struct pl_operation *write, *cancelled;
	struct late_atomic late;
	struct pl_completion receipt;
	struct pl_error error;

	(void)unused;
	late_atomic_open(&late);
	write = write_word_with(&late.pair, 1000, PL_REQUIRE_DIRECT);
	cancelled = write_word_with(&late.pair, 1000, PL_REQUIRE_DIRECT);
	check(frames_are_late(&late));
	pl_cancel(cancelled);
	check_status(pl_wait(cancelled, AMPLE_TIME, NULL, &error), -ECANCELED, &error);
	complete(&late.pair.environment, write, &receipt);
	check(!frames_are_late(&late));
	check(receipt.reason == late.reason);
	check_word(&late, 1000);
	pair_close(&late.pair);
}

/* A waiting direct write ends with its peer. */
static void direct_write_without_peer(void *unused)
{
	struct pl_operation *write;
	struct late_atomic late;
	struct pl_error error;

	(void)unused;
	late_atomic_open(&late);
	write = write_word_with(&late.pair, 1000, PL_REQUIRE_DIRECT);
	pl_peer_close(late.pair.environment.far_peer);
	late.pair.environment.far_peer = NULL;
	check_status(pl_wait(write, AMPLE_TIME, NULL, &error), -ECONNRESET, &error);
	pair_close(&late.pair);
}

static const enum pl_visible on_wire = PL_VISIBLE_ON_WIRE, acknowledged = PL_VISIBLE_ACKNOWLEDGED;
static const struct test_case cases[] = {
	{ "write-after-failed-one-on-wire", write_after_failed_one, &on_wire, 60 },
	{ "write-after-failed-one", write_after_failed_one, &acknowledged, 60 },
	{ "write-after-atomic", write_after_atomic, NULL, 30 },
	{ "direct-write-after-atomic", direct_write_after_atomic, NULL, 30 },
	{ "direct-write-without-peer", direct_write_without_peer, NULL, 30 },
};

int main(void)
{
	return cases_run("late-frames", cases, PL_ARRAY_SIZE(cases));
}
