/* SPDX-License-Identifier: BSD-2-Clause */
/* Processors of this process, by which the library, the command and the plugins choose numbers of threads. */
#ifndef PL_PROCESSORS_H
#define PL_PROCESSORS_H

/*
 * Returns how many processors new threads of the calling thread have: those of its affinity, which these threads inherit, and no
 * more than the processor time that the control groups allow (cpu.max; cpu.cfs_quota_us of version 1), rounded up. At least 1.
 * Reads some small files.
 */
unsigned pl_processors(void);

/* The same, with control groups below `root`, which stands for "/". For tests. */
unsigned pl_processors_below(const char *root);

#endif
