/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs that test with the emulated GPU ask of it and of its driver's stand-in. */
#ifndef EMULATED_H
#define EMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a card gets to the GPU's memory. */
enum way { WAY_DMABUF, WAY_ADDRESS, WAY_STAGED };

/* Opens the GPU; exits with 77 if there is none. */
void emulated_open(const char *way);
extern enum way emulated_way;

/* How many registrations of each kind there are, and what clients of the driver did wrong. */
int emulated_dmabufs(void);
int emulated_pins(void);
/* Checks that there are so many of the kind that the way uses, and none of the other; then and at the end no violation. */
void emulated_check_registered(int count);

/* Bytes that the GPU's copy engine moved from or to the host since this was last asked, and those locked for it now. */
size_t emulated_copied(void);
size_t emulated_locked(void);

/* What the GPU says of the order of cards' writes, for regions that are registered from now on; how often it flushed. */
void emulated_order(int ordering, int options);
unsigned emulated_flushes(void);
/* A dma-buf of GPU memory, in whole pages, as a program gets it from the driver or, if it may be mapped, another's. */
int emulated_export(const void *memory, size_t length, bool mappable);
/* Packets that the device sent so far. */
uint64_t emulated_packets(void);
/* Since there were so many: at least one, so it is waited until a busy kernel has counted. */
uint64_t emulated_packets_since(uint64_t before);

/* Says, for whoever looks at the GPU's memory from outside, that it has bytes of rig_pattern() at an address. */
void emulated_holds(const void *memory, uint64_t first, size_t length);

#endif
