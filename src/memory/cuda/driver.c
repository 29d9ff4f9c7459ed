/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#define LIBCUDA "libcuda.so.1"
#define HINT_INSTALL "install NVIDIA's driver; its libcuda.so.1 must be found by ld.so(8)"
#define HINT_UPDATE "update NVIDIA's driver to one for CUDA 11.4 or later"
/* Version of the interface whose types are declared here. */
#define CUDA_VERSION_MEANT 11040

struct symbol {
	const char *member, *name;
	size_t offset;
	bool optional;
};

#define NEEDED(member, name, arguments) { #member, name, offsetof(struct cuda_driver, member), false },
#define OPTIONAL(member, name, arguments) { #member, name, offsetof(struct cuda_driver, member), true },
static const struct symbol symbols[] = { CUDA_FUNCTIONS(NEEDED, OPTIONAL) };
#undef NEEDED
#undef OPTIONAL

/* Finds the versioned name, or asks the driver for that version if the library no longer exports it. */
static void *find_cuda_function(void *handle, const struct symbol *symbol)
{
	void *function = dlsym(handle, symbol->name);
	CUresult (*get)(const char *, void **, int, uint64_t, void *);
	CUresult (*get_old)(const char *, void **, int, uint64_t);
	void *found;

	if (function)
		return function;
	found = dlsym(handle, "cuGetProcAddress_v2");
	memcpy(&get, &found, sizeof(get));
	if (get)
		return get(symbol->member, &function, CUDA_VERSION_MEANT, 0, NULL) == CUDA_SUCCESS ? function : NULL;
	found = dlsym(handle, "cuGetProcAddress");
	memcpy(&get_old, &found, sizeof(get_old));
	if (get_old && get_old(symbol->member, &function, CUDA_VERSION_MEANT, 0) == CUDA_SUCCESS)
		return function;
	return NULL;
}

int cuda_driver_open(const char *file, int flags, struct cuda_driver *driver, struct pl_error *error)
{
	void *handle = dlopen(file, flags);
	const char *reason;

	memset(driver, 0, sizeof(*driver));
	if (!handle) {
		reason = dlerror();
		return pl_fail(error, -ENODEV, "GPU-NO-DRIVER", "dlopen", file, HINT_INSTALL, "%s",
			       reason ? reason : "it is not loaded");
	}
	for (size_t i = 0; i < PL_ARRAY_SIZE(symbols); i++) {
		void *function = find_cuda_function(handle, &symbols[i]);

		if (!function && !symbols[i].optional) {
			dlclose(handle);
			return pl_fail(error, -ELIBBAD, "GPU-DRIVER-OLD", "dlsym", file, HINT_UPDATE,
				       "the driver has no %s", symbols[i].name);
		}
		memcpy((char *)driver + symbols[i].offset, &function, sizeof(function));
	}
	return 0;
}

/* Filled once, when the process has the library, which then stays loaded. */
static struct {
	pthread_mutex_t lock;
	struct cuda_driver driver;
	_Atomic(const struct cuda_driver *) ready;
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const struct cuda_driver *load(int flags, struct pl_error *error)
{
	const struct cuda_driver *ready = atomic_load_explicit(&process.ready, memory_order_acquire);

	if (ready)
		return ready;
	pthread_mutex_lock(&process.lock);
	if (!atomic_load(&process.ready) && cuda_driver_open(LIBCUDA, flags, &process.driver, error) == 0)
		atomic_store(&process.ready, &process.driver);
	pthread_mutex_unlock(&process.lock);
	return atomic_load(&process.ready);
}

const struct cuda_driver *cuda_driver_loaded(void)
{
	return load(RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD, NULL);
}

const struct cuda_driver *cuda_driver_get(struct pl_error *error)
{
	const struct cuda_driver *driver = load(RTLD_NOW | RTLD_LOCAL, error);
	CUresult result = driver ? driver->cuInit(0) : CUDA_SUCCESS;

	if (driver && result != CUDA_SUCCESS) {
		cuda_fail(driver, result, "cuInit", NULL, error);
		return NULL;
	}
	return driver;
}

int cuda_errno(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
		return -ENODEV;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -ENOTSUP;
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_DEINITIALIZED:
		return -ESHUTDOWN;
	default:
		return -EFAULT;
	}
}

int cuda_fail(const struct cuda_driver *driver, CUresult result, const char *call, const char *object,
	      struct pl_error *error)
{
	int code = cuda_errno(result);
	const char *name = NULL, *text = NULL;
	const char *hint = NULL;

	driver->cuGetErrorName(result, &name);
	driver->cuGetErrorString(result, &text);
	if (code == -ENODEV)
		hint = "check nvidia-smi and CUDA_VISIBLE_DEVICES";
	else if (code == -ENOMEM)
		hint = "free memory of the GPU, or ask for less";
	return pl_fail(error, code, code == -ENODEV ? "GPU-NONE" : "GPU-FAILED", call, object, hint, "%s: %s",
		       name ? name : "unknown", text ? text : "the driver does not say more");
}
