/* SPDX-License-Identifier: BSD-2-Clause */
/* Policies of the kernel for modules. */
#include <stdio.h>

#include "diag/check/row.h"

#define GROUP "Kernel"
#define SECURE_BOOT "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

/* Four bytes of attributes, then the value. Returns 1: on, 0: off, -1: unknown. */
static int secure_boot(const struct pl_check_machine *machine)
{
	unsigned char bytes[5];

	if (pl_sysroot_bytes(machine->root, bytes, sizeof(bytes), SECURE_BOOT) == (int)sizeof(bytes))
		return bytes[4] == 1;
	/* A machine that was not started by EFI has no secure boot. */
	if (check_exists(machine, "sys/firmware") && !check_exists(machine, "sys/firmware/efi"))
		return 0;
	return -1;
}

/* Copies the word in brackets of "none [integrity] confidentiality". */
static bool locked_down(const struct pl_check_machine *machine, char *mode, size_t size)
{
	char text[96], *begin;

	mode[0] = '\0';
	if (check_text(machine, text, "sys/kernel/security/lockdown") <= 0 || !(begin = strchr(text, '[')))
		return false;
	snprintf(mode, size, "%.*s", (int)strcspn(begin + 1, "]"), begin + 1);
	return strcmp(mode, "none") != 0;
}

static void probe_signing(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *rejected = pl_facts_get(machine->facts, "log.key_rejected");
	int secure = secure_boot(machine);
	char mode[32];
	bool locked = locked_down(machine, mode, sizeof(mode));
	/* Only a module that is not loaded can still be refused. */
	bool waiting = check_has_nvidia(machine) && !check_module(machine, "nvidia");

	for (size_t i = 0; i < machine->card_count; i++)
		waiting = waiting || !*machine->cards[i].pci->driver;
	if (rejected)
		pl_check_note(result, PL_CHECK_FAIL, NULL, "a module was refused: %s", rejected);
	else if ((secure == 1 || locked) && waiting)
		pl_check_note(result, PL_CHECK_WARN, NULL,
			      "Secure Boot is %s%s%s: modules without a known signature are refused",
			      secure == 1 ? "on" : "off", locked ? ", lockdown is " : "", mode);
	else if (secure == 1 || locked)
		pl_check_note(result, PL_CHECK_OK, NULL, "Secure Boot is %s%s%s, and the drivers are loaded",
			      secure == 1 ? "on" : "off", locked ? ", lockdown is " : "", mode);
	else if (secure == 0)
		pl_check_note(result, PL_CHECK_OK, NULL, "any module may be loaded");
	else
		pl_check_unknown(result, NULL, "mokutil --sb-state", "whether Secure Boot is on cannot be read");
}

static void probe_symbols(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *unknown = pl_facts_get(machine->facts, "log.unknown_symbol");
	const char *version = pl_facts_get(machine->facts, "log.symbol_version");

	if (!check_has_nvidia(machine) && !machine->card_count)
		return;
	if (unknown || version)
		pl_check_note(result, PL_CHECK_FAIL, NULL, "a module was built for other RDMA drivers: %s",
			      version ? version : unknown);
	else if (pl_facts_get(machine->facts, "log.readable"))
		pl_check_note(result, PL_CHECK_OK, NULL, "no module was refused for a symbol");
	else
		pl_check_unknown(result, NULL,
				 "run it as root, or: sudo dmesg | grep -E 'Unknown symbol|disagrees about'",
				 "the kernel's log was not read");
}

const struct pl_check_row pl_check_rows_system[] = {
	{
		.id = "kernel-signing",
		.group = GROUP,
		.title = "Secure Boot and lockdown",
		.requirement =
			"With Secure Boot on, the modules are signed with a key that is enrolled on the machine.",
		.how = "mokutil --sb-state; /sys/kernel/security/lockdown",
		.reason = "Without such a signature, modprobe fails with \"Key was rejected by service\" or "
			  "\"Operation not permitted\".",
		.remedy = "mokutil --import /var/lib/dkms/mok.pub; on Ubuntu /var/lib/shim-signed/mok/MOK.der; "
			  "reboot, and enrol it there",
		.rank = 8,
		.probe = probe_signing,
	},
	{
		.id = "kernel-symbols",
		.group = GROUP,
		.title = "modules built for each other",
		.requirement = "The peer memory module was built for the RDMA drivers that are loaded.",
		.how = "dmesg: \"Unknown symbol ib_register_peer_memory_client\", \"disagrees about version of "
		       "symbol\"",
		.reason = "After an update of OFED or of the driver, the kernel refuses the module.",
		.remedy = "build the driver's modules again: dkms autoinstall --force; apt install --reinstall "
			  "nvidia-dkms-*",
		.rank = 19,
		.probe = probe_symbols,
	},
	{ .id = NULL },
};
