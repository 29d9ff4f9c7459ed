/* SPDX-License-Identifier: BSD-2-Clause */
/* Places in which NCCL and its network plugins are installed. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "diag/check/machine.h"
#include "diag/check/nccl.h"

const char *const pl_nccl_library_places[] = {
	"usr/lib/*/libnccl.so.2",
	"usr/lib64/libnccl.so.2",
	"usr/local/lib/libnccl.so.2",
	"usr/local/nccl*/lib/libnccl.so.2",
	"usr/local/cuda*/lib64/libnccl.so.2",
	"usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
	"usr/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
	"opt/*/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2",
	NULL,
};

/* Peerlane's own first: a machine with more plugins than fit must show it. */
static const char *const plugin_places[] = {
	"usr/lib/libnccl-net-peerlane.so",
	"usr/lib64/libnccl-net-peerlane.so",
	"usr/lib/*/libnccl-net-peerlane.so",
	"usr/local/lib/libnccl-net-peerlane.so",
	"usr/local/lib64/libnccl-net-peerlane.so",
	"usr/local/lib/*/libnccl-net-peerlane.so",
	"usr/lib/peerlane/nccl/libnccl-net.so",
	"usr/lib64/peerlane/nccl/libnccl-net.so",
	"usr/lib/*/peerlane/nccl/libnccl-net.so",
	"usr/local/lib/peerlane/nccl/libnccl-net.so",
	"usr/local/lib64/peerlane/nccl/libnccl-net.so",
	"usr/local/lib/*/peerlane/nccl/libnccl-net.so",
	"usr/lib/*/libnccl-net*.so",
	"usr/lib64/libnccl-net*.so",
	"usr/local/lib/libnccl-net*.so",
	"opt/amazon/*ofi*/lib*/libnccl-net*.so",
	"opt/aws-ofi-nccl/lib/libnccl-net*.so",
	"opt/hpcx*/nccl_rdma_sharp_plugin/lib/libnccl-net.so",
	"opt/*/hpcx*/nccl_rdma_sharp_plugin/lib/libnccl-net.so",
	NULL,
};

struct candidate_list {
	struct pl_nccl_candidate *candidates;
	char resolved[PL_NCCL_PLUGINS_MAX][PL_NCCL_FILE_MAX]; /* without links, of those from patterns */
	size_t count, room;
};

static void add_nccl_candidate(struct candidate_list *list, enum pl_nccl_reason reason, const char *asked)
{
	struct pl_nccl_candidate *candidate = &list->candidates[list->count];

	if (list->count == list->room || strlen(asked) >= sizeof(candidate->asked))
		return;
	candidate->reason = reason;
	snprintf(candidate->asked, sizeof(candidate->asked), "%s", asked);
	list->resolved[list->count++][0] = '\0';
}

/* Adds a path that a pattern found, unless the file is there under another name. */
static void add_nccl_place(const struct pl_check_machine *machine, const char *path, void *user)
{
	struct candidate_list *list = user;
	char resolved[PL_SYSROOT_PATH_MAX], absolute[PL_NCCL_FILE_MAX];
	size_t before = list->count;

	if (pl_sysroot_resolve(machine->root, resolved, sizeof(resolved), "%s", path) < 0)
		return;
	for (size_t i = 0; i < list->count; i++)
		if (!strcmp(list->resolved[i], resolved))
			return;
	if ((size_t)snprintf(absolute, sizeof(absolute), "/%s", path) < sizeof(absolute))
		add_nccl_candidate(list, PL_NCCL_INSTALLED, absolute);
	if (list->count > before)
		snprintf(list->resolved[before], sizeof(list->resolved[0]), "%.255s", resolved);
}

static void add_nccl_patterns(const struct pl_check_machine *machine, struct candidate_list *list,
			      const char *const *patterns)
{
	for (; *patterns; patterns++)
		check_glob(machine, *patterns, add_nccl_place, list);
}

/* Adds PREFIX/END for a folder of this machine. */
static void add_nccl_below(const struct pl_check_machine *machine, struct candidate_list *list, const char *prefix,
			   const char *end)
{
	char pattern[PL_SYSROOT_PATH_MAX];

	/* A folder with '*' in its name would be a pattern. */
	if (!prefix || *prefix != '/' || strchr(prefix, '*'))
		return;
	if ((size_t)snprintf(pattern, sizeof(pattern), "%s/%s", prefix + 1, end) < sizeof(pattern))
		check_glob(machine, pattern, add_nccl_place, list);
}

/* Adds the plugin that was installed together with this command: PREFIX/bin/peerlane. */
static void add_nccl_own(const struct pl_check_machine *machine, struct candidate_list *list)
{
	static const char *const ends[] = { "lib/libnccl-net-peerlane.so", "lib64/libnccl-net-peerlane.so",
					    "lib/*/libnccl-net-peerlane.so" };
	char prefix[PL_SYSROOT_PATH_MAX];
	ssize_t length = machine->live ? readlink("/proc/self/exe", prefix, sizeof(prefix) - 1) : -1;

	if (length < 0)
		return;
	prefix[length] = '\0';
	for (unsigned i = 0; i < 2 && strrchr(prefix, '/'); i++)
		*strrchr(prefix, '/') = '\0';
	for (size_t i = 0; i < PL_ARRAY_SIZE(ends); i++)
		add_nccl_below(machine, list, prefix, ends[i]);
}

/* Adds the items of NCCL_NET_PLUGIN. Releases before 2.27 take a list for one name, which nothing has. */
static void add_nccl_named(struct candidate_list *list, const struct pl_nccl_variable *variable)
{
	char copy[PL_NCCL_VALUE_MAX], *rest, *item;

	if (!strcasecmp(variable->value, "none"))
		return;
	snprintf(copy, sizeof(copy), "%s", variable->value);
	for (item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest))
		add_nccl_candidate(list, PL_NCCL_NAMED, item);
}

size_t pl_nccl_candidates(const struct pl_check_machine *machine, const struct pl_nccl *nccl,
			  struct pl_nccl_candidate candidates[PL_NCCL_PLUGINS_MAX])
{
	/* Leaves room for the default and for Peerlane's plugin. */
	struct candidate_list list = { .candidates = candidates, .room = PL_NCCL_PLUGINS_MAX - 4 };

	if (nccl->variables[PL_NCCL_NET_PLUGIN].set)
		add_nccl_named(&list, &nccl->variables[PL_NCCL_NET_PLUGIN]);
	list.room = PL_NCCL_PLUGINS_MAX;
	if (nccl->asked)
		add_nccl_candidate(&list, PL_NCCL_DEFAULT, "libnccl-net.so");
	add_nccl_own(machine, &list);
	add_nccl_patterns(machine, &list, plugin_places);
	return list.count;
}

size_t pl_nccl_library_candidates(const struct pl_check_machine *machine,
				  struct pl_nccl_candidate candidates[PL_NCCL_LIBRARIES_MAX])
{
	static const char package[] = "lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2";
	struct candidate_list list = { .candidates = candidates, .room = PL_NCCL_LIBRARIES_MAX };
	char home[PL_SYSROOT_PATH_MAX];

	add_nccl_candidate(&list, PL_NCCL_DEFAULT, "libnccl.so.2");
	add_nccl_below(machine, &list, getenv("VIRTUAL_ENV"), package);
	add_nccl_below(machine, &list, getenv("CONDA_PREFIX"), package);
	if (getenv("HOME") && (size_t)snprintf(home, sizeof(home), "%s/.local", getenv("HOME")) < sizeof(home))
		add_nccl_below(machine, &list, home, package);
	add_nccl_patterns(machine, &list, pl_nccl_library_places);
	return list.count;
}
