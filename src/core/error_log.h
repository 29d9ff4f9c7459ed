/* SPDX-License-Identifier: BSD-2-Clause */
/* The last different errors of a context.  A completion of pl_poll() names its error by a number. */
#ifndef PL_CORE_ERROR_LOG_H
#define PL_CORE_ERROR_LOG_H

#include <pthread.h>

#include "base/base.h"

/* Errors that a log keeps, as pl_completion_error() promises. */
#define PL_ERROR_LOG_SIZE 128

/* Ring of errors.  The error of number n is in slot n % PL_ERROR_LOG_SIZE.  Number 0 names no error. */
struct pl_error_log {
	pthread_mutex_t lock;
	const struct pl_allocator *allocator;
	struct pl_error *errors; /* NULL until the first error */
	uint32_t last;           /* number of the newest error; 0: none */
};

void pl_error_log_init(struct pl_error_log *log, const struct pl_allocator *allocator);
void pl_error_log_destroy(struct pl_error_log *log);

/* Adds an error, or finds an equal one.  Returns its number; 0 if there is no memory.  Any thread. */
uint32_t pl_error_log_add(struct pl_error_log *log, const struct pl_error *error);

/* Copies the error of a number.  Returns false, with `error` unchanged, if the log no longer has it.  Any thread. */
bool pl_error_log_find(struct pl_error_log *log, uint32_t number, struct pl_error *error);

#endif
