/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/check/kernel_log.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define GPUS_MAX 64
#define FELL_OFF "fallen off the bus"
/* The message of each port at boot, "pcieport 0000:00:01.0: AER: enabled with IRQ 34", reports no error. */
#define AER_ENABLED "AER: enabled with IRQ"

/* Relevant lines of the kernel's log: the last one of each kind is kept. */
static const struct {
	const char *key, *text;
} patterns[] = {
	{ "log.oops", "Oops" },
	{ "log.bug", "BUG: " },
	{ "log.xid", "NVRM: Xid" },
	{ "log.gpu_fell_off", FELL_OFF },
	{ "log.dmar", "DMAR: [DMA" },
	{ "log.io_page_fault", "IO_PAGE_FAULT" },
	{ "log.key_rejected", "Key was rejected" },
	{ "log.lockdown", "Lockdown:" },
	{ "log.unknown_symbol", "Unknown symbol ib_register_peer_memory_client" },
	{ "log.symbol_version", "disagrees about version of symbol ib_" },
	{ "log.topology", "topology not supported" },
	{ "log.bar", "can't assign; no space" },
	{ "log.aer", "AER: " },
};

struct logged_gpu {
	char address[PL_LOG_ADDRESS_MAX];
	bool found, fell_off;
};

struct pl_kernel_log {
	char lines[PL_ARRAY_SIZE(patterns)][PL_FACT_VALUE_MAX];
	struct logged_gpu gpus[GPUS_MAX];
	size_t gpu_count;
};

struct pl_kernel_log *pl_kernel_log_new(void)
{
	return calloc(1, sizeof(struct pl_kernel_log));
}

void pl_kernel_log_free(struct pl_kernel_log *log)
{
	free(log);
}

/* Finds a pattern's text at the beginning of a word: "DEBUG: " is no "BUG: ". */
static bool log_line_matches(const char *line, const char *text)
{
	for (const char *at = strstr(line, text); at; at = strstr(at + 1, text))
		if ((at == line || !isalnum((unsigned char)at[-1])) && strncmp(at, AER_ENABLED, strlen(AER_ENABLED)))
			return true;
	return false;
}

/* Parses "DDDD:BB:DD.F", or without the function, as NVRM writes it. */
static bool parse_log_address(const char *text, char address[PL_LOG_ADDRESS_MAX])
{
	unsigned domain, bus, device, function = 0;

	if (sscanf(text, "%8x:%2x:%2x.%1u", &domain, &bus, &device, &function) < 3 || function > 7)
		return false;
	snprintf(address, PL_LOG_ADDRESS_MAX, "%04x:%02x:%02x.%u", domain, bus, device, function);
	return true;
}

bool pl_kernel_log_found_gpu(const char *text, char address[PL_LOG_ADDRESS_MAX])
{
	const char *mark = strstr(text, ": [10de:"), *class = mark ? strstr(mark, " class 0x0300") : NULL, *begin;

	if (mark && !class)
		class = strstr(mark, " class 0x0302");
	/* Type 7f is a virtual function, which comes and goes. */
	if (!class || strstr(mark, " type 7f"))
		return false;
	for (begin = mark; begin > text && begin[-1] != ' '; begin--)
		;
	return begin - text >= 4 && !strncmp(begin - 4, "pci ", 4) && parse_log_address(begin, address);
}

/* Finds the address in "NVRM: Xid (PCI:0000:3d:00): 79, ..." and "NVRM: GPU 0000:3d:00.0: GPU has ...". */
static bool find_lost_gpu(const char *text, char address[PL_LOG_ADDRESS_MAX])
{
	const char *mark = strstr(text, FELL_OFF) ? strstr(text, "(PCI:") : NULL;

	if (mark)
		return parse_log_address(mark + 5, address);
	mark = strstr(text, FELL_OFF) ? strstr(text, "NVRM: GPU ") : NULL;
	return mark && parse_log_address(mark + 10, address);
}

static struct logged_gpu *find_logged_gpu(struct pl_kernel_log *log, const char *address)
{
	for (size_t i = 0; i < log->gpu_count; i++)
		if (!strcmp(log->gpus[i].address, address))
			return &log->gpus[i];
	if (log->gpu_count == GPUS_MAX)
		return NULL;
	snprintf(log->gpus[log->gpu_count].address, PL_LOG_ADDRESS_MAX, "%s", address);
	return &log->gpus[log->gpu_count++];
}

void pl_kernel_log_take(struct pl_kernel_log *log, const char *record)
{
	const char *text = strchr(record, ';');
	char line[PL_FACT_VALUE_MAX], address[PL_LOG_ADDRESS_MAX];
	struct logged_gpu *gpu;

	text = text ? text + 1 : record;
	/* Properties of the device follow on lines of their own. */
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
	for (size_t i = 0; i < PL_ARRAY_SIZE(patterns); i++)
		if (log_line_matches(line, patterns[i].text))
			memcpy(log->lines[i], line, sizeof(line));
	if (pl_kernel_log_found_gpu(line, address) && (gpu = find_logged_gpu(log, address))) {
		/* Found again by a rescan. */
		gpu->found = true;
		gpu->fell_off = false;
	} else if (find_lost_gpu(line, address) && (gpu = find_logged_gpu(log, address))) {
		gpu->fell_off = true;
	}
}

void pl_kernel_log_tell(const struct pl_kernel_log *log, struct pl_facts *facts)
{
	char key[PL_FACT_KEY_MAX];

	for (size_t i = 0; i < PL_ARRAY_SIZE(patterns); i++)
		if (log->lines[i][0])
			pl_facts_set(facts, patterns[i].key, "%s", log->lines[i]);
	for (size_t i = 0; i < log->gpu_count; i++) {
		snprintf(key, sizeof(key), "log.gpu.%s", log->gpus[i].address);
		pl_facts_set(facts, key, "%s", log->gpus[i].fell_off ? "fell off" : "found");
	}
}
