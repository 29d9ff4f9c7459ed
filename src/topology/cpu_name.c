/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel tells the name of most processors, and numbers of those of Arm's architecture (MIDR_EL1). */
#include "topology/cpu_name.h"

#include <stdio.h>
#include <stdlib.h>

/* Processors of servers. Sources: Arm's Technical Reference Manuals, MIDR_EL1; Linux, arch/arm64/include/asm/cputype.h. */
static const struct {
	unsigned implementer, part;
	const char *name;
} arm_names[] = {
	{ 0x41, 0xd07, "Cortex-A57" },
	{ 0x41, 0xd08, "Cortex-A72" },
	{ 0x41, 0xd0c, "Neoverse-N1" },
	{ 0x41, 0xd40, "Neoverse-V1" },
	{ 0x41, 0xd49, "Neoverse-N2" },
	{ 0x41, 0xd4f, "Neoverse-V2" },
	{ 0x41, 0xd84, "Neoverse-V3" },
	{ 0x41, 0xd8e, "Neoverse-N3" },
	{ 0x43, 0x0af, "ThunderX2" },
	{ 0x46, 0x001, "A64FX" },
	{ 0x48, 0xd01, "TaiShan-v110" },
	{ 0x4e, 0x004, "Carmel" },
	{ 0xc0, 0xac3, "Ampere-1" },
	{ 0xc0, 0xac4, "Ampere-1a" },
};

void pl_cpuinfo_value(const char *cpuinfo, const char *name, char *to, size_t size)
{
	size_t length = strlen(name);

	to[0] = '\0';
	for (const char *line = cpuinfo; line; line = strchr(line, '\n')) {
		const char *value;

		line += *line == '\n';
		if (strncmp(line, name, length))
			continue;
		value = line + length + strspn(line + length, " \t");
		if (*value != ':')
			continue;
		value += 1 + strspn(value + 1, " \t");
		snprintf(to, size, "%.*s", (int)strcspn(value, "\n"), value);
		return;
	}
}

static void name_arm(const char *cpuinfo, char *to, size_t size)
{
	char implementer[16], part[16];
	unsigned long numbers[2];

	pl_cpuinfo_value(cpuinfo, "CPU implementer", implementer, sizeof(implementer));
	pl_cpuinfo_value(cpuinfo, "CPU part", part, sizeof(part));
	if (!implementer[0] || !part[0])
		return;
	numbers[0] = strtoul(implementer, NULL, 0);
	numbers[1] = strtoul(part, NULL, 0);
	for (size_t i = 0; i < PL_ARRAY_SIZE(arm_names); i++)
		if (arm_names[i].implementer == numbers[0] && arm_names[i].part == numbers[1])
			snprintf(to, size, "%s", arm_names[i].name);
	if (!to[0])
		snprintf(to, size, "ARM implementer 0x%lx part 0x%lx", numbers[0], numbers[1]);
}

void pl_cpu_name(const char *cpuinfo, char *to, size_t size)
{
	pl_cpuinfo_value(cpuinfo, "model name", to, size);
	if (!to[0])
		pl_cpuinfo_value(cpuinfo, "cpu", to, size); /* POWER */
	if (!to[0])
		name_arm(cpuinfo, to, size);
}

void pl_cpu_name_here(char *to, size_t size)
{
	char text[PL_CPUINFO_SIZE + 1];

	pl_read_head("/proc/cpuinfo", text, sizeof(text));
	pl_cpu_name(text, to, size);
}
