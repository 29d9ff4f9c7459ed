/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NCCL's part: loads the plugin and calls one of its tables as NCCL does. Memory is the host's. Every call may be
 * refused for a while, as NCCL allows; the functions below repeat it.
 */
#ifndef NCCL_DRIVER_H
#define NCCL_DRIVER_H

#include <stdbool.h>

#include "net.h"

struct driver {
	void *library;
	int version; /* 8 to 12 */
	const struct net_v8 *v8;
	const struct net_v9 *v9;
	const struct net_v10 *v10;
	const struct net_v11 *v11;
	const struct net_v12 *v12;
	void *context; /* of version 11 and later */
	int device;
};

/* Loads the library, takes the table, and calls init(). Returns its result. */
enum net_result driver_load(struct driver *driver, int version);
/* The same, which must succeed. */
void driver_open(struct driver *driver, int version);
/* Calls finalize(), if the table has it, and unloads the library. */
void driver_close(struct driver *driver);
/* Returns the result of init() with a new context. */
enum net_result driver_init(struct driver *driver, void **context);
enum net_result driver_finalize(struct driver *driver, void *context);

int driver_devices(struct driver *driver);
/* Listens on the device `driver->device`. */
void driver_listen(struct driver *driver, void *handle, void **listener);
/* Make one call. The first connects from the device `driver->device`. */
enum net_result driver_connect(struct driver *driver, void *handle, void **comm);
enum net_result driver_accept(struct driver *driver, void *listener, void **comm);
void driver_close_listen(struct driver *driver, void *listener);
void driver_close_send(struct driver *driver, void *comm);
void driver_close_receive(struct driver *driver, void *comm);

void *driver_register(struct driver *driver, void *comm, void *data, size_t size);
/* Registers memory of a GPU: by a dma-buf of the driver, or by its address (fd -1). */
void *driver_register_gpu(struct driver *driver, void *comm, void *data, size_t size, uint64_t offset, int fd);
void driver_deregister(struct driver *driver, void *comm, void *memory);

/* Make one call each. *request has garbage before, as NCCL leaves there. */
enum net_result driver_send(struct driver *driver, void *comm, void *data, size_t size, void *memory, void **request);
enum net_result driver_receive(struct driver *driver, void *comm, void *data, size_t size, void *memory,
			       void **request);
enum net_result driver_test(struct driver *driver, void *request, int *done, int *size);

/* Repeat until the call is taken, or the request is done. They fail the test after a time. */
void *driver_must_send(struct driver *driver, void *comm, void *data, size_t size, void *memory);
void *driver_must_receive(struct driver *driver, void *comm, void *data, size_t size, void *memory);
/* Repeats a send that must not be taken, until it fails. Returns its result. */
enum net_result driver_wait_refusal(struct driver *driver, void *comm, void *data, size_t size, void *memory);
/* Returns the size. */
int driver_finish(struct driver *driver, void *request);
/* Tests until a failure. Returns its result. */
enum net_result driver_wait_failure(struct driver *driver, void *request);

/* Number of warnings of all threads. */
unsigned driver_warnings(void);
/* The last line that the plugin logged as a warning; "" for none. */
const char *driver_warning(void);
/* True if a line that the plugin logged in this process has the text. */
bool driver_logged(const char *text);

/* Fails the test when a loop took too long; sleeps for a moment otherwise. */
struct patience {
	uint64_t deadline;
};
void patience_begin(struct patience *patience, unsigned seconds);
void patience_wait(struct patience *patience);

/* Content of a message, from its number. */
void content_fill(uint8_t *data, size_t size, unsigned number);
bool content_is(const uint8_t *data, size_t size, unsigned number);

/* A connection within this process, with a buffer and its registration at each end. */
struct line {
	struct driver *driver;
	void *sender, *receiver;
	uint8_t *from, *to;
	void *from_memory, *to_memory;
};
/* Connects the devices of both ends, without buffers. */
void line_connect(struct line *line, struct driver *driver, int from_device, int to_device);

#endif
