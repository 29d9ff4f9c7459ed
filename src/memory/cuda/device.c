/* SPDX-License-Identifier: BSD-2-Clause */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "memory/cuda/cuda.h"

/* Counted by the regions that live there; empty again when they are gone. */
static struct {
	pthread_mutex_t lock;
	struct pl_list all;
} places = { PTHREAD_MUTEX_INITIALIZER, { &places.all, &places.all } };

/* Returns -1 if there is one node, or the firmware does not tell. */
static int node_of(const char *pci)
{
	char path[64], text[16];
	char name[16];

	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = (char)tolower((unsigned char)pci[i]);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.15s/numa_node", name);
	return pl_read_head(path, text, sizeof(text)) ? atoi(text) : -1;
}

static void ask_device_attribute(struct cuda_place *place)
{
	const struct cuda_driver *driver = place->driver;

	if (driver->cuDeviceGetPCIBusId(place->name, sizeof(place->name), place->device) != CUDA_SUCCESS)
		snprintf(place->name, sizeof(place->name), "cuda:%d", place->ordinal);
	place->node = node_of(place->name);
	driver->cuDeviceGetAttribute(&place->writes_ordering, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
				     place->device);
	driver->cuDeviceGetAttribute(&place->flush_options, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
				     place->device);
}

static void destroy(struct cuda_place *place)
{
	if (place->stream && cuda_enter(place) == CUDA_SUCCESS) {
		place->driver->cuStreamDestroy(place->stream);
		cuda_leave(place);
	}
	if (place->primary)
		place->driver->cuDevicePrimaryCtxRelease(place->device);
	pthread_mutex_destroy(&place->atomic);
	free(place);
}

static int make_place(const struct cuda_driver *driver, CUcontext context, int ordinal, struct cuda_place **result,
		struct pl_error *error)
{
	struct cuda_place *place = calloc(1, sizeof(*place));
	CUresult rc;

	if (!place)
		return pl_fail_memory(error, "pl_region_register");
	place->driver = driver;
	place->context = context;
	place->ordinal = ordinal;
	place->references = 1;
	pthread_mutex_init(&place->atomic, NULL);
	rc = driver->cuDeviceGet(&place->device, ordinal);
	if (rc == CUDA_SUCCESS && !context) {
		rc = driver->cuDevicePrimaryCtxRetain(&place->context, place->device);
		place->primary = rc == CUDA_SUCCESS;
	}
	if (rc == CUDA_SUCCESS)
		rc = cuda_enter(place);
	if (rc == CUDA_SUCCESS) {
		rc = driver->cuStreamCreate(&place->stream, CU_STREAM_NON_BLOCKING);
		cuda_leave(place);
	}
	if (rc != CUDA_SUCCESS) {
		destroy(place);
		return cuda_fail(driver, rc, "cuStreamCreate", NULL, error);
	}
	ask_device_attribute(place);
	*result = place;
	return 0;
}

int cuda_place_get(const struct cuda_driver *driver, CUcontext context, int ordinal, struct cuda_place **result,
		   struct pl_error *error)
{
	int rc = 0;

	*result = NULL;
	pthread_mutex_lock(&places.lock);
	pl_list_for_each(at, &places.all) {
		struct cuda_place *place = pl_list_entry(at, struct cuda_place, link);

		if (context ? place->context != context : !place->primary || place->ordinal != ordinal)
			continue;
		place->references++;
		*result = place;
		break;
	}
	if (!*result) {
		rc = make_place(driver, context, ordinal, result, error);
		if (rc == 0)
			pl_list_append(&places.all, &(*result)->link);
	}
	pthread_mutex_unlock(&places.lock);
	return rc;
}

/* Puts a fitting place into *result, counted; one of the GPU with that name is preferred. */
static void find_used(const char *pci, struct cuda_place **result)
{
	struct cuda_place *found = NULL;

	pthread_mutex_lock(&places.lock);
	pl_list_for_each(at, &places.all) {
		struct cuda_place *place = pl_list_entry(at, struct cuda_place, link);

		if (!found || !strncmp(place->name, pci, sizeof(place->name)))
			found = place;
	}
	if (found)
		found->references++;
	pthread_mutex_unlock(&places.lock);
	*result = found;
}

struct cuda_place *cuda_place_used(const struct cuda_driver *driver, const char *pci)
{
	struct cuda_place *place = NULL;
	int count = 0, active;
	unsigned flags;
	CUdevice device;

	/* Uses the GPU's own primary context if the program uses it; none is created for this. */
	if (driver->cuDevicePrimaryCtxGetState && driver->cuDeviceGetCount(&count) != CUDA_SUCCESS)
		count = 0;
	for (int i = 0; i < count && !place; i++) {
		char name[sizeof(place->name)] = "";

		if (driver->cuDeviceGet(&device, i) == CUDA_SUCCESS &&
		    driver->cuDeviceGetPCIBusId(name, sizeof(name), device) == CUDA_SUCCESS &&
		    !strncmp(name, pci, sizeof(name)) &&
		    driver->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active)
			cuda_place_get(driver, NULL, i, &place, NULL);
	}
	if (!place)
		find_used(pci, &place);
	for (int i = 0; i < count && !place; i++)
		if (driver->cuDeviceGet(&device, i) == CUDA_SUCCESS &&
		    driver->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active)
			cuda_place_get(driver, NULL, i, &place, NULL);
	return place;
}

void cuda_place_put(struct cuda_place *place)
{
	bool last;

	pthread_mutex_lock(&places.lock);
	last = --place->references == 0;
	if (last)
		pl_list_remove(&place->link);
	pthread_mutex_unlock(&places.lock);
	if (last)
		destroy(place);
}

CUresult cuda_enter(const struct cuda_place *place)
{
	return place->driver->cuCtxPushCurrent(place->context);
}

void cuda_leave(const struct cuda_place *place)
{
	CUcontext popped;

	place->driver->cuCtxPopCurrent(&popped);
}
