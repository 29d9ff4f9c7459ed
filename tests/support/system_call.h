/* SPDX-License-Identifier: BSD-2-Clause */
/* System calls that the kernel refuses, as in containers and on old kernels. */
#ifndef TEST_SYSTEM_CALL_H
#define TEST_SYSTEM_CALL_H

/*
 * Makes system calls fail with this errno in all threads of the process, in threads and children that start later, and
 * until they end. Ends the case as skipped if the machine has no system call filters.
 */
void refuse_system_calls(const long *numbers, unsigned count, int error);
/*
 * Ends the calling thread's right to system calls: from now on each one but these, and those that end the thread, is SIGSYS. Ends the
 * case as skipped if the machine has no system call filters.
 */
void trap_system_calls(const long *allowed, unsigned count);
/* Refuses copies between processes with EPERM, as containers and kernel.yama.ptrace_scope do. */
void refuse_process_vm(void);

#endif
