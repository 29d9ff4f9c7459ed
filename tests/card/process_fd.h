/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pidfd of this process, inherited from the program that started it, for the local fabric under valgrind. Valgrind has no
 * pidfd_open(2) before its release 3.21. The variable PATH_COST_PROCESS_FD names the descriptor. Without the variable the
 * library's calls of syscall() are unchanged.
 */
#ifndef CARD_PROCESS_FD_H
#define CARD_PROCESS_FD_H

/* Reads the variable. Call it before the first connection. */
void process_fd_begin(void);

#endif
