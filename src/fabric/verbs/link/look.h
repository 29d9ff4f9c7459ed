/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looks at devices and ports. The driver of a device may never answer: threads of their own, the probes, call it, and use
 * nothing of the context. So a look goes on without a silent device, and a context ends without it.
 */
#ifndef PL_FABRIC_VERBS_LOOK_H
#define PL_FABRIC_VERBS_LOOK_H

#include <ifaddrs.h>

#include "fabric/verbs/state.h"
#include "rdma/driver_call.h"

/* List of the library's devices, and this host's interfaces. Probes of the devices keep it. */
struct verbs_listing {
	struct rdma_call call;
	const struct verbs_library *library;
	struct ibv_device **devices; /* NULL: there is no list */
	struct ifaddrs *interfaces;  /* NULL: unknown */
	atomic_uint users;
};

/* Port, as the driver tells of it. */
struct verbs_port_seen {
	bool known; /* allowed, and the driver told its attributes */
	struct ibv_port_attr attributes;
	struct verbs_gid_entry gids[VERBS_GID_TABLE_MAX];
	unsigned gid_count;
	enum verbs_obstacle pkey_obstacle;
	uint16_t pkey_index;
};

/* Objects and attributes of a device that a probe has opened. */
struct verbs_opened {
	struct ibv_context *verbs;
	struct ibv_pd *pd, *loop_pd;
	struct ibv_device_attr attributes;
	uint32_t message_max;
	char data_direct_path[RDMA_DATA_DIRECT_PATH];
};

/* Probe of a device: opens it, if it is not open, and reads its ports. */
struct verbs_probe {
	struct rdma_call call;
	struct pl_list link;
	struct verbs_listing *listing;
	const struct verbs_library *library;
	struct ibv_device *of;
	char name[IBV_SYSFS_NAME_MAX];
	uint64_t entry;              /* verbs_device_entry() at the start */
	struct verbs_device *device; /* the open one, for the look; NULL: the probe opens it */
	unsigned gid_index, pkey;    /* options of the context */
	bool allowed[UINT8_MAX + 1]; /* ports, by number */
	struct ibv_context *verbs;   /* of the open device, or of the opened one */
	unsigned port_count;
	int code; /* 0, or the errno for which the device cannot be used */
	struct verbs_opened opened;
	struct verbs_port_seen *ports;
};

/* probe.c */
/* Returns NULL without memory. */
struct verbs_listing *verbs_listing_start(const struct verbs_library *library);
/* Starts the probe of a device of a listing. Returns NULL without memory. */
struct verbs_probe *verbs_probe_start(struct verbs_state *state, struct verbs_listing *listing, struct ibv_device *of,
				      struct verbs_device *device);

/* device.c */
/* Makes a device of what a probe has opened, and takes it over; the caller adds it to the state. Returns NULL and sets *code. */
struct verbs_device *verbs_device_make(struct verbs_state *state, struct verbs_probe *probe, int *code);

/* port_look.c: looks at ports, by helper threads */
void verbs_ports_open(struct verbs_state *state);
/*
 * Looks at devices and ports, if the last look is old. The caller waits at most 50 ms, or for the first look 10 s and a quarter of
 * the context's connect_timeout and of the time that is left until `until` (UINT64_MAX: no end). Any thread, no lock of the state.
 */
void verbs_ports_look(struct verbs_state *state, uint64_t until);
/* Looks at devices and ports, however old the last look is. Returns true if all ports have a device. */
bool verbs_ports_look_now(struct verbs_state *state);
/* True if the last look is too old for a connection, or a device reported a change since. */
bool verbs_ports_are_old(const struct verbs_state *state);
/* Fails because no look has ended in time. The caller holds the lock. */
int verbs_look_fail(const struct verbs_state *state, struct pl_error *error);

/* look.c */
/* Looks at devices and ports, and opens new devices. Returns true if all ports have a device. The caller holds look_lock. */
bool verbs_ports_read(struct verbs_state *state);
/* Gives up the drivers that do not answer. */
void verbs_looks_close(struct verbs_state *state);

/* port.c: ports of the devices, and their addresses */
/* True if the program allows a device's port (0: any): it named no devices, this device, or "device:port". */
bool verbs_port_is_allowed(const struct verbs_state *state, const char *device, unsigned port);
/* Writes what a probe has seen of a port. Returns the reason that the port is not used, or VERBS_NO_OBSTACLE. */
enum verbs_obstacle verbs_port_update(struct verbs_device *device, uint8_t number, const struct verbs_port_seen *seen,
				      const struct ifaddrs *interfaces);
/* Makes ports of removed devices inactive. Returns true if there are none. The caller holds the lock. */
bool verbs_ports_leave(struct verbs_state *state);
/*
 * Returns the port's GID of that address, else the best one of the same kind (IPv4, IPv6, link-local), else of the same
 * family; NULL: none. The caller holds the lock.
 */
const struct verbs_gid *verbs_port_gid(const struct verbs_port *port, const union ibv_gid *wanted);
/*
 * Returns the GID to offer to the other end: that of the control connection's own address, else the best one; NULL: none.
 * The caller holds the lock.
 */
const struct verbs_gid *verbs_port_offer(const struct verbs_port *port, const union ibv_gid *control);
void verbs_ports_close(struct verbs_state *state);

/* port_options.c */
/* Finds the P_Key in the table of a port. Returns the obstacle, or VERBS_NO_OBSTACLE with the index. */
enum verbs_obstacle verbs_pkey_find(const struct verbs_library *library, struct ibv_context *verbs, uint8_t port,
				    unsigned wanted, unsigned table, uint16_t *index);
/* Sets `excluded` of a port whose GIDs are set. Returns the reason, or VERBS_NO_OBSTACLE. */
enum verbs_obstacle verbs_port_apply_options(struct verbs_port *port, const struct verbs_port_seen *seen);
/* Fails with the reason that a port is excluded; the last look found it. */
int verbs_exclusion_fail(const struct verbs_state *state, struct pl_error *error);

/* port_width.c */
/* Returns true if one queue pair does not fill the port. */
bool verbs_port_is_wide(const struct verbs_port *port, const struct ibv_port_attr *attributes);
/* Returns the members of a bond that carry packets; 0: no bond. net: folder of the interfaces, /sys/class/net. */
unsigned verbs_bond_members(const char *net, const char *interface);

#endif
