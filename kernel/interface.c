/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Compile-time comparison of this module's declarations with OFED's and the driver's headers, if installed.  The file
 * does not compile if a type or a layout differs.  It contains no code.
 */
#include <linux/compiler.h>
#include <linux/scatterlist.h>
#include <linux/types.h>

#ifdef PM_OFED_HEADER
#include PM_OFED_HEADER
#define PM_THEIR_PEER_MEMORY
#endif
#include "peer_memory.h"

#ifdef PM_DRIVER_HEADER
#include PM_DRIVER_HEADER
#define PM_THEIR_P2P
#endif
#include "nvidia_p2p.h"
