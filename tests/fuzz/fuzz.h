/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_FUZZ_H
#define PL_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* What must hold for every input; unlike assert(3) it stays in release builds. */
#define REQUIRE(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
