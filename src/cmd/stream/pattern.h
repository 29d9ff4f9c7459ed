/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames of the test source: their content follows from their sequence.  Word i of frame s, of 64 bits and little-endian,
 * is s * PATTERN_STEP + i, so a word of any other frame differs.
 */
#ifndef PL_CMD_STREAM_PATTERN_H
#define PL_CMD_STREAM_PATTERN_H

#include <stdint.h>

/* Content type of streams with this pattern. */
#define PATTERN_CONTENT_TYPE "application/x-peerlane-test"
/* Odd, so that the words of 2^64 frames differ. */
#define PATTERN_STEP 0x9e3779b97f4a7c15u

/* Fills a frame.  `data` is aligned for 64-bit words. */
void pattern_fill(void *data, uint64_t length, uint64_t sequence);
/* Returns the offset of the first word that differs from the pattern, or UINT64_MAX. */
uint64_t pattern_check(const void *data, uint64_t length, uint64_t sequence);

#endif
