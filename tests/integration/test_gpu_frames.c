/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams of frames in GPU memory: slots, publication after the work of a CUDA stream, and frames that a CUDA stream takes.
 * A host function on the CUDA stream takes the part of a kernel: it reads the status, and the copy before it the payload.
 *
 *   test_gpu_frames [--fabric NAME]
 *
 * --fabric leaves the cases over the local fabric out, and runs the others over this fabric.
 */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"

#define SLOT 20000u
#define SLOTS 4u
#define LOANS (SLOTS - 1)
/* Steps of a millisecond that the gate holds a stream at most. */
#define GATE_STEPS 20000
/* Time in which a frame that does not wait would come, in milliseconds. */
#define LOOK 30
#define SEEN_MAX 64u
#define WAITING 24u

static struct cuda_driver driver;
static CUresult (*launch_host)(CUstream, void (*)(void *), void *);
static void (*capture)(bool);

/* A frame as the work of the stream saw it. */
struct seen {
	struct rig *rig;
	const struct pl_frame_status *status;
	struct pl_frame_status copy;
	uint8_t bytes[SLOT];
};

#define SEEN_BYTES (((SEEN_MAX + 1) * sizeof(struct seen) + 4095) / 4096 * 4096)

struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct pump pump;
	CUcontext context;
	CUstream stream;
	CUevent event;
	atomic_bool open;
	struct seen *seen; /* SEEN_MAX; locked, so that copies of the stream do not wait for it */
	unsigned count;
	uint8_t *bytes; /* of one more */
};

static void enter(struct rig *rig)
{
	check_number(driver.cuCtxPushCurrent(rig->context), CUDA_SUCCESS);
}

static void leave(struct rig *rig)
{
	CUcontext popped;

	(void)rig;
	check_number(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
}

static void rig_open(struct rig *rig, const struct setting *setting, const char *memory)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;
	CUdevice device;

	if (!gpu_open("alloc") || cuda_driver_open("libcuda.so.1", RTLD_NOW, &driver, NULL) < 0)
		exit(SKIPPED);
	gpu_standin_find();
	gpu_driver_find(&launch_host, "cuLaunchHostFunc");
	gpu_driver_find(&capture, "standin_capture");
	memset(rig, 0, sizeof(*rig));
	rig->seen = aligned_alloc(4096, SEEN_BYTES);
	check(rig->seen != NULL);
	memset(rig->seen, 0, SEEN_BYTES);
	rig->bytes = rig->seen[SEEN_MAX].bytes;
	check_number(driver.cuDeviceGet(&device, 0), CUDA_SUCCESS);
	check_number(driver.cuDevicePrimaryCtxRetain(&rig->context, device), CUDA_SUCCESS);
	enter(rig);
	check_number(driver.cuStreamCreate(&rig->stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	check_number(driver.cuMemHostRegister(rig->seen, SEEN_BYTES, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
	check_number(driver.cuEventCreate(&rig->event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
	leave(rig);
	environment_open(&rig->environment, setting);
	pump_start(&rig->environment, &rig->pump, rig->environment.far);
	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	options.metadata_bytes = 8;
	options.loans = LOANS;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	options.memory = memory;
	check_ok(pl_publisher_open(rig->environment.far, "gpu0", &options, &rig->publisher, &error), &error);
}

static void rig_subscribe(struct rig *rig, const char *memory, unsigned held)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;

	options.memory = memory;
	options.held = held;
	options.overflow = PL_OVERFLOW_BLOCK;
	options.push = !strcmp(rig->environment.setting->name, "push");
	check_ok(pl_subscriber_open(rig->environment.near_peer, "gpu0", &options, AMPLE_TIME, &rig->subscriber, &error),
		 &error);
}

/* Waits until the stream has done all its work. */
static void finish_stream(struct rig *rig)
{
	uint64_t end = clock_now() + AMPLE_TIME;

	enter(rig);
	check_number(driver.cuEventRecord(rig->event, rig->stream), CUDA_SUCCESS);
	while (driver.cuEventQuery(rig->event) == CUDA_ERROR_NOT_READY && clock_now() < end)
		settle(&rig->environment, 1);
	check_number(driver.cuEventQuery(rig->event), CUDA_SUCCESS);
	leave(rig);
}

static bool stream_waits(struct rig *rig)
{
	bool waits;

	enter(rig);
	check_number(driver.cuEventRecord(rig->event, rig->stream), CUDA_SUCCESS);
	settle(&rig->environment, LOOK);
	waits = driver.cuEventQuery(rig->event) == CUDA_ERROR_NOT_READY;
	leave(rig);
	return waits;
}

static void rig_close(struct rig *rig)
{
	CUdevice device;

	pump_stop(&rig->pump);
	pl_subscriber_close(rig->subscriber);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
	enter(rig);
	check_number(driver.cuStreamSynchronize(rig->stream), CUDA_SUCCESS);
	check_number(driver.cuEventDestroy(rig->event), CUDA_SUCCESS);
	check_number(driver.cuStreamDestroy(rig->stream), CUDA_SUCCESS);
	check_number(driver.cuMemHostUnregister(rig->seen), CUDA_SUCCESS);
	leave(rig);
	driver.cuDeviceGet(&device, 0);
	check_number(driver.cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
	if (gpu_standin.depth)
		check_number(gpu_standin.depth(), 0);
	free(rig->seen);
}

static void wait_for_gate(void *argument)
{
	struct rig *rig = argument;

	for (unsigned i = 0; i < GATE_STEPS && !atomic_load(&rig->open); i++)
		usleep(1000);
}

static void gate_close(struct rig *rig)
{
	atomic_store(&rig->open, false);
	enter(rig);
	check_number(launch_host(rig->stream, wait_for_gate, rig), CUDA_SUCCESS);
	leave(rig);
}

/* -- frames: each has the length and the bytes that its sequence gives ----------------------------------------- */

static uint64_t length_of(uint64_t sequence)
{
	return 1 + sequence * 2467 % SLOT;
}

static struct pl_frame_options options_of(const uint64_t *sequence)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;

	options.length = length_of(*sequence);
	options.captured = 1000 + *sequence;
	options.metadata = sequence;
	options.metadata_length = sizeof(*sequence);
	return options;
}

static void fill_slot(struct rig *rig, const struct pl_frame_info *info, bool gpu)
{
	pattern_fill(rig->bytes, length_of(info->sequence), info->sequence, 0);
	if (gpu)
		gpu_copy_in(info->data, rig->bytes, length_of(info->sequence));
	else
		memcpy(info->data, rig->bytes, length_of(info->sequence));
}

static void publish(struct rig *rig, bool gpu)
{
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(rig->publisher, &info);
	struct pl_frame_options options = options_of(&info.sequence);
	struct pl_error error;

	fill_slot(rig, &info, gpu);
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

static void check_frame(const struct pl_frame_info *info, uint64_t sequence)
{
	check_number(info->sequence, sequence);
	check_number(info->length, length_of(sequence));
	check_number(info->captured, 1000 + sequence);
	check(info->published > 0 && info->taken >= info->published);
	check(info->metadata_length == sizeof(sequence) && !memcmp(info->metadata, &sequence, sizeof(sequence)));
}

static void take(struct rig *rig, uint64_t sequence, bool gpu)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error);

	check_ok(rc < 0 ? rc : 0, &error);
	check_number(pl_frame_query(frame, &info), 0);
	check_frame(&info, sequence);
	check(!info.status);
	if (gpu)
		gpu_copy_out(info.data, rig->bytes, info.length);
	else
		memcpy(rig->bytes, info.data, info.length);
	pattern_check(rig->bytes, info.length, sequence, 0);
	pl_frame_release(frame);
}

static int take_status(struct rig *rig, uint64_t timeout)
{
	struct pl_stream_frame *frame;
	struct pl_error error;

	return pl_subscriber_take(rig->subscriber, &frame, 1, timeout, &error);
}

static int take_on_status(struct rig *rig, void *stream, uint64_t timeout)
{
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_subscriber_take_on(rig->subscriber, stream, timeout, &frame, &error);

	check(rc < 0 && error.code == rc && !frame);
	return rc;
}

static void look_at_status(void *argument)
{
	struct seen *seen = argument;

	seen->copy = *seen->status;
}

/* Takes a frame on the stream. Returns it, and has the stream copy payload and status. */
static struct pl_stream_frame *take_on(struct rig *rig, uint64_t timeout)
{
	struct seen *seen = &rig->seen[rig->count++];
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;

	check(rig->count <= SEEN_MAX);
	check_ok(pl_subscriber_take_on(rig->subscriber, rig->stream, timeout, &frame, &error), &error);
	check_number(pl_frame_query(frame, &info), 0);
	/* What cuMemAlloc() promises: small ranges of the driver do not begin with a page. */
	check(info.status && (uintptr_t)info.data % 256 == 0);
	seen->status = info.status;
	enter(rig);
	check_number(driver.cuMemcpyDtoHAsync(seen->bytes, (CUdeviceptr)(uintptr_t)info.data, SLOT, rig->stream),
		     CUDA_SUCCESS);
	check_number(launch_host(rig->stream, look_at_status, seen), CUDA_SUCCESS);
	leave(rig);
	return frame;
}

static void release_on(struct rig *rig, struct pl_stream_frame *frame)
{
	struct pl_error error;

	check_ok(pl_frame_release_on(frame, rig->stream, &error), &error);
}

/* The stream saw a whole frame. */
static void check_seen(const struct rig *rig, unsigned index, uint64_t sequence)
{
	const struct pl_frame_status *status = &rig->seen[index].copy;

	check_number(status->result, PL_TAKE_FRAME);
	check_number(status->code, 0);
	check_number(status->sequence, sequence);
	check_number(status->length, length_of(sequence));
	check_number(status->captured, 1000 + sequence);
	check(status->published > 0);
	pattern_check(rig->seen[index].bytes, length_of(sequence), sequence, 0);
}

static void check_none(const struct rig *rig, unsigned index, int code)
{
	const struct pl_frame_status *status = &rig->seen[index].copy;

	check_number(status->result, PL_TAKE_NONE);
	check_number(status->code, code);
	check(status->sequence == 0 && status->length == 0);
}

/* -- slots ---------------------------------------------------------------------------------------------------- */

static void slots_in_gpu(void *argument)
{
	static const char *const kinds[][2] = { { "cuda", "cuda" }, { "cuda", "host" }, { NULL, "cuda:0" } };

	for (size_t i = 0; i < 3; i++) {
		bool from_gpu = kinds[i][0] != NULL, to_gpu = strcmp(kinds[i][1], "host") != 0;
		struct pl_publisher_info infos[2] = { PL_PUBLISHER_INFO_INIT, PL_PUBLISHER_INFO_INIT };
		struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
		struct pl_error error;
		struct rig rig;

		rig_open(&rig, argument, kinds[i][0]);
		rig_subscribe(&rig, kinds[i][1], 0);
		for (uint64_t sequence = 0; sequence < 2 * SLOTS; sequence++) {
			publish(&rig, from_gpu);
			take(&rig, sequence, to_gpu);
		}
		check_number(pl_peer_publishers(rig.environment.near_peer, infos, 2, AMPLE_TIME, &error), 1);
		check(!strcmp(infos[0].memory, from_gpu ? "cuda" : "host"));
		check_number(pl_subscriber_query(rig.subscriber, &info), 0);
		check(!strcmp(info.stream.memory, from_gpu ? "cuda" : "host"));
		check_number(exact_accounts(rig.subscriber).delivered, 2 * SLOTS);
		rig_close(&rig);
	}
}

static void copy_back(const struct pl_stream_frame *frame, struct rig *rig, uint64_t sequence)
{
	uint64_t length = length_of(sequence);
	struct pl_error error;

	memset(rig->bytes, 0, length);
	/* In two parts, which join within a word. */
	check_ok(pl_frame_copy_out(frame, 0, rig->bytes, length / 3, &error), &error);
	check_ok(pl_frame_copy_out(frame, length / 3, (uint8_t *)rig->bytes + length / 3, length - length / 3, &error),
		 &error);
	pattern_check(rig->bytes, length, sequence, 0);
}

/* Copies without calls of CUDA, into each slot and from each frame. */
static void copies_in_and_out(void *argument)
{
	struct pl_frame_info info;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, "cuda");
	rig_subscribe(&rig, "cuda:0", 0);
	for (uint64_t sequence = 0; sequence < 2 * SLOTS; sequence++) {
		struct pl_stream_frame *frame = loan_frame(rig.publisher, &info);
		struct pl_frame_options options = options_of(&sequence);
		uint64_t length = length_of(sequence);

		pattern_fill(rig.bytes, length, sequence, 0);
		check_ok(pl_frame_copy_in(frame, 0, rig.bytes, length / 2, &error), &error);
		check_ok(pl_frame_copy_in(frame, length / 2, (uint8_t *)rig.bytes + length / 2, length - length / 2,
					  &error),
			 &error);
		check_number(pl_frame_copy_in(frame, SLOT, rig.bytes, 1, &error), -ERANGE);
		copy_back(frame, &rig, sequence);
		check_ok(pl_frame_publish(frame, &options, &error), &error);
		check_number(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error), 1);
		copy_back(frame, &rig, sequence);
		check_number(pl_frame_copy_out(frame, 0, rig.bytes, length + 1, &error), -ERANGE);
		check_number(pl_frame_copy_out(frame, UINT64_MAX, rig.bytes, 2, &error), -ERANGE);
		check(!strcmp(error.id, "FRAME-RANGE"));
		check_ok(pl_frame_copy_out(frame, length, NULL, 0, &error), &error);
		check_number(pl_frame_copy_in(frame, 0, rig.bytes, 1, &error), -EINVAL);
		pl_frame_release(frame);
	}
	rig_close(&rig);
}

/* -- publication after a stream ------------------------------------------------------------------------------- */

static void publish_waits_for_stream(void *argument)
{
	struct pl_frame_info info[2];
	struct pl_frame_options options;
	struct pl_stream_frame *frames[2];
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, "cuda");
	rig_subscribe(&rig, "cuda", 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 2; i++)
			frames[i] = loan_frame(rig.publisher, &info[i]);
		gate_close(&rig);
		pattern_fill(rig.bytes, length_of(info[0].sequence), info[0].sequence, 0);
		enter(&rig);
		check_number(driver.cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)info[0].data, rig.bytes,
						      length_of(info[0].sequence), rig.stream),
			     CUDA_SUCCESS);
		leave(&rig);
		options = options_of(&info[0].sequence);
		check_ok(pl_frame_publish_on(frames[0], &options, rig.stream, &error), &error);
		/* The later loan waits for the earlier one. */
		options = options_of(&info[1].sequence);
		pattern_fill(rig.seen[0].bytes, length_of(info[1].sequence), info[1].sequence, 0);
		gpu_copy_in(info[1].data, rig.seen[0].bytes, length_of(info[1].sequence));
		check_ok(pl_frame_publish(frames[1], &options, &error), &error);
		check_number(take_status(&rig, LOOK * 1000000ull), -ETIMEDOUT);
		check_number(pl_publisher_end(rig.publisher, 0, &error), -EBUSY);
		atomic_store(&rig.open, true);
		take(&rig, 2 * round, true);
		take(&rig, 2 * round + 1, true);
	}
	check_number(pl_frame_publish_on(loan_frame(rig.publisher, &info[0]), NULL, NULL, &error), -EINVAL);
	check(!strcmp(error.id, "STREAM-DEFAULT"));
	rig_close(&rig);
}

static void *open_gate_later(void *argument)
{
	struct rig *rig = argument;

	usleep(LOOK * 1000);
	atomic_store(&rig->open, true);
	return NULL;
}

/* Without a time of its own, a frame is captured when the stream publishes it. */
static void publish_time_of_stream(void *argument)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT, loaned;
	struct pl_frame_options options = { sizeof(options), .length = 8 };
	struct pl_stream_frame *frame;
	struct timespec opened;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, "cuda");
	rig_subscribe(&rig, "cuda", 0);
	gate_close(&rig);
	check_ok(pl_frame_publish_on(loan_frame(rig.publisher, &loaned), &options, rig.stream, &error), &error);
	clock_gettime(CLOCK_REALTIME, &opened);
	atomic_store(&rig.open, true);
	check_number(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error), 1);
	check_number(pl_frame_query(frame, &info), 0);
	check(info.captured == info.published);
	check(info.captured >= (uint64_t)opened.tv_sec * 1000000000 + (uint64_t)opened.tv_nsec);
	pl_frame_release(frame);
	rig_close(&rig);
}

/* Loans that a stream publishes come back by themselves: the next loan and the end of the stream wait for them. */
static void loans_come_back(void *argument)
{
	struct pl_publisher_info published = PL_PUBLISHER_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_frame_info info;
	struct pl_error error;
	pthread_t thread;
	struct rig rig;

	rig_open(&rig, argument, "cuda");
	gate_close(&rig);
	for (unsigned i = 0; i < LOANS; i++)
		check_ok(pl_frame_publish_on(loan_frame(rig.publisher, &info), NULL, rig.stream, &error), &error);
	check_number(pl_publisher_loan(rig.publisher, 0, &frame, &error), -EMLINK);
	check_number(pl_publisher_loan(rig.publisher, LOOK * 1000000ull, &frame, &error), -EMLINK);
	check(!strcmp(error.id, "LOAN-LIMIT"));
	check_number(pthread_create(&thread, NULL, open_gate_later, &rig), 0);
	check_ok(pl_publisher_loan(rig.publisher, AMPLE_TIME, &frame, &error), &error);
	pthread_join(thread, NULL);
	gate_close(&rig);
	check_ok(pl_frame_publish_on(frame, NULL, rig.stream, &error), &error);
	check_number(pl_publisher_end(rig.publisher, LOOK * 1000000ull, &error), -EBUSY);
	check_number(pthread_create(&thread, NULL, open_gate_later, &rig), 0);
	check_ok(pl_publisher_end(rig.publisher, AMPLE_TIME, &error), &error);
	pthread_join(thread, NULL);
	check_number(pl_publisher_query(rig.publisher, &published), 0);
	check(published.state == PL_STREAM_ENDED && published.published == LOANS + 1);
	rig_close(&rig);
}

/* -- frames for a stream -------------------------------------------------------------------------------------- */

/* The stream waits for frames that are published later, and one after the other. */
static void stream_waits_for_frames(void *argument)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frames[3];
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, "cuda");
	rig_subscribe(&rig, "cuda", 3);
	for (unsigned i = 0; i < 3; i++)
		frames[i] = take_on(&rig, UINT64_MAX);
	check(stream_waits(&rig));
	check_number(pl_frame_query(frames[0], &info), 0);
	check(info.status->result == PL_TAKE_WAITS && info.length == 0 && info.sequence == 0);
	check_number(pl_frame_copy_out(frames[0], 0, rig.bytes, 0, &error), -EAGAIN);
	for (unsigned i = 0; i < 3; i++) {
		check_number(rig.seen[i].copy.result, PL_TAKE_WAITS);
		publish(&rig, true);
	}
	finish_stream(&rig);
	for (unsigned i = 0; i < 3; i++) {
		check_seen(&rig, i, i);
		info = (struct pl_frame_info)PL_FRAME_INFO_INIT;
		check_number(pl_frame_query(frames[i], &info), 0);
		check_frame(&info, i);
		pl_frame_release(frames[i]);
	}
	check_number(exact_accounts(rig.subscriber).delivered, 3);
	/* Ordinary takes go on. */
	publish(&rig, true);
	take(&rig, 3, true);
	rig_close(&rig);
}

/* Frames that are ready, or that the program has not taken, come first and in order. */
static void ready_frames_come_first(void *argument)
{
	struct pl_stream_frame *frame;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 2);
	for (unsigned i = 0; i < 3; i++)
		publish(&rig, false);
	frame = take_on(&rig, UINT64_MAX);
	take(&rig, 1, true);
	release_on(&rig, frame);
	release_on(&rig, take_on(&rig, UINT64_MAX));
	release_on(&rig, take_on(&rig, UINT64_MAX));
	check(stream_waits(&rig));
	publish(&rig, false);
	finish_stream(&rig);
	check_seen(&rig, 0, 0);
	check_seen(&rig, 1, 2);
	check_seen(&rig, 2, 3);
	rig_close(&rig);
}

/* A pipeline without waits of the program: the stream takes and releases more frames than the program can hold. */
static void stream_takes_many(void *argument)
{
	struct rig rig;

	rig_open(&rig, argument, "cuda");
	rig_subscribe(&rig, "cuda", 2);
	for (unsigned i = 0; i < SEEN_MAX; i++) {
		publish(&rig, true);
		release_on(&rig, take_on(&rig, AMPLE_TIME));
	}
	finish_stream(&rig);
	for (unsigned i = 0; i < SEEN_MAX; i++)
		check_seen(&rig, i, i);
	check_number(exact_accounts(rig.subscriber).delivered, SEEN_MAX);
	rig_close(&rig);
}

/* More streams wait than the driver has queues for, and small frames come from host memory. */
static void many_streams_wait(void *argument)
{
	struct pl_stream_frame *frames[WAITING];
	CUstream streams[WAITING], first;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", WAITING);
	first = rig.stream;
	enter(&rig);
	for (unsigned i = 0; i < WAITING; i++)
		check_number(driver.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	leave(&rig);
	for (unsigned i = 0; i < WAITING; i++) {
		rig.stream = streams[i];
		frames[i] = take_on(&rig, UINT64_MAX);
	}
	for (unsigned i = 0; i < WAITING; i++) {
		publish(&rig, false);
		rig.stream = streams[i];
		finish_stream(&rig);
		check_seen(&rig, i, i);
		pl_frame_release(frames[i]);
	}
	enter(&rig);
	for (unsigned i = 0; i < WAITING; i++)
		check_number(driver.cuStreamDestroy(streams[i]), CUDA_SUCCESS);
	leave(&rig);
	rig.stream = first;
	rig_close(&rig);
}

/* Copies of the GPU end late: the word that the stream waits for is written only once the bytes are there. */
static void slow_copies(void *argument)
{
	struct rig rig;

	gpu_standin_find();
	gpu_standin_need();
	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 4);
	for (uint64_t sequence = 0; sequence < SLOTS; sequence++) {
		struct pl_frame_info info = PL_FRAME_INFO_INIT;
		struct pl_stream_frame *frame = NULL;

		/* The stream waits before the frame is published, or while it is copied. */
		if (sequence % 2)
			frame = take_on(&rig, UINT64_MAX);
		gpu_standin.delay(30000);
		publish(&rig, false);
		while (!frame && exact_accounts(rig.subscriber).pending == 0)
			settle(&rig.environment, 1);
		if (!frame)
			frame = take_on(&rig, UINT64_MAX);
		while (pl_promise_result(frame) == PL_TAKE_WAITS)
			settle(&rig.environment, 1);
		check_number(pl_frame_query(frame, &info), 0);
		/* This copy is not delayed. */
		gpu_copy_out(info.data, rig.bytes, info.length);
		pattern_check(rig.bytes, info.length, sequence, 0);
		gpu_standin.delay(0);
		release_on(&rig, frame);
		finish_stream(&rig);
		check_seen(&rig, (unsigned)sequence, sequence);
	}
	rig_close(&rig);
}

static unsigned frames_being_read(struct pl_subscriber *subscriber)
{
	unsigned count = 0;

	pl_lock_take(&subscriber->lock);
	pl_list_for_each(at, &subscriber->window)
		count += pl_list_entry(at, struct pl_stream_frame, link)->state == PL_FRAME_READING;
	pl_lock_release(&subscriber->lock);
	return count;
}

/* The engine does not wait for the copy of a large frame: it starts those of others. */
static void large_copies_go_together(void *argument)
{
	enum { LARGE = 1 << 20, FRAMES = 3, MINUTE = 60 * 1000 * 1000 };
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_frame_options frame_options = PL_FRAME_OPTIONS_INIT;
	struct pl_stream_frame *frames[FRAMES];
	uint8_t *bytes = malloc(LARGE);
	struct pl_error error;
	struct rig rig;

	gpu_standin_find();
	gpu_standin_need();
	check(bytes != NULL);
	rig_open(&rig, argument, NULL);
	pl_publisher_close(rig.publisher);
	options.slot_bytes = frame_options.length = LARGE;
	options.slots = FRAMES + 1;
	options.loans = FRAMES;
	options.allow_block = true;
	options.memory = "cuda";
	check_ok(pl_publisher_open(rig.environment.far, "gpu0", &options, &rig.publisher, &error), &error);
	rig_subscribe(&rig, "cuda", FRAMES);
	for (unsigned i = 0; i < FRAMES; i++) {
		struct pl_frame_info info;

		frames[i] = loan_frame(rig.publisher, &info);
		pattern_fill(bytes, LARGE, i, 0);
		gpu_copy_in(info.data, bytes, LARGE);
	}
	gpu_standin.delay(MINUTE);
	for (unsigned i = 0; i < FRAMES; i++)
		check_ok(pl_frame_publish(frames[i], &frame_options, &error), &error);
	while (frames_being_read(rig.subscriber) < FRAMES)
		settle(&rig.environment, 1);
	gpu_standin.delay(0);
	for (unsigned i = 0; i < FRAMES; i++) {
		struct pl_frame_info info = PL_FRAME_INFO_INIT;

		check_number(pl_subscriber_take(rig.subscriber, &frames[i], 1, AMPLE_TIME, &error), 1);
		check_number(pl_frame_query(frames[i], &info), 0);
		gpu_copy_out(info.data, bytes, LARGE);
		pattern_check(bytes, LARGE, i, 0);
		pl_frame_release(frames[i]);
	}
	free(bytes);
	rig_close(&rig);
}

/*
 * Reads the newest frame with the subscriber's key, and checks nothing afterwards. The publisher uses its slot again after the read
 * has begun, and before bytes leave the GPU. Returns true if it got bytes of another frame.
 */
static bool read_naively(struct rig *rig, struct pl_region *region)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_transfer transfer = { .remote = rig->subscriber->payload, .region = region };
	struct pl_operation *operation;
	struct pl_error error;
	uint64_t sequence;

	check_number(pl_publisher_query(rig->publisher, &info), 0);
	sequence = info.published - 1;
	transfer.remote_offset = pl_ring_slot_offset(&rig->subscriber->geometry, sequence);
	transfer.length = length_of(sequence);
	gpu_standin.stall("copy-out");
	check_ok(pl_read(rig->environment.near_peer, &transfer, NULL, &operation, &error), &error);
	while (!gpu_standin.stalled())
		settle(&rig->environment, 1);
	for (unsigned i = 0; i <= SLOTS; i++)
		publish(rig, true);
	gpu_standin.stall(NULL);
	complete(&rig->environment, operation, NULL);
	return !pattern_matches(pl_region_address(region), transfer.length, sequence, 0);
}

/* Takes frames, which are whole, until each one that is published has a fate. */
static struct pl_accounts take_published(struct rig *rig)
{
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_publisher_info published = PL_PUBLISHER_INFO_INIT;
	struct pl_accounts accounts;
	struct pl_stream_frame *frame;

	check_number(pl_publisher_query(rig->publisher, &published), 0);
	do {
		check(clock_now() < limit);
		while (pl_subscriber_take(rig->subscriber, &frame, 1, 0, NULL) == 1) {
			struct pl_frame_info info = PL_FRAME_INFO_INIT;

			check_number(pl_frame_query(frame, &info), 0);
			check_frame(&info, info.sequence);
			gpu_copy_out(info.data, rig->bytes, info.length);
			pattern_check(rig->bytes, info.length, info.sequence, 0);
			pl_frame_release(frame);
		}
		settle(&rig->environment, 1);
		accounts = exact_accounts(rig->subscriber);
	} while (accounts.next < published.published || accounts.pending);
	return accounts;
}

/*
 * The publisher overwrites slots of its GPU while copies of them are under way, which end late. Over tcp: the other fabrics copy
 * within the call.
 */
static void hunt(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	uint64_t limit = clock_now() + 2 * AMPLE_TIME;
	struct pl_accounts accounts = { 0 };
	struct pl_region *region;
	struct pl_error error;
	unsigned caught = 0;
	struct rig rig;

	gpu_standin_find();
	gpu_standin_need();
	rig_open(&rig, argument, "cuda");
	options.memory = "cuda";
	check_ok(pl_subscriber_open(rig.environment.near_peer, "gpu0", &options, AMPLE_TIME, &rig.subscriber, &error),
		 &error);
	check_ok(pl_region_allocate(rig.environment.near, SLOT, PL_ACCESS_LOCAL, &region, &error), &error);
	publish(&rig, true);
	gpu_standin.delay(2000);
	while (caught < 3 || accounts.lapped < 5 || accounts.delivered < 20) {
		check(clock_now() < limit);
		caught += read_naively(&rig, region);
		accounts = take_published(&rig);
	}
	gpu_standin.delay(0);
	pl_region_deregister(region);
	rig_close(&rig);
}

/* The stream has not reached the release: the frame keeps its memory, while others come and go. */
static void release_waits_for_stream(void *argument)
{
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 2);
	gate_close(&rig);
	release_on(&rig, take_on(&rig, UINT64_MAX));
	publish(&rig, false);
	/* More frames than the subscriber has memory for. */
	for (uint64_t sequence = 1; sequence < 30; sequence++) {
		publish(&rig, false);
		take(&rig, sequence, true);
	}
	atomic_store(&rig.open, true);
	finish_stream(&rig);
	check_seen(&rig, 0, 0);
	rig_close(&rig);
}

/* The second release of a frame has no effect, also while its stream still waits. */
static void second_release_does_nothing(void *argument)
{
	struct pl_accounts accounts;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 1);
	for (uint64_t sequence = 0; sequence < 2 * SLOTS; sequence++) {
		struct pl_stream_frame *frame = take_on(&rig, UINT64_MAX);

		release_on(&rig, frame);
		pl_frame_release(frame);
		publish(&rig, false);
		finish_stream(&rig);
		check_seen(&rig, (unsigned)sequence, sequence);
	}
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 2 * SLOTS && accounts.pending == 0);
	rig_close(&rig);
}

/* The queue has one place. A frame for which a stream waits leaves it before the next one comes. */
static void promised_frame_is_not_dropped(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_accounts accounts;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	options.memory = "cuda";
	options.queue = 1;
	options.held = 2;
	check_ok(pl_subscriber_open(rig.environment.near_peer, "gpu0", &options, AMPLE_TIME, &rig.subscriber, &error),
		 &error);
	release_on(&rig, take_on(&rig, UINT64_MAX));
	pump_stop(&rig.pump);
	publish(&rig, false);
	publish(&rig, false);
	pump_start(&rig.environment, &rig.pump, rig.environment.far);
	finish_stream(&rig);
	check_seen(&rig, 0, 0);
	take(&rig, 1, true);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 2 && accounts.dropped == 0);
	rig_close(&rig);
}

/* -- waits that end without a frame --------------------------------------------------------------------------- */

static void discarded_frame_is_gap(void *argument)
{
	struct pl_frame_info info;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 2);
	release_on(&rig, take_on(&rig, UINT64_MAX));
	release_on(&rig, take_on(&rig, UINT64_MAX));
	pl_frame_discard(loan_frame(rig.publisher, &info));
	publish(&rig, false);
	finish_stream(&rig);
	check_number(rig.seen[0].copy.result, PL_TAKE_GAP);
	check_number(rig.seen[0].copy.sequence, 0);
	check_seen(&rig, 1, 1);
	check_number(rig.seen[1].copy.lost_before, 1);
	check_number(exact_accounts(rig.subscriber).aborted, 1);
	rig_close(&rig);
}

static void time_ends_wait(void *argument)
{
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 2);
	release_on(&rig, take_on(&rig, LOOK * 1000000ull));
	finish_stream(&rig);
	check_none(&rig, 0, -ETIMEDOUT);
	publish(&rig, false);
	release_on(&rig, take_on(&rig, UINT64_MAX));
	finish_stream(&rig);
	check_seen(&rig, 1, 0);
	rig_close(&rig);
}

static void end_ends_waits(void *argument)
{
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 4);
	for (unsigned i = 0; i < 3; i++)
		release_on(&rig, take_on(&rig, UINT64_MAX));
	publish(&rig, false);
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	finish_stream(&rig);
	check_seen(&rig, 0, 0);
	check_none(&rig, 1, -ENODATA);
	check_none(&rig, 2, -ENODATA);
	check_number(take_on_status(&rig, rig.stream, UINT64_MAX), -ENODATA);
	rig_close(&rig);
}

static void loss_ends_waits(void *argument)
{
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 2);
	release_on(&rig, take_on(&rig, UINT64_MAX));
	pl_peer_close(rig.environment.far_peer);
	rig.environment.far_peer = NULL;
	finish_stream(&rig);
	check_none(&rig, 0, -ENOTCONN);
	check_number(take_on_status(&rig, rig.stream, UINT64_MAX), -ENOTCONN);
	pl_peer_close(rig.environment.near_peer);
	connect_pair(&rig.environment, rig.environment.near, rig.environment.listener, &rig.environment.near_peer,
		     &rig.environment.far_peer);
	check_ok(pl_subscriber_attach(rig.subscriber, rig.environment.near_peer, AMPLE_TIME, &error), &error);
	release_on(&rig, take_on(&rig, UINT64_MAX));
	publish(&rig, false);
	finish_stream(&rig);
	check_seen(&rig, 1, 0);
	rig_close(&rig);
}

static void close_ends_waits(void *argument)
{
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 2);
	take_on(&rig, UINT64_MAX);
	pl_frame_release(take_on(&rig, UINT64_MAX));
	check(stream_waits(&rig));
	pl_subscriber_close(rig.subscriber);
	rig.subscriber = NULL;
	finish_stream(&rig);
	rig_close(&rig);
}

/* -- refusals ------------------------------------------------------------------------------------------------- */

static void refusals(void *argument)
{
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "host", 1);
	check_number(take_on_status(&rig, rig.stream, 0), -ENOTSUP);
	pl_subscriber_close(rig.subscriber);
	rig_subscribe(&rig, "cuda", 1);
	check_number(take_on_status(&rig, NULL, 0), -EINVAL);
	check_number(take_on_status(&rig, (void *)1, 0), -EINVAL);
	pl_frame_release(NULL);
	frame = take_on(&rig, UINT64_MAX);
	check_number(take_on_status(&rig, rig.stream, UINT64_MAX), -EMLINK);
	check_number(pl_frame_release_on(frame, NULL, &error), -EINVAL);
	release_on(&rig, frame);
	check_number(pl_frame_release_on(frame, rig.stream, &error), -EINVAL);
	check(!strcmp(error.id, "FRAME-FOREIGN"));
	/* It comes back only after a frame. */
	check_number(take_on_status(&rig, rig.stream, LOOK * 1000000ull), -EMLINK);
	publish(&rig, false);
	finish_stream(&rig);
	check_seen(&rig, 0, 0);
	if (capture) {
		capture(true);
		check_number(take_on_status(&rig, rig.stream, 0), -EINVAL);
		capture(false);
	}
	if (gpu_standin.fail) {
		gpu_standin.fail("cuStreamWaitValue64", 0, 1, CUDA_ERROR_OUT_OF_MEMORY);
		check_number(take_on_status(&rig, rig.stream, UINT64_MAX), -ENOMEM);
		publish(&rig, false);
		take(&rig, 1, true);
	}
	rig_close(&rig);
}

/* -- waits that the driver refuses ------------------------------------------------------------------------------------- */

static void refuse_next_wait(void)
{
	gpu_standin.fail("cuStreamWaitValue64", 0, 1, CUDA_ERROR_OUT_OF_MEMORY);
}

static void await_pending(struct rig *rig, uint64_t count)
{
	while (exact_accounts(rig->subscriber).pending != count)
		settle(&rig->environment, 1);
}

/* Ends the stream, of which the program has taken all frames. Both ends have the same accounts. */
static void check_all_delivered(struct rig *rig, uint64_t count)
{
	struct pl_subscription_info info = PL_SUBSCRIPTION_INFO_INIT;
	struct pl_accounts accounts;
	struct pl_error error;

	check_ok(pl_publisher_end(rig->publisher, AMPLE_TIME, &error), &error);
	accounts = exact_accounts(rig->subscriber);
	check_number(accounts.delivered, count);
	check_number(accounts.next - accounts.first, count);
	check_number(pl_publisher_subscribers(rig->publisher, &info, 1), 1);
	check(!memcmp(&info.accounts, &accounts, sizeof(accounts)));
}

/* The next take gets the frame, of a stream or of the program, whether it was ready or being read. */
static void refused_frame_stays(void *argument)
{
	struct rig rig;

	gpu_standin_find();
	gpu_standin_need();
	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 2);
	for (uint64_t sequence = 0; sequence < 2; sequence++)
		publish(&rig, false);
	await_pending(&rig, 2);
	while (!pl_subscriber_first_ready(rig.subscriber))
		settle(&rig.environment, 1);
	for (unsigned i = 0; i < 3; i++) {
		refuse_next_wait();
		check_number(take_on_status(&rig, rig.stream, UINT64_MAX), -ENOMEM);
		check_number(exact_accounts(rig.subscriber).delivered, 0);
	}
	release_on(&rig, take_on(&rig, UINT64_MAX));
	finish_stream(&rig);
	check_seen(&rig, 0, 0);
	refuse_next_wait();
	check_number(take_on_status(&rig, rig.stream, UINT64_MAX), -ENOMEM);
	take(&rig, 1, true);
	gpu_standin.delay(30000);
	publish(&rig, false);
	await_pending(&rig, 1);
	refuse_next_wait();
	check_number(take_on_status(&rig, rig.stream, UINT64_MAX), -ENOMEM);
	gpu_standin.delay(0);
	release_on(&rig, take_on(&rig, UINT64_MAX));
	finish_stream(&rig);
	check_seen(&rig, 1, 2);
	check(rig.seen[0].copy.lost_before == 0 && rig.seen[1].copy.lost_before == 0);
	check_all_delivered(&rig, 3);
	rig_close(&rig);
}

/* The wait of a stream that no frame has yet ends meanwhile, and its place comes back. */
static void refused_place_comes_back(void *argument)
{
	struct rig rig;

	gpu_standin_find();
	gpu_standin_need();
	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 1);
	for (unsigned i = 0; i < 3; i++) {
		refuse_next_wait();
		check_number(take_on_status(&rig, rig.stream, 0), -ENOMEM);
	}
	publish(&rig, false);
	take(&rig, 0, true);
	check_all_delivered(&rig, 1);
	rig_close(&rig);
}

struct taking {
	struct rig *rig;
	struct pl_stream_frame *frame;
	int status;
};

static void *take_on_stream(void *argument)
{
	struct taking *taking = argument;
	struct pl_error error;

	taking->status =
		pl_subscriber_take_on(taking->rig->subscriber, taking->rig->stream, AMPLE_TIME, &taking->frame, &error);
	return NULL;
}

/* Nothing overtakes, drops or counts a frame while the driver decides. */
static void driver_decides_late(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct taking first, second;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	pthread_t threads[2];
	struct pl_error error;
	struct rig rig;

	gpu_standin_find();
	gpu_standin_need();
	rig_open(&rig, argument, NULL);
	options.memory = "cuda";
	options.queue = 2;
	options.overflow = PL_OVERFLOW_DROP_OLDEST;
	check_ok(pl_subscriber_open(rig.environment.near_peer, "gpu0", &options, AMPLE_TIME, &rig.subscriber, &error),
		 &error);
	first = second = (struct taking){ .rig = &rig };
	publish(&rig, false);
	publish(&rig, false);
	await_pending(&rig, 2);
	gpu_standin.stall("cuStreamWaitValue64");
	check_number(pthread_create(&threads[0], NULL, take_on_stream, &first), 0);
	while (gpu_standin.stalled() != 1)
		settle(&rig.environment, 1);
	publish(&rig, false);
	settle(&rig.environment, LOOK);
	check_number(take_status(&rig, 0), -EAGAIN);
	check(exact_accounts(rig.subscriber).delivered == 0 && exact_accounts(rig.subscriber).dropped == 0);
	check_number(pthread_create(&threads[1], NULL, take_on_stream, &second), 0);
	while (atomic_load(&rig.subscriber->turn.sleepers) == 0)
		settle(&rig.environment, 1);
	check_number(gpu_standin.stalled(), 1);
	refuse_next_wait();
	gpu_standin.stall(NULL);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	check(first.status == -ENOMEM && !first.frame && second.status == 0);
	finish_stream(&rig);
	check_number(pl_frame_query(second.frame, &info), 0);
	check(info.status->result == PL_TAKE_FRAME);
	check_number(info.sequence, info.lost_before);
	pl_frame_release(second.frame);
	rig_close(&rig);
}

/* Slots in GPU memory cannot be mapped, so frames cannot be used in them. */
static void no_frames_in_place(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, "cuda");
	options.in_place = true;
	check_number(
		pl_subscriber_open(rig.environment.near_peer, "gpu0", &options, AMPLE_TIME, &rig.subscriber, &error),
		-ENOTSUP);
	check(!strcmp(error.id, "STREAM-PLACE") && !rig.subscriber);
	rig_close(&rig);
}

/* The publisher chooses the slot of a pushed frame, so no CUDA stream can wait for it. */
static void no_take_on_of_pushed_frames(void *argument)
{
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, "cuda", 0);
	check_number(pl_subscriber_take_on(rig.subscriber, rig.stream, AMPLE_TIME, &frame, &error), -ENOTSUP);
	check(!strcmp(error.id, "STREAM-PUSHED"));
	publish(&rig, false);
	take(&rig, 0, true);
	rig_close(&rig);
}

static bool watch_is_added(const struct rig *rig)
{
	struct pl_engine *home = rig->environment.near_peer->home;
	bool added;

	/* Unlocking runs tasks that were posted before. */
	pl_engine_lock(home);
	pl_engine_unlock(home);
	pl_engine_lock(home);
	added = !pl_list_empty(&rig->subscriber->promise_watch.link);
	pl_engine_unlock(home);
	return added;
}

/* Waits until a frame has come, and releases it after the stream's work. */
static void finish_frame(struct rig *rig, struct pl_stream_frame *frame)
{
	while (pl_promise_result(frame) == PL_TAKE_WAITS)
		settle(&rig->environment, 1);
	check_number(pl_promise_result(frame), PL_TAKE_FRAME);
	release_on(rig, frame);
	finish_stream(rig);
}

/* The engine finds a frame in the ring while a stream waits. No message tells of it. */
static void engine_finds_frame(void *argument)
{
	struct pl_engine *teller;
	bool found = false;
	struct rig rig;

	poll_time = PL_NS_PER_S;
	rig_open(&rig, argument, "cuda");
	poll_time = 0;
	rig_subscribe(&rig, "cuda", 0);
	teller = rig.environment.far_peer->home;
	/* On a slow machine the engine may have stopped to poll before the publication. */
	while (!found) {
		struct pl_stream_frame *frame = take_on(&rig, UINT64_MAX);

		pl_engine_lock(teller);
		publish(&rig, true);
		found = watch_is_added(&rig);
		while (found && pl_promise_result(frame) == PL_TAKE_WAITS)
			settle(&rig.environment, 1);
		pl_engine_unlock(teller);
		finish_frame(&rig, frame);
	}
	for (unsigned i = 0; i < rig.count; i++)
		check_seen(&rig, i, i);
	rig_close(&rig);
}

/* Returns the end of the last polling, after all tasks that were posted before. */
static uint64_t poll_end_of(struct rig *rig)
{
	watch_is_added(rig);
	return rig->subscriber->promise_poll_end;
}

static bool frame_is_ready(struct rig *rig)
{
	bool ready;

	pl_lock_take(&rig->subscriber->lock);
	ready = pl_subscriber_first_ready(rig->subscriber);
	pl_lock_release(&rig->subscriber->lock);
	return ready;
}

/* An engine that has polled in vain sleeps during the next waits, until a stream gets a frame soon. */
static void engine_stops_to_poll(void *argument)
{
	struct pl_stream_frame *frame;
	struct rig rig;
	uint64_t end;

	poll_time = 1;
	rig_open(&rig, argument, "cuda");
	poll_time = 0;
	rig_subscribe(&rig, "cuda", 0);
	frame = take_on(&rig, UINT64_MAX);
	end = poll_end_of(&rig);
	check(end > 0);
	while (watch_is_added(&rig))
		settle(&rig.environment, 1);
	publish(&rig, true);
	finish_frame(&rig, frame);
	frame = take_on(&rig, UINT64_MAX);
	check_number(poll_end_of(&rig), end);
	publish(&rig, true);
	finish_frame(&rig, frame);
	/* Only a thread that sleeps in the call for a millisecond makes it more than one round. */
	do {
		publish(&rig, true);
		while (!frame_is_ready(&rig))
			settle(&rig.environment, 1);
		finish_frame(&rig, take_on(&rig, UINT64_MAX));
	} while (rig.subscriber->promises_take_long && rig.count < SEEN_MAX - 1);
	frame = take_on(&rig, UINT64_MAX);
	check(poll_end_of(&rig) > end);
	publish(&rig, true);
	finish_frame(&rig, frame);
	rig_close(&rig);
}

/* Reads a part of a pushed frame into a region, and checks the bytes. */
static void read_pushed(struct rig *rig, struct pl_region *region, bool gpu, uint64_t sequence, uint64_t offset)
{
	uint64_t length = length_of(sequence) - offset;
	uint8_t *at = (uint8_t *)pl_region_address(region) + 64;
	struct pl_error error;
	int rc;

	while ((rc = pl_subscriber_read(rig->subscriber, sequence, offset, length, region, 64, AMPLE_TIME, NULL,
					&error)) == -EAGAIN)
		settle(&rig->environment, 1);
	check_ok(rc, &error);
	if (gpu)
		gpu_copy_out(at, rig->bytes, length);
	else
		memcpy(rig->bytes, at, length);
	pattern_check(rig->bytes, length, sequence, offset);
}

/* Parts of pushed frames in memory of the host and of the GPU, read into each. */
static void parts_of_pushed_frames(void *argument)
{
	static const char *const kinds[] = { NULL, "cuda" };

	for (unsigned i = 0; i < 4; i++) {
		struct pl_region *region;
		struct pl_error error;
		struct rig rig;
		void *memory = NULL;

		rig_open(&rig, argument, NULL);
		rig_subscribe(&rig, kinds[i / 2], 0);
		if (i % 2) {
			memory = gpu_allocate(SLOT + 64);
			check_ok(pl_region_register(rig.environment.near, memory, SLOT + 64, PL_ACCESS_LOCAL, &region,
						    &error),
				 &error);
		} else {
			check_ok(pl_region_allocate(rig.environment.near, SLOT + 64, PL_ACCESS_LOCAL, &region, &error),
				 &error);
		}
		publish(&rig, false);
		publish(&rig, false);
		read_pushed(&rig, region, i % 2, 1, 0);
		read_pushed(&rig, region, i % 2, 1, 1001);
		take(&rig, 0, i / 2);
		pl_region_deregister(region);
		if (memory)
			gpu_free(memory);
		rig_close(&rig);
	}
}

static struct setting tcp_thread = { "tcp", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, .key = false };
static struct setting tcp_manual = { "tcp-manual", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 2, .key = false };
static struct setting tcp_push = { "push", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, .key = false };
static const struct setting local_push = { "push", "local", "127.0.0.1", PL_PROGRESS_THREAD, 2, .key = false };
static const struct setting local = { "local", "local", "127.0.0.1", PL_PROGRESS_THREAD, 2, .key = false };

static const struct test_case cases[] = {
	{ "slots", slots_in_gpu, &tcp_thread, 20 },
	{ "slots-local", slots_in_gpu, &local, 20 },
	{ "copies", copies_in_and_out, &tcp_thread, 20 },
	{ "copies-local", copies_in_and_out, &local, 20 },
	{ "publish-on", publish_waits_for_stream, &tcp_thread, 20 },
	{ "publish-on-manual", publish_waits_for_stream, &tcp_manual, 20 },
	{ "publish-time", publish_time_of_stream, &tcp_thread, 20 },
	{ "loans-come-back", loans_come_back, &tcp_thread, 20 },
	{ "loans-come-back-manual", loans_come_back, &tcp_manual, 20 },
	{ "take-on", stream_waits_for_frames, &tcp_thread, 20 },
	{ "take-on-manual", stream_waits_for_frames, &tcp_manual, 20 },
	{ "take-on-local", stream_waits_for_frames, &local, 20 },
	{ "ready-frames-first", ready_frames_come_first, &tcp_thread, 20 },
	{ "ready-frames-first-manual", ready_frames_come_first, &tcp_manual, 20 },
	{ "many-frames", stream_takes_many, &tcp_thread, 20 },
	{ "many-frames-local", stream_takes_many, &local, 20 },
	{ "many-frames-manual", stream_takes_many, &tcp_manual, 20 },
	{ "many-streams", many_streams_wait, &tcp_thread, 20 },
	{ "slow-copies", slow_copies, &tcp_thread, 20 },
	{ "slow-copies-local", slow_copies, &local, 20 },
	{ "large-copies", large_copies_go_together, &local, 30 },
	{ "hunt", hunt, &tcp_thread, 30 },
	{ "release-on", release_waits_for_stream, &tcp_thread, 20 },
	{ "release-on-local", release_waits_for_stream, &local, 20 },
	{ "release-twice", second_release_does_nothing, &tcp_thread, 20 },
	{ "promised-not-dropped", promised_frame_is_not_dropped, &tcp_manual, 20 },
	{ "gap", discarded_frame_is_gap, &tcp_thread, 20 },
	{ "time-ends-wait", time_ends_wait, &tcp_thread, 20 },
	{ "time-ends-wait-manual", time_ends_wait, &tcp_manual, 20 },
	{ "end-ends-waits", end_ends_waits, &tcp_thread, 20 },
	{ "end-ends-waits-manual", end_ends_waits, &tcp_manual, 20 },
	{ "loss-ends-waits", loss_ends_waits, &tcp_thread, 20 },
	{ "close-ends-waits", close_ends_waits, &tcp_thread, 20 },
	{ "refusals", refusals, &tcp_thread, 20 },
	{ "refused-frame", refused_frame_stays, &tcp_thread, 20 },
	{ "refused-frame-local", refused_frame_stays, &local, 20 },
	{ "refused-place", refused_place_comes_back, &tcp_thread, 20 },
	{ "refused-late", driver_decides_late, &tcp_thread, 20 },
	{ "no-frames-in-place", no_frames_in_place, &local, 20 },
	{ "poll", engine_finds_frame, &local, 60 },
	{ "poll-stops", engine_stops_to_poll, &local, 60 },
	{ "slots-push", slots_in_gpu, &tcp_push, 20 },
	{ "slots-local-push", slots_in_gpu, &local_push, 20 },
	{ "pushed-refusals", no_take_on_of_pushed_frames, &tcp_push, 20 },
	{ "pushed-parts", parts_of_pushed_frames, &tcp_push, 20 },
	{ "pushed-parts-local", parts_of_pushed_frames, &local_push, 20 },
};

int main(int argc, char **argv)
{
	struct test_case chosen[sizeof(cases) / sizeof(cases[0])];
	size_t count = 0;

	if (argc < 3 || strcmp(argv[1], "--fabric"))
		return cases_run("gpu-frames", cases, sizeof(cases) / sizeof(cases[0]));
	tcp_thread.fabric = tcp_manual.fabric = tcp_push.fabric = argv[2];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (cases[i].run != hunt && strcmp(((const struct setting *)cases[i].argument)->fabric, "local"))
			chosen[count++] = cases[i];
	return cases_run("gpu-frames", chosen, count);
}
