/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters of the ports of RDMA cards, /sys/class/infiniband/DEVICE/ports/N/hw_counters and counters: their changes
 * during a measurement.  They count all traffic of a port, also that of other programs.
 */
#ifndef PL_BENCH_COUNTERS_COUNTERS_H
#define PL_BENCH_COUNTERS_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CARD_PORTS_MAX 64
#define CARD_NAME_MAX 64

struct json_object;
struct pl_sysroot;

struct card_port {
	char device[CARD_NAME_MAX];
	unsigned number;
};

/* Ports that the connections of a measurement use. */
struct card_ports {
	struct card_port list[CARD_PORTS_MAX];
	unsigned count;
};

enum card_folder {
	CARD_HW_COUNTERS, /* of the vendor */
	CARD_COUNTERS,    /* of the InfiniBand specification */
	CARD_FOLDERS,
};

struct card_counter {
	char name[CARD_NAME_MAX];
	enum card_folder folder;
	bool fell; /* of changes: the value fell, so `value` is 0 */
	uint64_t value;
};

/* Values of the counters of some ports at one time, or their changes between two times. */
struct card_counters {
	uint64_t time;     /* CLOCK_MONOTONIC nanoseconds after the last value was read */
	uint64_t lifespan; /* nanoseconds for which the kernel may return the same values again */
	unsigned count;
	struct card_port_counters {
		struct card_port port;
		struct card_counter *list; /* sorted by folder and name */
		uint32_t count, room;
		bool readable; /* at least one counter had a value */
	} ports[];
};

/* Adds a port by the name that events have, "mlx5_0:1"; "mlx5_0" adds all ports.  Known ports are added once. */
void card_ports_add(struct card_ports *ports, struct pl_sysroot *root, const char *name);
/* Reads the counters of the ports.  Files that have no number are left out.  Returns NULL if out of memory. */
struct card_counters *card_counters_read(struct pl_sysroot *root, const struct card_ports *ports);
/*
 * Turns the values of `after` into their changes since `before`, which has the same ports.  Removes counters that did
 * not change, or that `before` lacks.  The changes of port_xmit_data and port_rcv_data become bytes.
 */
void card_counters_subtract(struct card_counters *after, const struct card_counters *before);
void card_counters_free(struct card_counters *counters);

/* -- during a measurement -------------------------------------------------------------------------- */

/* Counters at the beginning of a measurement. */
struct card_watch {
	struct pl_sysroot *root;
	struct card_counters *before; /* NULL: no ports */
	char unreadable[120];         /* reason why a port has no counters; empty: there is none */
};

/* Opens the files below `root`; NULL: those of this machine.  A failure becomes watch->unreadable. */
void card_watch_open(struct card_watch *watch, const char *root);
void card_watch_begin(struct card_watch *watch, const struct card_ports *ports);
/* Returns the changes since card_watch_begin(), or NULL if there are no readable counters. */
struct card_counters *card_watch_end(struct card_watch *watch);
void card_watch_close(struct card_watch *watch);

/* -- output ---------------------------------------------------------------------------------------- */

/* Returns [ { "device", "port", "hw_counters": {}, "counters": {}, "fell": [] } ]; NULL for NULL. */
struct json_object *card_counters_json(const struct card_counters *changes);

/* Counter that tells of trouble. */
struct card_trouble {
	const char *name, *meaning;
};

/* Ends with a NULL name. */
extern const struct card_trouble card_troubles[];

/*
 * Prints a line for each port with counters that tell of trouble and rose: the sum of several results, any of which may
 * be NULL.
 */
void card_troubles_print(FILE *file, const struct card_counters *const *results, unsigned count);

#endif
