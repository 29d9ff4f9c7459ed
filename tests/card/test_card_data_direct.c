/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory by Data Direct: registrations use it where the card has it, with a mapping over PCI Express where the GPU's
 * driver has that; receipts say so; a read flushes before bytes are visible to kernels; and cards without it, or a kernel
 * that refuses it, use dma-bufs.
 */
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "core/region.h"
#include "rdma/gpu_bench.h"
#include "rdma/loopback_write.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"

#define LENGTH (256u << 10)

struct rig {
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;
};

static void rig_open(struct rig *rig)
{
	*rig = (struct rig){ 0 };
	check(gpu_open("alloc"));
	environment_open(&rig->environment, &card_manual);
	buffer_open(&rig->near, rig->environment.near, LENGTH, PL_ACCESS_LOCAL);
	buffer_open(&rig->far, rig->environment.far, LENGTH, PL_ACCESS_ALL);
	rig->remote = share(&rig->environment, rig->far.region, rig->environment.near_peer, NULL);
}

static void rig_close(struct rig *rig)
{
	pl_remote_release(rig->remote);
	buffer_close(&rig->near);
	buffer_close(&rig->far);
	environment_close(&rig->environment);
}

/* Writes or reads all bytes, visible to kernels. Returns true if the receipt names Data Direct. */
static bool move(struct rig *rig, bool read, uint64_t seed)
{
	const struct pl_transfer transfer = { rig->remote, 0, rig->near.region, 0, LENGTH };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	pattern_fill(rig->near.bytes, LENGTH, read ? 0 : seed, 0);
	pattern_fill(rig->far.bytes, LENGTH, read ? seed : 0, 0);
	attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	check_ok((read ? pl_read : pl_write)(rig->environment.near_peer, &transfer, &attributes, &operation, &error),
		 &error);
	complete(&rig->environment, operation, &receipt);
	check_number(receipt.route, PL_ROUTE_DIRECT);
	check_number(receipt.visible, PL_VISIBLE_GPU_VISIBLE);
	pattern_check(read ? rig->near.bytes : rig->far.bytes, LENGTH, seed, 0);
	return strstr(receipt.reason, "Data Direct");
}

struct world {
	const char *card, *gpu, *mood;
	bool refused, direct;
};

static void run(void *argument)
{
	const struct world *world = argument;
	struct card_counts before, after;
	struct rig rig;

	setenv("STANDIN_CARD", world->card, 1);
	if (world->gpu)
		setenv("STANDIN_GPU", world->gpu, 1);
	if (world->mood)
		setenv("STANDIN_MOOD", world->mood, 1);
	if (world->refused)
		setenv("STANDIN_DATA_DIRECT", "refused", 1);
	rig_open(&rig);
	for (unsigned i = 0; i < 4; i++) {
		check(move(&rig, false, 1 + i) == world->direct);
		check(move(&rig, true, 11 + i) == world->direct);
	}
	/* A write into memory that Data Direct reaches is flushed by a read, whatever the GPU's driver promises. */
	before = card_counts_now();
	move(&rig, false, 21);
	after = card_counts_now();
	if (world->direct)
		check(after.requests[IBV_WR_RDMA_READ] > before.requests[IBV_WR_RDMA_READ]);
	check((after.data_direct > 0) == world->direct);
	rig_close(&rig);
}

/* Writes all bytes with a notification. Returns the number of reads that it cost. */
static unsigned reads_of_notifying(struct rig *rig)
{
	const unsigned before = card_counts_now().requests[IBV_WR_RDMA_READ];
	const struct pl_transfer transfer = { rig->remote, 0, rig->near.region, 0, LENGTH };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_completion notified;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.flags = PL_NOTIFY;
	check_ok(pl_write(rig->environment.near_peer, &transfer, &attributes, &operation, &error), &error);
	complete(&rig->environment, operation, NULL);
	collect(&rig->environment, rig->environment.far, &notified, 1);
	pl_notification_free(rig->environment.far, &notified);
	return card_counts_now().requests[IBV_WR_RDMA_READ] - before;
}

/* The GPU's driver promises that writes are in order. */
static void set_native_order(void)
{
	void (*order)(int ordering, int flush_options) = NULL;

	gpu_driver_find(&order, "standin_order");
	check(order);
	order(100, 1);
}

/*
 * A card without Data Direct has the first rail. The key that is exported then also serves later rails, so its order
 * counts the card with Data Direct.
 */
static void second_card(void *argument)
{
	struct rig rig;

	(void)argument;
	setenv("STANDIN_CARD", "cx8-direct", 1);
	setenv("STANDIN_CARDS", "2", 1);
	setenv("STANDIN_DATA_DIRECT", "1", 1);
	rail_limit = 1;
	set_native_order();
	rig_open(&rig);
	check(!move(&rig, false, 1));
	check_number(card_counts_now().data_direct, 0);
	check(reads_of_notifying(&rig) > 0);
	rig_close(&rig);
}

/* Writes from two regions of the same memory. Both must know of Data Direct, or neither. */
static void move_from_both(struct rig *rig, bool direct)
{
	const struct buffer first = rig->near;
	struct pl_error error;

	check(move(rig, false, 1) == direct);
	check_ok(pl_region_register(rig->environment.near, first.address, LENGTH, PL_ACCESS_LOCAL, &rig->near.region,
				    &error),
		 &error);
	check(move(rig, false, 2) == direct);
	check_number(pl_region_deregister(rig->near.region), 0);
	rig->near = first;
}

static void two_regions(void *argument)
{
	struct rig rig;

	(void)argument;
	setenv("STANDIN_CARD", "cx8-direct", 1);
	rig_open(&rig);
	move_from_both(&rig, true);
	rig_close(&rig);
}

/* A card is asked for its function when it is opened, and at no registration. */
static void late_function(void *argument)
{
	struct rig rig;

	(void)argument;
	setenv("STANDIN_CARD", "cx8-direct", 1);
	/* No card has this number. */
	setenv("STANDIN_DATA_DIRECT", "9", 1);
	rig_open(&rig);
	unsetenv("STANDIN_DATA_DIRECT");
	move_from_both(&rig, false);
	check_number(card_counts_now().data_direct, 0);
	rig_close(&rig);
}

static bool order_is_read(struct rdma_loopback *loop, struct pl_memory *memory, bool dmabuf)
{
	struct rdma_gpu_bench bench;
	const char *what;
	bool read;

	check_number(rdma_gpu_bench_open(&bench, loop, memory, &what), 0);
	if (dmabuf)
		check_number(
			verbs_reg_dmabuf(&loop->domain, memory, 0, LENGTH, RDMA_GPU_BENCH_ACCESS, &bench.gpu_mr, &what),
			0);
	read = pl_memory_order(memory) == PL_ORDER_READ;
	rdma_gpu_bench_close(&bench);
	return read;
}

/* The proof of another way after one by Data Direct uses the order of its own way. */
static void proof_of_each_way(void *argument)
{
	const struct verbs_library *library;
	struct rdma_loopback loop;
	struct ibv_device **devices;
	struct pl_memory *memory;
	const char *what;
	struct rig rig;

	(void)argument;
	setenv("STANDIN_CARD", "cx8-direct", 1);
	set_native_order();
	rig_open(&rig);
	memory = &rig.near.region->memory;
	library = verbs_library_get(NULL);
	devices = library->ibv_get_device_list(NULL);
	check_number(rdma_loopback_open(&loop, library, devices[0], &what), 0);
	check(order_is_read(&loop, memory, true));
	check(!order_is_read(&loop, memory, false));
	rdma_loopback_close(&loop);
	library->ibv_free_device_list(devices);
	rig_close(&rig);
}

static const struct test_case cases[] = {
	{ "used", run, &(const struct world){ "cx8-direct", NULL, NULL, false, true }, 60 },
	{ "beside Grace", run, &(const struct world){ "cx8-direct", "grace", NULL, false, true }, 60 },
	{ "late bytes", run, &(const struct world){ "cx8-direct", "grace", "order:5000", false, true }, 60 },
	{ "refused", run, &(const struct world){ "cx8-direct", NULL, NULL, true, false }, 60 },
	{ "refused beside Grace", run, &(const struct world){ "cx8-direct", "grace", NULL, true, false }, 60 },
	{ "missing", run, &(const struct world){ "cx8-roce", NULL, NULL, false, false }, 60 },
	{ "missing beside Grace", run, &(const struct world){ "grace", "grace", NULL, false, false }, 60 },
	{ "another maker's", run, &(const struct world){ "ionic", NULL, NULL, false, false }, 60 },
	{ "second card", second_card, NULL, 60 },
	{ "two regions", two_regions, NULL, 60 },
	{ "late function", late_function, NULL, 60 },
	{ "proof of each way", proof_of_each_way, NULL, 60 },
};

int main(void)
{
	return cases_run("card data direct", cases, sizeof(cases) / sizeof(cases[0]));
}
