/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_FUZZ_H
#define PL_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Checks a condition that must hold for every input.  Unlike assert(3), the check stays in release builds. */
#define REQUIRE(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
