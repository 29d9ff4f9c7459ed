/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gathers with host memory: a kernel of the library copies the elements of vectors between GPU memory and locked host memory,
 * of the other process or of this one. Uses the stand-in for the driver, or a real GPU.
 */
#include <stdlib.h>

#include "fabric/local/local.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_vectors.h"

#define SIZE GPU_VECTOR_BYTES
#define KERNEL "a kernel of the GPU copies"
#define COPIES "local: a GPU copies between the host memory"
/* Longer than a case may run, in microseconds. */
#define HELD 100000000u

/* Which end has the host memory; the argument of a case. */
struct side {
	bool here;
};
static struct side here = { true }, there = { false };

struct host_session {
	struct gpu_session session;
	struct pl_region *loader; /* GPU memory, with which the kernel is loaded */
	bool here;
};

static void agent_allocates(int fd)
{
	(void)fd;
	buffers_allocated = true;
}

/* Opens a session whose host memory is not locked yet. */
static void host_open(struct host_session *host, const struct side *side)
{
	struct pl_error error;

	host->here = side->here;
	gpu_session_open(&host->session, side->here ? gpu_agent_alloc : agent_allocates, side->here ? NULL : "alloc",
			 SIZE);
	check_ok(pl_region_allocate_in(host->session.environment.near, "cuda:0", 4096, PL_ACCESS_ALL, &host->loader,
				       &error),
		 &error);
	gpu_hold_prepare();
}

static void host_lock(struct host_session *host)
{
	struct gpu_session *session = &host->session;
	struct pl_error error;

	if (host->here)
		gpu_pin(session->buffer.memory, SIZE + 2 * BUFFER_GUARD);
	/* The library locks a mapping once as many bytes were copied. */
	for (unsigned i = 0; !host->here && i < 3; i++)
		check_ok(gpu_session_transfer(session, true, 0, SIZE, NULL, NULL, &error), &error);
}

static void host_open_locked(struct host_session *host, const struct side *side)
{
	host_open(host, side);
	host_lock(host);
}

static void host_close(struct host_session *host)
{
	if (host->here)
		gpu_unpin(host->session.buffer.memory);
	check_number(pl_region_deregister(host->loader), 0);
	gpu_session_close(&host->session);
}

/* Posts blocks, half of them at the begin and half at the end of the buffer. */
static struct pl_operation *post_ends(struct gpu_session *session, size_t block, size_t count)
{
	struct pl_transfer transfers[8];
	struct pl_operation *operation;
	struct pl_error error;

	for (size_t i = 0; i < count; i++) {
		uint64_t at = i < count / 2 ? i * block : SIZE - (count - i) * block;

		transfers[i] = (struct pl_transfer){ session->remote, at, session->buffer.region, at, block };
	}
	check_ok(pl_writev(session->peer, transfers, count, NULL, &operation, &error), &error);
	return operation;
}

/* Writes and reads the whole buffer by vectors. */
static void check_vectors(struct gpu_session *session, size_t mean, const char *reason)
{
	pattern_fill(session->buffer.bytes, SIZE, mean, 0);
	gpu_finish_direct(session, gpu_vector_post(session, true, mean), reason);
	check(agent_matches(&session->agent, mean, 0, SIZE));
	bytes_set(session->buffer.bytes, POISON, SIZE);
	gpu_finish_direct(session, gpu_vector_post(session, false, mean), reason);
	pattern_check(session->buffer.bytes, SIZE, mean, 0);
}

/* -- routes -------------------------------------------------------------------------------------------- */

static void sizes(void *side)
{
	static const size_t means[] = { 900, 4096, 70000, 250000 };
	struct host_session host;
	unsigned before;

	host_open_locked(&host, side);
	before = gpu_standin_launched();
	for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++)
		check_vectors(&host.session, means[i], KERNEL);
	/* Two kernels for a vector of the most elements. */
	if (gpu_standin.launched)
		check_number(gpu_standin_launched() - before, 10);
	/* A few elements, and large ones, are copied one by one. */
	gpu_finish_direct(&host.session, post_ends(&host.session, 4096, 7), COPIES);
	gpu_finish_direct(&host.session, post_ends(&host.session, 512 << 10, 8), KERNEL);
	gpu_finish_direct(&host.session, post_ends(&host.session, 513 << 10, 8), COPIES);
	host_close(&host);
}

/* A kernel's list is limited by its bytes and not by the number of its elements: there are two kernels, as of any long vector. */
static void many_short(void *side)
{
	enum { COUNT = 20480, BLOCK = 128 };
	static struct pl_transfer transfers[COUNT];
	struct host_session host;
	struct gpu_session *session = &host.session;
	struct pl_operation *operation;
	struct pl_error error;
	unsigned before;

	host_open_locked(&host, side);
	for (size_t i = 0; i < COUNT; i++) {
		uint64_t at = (COUNT - 1 - i) * BLOCK;

		transfers[i] = (struct pl_transfer){ session->remote, at, session->buffer.region, at, BLOCK };
	}
	pattern_fill(session->buffer.bytes, SIZE, 5, 0);
	before = gpu_standin_launched();
	check_ok(pl_writev(session->peer, transfers, COUNT, NULL, &operation, &error), &error);
	gpu_finish_direct(session, operation, KERNEL);
	check(agent_matches(&session->agent, 5, 0, COUNT * BLOCK));
	if (gpu_standin.launched)
		check_number(gpu_standin_launched() - before, 2);
	host_close(&host);
}

/* A kernel that touched unlocked memory would end all work of the context. Memory of this process: test_gpu_ring.c. */
static void unlocked(void *unused)
{
	struct host_session host;

	(void)unused;
	host_open(&host, &there);
	gpu_finish_direct(&host.session, gpu_vector_post(&host.session, true, 4096), COPIES);
	check_number(gpu_standin_launched(), 0);
	host_lock(&host);
	check_vectors(&host.session, 4096, KERNEL);
	host_close(&host);
}

/* Host memory of which only the two ends are locked, each by a call of its own. */
static void locked_ends(void *unused)
{
	struct host_session host;
	uint8_t *memory;
	unsigned before;

	(void)unused;
	host_open(&host, &here);
	memory = host.session.buffer.memory;
	gpu_pin(memory, 1 << 20);
	gpu_pin(memory + (2 << 20), SIZE + 2 * BUFFER_GUARD - (2 << 20));
	before = gpu_standin_launched();
	gpu_finish_direct(&host.session, post_ends(&host.session, 4096, 8), COPIES);
	check_number(gpu_standin_launched() - before, 0);
	gpu_unpin(memory + (2 << 20));
	host_close(&host);
}

/* Writes the buffer by a vector, and reads it by another one, which are prepared or not. Counts the kernels of each. */
static void check_kinds(struct gpu_session *session, uint64_t seed, bool prepared, unsigned writes, unsigned reads)
{
	static struct pl_transfer transfers[GPU_VECTOR_ELEMENTS];
	size_t count = gpu_vector_cut(session, transfers, 4096);
	struct pl_vector *vector = NULL;
	struct pl_operation *operation;
	struct pl_error error;

	pattern_fill(session->buffer.bytes, SIZE, seed, 0);
	for (unsigned read = 0; read < 2; read++) {
		unsigned before = gpu_standin_launched(), kernels = read ? reads : writes;
		enum pl_kind kind = read ? PL_KIND_READ : PL_KIND_WRITE;

		if (read)
			bytes_set(session->buffer.bytes, POISON, SIZE);
		if (prepared) {
			check_ok(pl_vector_prepare(session->peer, kind, transfers, count, &vector, &error), &error);
			check_ok(pl_vector_post(vector, 0, 0, NULL, &operation, &error), &error);
		} else {
			operation = gpu_vector_post(session, !read, 4096);
		}
		gpu_finish_direct(session, operation, kernels ? KERNEL : COPIES);
		check_number(gpu_standin_launched() - before, kernels);
		pl_vector_free(vector);
		vector = NULL;
	}
	check(agent_matches(&session->agent, seed, 0, SIZE));
	pattern_check(session->buffer.bytes, SIZE, seed, 0);
}

/* Host memory that the program locked such that GPUs may only read it. A kernel that wrote there would end all work of the context. */
static void read_only(void *unused)
{
	struct host_session host;

	(void)unused;
	host_open(&host, &here);
	gpu_standin_need();
	gpu_pin_read_only(host.session.buffer.memory, SIZE + 2 * BUFFER_GUARD);
	check_kinds(&host.session, 1, false, 1, 0);
	check_kinds(&host.session, 2, true, 1, 0);
	gpu_unpin(host.session.buffer.memory);
	/* The same memory, locked for writes, too. */
	host_lock(&host);
	check_kinds(&host.session, 3, true, 1, 1);
	host_close(&host);
}

/* Kernels have an address of their own for write-combined memory. */
static void write_combined(void *unused)
{
	struct buffer plain;
	struct host_session host;
	struct gpu_session *session = &host.session;
	struct pl_error error;
	void *memory;

	(void)unused;
	host_open(&host, &here);
	gpu_standin_need();
	memory = gpu_allocate_write_combined(SIZE);
	plain = session->buffer;
	session->buffer.bytes = memory;
	check_ok(pl_region_register(session->environment.near, memory, SIZE, PL_ACCESS_ALL, &session->buffer.region,
				    &error),
		 &error);
	check_kinds(session, 4, false, 0, 0);
	check_kinds(session, 5, true, 0, 0);
	check_number(pl_region_deregister(session->buffer.region), 0);
	session->buffer = plain;
	gpu_free_write_combined(memory);
	host.here = false;
	host_close(&host);
}

/* A GPU whose kernels have addresses of their own for locked host memory. */
static void own_pointers(void *side)
{
	struct host_session host;
	unsigned before;

	setenv("STANDIN_GPU", "own-pointers", 1);
	host_open_locked(&host, side);
	gpu_standin_need();
	before = gpu_standin_launched();
	check_vectors(&host.session, 4096, COPIES);
	check_number(gpu_standin_launched() - before, 0);
	host_close(&host);
}

/* A mapping that this process may write is not locked for reading alone, because a kernel could not write there. */
static void refused_lock(void *unused)
{
	struct host_session host;
	unsigned before;

	(void)unused;
	host_open(&host, &there);
	gpu_standin_need();
	gpu_standin.fail("cuMemHostRegister", 0, 1, 1);
	host_lock(&host);
	before = gpu_standin_launched();
	check_vectors(&host.session, 4096, COPIES);
	check_number(gpu_standin_launched() - before, 0);
	host_close(&host);
}

static void switched_off(void *side)
{
	struct host_session host;

	gpu_session_multiprocessors = PL_NO_GPU_KERNEL;
	host_open_locked(&host, side);
	check_vectors(&host.session, 4096, COPIES);
	host_close(&host);
}

static void prepared(void *side)
{
	static struct pl_transfer transfers[GPU_VECTOR_ELEMENTS];
	struct pl_operation *operation;
	struct pl_vector *vectors[2];
	struct host_session host;
	struct gpu_session *session = &host.session;
	struct pl_error error;
	size_t count;

	host_open(&host, side);
	count = gpu_vector_cut(session, transfers, 4096);
	for (unsigned read = 0; read < 2; read++)
		check_ok(pl_vector_prepare(session->peer, read ? PL_KIND_READ : PL_KIND_WRITE, transfers, count,
					   &vectors[read], &error),
			 &error);
	for (unsigned i = 0; i < 4; i++) {
		const char *reason = i ? KERNEL " from" : host.here ? KERNEL ", through" : COPIES;
		unsigned before = gpu_standin_launched();
		struct pl_completion receipt;

		for (unsigned read = 0; read < 2; read++) {
			if (read)
				bytes_set(session->buffer.bytes, POISON, SIZE);
			else
				pattern_fill(session->buffer.bytes, SIZE, i, 0);
			check_ok(pl_vector_post(vectors[read], 0, 0, NULL, &operation, &error), &error);
			complete(&session->environment, operation, &receipt);
			check(strstr(receipt.reason, reason));
			check(agent_matches(&session->agent, i, 0, SIZE));
		}
		pattern_check(session->buffer.bytes, SIZE, i, 0);
		/* One kernel for each use: without a list to write, none runs meanwhile. */
		if (gpu_standin.launched && i)
			check_number(gpu_standin_launched() - before, 2);
		if (i == 0)
			host_lock(&host);
	}
	pl_vector_free(vectors[0]);
	pl_vector_free(vectors[1]);
	host_close(&host);
}

/* -- kernels that cannot begin, and grants that end ----------------------------------------------------- */

/* Copies replace the kernel, which touches nothing when it begins at last. Later vectors use kernels again. */
static void held(void *side)
{
	struct pl_completion receipt;
	struct host_session host;
	struct gpu_session *session = &host.session;

	host_open_locked(&host, side);
	pattern_fill(session->buffer.bytes, SIZE, 11, 0);
	gpu_hold_kernels(true);
	gpu_finish_direct(session, gpu_vector_post(session, true, 4096), COPIES);
	check(agent_matches(&session->agent, 11, 0, SIZE));
	agent_fill(&session->agent, 13);
	/* Without this pause copies would be used at once. */
	sleep_ms(15);
	gpu_finish_direct(session, gpu_vector_post(session, false, 4096), COPIES);
	pattern_check(session->buffer.bytes, SIZE, 13, 0);
	pattern_fill(session->buffer.bytes, SIZE, 14, 0);
	gpu_hold_kernels(false);
	sleep_ms(20);
	check(agent_matches(&session->agent, 13, 0, SIZE));
	pattern_check(session->buffer.bytes, SIZE, 14, 0);
	do
		complete(&session->environment, gpu_vector_post(session, true, 4096), &receipt);
	while (!strstr(receipt.reason, KERNEL));
	check_vectors(session, 4096, KERNEL);
	host_close(&host);
}

/*
 * Revokes the grant while a vector is under way: no byte arrives afterwards. Returns false if the owner did not wait for the end,
 * because this machine is too slow.
 */
static bool revoke_meanwhile(struct gpu_session *session)
{
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct pl_error error;
	uint64_t begin;
	bool waited;
	int rc;

	pattern_fill(session->buffer.bytes, SIZE, 14, 0);
	operation = gpu_vector_post(session, true, 4096);
	begin = clock_now();
	agent_revoke(&session->agent);
	waited = clock_now() - begin < SECOND;
	agent_fill(&session->agent, 15);
	rc = await(&session->environment, operation, &receipt, &error);
	check_one_of(rc, 0, -EACCES);
	return waited;
}

static void revoked_held(void *side)
{
	struct host_session host;
	bool waited;

	host_open_locked(&host, side);
	gpu_hold_kernels(true);
	waited = revoke_meanwhile(&host.session);
	gpu_hold_kernels(false);
	sleep_ms(20);
	check(!waited || agent_matches(&host.session.agent, 15, 0, SIZE));
	host_close(&host);
}

/* The same while the kernel copies: the owner waits for it. */
static void revoked_running(void *side)
{
	struct host_session host;
	bool waited;

	host_open_locked(&host, side);
	gpu_standin_need();
	gpu_standin.delay(20000);
	waited = revoke_meanwhile(&host.session);
	gpu_standin.delay(0);
	check(!waited || agent_matches(&host.session.agent, 15, 0, SIZE));
	host_close(&host);
}

/*
 * A hostile owner revokes the mapping and marks its gate as free, while a GPU copies to it: the driver must keep the lock until the
 * copy has ended.
 */
static void emptied_running(void *unused)
{
	struct host_session host;
	struct gpu_session *session = &host.session;
	struct pl_transfer transfer = { .length = SIZE };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct local_access *access;
	struct pl_error error;
	size_t locked;

	(void)unused;
	host_open_locked(&host, &there);
	gpu_standin_need();
	access = session->remote->fabric_data;
	check(local_host_pin_is_locked(access->pin));
	locked = gpu_standin.pinned();
	gpu_standin.delay(HELD);
	transfer.remote = session->remote;
	transfer.region = session->buffer.region;
	check_ok(pl_write(session->peer, &transfer, NULL, &operation, &error), &error);
	progress_until(&session->environment, atomic_load(&access->gate->holders));
	atomic_store(&access->gate->open, 0);
	atomic_store(&access->gate->holders, 0);
	pl_engine_lock(session->peer->home);
	local_key_revoked(local_endpoint_of(session->peer->endpoint), access->key);
	pl_engine_unlock(session->peer->home);
	check(!local_host_pin_is_locked(access->pin));
	check_number(gpu_standin.pinned(), locked);
	gpu_standin.delay(0);
	check_one_of(await(&session->environment, operation, &receipt, &error), 0, -EACCES);
	check_number(gpu_standin.pinned(), locked - access->mapped);
	atomic_store(&access->gate->holders, 0);
	atomic_store(&access->gate->open, access->number);
	host_close(&host);
}

static const struct test_case cases[] = {
	{ "sizes-there", sizes, &there, 30 },
	{ "sizes-here", sizes, &here, 30 },
	{ "many-short-there", many_short, &there, 30 },
	{ "many-short-here", many_short, &here, 30 },
	{ "unlocked", unlocked, NULL, 20 },
	{ "locked-ends", locked_ends, NULL, 20 },
	{ "read-only", read_only, NULL, 20 },
	{ "write-combined", write_combined, NULL, 20 },
	{ "own-pointers-there", own_pointers, &there, 20 },
	{ "own-pointers-here", own_pointers, &here, 20 },
	{ "refused-lock", refused_lock, NULL, 20 },
	{ "switched-off-there", switched_off, &there, 20 },
	{ "switched-off-here", switched_off, &here, 20 },
	{ "prepared-there", prepared, &there, 30 },
	{ "prepared-here", prepared, &here, 30 },
	{ "held-there", held, &there, 20 },
	{ "held-here", held, &here, 20 },
	{ "revoked-held-there", revoked_held, &there, 20 },
	{ "revoked-held-here", revoked_held, &here, 20 },
	{ "revoked-running-there", revoked_running, &there, 20 },
	{ "revoked-running-here", revoked_running, &here, 20 },
	{ "emptied-running", emptied_running, NULL, 20 },
};

int main(void)
{
	return cases_run("gpu-host-gather", cases, sizeof(cases) / sizeof(cases[0]));
}
