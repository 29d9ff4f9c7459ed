/* SPDX-License-Identifier: BSD-2-Clause */
/* Control groups of this process. */
#ifndef PL_CONTROL_GROUP_H
#define PL_CONTROL_GROUP_H

#include "base/base.h"

/*
 * Finds the path of the process's control group, below the folder of its hierarchy; "" is the root group. `controller` is one of
 * version 1, or "" for the one hierarchy of version 2. `root` stands for "/"; "": this machine. Returns false if there is no such
 * hierarchy.
 */
bool pl_control_group_find(const char *root, const char *controller, char *path, size_t size);

/* Makes a path that of the group above. Returns false at the root group. */
bool pl_control_group_rise(char *path);

#endif
