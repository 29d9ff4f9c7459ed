/* SPDX-License-Identifier: BSD-2-Clause */
/* Process of a measurement: its signals, its processor time, the address of a server. */
#ifndef PL_BENCH_COMMON_PROCESS_H
#define PL_BENCH_COMMON_PROCESS_H

#include "cmd/common/cli.h"

/* Hint of errors between client and server. */
#define BENCH_VERSION_HINT "use the same version of Peerlane for client and server"

/* Blocks SIGINT and SIGTERM in this thread and in threads that it starts; bench_signal_pending() polls for them. */
void bench_block_signals(void);
bool bench_signal_pending(void);
/*
 * Replaces the error of a failed measurement if a signal is pending.  Ctrl-C also ends a local server, whose loss is
 * not the reason then.
 */
void bench_name_signal(struct pl_error *error);

/* Returns the processor time of this process, in nanoseconds. */
uint64_t bench_processor_time(void);

/* Returns the address that a server listens on by default: without a key only that of loopback. */
const char *bench_default_address(const struct cli_options *options);
/* Writes the listener's address to descriptor `announce` and closes it; if that is -1, prints the address. */
void bench_announce_address(const struct cli_options *options, int announce, struct pl_listener *listener);

#endif
