/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables that NCCL looks up by name, newest version first. */
#include <string.h>

#include "core.h"
#include "peerlane/peerlane.h"

/* Key of NCCL_NET. */
#define NAME "Peerlane"

#define CONNECTIONS_MAX 65536
#define SEND_BYTES_MAX ((size_t)1 << 30)

extern const struct net_v8 ncclNetPlugin_v8;
extern const struct net_v9 ncclNetPlugin_v9;
extern const struct net_v10 ncclNetPlugin_v10;
extern const struct net_v11 ncclNetPlugin_v11;
extern const struct net_v12 ncclNetPlugin_v12;

/* -- functions of all versions ------------------------------------------------------------------- */

static enum net_result net_devices(int *count)
{
	return plugin_device_count(count);
}

static enum net_result net_accept(void *listener, void **comm, struct net_device_handle **offload)
{
	(void)offload;
	return plugin_accept(listener, comm);
}

static enum net_result net_register(void *comm, void *data, size_t size, int type, void **memory)
{
	return plugin_memory_register(comm, data, size, type, NULL, memory);
}

/* NCCL closes the descriptor afterwards. */
static enum net_result net_register_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
					   void **memory)
{
	const struct pl_dmabuf dmabuf = { .fd = fd, .offset = offset, .length = size, .address = data };

	return plugin_memory_register(comm, data, size, type, &dmabuf, memory);
}

static enum net_result net_deregister(void *comm, void *memory)
{
	return plugin_memory_deregister(comm, memory);
}

/*
 * There is nothing to wait for. A receive ends with a notification, and the sender's end flushes GPU memory before that
 * if the GPU needs it.
 */
static enum net_result net_flush(void *comm, int n, void **data, int *sizes, void **memory, void **request)
{
	(void)comm;
	(void)n;
	(void)data;
	(void)sizes;
	(void)memory;
	*request = NULL;
	return NET_SUCCESS;
}

static enum net_result net_test(void *request, int *done, int *sizes)
{
	return plugin_test(request, done, sizes);
}

static enum net_result net_close(void *comm)
{
	return plugin_comm_close(comm);
}

static enum net_result net_close_listen(void *listener)
{
	return plugin_listener_close(listener);
}

static enum net_result send_bytes(void *comm, void *data, size_t size, void *memory, void **request)
{
	return plugin_send(comm, data, size, memory, request);
}

static enum net_result receive_bytes(void *comm, int n, void **data, size_t size, void **memory, void **request)
{
	*request = NULL;
	/* The properties allow no groups. */
	if (n != 1)
		return NET_INVALID_ARGUMENT;
	return plugin_receive(comm, data[0], size, memory[0], request);
}

/* Members that all structures of properties have. */
#define FILL_PROPERTIES(to, from) \
	do { \
		(to)->name = (from).name; \
		(to)->pci_path = (from).pci_path; \
		(to)->guid = (from).guid; \
		(to)->pointers = (from).pointers; \
		(to)->registration_is_global = 0; \
		(to)->speed = (from).speed; \
		(to)->port = (from).port; \
		(to)->latency = 0; \
		(to)->connections_max = CONNECTIONS_MAX; \
		(to)->receives_max = 1; \
		(to)->device_type = 0; \
		(to)->device_version = 0; \
	} while (0)

/* Members of versions 9 and later. NCCL copies `count` entries of the virtual device without a bound. */
#define FILL_LIMITS(to, device) \
	do { \
		(to)->force_flush = 0; \
		memset(&(to)->virtual_device, 0, sizeof((to)->virtual_device)); \
		(to)->virtual_device.count = 1; \
		(to)->virtual_device.devices[0] = (device); \
		(to)->send_bytes_max = SEND_BYTES_MAX; \
		(to)->collective_bytes_max = SEND_BYTES_MAX; \
	} while (0)

/* -- versions 8 and 9 ----------------------------------------------------------------------------- */

static enum net_result net_v8_init(net_log_function log)
{
	return plugin_open(log, NULL);
}

static enum net_result net_v8_properties(int device, struct net_v8_properties *properties)
{
	struct plugin_properties found;
	enum net_result result = plugin_device_properties(device, &found);

	if (result == NET_SUCCESS)
		FILL_PROPERTIES(properties, found);
	return result;
}

static enum net_result net_v8_listen(int device, void *handle, void **listener)
{
	return plugin_listen(NULL, device, handle, listener);
}

static enum net_result net_v8_connect(int device, void *handle, void **comm, struct net_device_handle **offload)
{
	(void)offload;
	return plugin_connect(NULL, device, handle, comm);
}

static enum net_result net_v8_send(void *comm, void *data, int size, int tag, void *memory, void **request)
{
	(void)tag; /* tags tell apart the buffers of a group */
	*request = NULL;
	if (size < 0)
		return NET_INVALID_ARGUMENT;
	return send_bytes(comm, data, (size_t)size, memory, request);
}

static enum net_result net_v8_receive(void *comm, int n, void **data, int *sizes, int *tags, void **memory,
				      void **request)
{
	(void)tags;
	*request = NULL;
	if (n != 1 || sizes[0] < 0)
		return NET_INVALID_ARGUMENT;
	return receive_bytes(comm, n, data, (size_t)sizes[0], memory, request);
}

const struct net_v8 ncclNetPlugin_v8 = {
	.name = NAME,
	.init = net_v8_init,
	.devices = net_devices,
	.getProperties = net_v8_properties,
	.listen = net_v8_listen,
	.connect = net_v8_connect,
	.accept = net_accept,
	.regMr = net_register,
	.regMrDmaBuf = net_register_dmabuf,
	.deregMr = net_deregister,
	.isend = net_v8_send,
	.irecv = net_v8_receive,
	.iflush = net_flush,
	.test = net_test,
	.closeSend = net_close,
	.closeRecv = net_close,
	.closeListen = net_close_listen,
};

static enum net_result net_v9_properties(int device, struct net_v9_properties *properties)
{
	struct plugin_properties found;
	enum net_result result = plugin_device_properties(device, &found);

	if (result == NET_SUCCESS) {
		FILL_PROPERTIES(properties, found);
		FILL_LIMITS(properties, device);
	}
	return result;
}

static enum net_result net_v9_send(void *comm, void *data, size_t size, int tag, void *memory, void **request)
{
	(void)tag;
	return send_bytes(comm, data, size, memory, request);
}

static enum net_result net_v9_receive(void *comm, int n, void **data, size_t *sizes, int *tags, void **memory,
				      void **request)
{
	(void)tags;
	return receive_bytes(comm, n, data, sizes[0], memory, request);
}

const struct net_v9 ncclNetPlugin_v9 = {
	.name = NAME,
	.init = net_v8_init,
	.devices = net_devices,
	.getProperties = net_v9_properties,
	.listen = net_v8_listen,
	.connect = net_v8_connect,
	.accept = net_accept,
	.regMr = net_register,
	.regMrDmaBuf = net_register_dmabuf,
	.deregMr = net_deregister,
	.isend = net_v9_send,
	.irecv = net_v9_receive,
	.iflush = net_flush,
	.test = net_test,
	.closeSend = net_close,
	.closeRecv = net_close,
	.closeListen = net_close_listen,
};

/* -- version 10 ----------------------------------------------------------------------------------- */

static enum net_result net_v10_init(net_log_function log, void *profiler)
{
	(void)profiler;
	return net_v8_init(log);
}

static enum net_result net_v10_connect(int device, struct net_config *config, void *handle, void **comm,
				       struct net_device_handle **offload)
{
	(void)config;
	return net_v8_connect(device, handle, comm, offload);
}

static enum net_result net_v10_send(void *comm, void *data, size_t size, int tag, void *memory, void *profile,
				    void **request)
{
	(void)tag;
	(void)profile;
	return send_bytes(comm, data, size, memory, request);
}

static enum net_result net_v10_receive(void *comm, int n, void **data, size_t *sizes, int *tags, void **memory,
				       void **profiles, void **request)
{
	(void)tags;
	(void)profiles;
	return receive_bytes(comm, n, data, sizes[0], memory, request);
}

const struct net_v10 ncclNetPlugin_v10 = {
	.name = NAME,
	.init = net_v10_init,
	.devices = net_devices,
	.getProperties = net_v9_properties,
	.listen = net_v8_listen,
	.connect = net_v10_connect,
	.accept = net_accept,
	.regMr = net_register,
	.regMrDmaBuf = net_register_dmabuf,
	.deregMr = net_deregister,
	.isend = net_v10_send,
	.irecv = net_v10_receive,
	.iflush = net_flush,
	.test = net_test,
	.closeSend = net_close,
	.closeRecv = net_close,
	.closeListen = net_close_listen,
};

/* -- versions 11 and 12: a context for each communicator ------------------------------------------- */

static enum net_result net_v11_init(void **context, uint64_t communicator, struct net_config *config,
				    net_log_function log, void *profiler)
{
	(void)communicator;
	(void)config;
	(void)profiler;
	*context = NULL;
	return plugin_open(log, context);
}

static enum net_result net_v11_finalize(void *context)
{
	return plugin_close(context);
}

static enum net_result net_v11_properties(int device, struct net_v11_properties *properties)
{
	struct plugin_properties found;
	enum net_result result = plugin_device_properties(device, &found);

	if (result == NET_SUCCESS) {
		FILL_PROPERTIES(properties, found);
		FILL_LIMITS(properties, device);
		properties->multi_request_max = 1;
	}
	return result;
}

static enum net_result net_v11_listen(void *context, int device, void *handle, void **listener)
{
	return plugin_listen(context, device, handle, listener);
}

static enum net_result net_v11_connect(void *context, int device, void *handle, void **comm,
				       struct net_device_handle **offload)
{
	(void)offload;
	return plugin_connect(context, device, handle, comm);
}

const struct net_v11 ncclNetPlugin_v11 = {
	.name = NAME,
	.init = net_v11_init,
	.devices = net_devices,
	.getProperties = net_v11_properties,
	.listen = net_v11_listen,
	.connect = net_v11_connect,
	.accept = net_accept,
	.regMr = net_register,
	.regMrDmaBuf = net_register_dmabuf,
	.deregMr = net_deregister,
	.isend = net_v10_send,
	.irecv = net_v10_receive,
	.iflush = net_flush,
	.test = net_test,
	.closeSend = net_close,
	.closeRecv = net_close,
	.closeListen = net_close_listen,
	.finalize = net_v11_finalize,
};

static enum net_result net_v12_properties(int device, struct net_v12_properties *properties)
{
	struct plugin_properties found;
	enum net_result result = plugin_device_properties(device, &found);

	if (result == NET_SUCCESS) {
		FILL_PROPERTIES(properties, found);
		FILL_LIMITS(properties, device);
		properties->multi_request_max = 1;
		properties->rail = -1;
		properties->plane = -1;
	}
	return result;
}

const struct net_v12 ncclNetPlugin_v12 = {
	.name = NAME,
	.init = net_v11_init,
	.devices = net_devices,
	.getProperties = net_v12_properties,
	.listen = net_v11_listen,
	.connect = net_v11_connect,
	.accept = net_accept,
	.regMr = net_register,
	.regMrDmaBuf = net_register_dmabuf,
	.deregMr = net_deregister,
	.isend = net_v10_send,
	.irecv = net_v10_receive,
	.iflush = net_flush,
	.test = net_test,
	.closeSend = net_close,
	.closeRecv = net_close,
	.closeListen = net_close_listen,
	.finalize = net_v11_finalize,
};
