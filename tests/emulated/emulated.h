/* SPDX-License-Identifier: BSD-2-Clause */
/* Queries of test programs to the emulated GPU and to the stand-in of its driver. */
#ifndef EMULATED_H
#define EMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Access path of a card to GPU memory. */
enum emulated_path { PATH_DMABUF, PATH_ADDRESS, PATH_STAGED };

/* Opens the GPU.  Exits with 77 if the machine has none. */
void emulated_open(const char *path);
extern enum emulated_path emulated_chosen_path;

/* Return the number of registrations of each kind. */
int emulated_dmabufs(void);
int emulated_pins(void);
/*
 * Checks that `count` registrations use the chosen path and none the other path.  Checks that no client broke a rule of
 * the driver.
 */
void emulated_check_registered(int count);

/*
 * emulated_copied() returns the bytes that the copy engine moved from or to the host since the last call.
 * emulated_locked() returns the host bytes locked for the copy engine.
 */
size_t emulated_copied(void);
size_t emulated_locked(void);

/*
 * emulated_order() sets the write ordering and flush options that the GPU reports for later registrations.
 * emulated_flushes() returns the number of flushes.
 */
void emulated_order(int ordering, int options);
unsigned emulated_flushes(void);
/* Exports GPU memory in whole pages as a dma-buf: the driver's kind or, if `mappable`, one that mmap(2) accepts. */
int emulated_export(const void *memory, size_t length, bool mappable);
/* Returns the number of packets that the device sent so far. */
uint64_t emulated_packets(void);
/*
 * Returns the number of packets sent since the count was `before`.  Waits until the kernel counted at least one packet.
 */
uint64_t emulated_packets_since(uint64_t before);

/*
 * Prints the offset of memory in the GPU, which holds bytes of rig_pattern().  Tests compare these bytes from outside.
 */
void emulated_holds(const void *memory, uint64_t first, size_t length);

#endif
