/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Modules: the kernel of Peerlane, y = 3x + i.
 * The stand-in recognizes the kernel by its entry and arguments, and reads its text no further.  The processor computes
 * the result.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcuda/standin.h"

#define ENTRY "peerlane_workflow"
#define THREADS_MAX 1024u

struct module {
	bool known;
};

static const char *const needed[] = {
	".version 5.0\n",
	".target sm_50\n",
	".address_size 64\n",
	".visible .entry " ENTRY "(\n\t.param .u64 to,\n\t.param .u64 from,\n\t.param .u32 count\n)\n{\n",
	"mad.lo.u32 %r7, %r6, 3, %r5;\n",
	"st.global.u32 [%d7], %r7;\n",
	"ret;\n}\n",
};

API CUresult cuModuleLoadData(struct module **result, const void *image)
{
	const char *at = image;
	CUresult failure = standin_failure("cuModuleLoadData");
	struct module *module;

	if (failure)
		return failure;
	if (!standin_current())
		return INVALID_CONTEXT;
	/* The text must contain each of these strings, in this order. */
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		at = strstr(at, needed[i]);
		if (!at)
			return INVALID_PTX;
		at += strlen(needed[i]);
	}
	module = calloc(1, sizeof(*module));
	if (!module)
		return OUT_OF_MEMORY;
	module->known = true;
	*result = module;
	return SUCCESS;
}

API CUresult cuModuleUnload(struct module *module)
{
	free(module);
	return SUCCESS;
}

API CUresult cuModuleGetFunction(struct module **function, struct module *module, const char *name)
{
	if (!module->known || strcmp(name, ENTRY))
		return NOT_FOUND;
	*function = module;
	return SUCCESS;
}

API CUresult cuLaunchKernel(struct module *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
			    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
			    struct stream *stream, void **arguments, void **extra)
{
	CUresult failure = standin_failure("cuLaunchKernel");
	struct standin_kernel kernel;

	if (failure)
		return failure;
	if (!standin_current())
		return INVALID_CONTEXT;
	if (!function->known || !arguments || extra || shared || !grid_x || grid_y != 1 || grid_z != 1 || !block_x ||
	    block_x > THREADS_MAX || block_y != 1 || block_z != 1)
		return INVALID_VALUE;
	memcpy(&kernel.to, arguments[0], sizeof(kernel.to));
	memcpy(&kernel.from, arguments[1], sizeof(kernel.from));
	memcpy(&kernel.words, arguments[2], sizeof(kernel.words));
	/* Each thread computes one word, so the launch computes at most as many words as threads. */
	if (kernel.words > (uint64_t)grid_x * block_x)
		kernel.words = (uint32_t)((uint64_t)grid_x * block_x);
	return standin_launch(stream, &kernel);
}
