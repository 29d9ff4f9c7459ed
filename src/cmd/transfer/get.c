/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane get`: one-sided reads from the server's mapping of a file into the mapping of the local file. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/transfer/folder_set.h"
#include "cmd/transfer/listing.h"
#include "cmd/transfer/partial_file.h"
#include "cmd/transfer/progress.h"
#include "cmd/transfer/small_client.h"
#include "cmd/transfer/transfer.h"

enum { OPTION_SYNC = 0x200 };

struct get {
	struct transfer_command command;
	const char *output;
	bool sync;      /* wait until storage has the files */
	bool recursive; /* names are folders at the server */
	struct listing listing;
	char *folder_path; /* folder of --output FILE; NULL: not allocated */
	char *target;      /* of --output, if that is a symbolic link; NULL: not allocated */
	int stream;        /* descriptor of a pipe, device or standard output, in place of a file; -1: none */
	int folder;        /* descriptor of the folder that receives the files */
	struct small small;
};

/* Fetch of one file. */
struct fetch {
	struct transfer_command *command;
	struct transfer *transfer;
	struct partial_file partial;
	struct file_version version; /* of the file at the server */
	uint32_t handle;
	int folder;   /* descriptor of the folder for the file; -1: none */
	bool opened;  /* handle is open */
	bool memory;  /* name is a block of memory */
	bool hashing; /* the server has been asked for a hash and has not answered */
	struct pipeline pipeline;
	struct service_message answer;
	struct hash_state *local_hash;
	struct session_request hash_request;
	struct progress progress;
};

/* -- arguments ---------------------------------------------------------------------------------- */

static void check_get_names(const struct get *get, struct argp_state *state)
{
	const struct transfer_command *command = &get->command;
	char **names = command->names;
	const char *first, *second;

	if (get->output && !strcmp(get->output, "-") && command->common.json)
		argp_error(state, "--json and the file would both be written to standard output");
	if (command->count == 0 && !get->recursive)
		argp_error(state, "a NAME is missing; `peerlane list %s` lists the names", command->address);
	for (int i = 0; i < command->count; i++)
		if (!service_name_valid(names[i]))
			argp_error(state, "'%s' is not a valid name of a published file", names[i]);
	if (command->count && transfer_find_duplicate(names, command->count, &first, &second))
		argp_error(state, "'%s' and '%s' would be written to the same file", first, second);
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
	rc = transfer_parse_option(&get->command, key, argument, state);
	if (key == ARGP_KEY_END)
		check_get_names(get, state);
	return rc;
}

static const struct argp_option get_options[] = {
	{ "output", 'o', "PATH", 0,
	  "Write to this file, or into this directory (default: the current directory; -: standard output)", 1 },
	{ "memory", 'm', "KIND", 0, "Receive into GPU memory first, then copy to the file: cuda, or cuda:1", 1 },
	{ "recursive", 'r', NULL, 0,
	  "Fetch all files below the directories NAME..., with their directories; without NAME, all files", 1 },
	{ "verify", 'V', NULL, 0, "Compare XXH3-128 hashes of both ends before the file gets its name", 1 },
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

/* -- one file ----------------------------------------------------------------------------------- */

static int open_remote_file(struct fetch *fetch, struct pl_error *error)
{
	struct service_message request;
	int rc = session_name(&request, SERVICE_OPEN, fetch->transfer->name, error);

	if (rc == 0)
		rc = session_call(&fetch->command->session, &request, &fetch->answer, error);
	if (rc < 0)
		return rc;
	fetch->opened = true;
	fetch->handle = fetch->answer.handle;
	fetch->memory = fetch->answer.kind == SERVICE_MEMORY;
	fetch->version = (struct file_version){ fetch->answer.size, fetch->answer.modified, fetch->answer.identity,
						fetch->answer.mode };
	fetch->transfer->size = fetch->version.size;
	return 0;
}

/* Asks the server for the hash of the file; the answer arrives while the bytes are moved. */
static int request_remote_hash(struct fetch *fetch, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_HASH,
					   .handle = fetch->handle,
					   .length = fetch->version.size };
	int rc;

	fetch->local_hash = hash_begin();
	if (!fetch->local_hash)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	hash_add(fetch->local_hash, fetch->partial.bytes, fetch->partial.done);
	rc = session_send_request(&fetch->command->session, &request, &fetch->hash_request, error);
	fetch->hashing = rc == 0;
	return rc;
}

static int fetch_advance(void *user, uint64_t done, struct pl_error *error)
{
	struct fetch *fetch = user;
	uint64_t before = fetch->partial.done, now = fetch->transfer->resumed + done;
	int rc;

	if (fetch->command->memory) {
		rc = pl_region_copy_out(fetch->pipeline.region, before - fetch->transfer->resumed,
					fetch->partial.bytes + before, now - before, error);
		if (rc < 0)
			return rc;
	}
	/* The bytes are still in the CPU cache. */
	if (fetch->local_hash)
		hash_add(fetch->local_hash, fetch->partial.bytes + before, now - before);
	rc = partial_file_record(&fetch->partial, now);
	return rc < 0 ? cli_fail_errno(error, rc, "write", fetch->partial.temporary) : 0;
}

static void fetch_show_progress(void *user)
{
	struct fetch *fetch = user;

	progress_update(&fetch->progress, fetch->partial.done);
}

static int fail_source_changed(struct fetch *fetch, struct pl_error *error)
{
	return cli_fail(error, -ESTALE, "FILE-CHANGED", fetch->transfer->name, "fetch it again",
			"the file at the server changed during the transfer");
}

static int verify_fetched_file(struct fetch *fetch, struct pl_error *error)
{
	int rc = session_wait_answer(&fetch->command->session, &fetch->hash_request, &fetch->answer, error);

	fetch->hashing = false;
	if (rc == -ESTALE)
		return fail_source_changed(fetch, error);
	if (rc < 0)
		return rc;
	return transfer_compare_hashes(fetch->transfer, &fetch->local_hash, &fetch->answer, error);
}

/* Closes the server's handle.  Returns -ESTALE if the file there is no longer the one that was opened. */
static int close_remote_file(struct fetch *fetch, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_CLOSE, .handle = fetch->handle };
	int rc;

	fetch->opened = false;
	rc = session_call(&fetch->command->session, &request, &fetch->answer, error);
	if (rc < 0)
		return rc;
	if (fetch->answer.size != fetch->version.size || fetch->answer.modified != fetch->version.modified)
		return fail_source_changed(fetch, error);
	return 0;
}

/* Begins again unless the bytes of an earlier attempt are those of the file. */
static int compare_kept_bytes(struct fetch *fetch, struct pl_error *error)
{
	bool same = true;
	int rc = transfer_compare_beginning(fetch->command, fetch->handle, fetch->partial.bytes, fetch->partial.done,
					    &same, error);

	if (rc == -ESTALE)
		return fail_source_changed(fetch, error);
	if (rc == 0 && !same)
		rc = partial_file_record(&fetch->partial, 0);
	return rc;
}

static int fetch_file(struct get *get, struct fetch *fetch, struct pl_error *error)
{
	struct transfer_command *command = fetch->command;
	struct transfer *transfer = fetch->transfer;
	int rc = open_remote_file(fetch, error);

	/* Memory has no time of modification that tells whether it changed, so its transfer is not resumed. */
	if (rc == 0 && get->stream >= 0) {
		rc = partial_file_open_stream(&fetch->partial, get->stream, transfer->file, &fetch->version, error);
		get->stream = -1;
	} else if (rc == 0) {
		const char *last = transfer_last_name(transfer->file);

		rc = fetch->folder =
			get->recursive ? folder_open(get->folder, transfer->file, true, &last, error) : get->folder;
		if (rc >= 0)
			rc = partial_file_open(&fetch->partial, fetch->folder, last, &fetch->version, !fetch->memory,
					       error);
	}
	if (rc == 0)
		rc = compare_kept_bytes(fetch, error);
	if (rc < 0)
		return rc;
	transfer->resumed = fetch->partial.done;
	progress_begin(&fetch->progress, !command->common.quiet, transfer->name, fetch->version.size,
		       fetch->partial.done);
	if (command->verify)
		rc = request_remote_hash(fetch, error);
	if (rc == 0)
		rc = transfer_move_bytes(command, transfer, &fetch->answer, fetch->partial.bytes, &fetch->pipeline,
					 error);
	if (rc == 0 && command->verify)
		rc = verify_fetched_file(fetch, error);
	if (rc == 0)
		rc = close_remote_file(fetch, error);
	return rc == 0 ? partial_file_commit(&fetch->partial, get->sync, error) : rc;
}

static void run_fetch(struct get *get, struct transfer *transfer)
{
	struct session *session = &get->command.session;
	struct fetch fetch = {
		.command = &get->command,
		.transfer = transfer,
		.partial = { .fd = -1 },
		.folder = -1,
		.pipeline = { .advance = fetch_advance, .idle = fetch_show_progress, .user = &fetch },
	};
	struct pl_error changed, ignored;
	int rc = fetch_file(get, &fetch, &transfer->error);

	progress_end(&fetch.progress);
	transfer->status = rc;
	/* Receives a pending hash, which would otherwise be taken for the answer to the next request. */
	if (fetch.hashing && session->peer)
		session_wait_answer(session, &fetch.hash_request, &fetch.answer, &ignored);
	/* A truncated file causes various errors; reports that the file changed instead. */
	if (fetch.opened && session->peer && close_remote_file(&fetch, &changed) == -ESTALE) {
		transfer->status = -ESTALE;
		transfer->error = changed;
	}
	hash_discard(fetch.local_hash);
	/* Wrong bytes, and memory, whose transfer cannot be resumed, are not kept. */
	transfer->kept = transfer->status == 0 || transfer->status == -ESTALE || fetch.memory || fetch.partial.streaming
				 ? 0
				 : fetch.partial.done;
	partial_file_close(&fetch.partial, !transfer->kept);
	if (get->recursive && fetch.folder >= 0)
		close(fetch.folder);
}

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
	run_fetch(get, transfers);
	return 1;
}

/* True if a path leads to an open file of this process, or to a device. */
static bool is_special_path(const char *path)
{
	return !strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6);
}

/* Opens --output if it names standard output, a pipe or a device: these are written to, never replaced. */
static int open_output_stream(struct get *get, struct pl_error *error)
{
	const char *output = get->output;
	struct stat status;

	if (!output)
		return 0;
	if (!strcmp(output, "-")) {
		get->stream = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	} else {
		bool known = stat(output, &status) == 0;

		if (!is_special_path(output) && (!known || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)))
			return 0;
		if (known && S_ISDIR(status.st_mode))
			return 0;
		get->stream = open(output, O_WRONLY | O_NOCTTY | O_CLOEXEC);
	}
	if (get->stream < 0)
		return cli_fail_errno(error, -errno, "open", output);
	if (get->command.count > 1 || get->recursive)
		return cli_fail(error, -EINVAL, "NOT-A-DIRECTORY", output, "fetch one file at a time",
				"several files cannot be written into one stream");
	/* Standard output has the bytes, and nothing else. */
	get->command.common.quiet = true;
	return transfer_add(&get->command, get->command.names[0], output, error);
}

/* Replaces a symbolic link by its target: the target gets the new bytes, and the link stays. */
static void follow_output_link(struct get *get)
{
	struct stat status;

	if (get->output && lstat(get->output, &status) == 0 && S_ISLNK(status.st_mode))
		get->target = realpath(get->output, NULL);
	if (get->target)
		get->output = get->target;
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
		return cli_fail_errno(error, -ENOENT, "open", output);
	if (!folder && (get->command.count > 1 || get->recursive))
		return cli_fail(error, -ENOTDIR, "NOT-A-DIRECTORY", output, "create the directory first",
				"several files can only be written into a directory");
	if (!folder) {
		size_t length = (size_t)(transfer_last_name(output) - output);

		path = get->folder_path = length ? strndup(output, length) : strdup(".");
	}
	get->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (get->folder < 0)
		return cli_fail_errno(error, -errno, "open", path);
	return add_named_files(get, folder, output, error);
}

/* Adds the files of the listing that are below a name, or all.  Their paths here begin with the name's last component. */
static int add_files_below(struct get *get, const char *name, struct pl_error *error)
{
	size_t length = name ? strlen(name) : 0, before = get->command.transfer_count;
	size_t skip = name ? (size_t)(transfer_last_name(name) - name) : 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < get->listing.count; i++) {
		const struct service_entry *entry = &get->listing.entries[i];
		bool below = !strncmp(entry->name, name ? name : "", length) &&
			     (!name || entry->name[length] == '/' || entry->name[length] == '\0');

		if (below && entry->kind == SERVICE_FILE && service_name_valid(entry->name))
			rc = transfer_add(&get->command, entry->name, entry->name + skip, error);
	}
	if (rc == 0 && get->command.transfer_count == before)
		return cli_fail(error, -ENOENT, "NOT-PUBLISHED", name ? name : get->command.address,
				"see what `peerlane list` prints",
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
	struct get get = { .folder = -1, .stream = -1 };
	struct pl_error error;
	int rc, status;

	cli_parse(&get_command, argc, argv, &get.command.common, &get);
	rc = open_output_stream(&get, &error);
	if (rc == 0 && get.stream < 0) {
		follow_output_link(&get);
		rc = open_output_folder(&get, &error);
	}
	if (rc == 0) {
		get.command.expand = get.recursive ? expand_names : NULL;
		get.small = (struct small){
			.command = &get.command, .folder = get.folder, .recursive = get.recursive, .sync = get.sync
		};
		status = transfer_run_all(&get.command, run_fetches, &get);
	} else {
		status = cli_report_for(&get.command.common, &error);
		free(get.command.transfers);
	}
	if (get.folder >= 0)
		close(get.folder);
	if (get.stream >= 0)
		close(get.stream);
	free(get.listing.entries);
	free(get.folder_path);
	free(get.target);
	return status;
}
