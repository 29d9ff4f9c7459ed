/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts that the kernel tells this user. */
#include "diag/check/probe.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define LOG_TIME (200 * PL_NS_PER_MS)

/* Relevant lines of the kernel's log: the last one of each kind is kept. */
static const struct {
	const char *key, *text;
} patterns[] = {
	{ "log.oops", "Oops" },
	{ "log.bug", "BUG: " },
	{ "log.xid", "NVRM: Xid" },
	{ "log.gpu_fell_off", "fallen off the bus" },
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

static void note_log_line(char (*found)[PL_FACT_VALUE_MAX], const char *record)
{
	const char *text = strchr(record, ';');

	text = text ? text + 1 : record;
	for (size_t i = 0; i < PL_ARRAY_SIZE(patterns); i++)
		if (strstr(text, patterns[i].text))
			snprintf(found[i], PL_FACT_VALUE_MAX, "%.*s", (int)strcspn(text, "\n"), text);
}

/* Each read(2) of /dev/kmsg returns one record, "priority,number,time,flags;text\n...". */
static void read_log(struct pl_facts *facts)
{
	char found[PL_ARRAY_SIZE(patterns)][PL_FACT_VALUE_MAX] = { "" }, record[8192];
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	uint64_t deadline = pl_now() + LOG_TIME;
	ssize_t got;

	if (fd < 0)
		return;
	do {
		got = read(fd, record, sizeof(record) - 1);
		if (got > 0) {
			record[got] = '\0';
			note_log_line(found, record);
		}
		/* EPIPE: records were overwritten meanwhile. */
	} while ((got > 0 || (got < 0 && errno == EPIPE)) && pl_now() < deadline);
	if (got == 0 || errno == EAGAIN)
		pl_facts_set(facts, "log.readable", "1");
	close(fd);
	for (size_t i = 0; i < PL_ARRAY_SIZE(patterns); i++)
		if (found[i][0])
			pl_facts_set(facts, patterns[i].key, "%s", found[i]);
}

/*
 * Searches the kernel for the interface of peer memory clients. The file has 10 MB, so only machines with RDMA read it.
 */
static void read_symbols(struct pl_facts *facts)
{
	FILE *file = access("/sys/module/ib_core", F_OK) ? NULL : fopen("/proc/kallsyms", "re");
	static const char name[] = " ib_register_peer_memory_client";
	bool found = false, any = false;
	char line[512];

	if (!file)
		return;
	while (!found && fgets(line, sizeof(line), file)) {
		any = true;
		found = strstr(line, name) != NULL;
	}
	fclose(file);
	if (any)
		pl_facts_set(facts, "kallsyms.peer_memory", "%d", (int)found);
}

static unsigned count_uverbs(const char *process)
{
	char path[600], target[64];
	struct dirent *entry;
	unsigned count = 0;
	ssize_t length;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%.20s/fd", process);
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		snprintf(path, sizeof(path), "/proc/%.20s/fd/%.255s", process, entry->d_name);
		length = readlink(path, target, sizeof(target));
		if (length > 0)
			count += length >= 22 && !memcmp(target, "/dev/infiniband/uverbs", 22);
	}
	if (folder)
		closedir(folder);
	return count;
}

/* Counts processes that have an RDMA device open; only root sees those of other users. */
static void count_holders(struct pl_facts *facts)
{
	DIR *folder = geteuid() == 0 ? opendir("/proc") : NULL;
	struct dirent *entry;
	unsigned holders = 0;

	if (!folder)
		return;
	while ((entry = readdir(folder)))
		if (isdigit((unsigned char)entry->d_name[0]) && count_uverbs(entry->d_name))
			holders++;
	closedir(folder);
	pl_facts_set(facts, "pins.holders", "%u", holders);
}

void pl_probe_kernel(struct pl_facts *facts)
{
	read_log(facts);
	read_symbols(facts);
	if (access("/sys/kernel/mm/memory_peers", F_OK) == 0)
		count_holders(facts);
}
