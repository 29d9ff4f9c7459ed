/* SPDX-License-Identifier: BSD-2-Clause */
/* Declarations of NVML for its probes: libnvidia-ml.so.1 is loaded at run time, and its header is not needed. */
#ifndef PL_DIAG_CHECK_NVML_H
#define PL_DIAG_CHECK_NVML_H

#include <stdio.h>

/* nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3 and nvmlDeviceGetNvLinkRemotePciInfo_v2. */
struct nvml_pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[32];
};

/* Writes the facts nvml.gpu.ID.nvlink.N of a GPU; none if the library has no functions for NVLink. */
void nvml_tell_links(void *library, void *device, const char *id, FILE *to);

#endif
