/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of NVML for each GPU: BAR1, MIG, virtualisation, NVLinks; and confidential computing of the machine. */
#include "diag/check/probe.h"

#include <dlfcn.h>

#include "diag/check/nvml.h"

struct bar1 {
	unsigned long long total, free, used;
};

typedef int (*function_void)(void);
typedef int (*function_count)(unsigned *count);
typedef int (*function_handle)(unsigned index, void **device);
typedef int (*function_pci)(void *device, struct nvml_pci *pci);
typedef int (*function_bar1)(void *device, struct bar1 *bar1);
typedef int (*function_two)(void *device, unsigned *current, unsigned *pending);
typedef int (*function_one)(void *device, unsigned *value);
typedef int (*function_text)(char *text, unsigned length);
typedef int (*function_state)(unsigned state[4]);

static void tell_nvml_device(void *library, void *device, FILE *to)
{
	function_pci get_pci = (function_pci)dlsym(library, "nvmlDeviceGetPciInfo_v3");
	function_bar1 get_bar1 = (function_bar1)dlsym(library, "nvmlDeviceGetBAR1MemoryInfo");
	function_two get_mig = (function_two)dlsym(library, "nvmlDeviceGetMigMode");
	function_one get_mode = (function_one)dlsym(library, "nvmlDeviceGetVirtualizationMode");
	unsigned current, pending, mode;
	struct bar1 bar1;
	struct nvml_pci pci;
	char id[32];

	if (!get_pci || get_pci(device, &pci))
		return;
	snprintf(id, sizeof(id), "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
	if (get_bar1 && get_bar1(device, &bar1) == 0) {
		fprintf(to, "nvml.gpu.%s.bar1_total %llu\n", id, bar1.total);
		fprintf(to, "nvml.gpu.%s.bar1_used %llu\n", id, bar1.used);
	}
	/* GPUs without MIG return an error. */
	fprintf(to, "nvml.gpu.%s.mig %u\n", id, get_mig && get_mig(device, &current, &pending) == 0 ? current : 0);
	if (get_mode && get_mode(device, &mode) == 0)
		fprintf(to, "nvml.gpu.%s.virtualization %u\n", id, mode);
	nvml_tell_links(library, device, id, to);
}

void pl_probe_nvml(FILE *to, const void *argument)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), *device;
	function_void start = library ? (function_void)dlsym(library, "nvmlInit_v2") : NULL;
	function_count get_count = library ? (function_count)dlsym(library, "nvmlDeviceGetCount_v2") : NULL;
	function_handle get = library ? (function_handle)dlsym(library, "nvmlDeviceGetHandleByIndex_v2") : NULL;
	function_text get_version;
	function_state get_state;
	unsigned count = 0, state[4] = { 0 };
	char version[96] = "";
	int rc;

	(void)argument;
	if (!start || !get_count || !get)
		return;
	rc = start();
	fprintf(to, "nvml.init %d\n", rc);
	if (rc)
		return;
	get_version = (function_text)dlsym(library, "nvmlSystemGetDriverVersion");
	if (get_version && get_version(version, sizeof(version)) == 0)
		fprintf(to, "nvml.driver %s\n", version);
	/* environment, ccFeature, devToolsMode: the second one tells whether it is on. */
	get_state = (function_state)dlsym(library, "nvmlSystemGetConfComputeState");
	if (get_state && get_state(state) == 0)
		fprintf(to, "nvml.confidential %u\n", state[1]);
	if (get_count(&count))
		return;
	for (unsigned i = 0; i < count; i++)
		if (get(i, &device) == 0)
			tell_nvml_device(library, device, to);
}
