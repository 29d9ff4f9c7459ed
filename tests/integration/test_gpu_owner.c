/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local fabric between a process that has not loaded the GPU's driver and the owner of GPU memory: the owner copies.
 * Uses the stand-in for the driver, or a real driver for tests that need no delays.
 */
#include <stdlib.h>

#include "core/grant.h"
#include "core/trust.h"
#include "fabric/local/local.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_session.h"
#include "support/local.h"

#define LARGE ((size_t)40 << 20)
#define REASON "the process that owns the GPU memory copies"
/*
 * Delay of each copy of the stand-in, in microseconds, so that an operation is under way while the test acts. A cancelled
 * operation waits for the copies that have begun, at most 1 s.
 */
#define DELAY (20 * 1000)
/* Delay of a process that does not cancel. */
#define LONG_DELAY (1000 * 1000)

static void slow_agent_alloc(int fd)
{
	gpu_agent_alloc(fd);
	gpu_standin_find();
	if (!gpu_standin.delay)
		exit(SKIPPED);
	gpu_standin.delay(DELAY);
}

/* For tests whose requests must not end before the test has acted. */
static void stuck_agent_alloc(int fd)
{
	slow_agent_alloc(fd);
	gpu_standin.delay(LONG_DELAY);
}

/* A request of ten chunks takes 2 s. */
static void sluggish_agent_alloc(int fd)
{
	slow_agent_alloc(fd);
	gpu_standin.delay(10 * DELAY);
}

static void agent_allocates(int fd)
{
	(void)fd;
	buffers_allocated = true;
}

/* Opens a session whose agent owns the GPU memory. This process has no driver, and memory of the library. */
static void open_without_driver(struct gpu_session *session, void (*prepare)(int), size_t size)
{
	agent_fork(&session->agent, &gpu_setting, size, prepare);
	agent_ready(&session->agent);
	buffers_allocated = true;
	gpu_session_connect(session, size);
}

/* Opens a session whose agent has no driver. This process owns the GPU memory. */
static void open_as_owner(struct gpu_session *session)
{
	gpu_session_open(session, agent_allocates, "alloc", LARGE);
	agent_fill(&session->agent, 7);
}

static struct local_endpoint *endpoint_of(const struct gpu_session *session)
{
	return local_endpoint_of(session->peer->endpoint);
}

static void owner_copies(void *unused)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct gpu_session session;
	struct pl_error error;

	(void)unused;
	open_without_driver(&session, gpu_agent_alloc, LARGE);
	gpu_session_check_from(&session, LOCAL_OWNER_MIN, LARGE, PL_ROUTE_DIRECT, REASON);
	direct.flags = PL_REQUIRE_DIRECT;
	check_ok(gpu_session_transfer(&session, true, 0, LARGE, &direct, NULL, &error), &error);
	/* Frames cost less for few bytes. */
	check_status(gpu_session_transfer(&session, true, 0, LOCAL_OWNER_MIN - 1, &direct, NULL, &error), -ENOTSUP,
		     &error);
	check(strstr(error.message, "has not loaded the GPU's driver"));
	gpu_session_close(&session);
}

/* Reads a count that the home engine writes. */
static unsigned read_count(const struct gpu_session *session, const unsigned *count)
{
	unsigned value;

	pl_engine_lock(session->peer->home);
	value = *count;
	pl_engine_unlock(session->peer->home);
	return value;
}

/* Waits until the peer's request is being served. */
static void await_served(const struct gpu_session *session)
{
	while (!atomic_load(&endpoint_of(session)->serving.request_count))
		sleep_ms(1);
}

/* An older release is not asked. */
static void older_owner(void *unused)
{
	struct gpu_session session;

	(void)unused;
	open_without_driver(&session, gpu_agent_alloc, LARGE);
	session.peer->owner_copies = false;
	gpu_session_check(&session, LARGE, PL_ROUTE_STAGED, "has not loaded the GPU's driver");
	gpu_session_close(&session);
}

#define BLOCKS 700u
#define BLOCK ((size_t)16 << 10)

/* Transfers blocks that change places: block i here is block BLOCKS - 1 - i there. */
static void transfer_blocks(struct gpu_session *session, bool write, size_t length, struct pl_completion *receipt)
{
	struct pl_transfer *blocks = calloc(BLOCKS, sizeof(*blocks));
	struct pl_operation *operation;
	struct pl_error error;

	for (unsigned i = 0; i < BLOCKS; i++)
		blocks[i] = (struct pl_transfer){ session->remote, (BLOCKS - 1 - i) * BLOCK, session->buffer.region,
						  i * BLOCK, i % 7 ? length : 0 };
	check_ok((write ? pl_writev : pl_readv)(session->peer, blocks, BLOCKS, NULL, &operation, &error), &error);
	complete(&session->environment, operation, receipt);
	free(blocks);
}

static void check_blocks(struct gpu_session *session, size_t length)
{
	struct pl_completion receipt;

	pattern_fill(session->buffer.bytes, BLOCKS * BLOCK, 3, 0);
	transfer_blocks(session, true, length, &receipt);
	check_number(receipt.route, PL_ROUTE_DIRECT);
	check_text(receipt.reason, "local: " REASON);
	bytes_set(session->buffer.bytes, POISON, BLOCKS * BLOCK);
	transfer_blocks(session, false, length, &receipt);
	check_number(receipt.route, PL_ROUTE_DIRECT);
	for (unsigned i = 0; i < BLOCKS; i++) {
		size_t moved = i % 7 ? length : 0;

		pattern_check(session->buffer.bytes + i * BLOCK, moved, 3, i * BLOCK);
		value_check(session->buffer.bytes + i * BLOCK + moved, BLOCK - moved, POISON);
	}
}

static void blocks(void *unused)
{
	struct gpu_session session;

	(void)unused;
	open_without_driver(&session, gpu_agent_alloc, BLOCKS * BLOCK);
	check_blocks(&session, 120);
	check_blocks(&session, BLOCK - 8);
	gpu_session_close(&session);
}

/* More regions than are lent at a time. */
static void regions(void *unused)
{
	const unsigned count = LOCAL_LENT_MAX + 44;
	struct pl_region **regions = calloc(count, sizeof(*regions));
	struct gpu_session session;
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct pl_error error;

	(void)unused;
	open_without_driver(&session, gpu_agent_alloc, LARGE);
	for (unsigned i = 0; i < count; i++)
		check_ok(pl_region_allocate(session.environment.near, 65536, 0, &regions[i], &error), &error);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < count; i++) {
			memset(pl_region_address(regions[i]), (int)(i % 251), 65536);
			check_ok(pl_write(session.peer,
					  &(struct pl_transfer){ session.remote, i * 65536, regions[i], 0, 65536 }, NULL,
					  &operation, &error),
				 &error);
			complete(&session.environment, operation, &receipt);
			check_text(receipt.reason, "local: " REASON);
		}
	check(read_count(&session, &endpoint_of(&session)->asking.lent_count) <= LOCAL_LENT_MAX);
	check_ok(gpu_session_transfer(&session, false, 0, count * (size_t)65536, NULL, NULL, &error), &error);
	for (unsigned i = 0; i < count; i++) {
		value_check(session.buffer.bytes + i * (size_t)65536, 65536, (uint8_t)(i % 251));
		check_number(pl_region_deregister(regions[i]), 0);
	}
	free(regions);
	gpu_session_close(&session);
}

/* -- the end of an operation -------------------------------------------------------------------------- */

/* Posts a vector that takes seconds: the same bytes many times. */
static struct pl_operation *post_slow(struct gpu_session *session)
{
	struct pl_transfer transfers[200];
	struct pl_operation *operation;
	struct pl_error error;

	for (unsigned i = 0; i < PL_ARRAY_SIZE(transfers); i++)
		transfers[i] = (struct pl_transfer){ session->remote, 0, session->buffer.region, 0, 8 << 20 };
	check_ok(pl_readv(session->peer, transfers, PL_ARRAY_SIZE(transfers), NULL, &operation, &error), &error);
	/* The request is under way. */
	while (!atomic_load(&endpoint_of(session)->asking.request_count))
		sleep_ms(1);
	return operation;
}

/* A cancelled read changes nothing after its end, and the next one is direct again. */
static void canceled(void *unused)
{
	struct pl_completion receipt;
	struct gpu_session session;
	struct pl_error error;
	uint64_t digest;

	(void)unused;
	open_without_driver(&session, slow_agent_alloc, LARGE);
	agent_fill(&session.agent, 7);
	for (unsigned i = 0; i < 3; i++) {
		struct pl_operation *operation = post_slow(&session);
		uint64_t begin;
		bool awaited;

		check_number(pl_region_deregister(session.buffer.region), -EBUSY);
		begin = pl_now();
		pl_cancel(operation);
		fail_with(&session.environment, operation, -ECANCELED);
		/* On a machine this slow the wait for the copies under way may have reached its limit. */
		awaited = pl_now() - begin < PL_NS_PER_S;
		bytes_set(session.buffer.bytes, POISON, LARGE);
		digest = bytes_digest(session.buffer.bytes, LARGE);
		sleep_ms(10 * DELAY / 1000);
		check(!awaited || bytes_digest(session.buffer.bytes, LARGE) == digest);
		check_ok(gpu_session_transfer(&session, i % 2, 0, 100000, NULL, &receipt, &error), &error);
		check_text(receipt.reason, "local: " REASON);
	}
	gpu_session_close(&session);
}

/* Holds the gates of the lent regions, or leaves them, as an owner that stopped during a copy. */
static void hold_own_gates(struct gpu_session *session, bool hold)
{
	struct local_gates *gates = endpoint_of(session)->own_gates;

	for (unsigned i = 0; i < gates->used; i++)
		atomic_store(&gates->gates[i].slots[LOCAL_HOLDER_SLOTS - 1], hold);
}

/* An owner that does not leave a lent region delays the end of the cancelled operation, but not the engine. */
static void canceled_while_held(void *unused)
{
	struct pl_operation *operation;
	struct gpu_session session;

	(void)unused;
	open_without_driver(&session, slow_agent_alloc, LARGE);
	operation = post_slow(&session);
	pl_engine_lock(session.peer->home);
	hold_own_gates(&session, true);
	pl_operation_stop(operation, -ECANCELED, NULL);
	check(!pl_list_empty(&session.peer->ending_keys));
	check(atomic_load(&operation->state) != PL_DONE);
	hold_own_gates(&session, false);
	pl_engine_unlock(session.peer->home);
	fail_with(&session.environment, operation, -ECANCELED);
	gpu_session_close(&session);
}

/* The owner revokes the memory, or deregisters it, while it copies: no byte arrives after that. */
static void revoked_there(void *unused)
{
	struct gpu_session session;
	uint8_t token[PL_TOKEN_MAX];
	struct pl_error error;

	(void)unused;
	open_as_owner(&session);
	gpu_standin_need();
	for (unsigned i = 0; i < 2; i++) {
		size_t length = sizeof(token);
		uint64_t digest;
		int status;

		gpu_standin.delay(LONG_DELAY);
		check_ok(pl_region_share(session.buffer.region, NULL, token, &length, &error), &error);
		agent_write(&session.agent, token, length, LARGE);
		await_served(&session);
		check_number(pl_region_revoke(session.buffer.region, token, length), 0);
		gpu_standin.delay(0);
		bytes_set(session.buffer.bytes, POISON, LARGE);
		digest = bytes_digest(session.buffer.bytes, LARGE);
		status = agent_wait(&session.agent);
		check_number(status, -EACCES);
		check(bytes_digest(session.buffer.bytes, LARGE) == digest);
	}
	gpu_session_close(&session);
}

/* This end of the session dies, or the other one. */
static void owner_killed(void *unused)
{
	struct gpu_session session;
	struct pl_operation *operation;

	(void)unused;
	open_without_driver(&session, stuck_agent_alloc, LARGE);
	operation = post_slow(&session);
	agent_kill(&session.agent);
	fail_with(&session.environment, operation, -ECONNRESET);
	gpu_session_disconnect(&session);
}

static void asking_end_killed(void *unused)
{
	struct gpu_session session;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	(void)unused;
	open_as_owner(&session);
	gpu_standin_need();
	gpu_standin.delay(LONG_DELAY);
	check_ok(pl_region_share(session.buffer.region, NULL, token, &length, &error), &error);
	agent_write(&session.agent, token, length, LARGE);
	await_served(&session);
	agent_kill(&session.agent);
	check_number(pl_region_revoke(session.buffer.region, token, length), 0);
	gpu_standin.delay(0);
	gpu_session_disconnect(&session);
}

/* A large message from the owner's GPU memory, which the receiver reads. */
static void message(void *unused)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct gpu_session session;
	struct pl_error error;

	(void)unused;
	open_without_driver(&session, gpu_agent_alloc, LARGE);
	agent_fill(&session.agent, 9);
	agent_send(&session.agent, 1, LARGE);
	check_ok(pl_receive(session.peer, 1, UINT64_MAX, &(struct pl_buffer){ session.buffer.region, 0, LARGE }, NULL,
			    &operation, &error),
		 &error);
	complete(&session.environment, operation, &receipt);
	check_number(receipt.route, PL_ROUTE_DIRECT);
	pattern_check(session.buffer.bytes, LARGE, 9, 0);
	check_number(agent_wait(&session.agent), 0);
	gpu_session_close(&session);
}

/* The owner cannot map the memory: the bytes go through the socket. */
static void owner_declines(void *unused)
{
	struct gpu_session session;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	(void)unused;
	open_as_owner(&session);
	atomic_store(&endpoint_of(&session)->state->mappings, LOCAL_MAPPINGS_MAX);
	check_ok(pl_region_share(session.buffer.region, NULL, token, &length, &error), &error);
	agent_write(&session.agent, token, length, LARGE);
	check_number(agent_wait(&session.agent), 0);
	pattern_check(session.buffer.bytes, LARGE, 7, 0);
	check(!read_count(&session, &endpoint_of(&session)->serving.borrowed_count));
	atomic_store(&endpoint_of(&session)->state->mappings, 0);
	gpu_session_close(&session);
}

/* A lent region is no import of the peer, which may have none left. */
static void limit_of_imports(void *unused)
{
	struct pl_admission limited = { .rights = { .access = PL_ACCESS_ALL, .imports = 1 } }, *admission;
	struct gpu_session session;
	unsigned imported;

	(void)unused;
	open_without_driver(&session, gpu_agent_alloc, LARGE);
	pl_engine_lock(session.peer->home);
	admission = session.peer->admission;
	imported = session.peer->imported;
	session.peer->admission = &limited;
	session.peer->imported = 1;
	pl_engine_unlock(session.peer->home);
	gpu_session_check_from(&session, LOCAL_OWNER_MIN, LARGE, PL_ROUTE_DIRECT, REASON);
	check_number(read_count(&session, &session.peer->imported), 1);
	pl_engine_lock(session.peer->home);
	session.peer->admission = admission;
	session.peer->imported = imported;
	pl_engine_unlock(session.peer->home);
	gpu_session_close(&session);
}

/* -- a hostile owner ------------------------------------------------------------------------------------ */

#define HOSTILE_RANGES 64u

static int ignore_answer(struct pl_peer *peer, const struct pl_frame *frame, const uint8_t *payload)
{
	(void)peer;
	(void)frame;
	(void)payload;
	return 0;
}

struct early_answer {
	struct pl_task task;
	struct gpu_session *session;
	bool queued; /* the request had not left when it was answered */
};

/* Runs after the request was queued, in the same batch: its frame waits for the batch's end. */
static void answer_early(struct pl_task *task)
{
	struct early_answer *early = pl_container_of(task, struct early_answer, task);
	struct local_endpoint *endpoint = endpoint_of(early->session);
	struct pl_frame frame = { .type = PL_FRAME_COPIED, .offset = PL_WIRE_OK, .cookie = endpoint->asking.cookie };

	early->queued = !pl_list_empty(&tcp_endpoint_of(endpoint->lanes)->lanes[0]->queue);
	check_number(local_owner_answered(endpoint, &frame), 0);
	/* The owner's own answer ends no request. */
	tcp_endpoint_of(endpoint->lanes)->copy_frame = ignore_answer;
	pl_engine_end_batch(early->session->peer->home, false);
}

/* The answer to a request that is still queued does not end the bytes that the lane sends: the owner decodes them. */
static void answered_early(void *unused)
{
	struct pl_transfer transfers[HOSTILE_RANGES];
	struct early_answer early = { .task.run = answer_early };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct gpu_session session;
	struct pl_error error;

	(void)unused;
	open_without_driver(&session, gpu_agent_alloc, LARGE);
	early.session = &session;
	for (unsigned i = 0; i < HOSTILE_RANGES; i++)
		transfers[i] = (struct pl_transfer){ session.remote, i * 65536ull, session.buffer.region, i * 65536ull,
						     32768 };
	pl_engine_lock(session.peer->home);
	check(!pl_engine_begin_batch(session.peer->home));
	check_ok(pl_readv(session.peer, transfers, HOSTILE_RANGES, NULL, &operation, &error), &error);
	pl_engine_post(session.peer->home, &early.task);
	pl_engine_unlock(session.peer->home);
	complete(&session.environment, operation, &receipt);
	check(early.queued);
	gpu_session_close(&session);
}

/* -- a hostile asking end ------------------------------------------------------------------------------ */

/* The owner checks each range against its key, and goes on. */
static void refused(void *unused)
{
	struct gpu_session session;
	struct pl_error error;
	uint64_t length;

	(void)unused;
	open_without_driver(&session, gpu_agent_alloc, LARGE);
	length = session.remote->length;
	session.remote->length = 2 * length;
	for (unsigned i = 0; i < 2; i++) {
		struct pl_transfer beyond = { session.remote, length - 65536, session.buffer.region, 0, 65537 };
		struct pl_operation *operation;

		check_ok(i ? pl_write(session.peer, &beyond, NULL, &operation, &error)
			   : pl_read(session.peer, &beyond, NULL, &operation, &error),
			 &error);
		fail_with(&session.environment, operation, -EACCES);
	}
	session.remote->length = length;
	session.remote->key[5] ^= 1;
	check_status(gpu_session_transfer(&session, true, 0, LARGE, NULL, NULL, &error), -EACCES, &error);
	session.remote->key[5] ^= 1;
	gpu_session_check_from(&session, LOCAL_OWNER_MIN, LARGE, PL_ROUTE_DIRECT, REASON);
	gpu_session_close(&session);
}

/* Sends a frame behind the library's back. */
/* Requests of a flood: more than the owner takes, also if it has served many of them. */
enum { FLOOD = 2 * LOCAL_COPY_REQUESTS };

static void send_frame(const struct gpu_session *session, const struct pl_frame *frame,
		       const struct local_copy_request *request)
{
	/* The lane may send the bytes later. */
	static uint8_t payloads[FLOOD][PL_FRAME_SMALL_MAX];
	static unsigned used;
	uint8_t *payload = payloads[used++ % PL_ARRAY_SIZE(payloads)];
	struct pl_frame sent = *frame;

	if (request)
		sent.length = (uint32_t)local_copy_request_encode(request, payload) + frame->length;
	pl_engine_lock(session->peer->home);
	if (atomic_load(&session->peer->state) != PL_PEER_LOST)
		check_number(pl_tcp_fabric.message(endpoint_of(session)->lanes, &sent, payload, NULL), 0);
	pl_engine_unlock(session->peer->home);
}

static void await_loss(const struct gpu_session *session)
{
	while (atomic_load(&session->peer->state) != PL_PEER_LOST)
		sleep_ms(1);
}

/* Lends the buffer to the owner, whose answers do not end the connection: only the owner can. */
static void lend(const struct gpu_session *session, struct pl_lent *lent)
{
	pl_engine_lock(session->peer->home);
	tcp_endpoint_of(endpoint_of(session)->lanes)->copy_frame = ignore_answer;
	check_number(pl_grant_lend(session->buffer.region, PL_ACCESS_READ, session->peer, lent), 0);
	pl_engine_unlock(session->peer->home);
}

enum { NO_DIRECTION, BOTH_DIRECTIONS, NO_RANGES, TRAILING_BYTES, OUTSIDE, WRAPPED, OTHER_LENGTH, REVERSED, NOT_ASKED };

/* Makes a valid request, and damages it. */
static void send_damaged(const struct gpu_session *session, int damage)
{
	struct pl_frame frame = { .type = PL_FRAME_COPY, .flags = PL_COPY_WRITE, .offset = LARGE };
	struct local_copy_request request = { .count = 1, .ranges = { { .length = 65536 } } };
	struct pl_lent lent;

	lend(session, &lent);
	frame.key = lent.id;
	request.ranges[0].key = pl_remote_key_id(session->remote);
	request.key_length = lent.key_length;
	memcpy(request.key, lent.key, lent.key_length);
	if (damage == REVERSED || damage == OTHER_LENGTH)
		send_frame(session, &frame, &request);
	frame.flags = damage == NO_DIRECTION      ? 0
		      : damage == BOTH_DIRECTIONS ? 3
		      : damage == REVERSED        ? PL_COPY_READ
						  : 1;
	frame.offset -= damage == OTHER_LENGTH;
	frame.length = damage == TRAILING_BYTES;
	request.count = damage != NO_RANGES;
	request.ranges[0].offset = damage == OUTSIDE ? LARGE - 65535 : damage == WRAPPED ? UINT64_MAX - 65535 : 0;
	if (damage == NOT_ASKED)
		send_frame(session, &(struct pl_frame){ .type = PL_FRAME_COPIED, .cookie = 1 }, NULL);
	else
		send_frame(session, &frame, &request);
}

static void damaged(void *unused)
{
	struct gpu_session session;

	(void)unused;
	open_without_driver(&session, gpu_agent_alloc, LARGE);
	for (int damage = NO_DIRECTION; damage <= NOT_ASKED; damage++) {
		send_damaged(&session, damage);
		await_loss(&session);
		gpu_session_disconnect(&session);
		gpu_session_connect(&session, LARGE);
	}
	gpu_session_check_from(&session, LOCAL_OWNER_MIN, LARGE, PL_ROUTE_DIRECT, REASON);
	gpu_session_close(&session);
}

/* The owner accepts a limited number of requests at a time: one request more than that must come before the first one ends. */
static void flood(void *unused)
{
	struct gpu_session session;
	struct pl_frame frame = { .type = PL_FRAME_COPY, .flags = PL_COPY_WRITE, .offset = LARGE };
	struct local_copy_request request = { .count = 1, .ranges = { { .length = LARGE } } };
	struct pl_lent lent;

	(void)unused;
#ifdef __SANITIZE_THREAD__
	exit(SKIPPED); /* too slow for that on a loaded machine */
#endif
	open_without_driver(&session, sluggish_agent_alloc, LARGE);
	lend(&session, &lent);
	frame.key = lent.id;
	request.ranges[0].key = pl_remote_key_id(session.remote);
	request.key_length = lent.key_length;
	memcpy(request.key, lent.key, lent.key_length);
	/* The owner copies memory that is not locked in its engine, and reads no request meanwhile: some end before others come. */
	for (unsigned i = 0; i < FLOOD; i++)
		send_frame(&session, &frame, &request);
	await_loss(&session);
	gpu_session_close(&session);
}

static const struct test_case cases[] = {
	{ "owner-copies", owner_copies, NULL, 30 },
	{ "older-owner", older_owner, NULL, 30 },
	{ "blocks", blocks, NULL, 30 },
	{ "regions", regions, NULL, 30 },
	{ "canceled", canceled, NULL, 60 },
	{ "canceled while held", canceled_while_held, NULL, 60 },
	{ "revoked-there", revoked_there, NULL, 60 },
	{ "owner-killed", owner_killed, NULL, 30 },
	{ "asking-end-killed", asking_end_killed, NULL, 30 },
	{ "message", message, NULL, 30 },
	{ "owner-declines", owner_declines, NULL, 30 },
	{ "limit-of-imports", limit_of_imports, NULL, 30 },
	{ "answered-early", answered_early, NULL, 30 },
	{ "refused", refused, NULL, 30 },
	{ "damaged", damaged, NULL, 60 },
	{ "flood", flood, NULL, 120 },
};

int main(void)
{
	return cases_run("gpu-owner", cases, sizeof(cases) / sizeof(cases[0]));
}
