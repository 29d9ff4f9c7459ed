/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames of the demonstration between the GPU memory of two processes, directly and through host memory. */
#include <stdlib.h>
#include <string.h>

#include "compute/compute.h"
#include "cmd/demo/demo.h"
#include "cmd/transfer/progress.h"

/* The library locks a mapping of host memory for the GPU once the copied bytes reach its size. */
#define WARM_ROUNDS 2
#define WORDS 2000u

/* Checks bytes in GPU memory with a kernel, at most a frame at a time. */
struct demo_gpu_verifier {
	struct pl_compute *compute;
	struct pl_region *device; /* results of the kernel */
	uint32_t *results;        /* the same in host memory */
	const char *inject;       /* step of which the next check finds a wrong bit; NULL: none */
};

/* Ring of frames in GPU memory of this process. */
struct gpu_frames {
	struct demo *demo;
	struct demo_gpu_verifier verifier;
	struct progress progress;
	struct pl_region *sent, *received;
	uint64_t *frame; /* content of a frame in host memory */
	uint64_t seed, number, verified;
};

/* Way of frames to memory of the server and back. */
struct gpu_path {
	const char *step;
	const char *memory; /* name at the server */
	uint64_t size;      /* bytes of this memory */
	unsigned slots;     /* frames at a time */
	struct pl_remote *writable, *readable;
	struct demo_step there, back;
};

void demo_gpu_query(struct demo_gpu *gpu)
{
	gpu->info[0] = gpu->info[1] = (struct pl_gpu_info)PL_GPU_INFO_INIT;
	while (gpu->wanted && gpu->count < CLI_ARRAY_SIZE(gpu->info) &&
	       pl_gpu_query(gpu->count, &gpu->info[gpu->count], gpu->count ? NULL : &gpu->absent) == 0)
		gpu->count++;
}

unsigned demo_gpu_slots(const struct demo *demo)
{
	return (unsigned)CLI_MIN(demo->frames, DEMO_GPU_SLOTS);
}

/* -- check --------------------------------------------------------------------------------------- */

/* Flips a bit in the middle of the received bytes. */
static int inject_wrong_bit(struct pl_region *region, uint64_t offset, uint64_t length, struct pl_error *error)
{
	uint8_t byte;
	int rc = pl_region_copy_out(region, offset + length / 2 + 1, &byte, 1, error);

	byte ^= 0x10;
	return rc == 0 ? pl_region_copy_in(region, offset + length / 2 + 1, &byte, 1, error) : rc;
}

static int run_word_kernel(struct demo_gpu_verifier *verifier, void *received, uint64_t length, struct pl_error *error)
{
	struct pl_compute *compute = verifier->compute;
	const struct pl_work work = {
		.steps = 1u << PL_STEP_KERNEL,
		.length = length,
		.in = received,
		.out = pl_region_address(verifier->device),
	};
	uint64_t nanoseconds[PL_STEPS];
	int rc = compute->ops->begin(compute, 0, &work, error);

	if (rc == 0)
		rc = compute->ops->wait(compute, 0, nanoseconds, error);
	return rc == 0 ? pl_region_copy_out(verifier->device, 0, verifier->results, length, error) : rc;
}

/* Returns the first byte in which the word that the kernel read differs from the word that was sent. */
static unsigned wrong_byte_of_word(uint32_t result, uint32_t index, uint32_t sent)
{
	/* 0xaaaaaaab is the inverse of 3 modulo 2^32. */
	uint32_t received = (result - index) * 0xaaaaaaabu;

	return (unsigned)__builtin_ctz(received ^ sent) / 8;
}

int demo_gpu_verify(struct demo_gpu_verifier *verifier, const char *step, struct pl_region *region, uint64_t offset,
		    const void *sent, uint64_t length, struct pl_error *error)
{
	uint8_t *received = (uint8_t *)pl_region_address(region) + offset;
	const uint32_t *words = sent;
	int rc = 0;

	if (verifier->inject && !strcmp(verifier->inject, step))
		rc = inject_wrong_bit(region, offset, length, error);
	if (rc == 0)
		rc = run_word_kernel(verifier, received, length, error);
	for (uint32_t i = 0; rc == 0 && i < length / sizeof(*words); i++)
		if (verifier->results[i] != pl_word_kernel_result(words[i], i))
			rc = demo_fail_verification(error, step,
						    i * sizeof(*words) +
							    wrong_byte_of_word(verifier->results[i], i, words[i]));
	return rc;
}

/* -- frames -------------------------------------------------------------------------------------- */

/* The first and last word differ in their high bytes from frame to frame, so that a missing last byte is found. */
static void fill_gpu_frame(struct gpu_frames *frames, uint64_t number)
{
	demo_fill_frame(frames->frame, (number + 1) * 0x9e3779b97f4a7c15ull, frames->seed);
}

static int fill_gpu_frames(struct gpu_frames *frames, unsigned count, struct pl_error *error)
{
	int rc = 0;

	for (unsigned i = 0; i < count && rc == 0; i++) {
		fill_gpu_frame(frames, frames->number + i);
		rc = pl_region_copy_in(frames->sent, i * DEMO_FRAME, frames->frame, DEMO_FRAME, error);
	}
	return rc;
}

static int check_gpu_frames(struct gpu_frames *frames, const char *step, unsigned count, struct pl_error *error)
{
	int rc = 0;

	for (unsigned i = 0; i < count && rc == 0; i++) {
		fill_gpu_frame(frames, frames->number + i);
		rc = demo_gpu_verify(&frames->verifier, step, frames->received, i * DEMO_FRAME, frames->frame,
				     DEMO_FRAME, error);
		if (rc == 0)
			progress_update(&frames->progress, frames->verified += DEMO_FRAME);
	}
	return rc;
}

/* Writes frames to the memory of the server, then reads them from there into other GPU memory. */
static int move_gpu_frames(struct gpu_frames *frames, const struct gpu_path *path, unsigned count,
			   struct pipeline_result *there, struct pipeline_result *back, struct pl_error *error)
{
	struct pipeline pipeline = {
		.session = &frames->demo->session,
		.write = true,
		.remote = path->writable,
		.region = frames->sent,
		.length = count * DEMO_FRAME,
		.piece = DEMO_FRAME,
		.depth = DEMO_FRAMES_AT_ONCE,
	};
	int rc = pipeline_run(&pipeline, there, error);

	pipeline.write = false;
	pipeline.remote = path->readable;
	pipeline.region = frames->received;
	return rc == 0 ? pipeline_run(&pipeline, back, error) : rc;
}

static int import_gpu_path(struct gpu_frames *frames, struct gpu_path *path, struct pl_error *error)
{
	struct demo *demo = frames->demo;
	struct service_message memory;
	int rc = demo_open_memory(demo, path->memory, path->size, &memory, error);

	if (rc == 0)
		rc = session_import(&demo->session, &memory, &path->writable, error);
	if (rc == 0)
		rc = demo_open_memory(demo, path->memory, 0, &memory, error);
	return rc == 0 ? session_import(&demo->session, &memory, &path->readable, error) : rc;
}

/* Moves and checks all frames over one path.  Only the transfers are timed. */
static int run_gpu_path(struct gpu_frames *frames, struct gpu_path *path, struct pl_error *error)
{
	struct pipeline_result warm_up = { 0 };
	unsigned left = (unsigned)frames->demo->frames, count;
	int rc = import_gpu_path(frames, path, error);

	for (unsigned i = 0; i < WARM_ROUNDS && rc == 0; i++)
		rc = move_gpu_frames(frames, path, CLI_MIN(left, path->slots), &warm_up, &warm_up, error);
	for (; left && rc == 0; left -= count, frames->number += count) {
		count = CLI_MIN(left, path->slots);
		rc = fill_gpu_frames(frames, count, error);
		if (rc == 0)
			rc = move_gpu_frames(frames, path, count, &path->there.result, &path->back.result, error);
		if (rc == 0)
			rc = check_gpu_frames(frames, path->step, count, error);
		if (rc == 0) {
			path->there.count = path->back.count += count;
			path->there.verified = path->back.verified += count * DEMO_FRAME;
		}
	}
	pl_remote_release(path->readable);
	pl_remote_release(path->writable);
	return rc;
}

/* Makes one step of the copies to host memory and from there. */
static struct demo_step join_gpu_copies(const struct gpu_path *path)
{
	struct demo_step step = path->there;

	if (path->back.result.staged)
		step.result = path->back.result;
	step.result.bytes = path->there.result.bytes;
	step.result.staged = path->there.result.staged + path->back.result.staged;
	step.result.nanoseconds = path->there.result.nanoseconds + path->back.result.nanoseconds;
	return step;
}

static int run_gpu_frames(struct gpu_frames *frames, struct pl_error *error)
{
	struct demo_gpu *gpu = &frames->demo->gpu;
	unsigned slots = demo_gpu_slots(frames->demo);
	struct gpu_path direct = {
		.step = "gpu-push",
		.memory = DEMO_GPU_MEMORY,
		.size = slots * DEMO_FRAME,
		.slots = slots,
	};
	struct gpu_path host = {
		.step = "gpu-host",
		.memory = DEMO_MEMORY,
		.size = DEMO_SLOTS * DEMO_FRAME,
		.slots = CLI_MIN(slots, DEMO_SLOTS),
	};
	int rc;

	progress_begin(&frames->progress, !frames->demo->common.quiet, "GPU", 2 * frames->demo->frames * DEMO_FRAME, 0);
	rc = run_gpu_path(frames, &direct, error);
	if (rc == 0)
		rc = run_gpu_path(frames, &host, error);
	progress_end(&frames->progress);
	gpu->push = direct.there;
	gpu->pull = direct.back;
	gpu->host = join_gpu_copies(&host);
	return rc;
}

/* Measures single words to the other GPU, and from GPU to GPU through host memory. */
static int time_gpu_words(struct gpu_frames *frames, struct pl_error *error)
{
	struct demo *demo = frames->demo;
	struct demo_words words = {
		.step = "gpu-write",
		.memory = DEMO_GPU_MEMORY,
		.size = demo_gpu_slots(demo) * DEMO_FRAME,
		.kind = frames->verifier.compute->memory,
		.count = WORDS,
		.verifier = &frames->verifier,
	};
	int rc = demo_time_words(demo, &words, &demo->gpu.write, error);

	words.step = "gpu-host-write";
	words.memory = DEMO_MEMORY;
	words.size = DEMO_SLOTS * DEMO_FRAME;
	words.back = true;
	return rc == 0 ? demo_time_words(demo, &words, &demo->gpu.host_write, error) : rc;
}

static int open_gpu_frames(struct gpu_frames *frames, struct pl_error *error)
{
	struct demo_gpu_verifier *verifier = &frames->verifier;
	struct pl_context *context = frames->demo->session.context;
	uint64_t size = demo_gpu_slots(frames->demo) * DEMO_FRAME;
	const char *kind;
	int rc;

	frames->frame = malloc(DEMO_FRAME);
	verifier->results = malloc(DEMO_FRAME);
	if (!frames->frame || !verifier->results)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	rc = cuda_compute_open(0, 1, &pl_word_kernel, &verifier->compute, error);
	if (rc < 0)
		return rc;
	kind = verifier->compute->memory;
	rc = pl_region_allocate_in(context, kind, DEMO_FRAME, PL_ACCESS_LOCAL, &verifier->device, error);
	if (rc == 0)
		rc = pl_region_allocate_in(context, kind, size, PL_ACCESS_LOCAL, &frames->sent, error);
	if (rc == 0)
		rc = pl_region_allocate_in(context, kind, size, PL_ACCESS_LOCAL, &frames->received, error);
	return rc;
}

static void close_gpu_frames(struct gpu_frames *frames)
{
	struct demo_gpu_verifier *verifier = &frames->verifier;

	pl_region_deregister(frames->received);
	pl_region_deregister(frames->sent);
	pl_region_deregister(verifier->device);
	if (verifier->compute)
		verifier->compute->ops->close(verifier->compute);
	free(verifier->results);
	free(frames->frame);
}

int demo_gpu_run(struct demo *demo, struct pl_error *error)
{
	struct gpu_frames frames = { .demo = demo, .seed = cli_now(), .verifier.inject = demo->gpu.inject };
	int rc;

	if (!demo->gpu.count)
		return 0;
	rc = open_gpu_frames(&frames, error);
	if (rc == 0)
		rc = run_gpu_frames(&frames, error);
	if (rc == 0)
		rc = time_gpu_words(&frames, error);
	close_gpu_frames(&frames);
	return rc;
}
