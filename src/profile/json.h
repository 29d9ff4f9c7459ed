/* SPDX-License-Identifier: BSD-2-Clause */
/* json-c, loaded when there is a profile to read; programs without a profile need no json-c. */
#ifndef PL_PROFILE_JSON_H
#define PL_PROFILE_JSON_H

#include <json-c/json.h>

#include "base/base.h"

#define ROUTE_JSON_FUNCTIONS(ENTRY) \
	ENTRY(json_object_from_fd) \
	ENTRY(json_tokener_parse) \
	ENTRY(json_object_put) \
	ENTRY(json_object_is_type) \
	ENTRY(json_object_object_get_ex) \
	ENTRY(json_object_array_length) \
	ENTRY(json_object_array_get_idx) \
	ENTRY(json_object_get_boolean) \
	ENTRY(json_object_get_int64) \
	ENTRY(json_object_get_string) \
	ENTRY(json_object_get_string_len)

struct route_json {
#define ENTRY(function) __typeof__(&function) function;
	ROUTE_JSON_FUNCTIONS(ENTRY)
#undef ENTRY
};

/* The library stays loaded. */
int route_json_load(struct route_json *json, const char *file, struct pl_error *error);

#endif
