/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_MEMORY_PACKED_RANGE_H
#define PL_MEMORY_PACKED_RANGE_H

/* A range of addresses in 64 bits: the address, and above it the length, rounded down and shifted to fit. */

#include <stdbool.h>
#include <stdint.h>

#define PACKED_RANGE_ADDRESS_BITS 48
#define PACKED_RANGE_LENGTH_BITS 11
#define PACKED_RANGE_SHIFT_MAX 31

/* Returns 0 if the range cannot be packed. */
static inline uint64_t packed_range_new(uintptr_t address, uint64_t length)
{
	unsigned bits = length ? 64 - (unsigned)__builtin_clzll(length) : 0;
	uint64_t shift = bits > PACKED_RANGE_LENGTH_BITS ? bits - PACKED_RANGE_LENGTH_BITS : 0;

	if (address >> PACKED_RANGE_ADDRESS_BITS || shift > PACKED_RANGE_SHIFT_MAX)
		return 0;
	return address | (shift << PACKED_RANGE_LENGTH_BITS | length >> shift) << PACKED_RANGE_ADDRESS_BITS;
}

/* Returns true if the packed range holds another; may return false because of the rounded length. */
static inline bool packed_range_holds(uint64_t range, uintptr_t begin, uintptr_t end)
{
	uintptr_t from = range & (((uint64_t)1 << PACKED_RANGE_ADDRESS_BITS) - 1);
	uint64_t length = range >> PACKED_RANGE_ADDRESS_BITS;

	length = (length & ((1u << PACKED_RANGE_LENGTH_BITS) - 1)) << (length >> PACKED_RANGE_LENGTH_BITS);
	return from <= begin && end <= from + length;
}

#endif
