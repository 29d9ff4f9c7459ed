/* SPDX-License-Identifier: BSD-2-Clause */
/* Profiles of tested routes as JSON. */
#ifndef PL_CMD_CHECK_ROUTES_H
#define PL_CMD_CHECK_ROUTES_H

#include "cmd/common/output.h"
#include "profile/profile.h"

/* Returns the proofs and the choices that follow from them. */
struct json_object *routes_to_json(const struct pl_profile *profile);
/* Writes the profile as JSON into a file. */
int routes_save(const struct pl_profile *profile, const char *file, struct pl_error *error);

#endif
