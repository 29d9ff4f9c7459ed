/* SPDX-License-Identifier: BSD-2-Clause */
/* NCCL of a machine from facts, and the network that NCCL chooses. */
#include "diag/check/nccl.h"

#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "diag/check/machine.h"

/* NCCL's releases and the versions of the tables that they load. */
static const struct nccl_generation {
	unsigned release; /* and later ones */
	unsigned newest, oldest;
} generations[] = {
	{ 23000, 12, 6 }, { 22800, 11, 6 }, { 22600, 10, 6 }, { 22400, 9, 5 }, { 22000, 8, 5 }, { 0, 7, 5 },
};

/* From this release on NCCL_NET_PLUGIN is a list, and an empty one names no plugin. */
#define RELEASE_LIST 22700

const char *pl_nccl_network_name(enum pl_nccl_network network)
{
	static const char *const names[] = { NULL, "none", "plugin", "IB", "socket" };

	return names[network];
}

void pl_nccl_format_release(unsigned release, char text[24])
{
	snprintf(text, 24, "%u.%u.%u", release / 10000, release / 100 % 100, release % 100);
}

static const char *nccl_fact(const struct pl_check_machine *machine, const char *kind, size_t number, const char *what)
{
	return pl_facts_get(machine->facts, "nccl.%s.%zu.%s", kind, number, what);
}

/* -- libraries ------------------------------------------------------------------------------------------ */

static bool nccl_has_library(const struct pl_nccl *nccl, const char *file)
{
	for (size_t i = 0; i < nccl->library_count; i++)
		if (!strcmp(nccl->libraries[i].file, file))
			return true;
	return false;
}

static void take_nccl_libraries(struct pl_nccl *nccl, const struct pl_check_machine *machine)
{
	for (size_t i = 0; i < PL_NCCL_LIBRARIES_MAX; i++) {
		struct pl_nccl_library *library = &nccl->libraries[nccl->library_count];
		const char *file = nccl_fact(machine, "library", i, "file");
		long long release = pl_facts_number(machine->facts, 0, "nccl.library.%zu.release", i);

		if (!file || strlen(file) >= sizeof(library->file) || nccl_has_library(nccl, file))
			continue;
		snprintf(library->file, sizeof(library->file), "%s", file);
		/* Releases before 2.9 count otherwise; none of them loads a plugin of today. */
		library->release = release > 10000 && release < 1000000 ? (unsigned)release : 0;
		nccl->library_count++;
	}
	if (nccl->library_count)
		nccl->release = nccl->libraries[0].release;
}

/* -- plugins -------------------------------------------------------------------------------------------- */

static void tell_nccl_trouble(struct pl_nccl_plugin *plugin, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void tell_nccl_trouble(struct pl_nccl_plugin *plugin, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(plugin->trouble, sizeof(plugin->trouble), format, arguments);
	va_end(arguments);
}

static void judge_nccl_plugin(struct pl_nccl_plugin *plugin, const char *state, const char *error)
{
	if (error)
		tell_nccl_trouble(plugin, "%s", error);
	else if (!state || strcmp(state, "done"))
		tell_nccl_trouble(plugin, "a process that loads it %s",
				  !state || !strcmp(state, "hangs") ? "does not come to an end" : state);
	else if (!*plugin->file)
		tell_nccl_trouble(plugin, "a process that loads it ends");
	else if (!plugin->tables)
		tell_nccl_trouble(plugin, "no plugin for networks: it has no ncclNetPlugin_vN");
	else if (!*plugin->name)
		tell_nccl_trouble(plugin, "its table has no name");
}

bool pl_nccl_not_found(const struct pl_nccl_plugin *plugin)
{
	return !strncmp(plugin->trouble, PL_NCCL_NOT_FOUND, strlen(PL_NCCL_NOT_FOUND));
}

/* True if the file is there already, under another name. */
static bool nccl_has_plugin(const struct pl_nccl *nccl, const struct pl_nccl_plugin *plugin,
			    const struct pl_check_machine *machine)
{
	char one[PL_SYSROOT_PATH_MAX], other[PL_SYSROOT_PATH_MAX];
	struct pl_sysroot *root = pl_snapshot_unrecorded(machine->root);
	const char *file = *plugin->file ? plugin->file : plugin->asked;

	/* NCCL takes the default although it is also a file that is named. */
	if (plugin->reason != PL_NCCL_INSTALLED || pl_sysroot_resolve(root, one, sizeof(one), "%s", file) < 0)
		return false;
	for (size_t i = 0; i < nccl->plugin_count; i++)
		if (*nccl->plugins[i].file &&
		    pl_sysroot_resolve(root, other, sizeof(other), "%s", nccl->plugins[i].file) >= 0 &&
		    !strcmp(one, other))
			return true;
	return false;
}

static void take_nccl_plugins(struct pl_nccl *nccl, const struct pl_check_machine *machine)
{
	for (size_t i = 0; i < PL_NCCL_PLUGINS_MAX; i++) {
		struct pl_nccl_plugin *plugin = &nccl->plugins[nccl->plugin_count];
		const char *asked = nccl_fact(machine, "plugin", i, "asked");
		const char *file = nccl_fact(machine, "plugin", i, "file"),
			   *name = nccl_fact(machine, "plugin", i, "name");
		long long reason = pl_facts_number(machine->facts, PL_NCCL_INSTALLED, "nccl.plugin.%zu.reason", i);

		if (!asked)
			continue;
		*plugin = (struct pl_nccl_plugin){ .reason = PL_NCCL_INSTALLED, .tried = true };
		if (reason == PL_NCCL_NAMED || reason == PL_NCCL_DEFAULT)
			plugin->reason = (enum pl_nccl_reason)reason;
		snprintf(plugin->asked, sizeof(plugin->asked), "%s", asked);
		snprintf(plugin->file, sizeof(plugin->file), "%s", file ? file : "");
		snprintf(plugin->name, sizeof(plugin->name), "%s", name ? name : "");
		plugin->tables = (unsigned)pl_facts_number(machine->facts, 0, "nccl.plugin.%zu.tables", i);
		judge_nccl_plugin(plugin, nccl_fact(machine, "plugin", i, "state"),
				  nccl_fact(machine, "plugin", i, "error"));
		/* A plugin that no variable names need not be there. */
		if ((plugin->reason == PL_NCCL_NAMED || !pl_nccl_not_found(plugin)) &&
		    !nccl_has_plugin(nccl, plugin, machine))
			nccl->plugin_count++;
	}
}

/* Lists the plugins whose files are below a root of which nothing else is known. */
static void find_nccl_plugins(struct pl_nccl *nccl, const struct pl_check_machine *machine)
{
	struct pl_nccl_candidate candidates[PL_NCCL_PLUGINS_MAX];

	nccl->plugin_count = pl_nccl_candidates(machine, nccl, candidates);
	for (size_t i = 0; i < nccl->plugin_count; i++) {
		nccl->plugins[i] = (struct pl_nccl_plugin){ .reason = candidates[i].reason };
		memcpy(nccl->plugins[i].asked, candidates[i].asked, sizeof(candidates[i].asked));
		if (candidates[i].reason == PL_NCCL_INSTALLED)
			memcpy(nccl->plugins[i].file, candidates[i].asked, sizeof(candidates[i].asked));
	}
}

/* -- choice --------------------------------------------------------------------------------------------- */

/* Returns the version of the newest table that this release loads; 0: none. An unknown release counts as a new one. */
static unsigned nccl_table(const struct pl_nccl *nccl, const struct pl_nccl_plugin *plugin)
{
	const struct nccl_generation *generation = generations;

	while (nccl->release && nccl->release < generation->release)
		generation++;
	for (unsigned version = generation->newest; version >= generation->oldest; version--)
		if (plugin->tables & 1u << version)
			return version;
	return 0;
}

static bool nccl_tries(const struct pl_nccl *nccl, const struct pl_nccl_plugin *plugin)
{
	const struct pl_nccl_variable *named = &nccl->variables[PL_NCCL_NET_PLUGIN];
	bool is_default = !named->set || (!*named->value && nccl->release && nccl->release < RELEASE_LIST);

	if (plugin->reason == PL_NCCL_NAMED)
		return !strchr(named->value, ',') || !nccl->release || nccl->release >= RELEASE_LIST;
	return plugin->reason == PL_NCCL_DEFAULT && is_default;
}

/* True if NCCL_NET lets NCCL take this network. */
static bool nccl_wants(const struct pl_nccl *nccl, const char *name)
{
	const struct pl_nccl_variable *net = &nccl->variables[PL_NCCL_NET];

	return !net->set || !strcasecmp(net->value, name);
}

static bool choose_nccl_plugin(struct pl_nccl *nccl)
{
	for (size_t i = 0; i < nccl->plugin_count; i++) {
		const struct pl_nccl_plugin *plugin = &nccl->plugins[i];
		unsigned table = nccl_table(nccl, plugin);

		if (*plugin->trouble || !table || !nccl_tries(nccl, plugin) || !nccl_wants(nccl, plugin->name))
			continue;
		nccl->network = PL_NCCL_NETWORK_PLUGIN;
		nccl->plugin = plugin;
		nccl->table = table;
		snprintf(nccl->why, sizeof(nccl->why), "%s",
			 plugin->reason == PL_NCCL_NAMED ? "NCCL_NET_PLUGIN names it"
							 : "the loader finds libnccl-net.so, NCCL's default");
		return true;
	}
	return false;
}

/* Returns the number of devices that the transport IB can use. */
static size_t nccl_cards(const struct pl_check_machine *machine)
{
	const char *verbs = pl_facts_get(machine->facts, "verbs.library");
	size_t count = 0;

	/* The transport IB loads libibverbs. */
	if (verbs && strcmp(verbs, "ok"))
		return 0;
	for (size_t i = 0; i < machine->device_count; i++)
		count += check_device_usable(machine, &machine->devices[i]);
	return count;
}

static const char *no_nccl_plugin(const struct pl_nccl *nccl)
{
	const struct pl_nccl_variable *named = &nccl->variables[PL_NCCL_NET_PLUGIN];
	bool tried = false;

	for (size_t i = 0; i < nccl->plugin_count; i++)
		tried = tried || nccl_tries(nccl, &nccl->plugins[i]);
	if (tried && nccl->variables[PL_NCCL_NET].set)
		return "NCCL_NET names it";
	if (tried)
		return "no plugin could be used";
	return named->set ? "NCCL_NET_PLUGIN names no plugin" : "there is no libnccl-net.so, NCCL's default";
}

static void choose_nccl_network(struct pl_nccl *nccl, const struct pl_check_machine *machine)
{
	size_t cards = nccl_cards(machine);

	if (choose_nccl_plugin(nccl))
		return;
	if (nccl_wants(nccl, "IB") && cards && !pl_nccl_is_on(&nccl->variables[PL_NCCL_IB_DISABLE])) {
		nccl->network = PL_NCCL_NETWORK_IB;
		snprintf(nccl->why, sizeof(nccl->why), "%s, and %zu RDMA device%s can be used", no_nccl_plugin(nccl),
			 cards, cards == 1 ? "" : "s");
	} else if (nccl_wants(nccl, "Socket")) {
		nccl->network = PL_NCCL_NETWORK_SOCKET;
		snprintf(nccl->why, sizeof(nccl->why), "%s, and %s", no_nccl_plugin(nccl),
			 !cards                             ? "no RDMA device can be used"
			 : nccl->variables[PL_NCCL_NET].set ? "IB is not named"
							    : "NCCL_IB_DISABLE turns IB off");
	} else {
		nccl->network = PL_NCCL_NETWORK_NONE;
		snprintf(nccl->why, sizeof(nccl->why), "no network of this name can be used");
	}
}

void pl_nccl_take(struct pl_nccl *nccl, const struct pl_check_machine *machine)
{
	nccl->asked = pl_facts_number(machine->facts, 0, "nccl.asked") == 1;
	pl_nccl_variables_take(nccl, machine);
	take_nccl_libraries(nccl, machine);
	if (nccl->asked) {
		take_nccl_plugins(nccl, machine);
		choose_nccl_network(nccl, machine);
	} else {
		find_nccl_plugins(nccl, machine);
	}
}
