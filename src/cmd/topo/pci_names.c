/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/topo/pci_names.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PL_HAVE_PCI
#include <pci/pci.h>

#include "cmd/common/cli.h"
#endif

struct pci_names {
#ifdef PL_HAVE_PCI
	struct pci_access *access;
	__typeof__(&pci_cleanup) cleanup;
	__typeof__(&pci_lookup_name) lookup;
#endif
	void *library;
};

#ifdef PL_HAVE_PCI
/* Error callback.  pci_alloc() and pci_lookup_name() call it only if out of memory. */
static void __attribute__((noreturn)) exit_on_libpci_error(char *format, ...)
{
	(void)format;
	fputs("peerlane: libpci failed: try --numeric\n", stderr);
	exit(CLI_FAILED);
}

static void ignore_libpci_message(char *format, ...)
{
	(void)format;
}

/*
 * Loads libpci for its names only.  Names need no access to the bus, so pci_init() is not called, and the callbacks for
 * messages are set here instead.
 */
static void load_libpci(struct pci_names *names)
{
	void *library = dlopen("libpci.so.3", RTLD_NOW | RTLD_LOCAL);
	__typeof__(&pci_alloc) alloc;

	if (!library)
		return;
	*(void **)&alloc = dlsym(library, "pci_alloc");
	*(void **)&names->cleanup = dlsym(library, "pci_cleanup");
	*(void **)&names->lookup = dlsym(library, "pci_lookup_name");
	if (alloc && names->cleanup && names->lookup)
		names->access = alloc();
	if (names->access) {
		names->access->error = exit_on_libpci_error;
		names->access->warning = names->access->debug = ignore_libpci_message;
	}
	names->library = library;
}

static bool look_up_pci_name(struct pci_names *names, uint16_t vendor, uint16_t device, char *buffer, size_t size)
{
	const char *found;

	if (!names || !names->access)
		return false;
	/* Each lookup through libudev leaks 16 bytes on hosts without an hwdb file; pci.ids has the same names. */
	found = names->lookup(names->access, buffer, (int)size,
			      PCI_LOOKUP_DEVICE | PCI_LOOKUP_NO_NUMBERS | PCI_LOOKUP_NO_HWDB, vendor, device);
	if (!found || !*found)
		return false;
	if (found != buffer)
		snprintf(buffer, size, "%s", found);
	return true;
}
#else
static void load_libpci(struct pci_names *names)
{
	(void)names;
}

static bool look_up_pci_name(struct pci_names *names, uint16_t vendor, uint16_t device, char *buffer, size_t size)
{
	(void)names, (void)vendor, (void)device, (void)buffer, (void)size;
	return false;
}
#endif

struct pci_names *pci_names_open(bool numeric)
{
	struct pci_names *names = calloc(1, sizeof(*names));

	if (names && !numeric)
		load_libpci(names);
	return names;
}

void pci_names_close(struct pci_names *names)
{
	if (!names)
		return;
#ifdef PL_HAVE_PCI
	if (names->access)
		names->cleanup(names->access);
#endif
	if (names->library)
		dlclose(names->library);
	free(names);
}

static const char *pci_vendor_prefix(uint16_t vendor)
{
	switch (vendor) {
	case 0x1002:
		return "AMD ";
	case 0x10de:
		return "NVIDIA ";
	case 0x14e4:
		return "Broadcom ";
	case 0x15b3:
		return "Mellanox ";
	case 0x1d0f:
		return "Amazon ";
	case 0x8086:
		return "Intel ";
	default:
		return "";
	}
}

/* Shortens "GH100 [H100 SXM5 80GB]" to the product name in the brackets. */
static void keep_bracketed_name(char *text)
{
	char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;

	if (!close || close == open + 1)
		return;
	*close = '\0';
	memmove(text, open + 1, strlen(open + 1) + 1);
}

const char *pci_names_device(struct pci_names *names, uint16_t vendor, uint16_t device, char *buffer, size_t size)
{
	if (vendor && look_up_pci_name(names, vendor, device, buffer, size))
		keep_bracketed_name(buffer);
	else if (vendor)
		snprintf(buffer, size, "%s%04x:%04x", pci_vendor_prefix(vendor), vendor, device);
	else
		snprintf(buffer, size, "unknown");
	return buffer;
}
