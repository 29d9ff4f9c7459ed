/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Privacy of dumps: an allow-list of the names that a dump may contain. All other components of paths become "dir1",
 * "dir2" and so on, the same name always the same one, so that a check of the dump finds what it found on the machine.
 */
#ifndef PL_DIAG_CHECK_PRIVACY_H
#define PL_DIAG_CHECK_PRIVACY_H

#include "diag/check/facts.h"
#include "diag/check/snapshot.h"

struct pl_privacy;

struct pl_privacy *pl_privacy_new(void);
void pl_privacy_free(struct pl_privacy *privacy);

/* Copies a path with all unknown components replaced; cut to fit. */
void pl_privacy_path(struct pl_privacy *privacy, const char *path, char *copy, size_t size);
/*
 * Copies the value of a fact: paths as pl_privacy_path() does, without names of processes. Returns false if facts with
 * this key do not go into dumps.
 */
bool pl_privacy_fact(struct pl_privacy *privacy, const char *key, const char *value, char *copy, size_t size);

/*
 * Copies a snapshot: paths and targets of links outside of /sys and /proc, and the content of files that people write, are
 * filtered. Returns NULL without memory.
 */
struct pl_snapshot *pl_privacy_snapshot(struct pl_privacy *privacy, const struct pl_snapshot *snapshot);

#endif
