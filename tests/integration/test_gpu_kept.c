/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prepared vectors between GPU memory of two processes: the GPU keeps the list of their ranges. Each use finds out whether
 * memory was freed or revoked, or the peer was lost. Uses the stand-in for the driver, or a real GPU.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "core/region.h"
#include "core/vector.h"
#include "memory/memory.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_vectors.h"

#define SIZE GPU_VECTOR_BYTES
#define KERNEL "a kernel of the GPU copies"
#define COPIES "local: the GPU copies"

static struct pl_vector *prepare_vector(struct gpu_session *session, bool write, size_t mean)
{
	static struct pl_transfer transfers[GPU_VECTOR_ELEMENTS];
	size_t count = gpu_vector_cut(session, transfers, mean);
	struct pl_vector *vector;
	struct pl_error error;

	check_ok(pl_vector_prepare(session->peer, write ? PL_KIND_WRITE : PL_KIND_READ, transfers, count, &vector,
				   &error),
		 &error);
	return vector;
}

static struct pl_operation *post(struct pl_vector *vector)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_vector_post(vector, 0, 0, NULL, &operation, &error), &error);
	return operation;
}

static void open_kernels(struct gpu_session *session)
{
	gpu_session_open(session, gpu_agent_alloc, "alloc", SIZE);
}

/* Posts a vector that must copy the buffer of now. */
static void check_write(struct gpu_session *session, struct pl_vector *vector, uint64_t seed, const char *reason)
{
	pattern_fill(session->buffer.bytes, SIZE, seed, 0);
	gpu_finish_direct(session, post(vector), reason);
	check(agent_matches(&session->agent, seed, 0, SIZE));
}

static void sizes(void *unused)
{
	static const size_t means[] = { 900, 4096, 70000, 250000 };
	struct gpu_session session;

	(void)unused;
	open_kernels(&session);
	for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
		struct pl_vector *writes = prepare_vector(&session, true, means[i]),
				 *reads = prepare_vector(&session, false, means[i]);
		unsigned before = gpu_standin_launched();

		for (unsigned k = 0; k < 3; k++) {
			check_write(&session, writes, 10 * i + k, KERNEL);
			bytes_set(session.buffer.bytes, POISON, SIZE);
			gpu_finish_direct(&session, post(reads), KERNEL);
			pattern_check(session.buffer.bytes, SIZE, 10 * i + k, 0);
		}
		/* One kernel for each use: without a list to write, none runs meanwhile. */
		if (gpu_standin.launched)
			check_number(gpu_standin_launched() - before, 6);
		pl_vector_free(writes);
		pl_vector_free(reads);
	}
	gpu_session_close(&session);
}

/* Offsets that are added at each use, at first and later. */
static void shifts(void *unused)
{
	enum { BLOCK = 4096, COUNT = 8 };
	static const uint64_t there[] = { 0, 1 << 20, 3, 1 << 19 }, here[] = { 1 << 20, 0, 5, 100 };
	struct pl_transfer transfers[COUNT];
	struct gpu_session session;
	struct pl_vector *vector;
	struct pl_error error;

	(void)unused;
	open_kernels(&session);
	pattern_fill(session.buffer.bytes, SIZE, 6, 0);
	for (unsigned first = 0; first < 2; first++) {
		for (size_t i = 0; i < COUNT; i++)
			transfers[i] = (struct pl_transfer){ session.remote, (COUNT - 1 - i) * BLOCK,
							     session.buffer.region, i * BLOCK, BLOCK };
		check_ok(pl_vector_prepare(session.peer, PL_KIND_READ, transfers, COUNT, &vector, &error), &error);
		agent_fill(&session.agent, 7);
		for (size_t i = first; i < sizeof(there) / sizeof(there[0]); i++) {
			struct pl_operation *operation;

			bytes_set(session.buffer.bytes, POISON, SIZE);
			check_ok(pl_vector_post(vector, there[i], here[i], NULL, &operation, &error), &error);
			gpu_finish_direct(&session, operation, KERNEL);
			for (size_t k = 0; k < COUNT; k++)
				pattern_check(session.buffer.bytes + here[i] + k * BLOCK, BLOCK, 7,
					      there[i] + (COUNT - 1 - k) * BLOCK);
		}
		pl_vector_free(vector);
	}
	gpu_session_close(&session);
}

/* A vector several times at once, and freed while its kernels run. */
static void together(void *unused)
{
	struct pl_operation *operations[8];
	struct gpu_session session;
	struct pl_vector *vector;

	(void)unused;
	open_kernels(&session);
	for (unsigned round = 0; round < 3; round++) {
		vector = prepare_vector(&session, true, 70000);
		pattern_fill(session.buffer.bytes, SIZE, round, 0);
		agent_fill(&session.agent, 100);
		for (unsigned i = 0; i < 8; i++)
			operations[i] = post(vector);
		pl_vector_free(vector);
		for (unsigned i = 0; i < 8; i++)
			gpu_finish_direct(&session, operations[i], KERNEL);
		check(agent_matches(&session.agent, round, 0, SIZE));
	}
	gpu_session_close(&session);
}

/* Counts the lists that the local fabric asks the GPU's memory to keep. */
static const struct pl_memory_ops *plain_ops;
static atomic_uint lists_built;

static struct pl_gather_list *count_and_keep(const struct pl_memory *memory, const struct pl_gather_range *ranges,
					     unsigned count)
{
	atomic_fetch_add(&lists_built, 1);
	return plain_ops->gather_keep(memory, ranges, count);
}

/*
 * Vectors of other sizes take the room of lists that were freed. With more vectors than there is room for, all copy, and
 * a list is built once for each vector, whether there is room for it or not.
 */
static void many(void *unused)
{
	enum { VECTORS = 60 };
	struct pl_vector *vectors[VECTORS];
	struct pl_memory_ops counting;
	struct gpu_session session;
	struct pl_memory *memory;

	(void)unused;
	open_kernels(&session);
	memory = &session.buffer.region->memory;
	plain_ops = memory->ops;
	counting = *plain_ops;
	counting.gather_keep = count_and_keep;
	for (unsigned i = 0; i < VECTORS; i++) {
		vectors[i] = prepare_vector(&session, true, 900);
		gpu_finish_direct(&session, post(vectors[i]), KERNEL);
		/* The first post has opened the peer's memory. */
		memory->ops = &counting;
	}
	check_number(atomic_load(&lists_built), VECTORS - 1);
	check(!vectors[VECTORS - 1]->kept);
	for (unsigned i = 0; i < VECTORS; i++)
		check_write(&session, vectors[i], i, KERNEL);
	check_number(atomic_load(&lists_built), VECTORS - 1);
	memory->ops = plain_ops;
	for (unsigned i = 0; i < VECTORS; i += 2)
		pl_vector_free(vectors[i]);
	for (unsigned i = 0; i < VECTORS; i += 2) {
		vectors[i] = prepare_vector(&session, true, 700 + 50 * i);
		check_write(&session, vectors[i], 100 + i, KERNEL);
	}
	for (unsigned i = 1; i < VECTORS; i += 2)
		check_write(&session, vectors[i], i, KERNEL);
	for (unsigned i = 0; i < VECTORS; i++)
		pl_vector_free(vectors[i]);
	gpu_session_close(&session);
}

/* -- what changes between two uses ---------------------------------------------------------------------- */

static void revoked(void *unused)
{
	struct pl_completion receipt;
	struct gpu_session session;
	struct pl_vector *vector;
	struct pl_error error;
	unsigned before;

	(void)unused;
	open_kernels(&session);
	vector = prepare_vector(&session, true, 70000);
	check_write(&session, vector, 1, KERNEL);
	agent_revoke(&session.agent);
	agent_fill(&session.agent, 2);
	before = gpu_standin_launched();
	check(await(&session.environment, post(vector), &receipt, &error) < 0);
	check_number(gpu_standin_launched() - before, 0);
	check(agent_matches(&session.agent, 2, 0, SIZE));
	pl_vector_free(vector);
	gpu_session_close(&session);
}

/* The peer's process is gone: its memory may be, too. */
static void lost(void *unused)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct gpu_session session;
	struct pl_vector *vector;
	struct pl_error error;
	int rc;

	(void)unused;
	open_kernels(&session);
	vector = prepare_vector(&session, false, 70000);
	gpu_finish_direct(&session, post(vector), KERNEL);
	agent_kill(&session.agent);
	do {
		rc = pl_vector_post(vector, 0, 0, NULL, &operation, &error);
		if (rc == 0)
			rc = await(&session.environment, operation, &receipt, &error);
	} while (rc == 0);
	check(rc == -ECONNRESET || rc == -ENOTCONN || rc == -EFAULT);
	pl_vector_free(vector);
	pl_close(session.environment.near);
	buffer_close_bare(&session.buffer);
}

/* Another process's memory could take the address of memory that was freed. Here other memory of this process has it. */
static void freed(void *unused)
{
	struct pl_transfer transfers[8];
	struct pl_completion receipt;
	struct gpu_session session;
	struct pl_vector *vector;
	struct pl_region *region;
	struct pl_error error;
	void *memory, *others[64];
	unsigned before;

	(void)unused;
	open_kernels(&session);
	gpu_standin_need();
	memory = gpu_allocate(SIZE);
	check_ok(pl_region_register(session.environment.near, memory, SIZE, PL_ACCESS_ALL, &region, &error), &error);
	for (size_t i = 0; i < 8; i++)
		transfers[i] = (struct pl_transfer){ session.remote, i << 12, region, i << 12, 4096 };
	check_ok(pl_vector_prepare(session.peer, PL_KIND_WRITE, transfers, 8, &vector, &error), &error);
	gpu_finish_direct(&session, post(vector), KERNEL);
	gpu_finish_direct(&session, post(vector), KERNEL);
	gpu_free(memory);
	before = gpu_standin_launched();
	check(await(&session.environment, post(vector), &receipt, &error) < 0);
	for (size_t i = 0; i < 64; i++)
		others[i] = gpu_allocate(SIZE);
	await(&session.environment, post(vector), &receipt, &error);
	check_number(gpu_standin_launched() - before, 0);
	for (size_t i = 0; i < 64; i++)
		gpu_free(others[i]);
	exit(0);
}

/* -- kernels that cannot begin -------------------------------------------------------------------------- */

/*
 * Copies replace the kernel. The vector is freed, and the next one wants the room of its list: the kernel reads it when it begins at
 * last, although it touches nothing else.
 */
static void withdrawn(void *unused)
{
	struct pl_vector *vector, *other;
	struct pl_completion receipt;
	struct gpu_session session;

	(void)unused;
	gpu_session_open(&session, gpu_agent_on_another, "alloc", SIZE);
	gpu_hold_prepare();
	vector = prepare_vector(&session, true, 70000);
	check_write(&session, vector, 1, KERNEL);
	gpu_hold_kernels(true);
	check_write(&session, vector, 2, COPIES);
	pl_vector_free(vector);
	other = prepare_vector(&session, true, 900);
	check_write(&session, other, 3, COPIES);
	agent_fill(&session.agent, 4);
	gpu_hold_kernels(false);
	sleep_ms(20);
	check(agent_matches(&session.agent, 4, 0, SIZE));
	do
		complete(&session.environment, post(other), &receipt);
	while (!strstr(receipt.reason, KERNEL));
	check_write(&session, other, 5, KERNEL);
	pl_vector_free(other);
	gpu_session_close(&session);
}

/* Revoked while the kernel waits: no byte arrives afterwards. */
static void revoked_meanwhile(void *unused)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct gpu_session session;
	struct pl_vector *vector;
	struct pl_error error;

	(void)unused;
	gpu_session_open(&session, gpu_agent_on_another, "alloc", SIZE);
	gpu_hold_prepare();
	vector = prepare_vector(&session, true, 70000);
	check_write(&session, vector, 1, KERNEL);
	gpu_hold_kernels(true);
	operation = post(vector);
	agent_revoke(&session.agent);
	agent_fill(&session.agent, 15);
	check_one_of(await(&session.environment, operation, &receipt, &error), 0, -EACCES);
	gpu_hold_kernels(false);
	sleep_ms(20);
	check(agent_matches(&session.agent, 15, 0, SIZE));
	pl_vector_free(vector);
	gpu_session_close(&session);
}

/* The driver refuses the copy of the list, or a launch. */
static void refused(void *unused)
{
	struct gpu_session session;
	struct pl_vector *vector;

	(void)unused;
	open_kernels(&session);
	gpu_standin_need();
	vector = prepare_vector(&session, true, 70000);
	gpu_standin.fail("cuLaunchKernel", 0, 1, 700);
	check_write(&session, vector, 1, COPIES);
	gpu_standin.fail("cuLaunchKernel", 0, 0, 0);
	check_write(&session, vector, 2, KERNEL);
	pl_vector_free(vector);
	gpu_session_close(&session);
}

static const struct test_case cases[] = {
	{ "sizes", sizes, NULL, 30 },
	{ "shifts", shifts, NULL, 30 },
	{ "together", together, NULL, 30 },
	{ "many", many, NULL, 60 },
	{ "revoked", revoked, NULL, 30 },
	{ "lost", lost, NULL, 30 },
	{ "freed", freed, NULL, 30 },
	{ "withdrawn", withdrawn, NULL, 30 },
	{ "revoked-meanwhile", revoked_meanwhile, NULL, 30 },
	{ "refused", refused, NULL, 30 },
};

int main(void)
{
	return cases_run("gpu-kept", cases, sizeof(cases) / sizeof(cases[0]));
}
