/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Default visibility for the public functions. The build includes this file before every file of the library, and
 * compiles the library with hidden visibility. The shared library therefore exports the functions of the public headers
 * only. The headers need no export macros.
 */
#ifndef PL_EXPORT_H
#define PL_EXPORT_H

#pragma GCC visibility push(default)
#include <peerlane/counters.h>
#include <peerlane/error.h>
#include <peerlane/peerlane.h>
#include <peerlane/stream.h>
#pragma GCC visibility pop

#endif
