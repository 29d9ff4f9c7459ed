/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane fleet`: asks many hosts, and compares their answers. */
#include "cmd/fleet/fleet.h"
#include "cmd/fleet/saved.h"

#include <stdlib.h>
#include <string.h>

static const struct fleet_subcommand {
	const char *name;
	int (*run)(int argc, char **argv);
} fleet_subcommands[] = {
	{ "check", fleet_check }, { "topo", fleet_topo },       { "bench", fleet_bench },
	{ "show", fleet_show },   { "compare", fleet_compare },
};

int fleet_choose_hosts(struct fleet_options *options, struct host_list *hosts, struct pl_error *error)
{
	size_t repeated;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < options->file_count; i++)
		rc = host_list_read(&options->hosts, options->files[i], error);
	if (rc == 0)
		rc = host_list_reduce(&options->hosts, &options->excluded, &repeated, error);
	if (rc < 0)
		return rc;
	if (repeated && !options->common.quiet)
		cli_warn("%zu host%s named more than once, and %s asked once", repeated,
			 repeated == 1 ? " is" : "s are", repeated == 1 ? "is" : "are");
	if (!options->hosts.count)
		return cli_fail(error, -EINVAL, "FLEET-HOSTS", NULL, "name hosts, or exclude fewer",
				"no host is left to ask");
	*hosts = options->hosts;
	options->hosts = (struct host_list){ .count = 0 };
	return 0;
}

/* Moves the hosts and answers of a saved run into the fleet. */
static int take_saved_run(struct fleet *fleet, const char *path, struct pl_error *error)
{
	struct saved saved;
	int rc = saved_read(&saved, path, error);

	if (rc == 0) {
		fleet->kind = saved.kind;
		fleet->hosts = saved.hosts;
		fleet->answers = saved.answers;
		fleet->seconds = -1;
		saved = (struct saved){ .path = NULL };
	}
	saved_free(&saved);
	return rc;
}

/* Names entries of --ignore that match nothing: they hide nothing, and may be outdated. */
static void name_unused_ignored(const struct fleet *fleet)
{
	for (size_t i = 0; i < fleet->ignored_count; i++) {
		const struct fleet_ignored *ignored = &fleet->ignored[i];

		if (!ignored->used)
			cli_warn("nothing to ignore of %s%s%s", ignored->id, *ignored->object ? ":" : "",
				 ignored->object);
	}
}

/* Writes the document into the file of --output. */
static int write_fleet_file(const struct fleet *fleet, const char *path, struct pl_error *error)
{
	struct json_object *document = fleet_document(fleet);
	const char *text = cli_json_string(document, true);
	int rc = text ? cli_replace_file(path, text, 0644, error) : cli_fail_errno(error, -ENOMEM, "malloc", path);

	json_object_put(document);
	return rc;
}

/* Shows the judged fleet; returns the exit status. */
static int show_fleet(const struct fleet *fleet, const struct fleet_options *options)
{
	struct pl_error error;
	int status;

	if (options->output && write_fleet_file(fleet, options->output, &error) < 0)
		return cli_report_for(&options->common, &error);
	if (options->common.json) {
		status = cli_json_results(fleet_document(fleet));
		if (status != CLI_OK)
			return status;
	} else if (fleet_print(fleet, options->common.quiet) < 0) {
		cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
		return cli_report_for(&options->common, &error);
	}
	if (!options->common.quiet)
		name_unused_ignored(fleet);
	return fleet_exit_status(fleet);
}

/* Asks hosts or reads a saved run, judges and shows the fleet. */
static int run_fleet(struct fleet_options options, int argc, char **argv)
{
	struct fleet fleet = { .kind = options.kind };
	struct pl_error error;
	int rc, status;

	fleet_parse_arguments(&options, argc, argv);
	fleet.fail_on = options.fail_on;
	fleet.ignored = options.ignored;
	fleet.ignored_count = options.ignored_count;
	options.ignored = NULL;
	rc = options.shows ? take_saved_run(&fleet, options.run, &error)
			   : fleet_choose_hosts(&options, &fleet.hosts, &error);
	if (rc == 0 && !options.shows)
		rc = fleet_collect(&fleet, &options, &error);
	if (rc == 0 && fleet_judge(&fleet) < 0)
		rc = cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
	status = rc < 0 ? cli_report_for(&options.common, &error) : show_fleet(&fleet, &options);
	fleet_free(&fleet);
	fleet_free_options(&options);
	/* 1 says that a host fails. */
	return rc < 0 && rc != -EINTR ? CLI_USAGE : status;
}

int fleet_check(int argc, char **argv)
{
	return run_fleet((struct fleet_options){ .kind = FLEET_CHECK }, argc, argv);
}

int fleet_topo(int argc, char **argv)
{
	return run_fleet((struct fleet_options){ .kind = FLEET_TOPO }, argc, argv);
}

int fleet_show(int argc, char **argv)
{
	return run_fleet((struct fleet_options){ .shows = true }, argc, argv);
}

static error_t parse_fleet_word(int key, char *argument, struct argp_state *state)
{
	if (key == ARGP_KEY_ARG)
		argp_error(state, "'%s' is no subcommand", argument);
	if (key == ARGP_KEY_END && !state->arg_num)
		argp_error(state, "a subcommand is missing");
	return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}

static const struct cli_command fleet_command = {
	.arguments = "SUBCOMMAND...",
	.summary = "Ask many hosts at the same time, and compare their answers.",
	.examples = {
		"peerlane fleet check 'gpu[001-200]' --save monday",
		"peerlane fleet topo --hosts hosts.txt",
	},
	.notes = "Subcommands, each with a --help of its own:\n"
		 "  peerlane fleet check    checks of many hosts, and differences from the rest\n"
		 "  peerlane fleet topo     inventories of many hosts, and differences\n"
		 "  peerlane fleet bench    rates and latencies between many hosts\n"
		 "  peerlane fleet show     a saved run, or documents that hosts wrote\n"
		 "  peerlane fleet compare  changes between two saved runs\n",
	.parse = parse_fleet_word,
};

int pl_cli_fleet(int argc, char **argv)
{
	struct cli_options shared = { .json = false };
	char name[48];

	for (size_t i = 0; argc > 1 && i < CLI_ARRAY_SIZE(fleet_subcommands); i++) {
		if (strcmp(fleet_subcommands[i].name, argv[1]))
			continue;
		/* argp prints argv[0] as the name of the program. */
		snprintf(name, sizeof(name), "peerlane fleet %s", fleet_subcommands[i].name);
		argv[1] = name;
		return fleet_subcommands[i].run(argc - 1, argv + 1);
	}
	cli_parse(&fleet_command, argc, argv, &shared, NULL);
	return CLI_USAGE;
}
