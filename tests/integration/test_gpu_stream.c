/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations after the work of a CUDA stream.  A host function holds the stream until the test opens the gate, so that
 * each test sees the operation wait.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/environment.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"

#define LENGTH ((size_t)256 << 10)
#define VALUE 0x5a
/* Steps of a millisecond that the stream waits for the gate at most. */
#define GATE_STEPS 20000
/* Time in which an operation that does not wait would end, in milliseconds. */
#define LOOK 30

static struct cuda_driver driver;
static CUresult (*launch_host)(CUstream, void (*)(void *), void *);
static void (*capture)(bool);

struct work {
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;
	CUcontext context;
	CUstream stream;
	atomic_bool open;
};

static void wait_for_gate(void *argument)
{
	struct work *work = argument;

	for (unsigned i = 0; i < GATE_STEPS && !atomic_load(&work->open); i++)
		usleep(1000);
}

static void gate_close(struct work *work)
{
	atomic_store(&work->open, false);
	check_number(driver.cuCtxPushCurrent(work->context), CUDA_SUCCESS);
	check_number(launch_host(work->stream, wait_for_gate, work), CUDA_SUCCESS);
	check_number(driver.cuCtxPopCurrent(&work->context), CUDA_SUCCESS);
}

static void gate_open(struct work *work)
{
	atomic_store(&work->open, true);
}

/* Fills the near buffer on the stream, behind the gate. */
static void fill_later(struct work *work, uint8_t value)
{
	check_number(driver.cuCtxPushCurrent(work->context), CUDA_SUCCESS);
	check_number(driver.cuMemsetD8Async((CUdeviceptr)(uintptr_t)work->near.address, value, LENGTH, work->stream),
		     CUDA_SUCCESS);
	check_number(driver.cuCtxPopCurrent(&work->context), CUDA_SUCCESS);
}

static void work_open(struct work *work, const struct setting *setting)
{
	CUdevice device;

	if (!gpu_open("alloc") || cuda_driver_open("libcuda.so.1", RTLD_NOW, &driver, NULL) < 0)
		exit(SKIPPED);
	gpu_standin_find();
	gpu_driver_find(&launch_host, "cuLaunchHostFunc");
	gpu_driver_find(&capture, "standin_capture");
	memset(work, 0, sizeof(*work));
	check_number(driver.cuDeviceGet(&device, 0), CUDA_SUCCESS);
	check_number(driver.cuDevicePrimaryCtxRetain(&work->context, device), CUDA_SUCCESS);
	check_number(driver.cuCtxPushCurrent(work->context), CUDA_SUCCESS);
	check_number(driver.cuStreamCreate(&work->stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	check_number(driver.cuCtxPopCurrent(&work->context), CUDA_SUCCESS);
	environment_open(&work->environment, setting);
	buffer_open(&work->near, work->environment.near, LENGTH, PL_ACCESS_ALL);
	buffer_open(&work->far, work->environment.far, LENGTH, PL_ACCESS_ALL);
	work->remote = share(&work->environment, work->far.region, work->environment.near_peer, NULL);
}

static void work_close(struct work *work)
{
	CUdevice device;

	pl_remote_release(work->remote);
	buffer_close(&work->near);
	buffer_close(&work->far);
	environment_close(&work->environment);
	check_number(driver.cuCtxPushCurrent(work->context), CUDA_SUCCESS);
	check_number(driver.cuStreamSynchronize(work->stream), CUDA_SUCCESS);
	check_number(driver.cuStreamDestroy(work->stream), CUDA_SUCCESS);
	check_number(driver.cuCtxPopCurrent(&work->context), CUDA_SUCCESS);
	driver.cuDeviceGet(&device, 0);
	check_number(driver.cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
	if (gpu_standin.depth)
		check_number(gpu_standin.depth(), 0);
}

static struct pl_attributes after(const struct work *work)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	attributes.flags = PL_AFTER_STREAM;
	attributes.stream = work->stream;
	return attributes;
}

static struct pl_transfer whole(const struct work *work)
{
	return (struct pl_transfer){ .remote = work->remote, .region = work->near.region, .length = LENGTH };
}

/* Checks that the operation has not begun. */
static void check_waits(struct work *work, struct pl_operation *operation)
{
	struct pl_error error;

	settle(&work->environment, LOOK);
	check_number(pl_test(operation, NULL, &error), -EINPROGRESS);
}

static struct pl_operation *write_after(struct work *work, unsigned flags)
{
	struct pl_attributes attributes = after(work);
	struct pl_transfer transfer = whole(work);
	struct pl_operation *operation;
	struct pl_error error;

	attributes.flags |= flags;
	check_ok(pl_write(work->environment.near_peer, &transfer, &attributes, &operation, &error), &error);
	return operation;
}

/* -- transfers ------------------------------------------------------------------------------------ */

static void writes_wait(void *argument)
{
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct work work;

	work_open(&work, argument);
	for (unsigned round = 0; round < 3; round++) {
		bytes_set(work.far.bytes, POISON, LENGTH);
		gate_close(&work);
		fill_later(&work, (uint8_t)(VALUE + round));
		operation = write_after(&work, 0);
		check_waits(&work, operation);
		value_check(work.far.bytes, LENGTH, POISON);
		gate_open(&work);
		complete(&work.environment, operation, &receipt);
		receipt_check(&work.environment, &receipt, PL_KIND_WRITE, LENGTH);
		value_check(work.far.bytes, LENGTH, (uint8_t)(VALUE + round));
	}
	work_close(&work);
}

/* A read overwrites memory that the stream still uses, so it waits too; vectors and atomic operations as well. */
static void others_wait(void *argument)
{
	struct pl_operation *operations[4];
	struct pl_transfer halves[2];
	struct pl_completion receipt;
	struct pl_attributes attributes;
	struct pl_vector *vector;
	struct pl_error error;
	uint64_t word = 7, old = 0;
	struct work work;

	work_open(&work, argument);
	attributes = after(&work);
	halves[0] = halves[1] = whole(&work);
	halves[0].length = halves[1].length = LENGTH / 2;
	halves[1].offset = halves[1].remote_offset = LENGTH / 2;
	bytes_put(work.far.bytes, &word, sizeof(word));
	check_ok(pl_vector_prepare(work.environment.near_peer, PL_KIND_READ, halves, 2, &vector, &error), &error);
	gate_close(&work);
	check_ok(pl_fetch_add(work.environment.near_peer,
			      &(struct pl_atomic){ .remote = work.remote, .operand = 5, .old = &old }, &attributes,
			      &operations[0], &error),
		 &error);
	check_ok(pl_read(work.environment.near_peer, &halves[1], &attributes, &operations[1], &error), &error);
	check_ok(pl_readv(work.environment.near_peer, halves, 2, &attributes, &operations[2], &error), &error);
	check_ok(pl_vector_post(vector, 0, 0, &attributes, &operations[3], &error), &error);
	for (unsigned i = 0; i < 4; i++)
		check_waits(&work, operations[i]);
	gate_open(&work);
	for (unsigned i = 0; i < 4; i++)
		complete(&work.environment, operations[i], &receipt);
	check_number(old, 7);
	pl_vector_free(vector);
	work_close(&work);
}

/* A fenced operation waits for an operation that waits for its stream, and the reverse. */
static void fences_hold(void *argument)
{
	struct pl_operation *first, *second, *third;
	struct pl_attributes fence = PL_ATTRIBUTES_INIT;
	struct pl_completion receipts[3];
	struct pl_transfer transfer;
	struct pl_error error;
	struct work work;

	work_open(&work, argument);
	transfer = whole(&work);
	fence.flags = PL_FENCE;
	gate_close(&work);
	fill_later(&work, VALUE);
	first = write_after(&work, 0);
	check_ok(pl_write(work.environment.near_peer, &transfer, &fence, &second, &error), &error);
	third = write_after(&work, PL_FENCE);
	check_waits(&work, second);
	check_waits(&work, third);
	gate_open(&work);
	complete(&work.environment, first, &receipts[0]);
	complete(&work.environment, second, &receipts[1]);
	complete(&work.environment, third, &receipts[2]);
	check(receipts[0].completed <= receipts[1].completed && receipts[1].completed <= receipts[2].completed);
	value_check(work.far.bytes, LENGTH, VALUE);
	work_close(&work);
}

/* -- messages ------------------------------------------------------------------------------------- */

/* Messages and notifications keep their order, though only the first waits for the stream. */
static void messages_keep_order(void *argument)
{
	enum { COUNT = 4 };
	struct pl_operation *sends[COUNT], *receives[COUNT];
	struct pl_attributes attributes;
	struct pl_completion receipt;
	struct pl_error error;
	struct work work;

	work_open(&work, argument);
	attributes = after(&work);
	for (unsigned i = 0; i < COUNT; i++)
		check_ok(pl_receive(work.environment.far_peer, 0, 0,
				    &(struct pl_buffer){ work.far.region, i * 4096, 4096 }, NULL, &receives[i], &error),
			 &error);
	gate_close(&work);
	fill_later(&work, VALUE);
	for (unsigned i = 0; i < COUNT; i++)
		check_ok(pl_send(work.environment.near_peer, i, &(struct pl_buffer){ work.near.region, 0, 1000 + i },
				 i ? NULL : &attributes, &sends[i], &error),
			 &error);
	for (unsigned i = 0; i < COUNT; i++)
		check_waits(&work, sends[i]);
	gate_open(&work);
	for (unsigned i = 0; i < COUNT; i++) {
		complete(&work.environment, sends[i], NULL);
		complete(&work.environment, receives[i], &receipt);
		check_number(receipt.tag, i);
		check_number(receipt.bytes, 1000 + i);
		value_check(work.far.bytes + i * 4096, 1000 + i, VALUE);
	}
	work_close(&work);
}

static void notifications_wait(void *argument)
{
	struct pl_attributes attributes;
	struct pl_operation *write, *notify;
	struct pl_completion events[2];
	struct pl_error error;
	struct work work;

	work_open(&work, argument);
	gate_close(&work);
	fill_later(&work, VALUE);
	attributes = after(&work);
	check_ok(pl_notify(work.environment.near_peer, 1, "first", 5, &attributes, &notify, &error), &error);
	attributes.notify = 2;
	attributes.flags |= PL_NOTIFY;
	check_ok(pl_write(work.environment.near_peer,
			  &(struct pl_transfer){ work.remote, 0, work.near.region, 0, LENGTH }, &attributes, &write,
			  &error),
		 &error);
	check_waits(&work, notify);
	check_number(pl_poll(work.environment.far, events, 1), 0);
	gate_open(&work);
	collect(&work.environment, work.environment.far, events, 2);
	check_number(events[0].value, 1);
	check_number(events[0].data_length, 5);
	pl_notification_free(work.environment.far, &events[0]);
	check_number(events[1].value, 2);
	value_check(work.far.bytes, LENGTH, VALUE);
	complete(&work.environment, notify, NULL);
	complete(&work.environment, write, NULL);
	work_close(&work);
}

/* -- ends without the stream ------------------------------------------------------------------------ */

static void ends_before_its_stream(void *argument)
{
	struct pl_operation *cancelled, *late, *lost;
	struct pl_attributes attributes;
	struct pl_transfer transfer;
	struct pl_error error;
	struct work work;

	work_open(&work, argument);
	transfer = whole(&work);
	gate_close(&work);
	cancelled = write_after(&work, 0);
	attributes = after(&work);
	attributes.timeout = LOOK * 1000000ull;
	check_ok(pl_write(work.environment.near_peer, &transfer, &attributes, &late, &error), &error);
	check_waits(&work, cancelled);
	pl_cancel(cancelled);
	fail_with(&work.environment, cancelled, -ECANCELED);
	fail_with(&work.environment, late, -ETIMEDOUT);
	lost = write_after(&work, 0);
	pl_peer_close(work.environment.far_peer);
	work.environment.far_peer = NULL;
	fail_with(&work.environment, lost, -ECONNRESET);
	gate_open(&work);
	value_check(work.far.bytes, LENGTH, POISON);
	work_close(&work);
}

/* Closes a peer and the context with operations that wait. */
static void closed_before_its_stream(void *argument)
{
	struct pl_completion completion;
	struct pl_transfer transfer;
	struct pl_attributes attributes;
	struct pl_error error;
	struct work work;

	work_open(&work, argument);
	transfer = whole(&work);
	attributes = after(&work);
	gate_close(&work);
	check_ok(pl_write(work.environment.near_peer, &transfer, &attributes, NULL, &error), &error);
	settle(&work.environment, LOOK);
	pl_peer_close(work.environment.near_peer);
	work.environment.near_peer = NULL;
	collect(&work.environment, work.environment.near, &completion, 1);
	check(completion.status < 0);
	gate_open(&work);
	work_close(&work);
}

/* -- refusals ------------------------------------------------------------------------------------- */

static void refusals(void *argument)
{
	struct pl_attributes attributes;
	struct pl_transfer transfer;
	struct pl_error error;
	struct work work;

	work_open(&work, argument);
	gpu_standin_need();
	transfer = whole(&work);
	attributes = after(&work);
	check_status(pl_receive(work.environment.near_peer, 0, 0, NULL, &attributes, NULL, &error), -EINVAL, &error);
	capture(true);
	check_status(pl_write(work.environment.near_peer, &transfer, &attributes, NULL, &error), -EINVAL, &error);
	check_text(error.id, "STREAM-CAPTURING");
	check_status(pl_stream_wait(work.stream, 0, &error), -EINVAL, &error);
	capture(false);
	gpu_standin.fail("cuStreamGetCtx", 0, 1, 400);
	check_status(pl_send_copy(work.environment.near_peer, 0, "x", 1, &attributes, NULL, &error), -EFAULT, &error);
	check_text(error.id, "GPU-FAILED");
	work_close(&work);
}

static void failed_work(void *argument)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct work work;

	work_open(&work, argument);
	gpu_standin_need();
	gate_close(&work);
	gpu_standin.fail("copy", 0, 1, 700);
	fill_later(&work, VALUE);
	operation = write_after(&work, 0);
	gate_open(&work);
	check_status(await(&work.environment, operation, NULL, &error), -EFAULT, &error);
	check_text(error.id, "STREAM-FAILED");
	value_check(work.far.bytes, LENGTH, POISON);
	work_close(&work);
}

static void waiting_for_a_stream(void *argument)
{
	struct pl_error error;
	struct work work;

	work_open(&work, argument);
	check_ok(pl_stream_wait(work.stream, UINT64_MAX, &error), &error);
	gate_close(&work);
	check_status(pl_stream_wait(work.stream, 0, &error), -ETIMEDOUT, &error);
	check_status(pl_stream_wait(work.stream, 1000000, &error), -ETIMEDOUT, &error);
	check_text(error.id, "STREAM-TIMEOUT");
	gate_open(&work);
	check_ok(pl_stream_wait(work.stream, UINT64_MAX, &error), &error);
	work_close(&work);
}

static const struct setting tcp_thread = { "tcp", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, .key = false };
static const struct setting tcp_manual = { "tcp-manual", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 2, .key = false };
static const struct setting local = { "local", "local", "127.0.0.1", PL_PROGRESS_THREAD, 2, .key = false };

static const struct test_case cases[] = {
	{ "writes-wait", writes_wait, &tcp_thread, 20 },
	{ "writes-wait-manual", writes_wait, &tcp_manual, 20 },
	{ "writes-wait-local", writes_wait, &local, 20 },
	{ "others-wait", others_wait, &tcp_thread, 20 },
	{ "others-wait-manual", others_wait, &tcp_manual, 20 },
	{ "others-wait-local", others_wait, &local, 20 },
	{ "fences-hold", fences_hold, &tcp_thread, 20 },
	{ "fences-hold-manual", fences_hold, &tcp_manual, 20 },
	{ "messages-keep-order", messages_keep_order, &tcp_thread, 20 },
	{ "messages-keep-order-manual", messages_keep_order, &tcp_manual, 20 },
	{ "notifications-wait", notifications_wait, &tcp_thread, 20 },
	{ "notifications-wait-local", notifications_wait, &local, 20 },
	{ "ends-before-its-stream", ends_before_its_stream, &tcp_thread, 20 },
	{ "ends-before-its-stream-manual", ends_before_its_stream, &tcp_manual, 20 },
	{ "closed-before-its-stream", closed_before_its_stream, &tcp_thread, 20 },
	{ "closed-before-its-stream-manual", closed_before_its_stream, &tcp_manual, 20 },
	{ "refusals", refusals, &tcp_thread, 20 },
	{ "failed-work", failed_work, &tcp_thread, 20 },
	{ "waiting-for-a-stream", waiting_for_a_stream, &tcp_thread, 20 },
};

int main(void)
{
	return cases_run("gpu-stream", cases, sizeof(cases) / sizeof(cases[0]));
}
