/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Staging of GPU memory on cards that take no dma-buf: copies run beside the engine, in buffers that the GPU's driver
 * has locked, and end safely.
 */
#include <stdio.h>
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/pair.h"

/* More than all staging buffers of a queue. */
#define LARGE (9u << 20)
#define SMALL 4096u
#define STAGES (4u << 20)
/* Time of a copy in the cases that look at running copies, which they end. Microseconds. */
#define LASTING ((unsigned)(2 * AMPLE_TIME / 1000))
/* Time of a copy in the other cases. Microseconds. */
#define SLOW 5000u

/* Sets the time of a copy, and returns the locked bytes: of the stand-in driver only. */
static void delay(unsigned microseconds)
{
	if (gpu_standin.delay)
		gpu_standin.delay(microseconds);
}

static size_t pinned(void)
{
	return gpu_standin.pinned ? gpu_standin.pinned() : 0;
}

struct rig {
	struct scenario_environment environment;
	struct buffer host, gpu, far; /* the first two at the near end */
	struct pl_remote *remote;
	size_t pinned; /* by others */
};

/* staging: bytes of host memory to lock, 0: default */
static void rig_open(struct rig *rig, size_t staging)
{
	struct pl_options options = setting_options(&card_manual);

	*rig = (struct rig){ 0 };
	gpu_standin_find();
	check(gpu_open("alloc"));
	rig->pinned = pinned();
	options.staging_bytes = staging;
	rig->environment.setting = &card_manual;
	rig->environment.near = context_open_with(&options);
	rig->environment.far = context_open(&card_manual);
	drive(&rig->environment, rig->environment.near);
	drive(&rig->environment, rig->environment.far);
	rig->environment.listener = listener_open(&card_manual, rig->environment.far, rig->environment.address);
	connect_pair(&rig->environment, rig->environment.near, rig->environment.listener, &rig->environment.near_peer,
		     &rig->environment.far_peer);
	buffer_open(&rig->gpu, rig->environment.near, LARGE, PL_ACCESS_LOCAL);
	gpu_kind = NULL;
	buffer_open(&rig->host, rig->environment.near, SMALL, PL_ACCESS_LOCAL);
	buffer_open(&rig->far, rig->environment.far, LARGE + SMALL, PL_ACCESS_ALL);
	rig->remote = share(&rig->environment, rig->far.region, rig->environment.near_peer, NULL);
	pattern_fill(rig->gpu.bytes, LARGE, 1, 0);
	pattern_fill(rig->far.bytes, LARGE, 2, 0);
}

static void rig_close(struct rig *rig)
{
	pl_remote_release(rig->remote);
	buffer_close(&rig->host);
	buffer_close(&rig->far);
	gpu_kind = "alloc";
	buffer_close(&rig->gpu);
	environment_close(&rig->environment);
	/* All locks are gone. */
	check_number(pinned(), rig->pinned);
	check(!gpu_standin.depth || !gpu_standin.depth());
}

static struct pl_operation *post(struct rig *rig, bool read, uint64_t length)
{
	const struct pl_transfer transfer = { rig->remote, 0, rig->gpu.region, 0, length };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok((read ? pl_read : pl_write)(rig->environment.near_peer, &transfer, NULL, &operation, &error), &error);
	return operation;
}

static void check_staged(struct rig *rig, struct pl_operation *operation, uint64_t length)
{
	struct pl_completion receipt;

	complete(&rig->environment, operation, &receipt);
	check_number(receipt.bytes, length);
	check_number(receipt.bytes_staged, length);
	check_number(receipt.route, PL_ROUTE_STAGED);
}

/* Writes and reads of many lengths have the right bytes. */
static void bytes(void *argument)
{
	static const uint64_t lengths[] = { 1, 4095, (256u << 10) - 1, 256u << 10, (256u << 10) + 1, (5u << 20) + 7, LARGE };
	struct rig rig;

	(void)argument;
	rig_open(&rig, 0);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		pattern_fill(rig.gpu.bytes, LARGE, 10 + i, 0);
		check_staged(&rig, post(&rig, false, lengths[i]), lengths[i]);
		pattern_check(rig.far.bytes, lengths[i], 10 + i, 0);
		pattern_fill(rig.far.bytes, LARGE, 20 + i, 0);
		check_staged(&rig, post(&rig, true, lengths[i]), lengths[i]);
		pattern_check(rig.gpu.bytes, lengths[i], 20 + i, 0);
	}
	/* The buffers are locked once, for the GPU as for the card. */
	check(!gpu_standin.pinned || pinned() - rig.pinned == STAGES);
	rig_close(&rig);
}

/* A notification comes after all bytes, also if the last chunks were copied last. */
static void notified(void *argument)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_completion receipt;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open(&rig, 0);
	attributes.flags = PL_NOTIFY;
	attributes.notify = 5;
	for (unsigned i = 0; i < 20; i++) {
		const uint64_t length = 300000 * (i % 5 + 1);
		const struct pl_transfer transfer = { rig.remote, 0, rig.gpu.region, 0, length };

		pattern_fill(rig.gpu.bytes, length, 30 + i, 0);
		check_ok(pl_write(rig.environment.near_peer, &transfer, &attributes, NULL, &error), &error);
		collect(&rig.environment, rig.environment.far, &receipt, 1);
		check_number(receipt.kind, PL_KIND_NOTIFIED);
		pattern_check(rig.far.bytes, length, 30 + i, 0);
		collect(&rig.environment, rig.environment.near, &receipt, 1);
	}
	rig_close(&rig);
}

/* A read that flushes, or a notification, does not overtake bytes that are being copied. */
static void behind(void *argument)
{
	const unsigned flags = *(const unsigned *)argument;
	const uint64_t length = 16 * (256u << 10);
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_transfer transfer = { .length = length };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct card_counts before;
	struct pl_error error;
	struct rig rig;

	gpu_standin_find();
	gpu_standin_need();
	setenv("STANDIN_MOOD", "order", 1);
	rig_open(&rig, 0);
	/* The buffers are locked. */
	check_staged(&rig, post(&rig, false, SMALL), SMALL);
	transfer.remote = rig.remote;
	transfer.region = rig.gpu.region;
	attributes.flags = flags;
	attributes.notify = 5;
	attributes.visible = flags & PL_NOTIFY ? PL_VISIBLE_ACKNOWLEDGED : PL_VISIBLE_PLACED;
	before = card_counts_now();
	delay(LASTING);
	check_ok(pl_write(rig.environment.near_peer, &transfer, &attributes, &operation, &error), &error);
	/* The copies have begun, and no progress was made: what could be posted has been posted by the call. */
	check_number(card_counts_now().requests[IBV_WR_RDMA_WRITE], before.requests[IBV_WR_RDMA_WRITE]);
	check_number(card_counts_now().requests[IBV_WR_RDMA_READ], before.requests[IBV_WR_RDMA_READ]);
	check_number(card_counts_now().requests[IBV_WR_RDMA_WRITE_WITH_IMM], before.requests[IBV_WR_RDMA_WRITE_WITH_IMM]);
	check_number(pl_poll(rig.environment.far, &receipt, 1), 0);
	delay(0);
	if (flags & PL_NOTIFY) {
		collect(&rig.environment, rig.environment.far, &receipt, 1);
		check_number(receipt.kind, PL_KIND_NOTIFIED);
		pattern_check(rig.far.bytes, length, 1, 0);
	}
	check_staged(&rig, operation, length);
	pattern_check(rig.far.bytes, length, 1, 0);
	rig_close(&rig);
}

static void write_small(struct rig *rig)
{
	const struct pl_transfer transfer = { rig->remote, LARGE, rig->host.region, 0, SMALL };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_write(rig->environment.near_peer, &transfer, NULL, &operation, &error), &error);
	complete(&rig->environment, operation, NULL);
}

/* The engine does other work while copies run. */
static void beside(void *argument)
{
	const bool read = *(const bool *)argument;
	struct pl_operation *operation;
	struct rig rig;

	gpu_standin_find();
	gpu_standin_need();
	rig_open(&rig, 0);
	check_staged(&rig, post(&rig, read, SMALL), SMALL);
	delay(LASTING);
	operation = post(&rig, read, 16 * (256u << 10));
	for (unsigned i = 0; i < 20; i++)
		write_small(&rig);
	check_number(pl_test(operation, NULL, NULL), -EINPROGRESS);
	delay(0);
	check_staged(&rig, operation, 16 * (256u << 10));
	if (read)
		pattern_check(rig.gpu.bytes, 16 * (256u << 10), 2, 0);
	else
		pattern_check(rig.far.bytes, 16 * (256u << 10), 1, 0);
	rig_close(&rig);
}

/* Returns the status of an operation that ends before it is cancelled, as with a real GPU, whose copies cannot be slowed down. */
static int too_late(void)
{
	return gpu_standin.delay ? -ECANCELED : 0;
}

/* A cancelled operation ends when its copies have, and the buffers serve the next one. */
static void canceled(void *argument)
{
	const bool read = *(const bool *)argument;
	struct pl_operation *operation;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, 0);
	delay(SLOW);
	for (unsigned i = 0; i < 4; i++) {
		operation = post(&rig, read, LARGE);
		settle(&rig.environment, 8 * i);
		pl_cancel(operation);
		check_one_of(await(&rig.environment, operation, NULL, &error), -ECANCELED, too_late());
	}
	delay(0);
	pattern_fill(rig.gpu.bytes, LARGE, 3, 0);
	check_staged(&rig, post(&rig, false, LARGE), LARGE);
	pattern_check(rig.far.bytes, LARGE, 3, 0);
	rig_close(&rig);
}

/* The peer, or the context, is closed while copies run. */
static void closed(void *argument)
{
	const bool read = *(const bool *)argument;
	struct pl_operation *operation;
	struct pl_error error;
	struct rig rig;

	for (unsigned i = 0; i < 4; i++) {
		rig_open(&rig, 0);
		delay(SLOW);
		operation = post(&rig, read, LARGE);
		settle(&rig.environment, 8 * i);
		pl_peer_close(rig.environment.near_peer);
		rig.environment.near_peer = NULL;
		check_one_of(await(&rig.environment, operation, NULL, &error), -ECANCELED, too_late());
		delay(0);
		rig_close(&rig);
	}
}

/* The connection breaks while copies run, and the operation ends with the right bytes. */
static void broken(void *argument)
{
	const bool read = *(const bool *)argument;
	struct pl_operation *operation;
	struct rig rig;

	rig_open(&rig, 0);
	delay(SLOW / 2);
	operation = post(&rig, read, LARGE);
	settle(&rig.environment, 20);
	card_remove();
	check_staged(&rig, operation, LARGE);
	if (read)
		pattern_check(rig.gpu.bytes, LARGE, 2, 0);
	else
		pattern_check(rig.far.bytes, LARGE, 1, 0);
	delay(0);
	rig_close(&rig);
}

/* A copy that the GPU's driver refuses ends the operation by name. */
static void refused(void *argument)
{
	const bool read = *(const bool *)argument;
	struct pl_operation *operation;
	struct pl_error error;
	struct rig rig;

	gpu_standin_find();
	gpu_standin_need();
	rig_open(&rig, 0);
	check_staged(&rig, post(&rig, read, SMALL), SMALL);
	gpu_standin.fail(read ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync", 3, 1, 700 /* CUDA_ERROR_ILLEGAL_ADDRESS */);
	operation = post(&rig, read, LARGE);
	check_number(await(&rig.environment, operation, NULL, &error), -EFAULT);
	check_text(error.id, read ? "MEMORY-UNWRITABLE" : "MEMORY-UNREADABLE");
	check_staged(&rig, post(&rig, read, LARGE), LARGE);
	rig_close(&rig);
}

/* The peer cannot read a large message that this end's card does not reach. Small ones are copied. */
static void sent(void *argument)
{
	struct pl_operation *sending, *receiving;
	struct pl_buffer from, to;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open(&rig, 0);
	from = (struct pl_buffer){ rig.gpu.region, 0, LARGE };
	check_ok(pl_send(rig.environment.near_peer, 1, &from, NULL, &sending, &error), &error);
	check_number(await(&rig.environment, sending, NULL, &error), -EFAULT);
	check_text(error.id, "SEND-NOT-REGISTERED");
	check(strstr(error.hint, "8192 bytes") && strstr(error.hint, "tcp"));
	from.length = 8192;
	to = (struct pl_buffer){ rig.far.region, 0, 8192 };
	check_ok(pl_receive(rig.environment.far_peer, 1, UINT64_MAX, &to, NULL, &receiving, &error), &error);
	check_ok(pl_send(rig.environment.near_peer, 1, &from, NULL, &sending, &error), &error);
	complete(&rig.environment, sending, NULL);
	complete(&rig.environment, receiving, NULL);
	pattern_check(rig.far.bytes, 8192, 1, 0);
	rig_close(&rig);
}

/* Without room for locked memory, or if the driver locks none, the copies are synchronous. */
static void unlocked(void *argument)
{
	const bool limit = *(const bool *)argument;
	struct rig rig;

	gpu_standin_find();
	gpu_standin_need();
	rig_open(&rig, limit ? STAGES - 1 : 0);
	if (!limit)
		gpu_standin.fail("cuMemHostRegister", 0, 2, CUDA_ERROR_OUT_OF_MEMORY);
	check_staged(&rig, post(&rig, false, LARGE), LARGE);
	pattern_check(rig.far.bytes, LARGE, 1, 0);
	pattern_fill(rig.far.bytes, LARGE, 4, 0);
	check_staged(&rig, post(&rig, true, LARGE), LARGE);
	pattern_check(rig.gpu.bytes, LARGE, 4, 0);
	check_number(pinned(), rig.pinned);
	rig_close(&rig);
}

static const bool yes = true, no = false;

static const struct test_case cases[] = {
	{ "bytes", bytes, NULL, 30 },
	{ "notified", notified, NULL, 30 },
	{ "notification behind copies", behind, &(const unsigned){ PL_NOTIFY }, 60 },
	{ "read behind copies", behind, &(const unsigned){ 0 }, 60 },
	{ "beside a write", beside, &no, 60 },
	{ "beside a read", beside, &yes, 60 },
	{ "canceled write", canceled, &no, 60 },
	{ "canceled read", canceled, &yes, 60 },
	{ "closed write", closed, &no, 60 },
	{ "closed read", closed, &yes, 60 },
	{ "broken write", broken, &no, 60 },
	{ "broken read", broken, &yes, 60 },
	{ "refused write", refused, &no, 30 },
	{ "refused read", refused, &yes, 30 },
	{ "sent", sent, NULL, 30 },
	{ "no room for locks", unlocked, &yes, 30 },
	{ "no locks", unlocked, &no, 30 },
};

int main(void)
{
	return cases_run("card staging", cases, sizeof(cases) / sizeof(cases[0]));
}
