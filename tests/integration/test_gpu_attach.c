/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A CUDA stream takes a frame while another thread attaches the subscriber to an instance with other slots: when that thread
 * allocates memory for them.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include <peerlane/stream.h>

#include "stream/subscriber.h"
#include "support/allocation_hook.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"

#define QUEUE 4u
#define HELD 2u

static const struct setting setting = {
	.name = "attach", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

static struct cuda_driver driver;

struct taker {
	struct pl_subscriber *subscriber;
	CUcontext context;
	CUstream stream;
	struct pl_stream_frame *frame;
	int status;
};

static void open_stream(struct taker *taker)
{
	CUcontext popped;
	CUdevice device;

	if (!gpu_open("alloc") || cuda_driver_open("libcuda.so.1", RTLD_NOW, &driver, NULL) < 0)
		exit(SKIPPED);
	check_number(driver.cuDeviceGet(&device, 0), CUDA_SUCCESS);
	check_number(driver.cuDevicePrimaryCtxRetain(&taker->context, device), CUDA_SUCCESS);
	check_number(driver.cuCtxPushCurrent(taker->context), CUDA_SUCCESS);
	check_number(driver.cuStreamCreate(&taker->stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	check_number(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
}

static void close_stream(struct taker *taker)
{
	CUcontext popped;
	CUdevice device;

	check_number(driver.cuCtxPushCurrent(taker->context), CUDA_SUCCESS);
	check_number(driver.cuStreamSynchronize(taker->stream), CUDA_SUCCESS);
	check_number(driver.cuStreamDestroy(taker->stream), CUDA_SUCCESS);
	check_number(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
	driver.cuDeviceGet(&device, 0);
	check_number(driver.cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
}

static void take_meanwhile(void *argument)
{
	struct taker *taker = argument;
	struct pl_error error;

	taker->status = pl_subscriber_take_on(taker->subscriber, taker->stream, AMPLE_TIME, &taker->frame, &error);
}

static struct pl_publisher *open_with_slots(struct pl_context *context, size_t slot_bytes)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher *publisher;
	struct pl_error error;

	options.slot_bytes = slot_bytes;
	check_ok(pl_publisher_open(context, "gpu0", &options, &publisher, &error), &error);
	return publisher;
}

static void environment_open_hooked(struct scenario_environment *environment, const struct allocation_hook *hook)
{
	struct pl_options options = setting_options(&setting);

	options.allocator = &hook->allocator;
	*environment = (struct scenario_environment){ .setting = &setting };
	environment->near = context_open_with(&options);
	environment->far = context_open(&setting);
	environment->listener = listener_open(&setting, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
}

static void take_while_attaching(void *unused)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct allocation_hook hook;
	struct taker taker = { 0 };
	struct pl_error error;

	(void)unused;
	open_stream(&taker);
	allocation_hook_init(&hook);
	environment_open_hooked(&environment, &hook);
	options.memory = "cuda";
	options.queue = QUEUE;
	options.held = HELD;
	publisher = open_with_slots(environment.far, 1000);
	check_ok(pl_subscriber_open(environment.near_peer, "gpu0", &options, AMPLE_TIME, &taker.subscriber, &error),
		 &error);
	pl_publisher_close(publisher);
	publisher = open_with_slots(environment.far, 9000);
	allocation_hook_arm(&hook, (QUEUE + HELD) * sizeof(struct pl_stream_frame), take_meanwhile, &taker);
	check_number(pl_subscriber_attach(taker.subscriber, environment.near_peer, AMPLE_TIME, &error), -EBUSY);
	check_text(error.id, "STREAM-HELD");
	allocation_hook_check(&hook);
	check_number(taker.status, 0);
	/* The place is still there, and the stream learns that no frame comes. */
	check_number(pl_frame_query(taker.frame, &info), 0);
	close_stream(&taker);
	check_number(info.status->result, PL_TAKE_NONE);
	pl_frame_release(taker.frame);
	check_ok(pl_subscriber_attach(taker.subscriber, environment.near_peer, AMPLE_TIME, &error), &error);
	pl_subscriber_close(taker.subscriber);
	pl_publisher_close(publisher);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "take-while-attaching", take_while_attaching, NULL, 60 },
};

int main(void)
{
	return cases_run("gpu-attach", cases, PL_ARRAY_SIZE(cases));
}
