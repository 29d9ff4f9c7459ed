/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_CLI_GUARD_H
#define PL_CLI_GUARD_H

/*
 * Lets the process outlive that a file it has mapped is cut by somebody else.  The kernel's own
 * accesses then fail with EFAULT, but the process's raise SIGBUS: this puts an empty page in the
 * place of the one that is gone.  Who reads the file finds out by its size, as it must anyway.
 */
void guard_install(void);

/* How often that happened: bytes for a file that is mapped for writing were lost then. */
unsigned guard_faults(void);

#endif
