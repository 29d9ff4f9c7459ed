/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_CMD_TRANSFER_SIGBUS_GUARD_H
#define PL_CMD_TRANSFER_SIGBUS_GUARD_H

/*
 * Installs a handler of SIGBUS, which the kernel raises when the process accesses a mapped page of a file that another
 * process has truncated.  The handler maps an empty page instead, so the process goes on.  Code that reads a mapped file
 * detects the truncation by the size of the file.
 */
void sigbus_guard_install(void);

/* Returns the number of pages replaced.  Bytes written to such a page are lost. */
unsigned sigbus_guard_count(void);

#endif
