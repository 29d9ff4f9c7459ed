/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that the stand-in for CUDA's driver (tests/libcuda) adds to the driver.  Each pointer is NULL with the real
 * driver and without a driver.
 */
#ifndef TEST_GPU_STANDIN_H
#define TEST_GPU_STANDIN_H

#include <stdbool.h>
#include <stddef.h>

/* Functions of tests/libcuda/standin.h, whose names there begin with standin_. */
struct gpu_standin {
	void (*fail)(const char *call, unsigned skip, unsigned count, int result);
	void (*stall)(const char *call);
	unsigned (*stalled)(void);
	void (*step)(void);
	void (*delay)(unsigned microseconds);
	void (*share)(unsigned microseconds);
	size_t (*waited)(void);
	size_t (*pinned)(void);
	size_t (*copied)(void);
	size_t (*opened)(void);
	size_t (*handles)(void);
	size_t (*mapped)(void);
	unsigned (*joined)(void);
	unsigned (*depth)(void);
	void (*hold)(bool held);
	void (*load)(bool loads);
	unsigned (*launched)(void);
	unsigned (*copies)(void);
	unsigned (*through_host)(void);
	unsigned (*asked)(void);
};
extern struct gpu_standin gpu_standin;
void gpu_standin_find(void);
/* Skips the test if the stand-in is absent. */
void gpu_standin_need(void);
/* Returns the number of kernels that began; 0 without the stand-in. */
unsigned gpu_standin_launched(void);

/* Finds a function of the driver, real or stand-in.  Stores NULL if the driver lacks the function. */
void gpu_driver_find(void *function, const char *name);

#endif
