/* SPDX-License-Identifier: BSD-2-Clause */
/* Helpers of the benchmark programs that call CUDA's driver. They exit at the first error. */
#ifndef PL_BENCHMARKS_GPU_SUPPORT_H
#define PL_BENCHMARKS_GPU_SUPPORT_H

#include "memory/cuda/driver.h"

void must_cuda(CUresult result, const char *call);
/* Finds a function of the driver that the library does not use. The driver stays loaded. */
void find_driver_function(const char *name, void *function);

#endif
