/* SPDX-License-Identifier: BSD-2-Clause */
/* The stand-ins of tests/kernel, for programs that test the module with them in a virtual machine. */
#ifndef RIG_H
#define RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../kernel/standin.h"

struct rig {
	int gpu;
	int core;
};

/* What does not hold ends the program. */
#define REQUIRE(condition) \
	do { \
		if (!(condition)) { \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

void rig_open(struct rig *rig);

/* Memory of the GPU from an offset on, at an address that the driver can pin. */
void *rig_map(const struct rig *rig, size_t length, uint64_t offset);

/* Frees it like cudaFree(): it stays mapped, but is no GPU memory any more. */
int rig_free(const struct rig *rig, void *memory);

/* Returns 0 or a negative errno. */
int rig_register(const struct rig *rig, void *memory, size_t length, struct core_region *region);
int rig_deregister(const struct rig *rig, uint64_t handle);

/* Nothing is registered or pinned, and there were no violations. */
void rig_require_clean(const struct rig *rig);

/* A counter of the module. */
long long rig_counter(const char *name);

/* What byte number index of a pattern is; tests/vm/peermem.py knows it too. */
uint8_t rig_pattern(uint64_t index);

#endif
