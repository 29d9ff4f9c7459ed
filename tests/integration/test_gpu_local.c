/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local fabric and the memory of GPUs, between two processes: direct where the driver lets one process open
 * the other's memory, with a reason where not, and with the grants' bounds.  With the stand-in for the driver; what
 * needs no failure, with a real one.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "fabric/local/local.h"
#include "memory/cuda/cuda.h"
#include "support/agent.h"
#include "support/cases.h"
#include "support/gpu.h"

#define LARGE ((size_t)80 << 20)
/* Such allocations lie next to each other. */
#define SMALL 1000

static const struct setting setting = {
	.name = "gpu-local",
	.fabric = "auto",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_THREAD,
	.streams = 2,
	.one_sided = true,
};

static struct {
	void (*fail)(const char *call, unsigned skip, unsigned count, int result);
	size_t (*opened)(void);
	unsigned (*depth)(void);
} standin;

static void find_standin(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *found;

	found = library ? dlsym(library, "standin_fail") : NULL;
	memcpy(&standin.fail, &found, sizeof(found));
	found = library ? dlsym(library, "standin_opened") : NULL;
	memcpy(&standin.opened, &found, sizeof(found));
	found = library ? dlsym(library, "standin_depth") : NULL;
	memcpy(&standin.depth, &found, sizeof(found));
}

static void need_standin(void)
{
	if (!standin.fail)
		exit(SKIPPED);
}

/* -- two processes: this one, and an agent with memory of the kind that `prepare` opens ------------------ */

struct session {
	struct agent agent;
	struct scenario_environment environment; /* only near */
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct buffer buffer;
};

static void agent_has_gpu(int fd)
{
	(void)fd;
	if (!gpu_open("alloc"))
		exit(SKIPPED);
}

static void agent_has_pool(int fd)
{
	(void)fd;
	if (!gpu_open("pool"))
		exit(SKIPPED);
}

/* A driver does not survive fork(2), so the agent comes first; `kind` is this process's memory, NULL: the host's. */
static void session_open(struct session *session, void (*prepare)(int), const char *kind, size_t size)
{
	struct pl_error error;

	agent_fork(&session->agent, &setting, size, prepare);
	if (!gpu_open("alloc"))
		exit(SKIPPED);
	find_standin();
	gpu_kind = kind;
	agent_ready(&session->agent);
	session->environment = (struct scenario_environment){ .setting = &setting };
	session->environment.near = context_open(&setting);
	check_ok(pl_connect(session->environment.near, session->agent.address, 0, &session->peer, &error), &error);
	agent_accept(&session->agent);
	session->environment.near_peer = session->peer;
	check_ok(pl_remote_import(session->peer, session->agent.token, session->agent.token_length, 0, &session->remote,
				  &error),
		 &error);
	buffer_open(&session->buffer, session->environment.near, size, PL_ACCESS_ALL);
}

static void session_close(struct session *session)
{
	pl_remote_release(session->remote);
	pl_peer_close(session->peer);
	buffer_close(&session->buffer);
	pl_close(session->environment.near);
	agent_stop(&session->agent);
	if (standin.opened)
		check_number(standin.opened(), 0);
	if (standin.depth)
		check_number(standin.depth(), 0);
}

static int transfer(struct session *session, bool write, uint64_t offset, uint64_t length,
		    const struct pl_attributes *attributes, struct pl_receipt *receipt, struct pl_error *error)
{
	struct pl_region *region = session->buffer.region;
	struct pl_operation *operation;
	int rc;

	if (write)
		rc = pl_write(session->peer, session->remote, offset, region, offset, length, attributes, &operation,
			      error);
	else
		rc = pl_read(session->peer, session->remote, offset, region, offset, length, attributes, &operation,
			     error);
	return rc < 0 ? rc : await(&session->environment, operation, receipt, error);
}

static void check_way(const struct pl_receipt *receipt, enum pl_route route, uint64_t bytes, const char *reason)
{
	check_text(receipt->fabric, "local");
	check_number(receipt->route, route);
	check_number(receipt->bytes, bytes);
	check_number(receipt->bytes_direct, route == PL_ROUTE_DIRECT ? bytes : 0);
	check_number(receipt->bytes_staged, route == PL_ROUTE_STAGED ? bytes : 0);
	if (!strstr(receipt->reason, reason))
		check_text(receipt->reason, reason);
}

/* Writes and reads of several sizes arrive, by that way. */
static void check_moves(struct session *session, size_t size, enum pl_route route, const char *reason)
{
	const size_t lengths[] = { 8, 1000, 1 << 20, (1 << 20) + 1, size };
	struct pl_receipt receipt;
	struct pl_error error;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t length = lengths[i], offset = size - length;
		uint64_t seed = i + 1;

		if (length > size)
			continue;
		pattern_fill(session->buffer.bytes + offset, length, seed, offset);
		check_ok(transfer(session, true, offset, length, NULL, &receipt, &error), &error);
		check_way(&receipt, route, length, reason);
		check(agent_matches(&session->agent, seed, offset, length));
		bytes_set(session->buffer.bytes, POISON, size);
		check_ok(transfer(session, false, offset, length, NULL, &receipt, &error), &error);
		check_way(&receipt, route, length, reason);
		pattern_check(session->buffer.bytes + offset, length, seed, offset);
		if (offset)
			value_check(session->buffer.bytes, 1, POISON);
	}
}

static void gpu_to_gpu(void *unused)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct session session;
	struct pl_remote *again;
	struct pl_error error;

	(void)unused;
	session_open(&session, agent_has_gpu, "alloc", LARGE);
	check_moves(&session, LARGE, PL_ROUTE_DIRECT, "the GPU copies");
	direct.flags = PL_REQUIRE_DIRECT;
	check_ok(transfer(&session, true, 0, LARGE, &direct, NULL, &error), &error);
	check_ok(transfer(&session, true, 0, 8, &direct, NULL, &error), &error);
	/* Opened once, however often it is imported. */
	again = import_token(&session.environment, session.peer, session.agent.token, session.agent.token_length);
	pl_remote_release(session.remote);
	session.remote = again;
	check_moves(&session, LARGE, PL_ROUTE_DIRECT, "the GPU copies");
	if (standin.opened)
		check_number(standin.opened(), 1);
	session_close(&session);
}

/* Neighbours in the driver's blocks must not be taken for each other. */
static void small_memory(void *unused)
{
	struct session session;

	(void)unused;
	session_open(&session, agent_has_gpu, "alloc", SMALL);
	check_moves(&session, SMALL, PL_ROUTE_DIRECT, "the GPU copies");
	session_close(&session);
}

static void host_to_gpu(void *unused)
{
	struct session session;

	(void)unused;
	session_open(&session, agent_has_gpu, NULL, LARGE);
	check_moves(&session, LARGE, PL_ROUTE_DIRECT, "host memory of one process");
	session_close(&session);
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
	struct session session;

	(void)unused;
	session_open(&session, no_preparation, "alloc", LARGE);
	check_moves(&session, LARGE, PL_ROUTE_STAGED, "the library did not allocate it");
	session_close(&session);
}

static void gpu_to_mapped(void *unused)
{
	struct session session;

	(void)unused;
	session_open(&session, agent_allocates, "alloc", LARGE);
	check_moves(&session, LARGE, PL_ROUTE_DIRECT, "host memory of one process");
	session_close(&session);
}

/* Memory that the driver does not share goes by the socket, and the receipt says so. */
static void not_shared(void *unused)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct session session;
	struct pl_error error;

	(void)unused;
	session_open(&session, agent_has_pool, "alloc", LARGE);
	check_moves(&session, LARGE, PL_ROUTE_STAGED, "cudaMalloc()");
	direct.flags = PL_REQUIRE_DIRECT;
	check_status(transfer(&session, true, 0, LARGE, &direct, NULL, &error), -ENOTSUP, &error);
	check_text(error.id, "NOT-DIRECT");
	session_close(&session);
}

/* This process has host memory, and no driver. */
static void no_driver(void *unused)
{
	struct session session;
	struct pl_error error;
	pid_t probe;

	(void)unused;
	probe = process_fork();
	if (!probe)
		exit(gpu_open("alloc") ? 0 : SKIPPED);
	if (process_wait(probe))
		exit(SKIPPED);
	session = (struct session){ .environment.setting = &setting };
	agent_fork(&session.agent, &setting, LARGE, agent_has_gpu);
	agent_ready(&session.agent);
	session.environment.near = context_open(&setting);
	check_ok(pl_connect(session.environment.near, session.agent.address, 0, &session.peer, &error), &error);
	agent_accept(&session.agent);
	session.remote =
		import_token(&session.environment, session.peer, session.agent.token, session.agent.token_length);
	buffer_open(&session.buffer, session.environment.near, LARGE, PL_ACCESS_ALL);
	check_moves(&session, LARGE, PL_ROUTE_STAGED, "has not loaded the GPU's driver");
	session_close(&session);
}

static void driver_refuses(void *unused)
{
	struct session session;

	(void)unused;
	session_open(&session, agent_has_gpu, "alloc", SMALL);
	need_standin();
	standin.fail("cuIpcOpenMemHandle", 0, UINT32_MAX, 801);
	check_moves(&session, SMALL, PL_ROUTE_STAGED, "does not let this process open");
	session_close(&session);
}

/* From host memory there are many chunks: any of them may fail. */
static void failing_copies(void *kind)
{
	struct session session;
	struct pl_error error;

	session_open(&session, agent_has_gpu, kind, LARGE);
	need_standin();
	for (unsigned i = 0; i < (kind ? 1 : 5); i++) {
		standin.fail("copy", i, 1, 700);
		check_status(transfer(&session, true, 0, LARGE, NULL, NULL, &error), -EFAULT, &error);
		check_text(error.id, "MEMORY-UNREADABLE");
		standin.fail("copy", 0, 0, 0);
	}
	standin.fail(kind ? "across" : "cuMemcpyDtoHAsync", 0, 1, 700);
	check_status(transfer(&session, false, 0, LARGE, NULL, NULL, &error), -EFAULT, &error);
	check_text(error.id, "MEMORY-UNWRITABLE");
	/* A small one that failed is tried again, and told of, by the engine. */
	standin.fail(kind ? "across" : "cuMemcpyHtoDAsync", 0, 2, 700);
	check_status(transfer(&session, true, 0, 8, NULL, NULL, &error), -EFAULT, &error);
	check_moves(&session, LARGE, PL_ROUTE_DIRECT, "GPU copies");
	session_close(&session);
}

/* The peer's memory is not kept from being freed by who may not use it any more. */
static void revoked_is_closed(void *unused)
{
	struct session session;
	struct pl_error error;
	uint64_t until;

	(void)unused;
	session_open(&session, agent_has_gpu, "alloc", SMALL);
	need_standin();
	check_ok(transfer(&session, true, 0, 8, NULL, NULL, &error), &error);
	check_number(standin.opened(), 1);
	agent_revoke(&session.agent);
	until = clock_now() + 10 * PL_NS_PER_S;
	while (standin.opened()) {
		check(clock_now() < until);
		settle(&session.environment, 1);
	}
	check_status(transfer(&session, true, 0, 8, NULL, NULL, &error), -EACCES, &error);
	check_number(standin.opened(), 0);
	session_close(&session);
}

/* -- grants ------------------------------------------------------------------------------------------- */

static int agent_writes(struct session *session, const struct pl_grant_options *options, uint64_t length, bool revoke)
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

/* What the driver lets a process reach is the allocation; what a peer reaches is what was granted. */
static void bounds(void *unused)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct session session;

	(void)unused;
	session_open(&session, agent_has_gpu, "alloc", LARGE);
	agent_fill(&session.agent, 7);
	options.offset = 5000;
	options.length = 3 << 20;
	check_number(agent_writes(&session, &options, 3 << 20, false), 0);
	value_check(session.buffer.bytes, 5000, POISON);
	pattern_check(session.buffer.bytes + 5000, 3 << 20, 7, 0);
	value_check(session.buffer.bytes + 5000 + (3 << 20), 5000, POISON);
	session_close(&session);
}

static void revoked(void *unused)
{
	struct session session;
	int status;

	(void)unused;
	session_open(&session, agent_has_gpu, "alloc", LARGE);
	agent_fill(&session.agent, 8);
	for (unsigned i = 0; i < 5; i++) {
		status = agent_writes(&session, NULL, LARGE, true);
		check_one_of(status, 0, -EACCES);
		/* Nothing comes after the grant has ended. */
		bytes_set(session.buffer.bytes, POISON, LARGE);
		sleep_ms(5);
		value_check(session.buffer.bytes, LARGE, POISON);
	}
	session_close(&session);
}

static void expired(void *unused)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct session session;
	struct pl_error error;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	int status;

	(void)unused;
	session_open(&session, agent_has_gpu, "alloc", SMALL);
	options.lifetime = SECOND;
	check_ok(pl_region_share(session.buffer.region, &options, token, &length, &error), &error);
	agent_write(&session.agent, token, length, SMALL);
	check_number(agent_wait(&session.agent), 0);
	sleep_ms(1100);
	agent_rewrite(&session.agent, SMALL);
	status = agent_wait(&session.agent);
	check_number(status, -EACCES);
	session_close(&session);
}

/* -- messages, and the end of the other process -------------------------------------------------------- */

static void messages(void *prepare)
{
	void (*agent_memory)(int) = prepare ? agent_has_pool : agent_has_gpu;
	enum pl_route route = prepare ? PL_ROUTE_STAGED : PL_ROUTE_DIRECT;
	struct pl_operation *operation;
	struct session session;
	struct pl_receipt receipt;
	struct pl_error error;

	session_open(&session, agent_memory, prepare ? "pool" : "alloc", LARGE);
	agent_fill(&session.agent, 9);
	agent_send(&session.agent, 1, LARGE);
	check_ok(pl_receive(session.peer, 1, UINT64_MAX, session.buffer.region, 0, LARGE, NULL, &operation, &error),
		 &error);
	complete(&session.environment, operation, &receipt);
	check_number(receipt.route, route);
	pattern_check(session.buffer.bytes, LARGE, 9, 0);
	check_number(agent_wait(&session.agent), 0);
	/* It stays open for the next, besides what was imported. */
	if (standin.opened && !prepare) {
		check_number(standin.opened(), 1);
		standin.fail("cuIpcOpenMemHandle", 0, 1, 801);
		agent_send(&session.agent, 1, LARGE);
		check_ok(pl_receive(session.peer, 1, UINT64_MAX, session.buffer.region, 0, LARGE, NULL, &operation,
				    &error),
			 &error);
		complete(&session.environment, operation, &receipt);
		check_number(receipt.route, PL_ROUTE_DIRECT);
		check_number(agent_wait(&session.agent), 0);
		standin.fail("cuIpcOpenMemHandle", 0, 0, 0);
	}
	pattern_fill(session.buffer.bytes, LARGE, 10, 0);
	agent_receive(&session.agent, 2, LARGE);
	check_ok(pl_send(session.peer, 2, session.buffer.region, 0, LARGE, NULL, &operation, &error), &error);
	complete(&session.environment, operation, &receipt);
	/* The sender learns how the receiver took it. */
	check_number(receipt.route, route);
	check_number(receipt.bytes_staged, prepare ? LARGE : 0);
	check_number(agent_wait(&session.agent), 0);
	check(agent_matches(&session.agent, 10, 0, LARGE));
	session_close(&session);
}

static void killed(void *unused)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_operation *operation;
	struct session session;
	struct pl_error error;

	(void)unused;
	session_open(&session, agent_has_gpu, "alloc", LARGE);
	check_ok(pl_write(session.peer, session.remote, 0, session.buffer.region, 0, LARGE, NULL, &operation, &error),
		 &error);
	agent_kill(&session.agent);
	check_one_of(pl_wait(operation, UINT64_MAX, NULL, &error), 0, -ECONNRESET);
	do
		check_number(pl_peer_query(session.peer, &info), 0);
	while (info.connected);
	pl_remote_release(session.remote);
	pl_peer_close(session.peer);
	buffer_close(&session.buffer);
	pl_close(session.environment.near);
	if (standin.opened)
		check_number(standin.opened(), 0);
}

/* -- what another end may have put into a key ----------------------------------------------------------- */

static void bad_tickets(void *unused)
{
	uint8_t ticket[PL_MEMORY_TICKET_MAX], bad[PL_MEMORY_TICKET_MAX];
	struct pl_memory memory, taken;
	const char *why = NULL;
	struct pl_error error;
	uint64_t state = 1;
	void *address;
	int length;

	(void)unused;
	if (!gpu_open("alloc"))
		exit(SKIPPED);
	address = gpu_allocate(4096);
	check_ok(pl_memory_attach(&memory, address, 4096, &error), &error);
	length = pl_memory_offer(&memory, 0, 4096, ticket);
	check_number(length, sizeof(ticket));
	check_number(pl_memory_take(ticket, sizeof(ticket), 4096, true, &memory, &taken, &why), 0);
	pl_memory_release(&taken);
	check(pl_memory_take(ticket, sizeof(ticket), 1 << 30, true, &memory, &taken, &why) < 0);
	check(pl_memory_take(ticket, sizeof(ticket) - 1, 4096, true, &memory, &taken, &why) < 0);
	check(pl_memory_take(ticket, sizeof(ticket), 4097, false, &memory, &taken, &why) < 0);
	check(why && strstr(why, "as "));
	for (unsigned i = 0; i < 2000; i++) {
		memcpy(bad, ticket, sizeof(bad));
		for (unsigned j = 0; j < 1 + i % 3; j++)
			bad[random_next(&state) % sizeof(bad)] ^= (uint8_t)(1 + random_next(&state) % 255);
		/* The driver may find something that was not meant. */
		if (pl_memory_take(bad, sizeof(bad), 4096, false, &memory, &taken, &why) == 0)
			pl_memory_release(&taken);
		else
			check(why && strstr(why, "as "));
	}
	pl_memory_release(&memory);
	gpu_free(address);
}

static const struct test_case cases[] = {
	{ "gpu-to-gpu", gpu_to_gpu, NULL, 30 },
	{ "small-memory", small_memory, NULL, 20 },
	{ "host-to-gpu", host_to_gpu, NULL, 30 },
	{ "gpu-to-host", gpu_to_host, NULL, 30 },
	{ "gpu-to-mapped", gpu_to_mapped, NULL, 30 },
	{ "not-shared", not_shared, NULL, 30 },
	{ "no-driver", no_driver, NULL, 30 },
	{ "driver-refuses", driver_refuses, NULL, 20 },
	{ "failing-copies", failing_copies, "alloc", 30 },
	{ "failing-host-copies", failing_copies, NULL, 30 },
	{ "bounds", bounds, NULL, 20 },
	{ "revoked", revoked, NULL, 30 },
	{ "revoked-is-closed", revoked_is_closed, NULL, 30 },
	{ "expired", expired, NULL, 20 },
	{ "message-direct", messages, NULL, 20 },
	{ "message-staged", messages, "pool", 20 },
	{ "killed", killed, NULL, 20 },
	{ "bad-tickets", bad_tickets, NULL, 20 },
};

int main(void)
{
	return cases_run("gpu-local", cases, sizeof(cases) / sizeof(cases[0]));
}
