/* SPDX-License-Identifier: BSD-2-Clause */
/* Control groups of this process. */
#ifndef PL_CONTROL_GROUP_H
#define PL_CONTROL_GROUP_H

#include "base/base.h"

/* Mark of the one hierarchy of version 2, for pl_control_group_find(). */
#define PL_CONTROL_GROUP_2 "::"

/*
 * Finds the path of the process's control group, below the folder of its hierarchy; "" is the root group. `mark` stands before the
 * path in /proc/self/cgroup, after a number. `root` stands for "/"; "": this machine. Returns false if there is no such hierarchy.
 */
bool pl_control_group_find(const char *root, const char *mark, char *path, size_t size);

/* Makes a path that of the group above. Returns false at the root group. */
bool pl_control_group_rise(char *path);

#endif
