/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts of the process: user, rights, usable addresses, search path. */
#include "diag/check/probe.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CAPABILITY_IPC_LOCK 14

static void who(struct pl_facts *facts)
{
	struct utsname name;

	pl_facts_set(facts, "process.live", "1");
	pl_facts_set(facts, "process.euid", "%u", (unsigned)geteuid());
	if (uname(&name) == 0) {
		pl_facts_set(facts, "system.name", "%s", name.sysname);
		pl_facts_set(facts, "system.release", "%s", name.release);
		pl_facts_set(facts, "system.machine", "%s", name.machine);
	}
}

static void tell_limit(struct pl_facts *facts, const char *key, rlim_t value)
{
	if (value == RLIM_INFINITY)
		pl_facts_set(facts, key, "unlimited");
	else
		pl_facts_set(facts, key, "%llu", (unsigned long long)value);
}

static void limits(struct pl_facts *facts)
{
	unsigned long long effective;
	struct rlimit memlock;
	char line[128];
	FILE *file;

	if (getrlimit(RLIMIT_MEMLOCK, &memlock) == 0) {
		tell_limit(facts, "limit.memlock", memlock.rlim_cur);
		tell_limit(facts, "limit.memlock_hard", memlock.rlim_max);
	}
	file = fopen("/proc/self/status", "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			pl_facts_set(facts, "process.ipc_lock", "%d", (int)(effective >> CAPABILITY_IPC_LOCK & 1));
	if (file)
		fclose(file);
}

/* Tells whether the process may open the device nodes: "0", or an errno. */
static void nodes(struct pl_facts *facts)
{
	DIR *folder = opendir("/dev/infiniband");
	char path[300], key[PL_FACT_KEY_MAX];
	struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/%s", entry->d_name);
		snprintf(key, sizeof(key), "node.%.60s", entry->d_name);
		pl_facts_set(facts, key, "%d", access(path, R_OK | W_OK) ? errno : 0);
	}
	if (folder)
		closedir(folder);
}

static void addresses(struct pl_facts *facts)
{
	char key[PL_FACT_KEY_MAX], text[INET6_ADDRSTRLEN];
	struct ifaddrs *all = NULL;
	const void *bytes;
	int family;

	if (getifaddrs(&all))
		return;
	for (struct ifaddrs *one = all; one; one = one->ifa_next) {
		family = one->ifa_addr ? one->ifa_addr->sa_family : AF_UNSPEC;
		if (family == AF_INET)
			bytes = &((struct sockaddr_in *)one->ifa_addr)->sin_addr;
		else if (family == AF_INET6)
			bytes = &((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr;
		else
			continue;
		/* The first address of each kind is enough: only its existence matters. */
		snprintf(key, sizeof(key), "net.%.40s.%s", one->ifa_name, family == AF_INET ? "ipv4" : "ipv6");
		if (inet_ntop(family, bytes, text, sizeof(text)))
			pl_facts_set(facts, key, "%s", text);
	}
	pl_facts_set(facts, "net.known", "1");
	freeifaddrs(all);
}

static void search_path(struct pl_facts *facts)
{
	static const char *const variables[] = { "PATH",        "LD_LIBRARY_PATH", "MPI_HOME",
						 "OPAL_PREFIX", "HPCX_HOME",       "NCCL_HOME",
						 "UCX_HOME",    "CONDA_PREFIX",    "VIRTUAL_ENV" };
	char value[PL_FACT_VALUE_MAX] = "";

	for (size_t i = 0; i < PL_ARRAY_SIZE(variables); i++) {
		const char *more = getenv(variables[i]);
		size_t length = strlen(value);

		if (more && *more && length + strlen(more) + 2 < sizeof(value))
			snprintf(value + length, sizeof(value) - length, "%s%s", length ? ":" : "", more);
	}
	pl_facts_set(facts, "search.path", "%s", value);
	if (getenv("NCCL_TOPO_FILE"))
		pl_facts_set(facts, "nccl.topo_file", "%s", getenv("NCCL_TOPO_FILE"));
}

void pl_probe_process(struct pl_facts *facts)
{
	who(facts);
	limits(facts);
	nodes(facts);
	addresses(facts);
	search_path(facts);
}
