/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Vectors between GPU memory of another process and host memory of this one that is not locked: the bytes go through locked memory of
 * the library, and a kernel scatters and gathers them. Uses the stand-in for the driver, or a real GPU.
 */
#include <stdlib.h>

#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_vectors.h"

/* Longer than all locked memory of an operation. */
#define SIZE ((size_t)6 << 20)
#define ELEMENTS 16384u
#define KERNEL "a kernel of the GPU copies, through locked memory of the library"
#define COPIES "local: a GPU copies between the host memory"
#define NO_ROOM "could lock no memory to copy through"
/* Longer than a case may run, in microseconds. */
#define HELD 100000000u

struct ring_session {
	struct gpu_session session;
	struct pl_region *loader; /* GPU memory, with which the kernel is loaded */
	struct buffer other;      /* host memory */
};

static struct pl_transfer transfers[ELEMENTS];

/* Only this process may have memory of pl_region_allocate(). */
static void agent_on_gpu(int fd)
{
	buffers_allocated = false;
	gpu_agent_alloc(fd);
}

static void session_open(struct ring_session *ring)
{
	gpu_session_open(&ring->session, agent_on_gpu, NULL, SIZE);
	buffer_open(&ring->other, ring->session.environment.near, SIZE, PL_ACCESS_ALL);
}

static void session_close(struct ring_session *ring)
{
	buffer_close(&ring->other);
	gpu_session_close(&ring->session);
}

static void ring_open(struct ring_session *ring)
{
	struct pl_error error;

	session_open(ring);
	check_ok(pl_region_allocate_in(ring->session.environment.near, "cuda:0", 4096, PL_ACCESS_ALL, &ring->loader,
				       &error),
		 &error);
	gpu_hold_prepare();
}

static void ring_close(struct ring_session *ring)
{
	check_number(pl_region_deregister(ring->loader), 0);
	session_close(ring);
}

/*
 * Cuts the whole buffer into elements of 1 to 2 * mean - 1 bytes, which lie in the opposite order at the other end, and lists them in
 * a mixed order. Returns their number.
 */
static size_t cut(const struct ring_session *ring, size_t mean)
{
	const struct gpu_session *session = &ring->session;
	uint64_t state = mean, at = 0;
	size_t count = 0;

	while (at < SIZE) {
		uint64_t length;

		state = state * 6364136223846793005u + 1442695040888963407u;
		length = 1 + (state >> 33) % (2 * mean - 1);
		if (length > SIZE - at || count == ELEMENTS - 1)
			length = SIZE - at;
		transfers[count++] =
			(struct pl_transfer){ session->remote, at, session->buffer.region, SIZE - at - length, length };
		at += length;
	}
	for (size_t i = count; i > 1; i--) {
		size_t other = (state = state * 6364136223846793005u + 1) % i;
		struct pl_transfer swapped = transfers[i - 1];

		transfers[i - 1] = transfers[other];
		transfers[other] = swapped;
	}
	return count;
}

static struct pl_operation *post(const struct ring_session *ring, bool write, size_t count,
				 const struct pl_attributes *attributes)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok((write ? pl_writev : pl_readv)(ring->session.peer, transfers, count, attributes, &operation, &error),
		 &error);
	return operation;
}

static void finish(struct ring_session *ring, struct pl_operation *operation, const char *reason)
{
	struct pl_completion receipt;

	complete(&ring->session.environment, operation, &receipt);
	check_number(receipt.route, strcmp(reason, KERNEL) ? PL_ROUTE_DIRECT : PL_ROUTE_STAGED);
	check_number(receipt.bytes_staged, strcmp(reason, KERNEL) ? 0 : receipt.bytes);
	if (!strstr(receipt.reason, reason))
		check_text(receipt.reason, reason);
}

/* Checks the bytes that a write brought to the other process. */
static void check_written(struct ring_session *ring, size_t count, uint64_t seed)
{
	struct gpu_session *session = &ring->session;
	const struct pl_transfer all = { session->remote, 0, ring->other.region, 0, SIZE };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_read(session->peer, &all, NULL, &operation, &error), &error);
	complete(&session->environment, operation, NULL);
	for (size_t i = 0; i < count; i++)
		pattern_check(ring->other.bytes + transfers[i].remote_offset, transfers[i].length, seed,
			      transfers[i].offset);
}

/* Writes and reads the elements of the list. */
static void check_vectors(struct ring_session *ring, size_t count, uint64_t seed, const char *reason)
{
	struct gpu_session *session = &ring->session;

	pattern_fill(session->buffer.bytes, SIZE, seed, 0);
	finish(ring, post(ring, true, count, NULL), reason);
	check_written(ring, count, seed);
	agent_fill(&session->agent, seed + 1);
	bytes_set(session->buffer.bytes, POISON, SIZE);
	finish(ring, post(ring, false, count, NULL), reason);
	for (size_t i = 0; i < count; i++)
		pattern_check(session->buffer.bytes + transfers[i].offset, transfers[i].length, seed + 1,
			      transfers[i].remote_offset);
}

/* -- routes -------------------------------------------------------------------------------------------- */

static void sizes(void *unused)
{
	static const size_t means[] = { 900, 4096, 16383, 70000, 250000 };
	struct ring_session ring;

	(void)unused;
	ring_open(&ring);
	for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++)
		check_vectors(&ring, cut(&ring, means[i]), means[i], KERNEL);
	ring_close(&ring);
}

/* A piece of locked memory has as many ranges as a list has room for, or fewer. */
static void many_short(void *unused)
{
	struct ring_session ring;

	(void)unused;
	ring_open(&ring);
	for (size_t i = 0; i < ELEMENTS; i++)
		transfers[i] = (struct pl_transfer){ ring.session.remote, i * 37, ring.session.buffer.region,
						     (ELEMENTS - 1 - i) * 19, i % 3 ? 19 : 0 };
	pattern_fill(ring.session.buffer.bytes, SIZE, 5, 0);
	finish(&ring, post(&ring, true, ELEMENTS, NULL), KERNEL);
	check_written(&ring, ELEMENTS, 5);
	ring_close(&ring);
}

/* A few elements, large ones, and those of operations that must not be staged, are copied one by one. */
static void copied(void *unused)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct ring_session ring;
	size_t count;

	(void)unused;
	ring_open(&ring);
	count = cut(&ring, 4096);
	finish(&ring, post(&ring, true, 7, NULL), COPIES);
	finish(&ring, post(&ring, true, 8, NULL), KERNEL);
	direct.flags = PL_REQUIRE_DIRECT;
	finish(&ring, post(&ring, true, count, &direct), COPIES);
	gpu_pin(ring.session.buffer.memory, SIZE + 2 * BUFFER_GUARD);
	gpu_finish_direct(&ring.session, post(&ring, true, count, NULL), "a kernel of the GPU copies from");
	gpu_unpin(ring.session.buffer.memory);
	check_vectors(&ring, count, 9, KERNEL);
	ring_close(&ring);
}

static void switched_off(void *unused)
{
	struct ring_session ring;

	(void)unused;
	gpu_session_multiprocessors = PL_NO_GPU_KERNEL;
	ring_open(&ring);
	check_vectors(&ring, cut(&ring, 4096), 3, COPIES);
	ring_close(&ring);
}

static void own_pointers(void *unused)
{
	struct ring_session ring;
	unsigned before;

	(void)unused;
	setenv("STANDIN_GPU", "own-pointers", 1);
	ring_open(&ring);
	gpu_standin_need();
	before = gpu_standin_launched();
	check_vectors(&ring, cut(&ring, 4096), 3, COPIES);
	check_number(gpu_standin_launched() - before, 0);
	ring_close(&ring);
}

/* The limit of the context is less than the memory that is locked at a time. */
static void no_room(void *unused)
{
	struct ring_session ring;

	(void)unused;
	gpu_session_staging = 1 << 20;
	ring_open(&ring);
	check_vectors(&ring, cut(&ring, 4096), 3, NO_ROOM);
	ring_close(&ring);
}

static void refused_lock(void *unused)
{
	struct ring_session ring;

	(void)unused;
	ring_open(&ring);
	gpu_standin_need();
	gpu_standin.fail("cuMemHostRegister", 0, 1000, 1);
	check_vectors(&ring, cut(&ring, 4096), 3, NO_ROOM);
	ring_close(&ring);
}

/* A process that registered no memory of the GPU has no kernel, and locks no memory for one. */
static void not_loaded(void *unused)
{
	struct pl_staging_info info = { .size = sizeof(info) };
	struct ring_session ring;
	struct pl_error error;

	(void)unused;
	session_open(&ring);
	gpu_standin_need();
	check_vectors(&ring, cut(&ring, 4096), 3, COPIES);
	check_ok(pl_staging_query(ring.session.environment.near, &info, &error), &error);
	check_number(info.locked, 0);
	session_close(&ring);
}

/* All slots return to the pool. */
static void slots_return(void *unused)
{
	struct pl_staging_info info = { .size = sizeof(info) };
	struct ring_session ring;
	struct pl_error error;

	(void)unused;
	ring_open(&ring);
	check_vectors(&ring, cut(&ring, 4096), 3, KERNEL);
	check_ok(pl_staging_query(ring.session.environment.near, &info, &error), &error);
	check_number(info.in_use, 0);
	check_number(info.in_use_max, 2 << 20);
	ring_close(&ring);
}

/* Writes the buffer by vectors, of which the first goes through memory of the library. */
static void write_twice(struct ring_session *ring, const char *second)
{
	size_t count = cut(ring, 4096);

	for (unsigned i = 0; i < 2; i++) {
		pattern_fill(ring->session.buffer.bytes, SIZE, i, 0);
		finish(ring, post(ring, true, count, NULL), KERNEL);
		check_written(ring, count, i);
	}
	check_vectors(ring, count, 7, second);
}

/* The library locks memory that it allocated once as many bytes were copied, until the region ends. */
static void allocated(void *unused)
{
	struct ring_session ring;
	size_t locked = 0;

	(void)unused;
	buffers_allocated = true;
	ring_open(&ring);
	if (gpu_standin.pinned)
		locked = gpu_standin.pinned();
	write_twice(&ring, "a kernel of the GPU copies from");
	if (gpu_standin.pinned)
		check(gpu_standin.pinned() >= locked + SIZE);
	ring_close(&ring);
	if (gpu_standin.pinned)
		check_number(gpu_standin.pinned(), 0);
}

/* The end of the context unlocks memory of a region that the program did not deregister. */
static void allocated_left(void *unused)
{
	struct pl_region *left;
	struct ring_session ring;
	struct pl_error error;
	size_t count, locked;

	(void)unused;
	ring_open(&ring);
	gpu_standin_need();
	check_ok(pl_region_allocate(ring.session.environment.near, SIZE, PL_ACCESS_ALL, &left, &error), &error);
	count = cut(&ring, 4096);
	for (size_t i = 0; i < count; i++)
		transfers[i].region = left;
	finish(&ring, post(&ring, true, count, NULL), KERNEL);
	locked = gpu_standin.pinned();
	finish(&ring, post(&ring, true, count, NULL), KERNEL);
	check_number(gpu_standin.pinned() - locked, SIZE);
	ring_close(&ring);
	check_number(gpu_standin.pinned(), 0);
}

/* The slots of the library leave too little of the limit. */
static void allocated_no_room(void *unused)
{
	struct ring_session ring;

	(void)unused;
	buffers_allocated = true;
	gpu_session_staging = 12 << 20;
	ring_open(&ring);
	write_twice(&ring, KERNEL);
	ring_close(&ring);
}

/* -- kernels that cannot begin, and operations that end ------------------------------------------------- */

/* Copies replace the kernels, which touch nothing when they begin at last. Later vectors use kernels again. */
static void held(void *unused)
{
	struct pl_completion receipt;
	struct ring_session ring;
	struct gpu_session *session = &ring.session;
	size_t count;

	(void)unused;
	ring_open(&ring);
	count = cut(&ring, 4096);
	check_vectors(&ring, count, 10, KERNEL);
	pattern_fill(session->buffer.bytes, SIZE, 11, 0);
	gpu_hold_kernels(true);
	finish(&ring, post(&ring, true, count, NULL), COPIES);
	check_written(&ring, count, 11);
	agent_fill(&session->agent, 13);
	/* Without this pause copies would be used at once. */
	sleep_ms(15);
	finish(&ring, post(&ring, false, count, NULL), COPIES);
	pattern_fill(session->buffer.bytes, SIZE, 14, 0);
	gpu_hold_kernels(false);
	sleep_ms(20);
	check(agent_matches(&session->agent, 13, 0, SIZE));
	pattern_check(session->buffer.bytes, SIZE, 14, 0);
	do
		complete(&session->environment, post(&ring, true, count, NULL), &receipt);
	while (!strstr(receipt.reason, KERNEL));
	check_vectors(&ring, count, 15, KERNEL);
	ring_close(&ring);
}

/* Some kernels copy, and a later one is not started: the bytes of pieces before it are not lost. */
static void refused_kernel(void *unused)
{
	struct ring_session ring;
	struct gpu_session *session = &ring.session;
	size_t count;

	(void)unused;
	ring_open(&ring);
	gpu_standin_need();
	count = cut(&ring, 4096);
	for (unsigned skip = 0; skip < 10; skip++) {
		struct pl_completion receipt;

		agent_fill(&session->agent, skip);
		bytes_set(session->buffer.bytes, POISON, SIZE);
		gpu_standin.fail("cuLaunchKernel", skip, 1, 1);
		complete(&session->environment, post(&ring, false, count, NULL), &receipt);
		for (size_t i = 0; i < count; i++)
			pattern_check(session->buffer.bytes + transfers[i].offset, transfers[i].length, skip,
				      transfers[i].remote_offset);
		pattern_fill(session->buffer.bytes, SIZE, skip + 100, 0);
		gpu_standin.fail("cuLaunchKernel", skip, 1, 1);
		complete(&session->environment, post(&ring, true, count, NULL), &receipt);
		check_written(&ring, count, skip + 100);
	}
	ring_close(&ring);
}

/* No byte of a read arrives after it was cancelled, whose kernels still run. */
static void canceled(void *write)
{
	struct pl_operation *operation;
	struct ring_session ring;
	struct gpu_session *session = &ring.session;
	struct pl_error error;
	unsigned before;
	size_t count;

	ring_open(&ring);
	gpu_standin_need();
	count = cut(&ring, 4096);
	check_vectors(&ring, count, 2, KERNEL);
	bytes_set(session->buffer.bytes, POISON, SIZE);
	before = gpu_standin_launched();
	gpu_standin.delay(HELD);
	operation = post(&ring, write != NULL, count, NULL);
	progress_until(&session->environment, gpu_standin_launched() != before);
	pl_cancel(operation);
	gpu_standin.delay(0);
	check_status(pl_wait(operation, AMPLE_TIME, NULL, &error), -ECANCELED, &error);
	for (size_t i = 0; i < SIZE; i++)
		check(session->buffer.bytes[i] == POISON);
	check_vectors(&ring, count, 4, KERNEL);
	ring_close(&ring);
}

/*
 * Revokes the grant while a write is under way: no byte arrives afterwards, unless the owner did not wait for the end, because this
 * machine is too slow.
 */
static void revoked(void *hold)
{
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct ring_session ring;
	struct gpu_session *session = &ring.session;
	struct pl_error error;
	uint64_t begin;
	bool waited;
	size_t count;

	ring_open(&ring);
	if (hold)
		gpu_hold_kernels(true);
	else if (gpu_standin.delay)
		gpu_standin.delay(20000);
	count = cut(&ring, 4096);
	pattern_fill(session->buffer.bytes, SIZE, 14, 0);
	operation = post(&ring, true, count, NULL);
	begin = clock_now();
	agent_revoke(&session->agent);
	waited = clock_now() - begin < SECOND;
	agent_fill(&session->agent, 15);
	check_one_of(await(&session->environment, operation, &receipt, &error), 0, -EACCES);
	if (hold)
		gpu_hold_kernels(false);
	else if (gpu_standin.delay)
		gpu_standin.delay(0);
	sleep_ms(20);
	check(!waited || agent_matches(&session->agent, 15, 0, SIZE));
	ring_close(&ring);
}

static const struct test_case cases[] = {
	{ "sizes", sizes, NULL, 60 },
	{ "many-short", many_short, NULL, 30 },
	{ "copied", copied, NULL, 30 },
	{ "switched-off", switched_off, NULL, 30 },
	{ "own-pointers", own_pointers, NULL, 30 },
	{ "no-room", no_room, NULL, 30 },
	{ "refused-lock", refused_lock, NULL, 30 },
	{ "not-loaded", not_loaded, NULL, 30 },
	{ "slots-return", slots_return, NULL, 30 },
	{ "allocated", allocated, NULL, 30 },
	{ "allocated-left", allocated_left, NULL, 30 },
	{ "allocated-no-room", allocated_no_room, NULL, 30 },
	{ "held", held, NULL, 30 },
	{ "refused-kernel", refused_kernel, NULL, 60 },
	{ "canceled-read", canceled, NULL, 30 },
	{ "canceled-write", canceled, "write", 30 },
	{ "revoked-held", revoked, "held", 30 },
	{ "revoked-running", revoked, NULL, 30 },
};

int main(void)
{
	return cases_run("gpu-ring", cases, sizeof(cases) / sizeof(cases[0]));
}
