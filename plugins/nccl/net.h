/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NCCL's interface of network plugins, versions 8 to 12, declared for this project. The order and the types of the
 * members are the interface; the assertions at the end hold on 64-bit machines.
 */
#ifndef PLUGIN_NET_H
#define PLUGIN_NET_H

#include <stddef.h>
#include <stdint.h>

enum net_result {
	NET_SUCCESS = 0,
	NET_UNHANDLED_CUDA_ERROR = 1,
	NET_SYSTEM_ERROR = 2,
	NET_INTERNAL_ERROR = 3,
	NET_INVALID_ARGUMENT = 4,
	NET_INVALID_USAGE = 5,
	NET_REMOTE_ERROR = 6,
};

enum net_log_level { NET_LOG_WARN = 2, NET_LOG_INFO = 3 };

/* Flags of a log line: the subsystems of NCCL_DEBUG_SUBSYS. */
#define NET_LOG_INIT 0x01ul
#define NET_LOG_NET 0x10ul

/* Kinds of memory. */
#define NET_POINTER_HOST 1
#define NET_POINTER_CUDA 2
#define NET_POINTER_DMABUF 4

#define NET_HANDLE_SIZE 128
#define NET_REQUESTS_MAX 32

typedef void (*net_log_function)(enum net_log_level level, unsigned long flags, const char *file, int line,
				 const char *format, ...);

/* Functions of a device that NCCL's kernels call themselves; no such device exists here. */
struct net_device_handle;
struct net_v11_attributes;

struct net_config {
	int traffic_class; /* -1: undefined */
};

struct net_virtual_device {
	int count;
	int devices[4];
};

struct net_v12_virtual_device {
	int count;
	int devices[8];
};

struct net_v8_properties {
	char *name;
	char *pci_path; /* NULL: none */
	uint64_t guid;
	int pointers; /* NET_POINTER_... */
	int registration_is_global;
	int speed; /* Mbit/s */
	int port;
	float latency; /* us; 0: NCCL's default */
	int connections_max;
	int receives_max; /* of a group */
	int device_type;  /* 0: host */
	int device_version;
};

/* Properties of versions 9 and 10. */
struct net_v9_properties {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int registration_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int connections_max;
	int receives_max;
	int device_type;
	int device_version;
	struct net_virtual_device virtual_device;
	size_t send_bytes_max;
	size_t collective_bytes_max;
};

struct net_v11_properties {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int registration_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int connections_max;
	int receives_max;
	int device_type;
	int device_version;
	struct net_virtual_device virtual_device;
	size_t send_bytes_max;
	size_t collective_bytes_max;
	int multi_request_max;
};

struct net_v12_properties {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int registration_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int connections_max;
	int receives_max;
	int device_type;
	int device_version;
	struct net_v12_virtual_device virtual_device;
	size_t send_bytes_max;
	size_t collective_bytes_max;
	int multi_request_max;
	int16_t rail; /* -1: undefined */
	int16_t plane;
};

/* Functions whose types are the same in all versions, with NCCL's names. */
#define NET_FUNCTIONS_REGISTER \
	enum net_result (*regMr)(void *comm, void *data, size_t size, int type, void **memory); \
	enum net_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, \
				       void **memory); \
	enum net_result (*deregMr)(void *comm, void *memory)
#define NET_FUNCTIONS_END \
	enum net_result (*iflush)(void *comm, int n, void **data, int *sizes, void **memory, void **request); \
	enum net_result (*test)(void *request, int *done, int *sizes); \
	enum net_result (*closeSend)(void *comm); \
	enum net_result (*closeRecv)(void *comm); \
	enum net_result (*closeListen)(void *listener); \
	enum net_result (*getDeviceMr)(void *comm, void *memory, void **device_memory); \
	enum net_result (*irecvConsumed)(void *comm, int n, void *request)
#define NET_FUNCTION_ACCEPT enum net_result (*accept)(void *listener, void **comm, struct net_device_handle **device)

struct net_v8 {
	const char *name;
	enum net_result (*init)(net_log_function log);
	enum net_result (*devices)(int *count);
	enum net_result (*getProperties)(int device, struct net_v8_properties *properties);
	enum net_result (*listen)(int device, void *handle, void **listener);
	enum net_result (*connect)(int device, void *handle, void **comm, struct net_device_handle **offload);
	NET_FUNCTION_ACCEPT;
	NET_FUNCTIONS_REGISTER;
	enum net_result (*isend)(void *comm, void *data, int size, int tag, void *memory, void **request);
	enum net_result (*irecv)(void *comm, int n, void **data, int *sizes, int *tags, void **memory, void **request);
	NET_FUNCTIONS_END;
};

struct net_v9 {
	const char *name;
	enum net_result (*init)(net_log_function log);
	enum net_result (*devices)(int *count);
	enum net_result (*getProperties)(int device, struct net_v9_properties *properties);
	enum net_result (*listen)(int device, void *handle, void **listener);
	enum net_result (*connect)(int device, void *handle, void **comm, struct net_device_handle **offload);
	NET_FUNCTION_ACCEPT;
	NET_FUNCTIONS_REGISTER;
	enum net_result (*isend)(void *comm, void *data, size_t size, int tag, void *memory, void **request);
	enum net_result (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **memory,
				 void **request);
	NET_FUNCTIONS_END;
	enum net_result (*makeVDevice)(int *device, struct net_virtual_device *properties);
};

struct net_v10 {
	const char *name;
	enum net_result (*init)(net_log_function log, void *profiler);
	enum net_result (*devices)(int *count);
	enum net_result (*getProperties)(int device, struct net_v9_properties *properties);
	enum net_result (*listen)(int device, void *handle, void **listener);
	enum net_result (*connect)(int device, struct net_config *config, void *handle, void **comm,
				   struct net_device_handle **offload);
	NET_FUNCTION_ACCEPT;
	NET_FUNCTIONS_REGISTER;
	enum net_result (*isend)(void *comm, void *data, size_t size, int tag, void *memory, void *profile,
				 void **request);
	enum net_result (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **memory,
				 void **profiles, void **request);
	NET_FUNCTIONS_END;
	enum net_result (*makeVDevice)(int *device, struct net_virtual_device *properties);
};

struct net_v11 {
	const char *name;
	enum net_result (*init)(void **context, uint64_t communicator, struct net_config *config, net_log_function log,
				void *profiler);
	enum net_result (*devices)(int *count);
	enum net_result (*getProperties)(int device, struct net_v11_properties *properties);
	enum net_result (*listen)(void *context, int device, void *handle, void **listener);
	enum net_result (*connect)(void *context, int device, void *handle, void **comm,
				   struct net_device_handle **offload);
	NET_FUNCTION_ACCEPT;
	NET_FUNCTIONS_REGISTER;
	enum net_result (*isend)(void *comm, void *data, size_t size, int tag, void *memory, void *profile,
				 void **request);
	enum net_result (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **memory,
				 void **profiles, void **request);
	NET_FUNCTIONS_END;
	enum net_result (*makeVDevice)(int *device, struct net_virtual_device *properties);
	enum net_result (*finalize)(void *context);
	enum net_result (*setNetAttr)(void *context, struct net_v11_attributes *attributes);
};

/* Version 12 differs from 11 in the types that two functions point to. */
struct net_v12 {
	const char *name;
	enum net_result (*init)(void **context, uint64_t communicator, struct net_config *config, net_log_function log,
				void *profiler);
	enum net_result (*devices)(int *count);
	enum net_result (*getProperties)(int device, struct net_v12_properties *properties);
	enum net_result (*listen)(void *context, int device, void *handle, void **listener);
	enum net_result (*connect)(void *context, int device, void *handle, void **comm,
				   struct net_device_handle **offload);
	NET_FUNCTION_ACCEPT;
	NET_FUNCTIONS_REGISTER;
	enum net_result (*isend)(void *comm, void *data, size_t size, int tag, void *memory, void *profile,
				 void **request);
	enum net_result (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **memory,
				 void **profiles, void **request);
	NET_FUNCTIONS_END;
	enum net_result (*makeVDevice)(int *device, struct net_v12_virtual_device *properties);
	enum net_result (*finalize)(void *context);
	enum net_result (*setNetAttr)(void *context, struct net_v11_attributes *attributes);
};

#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(enum net_result) == 4, "results have the size of an int");
_Static_assert(sizeof(struct net_v8_properties) == 64, "properties of version 8");
_Static_assert(offsetof(struct net_v8_properties, speed) == 32, "properties of version 8");
_Static_assert(sizeof(struct net_v9_properties) == 104, "properties of versions 9 and 10");
_Static_assert(offsetof(struct net_v9_properties, speed) == 36, "properties of versions 9 and 10");
_Static_assert(offsetof(struct net_v9_properties, virtual_device) == 64, "properties of versions 9 and 10");
_Static_assert(offsetof(struct net_v9_properties, send_bytes_max) == 88, "properties of versions 9 and 10");
_Static_assert(sizeof(struct net_v11_properties) == 112, "properties of version 11");
_Static_assert(offsetof(struct net_v11_properties, multi_request_max) == 104, "properties of version 11");
_Static_assert(sizeof(struct net_v12_properties) == 128, "properties of version 12");
_Static_assert(offsetof(struct net_v12_properties, send_bytes_max) == 104, "properties of version 12");
_Static_assert(offsetof(struct net_v12_properties, rail) == 124, "properties of version 12");
_Static_assert(sizeof(struct net_v8) == 19 * 8 && offsetof(struct net_v8, isend) == 10 * 8, "table of version 8");
_Static_assert(sizeof(struct net_v9) == 20 * 8 && offsetof(struct net_v9, test) == 13 * 8, "table of version 9");
_Static_assert(sizeof(struct net_v10) == 20 * 8 && offsetof(struct net_v10, test) == 13 * 8, "table of version 10");
_Static_assert(sizeof(struct net_v11) == 22 * 8 && offsetof(struct net_v11, finalize) == 20 * 8, "table of version 11");
_Static_assert(sizeof(struct net_v12) == 22 * 8 && offsetof(struct net_v12, finalize) == 20 * 8, "table of version 12");
#endif

#endif
