/* SPDX-License-Identifier: BSD-2-Clause */
/* Small messages from and into GPU memory, which the GPU copies in batches; with the stand-in for the driver. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/environment.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"

#define LARGE ((size_t)1 << 20)

static const struct setting setting = {
	.name = "gpu",
	.fabric = "tcp",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_THREAD,
	.lanes = 2,
};

/* Clock of a thread: each reading adds `step`. 0: the system's clock. Nanoseconds. */
static __thread struct {
	uint64_t now, step;
} own_clock;

/* Replaces that of the C library, so that the processor's load does not change the time of a copy. */
int clock_gettime(clockid_t id, struct timespec *time)
{
	if (!own_clock.step || id != CLOCK_MONOTONIC)
		return (int)syscall(SYS_clock_gettime, id, time);
	own_clock.now += own_clock.step;
	*time = (struct timespec){ (time_t)(own_clock.now / SECOND), (long)(own_clock.now % SECOND) };
	return 0;
}

static void own_clock_begin(uint64_t step)
{
	own_clock.now = clock_now();
	own_clock.step = step;
}

static void own_clock_end(void)
{
	own_clock.step = 0;
}

struct pair {
	struct scenario_environment environment;
	struct buffer near, far;
};

static void begin(void)
{
	if (!gpu_open("alloc"))
		exit(SKIPPED);
	gpu_standin_find();
	gpu_standin_need();
}

static void pair_open(struct pair *pair)
{
	environment_open(&pair->environment, &setting);
	buffer_open(&pair->near, pair->environment.near, LARGE, PL_ACCESS_LOCAL);
	buffer_open(&pair->far, pair->environment.far, LARGE, PL_ACCESS_LOCAL);
	bytes_set(pair->far.bytes, POISON, LARGE);
}

static void pair_close(struct pair *pair)
{
	buffer_close(&pair->near);
	buffer_close(&pair->far);
	environment_close(&pair->environment);
	check_number(gpu_standin.pinned(), 0);
}

static void check_staged(const struct pl_completion *receipt, uint64_t bytes)
{
	check_number(receipt->status, 0);
	check_number(receipt->bytes, bytes);
	check_number(receipt->bytes_staged, bytes);
}

enum { SMALL_COUNT = 100, SMALL_STRIDE = 64, SMALL_LENGTH = 40 };

/*
 * Sends messages into the far end's GPU memory.  Slow copies let many messages arrive during one copy.  Returns the
 * number of failed receives.
 */
static unsigned receive_small(struct pair *pair, uint64_t seed)
{
	struct pl_operation *operations[SMALL_COUNT];
	uint8_t bytes[SMALL_COUNT + SMALL_LENGTH];
	struct pl_completion completion;
	struct pl_error error;
	unsigned failed = 0;

	pattern_fill(bytes, sizeof(bytes), seed, 0);
	for (size_t i = 0; i < SMALL_COUNT; i++)
		check_ok(pl_receive(pair->environment.far_peer, i, UINT64_MAX,
				    &(struct pl_buffer){ pair->far.region, i * SMALL_STRIDE, SMALL_STRIDE }, NULL,
				    &operations[i], &error),
			 &error);
	for (size_t i = 0; i < SMALL_COUNT; i++)
		check_ok(pl_send_copy(pair->environment.near_peer, i, bytes + i, SMALL_LENGTH, NULL, NULL, &error),
			 &error);
	for (size_t i = 0; i < SMALL_COUNT; i++) {
		struct pl_completion receipt;
		int rc = await(&pair->environment, operations[i], &receipt, &error);

		if (rc < 0) {
			check_text(error.id, "MEMORY-UNWRITABLE");
			failed++;
			continue;
		}
		check_staged(&receipt, SMALL_LENGTH);
		pattern_check(pair->far.bytes + i * SMALL_STRIDE, SMALL_LENGTH, seed, i);
		value_check(pair->far.bytes + i * SMALL_STRIDE + SMALL_LENGTH, SMALL_STRIDE - SMALL_LENGTH, POISON);
	}
	for (size_t i = 0; i < SMALL_COUNT; i++)
		collect(&pair->environment, pair->environment.near, &completion, 1);
	return failed;
}

/*
 * Checks small messages copied in batches; one by one if the driver has no batches; and synchronously if no memory can
 * be locked.
 */
static void small_messages(void *unused)
{
	static const char *const refused[] = { "none", "cuMemcpyBatchAsync", "cuMemHostRegister" };
	struct pair pair;

	(void)unused;
	begin();
	gpu_standin.fail("cuMemcpy2DAsync", 0, UINT32_MAX, 801);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		gpu_standin.fail(refused[i], 0, UINT32_MAX, 801);
		pair_open(&pair);
		gpu_standin.delay(1000);
		check_number(receive_small(&pair, 20 + i), 0);
		check_number(gpu_standin.depth(), 0);
		if (!i) {
			gpu_standin.fail("copy", 0, 1, 700);
			check(receive_small(&pair, 30) > 0);
			gpu_standin.fail("copy", 0, 0, 0);
			check_number(receive_small(&pair, 31), 0);
		} else if (i == 1) {
			gpu_standin.fail("cuMemcpyHtoDAsync", 50, 1, 700);
			check_number(receive_small(&pair, 32), 1);
		}
		gpu_standin.delay(0);
		pair_close(&pair);
		gpu_standin.fail(refused[i], 0, 0, 0);
	}
}

/* Checks that the library copies in rows (cuMemcpy2DAsync) after a copy has waited for another process's kernels. */
static void shared_gpu(void *unused)
{
	enum { LENGTH = 40, ROOM = 2 * LENGTH };
	uint8_t bytes[ROOM], seen[ROOM];
	struct pl_error error;
	struct pair pair;

	(void)unused;
	begin();
	pair_open(&pair);
	gpu_standin.share(1); /* makes the stand-in count */
	/* The first copy takes so long that all rows are quick beside it, and are used until the end of the case. */
	own_clock_begin(1000 * SECOND);
	for (size_t length = 1; length <= LENGTH; length++) {
		size_t offset = SMALL_COUNT * SMALL_STRIDE + length * ROOM;

		for (size_t i = 0; i < length; i++)
			bytes[i] = (uint8_t)(length + i);
		memset(bytes + length, POISON, ROOM - length);
		check_ok(pl_region_copy_in(pair.far.region, offset, bytes, length, &error), &error);
		own_clock_end();
		check_ok(pl_region_copy_out(pair.far.region, offset, seen, ROOM, &error), &error);
		check(!memcmp(bytes, seen, ROOM));
	}
	/* Only the first copy waited, which has 1 byte, and detected the other process.  Later copies use 2 rows. */
	check_number(gpu_standin.waited(), 1);
	check_number(receive_small(&pair, 3), 0);
	check_number(gpu_standin.waited(), 1);
	gpu_standin.fail("cuMemcpy2DAsync", 0, UINT32_MAX, 801);
	check_number(receive_small(&pair, 4), 0);
	check(gpu_standin.waited() > 1);
	gpu_standin.share(0);
	pair_close(&pair);
	gpu_standin.fail("cuMemcpy2DAsync", 0, 0, 0);
}

/* Checks that the library stops copying in rows if rows are slow, too: 4 of 12 copies are in rows. */
static void slow_gpu(void *unused)
{
	struct pl_error error;
	uint64_t word = 5;
	struct pair pair;

	(void)unused;
	begin();
	pair_open(&pair);
	gpu_standin.share(1); /* makes the stand-in count */
	/* Each copy takes one or two steps. */
	own_clock_begin(3 * MS);
	for (size_t i = 0; i < 12; i++)
		check_ok(pl_region_copy_in(pair.far.region, i * 8, &word, 8, &error), &error);
	own_clock_end();
	gpu_standin.share(0);
	check_number(gpu_standin.waited(), 12 - 4);
	pair_close(&pair);
}

/* Closes the receiving peer while received messages are copied: closing waits for the copies. */
static void closed_meanwhile(void *unused)
{
	struct pair pair;
	struct pl_error error;
	uint64_t word = 77;

	(void)unused;
	begin();
	pair_open(&pair);
	gpu_standin.delay(20000);
	for (size_t i = 0; i < 200; i++) {
		check_ok(pl_receive(pair.environment.far_peer, i, UINT64_MAX,
				    &(struct pl_buffer){ pair.far.region, i * 8, 8 }, NULL, NULL, &error),
			 &error);
		check_ok(pl_send_copy(pair.environment.near_peer, i, &word, 8, NULL, NULL, &error), &error);
	}
	while (!gpu_standin.pinned())
		settle(&pair.environment, 1);
	pl_peer_close(pair.environment.far_peer);
	pair.environment.far_peer = NULL;
	check_number(gpu_standin.depth(), 0);
	gpu_standin.delay(0);
	pair_close(&pair);
}

enum trouble { NONE, CANCEL, COPY };

/*
 * Sends messages from the near end's GPU memory, every seventh from host memory.  All have one tag, so that receives
 * show their order.  Every third message is cancelled, or copies out of the memory fail.  Returns the number of failed
 * messages; checks that all others arrive.
 */
static unsigned send_small(struct pair *pair, uint64_t seed, enum trouble trouble)
{
	struct pl_operation *sends[SMALL_COUNT], *receives[SMALL_COUNT];
	struct pl_completion receipt;
	uint8_t bytes[SMALL_COUNT + SMALL_LENGTH];
	bool failed[SMALL_COUNT];
	struct pl_error error;
	unsigned failures = 0;
	size_t arrived = 0;

	pattern_fill(bytes, sizeof(bytes), seed, 0);
	for (size_t i = 0; i < SMALL_COUNT; i++) {
		memcpy(pair->near.bytes + i * SMALL_STRIDE, bytes + i, SMALL_LENGTH);
		check_ok(pl_receive(pair->environment.far_peer, 1, UINT64_MAX,
				    &(struct pl_buffer){ pair->far.region, i * SMALL_STRIDE, SMALL_STRIDE }, NULL,
				    &receives[i], &error),
			 &error);
	}
	mirror_bring(pair->near.bytes, LARGE);
	for (size_t i = 0; i < SMALL_COUNT; i++) {
		int rc = i % 7 == 6 ? pl_send_copy(pair->environment.near_peer, 1, bytes + i, SMALL_LENGTH, NULL,
						   &sends[i], &error)
				    : pl_send(pair->environment.near_peer, 1,
					      &(struct pl_buffer){ pair->near.region, i * SMALL_STRIDE, SMALL_LENGTH },
					      NULL, &sends[i], &error);

		check_ok(rc, &error);
	}
	for (size_t i = 0; trouble == CANCEL && i < SMALL_COUNT; i += 3)
		pl_cancel(sends[i]);
	for (size_t i = 0; i < SMALL_COUNT; i++) {
		int rc = await(&pair->environment, sends[i], &receipt, &error);

		failed[i] = rc < 0;
		failures += failed[i];
		if (rc < 0)
			check_text(error.id, trouble == CANCEL ? "OPERATION-CANCELED" : "SEND-FAILED");
		else if (i % 7 != 6)
			check_staged(&receipt, SMALL_LENGTH);
	}
	for (size_t i = 0; i < SMALL_COUNT; i++) {
		if (failed[i])
			continue;
		/* The stand-in reports a failure once; it may reach another message's copy on the same stream. */
		if (trouble == COPY) {
			await(&pair->environment, receives[arrived++], NULL, &error);
			continue;
		}
		complete(&pair->environment, receives[arrived], &receipt);
		check_number(receipt.bytes, SMALL_LENGTH);
		pattern_check(pair->far.bytes + arrived * SMALL_STRIDE, SMALL_LENGTH, seed, i);
		arrived++;
	}
	for (; arrived < SMALL_COUNT; arrived++) {
		check_number(pl_test(receives[arrived], NULL, &error), -EINPROGRESS);
		pl_cancel(receives[arrived]);
		check_status(await(&pair->environment, receives[arrived], NULL, &error), -ECANCELED, &error);
	}
	return failures;
}

static void small_sends(void *unused)
{
	static const char *const refused[] = { "none", "cuMemcpyBatchAsync", "cuMemHostRegister" };
	struct pair pair;

	(void)unused;
	begin();
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		gpu_standin.fail(refused[i], 0, UINT32_MAX, 801);
		pair_open(&pair);
		gpu_standin.delay(300);
		check_number(send_small(&pair, 40 + i, NONE), 0);
		check(send_small(&pair, 50 + i, CANCEL) <= (SMALL_COUNT + 2) / 3);
		check_number(send_small(&pair, 60 + i, NONE), 0);
		gpu_standin.fail("copy-out", 1, 3, 700);
		send_small(&pair, 70 + i, COPY);
		gpu_standin.fail("copy-out", 0, 0, 0);
		check_number(send_small(&pair, 80 + i, NONE), 0);
		check_number(gpu_standin.depth(), 0);
		gpu_standin.delay(0);
		pair_close(&pair);
		gpu_standin.fail(refused[i], 0, 0, 0);
	}
}

/* Closes the sending peer while its messages are copied; the region is unused afterwards. */
static void closed_before_they_left(void *unused)
{
	struct pl_completion completions[SMALL_COUNT];
	struct pl_error error;
	struct pair pair;

	(void)unused;
	begin();
	pair_open(&pair);
	gpu_standin.delay(20000);
	for (size_t i = 0; i < SMALL_COUNT; i++)
		check_ok(pl_send(pair.environment.near_peer, 1,
				 &(struct pl_buffer){ pair.near.region, 0, SMALL_LENGTH }, NULL, NULL, &error),
			 &error);
	pl_peer_close(pair.environment.near_peer);
	pair.environment.near_peer = NULL;
	check_number(gpu_standin.depth(), 0);
	collect(&pair.environment, pair.environment.near, completions, SMALL_COUNT);
	gpu_standin.delay(0);
	pair_close(&pair);
}

/* Checks that a prepared region finds its staging memory locked: the first transfer locks none. */
static void prepared(void *unused)
{
	struct pl_transfer transfer;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_error error;
	struct pair pair;
	size_t pinned;

	(void)unused;
	begin();
	environment_open(&pair.environment, &setting);
	buffer_open(&pair.near, pair.environment.near, LARGE, PL_ACCESS_ALL);
	buffer_open(&pair.far, pair.environment.far, LARGE, PL_ACCESS_ALL);
	remote = share(&pair.environment, pair.far.region, pair.environment.near_peer, NULL);
	check_number(gpu_standin.pinned(), 0);
	check_ok(pl_region_prepare(pair.environment.near_peer, pair.near.region, &error), &error);
	check_ok(pl_region_prepare(pair.environment.far_peer, pair.far.region, &error), &error);
	pinned = gpu_standin.pinned();
	check(pinned >= setting.lanes * LARGE);
	pattern_fill(pair.near.bytes, LARGE, 90, 0);
	transfer = (struct pl_transfer){ remote, 0, pair.near.region, 0, LARGE };
	check_ok(pl_write(pair.environment.near_peer, &transfer, NULL, &operation, &error), &error);
	complete(&pair.environment, operation, NULL);
	pattern_check(pair.far.bytes, LARGE, 90, 0);
	check_number(gpu_standin.pinned(), pinned);
	pl_remote_release(remote);
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "small-messages", small_messages, NULL, 20 },
	{ "small-sends", small_sends, NULL, 60 },
	{ "shared-gpu", shared_gpu, NULL, 20 },
	{ "slow-gpu", slow_gpu, NULL, 20 },
	{ "closed-meanwhile", closed_meanwhile, NULL, 20 },
	{ "prepared", prepared, NULL, 20 },
	{ "closed-before-they-left", closed_before_they_left, NULL, 20 },
};

int main(void)
{
	return cases_run("gpu-small", cases, sizeof(cases) / sizeof(cases[0]));
}
