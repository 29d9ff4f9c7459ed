/* SPDX-License-Identifier: BSD-2-Clause */
/* What the stand-in for CUDA's driver (tests/libcuda) has more than the driver; NULL with a real one, or with none. */
#ifndef TEST_GPU_STANDIN_H
#define TEST_GPU_STANDIN_H

#include <stddef.h>

/* As tests/libcuda/standin.h declares them, standin_ in front. */
struct gpu_standin {
	void (*fail)(const char *call, unsigned skip, unsigned count, int result);
	void (*delay)(unsigned microseconds);
	void (*share)(unsigned microseconds);
	size_t (*waited)(void);
	size_t (*pinned)(void);
	size_t (*opened)(void);
	size_t (*handles)(void);
	unsigned (*depth)(void);
};
extern struct gpu_standin gpu_standin;
void gpu_standin_find(void);
/* Ends the test as skipped without one. */
void gpu_standin_need(void);

/* A function of the driver's, the stand-in's or the real one's; NULL: there is none. */
void gpu_driver_find(void *function, const char *name);

#endif
