/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_DIAG_ROUTES_PROVE_H
#define PL_DIAG_ROUTES_PROVE_H

#include "profile/profile.h"

/*
 * Proves all paths with transfers of that length, of all devices or of one. Returns 0, also if paths failed; -ENODEV
 * without a GPU or a device; other errors.
 */
int pl_profile_prove(struct pl_profile *profile, const char *device, size_t length, struct pl_error *error);

#endif
