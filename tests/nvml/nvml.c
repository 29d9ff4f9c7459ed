/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stand-in for NVML.  The variable NVML_STANDIN describes its GPUs, separated by ';':
 *
 *     ADDRESS CAPABILITY [LINKS ...]
 *
 * LINKS is COUNT,down or COUNT,VERSION,TYPE,ADDRESS: the numbers of nvmlNvlinkVersion_t and nvmlIntNvLinkDeviceType_t,
 * and the address of the other end, or "-" for one that is hidden.  Without the variable there is no GPU.  With NVML_OLD
 * the library has no functions for NVLink.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 16
#define LINKS_MAX 18

enum { SUCCESS, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };

struct pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[32];
};

struct link {
	unsigned up, version, type;
	char remote[32]; /* empty: hidden */
};

struct device {
	char address[32];
	int capability;
	struct link links[LINKS_MAX];
	unsigned link_count;
};

static struct device devices[DEVICES_MAX];
static unsigned device_count;

static void add_links(struct device *device, const char *text)
{
	struct link link = { .up = 1 };
	unsigned count;

	if (sscanf(text, "%u,%u,%u,%31s", &count, &link.version, &link.type, link.remote) != 4) {
		link = (struct link){ .up = 0 };
		count = (unsigned)strtoul(text, NULL, 10);
	}
	if (!strcmp(link.remote, "-"))
		link.remote[0] = '\0';
	while (count-- && device->link_count < LINKS_MAX)
		device->links[device->link_count++] = link;
}

static void add_device(char *text)
{
	struct device *device = &devices[device_count];
	char *rest, *word = strtok_r(text, " ", &rest);

	if (!word || device_count == DEVICES_MAX)
		return;
	device_count++;
	snprintf(device->address, sizeof(device->address), "%s", word);
	word = strtok_r(NULL, " ", &rest);
	device->capability = word ? atoi(word) : 0;
	while ((word = strtok_r(NULL, " ", &rest)))
		add_links(device, word);
}

int nvmlInit_v2(void)
{
	char *text = strdup(getenv("NVML_STANDIN") ? getenv("NVML_STANDIN") : ""), *rest, *one;

	device_count = 0;
	memset(devices, 0, sizeof(devices));
	for (one = text ? strtok_r(text, ";", &rest) : NULL; one; one = strtok_r(NULL, ";", &rest))
		add_device(one);
	free(text);
	return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	*count = device_count;
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	if (index >= device_count)
		return INVALID_ARGUMENT;
	*device = &devices[index];
	return SUCCESS;
}

static int parse_address(const char *text, struct pci *pci)
{
	memset(pci, 0, sizeof(*pci));
	return sscanf(text, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) == 3 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci)
{
	return parse_address(((struct device *)handle)->address, pci);
}

#ifndef NVML_OLD
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
	const struct device *device = handle;

	*major = device->capability / 10;
	*minor = device->capability % 10;
	return device->capability ? SUCCESS : NOT_SUPPORTED;
}

/* Finds a link that works, about which NVML has answers. */
static const struct link *find_link(void *handle, unsigned link)
{
	const struct device *device = handle;

	return link < device->link_count && device->links[link].up ? &device->links[link] : NULL;
}

int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active)
{
	if (link >= LINKS_MAX)
		return INVALID_ARGUMENT;
	if (link >= ((const struct device *)handle)->link_count)
		return NOT_SUPPORTED;
	*active = find_link(handle, link) != NULL;
	return SUCCESS;
}

int nvmlDeviceGetNvLinkVersion(void *handle, unsigned link, unsigned *version)
{
	const struct link *at = find_link(handle, link);

	*version = at ? at->version : 0;
	return at ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, unsigned *type)
{
	const struct link *at = find_link(handle, link);

	*type = at ? at->type : 255;
	return at ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, struct pci *pci)
{
	const struct link *at = find_link(handle, link);

	if (!at)
		return NOT_SUPPORTED;
	if (at->remote[0])
		return parse_address(at->remote, pci);
	*pci = (struct pci){ .domain = 0xfffffff, .bus = 0xff, .device = 0xff };
	return SUCCESS;
}
#endif
