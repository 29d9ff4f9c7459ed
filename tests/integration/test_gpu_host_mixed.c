/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gathers with host memory of several kinds in one vector, of grants for reading alone, and of a hostile owner. Uses the stand-in for
 * the driver, or a real GPU.
 */
#include <stdlib.h>

#include "fabric/local/local.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/local.h"

#define KERNEL "a kernel of the GPU copies"

#define BLOCK ((size_t)16 << 10)
#define BLOCKS 64u

struct pair {
	struct buffer near, far;
	struct pl_remote *remote;
};

static void pair_open(struct pair *pair, struct scenario_environment *environment, bool near_gpu, bool far_gpu,
		      unsigned rights)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_operation *operation;
	struct pl_error error;

	gpu_kind = near_gpu ? "alloc" : NULL;
	buffer_open(&pair->near, environment->near, BLOCK * BLOCKS, PL_ACCESS_ALL);
	if (!near_gpu)
		gpu_pin(pair->near.memory, BLOCK * BLOCKS + 2 * BUFFER_GUARD);
	gpu_kind = far_gpu ? "alloc" : NULL;
	buffers_allocated = !far_gpu;
	buffer_open(&pair->far, environment->far, BLOCK * BLOCKS, PL_ACCESS_ALL);
	buffers_allocated = false;
	gpu_kind = "alloc";
	options.length = BLOCK * BLOCKS;
	options.rights = rights;
	check_ok(pl_region_share(pair->far.region, &options, token, &length, &error), &error);
	pair->remote = import_token(environment, environment->near_peer, token, length);
	/* The library locks a mapping once as many bytes were copied. */
	for (unsigned i = 0; i < 3; i++) {
		check_ok(pl_read(environment->near_peer,
				 &(struct pl_transfer){ pair->remote, 0, pair->near.region, 0, BLOCK * BLOCKS }, NULL,
				 &operation, &error),
			 &error);
		complete(environment, operation, NULL);
	}
}

static void pair_close(struct pair *pair)
{
	if (!pair->near.device)
		gpu_unpin(pair->near.memory);
	pl_remote_release(pair->remote);
	buffer_close(&pair->near);
	buffer_close(&pair->far);
}

/* Transfers the blocks of all pairs by one vector, those of each pair in the opposite order. */
static void transfer_blocks(struct scenario_environment *environment, struct pair *pairs, unsigned count, bool write,
			    struct pl_completion *receipt)
{
	static struct pl_transfer transfers[4 * BLOCKS];
	struct pl_operation *operation;
	struct pl_error error;

	for (unsigned i = 0; i < count * BLOCKS; i++) {
		const struct pair *pair = &pairs[i % count];

		transfers[i] = (struct pl_transfer){ pair->remote, (BLOCKS - 1 - i / count) * BLOCK, pair->near.region,
						     i / count * BLOCK, BLOCK };
	}
	check_ok((write ? pl_writev : pl_readv)(environment->near_peer, transfers, count * BLOCKS, NULL, &operation,
						&error),
		 &error);
	complete(environment, operation, receipt);
}

static void check_blocks(struct pair *pairs, unsigned count, bool write)
{
	for (unsigned i = 0; i < count * BLOCKS; i++) {
		const struct pair *pair = &pairs[i % count];
		const uint8_t *bytes = write ? pair->far.bytes : pair->near.bytes;

		pattern_check(bytes + i / count * BLOCK, BLOCK, i % count + 2 * write,
			      (BLOCKS - 1 - i / count) * BLOCK);
	}
}

/* Writes and reads the blocks of all pairs. */
static void check_pairs(struct scenario_environment *environment, struct pair *pairs, unsigned count, bool kernel)
{
	struct pl_completion receipt;

	for (unsigned write = 0; write < 2; write++) {
		unsigned before = gpu_standin_launched();

		for (unsigned i = 0; i < count; i++)
			pattern_fill(write ? pairs[i].near.bytes : pairs[i].far.bytes, BLOCK * BLOCKS, i + 2 * write,
				     0);
		transfer_blocks(environment, pairs, count, write, &receipt);
		check_blocks(pairs, count, write);
		check_number(receipt.route, PL_ROUTE_DIRECT);
		check(!strstr(receipt.reason, KERNEL) == !kernel);
		if (gpu_standin.launched)
			check((gpu_standin_launched() > before) == kernel);
	}
}

static void open_near_gpu(struct scenario_environment *environment)
{
	if (!gpu_open("alloc"))
		exit(SKIPPED);
	gpu_standin_find();
	environment_open(environment, &local_threads);
}

/* One kernel copies between all memories, but between host memory and host memory the processor copies. */
static void mixed(void *unused)
{
	struct scenario_environment environment;
	struct pair pairs[4];

	(void)unused;
	open_near_gpu(&environment);
	for (unsigned i = 0; i < 4; i++)
		pair_open(&pairs[i], &environment, i < 2, i % 2 == 0, 0);
	check_pairs(&environment, pairs, 3, true);
	check_pairs(&environment, &pairs[1], 2, true);
	check_pairs(&environment, pairs, 4, false);
	for (unsigned i = 0; i < 4; i++)
		pair_close(&pairs[i]);
	environment_close(&environment);
}

/* A mapping that this process may only read is locked for reading, and kernels read it. */
static void read_only(void *unused)
{
	struct scenario_environment environment;
	struct pl_completion receipt;
	struct pl_transfer transfers[8];
	struct pl_operation *operation;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	open_near_gpu(&environment);
	pair_open(&pair, &environment, true, false, PL_ACCESS_READ);
	pattern_fill(pair.far.bytes, BLOCK * BLOCKS, 0, 0);
	transfer_blocks(&environment, &pair, 1, false, &receipt);
	check(strstr(receipt.reason, KERNEL));
	check_blocks(&pair, 1, false);
	for (unsigned i = 0; i < 8; i++)
		transfers[i] = (struct pl_transfer){ pair.remote, i * BLOCK, pair.near.region, i * BLOCK, BLOCK };
	check_status(pl_writev(environment.near_peer, transfers, 8, NULL, &operation, &error), -EACCES, &error);
	pattern_check(pair.far.bytes, BLOCK * BLOCKS, 0, 0);
	pair_close(&pair);
	environment_close(&environment);
}

/* A kernel of one GPU does not copy a vector of two GPUs' memory. */
static void two_gpus(void *unused)
{
	struct scenario_environment environment;
	struct pair pairs[2];

	(void)unused;
	open_near_gpu(&environment);
	pair_open(&pairs[0], &environment, true, false, 0);
	if (!gpu_open_on("alloc", 1))
		exit(SKIPPED);
	pair_open(&pairs[1], &environment, true, false, 0);
	check_pairs(&environment, pairs, 1, true);
	check_pairs(&environment, &pairs[1], 1, true);
	check_pairs(&environment, pairs, 2, false);
	pair_close(&pairs[0]);
	pair_close(&pairs[1]);
	environment_close(&environment);
}

/* The mapping of a revoked key is closed with the lock held. */
static bool mapping_is_shared(const struct local_access *access)
{
	bool shared;

	pthread_mutex_lock(&access->state->lock);
	shared = *access->base != 0;
	pthread_mutex_unlock(&access->state->lock);
	return shared;
}

/* An owner that claims that no kernel copies: the mapping is closed, but its pages stay locked until the kernel has ended. */
static void hostile_owner(void *unused)
{
	struct scenario_environment environment;
	struct pl_operation *operation;
	struct pl_transfer transfers[8];
	struct local_access *access;
	struct pl_error error;
	struct pair pair;
	uint32_t holders;
	size_t locked;

	(void)unused;
	open_near_gpu(&environment);
	gpu_standin_need();
	pair_open(&pair, &environment, true, false, 0);
	bytes_set(pair.far.bytes, POISON, BLOCK * BLOCKS);
	access = pair.remote->fabric_data;
	locked = gpu_standin.pinned();
	/* Until the delay is set anew below. */
	gpu_standin.delay(60 * 1000 * 1000);
	for (unsigned i = 0; i < 8; i++)
		transfers[i] = (struct pl_transfer){ pair.remote, i * BLOCK, pair.near.region, i * BLOCK, BLOCK };
	check_ok(pl_readv(environment.near_peer, transfers, 8, NULL, &operation, &error), &error);
	progress_until(&environment, local_gate_is_held(access->gate));
	holders = atomic_exchange(&access->gate->holders, 0);
	check_number(pl_region_revoke(pair.far.region, NULL, 0), 0);
	progress_until(&environment, !mapping_is_shared(access));
	check_number(gpu_standin.pinned(), locked);
	atomic_fetch_add(&access->gate->holders, holders);
	gpu_standin.delay(0);
	check_ok(await(&environment, operation, NULL, &error), &error);
	check_number(gpu_standin.pinned(), locked - BLOCK * BLOCKS);
	pair_close(&pair);
	environment_close(&environment);
}

/* -- memory that is lost between two kernels ----------------------------------------------------------- */

/* Elements, of which three kernels copy a quarter, 32,768, and the rest; those of the first pair. */
#define SMALL ((size_t)128)
#define SMALLS 49152u
#define SMALLS_FIRST 8192u

static uint64_t small_offset(unsigned number)
{
	return number * SMALL % (BLOCK * BLOCKS);
}

/* Reads by a vector whose first kernel alone copies memory of the first pair. Returns when two kernels are launched. */
static struct pl_operation *read_smalls(struct scenario_environment *environment, struct pair *pairs, unsigned delay)
{
	struct pl_transfer *transfers = calloc(SMALLS, sizeof(*transfers));
	unsigned before = gpu_standin_launched();
	struct pl_operation *operation;
	struct pl_error error;

	check(transfers);
	for (unsigned i = 0; i < SMALLS; i++) {
		const struct pair *pair = &pairs[i >= SMALLS_FIRST];

		transfers[i] = (struct pl_transfer){ pair->remote, small_offset(i), pair->near.region, small_offset(i),
						     SMALL };
	}
	for (unsigned i = 0; i < 2; i++) {
		pattern_fill(pairs[i].far.bytes, BLOCK * BLOCKS, i, 0);
		bytes_set(pairs[i].near.bytes, POISON, BLOCK * BLOCKS);
	}
	gpu_standin.delay(delay);
	check_ok(pl_readv(environment->near_peer, transfers, SMALLS, NULL, &operation, &error), &error);
	free(transfers);
	progress_until(environment, gpu_standin_launched() == before + 2);
	return operation;
}

/* The memory of the first segment is closed while kernels copy others. */
static void revoked_between(void *unused)
{
	struct scenario_environment environment;
	struct pl_operation *operation;
	struct pair pairs[2];
	struct local_device *device;
	unsigned before;

	(void)unused;
	open_near_gpu(&environment);
	gpu_standin_need();
	for (unsigned i = 0; i < 2; i++)
		pair_open(&pairs[i], &environment, false, true, 0);
	device = ((struct local_access *)pairs[0].remote->fabric_data)->device;
	gpu_standin.stall("gather");
	before = gpu_standin_launched();
	operation = read_smalls(&environment, pairs, 0);
	while (!gpu_standin.stalled())
		sleep_ms(1);
	gpu_standin.step();
	progress_until(&environment, gpu_standin_launched() == before + 3);
	check_number(pl_region_revoke(pairs[0].far.region, NULL, 0), 0);
	progress_until(&environment, !local_device_kernel_reaches(device, &pairs[0].near.region->memory, true));
	gpu_standin.stall(NULL);
	complete(&environment, operation, NULL);
	for (unsigned i = 0; i < 2; i++) {
		pattern_check(pairs[i].near.bytes, SMALL * SMALLS_FIRST, i, 0);
		pair_close(&pairs[i]);
	}
	environment_close(&environment);
}

/* The program unlocks its memory, which no kernel touches any more. */
static void unlocked_between(void *unused)
{
	struct scenario_environment environment;
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct pair pairs[2];

	(void)unused;
	open_near_gpu(&environment);
	gpu_standin_need();
	for (unsigned i = 0; i < 2; i++)
		pair_open(&pairs[i], &environment, false, true, 0);
	/* Until the delay is set anew below. */
	operation = read_smalls(&environment, pairs, 60 * 1000 * 1000);
	/* The engine asks whether a kernel that takes long has failed. */
	gpu_standin.stall("cuStreamQuery");
	while (!gpu_standin.stalled())
		sleep_ms(1);
	gpu_standin.delay(0);
	/* Waits for the kernels. */
	gpu_free(gpu_allocate(SMALL));
	gpu_unpin(pairs[1].near.memory);
	gpu_standin.stall(NULL);
	complete(&environment, operation, &receipt);
	check(!strstr(receipt.reason, KERNEL));
	gpu_pin(pairs[1].near.memory, BLOCK * BLOCKS + 2 * BUFFER_GUARD);
	for (unsigned i = 0; i < 2; i++) {
		pattern_check(pairs[i].near.bytes, SMALL * SMALLS_FIRST, i, 0);
		pair_close(&pairs[i]);
	}
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "mixed", mixed, NULL, 30 },
	{ "read-only", read_only, NULL, 20 },
	{ "two-gpus", two_gpus, NULL, 20 },
	{ "hostile-owner", hostile_owner, NULL, 20 },
	{ "revoked-between", revoked_between, NULL, 30 },
	{ "unlocked-between", unlocked_between, NULL, 30 },
};

int main(void)
{
	return cases_run("gpu-host-mixed", cases, sizeof(cases) / sizeof(cases[0]));
}
