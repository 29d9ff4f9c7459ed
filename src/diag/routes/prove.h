/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_DIAG_ROUTES_PROVE_H
#define PL_DIAG_ROUTES_PROVE_H

#include "profile/profile.h"

/*
 * Proves all ways, with transfers of that length, of all devices or of one.  0, though ways may have failed;
 * -ENODEV without a GPU or a device, and other errors.
 */
int pl_profile_prove(struct pl_profile *profile, const char *device, size_t length, struct pl_error *error);

#endif
