/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu_support.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void must_cuda(CUresult result, const char *call)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "%s: %d\n", call, result);
		exit(1);
	}
}

void find_driver_function(const char *name, void *function)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *found = library ? dlsym(library, name) : NULL;

	if (!found) {
		fprintf(stderr, "%s: not a function of the driver\n", name);
		exit(1);
	}
	memcpy(function, &found, sizeof(found));
}
