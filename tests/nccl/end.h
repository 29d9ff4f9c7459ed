/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes that drive the plugin, and the socket between them that stands for NCCL's bootstrap network. */
#ifndef NCCL_END_H
#define NCCL_END_H

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

void end_put(struct end *end, const void *data, size_t length);
void end_get(struct end *end, void *data, size_t length);
/* Each end waits for the other one. */
void end_meet(struct end *end);
/* Connect to the other end, whose handle comes by the socket. */
void *end_send_comm(struct end *end);
/* Listen, accept, or both, as the receiver of a connection. */
void *end_begin_listening(struct end *end);
void *end_accept(struct end *end, void *listener);
void *end_receive_comm(struct end *end);
/* Starts the other end as a child, `end->other`. */
void end_start_child(struct end *end, void (*run)(struct end *));

#endif
