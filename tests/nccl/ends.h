/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes that connect through the plugin, and a socket between them in place of NCCL's bootstrap network. */
#ifndef NCCL_ENDS_H
#define NCCL_ENDS_H

#include <sys/types.h>

#include "driver.h"

/* Process of a pair. `fd` is NCCL's bootstrap network. */
struct end {
	struct driver driver;
	int fd;
	pid_t other;
	void *comm, *memory;
	uint8_t *data;
};

/* Starts the other end as a child, `end->other`, which exits with 0 after `run`. */
void start_child(struct end *end, void (*run)(struct end *));

void end_put(struct end *end, const void *data, size_t length);
void end_get(struct end *end, void *data, size_t length);
/* Each end waits for the other one. */
void end_meet(struct end *end);

/* Connects from the driver's device to the handle that the other end put. */
void *end_send_comm(struct end *end);
/* Listens on the driver's device and puts the handle. */
void *end_begin_listening(struct end *end);
void *end_accept(struct end *end, void *listener);
/* The two together. */
void *end_receive_comm(struct end *end);

#endif
