/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Included by the build before every file of the library, which is compiled with hidden visibility:
 * what the public headers declare is what the shared library exports.  The headers themselves stay
 * free of export macros.
 */
#ifndef PL_EXPORT_H
#define PL_EXPORT_H

#pragma GCC visibility push(default)
#include <peerlane/error.h>
#include <peerlane/peerlane.h>
#pragma GCC visibility pop

#endif
