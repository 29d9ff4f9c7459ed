/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts of the stand-in card, which the program has loaded as libibverbs. */
#include <dlfcn.h>
#include <string.h>

#include "card/card.h"
#include "support/check.h"

struct card_counts card_counts_now(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *found = library ? dlsym(library, "standin_card_counts") : NULL;
	struct card_counts (*read)(void);

	check(found);
	memcpy(&read, &found, sizeof(read));
	dlclose(library);
	return read();
}
