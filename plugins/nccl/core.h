/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions behind all versions of NCCL's table. None of them blocks, except plugin_open(), plugin_close(),
 * plugin_comm_close() and plugin_memory_deregister(), which end in bounded time, but for the driver of the GPU: a call that
 * takes the end of an import of GPU memory, and plugin_memory_register(), wait for it to open that memory. The three calls
 * that end something open none; they wait for other threads that open memory for theirs, however long the driver takes. No
 * wait for the driver holds the lock. Any thread may call them.
 */
#ifndef PLUGIN_CORE_H
#define PLUGIN_CORE_H

#include "net.h"

struct pl_dmabuf;
struct plugin_owner;
struct plugin_listener;
struct plugin_comm;
struct plugin_memory;
struct plugin_request;

/* Properties of a device that differ between devices. The strings stay valid until the process ends. */
struct plugin_properties {
	char *name;
	char *pci_path;
	int speed; /* Mbit/s */
	uint64_t guid;
	int port;
	int pointers; /* kinds of memory: NET_POINTER_... */
};

/*
 * Opens the plugin for a communicator. With `owner` NULL it stays open: tables of versions 8 to 10 close nothing, and
 * the owner NULL below stands for all of their communicators.
 */
enum net_result plugin_open(net_log_function log, void **owner);
/* Ends all that the owner still has: NCCL leaves pending connections behind after an error. Accepts NULL. */
enum net_result plugin_close(struct plugin_owner *owner);

enum net_result plugin_device_count(int *count);
enum net_result plugin_device_properties(int device, struct plugin_properties *properties);

enum net_result plugin_listen(struct plugin_owner *owner, int device, void *handle, void **listener);
enum net_result plugin_listener_close(struct plugin_listener *listener);
/* Leave *comm NULL until the connection is up. */
enum net_result plugin_connect(struct plugin_owner *owner, int device, void *handle, void **comm);
enum net_result plugin_accept(struct plugin_listener *listener, void **comm);
enum net_result plugin_comm_close(struct plugin_comm *comm);

/* type: NET_POINTER_HOST, or NET_POINTER_CUDA if the device has it. `dmabuf` has the same memory; NULL: none. */
enum net_result plugin_memory_register(struct plugin_comm *comm, void *data, size_t size, int type,
				       const struct pl_dmabuf *dmabuf, void **memory);
enum net_result plugin_memory_deregister(struct plugin_comm *comm, struct plugin_memory *memory);

/* Leave *request NULL if the caller must try again. */
enum net_result plugin_send(struct plugin_comm *comm, void *data, size_t size, struct plugin_memory *memory,
			    void **request);
enum net_result plugin_receive(struct plugin_comm *comm, void *data, size_t size, struct plugin_memory *memory,
			       void **request);
/* Ends the request if it is done. size may be NULL. */
enum net_result plugin_test(struct plugin_request *request, int *done, int *size);

#endif
