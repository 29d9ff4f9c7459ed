/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending: the file's bytes go from the mapping here straight into that of the file at the server. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/transfer/catalogue.h"
#include "cmd/transfer/progress.h"
#include "cmd/transfer/transfer.h"

/* How often the server is told how much it has. */
#define EXTENT_EVERY (20 * CLI_NS_PER_MS)
#define COPY_PIECE (8ull << 20)

struct put {
	struct cli_options common;
	const char *address, *name, *memory;
	char **files;
	int count;
	bool verify;
	struct session session;
};

/* One file under way. */
struct sending {
	struct put *put;
	struct transfer *transfer;
	int fd;
	struct stat status;
	uint8_t *bytes;
	uint32_t handle;
	bool created;
	struct service_message answer;
	struct hash_state *hash;
	struct progress progress;
	uint64_t done;    /* at the server */
	uint64_t told_at; /* when it was told */
	bool told;
};

/* -- arguments ---------------------------------------------------------------------------------- */

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void check_arguments(const struct put *put, struct argp_state *state)
{
	if (!put->address)
		argp_error(state, "the ADDRESS of a server is missing");
	if (put->count == 0)
		argp_error(state, "no FILE to send");
	if (put->name && put->count > 1)
		argp_error(state, "--as is for one FILE");
	if (put->name && !service_name_valid(put->name))
		argp_error(state, "'%s' cannot be a name", put->name);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct put *put = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &put->common;
		return 0;
	case 'a':
		put->name = argument;
		return 0;
	case 'm':
		put->memory = argument;
		return 0;
	case 'V':
		put->verify = true;
		return 0;
	case ARGP_KEY_ARGS:
		put->address = state->argv[state->next];
		put->files = state->argv + state->next + 1;
		put->count = state->argc - state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		check_arguments(put, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ "as", 'a', "NAME", 0,
	  "Give it this name at the server (default: its own), or write into the memory called NAME", 1 },
	{ "memory", 'm', "KIND", 0, "Send the bytes from memory of a GPU, to which they are copied: cuda, cuda:1", 1 },
	{ "verify", 'V', NULL, 0, "Compare XXH3-128 hashes of both ends before the file gets its name", 1 },
	{ 0 },
};

static const struct argp_child children[] = {
	{ &cli_connection_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = { options,
				       parse,
				       "ADDRESS FILE...",
				       "Send files to `peerlane serve --upload` at ADDRESS."
				       "\v"
				       "Until it is whole a file is called .NAME.part at the server.  If the transfer "
				       "is cut, the same command goes on "
				       "from there, or begins anew if the file changed here.\n"
				       "\n"
				       "Examples:\n"
				       "  peerlane put --key key gpu1 results.tar\n"
				       "  peerlane put --key key --verify gpu1 run7.pt --as checkpoints/last.pt\n"
				       "  peerlane put --key key --memory cuda:0 gpu1 frames.raw --as frames\n",
				       children,
				       cli_help_filter,
				       NULL };

/* -- one file ----------------------------------------------------------------------------------- */

static int open_file(struct sending *sending, struct pl_error *error)
{
	const char *path = sending->transfer->file;

	sending->fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (sending->fd < 0 || fstat(sending->fd, &sending->status) < 0)
		return cli_fail_errno(error, -errno, "open", path);
	if (!S_ISREG(sending->status.st_mode))
		return cli_fail(error, -EINVAL, "NOT-A-FILE", path, "send regular files", "this is not a regular file");
	sending->transfer->size = (uint64_t)sending->status.st_size;
	if (sending->status.st_size == 0)
		return 0;
	/* Private: before Linux 6.2 no RDMA device gets at a mapping that is shared and read-only. */
	sending->bytes = mmap(NULL, (size_t)sending->status.st_size, PROT_READ, MAP_PRIVATE, sending->fd, 0);
	if (sending->bytes == MAP_FAILED) {
		sending->bytes = NULL;
		return cli_fail_errno(error, -errno, "mmap", path);
	}
	return 0;
}

static int create_remote(struct sending *sending, struct pl_error *error)
{
	uint64_t place[2] = { (uint64_t)sending->status.st_dev, (uint64_t)sending->status.st_ino };
	struct service_message request;
	int rc = session_name(&request, SERVICE_CREATE, sending->transfer->name, error);

	request.size = sending->transfer->size;
	request.modified = catalogue_modified(&sending->status);
	request.identity = hash_small(place, sizeof(place));
	if (rc == 0)
		rc = session_call(&sending->put->session, &request, &sending->answer, error);
	if (rc < 0)
		return rc;
	sending->created = true;
	sending->handle = sending->answer.handle;
	if (sending->answer.done > sending->transfer->size)
		return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", sending->put->session.address, NULL,
				"the server has more of the file than there is");
	sending->done = sending->transfer->resumed = sending->answer.done;
	return 0;
}

static int advance(void *user, uint64_t done, struct pl_error *error)
{
	struct sending *sending = user;
	struct service_message message = { .type = SERVICE_EXTENT, .handle = sending->handle };
	uint64_t before = sending->done, now = cli_now();

	sending->done = sending->transfer->resumed + done;
	if (sending->hash)
		hash_add(sending->hash, sending->bytes + before, sending->done - before);
	if (now - sending->told_at < EXTENT_EVERY)
		return 0;
	sending->told_at = now;
	sending->told = true;
	message.done = sending->done;
	return session_tell(&sending->put->session, &message, error);
}

static void idle(void *user)
{
	struct sending *sending = user;

	progress_update(&sending->progress, sending->done);
}

static int open_region(const struct sending *sending, struct pipeline *pipeline, struct pl_error *error)
{
	struct pl_context *context = pipeline->session->context;
	int rc;

	if (!sending->put->memory)
		return pl_region_register(context, sending->bytes, sending->transfer->size, PL_ACCESS_LOCAL,
					  &pipeline->region, error);
	pipeline->offset = 0;
	rc = pl_region_allocate_in(context, sending->put->memory, pipeline->length, PL_ACCESS_LOCAL, &pipeline->region,
				   error);
	/* In pieces, so that a signal is not waited with for long. */
	for (uint64_t at = 0; rc == 0 && at < pipeline->length; at += COPY_PIECE) {
		rc = pl_region_copy_in(pipeline->region, at, sending->bytes + sending->done + at,
				       CLI_MIN(pipeline->length - at, COPY_PIECE), error);
		if (rc == 0)
			rc = session_pump(pipeline->session, 0, error);
	}
	return rc;
}

static int move(struct sending *sending, struct pl_error *error)
{
	struct session *session = &sending->put->session;
	struct pipeline pipeline = {
		.session = session,
		.write = true,
		.remote_offset = sending->done,
		.offset = sending->done,
		.length = sending->transfer->size - sending->done,
		.advance = advance,
		.idle = idle,
		.user = sending,
	};
	int rc;

	if (pipeline.length == 0)
		return 0;
	rc = session_import(session, &sending->answer, &pipeline.remote, error);
	if (rc < 0)
		return rc;
	rc = open_region(sending, &pipeline, error);
	if (rc == 0)
		rc = pipeline_run(&pipeline, &sending->transfer->result, error);
	if (pipeline.region)
		pl_region_deregister(pipeline.region);
	pl_remote_release(pipeline.remote);
	return rc;
}

/* What was sent must be what the file was when it began, and still is. */
static int check_unchanged(const struct sending *sending, struct pl_error *error)
{
	struct stat now;

	if (fstat(sending->fd, &now) < 0)
		return cli_fail_errno(error, -errno, "fstat", sending->transfer->file);
	if (now.st_size != sending->status.st_size || catalogue_modified(&now) != catalogue_modified(&sending->status))
		return cli_fail(error, -ESTALE, "FILE-CHANGED", sending->transfer->file, "send it again",
				"the file changed while it was sent");
	return 0;
}

static int compare_hashes(struct sending *sending, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_HASH,
					   .handle = sending->handle,
					   .length = sending->transfer->size };
	struct hash here, there;
	int rc = session_call(&sending->put->session, &request, &sending->answer, error);

	if (rc < 0)
		return rc;
	there = (struct hash){ sending->answer.hash[0], sending->answer.hash[1] };
	here = hash_end(sending->hash);
	sending->hash = NULL;
	if (!hash_equal(here, there))
		return cli_fail(error, -ESTALE, "HASH-MISMATCH", sending->transfer->file,
				"send it again; if this repeats, check the memory and disks of both hosts",
				"the bytes at the server are not those here");
	sending->transfer->hash = here;
	sending->transfer->verified = true;
	return 0;
}

static int commit_remote(struct sending *sending, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_COMMIT, .handle = sending->handle };

	sending->created = false;
	return session_call(&sending->put->session, &request, &sending->answer, error);
}

static int send_parts(struct sending *sending, struct pl_error *error)
{
	struct put *put = sending->put;
	struct pl_error changed;
	int rc = open_file(sending, error);

	if (rc == 0)
		rc = create_remote(sending, error);
	if (rc < 0)
		return rc;
	if (put->verify) {
		sending->hash = hash_begin();
		if (!sending->hash)
			return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
		hash_add(sending->hash, sending->bytes, sending->done);
	}
	progress_begin(&sending->progress, !put->common.quiet, sending->transfer->name, sending->transfer->size,
		       sending->done);
	rc = move(sending, error);
	/* A file that was cut can fail in many ways; that it changed is what to say. */
	if (rc != -EINTR && check_unchanged(sending, &changed) < 0) {
		*error = changed;
		rc = changed.code;
	}
	if (rc == 0 && put->verify)
		rc = compare_hashes(sending, error);
	return rc == 0 ? commit_remote(sending, error) : rc;
}

static void send_one(struct put *put, struct transfer *transfer)
{
	struct sending sending = { .put = put, .transfer = transfer, .fd = -1, .told_at = cli_now() };
	struct service_message request = { .type = SERVICE_CLOSE };
	struct pl_error ignored;
	int rc = send_parts(&sending, &transfer->error);

	progress_end(&sending.progress);
	transfer->status = rc;
	transfer->kept = rc < 0 && rc != -ESTALE && sending.told ? sending.done : 0;
	if (sending.created && put->session.peer) {
		/* What is wrong is of no use to go on with. */
		request.handle = sending.handle;
		request.flags = rc == -ESTALE ? SERVICE_DISCARD : 0;
		session_call(&put->session, &request, &sending.answer, &ignored);
	}
	hash_discard(sending.hash);
	if (sending.bytes)
		munmap(sending.bytes, transfer->size);
	if (sending.fd >= 0)
		close(sending.fd);
}

/* -- all files ---------------------------------------------------------------------------------- */

static enum cli_exit send_all(struct put *put, struct transfer *transfers)
{
	size_t count = 0;

	while (count < (size_t)put->count && !put->session.interrupted) {
		struct transfer *transfer = &transfers[count];

		transfer->file = put->files[count];
		transfer->name = put->name ? put->name : last_name(put->files[count]);
		count++;
		send_one(put, transfer);
		if (transfer->status < 0)
			render_transfer_failure(transfer);
		else if (!put->common.json && !put->common.quiet)
			render_transfer(transfer);
	}
	if (put->common.json)
		render_transfers_json(transfers, count, &put->session);
	return transfers_status(transfers, count);
}

int pl_cli_put(int argc, char **argv)
{
	struct put put = { .address = NULL };
	struct transfer *transfers;
	struct pl_error error;
	int rc, status = CLI_FAILED;

	cli_parse(&arguments, argc, argv, &put);
	transfers = calloc((size_t)put.count, sizeof(*transfers));
	rc = transfers ? session_open(&put.session, &put.common, put.address, &error)
		       : cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
	if (rc == 0) {
		status = send_all(&put, transfers);
		session_close(&put.session);
	} else {
		cli_report_for(&put.common, &error);
	}
	free(transfers);
	return status;
}
