/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CUDA driver: own declarations of the functions in use, so that the build needs no toolkit, and a table that is filled
 * from libcuda.so.1 at run time (CUDA 11.4 to 13).
 */
#ifndef PL_CUDA_DRIVER_H
#define PL_CUDA_DRIVER_H

#include "base/base.h"

typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef uint64_t CUdeviceptr;
typedef uint64_t CUmemGenericAllocationHandle;
/* Passed by value; its content belongs to the driver. */
typedef struct {
	uint8_t bytes[64];
} CUipcMemHandle;
typedef struct {
	uint8_t bytes[64];
} CUmemPoolPtrExportData;
typedef struct {
	int type, id;
} CUmemLocation;
typedef struct {
	int type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	uint8_t allocFlags[8];
} CUmemAllocationProp;
typedef struct {
	CUmemLocation location;
	int flags;
} CUmemAccessDesc;

typedef struct {
	int srcAccessOrder;
	CUmemLocation srcLocHint, dstLocHint;
	unsigned flags;
} CUmemcpyAttributes;

typedef struct {
	size_t srcXInBytes, srcY;
	int srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	void *srcArray;
	size_t srcPitch;
	size_t dstXInBytes, dstY;
	int dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	void *dstArray;
	size_t dstPitch;
	size_t WidthInBytes, Height;
} CUmemcpy2D;

/* Values of the driver's binary interface, which never change. */
enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,

	CU_POINTER_ATTRIBUTE_CONTEXT = 1,
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
	CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
	CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
	CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
	CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
	CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
	CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE = 3,
	CU_MEMORYTYPE_HOST = 1,
	CU_MEMORYTYPE_DEVICE = 2,

	CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116,
	CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS = 117,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING = 118,
	CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
	CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
	CU_FLUSH_WRITES_OPTION_HOST = 1,
	CU_WRITES_ORDERING_OWNER = 100,

	CU_STREAM_NON_BLOCKING = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
	CU_STREAM_WAIT_VALUE_GEQ = 0,
	CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
	CU_EVENT_DISABLE_TIMING = 2,
	CU_MEMHOSTREGISTER_PORTABLE = 1,
	CU_MEMHOSTREGISTER_READ_ONLY = 8,
	CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
	CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
	CU_MEM_LOCATION_TYPE_DEVICE = 1,
	CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
	CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
	CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE = 1,
	CU_FLUSH_TARGET_CURRENT_DEVICE = 0,
	CU_FLUSH_TO_OWNER = 100,
};

/* Name in the table, name in the library (of the version that these types belong to), arguments. */
#define CUDA_FUNCTIONS(NEEDED, OPTIONAL) \
	NEEDED(cuInit, "cuInit", (unsigned)) \
	NEEDED(cuDriverGetVersion, "cuDriverGetVersion", (int *)) \
	NEEDED(cuGetErrorName, "cuGetErrorName", (CUresult, const char **)) \
	NEEDED(cuGetErrorString, "cuGetErrorString", (CUresult, const char **)) \
	NEEDED(cuDeviceGetCount, "cuDeviceGetCount", (int *)) \
	NEEDED(cuDeviceGet, "cuDeviceGet", (CUdevice *, int)) \
	NEEDED(cuDeviceGetName, "cuDeviceGetName", (char *, int, CUdevice)) \
	NEEDED(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice)) \
	NEEDED(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char *, int, CUdevice)) \
	NEEDED(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice)) \
	NEEDED(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice)) \
	NEEDED(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext)) \
	NEEDED(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext *)) \
	NEEDED(cuPointerGetAttribute, "cuPointerGetAttribute", (void *, int, CUdeviceptr)) \
	NEEDED(cuPointerGetAttributes, "cuPointerGetAttributes", (unsigned, int *, void **, CUdeviceptr)) \
	NEEDED(cuPointerSetAttribute, "cuPointerSetAttribute", (const void *, int, CUdeviceptr)) \
	NEEDED(cuMemGetAddressRange, "cuMemGetAddressRange_v2", (CUdeviceptr *, size_t *, CUdeviceptr)) \
	NEEDED(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t)) \
	NEEDED(cuMemFree, "cuMemFree_v2", (CUdeviceptr)) \
	NEEDED(cuMemHostRegister, "cuMemHostRegister_v2", (void *, size_t, unsigned)) \
	NEEDED(cuMemHostUnregister, "cuMemHostUnregister", (void *)) \
	NEEDED(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream)) \
	NEEDED(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream)) \
	NEEDED(cuMemcpy2DAsync, "cuMemcpy2DAsync_v2", (const CUmemcpy2D *, CUstream)) \
	NEEDED(cuMemsetD8Async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream)) \
	NEEDED(cuStreamCreate, "cuStreamCreate", (CUstream *, unsigned)) \
	NEEDED(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream)) \
	NEEDED(cuStreamSynchronize, "cuStreamSynchronize", (CUstream)) \
	NEEDED(cuEventCreate, "cuEventCreate", (CUevent *, unsigned)) \
	NEEDED(cuEventDestroy, "cuEventDestroy_v2", (CUevent)) \
	NEEDED(cuEventRecord, "cuEventRecord", (CUevent, CUstream)) \
	NEEDED(cuEventQuery, "cuEventQuery", (CUevent)) \
	NEEDED(cuEventSynchronize, "cuEventSynchronize", (CUevent)) \
	NEEDED(cuEventElapsedTime, "cuEventElapsedTime", (float *, CUevent, CUevent)) \
	NEEDED(cuModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *)) \
	NEEDED(cuModuleUnload, "cuModuleUnload", (CUmodule)) \
	NEEDED(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *)) \
	NEEDED(cuLaunchKernel, "cuLaunchKernel", \
	       (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, \
		void **)) \
	OPTIONAL(cuCtxGetDevice, "cuCtxGetDevice", (CUdevice *)) \
	OPTIONAL(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *)) \
	OPTIONAL(cuStreamQuery, "cuStreamQuery", (CUstream)) \
	OPTIONAL(cuStreamGetCtx, "cuStreamGetCtx", (CUstream, CUcontext *)) \
	OPTIONAL(cuStreamIsCapturing, "cuStreamIsCapturing", (CUstream, int *)) \
	OPTIONAL(cuStreamWaitValue64, "cuStreamWaitValue64_v2", (CUstream, CUdeviceptr, uint64_t, unsigned)) \
	OPTIONAL(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr *, void *, unsigned)) \
	OPTIONAL(cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange", \
		 (void *, CUdeviceptr, size_t, int, unsigned long long)) \
	OPTIONAL(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
	OPTIONAL(cuMemcpyBatchAsync, "cuMemcpyBatchAsync_v2", \
		 (CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, CUstream)) \
	OPTIONAL(cuMemcpyPeerAsync, "cuMemcpyPeerAsync", \
		 (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)) \
	OPTIONAL(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", (CUcontext, unsigned)) \
	OPTIONAL(cuCtxCreate, "cuCtxCreate_v2", (CUcontext *, unsigned, CUdevice)) \
	OPTIONAL(cuCtxDestroy, "cuCtxDestroy_v2", (CUcontext)) \
	OPTIONAL(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", (CUdevice, unsigned *, int *)) \
	OPTIONAL(cuIpcGetMemHandle, "cuIpcGetMemHandle", (CUipcMemHandle *, CUdeviceptr)) \
	OPTIONAL(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (CUdeviceptr *, CUipcMemHandle, unsigned)) \
	OPTIONAL(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (CUdeviceptr)) \
	OPTIONAL(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", (CUmemGenericAllocationHandle *, void *)) \
	OPTIONAL(cuMemGetAllocationPropertiesFromHandle, "cuMemGetAllocationPropertiesFromHandle", \
		 (CUmemAllocationProp *, CUmemGenericAllocationHandle)) \
	OPTIONAL(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", \
		 (void *, CUmemGenericAllocationHandle, int, unsigned long long)) \
	OPTIONAL(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", \
		 (CUmemGenericAllocationHandle *, void *, int)) \
	OPTIONAL(cuMemRelease, "cuMemRelease", (CUmemGenericAllocationHandle)) \
	OPTIONAL(cuMemAddressReserve, "cuMemAddressReserve", \
		 (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
	OPTIONAL(cuMemAddressFree, "cuMemAddressFree", (CUdeviceptr, size_t)) \
	OPTIONAL(cuMemMap, "cuMemMap", \
		 (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)) \
	OPTIONAL(cuMemUnmap, "cuMemUnmap", (CUdeviceptr, size_t)) \
	OPTIONAL(cuMemSetAccess, "cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)) \
	OPTIONAL(cuMemPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle", \
		 (void *, CUmemoryPool, int, unsigned long long)) \
	OPTIONAL(cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", \
		 (CUmemoryPool *, void *, int, unsigned long long)) \
	OPTIONAL(cuMemPoolExportPointer, "cuMemPoolExportPointer", (CUmemPoolPtrExportData *, CUdeviceptr)) \
	OPTIONAL(cuMemPoolImportPointer, "cuMemPoolImportPointer", \
		 (CUdeviceptr *, CUmemoryPool, CUmemPoolPtrExportData *)) \
	OPTIONAL(cuMemPoolSetAccess, "cuMemPoolSetAccess", (CUmemoryPool, const CUmemAccessDesc *, size_t)) \
	OPTIONAL(cuMemPoolDestroy, "cuMemPoolDestroy", (CUmemoryPool)) \
	OPTIONAL(cuFlushGPUDirectRDMAWrites, "cuFlushGPUDirectRDMAWrites", (int, int))

struct cuda_driver {
#define CUDA_MEMBER(member, name, arguments) CUresult(*member) arguments;
	CUDA_FUNCTIONS(CUDA_MEMBER, CUDA_MEMBER)
#undef CUDA_MEMBER
};

/* Fills the table from a library. Fails with public errors. */
int cuda_driver_open(const char *file, int flags, struct cuda_driver *driver, struct pl_error *error);
/*
 * Returns the process's driver. NULL if the process has not loaded libcuda: then no pointer is CUDA's, and nothing is
 * loaded to find that out.
 */
const struct cuda_driver *cuda_driver_loaded(void);
/* The same, loaded and initialised for users of a GPU; NULL with the reason. */
const struct cuda_driver *cuda_driver_get(struct pl_error *error);

/* Converts a driver's result to a negative errno, and to an error of this library. */
int cuda_errno(CUresult result);
int cuda_fail(const struct cuda_driver *driver, CUresult result, const char *call, const char *object,
	      struct pl_error *error);

#endif
