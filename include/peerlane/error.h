/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors of Peerlane.
 *
 * Every function that can fail returns 0 (or a count) on success and a negative errno value on
 * failure.  Where a function takes a `struct pl_error *`, it fills it on failure only; NULL means
 * that the caller wants no detail.  The structure owns no memory: copy it, keep it, drop it.
 */
#ifndef PEERLANE_ERROR_H
#define PEERLANE_ERROR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Error: the failed call, its object, the fact and the remedy.
 *
 * `id` is stable across releases and is the key of peerlane-errors(7): match on it (or on `code`), never on `message`.
 * All strings are NUL-terminated, may be empty and are cut to fit; a long object begins with "..." and keeps its end.
 */
struct pl_error {
	int code;          /**< negative errno */
	char id[24];       /**< stable identifier, for example "AUTH-KEY-MISMATCH" */
	char call[40];     /**< failed call, for example "connect" */
	char object[80];   /**< object of the call: an address, a region, a device */
	char message[176]; /**< the fact */
	char hint[176];    /**< the remedy; empty if there is none */
};

/**
 * Writes an error as text of one to two lines ("object: call: message [id]\n hint: ...").
 *
 * @param error  the error to describe; not NULL
 * @param buffer  receives the text, always NUL-terminated if size > 0
 * @param size  bytes in buffer
 * @return the length of the whole text in bytes, as snprintf(3) does
 *
 * Thread-safe. Never fails.
 */
int pl_error_format(const struct pl_error *error, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
