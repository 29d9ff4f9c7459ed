/* SPDX-License-Identifier: BSD-2-Clause */
/* Profiles of proven routes, as JSON and for people. */
#ifndef PL_CLI_ROUTES_H
#define PL_CLI_ROUTES_H

#include "cmd/common/output.h"
#include "profile/profile.h"

/* routes_file.c */
struct json_object *routes_to_json(const struct pl_profile *profile);
int routes_save(const struct pl_profile *profile, const char *file, struct pl_error *error);

#endif
