/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of NVML for the NVLinks of a GPU: "up VERSION END ADDRESS" or "down". */
#include "diag/check/nvml.h"

#include <dlfcn.h>

/* Above the most links that a GPU has, which is 18. NVML answers with an error for links that a GPU lacks. */
#define LINKS_MAX 36

typedef int (*function_link_value)(void *device, unsigned link, unsigned *value);
typedef int (*function_link_pci)(void *device, unsigned link, struct nvml_pci *pci);
typedef int (*function_capability)(void *device, int *major, int *minor);

/* nvmlIntNvLinkDeviceType_t */
static const char *name_link_end(unsigned type)
{
	static const char *const names[] = { "gpu", "cpu", "switch" };

	return type < sizeof(names) / sizeof(*names) ? names[type] : "unknown";
}

static void tell_active_link(void *library, void *device, unsigned link, FILE *to)
{
	function_link_value get_version = (function_link_value)dlsym(library, "nvmlDeviceGetNvLinkVersion");
	function_link_value get_type = (function_link_value)dlsym(library, "nvmlDeviceGetNvLinkRemoteDeviceType");
	function_link_pci get_remote = (function_link_pci)dlsym(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
	unsigned version = 0, type = ~0u;
	struct nvml_pci remote;

	if (!get_version || get_version(device, link, &version))
		version = 0;
	if (!get_type || get_type(device, link, &type))
		type = ~0u;
	fprintf(to, "up %u %s ", version, name_link_end(type));
	/* Switches that a virtual machine does not see have an address of ones only. */
	if (!get_remote || get_remote(device, link, &remote) || (remote.bus >= 0xff && remote.device > 0x1f))
		fprintf(to, "-\n");
	else
		fprintf(to, "%04x:%02x:%02x.0\n", remote.domain, remote.bus, remote.device);
}

void nvml_tell_links(void *library, void *device, const char *id, FILE *to)
{
	function_link_value get_state = (function_link_value)dlsym(library, "nvmlDeviceGetNvLinkState");
	function_capability get_capability = (function_capability)dlsym(library, "nvmlDeviceGetCudaComputeCapability");
	int major, minor;
	unsigned active;

	if (!get_state)
		return;
	if (get_capability && get_capability(device, &major, &minor) == 0)
		fprintf(to, "nvml.gpu.%s.capability %d\n", id, major * 10 + minor);
	for (unsigned link = 0; link < LINKS_MAX; link++) {
		if (get_state(device, link, &active))
			continue;
		fprintf(to, "nvml.gpu.%s.nvlink.%u ", id, link);
		if (active)
			tell_active_link(library, device, link, to);
		else
			fprintf(to, "down\n");
	}
}
