/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane put`: one-sided writes from the mapping of a local file into the server's mapping of the new file. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/transfer/file_version.h"
#include "cmd/transfer/local_tree.h"
#include "cmd/transfer/progress.h"
#include "cmd/transfer/small_client.h"
#include "cmd/transfer/transfer.h"

/* Interval of EXTENT messages, which tell the server how many bytes it has. */
#define EXTENT_INTERVAL (20 * CLI_NS_PER_MS)

enum { OPTION_NO_SYNC = 0x200 };

struct put {
	struct transfer_command command;
	const char *name; /* --as; NULL: the name of the file */
	bool no_sync;
	bool recursive; /* files may be directories */
	int input;      /* copy of standard input, or -1 */
	struct local_tree tree;
	struct small small;
};

/* Upload of one file. */
struct upload {
	struct transfer_command *command;
	struct transfer *transfer;
	int fd;
	int input;          /* copy of standard input, or -1 */
	struct stat status; /* of the file when the upload began */
	uint8_t *bytes;     /* mapping of the file */
	uint32_t handle;
	bool created;  /* handle is open */
	bool refused;  /* the server could not make the file of the bytes, and has discarded them */
	bool unsynced; /* the server need not wait for its storage */
	bool folders;  /* the server makes missing directories */
	struct service_message answer;
	struct hash_state *local_hash;
	struct progress progress;
	uint64_t done;           /* bytes at the server */
	uint64_t extent_sent_at; /* time of the last EXTENT message */
	bool extent_sent;
};

/* -- arguments ---------------------------------------------------------------------------------- */

static void check_put_files(const struct put *put, struct argp_state *state)
{
	const char *first, *second;

	if (put->command.count == 0)
		argp_error(state, "a FILE is missing");
	for (int i = 0; i < put->command.count; i++) {
		if (!put->command.names[i][0])
			argp_error(state, "'' is not the name of a file");
		if (!strcmp(put->command.names[i], "-") && !put->name)
			argp_error(state, "standard input has no name: add --as NAME");
	}
	if (put->name && put->command.count > 1)
		argp_error(state, "--as can be used with one FILE only");
	if (put->command.count && transfer_find_duplicate(put->command.names, put->command.count, &first, &second))
		argp_error(state, "'%s' and '%s' would be stored under the same name", first, second);
	if (put->name && !service_name_valid(put->name))
		argp_error(state, "--as takes the name of a file, such as inbox/run7, not '%s'", put->name);
}

static error_t parse_put_option(int key, char *argument, struct argp_state *state)
{
	struct put *put = state->input;
	error_t rc;

	if (key == 'a') {
		put->name = argument;
		return 0;
	}
	if (key == OPTION_NO_SYNC) {
		put->no_sync = true;
		return 0;
	}
	if (key == 'r') {
		put->recursive = true;
		return 0;
	}
	rc = transfer_parse_option(&put->command, key, argument, state);
	if (key == ARGP_KEY_END)
		check_put_files(put, state);
	return rc;
}

static const struct argp_option put_options[] = {
	{ "as", 'a', "NAME", 0,
	  "Store the file as NAME (default: the name of the file), or write it into the memory called NAME", 1 },
	{ "memory", 'm', "KIND", 0, "Copy the file to GPU memory first, and send from there: cuda, or cuda:1", 1 },
	{ "recursive", 'r', NULL, 0,
	  "Send all files below directories, as DIRECTORY/...; the server makes the directories", 1 },
	{ "verify", 'V', NULL, 0, "Compare XXH3-128 hashes of both ends before the file gets its name", 1 },
	{ "events", TRANSFER_OPTION_EVENTS, NULL, 0, TRANSFER_EVENTS_HELP, 1 },
	{ "no-sync", OPTION_NO_SYNC, NULL, 0,
	  "Do not wait until the server's storage has the file; a crash of its host may then lose it", 1 },
	{ 0 },
};

static const struct cli_command put_command = {
	.arguments = "ADDRESS FILE...",
	.summary = "Send files, or standard input for -, to `peerlane serve --upload` at ADDRESS.",
	.examples = {
		"peerlane put --key key gpu1 results.tar",
		"peerlane put --key key --verify -r gpu1 checkpoints",
	},
	.notes = "At the server, an incomplete file is called .NAME.part.  To resume an interrupted transfer, repeat the "
		 "command.  It begins again if the local file has changed.\n",
	.options = put_options,
	.parse = parse_put_option,
	.connection = true,
};

/* -- one file ----------------------------------------------------------------------------------- */

static bool is_standard_input(const char *path)
{
	return !strcmp(path, "-");
}

static int fail_changed_file(const char *path, struct pl_error *error)
{
	return cli_fail(error, -ESTALE, "FILE-CHANGED", path, "send it again", "the file changed during the transfer");
}

/* Refuses files of /proc, whose size is 0 although they have bytes. */
static int check_empty_file(int fd, const char *path, struct pl_error *error)
{
	struct stat now;
	char byte;
	ssize_t got = pread(fd, &byte, 1, 0);

	/* The file may have got its first bytes since its size was asked for. */
	if (got > 0 && fstat(fd, &now) == 0 && now.st_size != 0)
		return fail_changed_file(path, error);
	if (got > 0)
		return cli_fail(error, -EINVAL, "NOT-A-FILE", path,
				"send its content: peerlane put ADDRESS - --as NAME < FILE",
				"the file has bytes, but its size is 0, as that of files in /proc");
	return got < 0 ? cli_fail_errno(error, -errno, "read", path) : 0;
}

static int map_local_file(struct upload *upload, struct pl_error *error)
{
	const char *path = upload->transfer->file;

	if (is_standard_input(path))
		upload->fd = fcntl(upload->input, F_DUPFD_CLOEXEC, 0);
	else
		upload->fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (upload->fd < 0 || fstat(upload->fd, &upload->status) < 0)
		return cli_fail_errno(error, -errno, "open", path);
	if (!S_ISREG(upload->status.st_mode))
		return cli_fail(error, -EINVAL, "NOT-A-FILE", path,
				S_ISDIR(upload->status.st_mode) ? "send directories with --recursive"
								: "send regular files",
				"not a regular file");
	upload->transfer->size = (uint64_t)upload->status.st_size;
	if (upload->status.st_size == 0)
		return check_empty_file(upload->fd, path, error);
	/* Private: before Linux 6.2, RDMA devices cannot register a shared read-only mapping. */
	upload->bytes = mmap(NULL, (size_t)upload->status.st_size, PROT_READ, MAP_PRIVATE, upload->fd, 0);
	if (upload->bytes == MAP_FAILED) {
		upload->bytes = NULL;
		return cli_fail_errno(error, -errno, "mmap", path);
	}
	return 0;
}

static int create_remote_file(struct upload *upload, struct pl_error *error)
{
	struct file_version version = file_version_of(&upload->status);
	struct session *session = &upload->command->session;
	struct service_message request;
	int rc = session_name(&request, SERVICE_CREATE, upload->transfer->name, error);

	request.size = version.size;
	request.modified = version.modified;
	request.identity = version.identity;
	request.mode = version.mode;
	request.flags = (upload->folders ? SERVICE_FOLDERS : 0) | (upload->transfer->sparse ? SERVICE_SPARSE : 0);
	request.length = upload->transfer->sparse ? upload->transfer->data.bytes : version.size;
	if (rc == 0)
		rc = session_call(session, &request, &upload->answer, error);
	if (rc < 0)
		return rc;
	upload->created = true;
	upload->handle = upload->answer.handle;
	if (upload->answer.done > upload->transfer->size)
		return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", session->address, NULL,
				"the server reports more bytes than the file has");
	upload->done = upload->answer.done;
	return 0;
}

/* Begins again unless the bytes that the server has are those of the file. */
static int compare_kept_bytes(struct upload *upload, struct pl_error *error)
{
	bool same = true;
	int rc = transfer_compare_beginning(upload->command, upload->handle, upload->bytes, upload->done, &same, error);

	if (!same)
		upload->done = 0;
	/* The server's bytes in the holes are not known, so zeros are sent. */
	if (!same)
		upload->transfer->sparse = false;
	upload->transfer->resumed = upload->done;
	return rc;
}

static int upload_advance(void *user, uint64_t done, struct pl_error *error)
{
	struct upload *upload = user;
	struct service_message message = { .type = SERVICE_EXTENT,
					   .handle = upload->handle,
					   .staged = upload->transfer->result.staged,
					   .has_staged = true };
	uint64_t before = upload->done, now = cli_now();

	upload->done = upload->transfer->base + done;
	if (upload->local_hash && upload->transfer->hole)
		hash_add_zeros(upload->local_hash, upload->done - before);
	else if (upload->local_hash)
		hash_add(upload->local_hash, upload->bytes + before, upload->done - before);
	if (now - upload->extent_sent_at < EXTENT_INTERVAL)
		return 0;
	upload->extent_sent_at = now;
	upload->extent_sent = true;
	message.done = upload->done;
	return session_send(&upload->command->session, &message, error);
}

static void upload_show_progress(void *user)
{
	struct upload *upload = user;

	progress_update(&upload->progress, upload->done);
}

/* Returns -ESTALE if the file changed since the upload began. */
static int check_file_unchanged(const struct upload *upload, struct pl_error *error)
{
	struct stat now;

	if (fstat(upload->fd, &now) < 0)
		return cli_fail_errno(error, -errno, "fstat", upload->transfer->file);
	if (now.st_size != upload->status.st_size || file_modified(&now) != file_modified(&upload->status))
		return fail_changed_file(upload->transfer->file, error);
	return 0;
}

static int verify_uploaded_file(struct upload *upload, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_HASH,
					   .handle = upload->handle,
					   .length = upload->transfer->size };
	int rc = session_call(&upload->command->session, &request, &upload->answer, error);

	return rc < 0 ? rc : transfer_compare_hashes(upload->transfer, &upload->local_hash, &upload->answer, error);
}

static int commit_remote_file(struct upload *upload, struct pl_error *error)
{
	struct service_message request = { .type = upload->unsynced ? SERVICE_COMMIT_UNSYNCED : SERVICE_COMMIT,
					   .handle = upload->handle,
					   .staged = upload->transfer->result.staged,
					   .has_staged = true };
	int rc;

	upload->created = false;
	rc = session_call(&upload->command->session, &request, &upload->answer, error);
	upload->refused = rc < 0 && upload->command->session.peer;
	return rc;
}

static int upload_file(struct upload *upload, struct pl_error *error)
{
	struct transfer_command *command = upload->command;
	struct transfer *transfer = upload->transfer;
	struct pipeline pipeline = {
		.write = true, .advance = upload_advance, .idle = upload_show_progress, .user = upload
	};
	struct service_message grant;
	struct pl_error changed;
	int rc = map_local_file(upload, error);

	if (rc == 0 && !command->memory && file_is_sparse(&upload->status)) {
		transfer->sparse = true;
		rc = data_ranges_of_file(&transfer->data, upload->fd, transfer->size);
		if (rc < 0)
			cli_fail_errno(error, rc, "malloc", transfer->file);
	}
	if (rc == 0)
		rc = create_remote_file(upload, error);
	grant = upload->answer;
	if (rc == 0)
		rc = compare_kept_bytes(upload, error);
	if (rc < 0)
		return rc;
	if (command->verify) {
		upload->local_hash = hash_begin();
		if (!upload->local_hash)
			return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
		hash_add(upload->local_hash, upload->bytes, upload->done);
	}
	progress_begin(&upload->progress, !command->common.quiet, transfer->name, transfer->size, upload->done);
	rc = transfer_move_bytes(command, transfer, &grant, upload->bytes, &pipeline, error);
	/* A truncated file causes various errors; reports that the file changed instead. */
	if (rc != -EINTR && check_file_unchanged(upload, &changed) < 0) {
		*error = changed;
		rc = changed.code;
	}
	if (rc == 0 && command->verify)
		rc = verify_uploaded_file(upload, error);
	return rc == 0 ? commit_remote_file(upload, error) : rc;
}

static void run_upload(struct put *put, struct transfer *transfer)
{
	struct session *session = &put->command.session;
	struct upload upload = { .command = &put->command,
				 .transfer = transfer,
				 .fd = -1,
				 .input = put->input,
				 .extent_sent_at = cli_now(),
				 .unsynced = put->no_sync,
				 .folders = put->recursive };
	struct service_message request = { .type = SERVICE_CLOSE };
	struct pl_error ignored;
	int rc = upload_file(&upload, &transfer->error);

	progress_end(&upload.progress);
	transfer->status = rc;
	transfer->kept = rc < 0 && rc != -ESTALE && upload.extent_sent && !upload.refused ? upload.done : 0;
	if (upload.created && session->peer) {
		request.handle = upload.handle;
		/* The server keeps no wrong bytes for another attempt. */
		request.flags = rc == -ESTALE ? SERVICE_DISCARD : 0;
		session_call(session, &request, &upload.answer, &ignored);
	}
	hash_discard(upload.local_hash);
	if (upload.bytes)
		munmap(upload.bytes, transfer->size);
	if (upload.fd >= 0)
		close(upload.fd);
	data_ranges_free(&transfer->data);
}

/* -- all files ---------------------------------------------------------------------------------- */

/* Sends small files together, others one by one. */
static size_t run_uploads(void *user, struct transfer *transfers, size_t count)
{
	struct put *put = user;
	size_t done = 0;

	if (put->command.transfer_count > 1 && !put->command.memory)
		done = small_put(&put->small, transfers, count);
	if (done)
		return done;
	run_upload(put, transfers);
	return 1;
}

/* Copies standard input into a file without a name, because the server must know the size first. */
static int spool_standard_input(struct put *put, struct pl_error *error)
{
	const char *folder = getenv("TMPDIR");
	uint8_t piece[64 << 10];
	ssize_t got;

	folder = folder && folder[0] ? folder : "/var/tmp";
	/* The server's file gets these permissions.  Other users cannot open a file without a name. */
	put->input = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
	if (put->input < 0)
		return cli_fail_errno(error, -errno, "open", folder);
	while ((got = cli_read(STDIN_FILENO, piece, sizeof(piece))) > 0) {
		ssize_t written = write(put->input, piece, (size_t)got);

		if (written != got)
			return cli_fail_errno(error, written < 0 ? -errno : -ENOSPC, "write", folder);
	}
	return got < 0 ? cli_fail_errno(error, (int)got, "read", "standard input") : 0;
}

static bool is_folder(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int add_files(struct put *put, struct pl_error *error)
{
	struct transfer_command *command = &put->command;
	size_t before;
	int rc = 0;

	for (int i = 0; rc == 0 && i < command->count; i++) {
		const char *path = command->names[i];

		if (is_standard_input(path))
			rc = spool_standard_input(put, error);
		if (rc < 0)
			return rc;
		before = command->transfer_count;
		if (put->recursive && is_folder(path)) {
			rc = local_tree_add(&put->tree, command, path, put->name, error);
			if (rc == 0 && command->transfer_count == before)
				cli_warn("%s: nothing to send: it has no regular files", path);
		} else {
			rc = transfer_add(command, put->name ? put->name : transfer_last_name(path), path, error);
		}
	}
	if (put->tree.skipped)
		cli_warn("entries not sent because they are neither regular files nor directories: %u",
			 put->tree.skipped);
	return rc;
}

int pl_cli_put(int argc, char **argv)
{
	struct put put = { .input = -1 };
	struct pl_error error;
	unsigned flags;
	int status;

	cli_parse(&put_command, argc, argv, &put.command.common, &put);
	flags = (put.no_sync ? SERVICE_UNSYNCED : 0) | (put.recursive ? SERVICE_FOLDERS : 0);
	put.small = (struct small){ .command = &put.command, .flags = flags };
	if (add_files(&put, &error) == 0) {
		status = transfer_run_all(&put.command, run_uploads, &put);
	} else {
		status = cli_report_for(&put.command.common, &error);
		free(put.command.transfers);
	}
	if (put.input >= 0)
		close(put.input);
	local_tree_free(&put.tree);
	return status;
}
