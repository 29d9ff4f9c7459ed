/* SPDX-License-Identifier: BSD-2-Clause */
/* Member "nccl" of the check's document. docs/check.schema.json describes it. */
#include "cmd/check/check.h"
#include "diag/check/nccl.h"

static struct json_object *nccl_release_json(unsigned release)
{
	char text[24];

	if (!release)
		return NULL;
	pl_nccl_format_release(release, text);
	return cli_json_text(text);
}

static struct json_object *nccl_libraries_json(const struct pl_nccl *nccl)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < nccl->library_count; i++) {
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "file", cli_json_text(nccl->libraries[i].file));
		cli_json_add(object, "release", nccl_release_json(nccl->libraries[i].release));
		cli_json_append(array, object);
	}
	return array;
}

static struct json_object *nccl_plugin_json(const struct pl_nccl_plugin *plugin)
{
	static const char *const reasons[] = { "named", "default", "installed" };
	struct json_object *object = json_object_new_object(), *tables = json_object_new_array();
	bool loads = plugin->tried && !*plugin->trouble;

	for (int version = 0; version < 32; version++)
		if (plugin->tables & 1u << version)
			json_object_array_add(tables, json_object_new_int(version));
	cli_json_add(object, "asked", cli_json_text(plugin->asked));
	cli_json_add(object, "reason", cli_json_text(reasons[plugin->reason]));
	cli_json_add(object, "file", cli_json_text_or_null(plugin->file));
	cli_json_add(object, "loads", plugin->tried ? json_object_new_boolean(loads) : NULL);
	cli_json_add(object, "name", cli_json_text_or_null(plugin->name));
	cli_json_add(object, "tables", tables);
	cli_json_add(object, "trouble", cli_json_text_or_null(plugin->trouble));
	return object;
}

static struct json_object *nccl_variables_json(const struct pl_nccl *nccl)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < PL_NCCL_VARIABLES; i++) {
		const struct pl_nccl_variable *variable = &nccl->variables[i];
		struct json_object *object;

		if (!variable->set)
			continue;
		object = json_object_new_object();
		cli_json_add(object, "name", cli_json_text(variable->name));
		cli_json_add(object, "value", cli_json_text(variable->value));
		cli_json_add(object, "origin", cli_json_text(variable->origin));
		cli_json_append(array, object);
	}
	return array;
}

struct json_object *check_nccl_json(const struct pl_nccl *nccl)
{
	struct json_object *object = json_object_new_object(), *plugins = json_object_new_array();
	const char *network = pl_nccl_network_name(nccl->network);
	bool plugin = nccl->network == PL_NCCL_NETWORK_PLUGIN;

	for (size_t i = 0; i < nccl->plugin_count; i++)
		cli_json_append(plugins, nccl_plugin_json(&nccl->plugins[i]));
	cli_json_add(object, "release", nccl_release_json(nccl->release));
	cli_json_add(object, "libraries", nccl_libraries_json(nccl));
	cli_json_add(object, "plugins", plugins);
	cli_json_add(object, "variables", nccl_variables_json(nccl));
	cli_json_add(object, "network", network ? cli_json_text(network) : NULL);
	cli_json_add(object, "network_name", plugin ? cli_json_text(nccl->plugin->name) : NULL);
	cli_json_add(object, "table", plugin ? json_object_new_int((int)nccl->table) : NULL);
	cli_json_add(object, "network_reason", cli_json_text_or_null(nccl->why));
	return object;
}
