/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes, and what the kernel knows of this one. */
#ifndef TEST_PROCESS_H
#define TEST_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Runs a test in a child process of its own.  It passes if it exits with 0 within slowness() times as many seconds;
 * otherwise the reason is printed under the test's name, the child and all its children are ended,
 * and -1 is returned.  A child that exits with SKIPPED could not be run here: that is returned.
 */
#define SKIPPED 77
int process_run(const char *name, unsigned seconds, void (*test)(void *argument), void *argument);

/* Time limits are for what hangs: how many times as long all may take, in this build and under this program. */
unsigned slowness(void);

/* Forks a child that dies with this process; 0 in the child. */
pid_t process_fork(void);
/* Ends a child with a signal and collects it. */
void process_kill(pid_t pid, int signal);
/* Waits until a child exited; returns waitpid(2)'s status. */
int process_wait(pid_t pid);
/* Waits until a child stopped by SIGSTOP really is. */
void process_stop(pid_t pid);

unsigned open_descriptors(void);
/* The permissions that /proc/self/maps shows of the mapping that begins there, or "". */
void mapping_permissions(const void *address, char text[8]);
/* Whether one does, of memory that others may have, too. */
bool mapping_shared(const void *address);
unsigned running_threads(void);
/* A thread that was joined is counted by the kernel for a moment longer: waits for that number. */
void check_threads(unsigned expected);
/* Resident memory in bytes. */
uint64_t resident_memory(void);
/* Whether it grew by less than that; sanitizers keep freed memory, so with them this is always true. */
bool resident_within(uint64_t before, uint64_t limit);

uint64_t clock_now(void); /* CLOCK_MONOTONIC nanoseconds */
uint64_t cpu_time(void);  /* of the process, nanoseconds */
void sleep_ms(unsigned milliseconds);

#define MS 1000000ull
#define SECOND 1000000000ull

#endif
