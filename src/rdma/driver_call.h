/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of a driver that may never return, as while it resets a device. A thread makes them, and uses nothing of the caller but
 * their record. The record of a call that is given up stays allocated until the driver answers.
 */
#ifndef PL_RDMA_DRIVER_CALL_H
#define PL_RDMA_DRIVER_CALL_H

#include <pthread.h>
#include <stdbool.h>

#include "base/base.h"

/* Head of a record, which the system's allocator made. */
struct rdma_call {
	void (*run)(struct rdma_call *call);  /* on the thread */
	void (*drop)(struct rdma_call *call); /* frees the record, and the driver's objects in it */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	uint64_t since; /* time of the start */
	bool threaded;  /* false: there was no thread, and the caller waited */
	bool ended, left;
};

/* Starts the thread; `run` and `drop` are set. Without a thread the caller makes the call. */
void rdma_call_start(struct rdma_call *call);
/* Returns true if the call has ended, and waits for that until this time. */
bool rdma_call_await(struct rdma_call *call, uint64_t until);
/* Drops the record, now or when the driver answers. */
void rdma_call_leave(struct rdma_call *call);

#endif
