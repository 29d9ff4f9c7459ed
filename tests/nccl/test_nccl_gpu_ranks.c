/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranks of one process with a GPU each (PEERLANE_GPU_MEMORY), on the stand-in for CUDA's driver: copies between the GPUs, and a
 * rank whose call of the driver takes long.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "gpu_end.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/process.h"

#define LENGTH GPU_END_LENGTH

static void set_variable(const char *name, const char *value)
{
	check_number(setenv(name, value, 1), 0);
}

/* The functions of support/gpu.h serve one GPU at a time. */
static void use_gpu(const char *kind, int gpu)
{
	check(gpu_open_on(kind, gpu));
}

/* Both GPUs are used, as by a program that has set each of them. */
static void ranks_begin(struct driver *driver, const char *kind)
{
	set_variable("PEERLANE_FABRIC", "auto");
	set_variable("PEERLANE_GPU_MEMORY", "1");
	use_gpu(kind, 1);
	use_gpu(kind, 0);
	gpu_standin_find();
	gpu_standin_need();
	driver_open(driver, 11);
}

/* Makes the context of a GPU current in this thread, as in that of its rank. */
static void enter_gpu(int gpu)
{
	CUresult (*retain)(CUcontext *, CUdevice), (*push)(CUcontext);
	CUcontext context;

	gpu_driver_find(&retain, "cuDevicePrimaryCtxRetain");
	gpu_driver_find(&push, "cuCtxPushCurrent_v2");
	check_number(retain(&context, gpu), CUDA_SUCCESS);
	check_number(push(context), CUDA_SUCCESS);
}

static void leave_gpu(void)
{
	CUresult (*pop)(CUcontext *);
	CUcontext context;

	gpu_driver_find(&pop, "cuCtxPopCurrent_v2");
	check_number(pop(&context), CUDA_SUCCESS);
}

static void rank_connect(struct line *line, struct driver *driver, int gpu)
{
	enter_gpu(gpu);
	line_connect(line, driver, 0, 0);
	leave_gpu();
}

/* A line, and memory at both ends. */
struct rank {
	struct driver *driver;
	const char *from_kind, *to_kind; /* of GPU 0 and GPU 1 */
	struct line line;
	struct gpu_end from, to;
	void *send, *receive;
};

static void rank_close(struct rank *rank)
{
	use_gpu(rank->to_kind, 1);
	gpu_end_close(&rank->to, rank->driver, rank->line.receiver);
	use_gpu(rank->from_kind, 0);
	gpu_end_close(&rank->from, rank->driver, rank->line.sender);
	driver_close_send(rank->driver, rank->line.sender);
	driver_close_receive(rank->driver, rank->line.receiver);
}

static void rank_post(struct rank *rank, size_t size)
{
	rank->receive = driver_must_receive(rank->driver, rank->line.receiver, rank->to.bytes, LENGTH, rank->to.memory);
	rank->send = driver_must_send(rank->driver, rank->line.sender, rank->from.bytes, size, rank->from.memory);
}

static void rank_finish(struct rank *rank, size_t size)
{
	check_number(driver_finish(rank->driver, rank->send), size);
	check_number(driver_finish(rank->driver, rank->receive), size);
}

static void rank_move(struct rank *rank, size_t size)
{
	rank_post(rank, size);
	rank_finish(rank, size);
}

/* -- copies between the GPUs ---------------------------------------------------------------------- */

/* Kinds of memory of GPU 0, which sends, and of GPU 1. */
struct gpu_pair {
	const char *from, *to;
	bool refused; /* the driver gives no GPU access to the other's memory */
};

static void move_and_compare(struct rank *rank, const struct gpu_pair *pair, size_t size)
{
	use_gpu(pair->from, 0);
	content_fill(rank->from.copy, size, (unsigned)size);
	gpu_copy_in(rank->from.bytes, rank->from.copy, size);
	rank_move(rank, size);
	use_gpu(pair->to, 1);
	gpu_copy_out(rank->to.bytes, rank->to.copy, size);
	check(content_is(rank->to.copy, size, (unsigned)size));
}

/* No copy goes through host memory, and the log tells the path. */
static void case_pair(void *argument)
{
	static const size_t sizes[] = { 8, 65544, LENGTH };
	const struct gpu_pair *pair = argument;
	struct driver driver;
	struct rank rank = { .driver = &driver, .from_kind = pair->from, .to_kind = pair->to };

	ranks_begin(&driver, pair->from);
	check(driver_logged("GPU memory from GPU 0 to GPU 1: local: the GPU copies from"));
	rank_connect(&rank.line, &driver, 0);
	gpu_end_open(&rank.from, &driver, rank.line.sender, true, false);
	use_gpu(pair->to, 1);
	/* The first call is that of the test itself. */
	if (pair->refused)
		gpu_standin.fail("cuMemSetAccess", 1, UINT32_MAX, 801);
	gpu_end_open(&rank.to, &driver, rank.line.receiver, true, false);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		move_and_compare(&rank, pair, sizes[i]);
	check((gpu_standin.through_host() > 0) == pair->refused);
	check(driver_logged(pair->refused ? ": GPU memory: local: the driver copies through host memory"
					  : ": GPU memory: local: the GPU copies from"));
	rank_close(&rank);
	driver_close(&driver);
}

/* -- a rank whose call of the driver takes long --------------------------------------------------- */

static void *post_stalled(void *argument)
{
	struct rank *rank = argument;

	rank_post(rank, LENGTH);
	return NULL;
}

/* The other rank's messages go on meanwhile. */
static void case_stalled_copy(void *argument)
{
	struct driver driver;
	struct rank stalled = { .driver = &driver, .from_kind = "mapped", .to_kind = "mapped" }, other = stalled;
	struct patience patience;
	pthread_t thread;

	(void)argument;
	/* Each connection has an engine of its own. */
	set_variable("PEERLANE_WORKERS", "8");
	set_variable("PEERLANE_LANES", "1");
	ranks_begin(&driver, "mapped");
	rank_connect(&stalled.line, &driver, 0);
	rank_connect(&other.line, &driver, 1);
	gpu_end_open(&stalled.from, &driver, stalled.line.sender, true, false);
	gpu_end_open(&other.from, &driver, other.line.sender, false, false);
	use_gpu("mapped", 1);
	gpu_end_open(&stalled.to, &driver, stalled.line.receiver, true, false);
	gpu_end_open(&other.to, &driver, other.line.receiver, true, false);
	rank_move(&stalled, LENGTH);
	rank_move(&other, LENGTH);
	gpu_standin.stall("across");
	check_number(pthread_create(&thread, NULL, post_stalled, &stalled), 0);
	patience_begin(&patience, 20);
	while (gpu_standin.stalled() == 0)
		patience_wait(&patience);
	for (int i = 0; i < 20; i++)
		rank_move(&other, LENGTH);
	check_number(gpu_standin.stalled(), 1);
	gpu_standin.stall(NULL);
	pthread_join(thread, NULL);
	rank_finish(&stalled, LENGTH);
	rank_close(&other);
	rank_close(&stalled);
	driver_close(&driver);
}

/* -- both ranks at the same time ------------------------------------------------------------------ */

#define ROUNDS 20u
#define PARTS 4u
#define PART (LENGTH / PARTS)

/* A rank that sends from its GPU to the other one's, in a thread. Parts of both ends' memory are registered one by one. */
struct sender {
	struct driver driver;
	int gpu;
	uint8_t *from, *to;
	pthread_t thread;
};

static void send_parts(struct sender *sender, const struct line *line, void *memory[2][PARTS])
{
	struct driver *driver = &sender->driver;
	void *sends[PARTS], *receives[PARTS];

	for (unsigned i = 0; i < PARTS; i++) {
		receives[i] = driver_must_receive(driver, line->receiver, sender->to + i * PART, PART, memory[1][i]);
		sends[i] = driver_must_send(driver, line->sender, sender->from + i * PART, PART, memory[0][i]);
	}
	for (unsigned i = 0; i < PARTS; i++) {
		check_number(driver_finish(driver, sends[i]), PART);
		check_number(driver_finish(driver, receives[i]), PART);
	}
}

static void *send_rounds(void *argument)
{
	struct sender *sender = argument;
	struct driver *driver = &sender->driver;
	void *memory[2][PARTS];
	struct line line;

	for (unsigned round = 0; round < ROUNDS; round++) {
		rank_connect(&line, driver, sender->gpu);
		for (unsigned i = 0; i < PARTS; i++) {
			memory[0][i] = driver_register_gpu(driver, line.sender, sender->from + i * PART, PART, 0, -1);
			memory[1][i] = driver_register_gpu(driver, line.receiver, sender->to + i * PART, PART, 0, -1);
		}
		send_parts(sender, &line, memory);
		for (unsigned i = 0; i < PARTS; i++) {
			driver_deregister(driver, line.receiver, memory[1][i]);
			driver_deregister(driver, line.sender, memory[0][i]);
		}
		driver_close_send(driver, line.sender);
		driver_close_receive(driver, line.receiver);
	}
	return NULL;
}

/* Both open memory of the other's GPU while messages move. */
static void case_concurrent(void *kind)
{
	uint8_t *memory[2][2], *seen = malloc(LENGTH), *filled = malloc(LENGTH);
	struct sender senders[2];
	struct driver driver;

	check(seen && filled);
	content_fill(filled, LENGTH, 7);
	ranks_begin(&driver, kind);
	for (int gpu = 0; gpu < 2; gpu++) {
		use_gpu(kind, gpu);
		memory[gpu][0] = gpu_allocate(LENGTH);
		memory[gpu][1] = gpu_allocate(LENGTH);
		gpu_copy_in(memory[gpu][0], filled, LENGTH);
	}
	for (int gpu = 0; gpu < 2; gpu++) {
		senders[gpu] = (struct sender){ driver, gpu, memory[gpu][0], memory[1 - gpu][1], 0 };
		check_number(pthread_create(&senders[gpu].thread, NULL, send_rounds, &senders[gpu]), 0);
	}
	for (int gpu = 0; gpu < 2; gpu++)
		pthread_join(senders[gpu].thread, NULL);
	check_number(gpu_standin.through_host(), 0);
	driver_close(&driver);
	for (int gpu = 0; gpu < 2; gpu++) {
		use_gpu(kind, gpu);
		gpu_copy_out(memory[gpu][1], seen, LENGTH);
		check(content_is(seen, LENGTH, 7));
		gpu_free(memory[gpu][0]);
		gpu_free(memory[gpu][1]);
	}
	free(seen);
	free(filled);
}

/* -- communicators that end while others run -------------------------------------------------------- */

#define SHARERS 4
#define SHARER_ROUNDS 6

/* Rank of a thread, which uses a part of the buffers of both GPUs, and registers all of both. */
struct sharer {
	struct driver driver; /* with a communicator of its own */
	int gpu;              /* sends to the other one */
	uint8_t *const *buffers;
	size_t offset;
	struct line line;
	void *from, *to; /* registrations */
	uint8_t copy[LENGTH / SHARERS];
};

/* Copies between host memory and the rank's part of a GPU's buffer. Threads do so at the same time, unlike support/gpu.h. */
static void sharer_copy(struct sharer *sharer, int gpu, bool in)
{
	CUresult (*into)(CUdeviceptr, const void *, size_t, CUstream), (*out)(void *, CUdeviceptr, size_t, CUstream);
	CUresult (*create)(CUstream *, unsigned), (*destroy)(CUstream), (*wait)(CUstream);
	CUdeviceptr at = (uintptr_t)sharer->buffers[gpu] + sharer->offset;
	CUstream stream;

	gpu_driver_find(&into, "cuMemcpyHtoDAsync_v2");
	gpu_driver_find(&out, "cuMemcpyDtoHAsync_v2");
	gpu_driver_find(&create, "cuStreamCreate");
	gpu_driver_find(&destroy, "cuStreamDestroy_v2");
	gpu_driver_find(&wait, "cuStreamSynchronize");
	enter_gpu(gpu);
	check_number(create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	if (in)
		check_number(into(at, sharer->copy, sizeof(sharer->copy), stream), CUDA_SUCCESS);
	else
		check_number(out(sharer->copy, at, sizeof(sharer->copy), stream), CUDA_SUCCESS);
	check_number(wait(stream), CUDA_SUCCESS);
	check_number(destroy(stream), CUDA_SUCCESS);
	leave_gpu();
}

static void sharer_post(struct sharer *sharer, void **send, void **receive)
{
	*receive =
		driver_must_receive(&sharer->driver, sharer->line.receiver,
				    sharer->buffers[!sharer->gpu] + sharer->offset, sizeof(sharer->copy), sharer->to);
	*send = driver_must_send(&sharer->driver, sharer->line.sender, sharer->buffers[sharer->gpu] + sharer->offset,
				 sizeof(sharer->copy), sharer->from);
}

static void sharer_move(struct sharer *sharer, unsigned number)
{
	void *send, *receive;

	content_fill(sharer->copy, sizeof(sharer->copy), number);
	sharer_copy(sharer, sharer->gpu, true);
	sharer_post(sharer, &send, &receive);
	check_number(driver_finish(&sharer->driver, receive), sizeof(sharer->copy));
	check_number(driver_finish(&sharer->driver, send), sizeof(sharer->copy));
	memset(sharer->copy, 0, sizeof(sharer->copy));
	sharer_copy(sharer, !sharer->gpu, false);
	check(content_is(sharer->copy, sizeof(sharer->copy), number));
}

/*
 * A communicator: some messages, and its end. In every second round a message is under way, as an abort leaves it, and either end is
 * the first to go.
 */
static void sharer_round(struct sharer *sharer, unsigned round)
{
	void *send, *receive;

	check_number(driver_init(&sharer->driver, &sharer->driver.context), NET_SUCCESS);
	rank_connect(&sharer->line, &sharer->driver, sharer->gpu);
	sharer->from =
		driver_register_gpu(&sharer->driver, sharer->line.sender, sharer->buffers[sharer->gpu], LENGTH, 0, -1);
	sharer->to = driver_register_gpu(&sharer->driver, sharer->line.receiver, sharer->buffers[!sharer->gpu], LENGTH,
					 0, -1);
	for (unsigned i = 0; i < 3; i++)
		sharer_move(sharer, round * 3 + i);
	if (round % 2)
		sharer_post(sharer, &send, &receive);
	if (round % 4 == 1)
		driver_deregister(&sharer->driver, sharer->line.sender, sharer->from);
	driver_deregister(&sharer->driver, sharer->line.receiver, sharer->to);
	if (round % 4 != 1)
		driver_deregister(&sharer->driver, sharer->line.sender, sharer->from);
	driver_close_send(&sharer->driver, sharer->line.sender);
	driver_close_receive(&sharer->driver, sharer->line.receiver);
	check_number(driver_finalize(&sharer->driver, sharer->driver.context), NET_SUCCESS);
}

static void *sharer_rounds(void *argument)
{
	for (unsigned round = 0; round < SHARER_ROUNDS; round++)
		sharer_round(argument, round);
	return NULL;
}

/* Two threads of each GPU, with communicators of their own: all register the same buffers, and end in any order. */
static void case_shared_buffers(void *kind)
{
	static struct sharer sharers[SHARERS];
	static uint8_t *buffers[2];
	pthread_t threads[SHARERS];
	struct driver driver;

	ranks_begin(&driver, kind);
	/* Copies are still under way when a communicator ends. */
	gpu_standin.delay(1000);
	for (int gpu = 0; gpu < 2; gpu++) {
		use_gpu(kind, gpu);
		buffers[gpu] = gpu_allocate(LENGTH);
	}
	for (unsigned i = 0; i < SHARERS; i++) {
		sharers[i].driver = driver;
		sharers[i].gpu = i % 2;
		sharers[i].buffers = buffers;
		sharers[i].offset = i * sizeof(sharers[i].copy);
		check_number(pthread_create(&threads[i], NULL, sharer_rounds, &sharers[i]), 0);
	}
	for (unsigned i = 0; i < SHARERS; i++)
		pthread_join(threads[i], NULL);
	check(!driver_logged(" is still in use"));
	driver_close(&driver);
	for (int gpu = 0; gpu < 2; gpu++) {
		use_gpu(kind, gpu);
		gpu_free(buffers[gpu]);
	}
	check_number(gpu_standin.mapped(), 0);
	check_number(gpu_standin.joined(), 0);
	check_number(gpu_standin.through_host(), 0);
}

int main(void)
{
	static const struct gpu_pair alloc = { "alloc", "alloc", false }, mapped = { "mapped", "mapped", false },
				     private = { "private", "private", false }, mixed = { "mapped", "alloc", false },
				     refused = { "mapped", "mapped", true };
	static const struct test_case cases[] = {
		{ "alloc", case_pair, (void *)&alloc, 30 },
		{ "mapped", case_pair, (void *)&mapped, 30 },
		{ "private", case_pair, (void *)&private, 30 },
		{ "mapped_to_alloc", case_pair, (void *)&mixed, 30 },
		{ "refused", case_pair, (void *)&refused, 30 },
		{ "stalled_copy", case_stalled_copy, NULL, 60 },
		{ "concurrent", case_concurrent, "mapped", 120 },
		{ "concurrent_alloc", case_concurrent, "alloc", 120 },
		{ "shared_buffers", case_shared_buffers, "mapped", 120 },
		{ "shared_buffers_alloc", case_shared_buffers, "alloc", 120 },
	};

	return cases_run("nccl_gpu_ranks", cases, sizeof(cases) / sizeof(cases[0]));
}
