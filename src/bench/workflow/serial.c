/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames one after the other, with a wait for each step: the baseline of all other methods. */
#include "bench/workflow/workflow.h"

/* Runs the device's steps and times them by this program's clock, from the call to the end of the wait. */
static int compute_frame(struct workflow_run *run, uint64_t number, struct pl_error *error)
{
	uint64_t *phases = run->frames[number % run->depth].phases;
	unsigned steps = workflow_method_steps(run->method);
	uint64_t times[PL_STEPS] = { 0 };
	int rc = 0;

	for (unsigned step = 0; rc == 0 && step < PL_STEPS; step++) {
		uint64_t begun = cli_now();

		if (!(steps & 1u << step))
			continue;
		rc = workflow_device_begin(run, number, 1u << step, error);
		if (rc == 0)
			rc = workflow_device_end(run, number, error);
		times[step] = cli_now() - begun;
	}
	for (unsigned step = 0; step < PL_STEPS; step++)
		phases[WORKFLOW_TO_DEVICE + step] = times[step];
	return rc;
}

int workflow_run_serial(struct workflow_run *run, struct pl_error *error)
{
	int rc = 0;

	while (rc == 0 && workflow_run_more(run)) {
		uint64_t number = run->next++;

		rc = workflow_receive_begin(run, number, error);
		if (rc == 0)
			rc = workflow_receive_end(run, number, error);
		if (rc == 0)
			rc = compute_frame(run, number, error);
		if (rc == 0 && !run->method->proxy)
			rc = workflow_inspect(run, number, error);
		if (rc == 0 && run->method->proxy)
			rc = workflow_serve_begin(run, number, error);
		if (rc == 0 && run->method->proxy)
			rc = workflow_serve_end(run, number, error);
		if (rc == 0)
			workflow_frame_done(run, number);
	}
	return rc;
}
