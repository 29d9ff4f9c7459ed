/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two GPUs of one process, over the local fabric: each kind of memory is copied from GPU to GPU, and through host memory only
 * if the driver gives a GPU no access.
 */
#include <stdlib.h>
#include <string.h>

#include "support/cases.h"
#include "support/environment.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/process.h"

/* More than the largest operation that the posting thread copies, and than one handle. */
#define LARGE ((size_t)3 << 20)

static const struct setting setting = {
	.name = "gpu",
	.fabric = "local",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_THREAD,
	.lanes = 1,
};

/* Kinds of memory of GPU 0 and GPU 1, and the call of the driver by which one gets access to the other's. */
struct kinds {
	const char *near, *far, *call;
};

struct end {
	const char *kind;
	int gpu;
	void *bytes;
	struct pl_region *region;
};

struct two_gpus {
	struct scenario_environment environment;
	struct end near, far;
	struct pl_remote *remote;
};

/* The functions of support/gpu.h serve one GPU at a time. */
static void end_use(const struct end *end)
{
	if (!gpu_open_on(end->kind, end->gpu))
		exit(SKIPPED);
}

static void end_open(struct end *end, struct pl_context *context, const char *kind, int gpu)
{
	struct pl_error error;

	*end = (struct end){ .kind = kind, .gpu = gpu };
	end_use(end);
	end->bytes = gpu_allocate(LARGE);
	check_ok(pl_region_register(context, end->bytes, LARGE, PL_ACCESS_ALL, &end->region, &error), &error);
}

static void end_close(struct end *end)
{
	check_number(pl_region_deregister(end->region), 0);
	end_use(end);
	gpu_free(end->bytes);
}

static void two_gpus_open(struct two_gpus *two, const struct kinds *kinds)
{
	two->near.kind = kinds->near;
	two->near.gpu = 0;
	end_use(&two->near);
	gpu_standin_find();
	environment_open(&two->environment, &setting);
	end_open(&two->near, two->environment.near, kinds->near, 0);
	end_open(&two->far, two->environment.far, kinds->far, 1);
	two->remote = share(&two->environment, two->far.region, two->environment.near_peer, NULL);
}

static void two_gpus_close(struct two_gpus *two)
{
	pl_remote_release(two->remote);
	end_close(&two->near);
	end_close(&two->far);
	environment_close(&two->environment);
}

/* Writes or reads, compares the bytes, and checks the reason in the receipt. */
static void move_and_compare(struct two_gpus *two, bool write, size_t length, const char *reason)
{
	const struct end *from = write ? &two->near : &two->far, *to = write ? &two->far : &two->near;
	struct pl_transfer transfer = { two->remote, 0, two->near.region, 0, length };
	uint8_t *sent = malloc(length), *received = calloc(1, length);
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	check(sent && received);
	pattern_fill(sent, length, length + write, 0);
	end_use(from);
	gpu_copy_in(from->bytes, sent, length);
	check_ok((write ? pl_write : pl_read)(two->environment.near_peer, &transfer, NULL, &operation, &error), &error);
	complete(&two->environment, operation, &receipt);
	check_number(receipt.route, PL_ROUTE_DIRECT);
	check(receipt.reason && strstr(receipt.reason, reason));
	end_use(to);
	gpu_copy_out(to->bytes, received, length);
	check(!memcmp(sent, received, length));
	free(sent);
	free(received);
}

static void move_all(struct two_gpus *two, const char *reason)
{
	static const size_t lengths[] = { 8, 65536, LARGE };

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		move_and_compare(two, true, lengths[i], reason);
		move_and_compare(two, false, lengths[i], reason);
	}
}

/*
 * The program's own mappings stay as they are: the driver breaks copies and kernels that use a mapping while several threads give
 * GPUs access to it.
 */
static void from_gpu_to_gpu(void *argument)
{
	struct two_gpus two;

	two_gpus_open(&two, argument);
	move_all(&two, "local: the GPU copies from");
	if (gpu_standin.through_host) {
		check_number(gpu_standin.through_host(), 0);
		check_number(gpu_standin.joined(), 0);
	}
	two_gpus_close(&two);
}

/* GPUs that do not reach each other. */
static void no_access(void *argument)
{
	const struct kinds *kinds = argument;
	struct two_gpus two;

	two_gpus_open(&two, kinds);
	gpu_standin_need();
	gpu_standin.fail(kinds->call, 0, UINT32_MAX, 801);
	move_all(&two, "local: the driver copies through host memory");
	check(gpu_standin.through_host() > 0);
	two_gpus_close(&two);
}

/* Nothing holds memory of handles after the program has freed it: neither a message nor a grant that ended. */
static void freed_is_unmapped(void *argument)
{
	struct pl_operation *operation, *sent;
	struct pl_completion receipt;
	struct pl_error error;
	struct two_gpus two;
	uint64_t until;

	two_gpus_open(&two, argument);
	gpu_standin_need();
	move_and_compare(&two, false, LARGE, "local: the GPU copies from");
	check_ok(pl_receive(two.environment.near_peer, 1, UINT64_MAX, &(struct pl_buffer){ two.near.region, 0, LARGE },
			    NULL, &operation, &error),
		 &error);
	check_ok(pl_send(two.environment.far_peer, 1, &(struct pl_buffer){ two.far.region, 0, LARGE }, NULL, &sent,
			 &error),
		 &error);
	complete(&two.environment, operation, &receipt);
	check_number(receipt.route, PL_ROUTE_DIRECT);
	complete(&two.environment, sent, &receipt);
	pl_remote_release(two.remote);
	end_close(&two.near);
	end_close(&two.far);
	/* An engine ends the grant. */
	until = clock_now() + AMPLE_TIME;
	while (gpu_standin.mapped()) {
		check(clock_now() < until);
		settle(&two.environment, 1);
	}
	environment_close(&two.environment);
}

int main(void)
{
	static const struct kinds alloc = { "alloc", "alloc", "cuCtxEnablePeerAccess" },
				  mapped = { "mapped", "mapped", "cuMemSetAccess" },
				  private = { "private", "private", "cuMemSetAccess" },
				  pool = { "pool", "pool", "cuMemPoolSetAccess" },
				  mapped_alloc = { "mapped", "alloc", "cuCtxEnablePeerAccess" },
				  alloc_mapped = { "alloc", "mapped", "cuMemSetAccess" };
	static const struct test_case cases[] = {
		{ "alloc", from_gpu_to_gpu, &alloc, 60 },
		{ "mapped", from_gpu_to_gpu, &mapped, 60 },
		{ "private", from_gpu_to_gpu, &private, 60 },
		{ "pool", from_gpu_to_gpu, &pool, 60 },
		{ "mapped-alloc", from_gpu_to_gpu, &mapped_alloc, 60 },
		{ "alloc-mapped", from_gpu_to_gpu, &alloc_mapped, 60 },
		{ "freed-is-unmapped", freed_is_unmapped, &mapped, 60 },
		{ "no-access-alloc", no_access, &alloc, 60 },
		{ "no-access-mapped", no_access, &mapped, 60 },
		{ "no-access-pool", no_access, &pool, 60 },
	};

	return cases_run("gpu_process", cases, sizeof(cases) / sizeof(cases[0]));
}
