/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/dynamic_library.h"

#include <dlfcn.h>
#include <string.h>

const char *pl_library_load(const char *file, const struct pl_symbol *symbols, size_t count, void *table)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return "is not here";
	for (size_t i = 0; i < count; i++) {
		void *function = dlsym(library, symbols[i].name);

		if (!function)
			return "is too old here";
		memcpy((char *)table + symbols[i].offset, &function, sizeof(function));
	}
	return NULL;
}
