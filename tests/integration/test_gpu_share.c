/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory of another process, of each kind.  The driver's handle opens the memory, or the library refuses it with a
 * reason.  The memory is closed when it is revoked or its owner is killed.  Also checks malformed keys of a peer.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/cuda/ipc_handle.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_session.h"

#define LARGE ((size_t)10 << 20) /* several handles */
#define MANY ((size_t)80 << 20)  /* more handles than a message may have */
#define SMALL 1000

static void agent_has_shared_pool(int fd)
{
	(void)fd;
	if (!gpu_open("pool-shared"))
		exit(SKIPPED);
}

static void agent_has_mapped(int fd)
{
	(void)fd;
	if (!gpu_open("mapped"))
		exit(SKIPPED);
}

static void agent_has_private(int fd)
{
	(void)fd;
	if (!gpu_open("private"))
		exit(SKIPPED);
}

static void agent_has_other(int fd)
{
	(void)fd;
	if (!gpu_open_on("mapped", 1))
		exit(SKIPPED);
}

static void agent_cannot_export(int fd)
{
	agent_has_mapped(fd);
	gpu_standin_find();
	gpu_standin.fail("cuMemExportToShareableHandle", 2, UINT32_MAX, 801);
}

/* Checks memory that is shared by descriptors: of several handles, of another GPU's handles, of a pool. */
static void by_descriptor(void *prepare)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct gpu_session session;
	struct pl_error error;
	pid_t probe;

	/* Tests in a child first if the driver has the functions: without them the agent would end. */
	probe = process_fork();
	if (!probe) {
		(*(void (**)(int))prepare)(-1);
		exit(0);
	}
	if (process_wait(probe))
		exit(SKIPPED);
	gpu_session_open(&session, *(void (**)(int))prepare, "mapped", LARGE);
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "the GPU copies");
	direct.flags = PL_REQUIRE_DIRECT;
	check_ok(gpu_session_transfer(&session, true, 0, LARGE, &direct, NULL, &error), &error);
	/* A second remote region of the same memory is opened separately. */
	pl_remote_release(session.remote);
	session.remote =
		import_token(&session.environment, session.peer, session.agent.token, session.agent.token_length);
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "the GPU copies");
	gpu_session_close(&session);
}

static void host_to_mapped(void *unused)
{
	struct gpu_session session;

	(void)unused;
	gpu_session_open(&session, agent_has_mapped, NULL, LARGE);
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "host memory of one process");
	gpu_session_close(&session);
}

/* Checks that the memory is opened once for each GPU that copies from or to it. */
static void two_gpus(void *unused)
{
	struct gpu_session session;
	struct buffer here;

	(void)unused;
	gpu_session_open(&session, agent_has_mapped, "mapped", LARGE);
	gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "the GPU copies");
	here = session.buffer;
	if (gpu_open_on("mapped", 1)) {
		buffer_open(&session.buffer, session.environment.near, LARGE, PL_ACCESS_ALL);
		gpu_session_check(&session, LARGE, PL_ROUTE_DIRECT, "the GPU copies");
		buffer_close(&session.buffer);
		session.buffer = here;
	}
	check(gpu_open_on("mapped", 0));
	gpu_session_close(&session);
}

/* Memory that the driver does not share, and the receipt's reason: the transfer uses the socket. */
struct refusal {
	void (*prepare)(int);
	const char *reason;
	bool standin; /* needs the stand-in: a real driver does not refuse on request */
};

static void not_shared(void *argument)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	const struct refusal *refusal = argument;
	struct gpu_session session;
	struct pl_error error;

	gpu_standin_find();
	if (refusal->standin)
		gpu_standin_need();
	gpu_session_open(&session, refusal->prepare, "alloc", LARGE);
	gpu_session_check(&session, LARGE, PL_ROUTE_STAGED, refusal->reason);
	direct.flags = PL_REQUIRE_DIRECT;
	check_status(gpu_session_transfer(&session, true, 0, LARGE, &direct, NULL, &error), -ENOTSUP, &error);
	check_text(error.id, "NOT-DIRECT");
	gpu_session_close(&session);
}

static void driver_refuses(void *call)
{
	bool mapped = strncmp(call, "cuIpc", 5);
	struct gpu_session session;

	gpu_session_open(&session, mapped ? agent_has_mapped : gpu_agent_alloc, "alloc", LARGE);
	gpu_standin_need();
	gpu_standin.fail(call, mapped ? 1 : 0, UINT32_MAX, 801);
	gpu_session_check(&session, LARGE, PL_ROUTE_STAGED,
			  !strcmp(call, "cuMemMap") ? "does not reach the other" : "does not let this process open");
	check_number(gpu_standin.opened(), 0);
	gpu_session_close(&session);
}

/* Checks that a peer closes revoked memory, so that the owner can free it. */
static void revoked_is_closed(void *prepare)
{
	struct gpu_session session;
	struct pl_error error;
	uint64_t until;

	gpu_session_open(&session, *(void (**)(int))prepare, "alloc", SMALL);
	gpu_standin_need();
	check_ok(gpu_session_transfer(&session, true, 0, 8, NULL, NULL, &error), &error);
	check_number(gpu_standin.opened(), 1);
	agent_revoke(&session.agent);
	until = clock_now() + AMPLE_TIME;
	while (gpu_standin.opened() || gpu_standin.handles()) {
		check(clock_now() < until);
		settle(&session.environment, 1);
	}
	check_status(gpu_session_transfer(&session, true, 0, 8, NULL, NULL, &error), -EACCES, &error);
	check_number(gpu_standin.opened(), 0);
	gpu_session_close(&session);
}

/* Checks messages with descriptors: all are closed after the message.  Memory of many handles is staged instead. */
static void message_by_descriptor(void *unused)
{
	const size_t few = (size_t)8 << 20;
	struct pl_operation *operation;
	struct gpu_session session;
	struct pl_completion receipt;
	struct pl_error error;

	(void)unused;
	gpu_session_open(&session, agent_has_mapped, "mapped", MANY);
	agent_fill(&session.agent, 9);
	for (unsigned i = 0; i < 12; i++) {
		size_t length = i ? few : MANY;

		bytes_set(session.buffer.bytes, POISON, MANY);
		agent_send(&session.agent, 1, length);
		check_ok(pl_receive(session.peer, 1, UINT64_MAX, &(struct pl_buffer){ session.buffer.region, 0, MANY },
				    NULL, &operation, &error),
			 &error);
		complete(&session.environment, operation, &receipt);
		check_number(receipt.route, i ? PL_ROUTE_DIRECT : PL_ROUTE_STAGED);
		check(i || strstr(receipt.reason, "more handles"));
		pattern_check(session.buffer.bytes, length, 9, 0);
		check_number(agent_wait(&session.agent), 0);
	}
	gpu_session_close(&session);
}

static void killed(void *prepare)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_operation *operation;
	struct gpu_session session;
	struct pl_error error;

	gpu_session_open(&session, *(void (**)(int))prepare, "alloc", LARGE);
	check_ok(pl_write(session.peer, &(struct pl_transfer){ session.remote, 0, session.buffer.region, 0, LARGE },
			  NULL, &operation, &error),
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
	if (gpu_standin.opened)
		check_number(gpu_standin.opened(), 0);
	if (gpu_standin.handles)
		check_number(gpu_standin.handles(), 0);
}

/* -- malformed keys of a peer ----------------------------------------------------------------------------- */

/*
 * Damages an IPC handle.  In half of the calls the checksum is corrected, as if the owner had made the change, and the
 * driver's own bytes are left alone.
 */
static void damage(uint8_t *bytes, unsigned count, uint64_t *state)
{
	const size_t opaque = offsetof(struct cuda_ipc_handle, handle);
	struct cuda_ipc_handle ipc;
	bool meant = random_next(state) % 2;

	for (unsigned i = 0; i < count; i++)
		bytes[random_next(state) % (meant ? opaque : sizeof(ipc))] ^= (uint8_t)(1 + random_next(state) % 255);
	if (!meant)
		return;
	memcpy(&ipc, bytes, sizeof(ipc));
	ipc.check = cuda_ipc_handle_check(&ipc);
	memcpy(bytes, &ipc, sizeof(ipc));
}

static void bad_tickets(void *unused)
{
	uint8_t ipc[PL_IPC_HANDLE_MAX], bad[PL_IPC_HANDLE_MAX];
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
	length = pl_memory_export_ipc(&memory, 0, 4096, ipc, NULL);
	check_number(length, sizeof(ipc));
	check_number(pl_memory_import_ipc(ipc, sizeof(ipc), 4096, true, &memory, NULL, &taken, &why), 0);
	pl_memory_release(&taken);
	check(pl_memory_import_ipc(ipc, sizeof(ipc), 1 << 30, true, &memory, NULL, &taken, &why) < 0);
	check(pl_memory_import_ipc(ipc, sizeof(ipc) - 1, 4096, true, &memory, NULL, &taken, &why) < 0);
	check(pl_memory_import_ipc(ipc, sizeof(ipc), 4097, false, &memory, NULL, &taken, &why) < 0);
	check(why && strstr(why, "as "));
	for (unsigned i = 0; i < 2000; i++) {
		memcpy(bad, ipc, sizeof(bad));
		damage(bad, 1 + i % 3, &state);
		/* The driver may accept the damaged handle, for other memory. */
		if (pl_memory_import_ipc(bad, sizeof(bad), 4096, false, &memory, NULL, &taken, &why) == 0)
			pl_memory_release(&taken);
		else
			check(why && strstr(why, "as "));
	}
	pl_memory_release(&memory);
	gpu_free(address);
}

/* A peer describes more memory of a pool than there is. */
static void long_pool(void *unused)
{
	const size_t size = (size_t)1 << 20;
	struct pl_ipc_fds *fds = pl_ipc_fds_new(&pl_system_allocator, 1);
	uint8_t bytes[PL_IPC_HANDLE_MAX];
	struct pl_memory memory, taken;
	struct cuda_ipc_handle ipc;
	const char *why = NULL;
	struct pl_error error;
	void *address;

	(void)unused;
	if (!gpu_open("pool-shared"))
		exit(SKIPPED);
	gpu_standin_find();
	gpu_standin_need();
	address = gpu_allocate(size);
	check_ok(pl_memory_attach(&memory, address, size, &error), &error);
	check_number(pl_memory_export_ipc(&memory, 0, size, bytes, fds), sizeof(ipc));
	memcpy(&ipc, bytes, sizeof(ipc));
	check_number(ipc.method, CUDA_IPC_POOL);
	ipc.size = 4 * size;
	ipc.check = cuda_ipc_handle_check(&ipc);
	memcpy(bytes, &ipc, sizeof(ipc));
	check(pl_memory_import_ipc(bytes, sizeof(bytes), size + 1, false, &memory, fds, &taken, &why) < 0);
	check(why && strstr(why, "more of its GPU memory than there is"));
	check_number(gpu_standin.opened(), 0);
	check_number(pl_memory_import_ipc(bytes, sizeof(bytes), size, false, &memory, fds, &taken, &why), 0);
	pl_memory_release(&taken);
	pl_ipc_fds_free(&pl_system_allocator, fds);
	pl_memory_release(&memory);
	gpu_free(address);
}

/* Returns a descriptor of a random kind; often a copy of the good one. */
static int bad_descriptor(uint64_t *state, int good)
{
	int ends[2];

	switch (random_next(state) % 5) {
	case 0:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 1:
		return memfd_create("bad", MFD_CLOEXEC);
	case 2:
		check_number(pipe2(ends, O_CLOEXEC), 0);
		close(ends[1]);
		return ends[0];
	default:
		return dup(good);
	}
}

static void bad_parts(void *kind)
{
	const size_t size = (size_t)6 << 20;
	struct pl_ipc_fds *parts = pl_ipc_fds_new(&pl_system_allocator, 8), *bad;
	uint8_t ipc[PL_IPC_HANDLE_MAX], other[PL_IPC_HANDLE_MAX];
	struct pl_memory memory, taken;
	struct pl_error error;
	uint64_t state = 2;
	const char *why;
	void *address;

	if (!gpu_open(kind))
		exit(SKIPPED);
	gpu_standin_find();
	address = gpu_allocate(size);
	check_ok(pl_memory_attach(&memory, address, size, &error), &error);
	check_number(pl_memory_export_ipc(&memory, 0, size, ipc, parts), sizeof(ipc));
	check(parts->count >= 1);
	for (unsigned i = 0; i < 400; i++) {
		bad = pl_ipc_fds_new(&pl_system_allocator, 8);
		memcpy(other, ipc, sizeof(other));
		for (unsigned j = 0; j < parts->count; j++) {
			uint64_t length = parts->list[j].size;

			if (random_next(&state) % 4 == 0)
				length = random_next(&state) >> (random_next(&state) % 64);
			bad->list[bad->count++] = (struct pl_ipc_fd){
				.fd = bad_descriptor(&state, parts->list[j].fd),
				.size = length,
			};
		}
		if (i % 4 == 0)
			damage(other, 1, &state);
		/* The import may succeed if all parts still match: the driver opens a process's own memory, too. */
		why = NULL;
		if (pl_memory_import_ipc(other, sizeof(other), size, false, &memory, bad, &taken, &why) == 0)
			pl_memory_release(&taken);
		else
			check(why && strstr(why, "as "));
		pl_ipc_fds_free(&pl_system_allocator, bad);
	}
	pl_ipc_fds_free(&pl_system_allocator, parts);
	pl_memory_release(&memory);
	gpu_free(address);
	if (gpu_standin.handles)
		check_number(gpu_standin.handles(), 0);
	if (gpu_standin.opened)
		check_number(gpu_standin.opened(), 0);
}

static void (*alloc)(int) = gpu_agent_alloc;
static void (*mapped)(int) = agent_has_mapped;
static void (*other_gpu)(int) = agent_has_other;
static void (*shared_pool)(int) = agent_has_shared_pool;
static const struct refusal of_pool = { gpu_agent_pool, "pool was not created to be shared", false };
static const struct refusal of_handles = { agent_has_private, "handles were not created to be shared", false };
static const struct refusal of_driver = { agent_cannot_export, "driver does not share", true };

static const struct test_case cases[] = {
	{ "mapped", by_descriptor, &mapped, 30 },
	{ "mapped-other-gpu", by_descriptor, &other_gpu, 30 },
	{ "pool", by_descriptor, &shared_pool, 30 },
	{ "host-to-mapped-gpu", host_to_mapped, NULL, 30 },
	{ "two-gpus", two_gpus, NULL, 30 },
	{ "pool-not-shared", not_shared, (void *)&of_pool, 30 },
	{ "handles-not-shared", not_shared, (void *)&of_handles, 30 },
	{ "driver-does-not-share", not_shared, (void *)&of_driver, 30 },
	{ "driver-refuses", driver_refuses, "cuIpcOpenMemHandle", 20 },
	{ "driver-refuses-import", driver_refuses, "cuMemImportFromShareableHandle", 20 },
	{ "driver-refuses-mapping", driver_refuses, "cuMemMap", 20 },
	{ "revoked-is-closed", revoked_is_closed, &alloc, 30 },
	{ "revoked-is-unmapped", revoked_is_closed, &mapped, 30 },
	{ "revoked-pool-is-closed", revoked_is_closed, &shared_pool, 30 },
	{ "message-by-descriptor", message_by_descriptor, NULL, 30 },
	{ "killed", killed, &alloc, 20 },
	{ "killed-mapped", killed, &mapped, 20 },
	{ "long-pool", long_pool, NULL, 20 },
	{ "bad-tickets", bad_tickets, NULL, 20 },
	{ "bad-parts", bad_parts, "mapped", 20 },
	{ "bad-parts-of-a-pool", bad_parts, "pool-shared", 20 },
};

int main(void)
{
	return cases_run("gpu-share", cases, sizeof(cases) / sizeof(cases[0]));
}
