/* SPDX-License-Identifier: BSD-2-Clause */
/* What libcuda says of each GPU.  Its few functions are declared here: no header of CUDA is needed to build. */
#include "check/probe.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

typedef int (*function_init)(unsigned flags);
typedef int (*function_get_int)(int *value);
typedef int (*function_device_get)(int *device, int ordinal);
typedef int (*function_attribute)(int *value, int attribute, int device);
typedef int (*function_text)(char *text, int length, int device);
typedef int (*function_memory)(size_t *bytes, int device);

/* Of cuda.h's CUdevice_attribute. */
static const int attributes[] = {
	75 /* compute capability, major */,
	76 /* minor */,
	110 /* VMM memory can be registered */,
	116 /* GPUDirect RDMA */,
	117 /* how to flush its writes */,
	118 /* which order they have */,
	124 /* dma-buf */,
};

static const struct {
	const char *symbol;
	size_t index;
} symbols[] = {
	{ "cuInit", 0 },
	{ "cuDriverGetVersion", 1 },
	{ "cuDeviceGetCount", 2 },
	{ "cuDeviceGet", 3 },
	{ "cuDeviceGetAttribute", 4 },
	{ "cuDeviceGetName", 5 },
	{ "cuDeviceGetPCIBusId", 6 },
	{ "cuDeviceTotalMem_v2", 7 },
};

struct cuda {
	void *functions[PL_ARRAY_SIZE(symbols)];
};

static bool load(struct cuda *cuda, FILE *to)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *reason = handle ? NULL : dlerror();

	if (!handle) {
		fprintf(to, "cuda.library %s\n", reason ? reason : "it cannot be loaded");
		return false;
	}
	for (size_t i = 0; i < PL_ARRAY_SIZE(symbols); i++) {
		cuda->functions[symbols[i].index] = dlsym(handle, symbols[i].symbol);
		if (!cuda->functions[symbols[i].index]) {
			fprintf(to, "cuda.library it has no %s\n", symbols[i].symbol);
			return false;
		}
	}
	fputs("cuda.library ok\n", to);
	return true;
}

/* The driver's version is in the name of the file: libcuda.so.580.159.04. */
static void tell_file(const struct cuda *cuda, FILE *to)
{
	char path[PATH_MAX];
	Dl_info info;

	if (dladdr(cuda->functions[0], &info) && info.dli_fname && realpath(info.dli_fname, path))
		fprintf(to, "cuda.file %s\n", path);
}

/* As sysfs writes it: lower case, four digits of domain. */
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

static void tell_device(const struct cuda *cuda, int ordinal, FILE *to)
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

void pl_probe_cuda(FILE *to)
{
	int version = 0, count = 0, rc;
	struct cuda cuda;

	if (!load(&cuda, to))
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
		tell_device(&cuda, i, to);
}
