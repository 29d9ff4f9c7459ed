/* SPDX-License-Identifier: BSD-2-Clause */
/* pl_cancel() of many operations: the fabric looks through its work once for all that the engine finds, not once for each. */
#include "core/fabric.h"
#include "support/cases.h"
#include "support/pair.h"

#define OPERATIONS 64u
#define LENGTH 64u

static const struct setting setting = {
	.name = "cancel-sweeps", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

static const struct pl_fabric_ops *before;
static unsigned sweeps;

static void note_sweep(struct pl_endpoint *endpoint)
{
	sweeps++;
	before->sweep(endpoint);
}

/* The far end, which nobody drives, answers no read. */
static void cancel_together(void *unused)
{
	struct pl_operation *operations[OPERATIONS];
	struct pl_fabric_ops ops;
	struct pl_error error;
	struct pl_peer *peer;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &setting, LENGTH);
	peer = pair.environment.near_peer;
	for (unsigned i = 0; i < OPERATIONS; i++)
		check_ok(pl_read(peer, &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, LENGTH }, NULL,
				 &operations[i], &error),
			 &error);
	before = peer->ops;
	ops = *before;
	ops.sweep = note_sweep;
	peer->ops = &ops;
	/* As while the engine is busy: it finds all of the cancellations then. */
	pl_engine_lock(peer->home);
	for (unsigned i = 0; i < OPERATIONS; i++)
		pl_cancel(operations[i]);
	pl_engine_unlock(peer->home);
	for (unsigned i = 0; i < OPERATIONS; i++)
		check_status(pl_wait(operations[i], AMPLE_TIME, NULL, &error), -ECANCELED, &error);
	check_number(sweeps, 1);
	peer->ops = before;
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "cancel-together", cancel_together, NULL, 30 },
};

int main(void)
{
	return cases_run("cancel-sweeps", cases, PL_ARRAY_SIZE(cases));
}
