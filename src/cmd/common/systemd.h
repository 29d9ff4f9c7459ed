/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket activation, notices and the journal of systemd. */
#ifndef PL_CMD_COMMON_SYSTEMD_H
#define PL_CMD_COMMON_SYSTEMD_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Returns the listening socket that a service manager passed (socket activation), or -1.  Removes the variables that name
 * it, so that child processes do not use it.
 */
int systemd_listen_fd(void);
/* Tells the service manager, if there is one; see sd_notify(3). */
void systemd_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Interval in which the service manager wants to hear of this process, in nanoseconds; 0: it does not. */
uint64_t systemd_watchdog(void);
/* True if standard error leads to the journal, which reads a level such as "<3>" before each line; see sd-daemon(3). */
bool systemd_journal(void);

#endif
