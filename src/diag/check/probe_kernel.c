/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts that the kernel tells this user. */
#include "diag/check/probe.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "diag/check/kernel_log.h"

#define LOG_TIME (200 * PL_NS_PER_MS)

/* Each read(2) of /dev/kmsg returns one record, "priority,number,time,flags;text\n...". */
static void read_log(struct pl_facts *facts)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct pl_kernel_log *log = fd < 0 ? NULL : pl_kernel_log_new();
	uint64_t deadline = pl_now() + LOG_TIME;
	char record[8192];
	ssize_t got;

	if (!log) {
		if (fd >= 0)
			close(fd);
		return;
	}
	do {
		got = read(fd, record, sizeof(record) - 1);
		if (got > 0) {
			record[got] = '\0';
			pl_kernel_log_take(log, record);
		}
		/* EPIPE: records were overwritten meanwhile. */
	} while ((got > 0 || (got < 0 && errno == EPIPE)) && pl_now() < deadline);
	if (got == 0 || errno == EAGAIN)
		pl_facts_set(facts, "log.readable", "1");
	close(fd);
	pl_kernel_log_tell(log, facts);
	pl_kernel_log_free(log);
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
