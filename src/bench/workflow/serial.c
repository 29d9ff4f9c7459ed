/* SPDX-License-Identifier: BSD-2-Clause */
/* One frame after the other, each step waited for: the seed of all other ways, and what they are compared with. */
#include "bench/workflow/workflow.h"

/* By this program's clock, from the call to its end, as a program that waits sees it. */
static int compute(struct flow_run *run, uint64_t number, struct pl_error *error)
{
	uint64_t *phases = run->frames[number % run->depth].phases;
	unsigned steps = flow_arm_steps(run->arm);
	uint64_t times[PL_STEPS] = { 0 };
	int rc = 0;

	for (unsigned step = 0; rc == 0 && step < PL_STEPS; step++) {
		uint64_t begun = cli_now();

		if (!(steps & 1u << step))
			continue;
		rc = flow_device_begin(run, number, 1u << step, error);
		if (rc == 0)
			rc = flow_device_end(run, number, error);
		times[step] = cli_now() - begun;
	}
	for (unsigned step = 0; step < PL_STEPS; step++)
		phases[FLOW_TO_DEVICE + step] = times[step];
	return rc;
}

int flow_run_serial(struct flow_run *run, struct pl_error *error)
{
	int rc = 0;

	while (rc == 0 && flow_run_more(run)) {
		uint64_t number = run->next++;

		rc = flow_receive_begin(run, number, error);
		if (rc == 0)
			rc = flow_receive_end(run, number, error);
		if (rc == 0)
			rc = compute(run, number, error);
		if (rc == 0 && !run->arm->proxy)
			rc = flow_inspect(run, number, error);
		if (rc == 0 && run->arm->proxy)
			rc = flow_serve_begin(run, number, error);
		if (rc == 0 && run->arm->proxy)
			rc = flow_serve_end(run, number, error);
		if (rc == 0)
			flow_frame_done(run, number);
	}
	return rc;
}
