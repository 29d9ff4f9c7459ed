/* SPDX-License-Identifier: BSD-2-Clause */
/* json-c seeds its hash at random, which decides how it compares names.  Without that, a run with one seed repeats. */
#include "fuzz.h"

#include <json-c/json.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	return json_global_set_string_hash(JSON_C_STR_HASH_PERLLIKE);
}
