/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares the plugin's declarations with those of an NCCL release, while it is compiled. HAVE_V8 to HAVE_V12 tell
 * which versions the release has; its header of network plugins is included before.
 */
#include <stddef.h>
#include "nccl/net.h"

#define SAME_SIZE(theirs, ours) _Static_assert(sizeof(theirs) == sizeof(ours), #theirs)
#define SAME_MEMBER(theirs, member, ours, own) \
	_Static_assert(offsetof(theirs, member) == offsetof(ours, own) && \
			       sizeof(((theirs *)0)->member) == sizeof(((ours *)0)->own), \
		       #theirs " " #member)

#define SAME_PROPERTIES(version, ours) \
	SAME_SIZE(ncclNetProperties_v##version##_t, ours); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, name, ours, name); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, pciPath, ours, pci_path); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, guid, ours, guid); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, ptrSupport, ours, pointers); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, regIsGlobal, ours, registration_is_global); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, speed, ours, speed); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, port, ours, port); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, latency, ours, latency); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, maxComms, ours, connections_max); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, maxRecvs, ours, receives_max); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, netDeviceType, ours, device_type); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, netDeviceVersion, ours, device_version)

#define SAME_LIMITS(version, ours) \
	SAME_MEMBER(ncclNetProperties_v##version##_t, forceFlush, ours, force_flush); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, vProps, ours, virtual_device); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, maxP2pBytes, ours, send_bytes_max); \
	SAME_MEMBER(ncclNetProperties_v##version##_t, maxCollBytes, ours, collective_bytes_max)

#define SAME_FUNCTION(version, member) SAME_MEMBER(ncclNet_v##version##_t, member, struct net_v##version, member)
#define SAME_TABLE(version) \
	SAME_SIZE(ncclNet_v##version##_t, struct net_v##version); \
	SAME_FUNCTION(version, name); \
	SAME_FUNCTION(version, init); \
	SAME_FUNCTION(version, devices); \
	SAME_FUNCTION(version, getProperties); \
	SAME_FUNCTION(version, listen); \
	SAME_FUNCTION(version, connect); \
	SAME_FUNCTION(version, accept); \
	SAME_FUNCTION(version, regMr); \
	SAME_FUNCTION(version, regMrDmaBuf); \
	SAME_FUNCTION(version, deregMr); \
	SAME_FUNCTION(version, isend); \
	SAME_FUNCTION(version, irecv); \
	SAME_FUNCTION(version, iflush); \
	SAME_FUNCTION(version, test); \
	SAME_FUNCTION(version, closeSend); \
	SAME_FUNCTION(version, closeRecv); \
	SAME_FUNCTION(version, closeListen); \
	SAME_FUNCTION(version, getDeviceMr); \
	SAME_FUNCTION(version, irecvConsumed)

_Static_assert(NET_HANDLE_SIZE == NCCL_NET_HANDLE_MAXSIZE, "size of a handle");
_Static_assert(NET_REQUESTS_MAX == NCCL_NET_MAX_REQUESTS, "number of requests");
_Static_assert(NET_POINTER_HOST == NCCL_PTR_HOST && NET_POINTER_CUDA == NCCL_PTR_CUDA &&
		       NET_POINTER_DMABUF == NCCL_PTR_DMABUF,
	       "kinds of memory");
_Static_assert((int)NET_REMOTE_ERROR == (int)ncclRemoteError && (int)NET_SYSTEM_ERROR == (int)ncclSystemError,
	       "results");
_Static_assert((int)NET_LOG_WARN == (int)NCCL_LOG_WARN && (int)NET_LOG_INFO == (int)NCCL_LOG_INFO, "levels of the log");

#ifdef HAVE_V8
SAME_PROPERTIES(8, struct net_v8_properties);
SAME_TABLE(8);
#endif
#ifdef HAVE_V9
SAME_PROPERTIES(9, struct net_v9_properties);
SAME_LIMITS(9, struct net_v9_properties);
SAME_TABLE(9);
SAME_FUNCTION(9, makeVDevice);
#endif
#ifdef HAVE_V10
SAME_PROPERTIES(10, struct net_v9_properties);
SAME_LIMITS(10, struct net_v9_properties);
SAME_TABLE(10);
SAME_FUNCTION(10, makeVDevice);
#endif
#ifdef HAVE_V11
SAME_PROPERTIES(11, struct net_v11_properties);
SAME_LIMITS(11, struct net_v11_properties);
SAME_MEMBER(ncclNetProperties_v11_t, maxMultiRequestSize, struct net_v11_properties, multi_request_max);
SAME_TABLE(11);
SAME_FUNCTION(11, makeVDevice);
SAME_FUNCTION(11, finalize);
SAME_FUNCTION(11, setNetAttr);
#endif
#ifdef HAVE_V12
SAME_PROPERTIES(12, struct net_v12_properties);
SAME_LIMITS(12, struct net_v12_properties);
SAME_MEMBER(ncclNetProperties_v12_t, maxMultiRequestSize, struct net_v12_properties, multi_request_max);
SAME_MEMBER(ncclNetProperties_v12_t, railId, struct net_v12_properties, rail);
SAME_MEMBER(ncclNetProperties_v12_t, planeId, struct net_v12_properties, plane);
SAME_TABLE(12);
SAME_FUNCTION(12, makeVDevice);
SAME_FUNCTION(12, finalize);
SAME_FUNCTION(12, setNetAttr);
#endif
