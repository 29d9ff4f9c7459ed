/* SPDX-License-Identifier: BSD-2-Clause */
/* One file: one-sided reads from the server's mapping of a file into the mapping of the local file. */
#include <unistd.h>

#include "cmd/transfer/folder_set.h"
#include "cmd/transfer/get.h"
#include "cmd/transfer/partial_file.h"
#include "cmd/transfer/progress.h"

/* Time between reports to the server of what has arrived, for `peerlane top`. */
#define REPORT_INTERVAL (500 * CLI_NS_PER_MS)

/* Fetch of one file. */
struct fetch {
	struct transfer_command *command;
	struct transfer *transfer;
	struct partial_file partial;
	struct file_version version; /* of the file at the server */
	uint32_t handle;
	int folder;      /* descriptor of the folder for the file; -1: none */
	bool opened;     /* handle is open */
	bool memory;     /* name is a block of memory */
	bool hashing;    /* the server has been asked for a hash and has not answered */
	bool unwritable; /* the file or stream did not take all bytes */
	struct pipeline pipeline;
	struct service_message answer;
	struct hash_state *local_hash;
	struct session_request hash_request;
	struct await reported; /* the last report of progress */
	uint64_t report_at;    /* time of the next one */
	struct progress progress;
};

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

/* Limits the transfer to the range of --offset and --length. */
static int choose_range(const struct get *get, struct transfer *transfer, struct pl_error *error)
{
	uint64_t size = transfer->size;

	if (!get->ranged)
		return 0;
	if (get->offset > size || (get->length != UINT64_MAX && get->length > size - get->offset))
		return cli_fail(error, -ERANGE, "RANGE", transfer->name, "`peerlane list` tells the sizes",
				"the range is beyond the end of the file, which has %llu bytes",
				(unsigned long long)size);
	transfer->offset = get->offset;
	transfer->size = get->length == UINT64_MAX ? size - get->offset : get->length;
	return 0;
}

/* Asks the server for the ranges of a sparse file that have data. */
static int request_data_ranges(struct fetch *fetch, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_DATA, .handle = fetch->handle }, answer = { .more = 1 };
	struct transfer *transfer = fetch->transfer;
	struct service_range range = { 0 };
	size_t at;
	int rc = 0;

	while (rc == 0 && answer.more && transfer->data.count < DATA_RANGES_MAX) {
		rc = session_call(&fetch->command->session, &request, &answer, error);
		if (rc < 0)
			return rc;
		at = 0;
		while (rc == 0 && service_range_next(&answer, &at, &range))
			rc = data_ranges_add(&transfer->data, &range, transfer->size);
		if (rc == 0 && answer.more && range.offset + range.length <= request.offset)
			rc = -EPROTO;
		request.offset = range.offset + range.length;
	}
	if (rc == 0 && answer.more && request.offset < transfer->size)
		rc = data_ranges_add(&transfer->data,
				     &(struct service_range){ request.offset, transfer->size - request.offset },
				     transfer->size);
	transfer->sparse = rc == 0;
	if (rc == -EPROTO)
		return cli_fail(error, rc, "SERVICE-PROTOCOL", fetch->command->session.address, NULL,
				"the server sent ranges that are not in order, or outside of the file");
	return rc < 0 ? cli_fail_errno(error, rc, "malloc", transfer->name) : 0;
}

/* Asks the server for the hash of the file; the answer arrives while the bytes are moved. */
static int request_remote_hash(struct fetch *fetch, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_HASH,
					   .handle = fetch->handle,
					   .offset = fetch->transfer->offset,
					   .length = fetch->transfer->size };
	int rc;

	fetch->local_hash = hash_begin();
	if (!fetch->local_hash)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	hash_add(fetch->local_hash, fetch->partial.bytes, fetch->partial.done);
	rc = session_send_request(&fetch->command->session, &request, &fetch->hash_request, error);
	fetch->hashing = rc == 0;
	return rc;
}

/*
 * Reports what has arrived. The transfer does not wait for the report, which may lie at the server while that computes a hash,
 * and there is one at a time. Without it only the server's figures are wrong.
 */
static void report_progress(struct fetch *fetch)
{
	struct service_message message = { .type = SERVICE_EXTENT,
					   .handle = fetch->handle,
					   .done = fetch->partial.done,
					   .staged = fetch->transfer->result.staged,
					   .has_staged = true };
	struct session *session = &fetch->command->session;
	struct pl_error ignored;

	fetch->report_at = cli_now() + REPORT_INTERVAL;
	if (fetch->reported.done && session->peer && session_post(session, &message, &fetch->reported, &ignored) < 0)
		fetch->reported.done = true;
}

static int fetch_advance(void *user, uint64_t done, struct pl_error *error)
{
	struct fetch *fetch = user;
	uint64_t before = fetch->partial.done, now = fetch->transfer->base + done;
	int rc;

	if (fetch->command->memory) {
		rc = pl_region_copy_out(fetch->pipeline.region, before - fetch->transfer->resumed,
					fetch->partial.bytes + before, now - before, error);
		if (rc < 0)
			return rc;
	}
	/* The bytes are still in the CPU cache. */
	if (fetch->local_hash && fetch->transfer->hole)
		hash_add_zeros(fetch->local_hash, now - before);
	else if (fetch->local_hash)
		hash_add(fetch->local_hash, fetch->partial.bytes + before, now - before);
	rc = partial_file_record(&fetch->partial, now);
	if (cli_now() >= fetch->report_at)
		report_progress(fetch);
	fetch->unwritable = rc < 0 && rc != -EINTR;
	if (rc == -EINTR)
		return cli_fail(error, rc, "INTERRUPTED", NULL, NULL, "interrupted by a signal");
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
	return rc == 0 && !same ? partial_file_begin_again(&fetch->partial, error) : rc;
}

/* Opens the file here that receives the bytes. */
static int open_local_file(struct get *get, struct fetch *fetch, struct pl_error *error)
{
	struct transfer *transfer = fetch->transfer;
	struct file_version version = fetch->version;
	const char *last = transfer_last_name(transfer->file);
	int rc;

	version.size = transfer->size;
	if (get->stream >= 0) {
		rc = partial_file_open_stream(&fetch->partial, get->stream, transfer->file, &version, error);
		get->stream = -1;
		return rc;
	}
	rc = fetch->folder =
		get->recursive ? folder_open(get->folder, transfer->file, true, &last, error) : get->folder;
	if (rc < 0)
		return rc;
	/*
	 * Memory has no time of modification that tells whether it changed, and a range is not the whole file, so their
	 * transfers are not resumed.
	 */
	return partial_file_open(&fetch->partial, fetch->folder, last, &version,
				 transfer->sparse ? transfer->data.bytes : version.size,
				 fetch->memory || get->ranged ? NULL : partial_key_get(&get->key), error);
}

static int fetch_file(struct get *get, struct fetch *fetch, struct pl_error *error)
{
	struct transfer_command *command = fetch->command;
	struct transfer *transfer = fetch->transfer;
	struct service_message grant;
	int rc = open_remote_file(fetch, error);

	grant = fetch->answer;
	if (rc == 0)
		rc = choose_range(get, transfer, error);
	if (rc == 0 && fetch->answer.flags & SERVICE_SPARSE && !get->ranged && get->stream < 0 && !command->memory)
		rc = request_data_ranges(fetch, error);
	if (rc == 0)
		rc = open_local_file(get, fetch, error);
	if (rc == 0)
		rc = compare_kept_bytes(fetch, error);
	if (rc < 0)
		return rc;
	transfer->resumed = fetch->partial.done;
	progress_begin(&fetch->progress, !command->common.quiet, transfer->name, transfer->size, fetch->partial.done);
	if (command->verify)
		rc = request_remote_hash(fetch, error);
	report_progress(fetch);
	if (rc == 0)
		rc = transfer_move_bytes(command, transfer, &grant, fetch->partial.bytes, &fetch->pipeline, error);
	session_drain(&command->session, &fetch->reported);
	report_progress(fetch);
	if (rc == 0 && command->verify)
		rc = verify_fetched_file(fetch, error);
	if (rc == 0)
		rc = close_remote_file(fetch, error);
	return rc == 0 ? partial_file_commit(&fetch->partial, get->sync, error) : rc;
}

void get_file(struct get *get, struct transfer *transfer)
{
	struct session *session = &get->command.session;
	struct fetch fetch = {
		.command = &get->command,
		.transfer = transfer,
		.partial = { .fd = -1 },
		.folder = -1,
		.reported = { .done = true },
		.pipeline = { .advance = fetch_advance, .idle = fetch_show_progress, .user = &fetch },
	};
	struct pl_error changed, ignored;
	int rc = fetch_file(get, &fetch, &transfer->error);

	progress_end(&fetch.progress);
	transfer->status = rc;
	get->output_failed = fetch.unwritable;
	/* Receives a pending hash, which would otherwise be taken for the answer to the next request. */
	if (fetch.hashing && session->peer)
		session_wait_answer(session, &fetch.hash_request, &fetch.answer, &ignored);
	/* A truncated file causes various errors; reports that the file changed instead. */
	if (fetch.opened && session->peer && close_remote_file(&fetch, &changed) == -ESTALE) {
		transfer->status = -ESTALE;
		transfer->error = changed;
	}
	session_drain(session, &fetch.reported);
	hash_discard(fetch.local_hash);
	/* Wrong bytes are not kept, and neither are files that cannot be resumed. */
	transfer->kept = transfer->status == 0 || transfer->status == -ESTALE || !fetch.partial.key ? 0
												     : fetch.partial.done;
	partial_file_close(&fetch.partial, !transfer->kept);
	if (get->recursive && fetch.folder >= 0)
		close(fetch.folder);
	data_ranges_free(&transfer->data);
}
