/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Questions to the running machine that no file answers; they need no root. The answers are facts. No key is set twice.
 */
#ifndef PL_DIAG_CHECK_PROBE_H
#define PL_DIAG_CHECK_PROBE_H

#include <stdio.h>

#include "diag/check/facts.h"

/* Writes "key value" lines. Runs in a process of its own, which is killed after its time. */
typedef void (*pl_probe_function)(FILE *to, const void *argument);

/* Probes that run together at most. */
#define PL_PROBES_MAX 24

struct pl_probe {
	const char *name; /* the fact "NAME.state" becomes "done", "crashed N" or "hangs" */
	pl_probe_function run;
	const void *argument; /* for `run` */
};

/* Runs probes together, for at most `timeout` nanoseconds, and adds their facts. */
void pl_probe_run(struct pl_facts *facts, const struct pl_probe *probes, size_t count, uint64_t timeout);

/*
 * Returns the facts of one probe of this machine, or those of the dump below the root, for pl_facts_free(). NULL: no
 * memory.
 */
struct pl_facts *pl_probe_one(struct pl_sysroot *root, const struct pl_probe *probe, uint64_t timeout);

/*
 * Asks everything: the process and its limits, the kernel's log, addresses, libibverbs, libcuda, NVML. Takes at most
 * `timeout` for the last three, which run together.
 */
void pl_probe_all(struct pl_facts *facts, uint64_t timeout);

/* Sets process.*, limit.*, node.*, net.*, search.path. */
void pl_probe_process(struct pl_facts *facts);
/* Sets log.*, kallsyms.*, pins.holders. */
void pl_probe_kernel(struct pl_facts *facts);

void pl_probe_verbs(FILE *to, const void *argument);
/* Asks libmlx5 only, which pl_probe_verbs() does, too. */
void pl_probe_data_direct(FILE *to, const void *argument);
void pl_probe_cuda(FILE *to, const void *argument);
void pl_probe_nvml(FILE *to, const void *argument);

#endif
