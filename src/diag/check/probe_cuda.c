/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of libcuda for each GPU. The few functions are declared here, so the build needs no header of CUDA. */
#include "diag/check/probe.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*function_init)(unsigned flags);
typedef int (*function_get_int)(int *value);
typedef int (*function_device_get)(int *device, int ordinal);
typedef int (*function_attribute)(int *value, int attribute, int device);
typedef int (*function_text)(char *text, int length, int device);
typedef int (*function_memory)(size_t *bytes, int device);

#define ATTRIBUTE_DMABUF 124

/* Values of cuda.h's CUdevice_attribute. */
static const int attributes[] = {
	75 /* compute capability, major */,
	76 /* minor */,
	110 /* VMM memory can be registered */,
	116 /* GPUDirect RDMA */,
	117 /* flush options for its writes */,
	118 /* order of its writes */,
	ATTRIBUTE_DMABUF,
};

typedef int (*function_retain)(void **context, int device);
typedef int (*function_release)(int device);
typedef int (*function_push)(void *context);
typedef int (*function_allocate)(unsigned long long *address, size_t bytes);
typedef int (*function_free)(unsigned long long address);
typedef int (*function_export)(void *handle, unsigned long long address, size_t bytes, int type,
			       unsigned long long flags);

static const struct {
	const char *symbol;
	size_t index;
	bool optional;
} symbols[] = {
	{ "cuInit", 0, false },
	{ "cuDriverGetVersion", 1, false },
	{ "cuDeviceGetCount", 2, false },
	{ "cuDeviceGet", 3, false },
	{ "cuDeviceGetAttribute", 4, false },
	{ "cuDeviceGetName", 5, false },
	{ "cuDeviceGetPCIBusId", 6, false },
	{ "cuDeviceTotalMem_v2", 7, false },
	{ "cuDevicePrimaryCtxRetain", 8, true },
	{ "cuDevicePrimaryCtxRelease_v2", 9, true },
	{ "cuCtxPushCurrent_v2", 10, true },
	{ "cuMemAlloc_v2", 11, true },
	{ "cuMemFree_v2", 12, true },
	{ "cuMemGetHandleForAddressRange", 13, true },
};

/* Bytes exported for a proof: a large page, which fits any rounding. */
#define EXPORT_SIZE (2u << 20)
#define DMA_BUF_FD 1
/*
 * Creating a context takes some tenths of a second, so only one GPU is asked, and only if the driver answered quickly
 * so far.
 */
#define EXPORT_PATIENCE (300 * PL_NS_PER_MS)

struct cuda {
	void *functions[PL_ARRAY_SIZE(symbols)];
};

static bool load_cuda(struct cuda *cuda, FILE *to)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *reason = handle ? NULL : dlerror();

	if (!handle) {
		fprintf(to, "cuda.library %s\n", reason ? reason : "it cannot be loaded");
		return false;
	}
	for (size_t i = 0; i < PL_ARRAY_SIZE(symbols); i++) {
		cuda->functions[symbols[i].index] = dlsym(handle, symbols[i].symbol);
		if (!cuda->functions[symbols[i].index] && !symbols[i].optional) {
			fprintf(to, "cuda.library it has no %s\n", symbols[i].symbol);
			return false;
		}
	}
	fputs("cuda.library ok\n", to);
	return true;
}

/* The file name has the driver's version: libcuda.so.580.159.04. */
static void tell_file(const struct cuda *cuda, FILE *to)
{
	char path[PATH_MAX];
	Dl_info info;

	if (dladdr(cuda->functions[0], &info) && info.dli_fname && realpath(info.dli_fname, path))
		fprintf(to, "cuda.file %s\n", path);
}

/* Writes the address as sysfs does: lower case, four digits of domain. */
static bool bus_id(const struct cuda *cuda, int device, char *text, size_t size)
{
	unsigned domain, bus, slot, function;
	char buffer[32] = "";

	if (((function_text)cuda->functions[6])(buffer, sizeof(buffer), device) ||
	    sscanf(buffer, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		return false;
	snprintf(text, size, "%04x:%02x:%02x.%x", domain, bus, slot, function);
	return true;
}

static void tell_cuda_device(const struct cuda *cuda, int ordinal, FILE *to)
{
	char id[48], name[128] = "";
	size_t bytes = 0;
	int device, value;

	if (((function_device_get)cuda->functions[3])(&device, ordinal) || !bus_id(cuda, device, id, sizeof(id)))
		return;
	if (((function_text)cuda->functions[5])(name, sizeof(name), device) == 0)
		fprintf(to, "cuda.gpu.%s.name %s\n", id, name);
	if (((function_memory)cuda->functions[7])(&bytes, device) == 0)
		fprintf(to, "cuda.gpu.%s.memory %zu\n", id, bytes);
	for (size_t i = 0; i < PL_ARRAY_SIZE(attributes); i++)
		if (((function_attribute)cuda->functions[4])(&value, attributes[i], device) == 0)
			fprintf(to, "cuda.gpu.%s.attribute.%d %d\n", id, attributes[i], value);
}

/* Exports memory in the current context, and stores the driver's answer. */
static int try_export(const struct cuda *cuda, int *answer)
{
	unsigned long long address;
	int fd = -1, rc = ((function_allocate)cuda->functions[11])(&address, EXPORT_SIZE);

	if (rc)
		return rc;
	*answer = ((function_export)cuda->functions[13])(&fd, address, EXPORT_SIZE, DMA_BUF_FD, 0);
	if (*answer == 0)
		close(fd);
	return ((function_free)cuda->functions[12])(address);
}

/* Exports real memory of the first GPU that claims support. */
static void prove_export(const struct cuda *cuda, int count, FILE *to)
{
	int device, value, answer = -1;
	char id[48];
	void *context;

	for (size_t i = 0; i < PL_ARRAY_SIZE(symbols); i++)
		if (!cuda->functions[symbols[i].index])
			return;
	for (int i = 0; i < count; i++) {
		if (((function_device_get)cuda->functions[3])(&device, i) || !bus_id(cuda, device, id, sizeof(id)) ||
		    ((function_attribute)cuda->functions[4])(&value, ATTRIBUTE_DMABUF, device) || !value)
			continue;
		/* A GPU in exclusive use by another process gives no context; that proves nothing. */
		if (((function_retain)cuda->functions[8])(&context, device))
			return;
		if (((function_push)cuda->functions[10])(context) == 0)
			try_export(cuda, &answer);
		((function_release)cuda->functions[9])(device);
		if (answer >= 0)
			fprintf(to, "cuda.gpu.%s.export %d\n", id, answer);
		return;
	}
}

void pl_probe_cuda(FILE *to, const void *argument)
{
	uint64_t began = pl_now();
	int version = 0, count = 0, rc;
	struct cuda cuda;

	(void)argument;
	if (!load_cuda(&cuda, to))
		return;
	tell_file(&cuda, to);
	if (((function_get_int)cuda.functions[1])(&version) == 0)
		fprintf(to, "cuda.version %d\n", version);
	rc = ((function_init)cuda.functions[0])(0);
	fprintf(to, "cuda.init %d\n", rc);
	if (rc || ((function_get_int)cuda.functions[2])(&count))
		return;
	fprintf(to, "cuda.devices %d\n", count);
	for (int i = 0; i < count; i++)
		tell_cuda_device(&cuda, i, to);
	fflush(to);
	if (pl_now() - began < EXPORT_PATIENCE)
		prove_export(&cuda, count, to);
}
