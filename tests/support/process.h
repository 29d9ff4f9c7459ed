/* SPDX-License-Identifier: BSD-2-Clause */
/* Child processes, and facts that the kernel keeps about this process. */
#ifndef TEST_PROCESS_H
#define TEST_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Runs a test in a child process.
 * The test passes if the child exits with 0 within hang_seconds(seconds), or within seconds * slowness() once a test of
 * this process has hung.  Otherwise the function prints the reason with the test's name, kills the child with all its
 * children, and returns -1.  If the child exits with SKIPPED, the machine cannot run the test, and the function returns
 * SKIPPED.  Not thread-safe.
 */
#define SKIPPED 77
int process_run(const char *name, unsigned seconds, void (*test)(void *argument), void *argument);

/*
 * Returns the factor for all time limits, which depends on this build and on the tool that runs it.  Time limits exist
 * to end hangs.
 */
unsigned slowness(void);
/*
 * Returns the seconds after which an action that takes up to `seconds` on an idle machine counts as hanging, also on a
 * machine ten times slower.  At most 300 s, or 600 s with sanitizers and tools, but at least seconds * slowness().
 */
unsigned hang_seconds(unsigned seconds);

/* Forks a child that dies with this process.  Returns 0 in the child. */
pid_t process_fork(void);
/* Ends a child with a signal and collects it. */
void process_kill(pid_t pid, int signal);
/* Waits until a child exited; returns waitpid(2)'s status. */
int process_wait(pid_t pid);
/* Stops a child with SIGSTOP and waits until the child stands still. */
void process_stop(pid_t pid);

unsigned open_descriptors(void);
/* Stores the permissions of the mapping that begins at this address (/proc/self/maps), or "" without a mapping. */
void mapping_permissions(const void *address, char text[8]);
/* Ends the case as skipped on emulators (valgrind, QEMU) that cannot make a second mapping from a first one. */
void require_second_mapping(void);
/* Returns true if the mapping at this address is shared memory. */
bool mapping_shared(const void *address);
unsigned running_threads(void);
/* Waits until the kernel counts this number of threads.  The kernel counts a joined thread for a moment longer. */
void check_threads(unsigned expected);
/* Returns the resident memory in bytes. */
uint64_t resident_memory(void);
/* Returns false with sanitizers, which keep freed memory. */
bool memory_is_exact(void);
/* Returns true if resident memory grew by less than `limit`, or is not exact. */
bool resident_within(uint64_t before, uint64_t limit);

uint64_t clock_now(void); /* CLOCK_MONOTONIC nanoseconds */
uint64_t cpu_time(void);  /* processor time of the process in nanoseconds */
void sleep_ms(unsigned milliseconds);

#define MS 1000000ull
#define SECOND 1000000000ull

/*
 * Times that only a hang exceeds, in nanoseconds, also on a machine ten times slower than usual.
 * SLACK: longest delay after a deadline.  AMPLE_TIME: limit for an action without a deadline.
 */
#define SLACK (10 * slowness() * SECOND)
#define AMPLE_TIME (30 * slowness() * SECOND)
#define AMPLE_MS ((unsigned)(AMPLE_TIME / MS)) /* the same in milliseconds */

#endif
