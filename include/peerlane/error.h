/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors of Peerlane.
 *
 * Every function that can fail returns 0 (or a count) on success and a negative errno value on
 * failure.  A function with a `struct pl_error *` parameter fills the structure on failure only.
 * NULL means that the caller wants no detail.  The structure owns no memory and can be copied.
 */
#ifndef PEERLANE_ERROR_H
#define PEERLANE_ERROR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Description of a failure: the call, its object, the fact and a remedy.
 *
 * `id` is stable across releases; peerlane-errors(7) explains each one.  Compare `id` or `code`, never
 * `message`.  All strings are NUL-terminated, may be empty and are truncated to fit.
 */
struct pl_error {
	int code;          /**< negative errno */
	char id[24];       /**< stable identifier, for example "AUTH-KEY-MISMATCH" */
	char call[40];     /**< the call that failed, for example "connect" */
	char object[80];   /**< object of the call: an address, a region, a device */
	char message[176]; /**< what happened */
	char hint[176];    /**< remedy; empty if there is none */
};

/**
 * Writes an error as text of one to two lines ("object: call: message [id]\n  hint: ...").
 *
 * @param error   the error to describe; not NULL
 * @param buffer  receives the text; NUL-terminated if size > 0
 * @param size    bytes in buffer
 * @return length of the complete text in bytes, as snprintf(3) does
 *
 * Thread-safe.  Never fails.
 */
int pl_error_format(const struct pl_error *error, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
