/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of CUDA's driver API that docs/examples uses, for machines without CUDA. */
#ifndef TEST_CUDA_H
#define TEST_CUDA_H

typedef int CUresult;
typedef struct context *CUcontext;
typedef struct module *CUmodule, *CUfunction;
typedef struct stream *CUstream;

#define CU_STREAM_NON_BLOCKING 1u

CUresult cuInit(unsigned flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, int device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
			unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments, void **extra);

#endif
