/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gathers: a kernel of the library copies the elements of vectors between GPU memory of two processes. A kernel that cannot
 * begin is withdrawn, and copies do the work. Uses the stand-in for the driver, or a real GPU, whose multiprocessors a
 * spinning kernel then fills.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "core/operation.h"
#include "memory/memory.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_session.h"
#include "support/gpu_vectors.h"

#define SIZE GPU_VECTOR_BYTES
#define KERNEL "a kernel of the GPU copies"
#define COPIES "local: the GPU copies"

/* -- vectors ------------------------------------------------------------------------------------------- */

/* Writes by vectors until a kernel copies: those that could not begin must have left first. */
static void await_kernel(struct gpu_session *session, size_t mean)
{
	struct pl_completion receipt;

	do
		complete(&session->environment, gpu_vector_post(session, true, mean), &receipt);
	while (!strstr(receipt.reason, KERNEL));
}

static void check_vector(struct gpu_session *session, bool write, size_t mean, const char *reason)
{
	struct pl_completion receipt;

	complete(&session->environment, gpu_vector_post(session, write, mean), &receipt);
	check_number(receipt.route, PL_ROUTE_DIRECT);
	check_number(receipt.bytes, SIZE);
	if (!strstr(receipt.reason, reason))
		check_text(receipt.reason, reason);
}

/* Writes and reads the whole buffer by vectors. */
static void check_vectors(struct gpu_session *session, size_t mean, const char *reason)
{
	pattern_fill(session->buffer.bytes, SIZE, mean, 0);
	check_vector(session, true, mean, reason);
	check(agent_matches(&session->agent, mean, 0, SIZE));
	bytes_set(session->buffer.bytes, POISON, SIZE);
	check_vector(session, false, mean, reason);
	pattern_check(session->buffer.bytes, SIZE, mean, 0);
}

static void sizes(void *unused)
{
	static const size_t means[] = { 900, 4096, 70000, 250000 };
	struct gpu_session session;
	unsigned before;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SIZE);
	before = gpu_standin_launched();
	for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++)
		check_vectors(&session, means[i], KERNEL);
	/* Two kernels for vectors of many elements. */
	if (gpu_standin.launched)
		check_number(gpu_standin_launched() - before, 12);
	gpu_session_close(&session);
}

/* A few elements are copied one by one. */
static void few(void *unused)
{
	struct gpu_session session;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SIZE);
	check_vectors(&session, 2 * SIZE, COPIES);
	check_vectors(&session, SIZE / 2, COPIES);
	gpu_session_close(&session);
}

static void switched_off(void *unused)
{
	struct gpu_session session;
	unsigned before;

	(void)unused;
	gpu_session_multiprocessors = PL_NO_GPU_KERNEL;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SIZE);
	before = gpu_standin_launched();
	check_vectors(&session, 70000, COPIES);
	check_number(gpu_standin_launched() - before, 0);
	gpu_session_close(&session);
}

/* More launches than the library keeps at a time, several of them under way together. */
static void many(void *unused)
{
	struct pl_operation *operations[4];
	struct gpu_session session;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SIZE);
	pattern_fill(session.buffer.bytes, SIZE, 3, 0);
	for (unsigned i = 0; i < 75; i++) {
		for (unsigned k = 0; k < 4; k++)
			operations[k] = gpu_vector_post(&session, true, 250000);
		for (unsigned k = 0; k < 4; k++)
			complete(&session.environment, operations[k], NULL);
	}
	check(agent_matches(&session.agent, 3, 0, SIZE));
	check_vectors(&session, 900, KERNEL);
	gpu_session_close(&session);
}

/* Kernels wait for the one before them in the stream, and are not withdrawn meanwhile. */
static void in_turn(void *unused)
{
	struct pl_operation *operations[4];
	struct gpu_session session;
	struct pl_completion receipt;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SIZE);
	gpu_standin_need();
	pattern_fill(session.buffer.bytes, SIZE, 4, 0);
	gpu_standin.delay(5000);
	for (unsigned k = 0; k < 4; k++)
		operations[k] = gpu_vector_post(&session, true, 900);
	for (unsigned k = 0; k < 4; k++) {
		complete(&session.environment, operations[k], &receipt);
		if (!strstr(receipt.reason, KERNEL))
			check_text(receipt.reason, KERNEL);
	}
	gpu_standin.delay(0);
	check(agent_matches(&session.agent, 4, 0, SIZE));
	gpu_session_close(&session);
}

/* -- kernels that cannot begin -------------------------------------------------------------------------- */

static void session_open(struct gpu_session *session)
{
	gpu_session_open(session, gpu_agent_on_another, "alloc", SIZE);
	gpu_hold_prepare();
}

/* Copies replace the kernel, which touches nothing when it begins at last. Later vectors use kernels again. */
static void held(void *unused)
{
	struct gpu_session session;
	uint64_t began;
	unsigned before;

	(void)unused;
	session_open(&session);
	before = gpu_standin_launched();
	pattern_fill(session.buffer.bytes, SIZE, 11, 0);
	gpu_hold_kernels(true);
	check_vector(&session, true, 900, COPIES);
	check(agent_matches(&session.agent, 11, 0, SIZE));
	/* For 10 ms after a withdrawal no kernel is tried. */
	began = pl_now();
	for (unsigned i = 0; i < 20; i++)
		check_vector(&session, true, 70000, COPIES);
	check(gpu_standin_launched() - before <= 3 + (pl_now() - began) / (10 * PL_NS_PER_MS));
	agent_fill(&session.agent, 13);
	gpu_hold_kernels(false);
	sleep_ms(20);
	check(agent_matches(&session.agent, 13, 0, SIZE));
	await_kernel(&session, 70000);
	check_vectors(&session, 70000, KERNEL);
	gpu_session_close(&session);
}

/* The region and the connection of a withdrawn kernel are gone when it begins. A real driver closes memory afterwards. */
static void deregistered(void *unused)
{
	struct gpu_session session;

	(void)unused;
	session_open(&session);
	gpu_standin_need();
	gpu_hold_kernels(true);
	check_vector(&session, false, 70000, COPIES);
	pl_remote_release(session.remote);
	pl_peer_close(session.peer);
	check_number(pl_region_deregister(session.buffer.region), 0);
	pl_close(session.environment.near);
	gpu_hold_kernels(false);
	buffer_close_bare(&session.buffer);
	/* The GPU still works. */
	gpu_session_connect(&session, SIZE);
	check_vectors(&session, 70000, KERNEL);
	gpu_session_close(&session);
}

/* The owner withdraws its grant while the kernel waits: no byte arrives afterwards. */
static void revoked(void *unused)
{
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct gpu_session session;
	struct pl_error error;
	int rc;

	(void)unused;
	session_open(&session);
	pattern_fill(session.buffer.bytes, SIZE, 14, 0);
	gpu_hold_kernels(true);
	operation = gpu_vector_post(&session, true, 70000);
	agent_revoke(&session.agent);
	agent_fill(&session.agent, 15);
	rc = await(&session.environment, operation, &receipt, &error);
	check_one_of(rc, 0, -EACCES);
	gpu_hold_kernels(false);
	sleep_ms(20);
	check(agent_matches(&session.agent, 15, 0, SIZE));
	gpu_session_close(&session);
}

/* The context is closed while a kernel waits. */
static void closed(void *unused)
{
	struct gpu_session session;

	(void)unused;
	session_open(&session);
	gpu_standin_need();
	gpu_hold_kernels(true);
	gpu_vector_post(&session, true, 70000);
	pl_close(session.environment.near);
	gpu_hold_kernels(false);
	buffer_close_bare(&session.buffer);
	agent_stop(&session.agent);
}

/* -- failures ------------------------------------------------------------------------------------------- */

static void refused_launch(void *unused)
{
	struct gpu_session session;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SIZE);
	gpu_standin_need();
	gpu_standin.fail("cuLaunchKernel", 0, 1, 700);
	check_vector(&session, true, 70000, COPIES);
	gpu_standin.fail("cuLaunchKernel", 0, 0, 0);
	check_vectors(&session, 70000, KERNEL);
	gpu_session_close(&session);
}

static void refused_module(void *unused)
{
	struct gpu_session session;

	(void)unused;
	gpu_standin_find();
	if (gpu_standin.fail)
		gpu_standin.fail("cuModuleLoadData", 0, 1, 218);
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SIZE);
	gpu_standin_need();
	check_vectors(&session, 70000, COPIES);
	gpu_session_close(&session);
}

static void failing_kernel(void *unused)
{
	struct pl_completion receipt;
	struct gpu_session session;
	struct pl_error error;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SIZE);
	gpu_standin_need();
	gpu_standin.fail("gather", 0, 1, 700);
	check_status(await(&session.environment, gpu_vector_post(&session, true, 70000), &receipt, &error), -EFAULT,
		     &error);
	check_text(error.id, "MEMORY-UNREADABLE");
	gpu_session_close(&session);
}

/* Memory that the program freed: a kernel that touched it would end all work of the context. */
static void freed_memory(void *unused)
{
	struct gpu_session session;
	struct pl_completion receipt;
	struct pl_region *region;
	struct pl_error error;
	void *memory;
	unsigned before;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SIZE);
	gpu_standin_need();
	/* Imports the agent's memory now: later its mapping could take the address of the freed memory. */
	check_vectors(&session, 70000, KERNEL);
	memory = gpu_allocate(SIZE);
	check_ok(pl_region_register(session.environment.near, memory, SIZE, PL_ACCESS_ALL, &region, &error), &error);
	gpu_free(memory);
	before = gpu_standin_launched();
	session.buffer.region = region;
	check(await(&session.environment, gpu_vector_post(&session, true, 70000), &receipt, &error) < 0);
	check_number(gpu_standin_launched() - before, 0);
	exit(0);
}

/* Streams of the program that wait for words hold kernels up. */
static void waiting_streams(void *unused)
{
	const struct cuda_driver *driver;
	static _Alignas(4096) uint64_t word[512];
	struct gpu_session session;
	struct pl_error error;
	CUcontext popped;
	CUstream stream;

	(void)unused;
	gpu_session_open(&session, gpu_agent_alloc, "alloc", SIZE);
	check_vectors(&session, 70000, KERNEL);
	driver = cuda_driver_loaded();
	gpu_enter();
	gpu_must(driver->cuMemHostRegister(word, sizeof(word), CU_MEMHOSTREGISTER_PORTABLE));
	gpu_must(driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	word[0] = 1;
	check_ok(pl_memory_stream_wait(&session.buffer.region->memory, stream, word, 1, &error), &error);
	check_vectors(&session, 70000, COPIES);
	gpu_must(driver->cuStreamDestroy(stream));
	gpu_must(driver->cuMemHostUnregister(word));
	gpu_must(driver->cuCtxPopCurrent(&popped));
	gpu_session_close(&session);
}

static const struct test_case cases[] = {
	{ "sizes", sizes, NULL, 30 },
	{ "few", few, NULL, 20 },
	{ "switched-off", switched_off, NULL, 20 },
	{ "many", many, NULL, 30 },
	{ "in-turn", in_turn, NULL, 20 },
	{ "held", held, NULL, 20 },
	{ "deregistered", deregistered, NULL, 20 },
	{ "revoked", revoked, NULL, 20 },
	{ "closed", closed, NULL, 20 },
	{ "refused-launch", refused_launch, NULL, 20 },
	{ "refused-module", refused_module, NULL, 20 },
	{ "failing-kernel", failing_kernel, NULL, 20 },
	{ "freed-memory", freed_memory, NULL, 20 },
	{ "waiting-streams", waiting_streams, NULL, 20 },
};

int main(void)
{
	return cases_run("gpu-gather", cases, sizeof(cases) / sizeof(cases[0]));
}
