/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs here have in common: they measure the public API, and end at the first surprise. */
#ifndef BENCH_SUPPORT_H
#define BENCH_SUPPORT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <peerlane/peerlane.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S (1000 * NS_PER_MS)

/* CLOCK_MONOTONIC. */
uint64_t now_ns(void);
/* Processor time of this process so far. */
uint64_t processor_ns(void);

/* From here on the calling thread runs on this core only. */
void stay_on_core(int core);

/* Of this process, now. */
long resident_bytes(void);
unsigned open_descriptors(void);
unsigned running_threads(void);
unsigned memory_mappings(void);

/* All or nothing, over a pipe or socket between the processes of a benchmark. */
void put(int fd, const void *data, size_t length);
void get(int fd, void *data, size_t length);

_Noreturn void give_up(const char *call, int code, const struct pl_error *error);

/* For calls that must succeed; `error` is a struct pl_error where the call fills one. */
#define MUST(call, error) \
	do { \
		int must_result = (call); \
		if (must_result < 0) \
			give_up(#call, must_result, error); \
	} while (0)

#endif
