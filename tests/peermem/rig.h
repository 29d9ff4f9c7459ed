/* SPDX-License-Identifier: BSD-2-Clause */
/* Access to the stand-ins of tests/kernel, for programs that test the module in a virtual machine. */
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

/* Ends the program if the condition is false. */
#define REQUIRE(condition) \
	do { \
		if (!(condition)) { \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

void rig_open(struct rig *rig);

/* Maps GPU memory from an offset on, at an address that the driver can pin. */
void *rig_map(const struct rig *rig, size_t length, uint64_t offset);

/* Frees GPU memory like cudaFree(): the pages stay mapped, but the driver no longer pins them. */
int rig_free(const struct rig *rig, void *memory);

/* Returns 0 or a negative errno. */
int rig_register(const struct rig *rig, void *memory, size_t length, struct core_region *region);
int rig_deregister(const struct rig *rig, uint64_t handle);

/* Checks that nothing is registered or pinned, and that the stand-ins counted no violation. */
void rig_require_clean(const struct rig *rig);

/* Returns a counter of the module. */
long long rig_counter(const char *name);

/* Returns byte `index` of the test pattern; tests/vm/peermem.py has the same function. */
uint8_t rig_pattern(uint64_t index);

#endif
