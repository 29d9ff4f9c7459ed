/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_FUZZ_H
#define PL_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Checks a condition that must hold for every input.  Unlike assert(3), the check stays in release builds. */
#define REQUIRE(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

/* Returns the input as a text, which the caller frees. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	REQUIRE(text);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
