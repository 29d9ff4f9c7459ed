/* SPDX-License-Identifier: BSD-2-Clause */
/* The last different errors of a context. */
#include "core/error_log.h"

void pl_error_log_init(struct pl_error_log *log, const struct pl_allocator *allocator)
{
	pthread_mutex_init(&log->lock, NULL);
	log->allocator = allocator;
}

void pl_error_log_destroy(struct pl_error_log *log)
{
	pl_free(log->allocator, log->errors);
	pthread_mutex_destroy(&log->lock);
}

static struct pl_error *error_slot(struct pl_error_log *log, uint32_t number)
{
	return &log->errors[number % PL_ERROR_LOG_SIZE];
}

/* True if the log still has the error of this number. */
static bool error_number_known(const struct pl_error_log *log, uint32_t number)
{
	return log->errors && number && log->last - number < PL_ERROR_LOG_SIZE && number <= log->last;
}

static bool errors_equal(const struct pl_error *a, const struct pl_error *b)
{
	return a->code == b->code && !strcmp(a->id, b->id) && !strcmp(a->call, b->call) &&
	       !strcmp(a->object, b->object) && !strcmp(a->message, b->message) && !strcmp(a->hint, b->hint);
}

/* Returns the number of an equal error, searching from the newest; 0: none. */
static uint32_t find_equal_error(struct pl_error_log *log, const struct pl_error *error)
{
	for (uint32_t number = log->last; error_number_known(log, number); number--) {
		if (errors_equal(error_slot(log, number), error))
			return number;
	}
	return 0;
}

uint32_t pl_error_log_add(struct pl_error_log *log, const struct pl_error *error)
{
	uint32_t number = 0;

	pthread_mutex_lock(&log->lock);
	if (!log->errors)
		log->errors = pl_zalloc(log->allocator, PL_ERROR_LOG_SIZE * sizeof(*log->errors));
	if (log->errors) {
		number = find_equal_error(log, error);
		if (!number) {
			/* After 2^32 - 1 errors the numbers begin anew; older numbers are then unknown. */
			number = log->last = log->last == UINT32_MAX ? 1 : log->last + 1;
			*error_slot(log, number) = *error;
		}
	}
	pthread_mutex_unlock(&log->lock);
	return number;
}

bool pl_error_log_find(struct pl_error_log *log, uint32_t number, struct pl_error *error)
{
	bool found;

	pthread_mutex_lock(&log->lock);
	found = error_number_known(log, number);
	if (found)
		*error = *error_slot(log, number);
	pthread_mutex_unlock(&log->lock);
	return found;
}
