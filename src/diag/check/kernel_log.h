/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines of the kernel's log about which rows ask. */
#ifndef PL_DIAG_CHECK_KERNEL_LOG_H
#define PL_DIAG_CHECK_KERNEL_LOG_H

#include "diag/check/facts.h"

#define PL_LOG_ADDRESS_MAX 24

struct pl_kernel_log;

struct pl_kernel_log *pl_kernel_log_new(void);
void pl_kernel_log_free(struct pl_kernel_log *log);
/* Takes one record of /dev/kmsg, "priority,number,time,flags;text\n...", in the order of the log. */
void pl_kernel_log_take(struct pl_kernel_log *log, const char *record);
/* Sets log.*. */
void pl_kernel_log_tell(const struct pl_kernel_log *log, struct pl_facts *facts);

/* True if the text is the kernel's line about a GPU of NVIDIA that it found on the PCI bus; copies its address. */
bool pl_kernel_log_found_gpu(const char *text, char address[PL_LOG_ADDRESS_MAX]);

#endif
