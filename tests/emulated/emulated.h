/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs that test with the emulated GPU ask of it and of its driver's stand-in. */
#ifndef EMULATED_H
#define EMULATED_H

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

/* Says, for whoever looks at the GPU's memory from outside, that it has bytes of rig_pattern() at an address. */
void emulated_holds(const void *memory, uint64_t first, size_t length);

#endif
