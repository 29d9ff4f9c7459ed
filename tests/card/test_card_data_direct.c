/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory by Data Direct: registrations use it where the card has it, with a mapping over PCI Express where the GPU's
 * driver has that; receipts say so; a read flushes before bytes are visible to kernels; and cards without it, or a kernel
 * that refuses it, use dma-bufs.
 */
#include <stdlib.h>

#include "card/card.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/gpu.h"

#define LENGTH (256u << 10)

static const struct setting manual = {
	"manual", "verbs", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false, false, true, false
};

struct rig {
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;
};

static void rig_open(struct rig *rig)
{
	*rig = (struct rig){ 0 };
	check(gpu_open("alloc"));
	environment_open(&rig->environment, &manual);
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

static const struct test_case cases[] = {
	{ "used", run, &(const struct world){ "cx8-direct", NULL, NULL, false, true }, 60 },
	{ "beside Grace", run, &(const struct world){ "cx8-direct", "grace", NULL, false, true }, 60 },
	{ "late bytes", run, &(const struct world){ "cx8-direct", "grace", "order:5000", false, true }, 60 },
	{ "refused", run, &(const struct world){ "cx8-direct", NULL, NULL, true, false }, 60 },
	{ "refused beside Grace", run, &(const struct world){ "cx8-direct", "grace", NULL, true, false }, 60 },
	{ "missing", run, &(const struct world){ "cx8-roce", NULL, NULL, false, false }, 60 },
	{ "missing beside Grace", run, &(const struct world){ "grace", "grace", NULL, false, false }, 60 },
	{ "another maker's", run, &(const struct world){ "ionic", NULL, NULL, false, false }, 60 },
};

int main(void)
{
	return cases_run("card data direct", cases, sizeof(cases) / sizeof(cases[0]));
}
