/* SPDX-License-Identifier: BSD-2-Clause */
/* Fetching: the file's bytes go from the server's mapping straight into that of the file here. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/transfer/partial_file.h"
#include "cmd/transfer/progress.h"
#include "cmd/transfer/transfer.h"

struct get {
	struct cli_options common;
	const char *address, *output, *memory;
	char **names;
	int count;
	bool verify;
	char *folder_path; /* where the files go */
	int folder;
	struct session session;
};

/* One file under way. */
struct fetch {
	struct get *get;
	struct transfer *transfer;
	struct part part;
	struct part_source source;
	uint32_t handle;
	bool opened, memory, hashing;
	struct pl_region *arriving; /* where the bytes from `resumed` on arrive, if not in the file */
	struct service_message answer;
	struct hash_state *hash; /* of what is here */
	struct call hash_call;   /* of what is there */
	struct progress progress;
};

/* -- arguments ---------------------------------------------------------------------------------- */

static const char *last_name(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? slash + 1 : name;
}

static void check_arguments(const struct get *get, struct argp_state *state)
{
	if (!get->address)
		argp_error(state, "the ADDRESS of a server is missing");
	if (get->count == 0)
		argp_error(state, "no NAME: `peerlane list %s` shows what there is", get->address);
	for (int i = 0; i < get->count; i++) {
		for (int j = 0; j < i; j++)
			if (!strcmp(last_name(get->names[i]), last_name(get->names[j])))
				argp_error(state, "'%s' and '%s' would become the same file", get->names[j],
					   get->names[i]);
		if (!service_name_valid(get->names[i]))
			argp_error(state, "'%s' cannot be the name of something published", get->names[i]);
	}
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct get *get = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &get->common;
		return 0;
	case 'o':
		get->output = argument;
		return 0;
	case 'm':
		get->memory = argument;
		return 0;
	case 'V':
		get->verify = true;
		return 0;
	case ARGP_KEY_ARGS:
		get->address = state->argv[state->next];
		get->names = state->argv + state->next + 1;
		get->count = state->argc - state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		check_arguments(get, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ "output", 'o', "PATH", 0, "Write to this file, or into this directory (default: the current directory)", 1 },
	{ "memory", 'm', "KIND", 0, "Have the bytes arrive in memory of a GPU first: cuda, cuda:1", 1 },
	{ "verify", 'V', NULL, 0, "Compare XXH3-128 hashes of both ends before the file gets its name", 1 },
	{ 0 },
};

static const struct argp_child children[] = {
	{ &cli_connection_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = {
	options,
	parse,
	"ADDRESS NAME...",
	"Fetch what `peerlane serve` at ADDRESS publishes as NAME."
	"\v"
	"Until it is whole a file is called .NAME.part.  If the transfer is cut, the same command goes on from there, "
	"or begins anew if the file changed at the server.\n"
	"\n"
	"Examples:\n"
	"  peerlane get localhost model.safetensors\n"
	"  peerlane get --key key gpu1 a.bin b.bin -o /data/\n"
	"  peerlane get --key key --verify gpu1:19875 checkpoints/last.pt -o last.pt\n"
	"  peerlane get --key key --verify --memory cuda:0 gpu1 frames -o frames.raw\n",
	children,
	cli_help_filter,
	NULL
};

/* -- one file ----------------------------------------------------------------------------------- */

static int open_remote(struct fetch *fetch, struct pl_error *error)
{
	struct service_message request;
	int rc = session_name(&request, SERVICE_OPEN, fetch->transfer->name, error);

	if (rc == 0)
		rc = session_call(&fetch->get->session, &request, &fetch->answer, error);
	if (rc < 0)
		return rc;
	fetch->opened = true;
	fetch->handle = fetch->answer.handle;
	fetch->memory = fetch->answer.kind == SERVICE_MEMORY;
	fetch->source = (struct part_source){ fetch->answer.size, fetch->answer.modified, fetch->answer.identity };
	fetch->transfer->size = fetch->source.size;
	return 0;
}

static int ask_hash(struct fetch *fetch, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_HASH,
					   .handle = fetch->handle,
					   .length = fetch->source.size };
	int rc;

	fetch->hash = hash_begin();
	if (!fetch->hash)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	hash_add(fetch->hash, fetch->part.bytes, fetch->part.done);
	rc = session_ask(&fetch->get->session, &request, &fetch->hash_call, error);
	fetch->hashing = rc == 0;
	return rc;
}

static int advance(void *user, uint64_t done, struct pl_error *error)
{
	struct fetch *fetch = user;
	uint64_t before = fetch->part.done, now = fetch->transfer->resumed + done;
	int rc;

	if (fetch->arriving) {
		rc = pl_region_copy_out(fetch->arriving, before - fetch->transfer->resumed, fetch->part.bytes + before,
					now - before, error);
		if (rc < 0)
			return rc;
	}
	/* While it is still in the cache. */
	if (fetch->hash)
		hash_add(fetch->hash, fetch->part.bytes + before, now - before);
	rc = part_record(&fetch->part, now);
	return rc < 0 ? cli_fail_errno(error, rc, "write", fetch->part.temporary) : 0;
}

static void idle(void *user)
{
	struct fetch *fetch = user;

	progress_update(&fetch->progress, fetch->part.done);
}

static int open_region(struct fetch *fetch, struct pipeline *pipeline, struct pl_error *error)
{
	struct pl_context *context = pipeline->session->context;
	int rc;

	if (!fetch->get->memory)
		return pl_region_register(context, fetch->part.bytes, fetch->source.size, PL_ACCESS_LOCAL,
					  &pipeline->region, error);
	rc = pl_region_allocate_in(context, fetch->get->memory, pipeline->length, PL_ACCESS_LOCAL, &pipeline->region,
				   error);
	fetch->arriving = pipeline->region;
	pipeline->offset = 0;
	return rc;
}

static int move(struct fetch *fetch, struct pl_error *error)
{
	struct session *session = &fetch->get->session;
	struct pipeline pipeline = {
		.session = session,
		.remote_offset = fetch->part.done,
		.offset = fetch->part.done,
		.length = fetch->source.size - fetch->part.done,
		.advance = advance,
		.idle = idle,
		.user = fetch,
	};
	int rc;

	if (pipeline.length == 0)
		return 0;
	rc = session_import(session, &fetch->answer, &pipeline.remote, error);
	if (rc < 0)
		return rc;
	rc = open_region(fetch, &pipeline, error);
	if (rc == 0)
		rc = pipeline_run(&pipeline, &fetch->transfer->result, error);
	if (pipeline.region)
		pl_region_deregister(pipeline.region);
	pl_remote_release(pipeline.remote);
	return rc;
}

static int say_changed(struct fetch *fetch, struct pl_error *error)
{
	return cli_fail(error, -ESTALE, "FILE-CHANGED", fetch->transfer->name, "fetch it again",
			"the file changed at the server while it was fetched");
}

static int compare_hashes(struct fetch *fetch, struct pl_error *error)
{
	struct hash here, there;
	int rc = session_answer(&fetch->get->session, &fetch->hash_call, &fetch->answer, error);

	fetch->hashing = false;
	if (rc == -ESTALE)
		return say_changed(fetch, error);
	if (rc < 0)
		return rc;
	there = (struct hash){ fetch->answer.hash[0], fetch->answer.hash[1] };
	here = hash_end(fetch->hash);
	fetch->hash = NULL;
	if (!hash_equal(here, there))
		return cli_fail(error, -ESTALE, "HASH-MISMATCH", fetch->transfer->name,
				"fetch it again; if this repeats, check the memory and disks of both hosts",
				"the bytes here are not those at the server");
	fetch->transfer->hash = here;
	fetch->transfer->verified = true;
	return 0;
}

/* Ends the server's handle; the file there must still be the one that was opened. */
static int close_remote(struct fetch *fetch, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_CLOSE, .handle = fetch->handle };
	int rc;

	fetch->opened = false;
	rc = session_call(&fetch->get->session, &request, &fetch->answer, error);
	if (rc < 0)
		return rc;
	if (fetch->answer.size != fetch->source.size || fetch->answer.modified != fetch->source.modified)
		return say_changed(fetch, error);
	return 0;
}

static int fetch_parts(struct fetch *fetch, struct pl_error *error)
{
	struct get *get = fetch->get;
	int rc = open_remote(fetch, error);

	/* Memory has no date to tell whether it changed. */
	if (rc == 0)
		rc = part_open(&fetch->part, get->folder, last_name(fetch->transfer->file), &fetch->source,
			       !fetch->memory, error);
	if (rc < 0)
		return rc;
	fetch->transfer->resumed = fetch->part.done;
	progress_begin(&fetch->progress, !get->common.quiet, fetch->transfer->name, fetch->source.size,
		       fetch->part.done);
	if (get->verify)
		rc = ask_hash(fetch, error);
	if (rc == 0)
		rc = move(fetch, error);
	if (rc == 0 && get->verify)
		rc = compare_hashes(fetch, error);
	if (rc == 0)
		rc = close_remote(fetch, error);
	return rc == 0 ? part_commit(&fetch->part, error) : rc;
}

static void fetch_one(struct get *get, struct transfer *transfer)
{
	struct fetch fetch = { .get = get, .transfer = transfer, .part = { .fd = -1 } };
	struct pl_error changed, ignored;
	int rc = fetch_parts(&fetch, &transfer->error);

	progress_end(&fetch.progress);
	transfer->status = rc;
	/* A hash that nobody waits for any more would come as the answer to the next question. */
	if (fetch.hashing && get->session.peer)
		session_answer(&get->session, &fetch.hash_call, &fetch.answer, &ignored);
	/* A file that was cut can fail in many ways; that it changed is what to say. */
	if (fetch.opened && get->session.peer && close_remote(&fetch, &changed) == -ESTALE) {
		transfer->status = -ESTALE;
		transfer->error = changed;
	}
	hash_discard(fetch.hash);
	/* What is wrong, and what cannot be gone on with, is of no use. */
	transfer->kept = transfer->status == 0 || transfer->status == -ESTALE || fetch.memory ? 0 : fetch.part.done;
	part_close(&fetch.part, !transfer->kept);
}

/* -- all files ---------------------------------------------------------------------------------- */

/* Where files go: an existing directory, or what ends in a slash, takes them under their names. */
static int open_folder(struct get *get, struct transfer *transfers, struct pl_error *error)
{
	const char *output = get->output ? get->output : ".";
	bool slash = output[0] && output[strlen(output) - 1] == '/';
	struct stat status;
	bool folder = stat(output, &status) == 0 && S_ISDIR(status.st_mode);
	const char *path = output;

	if (!folder && slash)
		return cli_fail_errno(error, -ENOENT, "open", output);
	if (!folder && get->count > 1)
		return cli_fail(error, -ENOTDIR, "NOT-A-DIRECTORY", output, "make the directory first",
				"several files need a directory");
	if (!folder) {
		size_t length = (size_t)(last_name(output) - output);

		path = get->folder_path = length ? strndup(output, length) : strdup(".");
	}
	get->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (get->folder < 0)
		return cli_fail_errno(error, -errno, "open", path);
	for (int i = 0; i < get->count; i++) {
		transfers[i].name = get->names[i];
		transfers[i].file = folder ? last_name(get->names[i]) : output;
	}
	return 0;
}

static enum cli_exit fetch_all(struct get *get, struct transfer *transfers)
{
	size_t count = 0;

	while (count < (size_t)get->count && !get->session.interrupted) {
		struct transfer *transfer = &transfers[count++];

		fetch_one(get, transfer);
		if (transfer->status < 0)
			render_transfer_failure(transfer);
		else if (!get->common.json && !get->common.quiet)
			render_transfer(transfer);
	}
	if (get->common.json)
		render_transfers_json(transfers, count, &get->session);
	return transfers_status(transfers, count);
}

int pl_cli_get(int argc, char **argv)
{
	struct get get = { .folder = -1 };
	struct transfer *transfers;
	struct pl_error error;
	int rc, status = CLI_FAILED;

	cli_parse(&arguments, argc, argv, &get);
	transfers = calloc((size_t)get.count, sizeof(*transfers));
	rc = transfers ? open_folder(&get, transfers, &error) : cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
	if (rc == 0)
		rc = session_open(&get.session, &get.common, get.address, &error);
	if (rc == 0) {
		status = fetch_all(&get, transfers);
		session_close(&get.session);
	} else {
		cli_report_for(&get.common, &error);
	}
	if (get.folder >= 0)
		close(get.folder);
	free(get.folder_path);
	free(transfers);
	return status;
}
