/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gpu_frames [FROM TO [POLL]]: frames of a stream from a GPU of another process to CUDA streams of this one, over the local fabric.
 * FROM and TO (default: 0 and 0) are numbers of GPUs. Threads poll for POLL microseconds before they sleep; 0: the library's
 * default; none: they sleep at once.
 *
 *   latency   from pl_frame_publish() to a word of host memory that the CUDA stream writes after its wait; and for
 *             comparison the way there and back alone, from a word that this process writes
 *   rate      of large frames, next to cuMemcpyPeerAsync() between the same GPUs within this process
 *   waiting   many CUDA streams that wait at the same time, each for one frame of another GPU; not with one GPU alone
 */
#include "support.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "base/lock.h"
#include "gpu_support.h"

#define TIMEOUT (60 * NS_PER_S)
#define SMALL_FRAMES 3000u
#define LARGE_FRAMES 200u
#define WARM 20u
#define SMALL ((size_t)8 << 10)
#define LARGE ((size_t)64 << 20)
#define WAITING 128u
#define WAITING_BYTES ((size_t)1 << 20)

/* One run of the publisher. */
struct order {
	size_t bytes;
	unsigned frames, slots, held;
	bool paced; /* one frame after the other: a byte of the pipe asks for each */
};

static const struct order orders[] = {
	{ SMALL, SMALL_FRAMES + WARM, 16, 2, true },
	{ LARGE, LARGE_FRAMES + WARM, 8, 4, false },
	{ WAITING_BYTES, WAITING, 256, WAITING, true },
};

struct gpu {
	struct cuda_driver driver;
	CUresult (*write_value)(CUstream, CUdeviceptr, uint64_t, unsigned);
	CUcontext contexts[2];
	CUstream stream;
	uint64_t *word; /* locked */
};

static struct pl_context *open_context(uint64_t poll)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.progress = PL_PROGRESS_THREAD;
	options.poll_time = poll;
	MUST(pl_open(&context, &options, &error), &error);
	return context;
}

static void print_times(const char *what, uint64_t *samples, unsigned count)
{
	sort_times(samples, count);
	printf("%s: p50 %.1f us, p99 %.1f us\n", what, (double)samples[count / 2] / 1e3,
	       (double)samples[count * 99 / 100] / 1e3);
}

/* -- publisher ------------------------------------------------------------------------------------------------- */

static void publish_order(struct pl_context *context, int fd, int gpu, const struct order *order)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_frame_options frame_options = PL_FRAME_OPTIONS_INIT;
	struct pl_publisher *publisher;
	struct pl_stream_frame *frame;
	struct pl_error error;
	char kind[24], byte = 0;

	snprintf(kind, sizeof(kind), "cuda:%d", gpu);
	options.slot_bytes = frame_options.length = order->bytes;
	options.slots = order->slots;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	options.memory = kind;
	MUST(pl_publisher_open(context, "frames", &options, &publisher, &error), &error);
	put(fd, &byte, 1);
	get(fd, &byte, 1);
	for (unsigned i = 0; i < order->frames; i++) {
		if (order->paced)
			get(fd, &byte, 1);
		MUST(pl_publisher_loan(publisher, TIMEOUT, &frame, &error), &error);
		/* Both processes have the same clock. */
		frame_options.captured = now_ns();
		MUST(pl_frame_publish(frame, &frame_options, &error), &error);
	}
	MUST(pl_publisher_end(publisher, TIMEOUT, &error), &error);
	get(fd, &byte, 1);
	pl_publisher_close(publisher);
}

/* Waiting streams of one GPU would hold the copies within it up, so that the last order needs two. */
static size_t count_orders(const int gpus[2])
{
	return sizeof(orders) / sizeof(orders[0]) - (gpus[0] == gpus[1]);
}

static void publish_all(int fd, const int gpus[2], uint64_t poll)
{
	struct pl_context *context = open_context(poll);
	struct pl_listener *listener;
	struct pl_error error;
	struct pl_peer *peer;
	char address[96];

	MUST(pl_listen(context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	put(fd, address, sizeof(address));
	MUST(pl_accept(listener, TIMEOUT, &peer, &error), &error);
	for (size_t i = 0; i < count_orders(gpus); i++)
		publish_order(context, fd, gpus[0], &orders[i]);
	pl_close(context);
	exit(0);
}

/* -- subscriber ------------------------------------------------------------------------------------------------ */

static void gpu_open(struct gpu *gpu, const int numbers[2])
{
	struct pl_error error;
	CUcontext popped;
	CUdevice device;

	MUST(cuda_driver_open("libcuda.so.1", RTLD_NOW, &gpu->driver, &error), &error);
	find_driver_function("cuStreamWriteValue64_v2", &gpu->write_value);
	must_cuda(gpu->driver.cuInit(0), "cuInit");
	for (unsigned i = 0; i < 2; i++) {
		if (i)
			must_cuda(gpu->driver.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
		must_cuda(gpu->driver.cuDeviceGet(&device, numbers[i]), "cuDeviceGet");
		must_cuda(gpu->driver.cuDevicePrimaryCtxRetain(&gpu->contexts[i], device), "cuDevicePrimaryCtxRetain");
		must_cuda(gpu->driver.cuCtxPushCurrent(gpu->contexts[i]), "cuCtxPushCurrent");
	}
	if (gpu->contexts[0] != gpu->contexts[1])
		gpu->driver.cuCtxEnablePeerAccess(gpu->contexts[0], 0);
	must_cuda(gpu->driver.cuStreamCreate(&gpu->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	gpu->word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	must_cuda(gpu->driver.cuMemHostRegister(gpu->word, 4096, CU_MEMHOSTREGISTER_PORTABLE), "cuMemHostRegister");
}

static void await_word(const uint64_t *word, uint64_t value)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value)
		pl_relax();
}

/* The way to a waiting stream and back. */
static void measure_word(struct gpu *gpu)
{
	static uint64_t samples[SMALL_FRAMES];

	for (uint64_t i = 1; i <= SMALL_FRAMES; i++) {
		uint64_t start;

		must_cuda(gpu->driver.cuStreamWaitValue64(gpu->stream, (CUdeviceptr)(uintptr_t)(gpu->word + 8), i, 0),
			  "cuStreamWaitValue64");
		must_cuda(gpu->write_value(gpu->stream, (CUdeviceptr)(uintptr_t)gpu->word, i, 0),
			  "cuStreamWriteValue64");
		usleep(20);
		start = now_ns();
		__atomic_store_n(gpu->word + 8, i, __ATOMIC_RELEASE);
		await_word(gpu->word, i);
		samples[i - 1] = now_ns() - start;
	}
	print_times("latency of a word to a waiting stream and back", samples, SMALL_FRAMES);
	__atomic_store_n(gpu->word, 0, __ATOMIC_RELEASE);
}

static struct pl_stream_frame *take_on(struct pl_subscriber *subscriber, CUstream stream)
{
	struct pl_stream_frame *frame;
	struct pl_error error;

	MUST(pl_subscriber_take_on(subscriber, stream, TIMEOUT, &frame, &error), &error);
	return frame;
}

static void measure_latency(struct gpu *gpu, struct pl_subscriber *subscriber, int fd)
{
	static uint64_t samples[SMALL_FRAMES];
	struct pl_error error;

	for (uint64_t i = 1; i <= SMALL_FRAMES + WARM; i++) {
		struct pl_stream_frame *frame = take_on(subscriber, gpu->stream);
		struct pl_frame_info info = PL_FRAME_INFO_INIT;
		uint64_t end;

		must_cuda(gpu->write_value(gpu->stream, (CUdeviceptr)(uintptr_t)gpu->word, i, 0),
			  "cuStreamWriteValue64");
		put(fd, "", 1);
		await_word(gpu->word, i);
		end = now_ns();
		pl_frame_query(frame, &info);
		if (info.status->result != PL_TAKE_FRAME)
			give_up("pl_subscriber_take_on", info.status->code, NULL);
		if (i > WARM)
			samples[i - WARM - 1] = end - info.captured;
		MUST(pl_frame_release_on(frame, gpu->stream, &error), &error);
	}
	print_times("latency of 8 KiB from publication to the stream, and back to the host", samples, SMALL_FRAMES);
}

static double driver_rate(struct gpu *gpu)
{
	CUdeviceptr memory[2];
	CUcontext popped;
	uint64_t start = 0;

	for (unsigned i = 0; i < 2; i++) {
		must_cuda(gpu->driver.cuCtxPushCurrent(gpu->contexts[i]), "cuCtxPushCurrent");
		must_cuda(gpu->driver.cuMemAlloc(&memory[i], LARGE), "cuMemAlloc");
		must_cuda(gpu->driver.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
	}
	for (unsigned i = 0; i < LARGE_FRAMES + WARM; i++) {
		if (i == WARM) {
			must_cuda(gpu->driver.cuStreamSynchronize(gpu->stream), "cuStreamSynchronize");
			start = now_ns();
		}
		must_cuda(gpu->driver.cuMemcpyPeerAsync(memory[1], gpu->contexts[1], memory[0], gpu->contexts[0], LARGE,
							gpu->stream),
			  "cuMemcpyPeerAsync");
	}
	must_cuda(gpu->driver.cuStreamSynchronize(gpu->stream), "cuStreamSynchronize");
	start = now_ns() - start;
	for (unsigned i = 0; i < 2; i++)
		gpu->driver.cuMemFree(memory[i]);
	return (double)LARGE_FRAMES * LARGE / (double)start;
}

static void measure_rate(struct gpu *gpu, struct pl_subscriber *subscriber)
{
	struct rusage before, after;
	struct pl_error error;
	uint64_t start = 0;
	double own, driver;

	for (uint64_t i = 1; i <= LARGE_FRAMES + WARM; i++) {
		struct pl_stream_frame *frame = take_on(subscriber, gpu->stream);

		must_cuda(gpu->write_value(gpu->stream, (CUdeviceptr)(uintptr_t)gpu->word, i, 0),
			  "cuStreamWriteValue64");
		MUST(pl_frame_release_on(frame, gpu->stream, &error), &error);
		if (i != WARM)
			continue;
		must_cuda(gpu->driver.cuStreamSynchronize(gpu->stream), "cuStreamSynchronize");
		getrusage(RUSAGE_THREAD, &before);
		start = now_ns();
	}
	getrusage(RUSAGE_THREAD, &after);
	await_word(gpu->word, LARGE_FRAMES + WARM);
	own = (double)LARGE_FRAMES * LARGE / (double)(now_ns() - start);
	driver = driver_rate(gpu);
	printf("rate of 64 MiB frames: %.1f GB/s, cuMemcpyPeerAsync %.1f, ratio %.3f; the program's thread slept %ld "
	       "times\n",
	       own, driver, own / driver, after.ru_nvcsw - before.ru_nvcsw);
}

static void measure_waiting(struct gpu *gpu, struct pl_subscriber *subscriber, int fd)
{
	struct pl_stream_frame *frames[WAITING];
	CUstream streams[WAITING];
	unsigned good = 0;
	uint64_t start;

	/* First: the driver waits when it creates the 32nd one while streams wait. */
	for (unsigned i = 0; i < WAITING; i++)
		must_cuda(gpu->driver.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	for (unsigned i = 0; i < WAITING; i++)
		frames[i] = take_on(subscriber, streams[i]);
	start = now_ns();
	for (unsigned i = 0; i < WAITING; i++)
		put(fd, "", 1);
	for (unsigned i = 0; i < WAITING; i++) {
		struct pl_frame_info info = PL_FRAME_INFO_INIT;

		must_cuda(gpu->driver.cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
		pl_frame_query(frames[i], &info);
		good += info.status->result == PL_TAKE_FRAME && info.status->sequence == i;
	}
	printf("%u streams that wait, a frame of 1 MiB each: %u got theirs, in %.2f ms\n", WAITING, good,
	       (double)(now_ns() - start) / 1e6);
	for (unsigned i = 0; i < WAITING; i++) {
		pl_frame_release(frames[i]);
		must_cuda(gpu->driver.cuStreamDestroy(streams[i]), "cuStreamDestroy");
	}
}

static struct pl_subscriber *subscribe(struct pl_peer *peer, const char *kind, const struct order *order)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber *subscriber;
	struct pl_error error;

	options.overflow = PL_OVERFLOW_BLOCK;
	options.held = order->held;
	options.queue = 8;
	options.memory = kind;
	options.memory_bytes = (size_t)4 << 30;
	MUST(pl_subscriber_open(peer, "frames", &options, TIMEOUT, &subscriber, &error), &error);
	return subscriber;
}

static void measure_all(struct gpu *gpu, int fd, const int gpus[2], uint64_t poll)
{
	struct pl_context *context = open_context(poll);
	struct pl_error error;
	struct pl_peer *peer;
	char address[96], kind[24], byte;

	snprintf(kind, sizeof(kind), "cuda:%d", gpus[1]);
	get(fd, address, sizeof(address));
	MUST(pl_connect(context, address, TIMEOUT, &peer, &error), &error);
	measure_word(gpu);
	for (size_t i = 0; i < count_orders(gpus); i++) {
		struct pl_subscriber *subscriber;

		get(fd, &byte, 1);
		subscriber = subscribe(peer, kind, &orders[i]);
		put(fd, "", 1);
		__atomic_store_n(gpu->word, 0, __ATOMIC_RELEASE);
		if (i == 0)
			measure_latency(gpu, subscriber, fd);
		else if (i == 1)
			measure_rate(gpu, subscriber);
		else
			measure_waiting(gpu, subscriber, fd);
		must_cuda(gpu->driver.cuStreamSynchronize(gpu->stream), "cuStreamSynchronize");
		pl_subscriber_close(subscriber);
		put(fd, "", 1);
	}
	pl_close(context);
}

int main(int argc, char **argv)
{
	uint64_t poll = argc < 4 ? 0 : strcmp(argv[3], "none") ? strtoull(argv[3], NULL, 10) * 1000 : PL_NO_POLLING;
	int gpus[2] = { argc > 2 ? atoi(argv[1]) : 0, argc > 2 ? atoi(argv[2]) : 0 }, pair[2];
	struct gpu gpu = { 0 };
	pid_t child;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	child = fork();
	/* Each process keeps one end only, so that it notices the exit of the other process. */
	close(pair[child != 0]);
	if (child == 0)
		publish_all(pair[1], gpus, poll);
	gpu_open(&gpu, gpus);
	printf("frames from GPU %d of another process to GPU %d\n", gpus[0], gpus[1]);
	measure_all(&gpu, pair[0], gpus, poll);
	return waitpid(child, NULL, 0) == child ? 0 : 1;
}
