/* SPDX-License-Identifier: BSD-2-Clause */
/* Helpers of the benchmark programs, which measure the public API and exit at the first error. */
#ifndef PL_BENCHMARKS_SUPPORT_H
#define PL_BENCHMARKS_SUPPORT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include <peerlane/peerlane.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S (1000 * NS_PER_MS)

/* Returns CLOCK_MONOTONIC in nanoseconds. */
uint64_t now_ns(void);
/* Returns the processor time of this process so far, in nanoseconds. */
uint64_t processor_ns(void);

/* Sorts times, the shortest first. */
void sort_times(uint64_t *times, size_t count);

/* Restricts the calling thread to this core. */
void stay_on_core(int core);

/* Return values of this process at this time. */
long resident_bytes(void);
unsigned open_descriptors(void);
unsigned running_threads(void);
unsigned memory_mappings(void);

/* Transfer all bytes over a pipe or socket between the processes of a benchmark, or exit. */
void put(int fd, const void *data, size_t length);
void get(int fd, void *data, size_t length);

/*
 * Begins another process, which ends with this one. Returns 0 in the other process, else its number; *fd: socket between
 * the two. Exits on failure.
 */
pid_t start_process(int *fd);
/* In the other process: writes its processor time whenever the first one writes a byte, and exits when that has gone. */
_Noreturn void tell_processor_time(int fd);

/*
 * Publishes in a child, which writes an address of 96 bytes to a pipe, and subscribes to it in this process. Returns the exit
 * status of the program.
 */
int run_stream(const void *run, void (*publish)(const void *run, int address_pipe),
	       void (*subscribe)(const void *run, const char *address));

_Noreturn void give_up(const char *call, int code, const struct pl_error *error);

/* Calls a function that must succeed; `error` is a struct pl_error if the call fills one, else NULL. */
#define MUST(call, error) \
	do { \
		int must_result = (call); \
		if (must_result < 0) \
			give_up(#call, must_result, error); \
	} while (0)

#endif
