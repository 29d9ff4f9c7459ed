/* SPDX-License-Identifier: BSD-2-Clause */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "support/gpu_standin.h"
#include "support/process.h"

struct gpu_standin gpu_standin;

void gpu_driver_find(void *function, const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found) {
		void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

		found = library ? dlsym(library, name) : NULL;
	}
	memcpy(function, &found, sizeof(found));
}

void gpu_standin_find(void)
{
	gpu_driver_find(&gpu_standin.fail, "standin_fail");
	gpu_driver_find(&gpu_standin.stall, "standin_stall");
	gpu_driver_find(&gpu_standin.stalled, "standin_stalled");
	gpu_driver_find(&gpu_standin.step, "standin_step");
	gpu_driver_find(&gpu_standin.delay, "standin_delay");
	gpu_driver_find(&gpu_standin.share, "standin_share");
	gpu_driver_find(&gpu_standin.waited, "standin_waited");
	gpu_driver_find(&gpu_standin.hold, "standin_hold");
	gpu_driver_find(&gpu_standin.load, "standin_load");
	gpu_driver_find(&gpu_standin.launched, "standin_launched");
	gpu_driver_find(&gpu_standin.copies, "standin_copies");
	gpu_driver_find(&gpu_standin.through_host, "standin_through_host");
	gpu_driver_find(&gpu_standin.asked, "standin_asked");
	gpu_driver_find(&gpu_standin.pinned, "standin_pinned");
	gpu_driver_find(&gpu_standin.copied, "standin_copied");
	gpu_driver_find(&gpu_standin.opened, "standin_opened");
	gpu_driver_find(&gpu_standin.handles, "standin_handles");
	gpu_driver_find(&gpu_standin.mapped, "standin_mapped");
	gpu_driver_find(&gpu_standin.joined, "standin_joined");
	gpu_driver_find(&gpu_standin.depth, "standin_depth");
}

void gpu_standin_need(void)
{
	if (!gpu_standin.fail)
		exit(SKIPPED);
}

unsigned gpu_standin_launched(void)
{
	return gpu_standin.launched ? gpu_standin.launched() : 0;
}
