/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies between GPU memory and host memory that is not locked, over the local fabric. The driver makes them while the engine waits, so
 * a round of the engine copies few of their bytes. Both ends have manual progress: the test counts the bytes of each round.
 */
#include <pthread.h>

#include "fabric/local/local.h"
#include "fabric/tcp/tcp.h"
#include "staging/staging.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/gpu.h"
#include "support/gpu_session.h"

#define LENGTH ((size_t)16 << 20)
#define OPERATIONS 3

static const struct setting manual = {
	.name = "manual", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

struct rig {
	struct scenario_environment environment;
	struct buffer host, gpu;
	struct pl_remote *remote; /* the GPU's memory */
	const char *kind;         /* of the GPU's memory */
};

static void rig_open(struct rig *rig)
{
	gpu_standin_find();
	gpu_standin_need();
	check(gpu_open("alloc"));
	environment_open(&rig->environment, &manual);
	buffer_open(&rig->gpu, rig->environment.far, LENGTH, PL_ACCESS_ALL);
	/* The other buffer is host memory. */
	rig->kind = gpu_kind;
	gpu_kind = NULL;
	buffer_open(&rig->host, rig->environment.near, LENGTH, PL_ACCESS_LOCAL);
	rig->remote = share(&rig->environment, rig->gpu.region, rig->environment.near_peer, NULL);
}

static void rig_close(struct rig *rig)
{
	pl_remote_release(rig->remote);
	buffer_close(&rig->host);
	gpu_kind = rig->kind;
	buffer_close(&rig->gpu);
	environment_close(&rig->environment);
}

static struct pl_operation *start_copy(const struct rig *rig, bool write)
{
	const struct pl_transfer all = { rig->remote, 0, rig->host.region, 0, LENGTH };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok((write ? pl_write : pl_read)(rig->environment.near_peer, &all, NULL, &operation, &error), &error);
	return operation;
}

/* Returns the most bytes that a round, or a call that posts an operation, copied. */
static size_t run_copies(const struct rig *rig, bool write)
{
	struct pl_operation *operations[OPERATIONS];
	size_t most = 0, copied = gpu_standin.copied();
	struct pl_completion receipt;
	struct pl_error error;
	unsigned done = 0;

	for (unsigned i = 0; i < OPERATIONS; i++) {
		operations[i] = start_copy(rig, write);
		most = PL_MAX(most, gpu_standin.copied() - copied);
		copied = gpu_standin.copied();
	}
	while (done < OPERATIONS) {
		int rc = pl_test(operations[done], &receipt, &error);

		most = PL_MAX(most, gpu_standin.copied() - copied);
		copied = gpu_standin.copied();
		if (rc == -EINPROGRESS)
			continue;
		check_ok(rc, &error);
		check_number(receipt.route, PL_ROUTE_DIRECT);
		done++;
	}
	return most;
}

static void copy_unlocked(void *write)
{
	struct rig rig;

	rig_open(&rig);
	pattern_fill(rig.host.bytes, LENGTH, 5, 0);
	check(run_copies(&rig, write != NULL) <= PL_BLOCKING_MAX);
	if (write)
		pattern_check(rig.gpu.bytes, LENGTH, 5, 0);
	rig_close(&rig);
}

/* Starts a write or read of the whole buffer by a vector, which goes through locked memory of the library. */
static struct pl_operation *start_vector(const struct rig *rig, bool write)
{
	enum { COUNT = 64 };
	struct pl_transfer transfers[COUNT];
	struct pl_operation *operation;
	struct pl_error error;

	for (size_t i = 0; i < COUNT; i++)
		transfers[i] = (struct pl_transfer){ rig->remote, i * (LENGTH / COUNT), rig->host.region,
						     i * (LENGTH / COUNT), LENGTH / COUNT };
	check_ok((write ? pl_writev : pl_readv)(rig->environment.near_peer, transfers, COUNT, NULL, &operation, &error),
		 &error);
	return operation;
}

/*
 * The processor copies as little in a round: a piece of 512 KiB for each kernel, before it or after it. The first kernels of a read need
 * no copies.
 */
static void copy_by_pieces(void *write)
{
	unsigned kernels, most = 0, rounds = 0;
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct pl_error error;
	struct rig rig;
	int rc;

	rig_open(&rig);
	pattern_fill(write ? rig.host.bytes : rig.gpu.bytes, LENGTH, 5, 0);
	kernels = gpu_standin_launched();
	operation = start_vector(&rig, write != NULL);
	do {
		unsigned now = gpu_standin_launched();

		if (write || rounds++)
			most = PL_MAX(most, now - kernels);
		kernels = now;
		rc = pl_test(operation, &receipt, &error);
	} while (rc == -EINPROGRESS);
	check_ok(rc, &error);
	check_number(receipt.route, PL_ROUTE_STAGED);
	check(most > 0 && most <= PL_BLOCKING_MAX / (512 << 10));
	if (write)
		pattern_check(rig.gpu.bytes, LENGTH, 5, 0);
	else
		pattern_check(rig.host.bytes, LENGTH, 5, 0);
	rig_close(&rig);
}

/* Locked memory is copied in few large chunks, as the engine does not wait. */
static void copy_locked(void *unused)
{
	struct rig rig;
	unsigned before;

	(void)unused;
	rig_open(&rig);
	gpu_pin(rig.host.bytes, LENGTH);
	before = gpu_standin.copies();
	run_copies(&rig, true);
	check_number(gpu_standin.copies() - before, OPERATIONS * 4);
	gpu_unpin(rig.host.bytes);
	rig_close(&rig);
}

/* A cancelled operation that waits for its turn ends, and the others go on. The end of the peer ends all, also those whose kernels run. */
static void cancel_waiting(void *pieces)
{
	struct pl_operation *(*start)(const struct rig *, bool) = pieces ? start_vector : start_copy;
	struct pl_operation *first, *second;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig);
	first = start(&rig, true);
	second = start(&rig, true);
	pl_cancel(second);
	check_status(pl_wait(second, AMPLE_TIME, NULL, &error), -ECANCELED, &error);
	check_ok(pl_wait(first, AMPLE_TIME, NULL, &error), &error);
	first = start(&rig, true);
	second = start(&rig, !pieces);
	pl_peer_close(rig.environment.near_peer);
	rig.environment.near_peer = NULL;
	check(pl_wait(first, AMPLE_TIME, NULL, &error) < 0);
	check(pl_wait(second, AMPLE_TIME, NULL, &error) < 0);
	rig_close(&rig);
}

static void agent_allocates(int fd)
{
	(void)fd;
	buffers_allocated = true;
}

/* The owner of GPU memory copies for a process without the driver. The first copies are of memory that is not locked. */
static void owner_copies_unlocked(void *unused)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct gpu_session session;
	struct pl_error error;
	unsigned before;

	(void)unused;
	gpu_session_open(&session, agent_allocates, "alloc", LENGTH);
	gpu_standin_need();
	agent_fill(&session.agent, 7);
	check_ok(pl_region_share(session.buffer.region, NULL, token, &length, &error), &error);
	before = gpu_standin.copies();
	agent_write(&session.agent, token, length, LENGTH);
	check_number(agent_wait(&session.agent), 0);
	check_number(gpu_standin.copies() - before, LENGTH / PL_BLOCKING_MAX);
	pattern_check(session.buffer.bytes, LENGTH, 7, 0);
	gpu_session_close(&session);
}

/* Only this process may have memory of pl_region_allocate(). */
static void agent_on_gpu(int fd)
{
	buffers_allocated = false;
	gpu_agent_alloc(fd);
}

static void *write_until_revoked(void *session)
{
	struct pl_completion receipt;
	struct pl_error error;

	check_status(gpu_session_transfer(session, true, 0, LENGTH, NULL, &receipt, &error), -EACCES, &error);
	return NULL;
}

/*
 * The lock of much memory takes longer than the owner waits, which then gets no byte of a copy that begins after the lock. A thread
 * posts the operation, because the call itself may lock.
 */
static void revoked_during_lock(void *unused)
{
	struct pl_completion receipt;
	struct gpu_session session;
	struct pl_error error;
	pthread_t thread;

	(void)unused;
	buffers_allocated = true;
	gpu_session_open(&session, agent_on_gpu, NULL, LENGTH);
	gpu_standin_need();
	pattern_fill(session.buffer.bytes, LENGTH, 14, 0);
	check_ok(gpu_session_transfer(&session, true, 0, LENGTH, NULL, &receipt, &error), &error);
	gpu_standin.stall("cuMemHostRegister");
	check_number(pthread_create(&thread, NULL, write_until_revoked, &session), 0);
	while (!gpu_standin.stalled())
		sleep_ms(1);
	agent_revoke(&session.agent);
	agent_fill(&session.agent, 15);
	gpu_standin.stall(NULL);
	check_number(pthread_join(thread, NULL), 0);
	check(agent_matches(&session.agent, 15, 0, LENGTH));
	gpu_session_close(&session);
}

/* Copy frames that came while the round of the engine had no time left for them, and those of them that were served at once. */
static struct hasty {
	struct pl_watch other; /* has used up the round */
	int (*copy_frame)(struct pl_peer *peer, const struct pl_frame *frame, const uint8_t *payload);
	unsigned frames, served_at_once;
} hasty;

static bool let_others_go_on(struct pl_watch *watch)
{
	(void)watch;
	return false;
}

static int copy_frame_late(struct pl_peer *peer, const struct pl_frame *frame, const uint8_t *payload)
{
	unsigned before = gpu_standin.copies();
	int rc;

	pl_copier_may_block(pl_context_copier(peer->context, peer->home), &hasty.other, PL_BLOCKING_MAX);
	rc = hasty.copy_frame(peer, frame, payload);
	hasty.frames++;
	hasty.served_at_once += gpu_standin.copies() != before;
	return rc;
}

/* The owner serves a short request in a later round, if others have used up this one. */
static void owner_takes_turns(void *unused)
{
	struct tcp_endpoint *lanes;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct gpu_session session;
	struct pl_error error;

	(void)unused;
	gpu_session_open(&session, agent_allocates, "alloc", PL_BLOCKING_MAX);
	gpu_standin_need();
	agent_fill(&session.agent, 7);
	check_ok(pl_region_share(session.buffer.region, NULL, token, &length, &error), &error);
	pl_watch_init(&hasty.other, let_others_go_on);
	lanes = tcp_endpoint_of(local_endpoint_of(session.peer->endpoint)->lanes);
	pl_engine_lock(session.peer->home);
	hasty.copy_frame = lanes->copy_frame;
	lanes->copy_frame = copy_frame_late;
	pl_engine_unlock(session.peer->home);
	agent_write(&session.agent, token, length, PL_BLOCKING_MAX);
	check_number(agent_wait(&session.agent), 0);
	pl_engine_lock(session.peer->home);
	check_number(hasty.frames, 1);
	check_number(hasty.served_at_once, 0);
	pl_watch_remove(&hasty.other);
	pl_engine_unlock(session.peer->home);
	pattern_check(session.buffer.bytes, PL_BLOCKING_MAX, 7, 0);
	gpu_session_close(&session);
}

static const struct test_case cases[] = {
	{ "write-unlocked", copy_unlocked, "write", 30 },
	{ "read-unlocked", copy_unlocked, NULL, 30 },
	{ "write-by-pieces", copy_by_pieces, "write", 30 },
	{ "read-by-pieces", copy_by_pieces, NULL, 30 },
	{ "write-locked", copy_locked, NULL, 30 },
	{ "cancel-waiting", cancel_waiting, NULL, 30 },
	{ "cancel-waiting-pieces", cancel_waiting, "pieces", 30 },
	{ "owner-copies-unlocked", owner_copies_unlocked, NULL, 30 },
	{ "owner-takes-turns", owner_takes_turns, NULL, 30 },
	{ "revoked-during-lock", revoked_during_lock, NULL, 30 },
};

int main(void)
{
	return cases_run("gpu-turns", cases, PL_ARRAY_SIZE(cases));
}
