/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane get`: command line, names and folders. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/transfer/folder_set.h"
#include "cmd/transfer/get.h"

enum { OPTION_SYNC = 0x200, OPTION_OFFSET, OPTION_LENGTH };

/* -- arguments ---------------------------------------------------------------------------------- */

static void check_get_names(const struct get *get, struct argp_state *state)
{
	const struct transfer_command *command = &get->command;
	char **names = command->names;
	struct cli_hint_command list;
	const char *first, *second;

	if (get->output && !strcmp(get->output, "-") && command->common.json)
		argp_error(state, "--json and the file would both be written to standard output");
	if (command->count == 0 && !get->recursive)
		argp_error(state, "a NAME is missing; `%s` lists the names",
			   cli_hint_command(&list, "list", &command->common, command->address));
	if (get->ranged && (get->recursive || command->count != 1))
		argp_error(state, "--offset and --length take one NAME, without --recursive");
	for (int i = 0; i < command->count; i++)
		if (!service_name_valid(names[i]))
			argp_error(state, "'%s' is not a valid name of a published file", names[i]);
	if (command->count && transfer_find_duplicate(names, command->count, &first, &second))
		argp_error(state, "'%s' and '%s' would be written to the same file", first, second);
}

static void parse_range(struct get *get, int key, const char *argument, struct argp_state *state)
{
	bool offset = key == OPTION_OFFSET;

	get->ranged = true;
	if (cli_parse_size(argument, offset ? &get->offset : &get->length) || (!offset && !get->length))
		argp_error(state, "--%s takes a number of bytes, such as 4096 or 2G, not '%s'",
			   offset ? "offset" : "length", argument);
}

static error_t parse_get_option(int key, char *argument, struct argp_state *state)
{
	struct get *get = state->input;
	error_t rc;

	if (key == 'o') {
		get->output = argument;
		return 0;
	}
	if (key == OPTION_SYNC) {
		get->sync = true;
		return 0;
	}
	if (key == 'r') {
		get->recursive = true;
		return 0;
	}
	if (key == OPTION_OFFSET || key == OPTION_LENGTH) {
		parse_range(get, key, argument, state);
		return 0;
	}
	rc = transfer_parse_option(&get->command, key, argument, state);
	if (key == ARGP_KEY_END)
		check_get_names(get, state);
	return rc;
}

static const struct argp_option get_options[] = {
	{ "output", 'o', "PATH", 0,
	  "Write to this file, or into this directory (default: the current directory; -: standard output)", 1 },
	{ "offset", OPTION_OFFSET, "BYTES", 0, "Fetch only the bytes from this one on, for example 4096 or 2G", 1 },
	{ "length", OPTION_LENGTH, "BYTES", 0, "Fetch only this number of bytes (default: all up to the end)", 1 },
	{ "memory", 'm', "KIND", 0, "Receive into GPU memory first, then copy to the file: cuda, or cuda:1", 1 },
	{ "recursive", 'r', NULL, 0,
	  "Fetch all files below the directories NAME..., with their directories; without NAME, all files", 1 },
	{ "verify", 'V', NULL, 0, "Compare XXH3-128 hashes of both ends before the file gets its name", 1 },
	{ "events", TRANSFER_OPTION_EVENTS, NULL, 0, TRANSFER_EVENTS_HELP, 1 },
	{ "sync", OPTION_SYNC, NULL, 0, "Wait until storage has each file: fsync(2) of the file and of its directory",
	  1 },
	{ 0 },
};

static const struct cli_command get_command = {
	.arguments = "ADDRESS [NAME...]",
	.summary = "Fetch the files or memory that `peerlane serve` at ADDRESS publishes as NAME.",
	.examples = {
		"peerlane get --key key gpu1 a.bin b.bin -o /data/",
		"peerlane get --key key --verify -r gpu1 checkpoints -o /data/",
	},
	.notes = "An incomplete file is called .NAME.part.  To resume an interrupted transfer, repeat the command.  It "
		 "begins again if the file at the server has changed.\n",
	.options = get_options,
	.parse = parse_get_option,
	.connection = true,
};

/* -- all files ---------------------------------------------------------------------------------- */

/* Fetches small files together, others one by one. */
static size_t run_fetches(void *user, struct transfer *transfers, size_t count)
{
	struct get *get = user;
	size_t done = 0;

	if (get->command.transfer_count > 1 && !get->command.memory)
		done = small_get(&get->small, transfers, count);
	if (done)
		return done;
	get_file(get, transfers);
	return 1;
}

/* Opens --output if it names standard output, a pipe or a device: these are written to, never replaced. */
static int open_output_stream(struct get *get, struct pl_error *error)
{
	const char *output = get->output;
	struct stat status;

	if (!output)
		return 0;
	if (!strcmp(output, "-")) {
		get->stream = cli_open_stream("/dev/stdout");
		get->standard = true;
	} else {
		bool known = stat(output, &status) == 0;

		if (!cli_path_is_special(output) && (!known || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)))
			return 0;
		if (known && S_ISDIR(status.st_mode))
			return 0;
		get->stream = cli_open_stream(output);
	}
	if (get->stream < 0)
		return cli_fail_new_path(error, get->stream, "open", output);
	if (get->command.count > 1 || get->recursive)
		return cli_fail(error, -EINVAL, "NOT-A-DIRECTORY", output, "fetch one file at a time",
				"several files cannot be written into one stream");
	/* Standard output has the bytes, and nothing else. */
	get->command.common.quiet = true;
	return transfer_add(&get->command, get->command.names[0], output, error);
}

/* Replaces a symbolic link by its target: the target gets the new bytes, and the link stays. */
static int follow_output_link(struct get *get, struct pl_error *error)
{
	struct stat status;

	if (!get->output || lstat(get->output, &status) < 0 || !S_ISLNK(status.st_mode))
		return 0;
	get->target = cli_link_target(get->output);
	if (!get->target)
		return cli_fail(error, -errno, "LINK-TARGET", get->output, "create its target, or remove the link",
				"the target of this symbolic link cannot be found");
	get->output = get->target;
	return 0;
}

/* Adds the transfers of the names on the command line. */
static int add_named_files(struct get *get, bool folder, const char *output, struct pl_error *error)
{
	int rc = 0;

	for (int i = 0; rc == 0 && !get->recursive && i < get->command.count; i++)
		rc = transfer_add(&get->command, get->command.names[i],
				  folder ? transfer_last_name(get->command.names[i]) : output, error);
	return rc;
}

/* Opens the folder for the files: --output if it is a directory or ends in a slash, else the folder of that path. */
static int open_output_folder(struct get *get, struct pl_error *error)
{
	const char *output = get->output ? get->output : ".";
	bool slash = output[0] && output[strlen(output) - 1] == '/';
	struct stat status;
	bool folder = stat(output, &status) == 0 && S_ISDIR(status.st_mode);
	const char *path = output;

	if (!folder && slash)
		return cli_fail_new_path(error, -ENOENT, "open", output);
	if (!folder && (get->command.count > 1 || get->recursive))
		return cli_fail(error, -ENOTDIR, "NOT-A-DIRECTORY", output, "create the directory first",
				"several files can only be written into a directory");
	if (!folder) {
		size_t length = (size_t)(transfer_last_name(output) - output);

		path = get->folder_path = length ? strndup(output, length) : strdup(".");
	}
	get->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (get->folder < 0)
		return cli_fail_new_path(error, -errno, "open", path);
	return add_named_files(get, folder, output, error);
}

/* Adds the files of the listing that are below a name, or all.  Their paths here begin with the name's last component. */
static int add_files_below(struct get *get, const char *name, struct pl_error *error)
{
	size_t length = name ? strlen(name) : 0, before = get->command.transfer_count;
	size_t skip = name ? (size_t)(transfer_last_name(name) - name) : 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < get->listing.count; i++) {
		const struct listing_entry *entry = &get->listing.entries[i];
		bool below = !strncmp(entry->name, name ? name : "", length) &&
			     (!name || entry->name[length] == '/' || entry->name[length] == '\0');

		if (!below || entry->kind != SERVICE_FILE || !service_name_valid(entry->name))
			continue;
		rc = transfer_add(&get->command, entry->name, entry->name + skip, error);
		if (rc == 0)
			get->command.transfers[get->command.transfer_count - 1].listed = entry->size;
	}
	if (rc == 0 && get->command.transfer_count == before)
		return cli_fail(error, -ENOENT, "NOT-PUBLISHED", name ? name : get->command.address,
				service_unknown_name_hint(name ? name : ""),
				"the server publishes no file of this name or below it");
	return rc;
}

static int expand_names(void *user, struct pl_error *error)
{
	struct get *get = user;
	int rc = listing_fetch(&get->command.session, &get->listing, error);

	if (rc == 0 && get->command.count == 0)
		rc = add_files_below(get, NULL, error);
	for (int i = 0; rc == 0 && i < get->command.count; i++)
		rc = add_files_below(get, get->command.names[i], error);
	return rc;
}

int pl_cli_get(int argc, char **argv)
{
	struct get get = { .folder = -1, .stream = -1, .length = UINT64_MAX };
	struct pl_error error;
	int rc, status;

	cli_parse(&get_command, argc, argv, &get.command.common, &get);
	rc = open_output_stream(&get, &error);
	if (rc == 0 && get.stream < 0) {
		rc = follow_output_link(&get, &error);
		if (rc == 0)
			rc = open_output_folder(&get, &error);
	}
	if (rc == 0) {
		get.command.expand = get.recursive ? expand_names : NULL;
		get.small = (struct small){
			.command = &get.command, .folder = get.folder, .recursive = get.recursive, .sync = get.sync
		};
		status = transfer_run_all(&get.command, run_fetches, &get);
		if (get.standard && get.output_failed)
			status = CLI_OUTPUT;
	} else {
		status = cli_report_for(&get.command.common, &error);
		free(get.command.transfers);
	}
	if (get.folder >= 0)
		close(get.folder);
	if (get.stream >= 0)
		close(get.stream);
	listing_free(&get.listing);
	free(get.folder_path);
	free(get.target);
	partial_key_wipe(&get.key);
	return status;
}
