/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks the running machine, without root, what no file says; the answers are facts (facts.h lists no key twice). */
#ifndef PL_DIAG_CHECK_PROBE_H
#define PL_DIAG_CHECK_PROBE_H

#include <stdio.h>

#include "diag/check/facts.h"

/* A probe writes "key value" lines; it runs in a process of its own, which is killed when its time is over. */
typedef void (*pl_probe_function)(FILE *to);

struct pl_probe {
	const char *name; /* "NAME.state" becomes "done", "crashed N" or "hangs" */
	pl_probe_function run;
};

/* Runs them at the same time, for at most `timeout` nanoseconds, and takes over what they say. */
void pl_probe_run(struct pl_facts *facts, const struct pl_probe *probes, size_t count, uint64_t timeout);

/* Everything there is to ask: the process and its limits, the log of the kernel, addresses, libibverbs, libcuda, NVML.
 * Takes `timeout` at most for each of the last three, which run at the same time. */
void pl_probe_all(struct pl_facts *facts, uint64_t timeout);

/* process.*, limit.*, node.*, net.*, search.path */
void pl_probe_process(struct pl_facts *facts);
/* log.*, kallsyms.*, pins.holders */
void pl_probe_kernel(struct pl_facts *facts);

void pl_probe_verbs(FILE *to);
void pl_probe_cuda(FILE *to);
void pl_probe_nvml(FILE *to);

#endif
