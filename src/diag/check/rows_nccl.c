/* SPDX-License-Identifier: BSD-2-Clause */
/* Network plugins of NCCL, the network that NCCL chooses, and the variables that defeat both. */
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#include "diag/check/nccl.h"
#include "diag/check/row.h"

#define GROUP "NCCL"
#define REVEAL "peerlane check, on the machine itself, in the environment of the job"
/* The loader of shared libraries finds an installed plugin by its name. */
#define LIBRARY "libnccl-net-peerlane.so"
/* These releases forget the name of a plugin that they unload. */
#define FORGETS_FROM 22803
#define FORGETS_UNTIL 22907

static const struct pl_nccl_variable *nccl_variable(const struct pl_check_machine *machine, enum pl_nccl_variable_id id)
{
	return &machine->nccl.variables[id];
}

/* True if the machine has NCCL, as a library or by the variables that choose a network. */
static bool has_nccl(const struct pl_check_machine *machine)
{
	unsigned count = 0;

	for (size_t i = 0; pl_nccl_library_places[i]; i++)
		count += check_any(machine, pl_nccl_library_places[i]);
	return count || machine->nccl.library_count || nccl_variable(machine, PL_NCCL_NET)->set ||
	       nccl_variable(machine, PL_NCCL_NET_PLUGIN)->set;
}

/* -- plugins ------------------------------------------------------------------------------------------------ */

/* Formats "v8 to v12", with the gaps that a plugin has. */
static void format_nccl_tables(unsigned tables, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (unsigned first = 0; first < 32; first++) {
		unsigned last = first;

		if (!(tables & 1u << first))
			continue;
		while (last < 31 && tables & 1u << (last + 1))
			last++;
		used += (size_t)snprintf(text + used, size - used, first == last ? "%sv%u" : "%sv%u to v%u",
					 used ? ", " : "", first, last);
		if (used >= size)
			return;
		first = last;
	}
}

static bool is_peerlane_plugin(const struct pl_nccl_plugin *plugin)
{
	return strstr(plugin->asked, "peerlane") || strstr(plugin->file, "peerlane") ||
	       !strcasecmp(plugin->name, "Peerlane");
}

/* Returns Peerlane's plugin, if it was loaded; else NULL. */
static const struct pl_nccl_plugin *loaded_peerlane_plugin(const struct pl_check_machine *machine)
{
	const struct pl_nccl *nccl = &machine->nccl;

	for (size_t i = 0; i < nccl->plugin_count; i++)
		if (is_peerlane_plugin(&nccl->plugins[i]) && *nccl->plugins[i].file && !*nccl->plugins[i].trouble)
			return &nccl->plugins[i];
	return NULL;
}

/* Sets the remedy by the words of the loader's message, or of the plugin's own. */
static void remedy_nccl_plugin(const struct pl_check_machine *machine, struct pl_check_result *result,
			       const struct pl_nccl_plugin *plugin)
{
	const struct pl_nccl_plugin *own = loaded_peerlane_plugin(machine);
	const char *text = plugin->trouble;

	if (!strncmp(text, "PEERLANE_", 9))
		pl_check_remedy(result, "unset %.*s, or correct it: docs/nccl.md has the values",
				(int)PL_MIN(strcspn(text, ":="), (size_t)40), text);
	else if (pl_nccl_not_found(plugin) && own)
		pl_check_remedy(result, "export NCCL_NET_PLUGIN=%s; or: unset NCCL_NET_PLUGIN", own->file);
	else if (pl_nccl_not_found(plugin))
		pl_check_remedy(result, "set NCCL_NET_PLUGIN to the whole path of the plugin, or add its folder to "
					"LD_LIBRARY_PATH; or: unset NCCL_NET_PLUGIN");
	else if (strstr(text, "No such file or directory"))
		pl_check_remedy(result,
				"install the library %.*s, or add its folder to LD_LIBRARY_PATH; ldd %.100s shows what "
				"is missing",
				(int)PL_MIN(strcspn(text, ":"), (size_t)80), text, plugin->asked);
	else if (strstr(text, "GLIBC"))
		pl_check_remedy(result,
				"install the plugin's package for this system: the file needs a newer C library");
	else if (strstr(text, "undefined symbol"))
		pl_check_remedy(
			result,
			"install the plugin and its libraries from one release; ldd -r %.100s shows what is missing",
			plugin->asked);
	else
		pl_check_remedy(result,
				"install the package of the plugin again, or name another one in NCCL_NET_PLUGIN");
}

static void note_nccl_plugin(const struct pl_check_machine *machine, struct pl_check_result *result,
			     const struct pl_nccl_plugin *plugin)
{
	const char *named = plugin->reason == PL_NCCL_NAMED ? "NCCL_NET_PLUGIN" : NULL;
	const char *file = *plugin->file ? plugin->file : plugin->asked;
	bool counts = plugin->reason != PL_NCCL_INSTALLED || is_peerlane_plugin(plugin);
	char tables[64];

	if (!plugin->tried) {
		pl_check_unknown(result, named, REVEAL, "%.150s: not loaded here", file);
		return;
	}
	if (!*plugin->trouble) {
		format_nccl_tables(plugin->tables, tables, sizeof(tables));
		pl_check_note(result, PL_CHECK_OK, named, "%.130s: loads, named %s, tables %s", file, plugin->name,
			      tables);
		return;
	}
	/* An installed plugin may need the environment of its package. */
	if (pl_nccl_not_found(plugin))
		pl_check_note(result, PL_CHECK_WARN, named, "%s", plugin->trouble);
	else
		pl_check_note(result, counts ? PL_CHECK_WARN : PL_CHECK_OK, named, "%.100s: %s%.120s", file,
			      counts ? "" : "not chosen; ", plugin->trouble);
	if (counts)
		remedy_nccl_plugin(machine, result, plugin);
}

static void probe_nccl_plugin(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_nccl *nccl = &machine->nccl;

	for (size_t i = 0; i < nccl->plugin_count; i++)
		note_nccl_plugin(machine, result, &nccl->plugins[i]);
	if (!nccl->plugin_count)
		pl_check_note(result, PL_CHECK_NONE, NULL, "no network plugin was found");
}

/* -- choice -------------------------------------------------------------------------------------------------- */

static void note_no_nccl_network(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_nccl_variable *net = nccl_variable(machine, PL_NCCL_NET);
	const struct pl_nccl_plugin *own = loaded_peerlane_plugin(machine);

	pl_check_note(result, PL_CHECK_FAIL, net->name, "%.60s (%.80s): %s; each communicator fails", net->value,
		      net->origin, machine->nccl.why);
	pl_check_remedy(result, "unset NCCL_NET; or: export NCCL_NET=Peerlane NCCL_NET_PLUGIN=%s",
			own ? own->file : LIBRARY);
}

/* NCCL falls back without an error: to IB, and from both to sockets. */
static bool nccl_fell_back(const struct pl_check_machine *machine)
{
	const struct pl_nccl *nccl = &machine->nccl;
	const struct pl_nccl_variable *named = nccl_variable(machine, PL_NCCL_NET_PLUGIN);
	bool socket = nccl->network == PL_NCCL_NETWORK_SOCKET;

	if (nccl_variable(machine, PL_NCCL_NET)->set || nccl->network == PL_NCCL_NETWORK_PLUGIN)
		return false;
	if (named->set && *named->value && strcasecmp(named->value, "none"))
		return true;
	return socket && pl_nccl_is_on(nccl_variable(machine, PL_NCCL_IB_DISABLE)) && machine->device_count;
}

static void probe_nccl_network(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_nccl *nccl = &machine->nccl;
	const struct pl_nccl_plugin *own = loaded_peerlane_plugin(machine);
	bool fell_back = nccl_fell_back(machine);
	char release[24] = "of unknown release";

	if (!has_nccl(machine)) {
		pl_check_note(result, PL_CHECK_NONE, NULL, "no NCCL was found");
		return;
	}
	if (nccl->release)
		pl_nccl_format_release(nccl->release, release);
	if (nccl->network == PL_NCCL_NETWORK_UNKNOWN)
		pl_check_unknown(result, NULL, REVEAL, "the environment and the plugins are not known");
	else if (nccl->network == PL_NCCL_NETWORK_NONE)
		note_no_nccl_network(machine, result);
	else if (nccl->network == PL_NCCL_NETWORK_PLUGIN)
		pl_check_note(result, PL_CHECK_OK, NULL, "NCCL %s uses the plugin %s by its table v%u: %s", release,
			      nccl->plugin->name, nccl->table, nccl->why);
	else
		pl_check_note(result, fell_back ? PL_CHECK_WARN : PL_CHECK_OK, NULL, "NCCL %s uses %s: %s%s%.90s",
			      release, nccl->network == PL_NCCL_NETWORK_IB ? "its transport IB" : "its sockets",
			      nccl->why, own && !fell_back ? "; not chosen: NCCL_NET_PLUGIN=" : "",
			      own && !fell_back ? own->asked : "");
	if (own)
		pl_check_remedy(
			result,
			"export NCCL_NET=Peerlane NCCL_NET_PLUGIN=%s; for IB: unset NCCL_NET_PLUGIN NCCL_IB_DISABLE",
			own->file);
}

/* -- variables ------------------------------------------------------------------------------------------------ */

static void note_nccl_variable(struct pl_check_result *result, const struct pl_nccl_variable *variable,
			       const char *effect)
{
	pl_check_note(result, PL_CHECK_WARN, variable->name, "\"%.40s\" (%.60s): %s", variable->value, variable->origin,
		      effect);
	if (!strcmp(variable->origin, "environment"))
		pl_check_remedy(result, "unset %s", variable->name);
	else
		pl_check_remedy(result, "remove the line %s=... from %s", variable->name, variable->origin);
}

/* True if a plugin could be used, but for the variables. */
static const struct pl_nccl_plugin *usable_nccl_plugin(const struct pl_nccl *nccl)
{
	for (size_t i = 0; i < nccl->plugin_count; i++)
		if (!*nccl->plugins[i].trouble && nccl->plugins[i].tables &&
		    (nccl->plugins[i].reason != PL_NCCL_INSTALLED || is_peerlane_plugin(&nccl->plugins[i])))
			return &nccl->plugins[i];
	return NULL;
}

static void judge_nccl_choice(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_nccl_variable *net = nccl_variable(machine, PL_NCCL_NET),
				      *named = nccl_variable(machine, PL_NCCL_NET_PLUGIN);
	const struct pl_nccl_plugin *plugin = usable_nccl_plugin(&machine->nccl);
	char effect[140];

	if (!plugin || machine->nccl.network == PL_NCCL_NETWORK_PLUGIN)
		return;
	if (named->set && (!*named->value || !strcasecmp(named->value, "none")))
		note_nccl_variable(result, named, "NCCL loads no plugin");
	if (!net->set || !strcasecmp(net->value, plugin->name))
		return;
	snprintf(effect, sizeof(effect), "NCCL skips the plugin %s, whose name differs", plugin->name);
	note_nccl_variable(result, net, effect);
}

/* IB is a transport of NCCL itself: a plugin does not heed its variables. */
static void judge_nccl_cards(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_nccl_variable *level = nccl_variable(machine, PL_NCCL_NET_GDR_LEVEL);
	const struct pl_nccl_variable *dmabuf = nccl_variable(machine, PL_NCCL_DMABUF_ENABLE);

	if (!machine->device_count)
		return;
	if (pl_nccl_is_on(nccl_variable(machine, PL_NCCL_IB_DISABLE)) && machine->nccl.network == PL_NCCL_NETWORK_SOCKET)
		note_nccl_variable(result, nccl_variable(machine, PL_NCCL_IB_DISABLE), "NCCL does not use the RDMA devices");
	if (!machine->gpu_count)
		return;
	/* A level is a word; a number is an old form of it. */
	if (level->set &&
	    (!strcmp(level->value, "LOC") || (isdigit((unsigned char)*level->value) && pl_nccl_is_zero(level))))
		note_nccl_variable(result, level,
				   "no card reaches GPU memory directly: all data goes through the host");
	if (pl_nccl_is_zero(nccl_variable(machine, PL_NCCL_NET_GDR_READ)))
		note_nccl_variable(result, nccl_variable(machine, PL_NCCL_NET_GDR_READ),
				   "what a GPU sends goes through the host");
	if (pl_nccl_is_zero(dmabuf) && !check_peer_client(machine))
		note_nccl_variable(result, dmabuf,
				   "cards reach GPU memory by dma-buf alone here: all data goes through the host");
}

/* True if an item of NCCL_SOCKET_IFNAME fits an interface: its beginning, or after "=" the whole name. */
static bool nccl_interface_fits(const char *list, const char *name, size_t length)
{
	bool inverted = *list == '^', whole, fits = false;

	list += inverted;
	whole = *list == '=';
	list += whole;
	while (*list && !fits) {
		size_t item = strcspn(list, ","), wanted = PL_MIN(item, strcspn(list, ":"));

		fits = wanted && wanted <= length && !strncmp(list, name, wanted) && (!whole || wanted == length);
		list += item + (list[item] == ',');
	}
	return fits != inverted;
}

static void judge_nccl_interfaces(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_nccl_variable *list = nccl_variable(machine, PL_NCCL_SOCKET_IFNAME);
	const char *key, *value, *end;

	if (!list->set || !*list->value || !pl_facts_get(machine->facts, "net.known"))
		return;
	for (size_t i = 0; (key = pl_facts_at(machine->facts, i, &value)); i++) {
		end = strrchr(key, '.');
		if (strncmp(key, "net.", 4) || end <= key + 4 || (strcmp(end, ".ipv4") && strcmp(end, ".ipv6")))
			continue;
		if (nccl_interface_fits(list->value, key + 4, (size_t)(end - key - 4)))
			return;
	}
	note_nccl_variable(result, list, "no interface with an address has such a name: NCCL cannot start");
}

/* True if libnccl-net.so is the chosen plugin, too. */
static bool is_nccl_default(const struct pl_nccl *nccl)
{
	for (size_t i = 0; i < nccl->plugin_count; i++)
		if (nccl->plugins[i].reason == PL_NCCL_DEFAULT && !*nccl->plugins[i].trouble &&
		    !strcasecmp(nccl->plugins[i].name, nccl->plugin->name))
			return true;
	return false;
}

static void judge_nccl_release(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_nccl *nccl = &machine->nccl;
	char release[24];

	if (nccl->network != PL_NCCL_NETWORK_PLUGIN || nccl->plugin->reason != PL_NCCL_NAMED ||
	    nccl->release < FORGETS_FROM || nccl->release > FORGETS_UNTIL ||
	    pl_nccl_is_on(nccl_variable(machine, PL_NCCL_NET_PLUGIN_REF_COUNT)) || is_nccl_default(nccl))
		return;
	pl_nccl_format_release(nccl->release, release);
	pl_check_note(result, PL_CHECK_WARN, "NCCL_NET_PLUGIN_REF_COUNT",
		      "not 1: NCCL %s forgets the name of its plugin with the last communicator, and then uses another "
		      "network",
		      release);
	pl_check_remedy(result, "export NCCL_NET_PLUGIN_REF_COUNT=1");
}

static void probe_nccl_variables(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_nccl *nccl = &machine->nccl;
	unsigned count = 0;

	for (size_t i = 0; i < PL_NCCL_VARIABLES; i++)
		count += nccl->variables[i].set;
	if (!has_nccl(machine) && !count && !*nccl->unread) {
		pl_check_note(result, PL_CHECK_NONE, NULL, "no NCCL was found");
		return;
	}
	judge_nccl_choice(machine, result);
	judge_nccl_cards(machine, result);
	judge_nccl_interfaces(machine, result);
	judge_nccl_release(machine, result);
	if (*nccl->unread)
		pl_check_unknown(result, NULL, "ls -l on the file",
				 "%.120s was not read: no file of up to 1 MiB that this user may read", nccl->unread);
	if (!nccl->asked)
		pl_check_unknown(result, NULL, REVEAL, "the environment is not known");
	else if (!result->count)
		pl_check_note(result, PL_CHECK_OK, NULL,
			      "%u variable%s of NCCL's networks %s set; none of them defeats a plugin or GPUDirect",
			      count, count == 1 ? "" : "s", count == 1 ? "is" : "are");
}

const struct pl_check_row pl_check_rows_nccl[] = {
	{
		.id = "nccl-plugin",
		.group = GROUP,
		.title = "network plugins of NCCL",
		.requirement =
			"A plugin that NCCL is told to load, and Peerlane's if it is installed, can be loaded and has "
			"a table that NCCL knows.",
		.how = "each file is loaded in a process of its own, without a network; ldd; nm -D FILE | grep "
		       "ncclNetPlugin; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET",
		.reason = "If a plugin cannot be loaded, NCCL uses IB or its sockets, and reports that only with "
			  "NCCL_DEBUG=INFO.",
		.remedy = "install the package libnccl-net-peerlane; then: ldd libnccl-net-peerlane.so",
		.rank = 91,
		.probe = probe_nccl_plugin,
	},
	{
		.id = "nccl-network",
		.group = GROUP,
		.title = "network that NCCL chooses",
		.requirement =
			"NCCL uses the plugin that NCCL_NET_PLUGIN names; without one, its transport IB if there are "
			"RDMA devices.",
		.how = "NCCL_NET_PLUGIN and NCCL_NET in the environment, ~/.nccl.conf or NCCL_CONF_FILE, "
		       "/etc/nccl.conf; "
		       "NCCL_DEBUG=INFO says \"Using network\"",
		.reason = "NCCL falls back to a slower network without an error; with NCCL_NET it fails instead.",
		.remedy = "export NCCL_NET=Peerlane NCCL_NET_PLUGIN=" LIBRARY "; for IB: unset NCCL_NET_PLUGIN "
			  "NCCL_IB_DISABLE",
		.rank = 92,
		.probe = probe_nccl_network,
	},
	{
		.id = "nccl-variables",
		.group = GROUP,
		.title = "variables of NCCL",
		.requirement = "No variable of NCCL turns the plugin or GPUDirect RDMA off.",
		.how = "env | grep NCCL_; /etc/nccl.conf; ~/.nccl.conf, or the file that NCCL_CONF_FILE names",
		.reason = "A variable that was set for a test, or for another machine, costs most of the bandwidth.",
		.remedy = "unset the variable, or remove its line from the file",
		.rank = 93,
		.probe = probe_nccl_variables,
	},
	{ .id = NULL },
};
