/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local fabric with GPU memory, between two processes.  Access is direct if the driver lets one process open the
 * other's memory; otherwise the receipt has a reason.  Grants' bounds are enforced.  Uses the stand-in for the driver,
 * or a real driver for tests that need no failure.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "fabric/local/local.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_session.h"
#include "support/local.h"

#define LARGE ((size_t)40 << 20)
/* Three elements of a write, each a copy of its own, of which two are under way together. */
#define ELEMENTS 3u
#define ELEMENT ((size_t)1 << 20)
/* Bytes of a small allocation.  The driver places small allocations next to each other in one block. */
#define SMALL 1000
/* Copies that are under way together. */
#define NO_WAIT_COPIES 8u
#define NO_WAIT_BYTES ((size_t)64 << 10)

static void gpu_to_gpu(void *unused)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct gpu_session session;
	struct pl_remote *again;
	struct pl_error error;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", LARGE);
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "the GPU copies");
	direct.flags = PL_REQUIRE_DIRECT;
	check_ok(gpu_session_transfer(&session, true, 0, LARGE, &direct, NULL, &error), &error);
	check_ok(gpu_session_transfer(&session, true, 0, 8, &direct, NULL, &error), &error);
	/* The driver's handle is opened once for all imports. */
	again = import_token(&session.environment, session.peer, session.agent.token, session.agent.token_length);
	pl_remote_release(session.remote);
	session.remote = again;
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "the GPU copies");
	if (gpu_standin.opened)
		check_number(gpu_standin.opened(), 1);
	gpu_session_close(&session);
}

/* Posts transfers that a GPU's copy of a minute would hold up, and returns their operations. */
static void post_without_wait(struct gpu_session *session, bool write, struct pl_operation *operations[NO_WAIT_COPIES])
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.flags = PL_NO_WAIT;
	for (unsigned i = 0; i < NO_WAIT_COPIES; i++) {
		struct pl_transfer transfer = { session->remote, i * NO_WAIT_BYTES, session->buffer.region,
						i * NO_WAIT_BYTES, NO_WAIT_BYTES };

		check_ok((write ? pl_write : pl_read)(session->peer, &transfer, &attributes, &operations[i], &error),
			 &error);
	}
	for (unsigned i = 0; i < NO_WAIT_COPIES; i++)
		check_number(pl_test(operations[i], NULL, NULL), -EINPROGRESS);
}

/* Several copies of a GPU are under way at once. */
static void no_wait(void *unused)
{
	struct pl_operation *operations[NO_WAIT_COPIES];
	struct gpu_session session;
	const size_t size = NO_WAIT_COPIES * NO_WAIT_BYTES;

	(void)unused;
	gpu_standin_find();
	gpu_standin_need();
	gpu_session_open(&session, gpu_agent_alloc, "alloc", size);
	for (unsigned write = 1; write < 2; write--) {
		pattern_fill(session.buffer.bytes, size, 5 + write, 0);
		if (!write)
			agent_fill(&session.agent, 5);
		gpu_standin.delay(60000000);
		post_without_wait(&session, write, operations);
		gpu_standin.delay(0);
		for (unsigned i = 0; i < NO_WAIT_COPIES; i++) {
			struct pl_completion receipt;

			complete(&session.environment, operations[i], &receipt);
			check_number(receipt.route, PL_ROUTE_DIRECT);
		}
		if (write)
			check(agent_matches(&session.agent, 6, 0, size));
		else
			pattern_check(session.buffer.bytes, size, 5, 0);
	}
	gpu_session_close(&session);
}

/* Checks that neighbours in one block of the driver are not confused. */
static void small_memory(void *unused)
{
	struct gpu_session session;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SMALL);
	gpu_session_check(&session, SMALL, PL_ROUTE_DIRECT, "the GPU copies");
	gpu_session_close(&session);
}

static void host_to_gpu(void *unused)
{
	struct gpu_session session;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, NULL, LARGE);
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "host memory of one process");
	gpu_session_close(&session);
}

static void no_preparation(int fd)
{
	(void)fd;
}

static void agent_allocates(int fd)
{
	(void)fd;
	buffers_allocated = true;
}

static void gpu_to_host(void *unused)
{
	struct gpu_session session;

	(void)unused;
	gpu_session_open(&session, no_preparation, "alloc", LARGE);
	gpu_session_check(&session, LARGE, PL_ROUTE_STAGED, "the library did not allocate it");
	gpu_session_close(&session);
}

static void gpu_to_mapped(void *unused)
{
	struct gpu_session session;

	(void)unused;
	gpu_session_open(&session, agent_allocates, "alloc", LARGE);
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "host memory of one process");
	if (gpu_standin.pinned)
		check(gpu_standin.pinned() >= LARGE);
	gpu_session_close(&session);
}

/* By default, a ring that exceeds the limit of staging buffers is locked too. */
static void gpu_to_large(void *unused)
{
	const size_t size = (size_t)160 << 20;
	struct gpu_session session;
	struct pl_staging_info info = PL_STAGING_INFO_INIT;

	(void)unused;
	gpu_session_open(&session, agent_allocates, "alloc", size);
	gpu_session_check(&session, size, PL_ROUTE_DIRECT, "host memory of one process");
	check_number(pl_staging_query(session.environment.near, &info, NULL), 0);
	check(info.locked >= size && info.locked <= info.limit);
	if (gpu_standin.pinned)
		check(gpu_standin.pinned() >= size);
	gpu_session_close(&session);
}

/* The peer's memory may not be locked for the GPU, and the receipt says so. */
static void gpu_to_unlocked(void *unused)
{
	struct gpu_session session;
	struct pl_completion receipt;
	struct pl_error error;

	(void)unused;
	gpu_session_staging = (size_t)8 << 20;
	gpu_session_open(&session, agent_allocates, "alloc", LARGE);
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "host memory of one process");
	check_ok(gpu_session_transfer(&session, true, 0, LARGE, NULL, &receipt, &error), &error);
	check(strstr(receipt.reason, "would exceed the limit"));
	if (gpu_standin.pinned)
		check(gpu_standin.pinned() <= gpu_session_staging);
	gpu_session_close(&session);
}

/* The driver cannot lock the peer's memory, and the receipt says so. */
static void gpu_to_refused(void *unused)
{
	struct gpu_session session;
	struct pl_completion receipt;
	struct pl_error error;

	(void)unused;
	gpu_standin_find();
	gpu_standin_need();
	gpu_session_open(&session, agent_allocates, "alloc", LARGE);
	gpu_standin.fail("cuMemHostRegister", 0, UINT32_MAX, CUDA_ERROR_OUT_OF_MEMORY);
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "host memory of one process");
	check_ok(gpu_session_transfer(&session, true, 0, LARGE, NULL, &receipt, &error), &error);
	check(strstr(receipt.reason, "the driver could not lock the host memory"));
	gpu_session_close(&session);
}

/* Checks a process with host memory and without a driver. */
static void no_driver(void *unused)
{
	struct gpu_session session;
	struct pl_error error;
	pid_t probe;

	(void)unused;
	probe = process_fork();
	if (!probe)
		exit(gpu_open("alloc") ? 0 : SKIPPED);
	if (process_wait(probe))
		exit(SKIPPED);
	session = (struct gpu_session){ .environment.setting = &gpu_setting };
	agent_fork(&session.agent, &gpu_setting, LARGE, gpu_agent_alloc);
	agent_ready(&session.agent);
	session.environment.near = context_open(&gpu_setting);
	check_ok(pl_connect(session.environment.near, session.agent.address, 0, &session.peer, &error), &error);
	agent_accept(&session.agent);
	session.remote =
		import_token(&session.environment, session.peer, session.agent.token, session.agent.token_length);
	buffer_open(&session.buffer, session.environment.near, LARGE, PL_ACCESS_ALL);
	gpu_session_check(&session, LARGE, PL_ROUTE_STAGED, "has not loaded the GPU's driver");
	gpu_session_close(&session);
}

/* Lets single copies fail.  A transfer from host memory consists of many chunks, and any may fail. */
static void failing_copies(void *kind)
{
	struct gpu_session session;
	struct pl_error error;

	gpu_session_open(&session, gpu_agent_alloc, kind, LARGE);
	gpu_standin_need();
	for (unsigned i = 0; i < (kind ? 1 : 5); i++) {
		gpu_standin.fail("copy", i, 1, 700);
		check_status(gpu_session_transfer(&session, true, 0, LARGE, NULL, NULL, &error), -EFAULT, &error);
		check_text(error.id, "MEMORY-UNREADABLE");
		gpu_standin.fail("copy", 0, 0, 0);
	}
	gpu_standin.fail(kind ? "across" : "cuMemcpyDtoHAsync", 0, 1, 700);
	check_status(gpu_session_transfer(&session, false, 0, LARGE, NULL, NULL, &error), -EFAULT, &error);
	check_text(error.id, "MEMORY-UNWRITABLE");
	/* The engine retries a failed small copy, and then reports the error. */
	gpu_standin.fail(kind ? "across" : "cuMemcpyHtoDAsync", 0, 2, 700);
	check_status(gpu_session_transfer(&session, true, 0, 8, NULL, NULL, &error), -EFAULT, &error);
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "GPU copies");
	gpu_session_close(&session);
}

/* -- grants ------------------------------------------------------------------------------------------- */

static int agent_writes(struct gpu_session *session, const struct pl_grant_options *options, uint64_t length,
			bool revoke)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length = sizeof(token);
	struct pl_error error;

	check_ok(pl_region_share(session->buffer.region, options, token, &token_length, &error), &error);
	agent_write(&session->agent, token, token_length, length);
	if (revoke)
		check_number(pl_region_revoke(session->buffer.region, token, token_length), 0);
	return agent_wait(&session->agent);
}

/* Checks a grant's bounds: the driver opens the whole allocation, but a peer accesses only the granted range. */
static void bounds(void *unused)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct gpu_session session;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", LARGE);
	agent_fill(&session.agent, 7);
	options.offset = 5000;
	options.length = 3 << 20;
	check_number(agent_writes(&session, &options, 3 << 20, false), 0);
	value_check(session.buffer.bytes, 5000, POISON);
	pattern_check(session.buffer.bytes + 5000, 3 << 20, 7, 0);
	value_check(session.buffer.bytes + 5000 + (3 << 20), 5000, POISON);
	gpu_session_close(&session);
}

static void revoked(void *unused)
{
	struct gpu_session session;
	int status;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", LARGE);
	agent_fill(&session.agent, 8);
	for (unsigned i = 0; i < 5; i++) {
		status = agent_writes(&session, NULL, LARGE, true);
		check_one_of(status, 0, -EACCES);
		/* No byte arrives after the grant has ended. */
		bytes_set(session.buffer.bytes, POISON, LARGE);
		sleep_ms(5);
		value_check(session.buffer.bytes, LARGE, POISON);
	}
	gpu_session_close(&session);
}

static void expired(void *unused)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct gpu_session session;
	struct pl_error error;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	int status;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SMALL);
	/* The first write ends within the lifetime, on a busy machine too. */
	options.lifetime = 2 * slowness() * SECOND;
	check_ok(pl_region_share(session.buffer.region, &options, token, &length, &error), &error);
	agent_write(&session.agent, token, length, SMALL);
	check_number(agent_wait(&session.agent), 0);
	sleep_ms((unsigned)(options.lifetime / MS) + 100);
	agent_rewrite(&session.agent, SMALL);
	status = agent_wait(&session.agent);
	check_number(status, -EACCES);
	gpu_session_close(&session);
}

/* Posts a write of which two copies are under way when this returns. */
static struct pl_operation *post_elements(struct scenario_environment *environment, struct pl_remote *remote,
					  const struct buffer *near)
{
	const struct local_access *access = remote->fabric_data;
	struct pl_transfer transfers[ELEMENTS];
	struct pl_operation *operation;
	struct pl_error error;

	for (size_t i = 0; i < ELEMENTS; i++)
		transfers[i] = (struct pl_transfer){ remote, i * ELEMENT, near->region, i * ELEMENT, ELEMENT };
	check_ok(pl_writev(environment->near_peer, transfers, ELEMENTS, NULL, &operation, &error), &error);
	check(local_gate_is_held(access->gate));
	return operation;
}

/*
 * Revokes during a write of a process that makes no progress: each revocation waits for the write's copies, 1 s at most. Copies that
 * take longer on a slow machine may end later.
 */
static void revoke_from_idle(struct scenario_environment *environment)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct buffer near, far;
	uint64_t digest, begin;
	struct pl_error error;
	bool waited;

	buffer_open(&near, environment->near, ELEMENTS * ELEMENT, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, ELEMENTS * ELEMENT, PL_ACCESS_ALL);
	bytes_set(near.bytes, 1, ELEMENTS * ELEMENT);
	bytes_set(far.bytes, 2, ELEMENTS * ELEMENT);
	check_ok(pl_region_share(far.region, NULL, token, &length, &error), &error);
	remote = import_token(environment, environment->near_peer, token, length);
	gpu_standin.delay(50 * 1000);
	operation = post_elements(environment, remote, &near);
	begin = clock_now();
	check_number(pl_region_revoke(far.region, token, length), 0);
	waited = clock_now() - begin >= SECOND;
	gpu_standin.delay(0);
	digest = bytes_digest(far.bytes, ELEMENTS * ELEMENT);
	fail_with(environment, operation, -EACCES);
	check(waited || bytes_digest(far.bytes, ELEMENTS * ELEMENT) == digest);
	value_check(far.bytes + 2 * ELEMENT, ELEMENT, 2);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

static void idle_writer(void *unused)
{
	static const struct setting manual = { "manual", "local", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false,
					       false,    true,    false };
	struct scenario_environment environment;

	(void)unused;
	gpu_standin_find();
	gpu_standin_need();
	check(gpu_open("alloc"));
	environment_open(&environment, &manual);
	revoke_from_idle(&environment);
	revoke_from_idle(&environment);
	environment_close(&environment);
}

/* Revokes memory, then opens its gate again, as a hostile owner might: the closed mapping must stay unused. */
static void opened_again(void *unused)
{
	struct scenario_environment environment;
	uint8_t token[2][PL_TOKEN_MAX];
	size_t length[2] = { PL_TOKEN_MAX, PL_TOKEN_MAX };
	const struct local_access *access, *last;
	struct pl_operation *operation;
	struct pl_remote *remotes[2];
	struct pl_region *marker;
	struct buffer near, far;
	struct pl_error error;

	(void)unused;
	gpu_standin_find();
	check(gpu_open("alloc"));
	environment_open(&environment, &local_threads);
	buffer_open(&near, environment.near, LARGE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, LARGE, PL_ACCESS_ALL);
	check_ok(pl_region_allocate(environment.far, 4096, PL_ACCESS_ALL, &marker, &error), &error);
	for (unsigned i = 0; i < 2; i++) {
		check_ok(pl_region_share(i ? marker : far.region, NULL, token[i], &length[i], &error), &error);
		remotes[i] = import_token(&environment, environment.near_peer, token[i], length[i]);
	}
	access = remotes[0]->fabric_data;
	last = remotes[1]->fabric_data;
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remotes[0], 0, near.region, 0, 8 }, NULL,
			  &operation, &error),
		 &error);
	complete(&environment, operation, NULL);
	check_number(pl_region_revoke(far.region, token[0], length[0]), 0);
	check_number(pl_region_revoke(marker, token[1], length[1]), 0);
	/* Revocations arrive in order: once this mapping is closed, this process has handled both. */
	progress_until(&environment, !mapping_shared(last->base));
	atomic_store(&access->gate->open, access->number);
	for (unsigned i = 0; i < 2; i++) {
		check_ok(pl_write(environment.near_peer,
				  &(struct pl_transfer){ remotes[0], 0, near.region, 0, i ? LARGE : 8 }, NULL,
				  &operation, &error),
			 &error);
		fail_with(&environment, operation, -EFAULT);
	}
	pl_remote_release(remotes[0]);
	pl_remote_release(remotes[1]);
	check_number(pl_region_deregister(marker), 0);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

/* Locks the mapping of a key for copies of a GPU, as a subscriber does with a ring; and of one that was revoked. */
static void lock_revoked(void *unused)
{
	struct scenario_environment environment;
	uint8_t token[2][PL_TOKEN_MAX];
	size_t length[2] = { PL_TOKEN_MAX, PL_TOKEN_MAX }, locked;
	struct pl_remote *remotes[2];
	struct pl_region *far;
	struct buffer near;
	struct pl_error error;

	(void)unused;
	gpu_standin_find();
	gpu_standin_need();
	check(gpu_open("alloc"));
	environment_open(&environment, &local_manual);
	buffer_open(&near, environment.near, ELEMENT, PL_ACCESS_LOCAL);
	check_ok(pl_region_allocate(environment.far, ELEMENT, PL_ACCESS_ALL, &far, &error), &error);
	for (unsigned i = 0; i < 2; i++) {
		check_ok(pl_region_share(far, NULL, token[i], &length[i], &error), &error);
		remotes[i] = import_token(&environment, environment.near_peer, token[i], length[i]);
	}
	check_number(pl_region_revoke(far, token[1], length[1]), 0);
	/* This process has not made progress since, so it maps the memory of both keys. */
	locked = gpu_standin.pinned();
	for (unsigned i = 2; i-- > 0;) {
		environment.near_peer->ops->lock_mapping(remotes[i], &near.region->memory);
		check_number(gpu_standin.pinned() - locked, i ? 0 : ELEMENT);
	}
	pl_remote_release(remotes[0]);
	pl_remote_release(remotes[1]);
	check_number(pl_region_deregister(far), 0);
	buffer_close(&near);
	environment_close(&environment);
}

/* -- messages, and the end of the other process -------------------------------------------------------- */

static void messages(void *prepare)
{
	void (*agent_memory)(int) = prepare ? gpu_agent_pool : gpu_agent_alloc;
	enum pl_route route = prepare ? PL_ROUTE_STAGED : PL_ROUTE_DIRECT;
	struct pl_operation *operation;
	struct gpu_session session;
	struct pl_completion receipt;
	struct pl_error error;

	gpu_session_open(&session, agent_memory, prepare ? "pool" : "alloc", LARGE);
	agent_fill(&session.agent, 9);
	agent_send(&session.agent, 1, LARGE);
	check_ok(pl_receive(session.peer, 1, UINT64_MAX, &(struct pl_buffer){ session.buffer.region, 0, LARGE }, NULL,
			    &operation, &error),
		 &error);
	complete(&session.environment, operation, &receipt);
	check_number(receipt.route, route);
	pattern_check(session.buffer.bytes, LARGE, 9, 0);
	check_number(agent_wait(&session.agent), 0);
	/* The message's memory stays open for the next message, besides the imported memory. */
	if (gpu_standin.opened && !prepare) {
		check_number(gpu_standin.opened(), 1);
		gpu_standin.fail("cuIpcOpenMemHandle", 0, 1, 801);
		agent_send(&session.agent, 1, LARGE);
		check_ok(pl_receive(session.peer, 1, UINT64_MAX, &(struct pl_buffer){ session.buffer.region, 0, LARGE },
				    NULL, &operation, &error),
			 &error);
		complete(&session.environment, operation, &receipt);
		check_number(receipt.route, PL_ROUTE_DIRECT);
		check_number(agent_wait(&session.agent), 0);
		gpu_standin.fail("cuIpcOpenMemHandle", 0, 0, 0);
	}
	pattern_fill(session.buffer.bytes, LARGE, 10, 0);
	agent_receive(&session.agent, 2, LARGE);
	check_ok(pl_send(session.peer, 2, &(struct pl_buffer){ session.buffer.region, 0, LARGE }, NULL, &operation,
			 &error),
		 &error);
	complete(&session.environment, operation, &receipt);
	/* The sender's receipt has the receiver's route. */
	check_number(receipt.route, route);
	check_number(receipt.bytes_staged, prepare ? LARGE : 0);
	check_number(agent_wait(&session.agent), 0);
	check(agent_matches(&session.agent, 10, 0, LARGE));
	gpu_session_close(&session);
}

/* -- a driver that hangs ------------------------------------------------------------------------------ */

static void *write_first(void *argument)
{
	struct gpu_session *session = argument;
	struct pl_error error;

	check_one_of(gpu_session_transfer(session, true, 0, 8, NULL, NULL, &error), -EACCES, -EFAULT);
	return NULL;
}

static bool revocation_is_noted(struct pl_peer *peer)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record records[64];
	int count = pl_peer_events(peer, &query, records, 64);

	check(count >= 0);
	while (count--)
		if (records[count].event == PL_EVENT_REVOKED_THERE)
			return true;
	return false;
}

/* The grant ends while the driver hangs in the first use of the memory. The engine goes on, and the memory is closed later. */
static void revoked_while_opening(void *unused)
{
	struct gpu_session session;
	pthread_t thread;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", LARGE);
	gpu_standin_need();
	gpu_standin.stall("cuIpcOpenMemHandle");
	check_number(pthread_create(&thread, NULL, write_first, &session), 0);
	while (!gpu_standin.stalled())
		usleep(1000);
	agent_revoke(&session.agent);
	while (!revocation_is_noted(session.peer))
		usleep(1000);
	/* The engine notes the revocation and closes the memory under this lock. */
	pl_engine_lock(session.peer->home);
	pl_engine_unlock(session.peer->home);
	check_number(gpu_standin.stalled(), 1);
	gpu_standin.stall(NULL);
	check_number(pthread_join(thread, NULL), 0);
	check_number(gpu_standin.opened(), 0);
	gpu_session_close(&session);
}

static const struct test_case cases[] = {
	{ "gpu-to-gpu", gpu_to_gpu, NULL, 30 },
	{ "no-wait", no_wait, NULL, 30 },
	{ "small-memory", small_memory, NULL, 20 },
	{ "host-to-gpu", host_to_gpu, NULL, 30 },
	{ "gpu-to-host", gpu_to_host, NULL, 30 },
	{ "gpu-to-mapped", gpu_to_mapped, NULL, 30 },
	{ "gpu-to-large", gpu_to_large, NULL, 60 },
	{ "gpu-to-unlocked", gpu_to_unlocked, NULL, 30 },
	{ "gpu-to-refused", gpu_to_refused, NULL, 30 },
	{ "no-driver", no_driver, NULL, 30 },
	{ "failing-copies", failing_copies, "alloc", 30 },
	{ "failing-host-copies", failing_copies, NULL, 30 },
	{ "bounds", bounds, NULL, 20 },
	{ "revoked", revoked, NULL, 30 },
	{ "expired", expired, NULL, 20 },
	{ "idle-writer", idle_writer, NULL, 30 },
	{ "opened-again", opened_again, NULL, 30 },
	{ "revoked-while-opening", revoked_while_opening, NULL, 30 },
	{ "lock-revoked", lock_revoked, NULL, 30 },
	{ "message-direct", messages, NULL, 20 },
	{ "message-staged", messages, "pool", 20 },
};

int main(void)
{
	return cases_run("gpu-local", cases, sizeof(cases) / sizeof(cases[0]));
}
