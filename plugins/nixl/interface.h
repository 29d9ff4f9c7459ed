/* SPDX-License-Identifier: BSD-2-Clause */
/* NIXL's interface: its own headers in a build for one release (meson option nixl), otherwise that of NIXL 1.0 to 1.4. */
#ifndef PLUGIN_NIXL_INTERFACE_H
#define PLUGIN_NIXL_INTERFACE_H

#ifdef PLUGIN_NIXL_HEADERS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wextra"
#include "backend/backend_plugin.h"
#pragma GCC diagnostic pop
#else
#include "nixl.h"
#define PLUGIN_NIXL_VERSION "1.0 to 1.4"
#endif

#endif
