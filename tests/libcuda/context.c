/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices, contexts, and failures on request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcuda/standin.h"

#define STACK_MAX 16

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
bool standin_initialized;

static struct context primary[DEVICES] = { { .device = 0, .primary = true }, { .device = 1, .primary = true } };
static __thread struct context *stack[STACK_MAX];
static __thread unsigned depth;

#define FAILURES 8
static struct {
	char call[40];
	unsigned skip, count;
	CUresult result;
} failures[FAILURES];

void standin_fail(const char *call, unsigned skip, unsigned count, CUresult result)
{
	pthread_mutex_lock(&standin_lock);
	for (unsigned i = 0; i < FAILURES; i++) {
		if (failures[i].call[0] && strcmp(failures[i].call, call))
			continue;
		snprintf(failures[i].call, sizeof(failures[i].call), "%s", call);
		failures[i].skip = skip;
		failures[i].count = count;
		failures[i].result = result;
		break;
	}
	pthread_mutex_unlock(&standin_lock);
}

static char stalled_call[40];
static unsigned stalled;
static bool passes; /* one stalled call goes on */
static pthread_cond_t stall_ended = PTHREAD_COND_INITIALIZER, passed = PTHREAD_COND_INITIALIZER;

void standin_stall(const char *call)
{
	pthread_mutex_lock(&standin_lock);
	snprintf(stalled_call, sizeof(stalled_call), "%s", call ? call : "");
	pthread_cond_broadcast(&stall_ended);
	pthread_mutex_unlock(&standin_lock);
}

unsigned standin_stalled(void)
{
	unsigned calls;

	pthread_mutex_lock(&standin_lock);
	calls = stalled;
	pthread_mutex_unlock(&standin_lock);
	return calls;
}

void standin_step(void)
{
	pthread_mutex_lock(&standin_lock);
	passes = stalled > 0;
	pthread_cond_broadcast(&stall_ended);
	while (passes)
		pthread_cond_wait(&passed, &standin_lock);
	pthread_mutex_unlock(&standin_lock);
}

/* Waits while calls of this name are stalled. */
static void stall_call(const char *call)
{
	pthread_mutex_lock(&standin_lock);
	while (!strcmp(stalled_call, call) && !passes) {
		stalled++;
		pthread_cond_wait(&stall_ended, &standin_lock);
		stalled--;
	}
	if (passes && !strcmp(stalled_call, call)) {
		passes = false;
		pthread_cond_broadcast(&passed);
	}
	pthread_mutex_unlock(&standin_lock);
}

CUresult standin_failure(const char *call)
{
	CUresult result = SUCCESS;

	stall_call(call);
	pthread_mutex_lock(&standin_lock);
	for (unsigned i = 0; i < FAILURES; i++) {
		if (strcmp(failures[i].call, call))
			continue;
		if (failures[i].skip) {
			failures[i].skip--;
		} else if (failures[i].count) {
			failures[i].count--;
			result = failures[i].result;
		}
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

struct context *standin_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

unsigned standin_depth(void)
{
	return depth;
}

API CUresult cuInit(unsigned flags)
{
	CUresult result = standin_failure("cuInit");

	if (flags || result)
		return flags ? INVALID_VALUE : result;
	if (!backing_devices())
		return NO_DEVICE;
	standin_initialized = true;
	return SUCCESS;
}

API CUresult cuDriverGetVersion(int *version)
{
	*version = 12040;
	return SUCCESS;
}

API CUresult cuGetErrorName(CUresult result, const char **name)
{
	static const struct {
		CUresult result;
		const char *name;
	} names[] = {
		{ SUCCESS, "CUDA_SUCCESS" },
		{ INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
		{ OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" },
		{ NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED" },
		{ NO_DEVICE, "CUDA_ERROR_NO_DEVICE" },
		{ INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE" },
		{ INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
		{ INVALID_PTX, "CUDA_ERROR_INVALID_PTX" },
		{ NOT_FOUND, "CUDA_ERROR_NOT_FOUND" },
		{ ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS" },
		{ NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].result == result) {
			*name = names[i].name;
			return SUCCESS;
		}
	}
	*name = NULL;
	return INVALID_VALUE;
}

API CUresult cuGetErrorString(CUresult result, const char **text)
{
	return cuGetErrorName(result, text);
}

API CUresult cuDeviceGetCount(int *count)
{
	*count = backing_devices();
	return standin_initialized ? SUCCESS : NOT_INITIALIZED;
}

API CUresult cuDeviceGet(int *device, int ordinal)
{
	if (!standin_initialized)
		return NOT_INITIALIZED;
	if (ordinal < 0 || ordinal >= backing_devices())
		return INVALID_DEVICE;
	*device = ordinal;
	return SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int size, int device)
{
	snprintf(name, (size_t)size, "stand-in %d", device);
	return SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	(void)device;
	*bytes = (size_t)64 << 20;
	return SUCCESS;
}

static int flush_options = 1, writes_ordering;

void standin_order(int ordering, int options)
{
	writes_ordering = ordering;
	flush_options = options;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, int device)
{
	const char *machine = getenv("STANDIN_GPU");

	(void)device;
	switch (attribute) {
	case 91: /* kernels use the host's addresses of registered memory */
		*value = !machine || strcmp(machine, "own-pointers") != 0;
		return SUCCESS;
	case 100: /* coherent link to the processor */
		*value = machine && !strcmp(machine, "grace");
		return SUCCESS;
	case 116: /* GPUDirect RDMA */
	case 124: /* dma-buf */
		*value = 1;
		return SUCCESS;
	case 122: /* streams wait for 64-bit words */
		*value = !machine || strcmp(machine, "no-wait") != 0;
		return SUCCESS;
	case 117: /* flush options: by the host, unless a test sets other options */
		*value = flush_options;
		return SUCCESS;
	case 118: /* ordering: none, so that clients must flush */
		*value = writes_ordering;
		return SUCCESS;
	default:
		return INVALID_VALUE;
	}
}

API CUresult cuDeviceGetPCIBusId(char *name, int size, int device)
{
	backing_name(device, name, (size_t)size);
	return SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(struct context **context, int device)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!standin_initialized)
		return NOT_INITIALIZED;
	if (device < 0 || device >= backing_devices())
		return INVALID_DEVICE;
	pthread_mutex_lock(&standin_lock);
	primary[device].references++;
	pthread_mutex_unlock(&standin_lock);
	*context = &primary[device];
	return SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(int device)
{
	CUresult result = SUCCESS;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_lock);
	if (primary[device].references)
		primary[device].references--;
	else
		result = INVALID_CONTEXT;
	pthread_mutex_unlock(&standin_lock);
	return result;
}

API CUresult cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
	if (device < 0 || device >= DEVICES)
		return INVALID_DEVICE;
	pthread_mutex_lock(&standin_lock);
	*flags = 0;
	*active = primary[device].references > 0;
	pthread_mutex_unlock(&standin_lock);
	return SUCCESS;
}

API CUresult cuCtxEnablePeerAccess(struct context *peer, unsigned flags)
{
	struct context *current = standin_current();
	CUresult result = standin_failure("cuCtxEnablePeerAccess");

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	if (!current || !peer)
		return INVALID_CONTEXT;
	result = INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	if (!flags && current->device != peer->device && peer->references) {
		result = current->reaches & 1u << peer->device ? PEER_ACCESS_ALREADY_ENABLED : SUCCESS;
		current->reaches |= 1u << peer->device;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

API CUresult cuCtxCreate_v2(struct context **context, unsigned flags, int device)
{
	struct context *made = calloc(1, sizeof(*made));

	(void)flags;
	if (!made)
		return OUT_OF_MEMORY;
	*made = (struct context){ .device = device, .references = 1 };
	*context = made;
	if (depth < STACK_MAX)
		stack[depth++] = made;
	return SUCCESS;
}

/* Destroyed contexts, for checkers of leaks. */
static struct context *destroyed;

/* Destroys a context.  Its memory stays allocated, so that a later use fails with an error and does not crash. */
API CUresult cuCtxDestroy_v2(struct context *context)
{
	pthread_mutex_lock(&standin_lock);
	context->references = 0;
	context->next = destroyed;
	destroyed = context;
	pthread_mutex_unlock(&standin_lock);
	/* The events of a context end with it. */
	standin_forget_events(context);
	if (depth && stack[depth - 1] == context)
		depth--;
	return SUCCESS;
}

API CUresult cuCtxPushCurrent_v2(struct context *context)
{
	CUresult result = standin_failure("cuCtxPushCurrent");
	bool good;

	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	good = context && context->references;
	pthread_mutex_unlock(&standin_lock);
	if (!good || depth == STACK_MAX)
		return INVALID_CONTEXT;
	stack[depth++] = context;
	return SUCCESS;
}

/* Replaces the context on top of the stack. */
API CUresult cuCtxSetCurrent(struct context *context)
{
	if (depth)
		depth--;
	return context ? cuCtxPushCurrent_v2(context) : SUCCESS;
}

API CUresult cuCtxPopCurrent_v2(struct context **context)
{
	if (!depth)
		return INVALID_CONTEXT;
	*context = stack[--depth];
	return SUCCESS;
}

API CUresult cuCtxGetDevice(int *device)
{
	const struct context *current = standin_current();

	if (!current)
		return INVALID_CONTEXT;
	*device = current->device;
	return SUCCESS;
}

API CUresult cuCtxGetCurrent(struct context **context)
{
	*context = standin_current();
	return SUCCESS;
}
