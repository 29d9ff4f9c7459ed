/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small files at the server.  Their bytes travel through an area of memory, many files with one request.  The committer's
 * threads write the files of a request, then wait for storage once for all of them.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/transfer/data_ranges.h"
#include "cmd/transfer/folder_set.h"
#include "cmd/transfer/permission.h"
#include "cmd/transfer/quota.h"

/* Records of files have at least this many bytes, which bounds their number in a request. */
#define RECORD_MIN 50
#define FILES_MAX (SERVICE_REQUEST_MAX / RECORD_MIN)

struct small_file {
	struct service_file file;
	int fd;           /* GET_SMALL: the file, or -1 */
	int folder;       /* PUT_SMALL: its folder, which belongs to the set */
	const char *last; /* PUT_SMALL: last component of the name */
	struct partial_file partial;
	bool reserved, written;
	bool committed; /* has its name, also if storage has failed to keep the name */
};

struct small_batch {
	struct commit commit; /* first, because the server frees the commit */
	struct item *area;
	struct quota_owner owner; /* the client may leave meanwhile */
	bool hashed;
	uint64_t used; /* GET_SMALL: bytes of the area */
	size_t count;
	struct small_file *files;
	struct folder_set folders; /* PUT_SMALL */
};

static struct small_batch *batch_of(struct commit *commit)
{
	return (struct small_batch *)commit;
}

int small_area_open(struct client *client, const struct service_message *request, struct service_message *answer,
		    struct pl_error *error)
{
	uint64_t length = CLI_MIN(CLI_MAX(request->length, SERVICE_AREA_MIN), SERVICE_AREA_MAX);
	struct item *item;
	int rc;

	for (size_t i = 0; i < SERVER_HANDLES_MAX; i++)
		if (client->handles[i] && client->handles[i]->area)
			return cli_fail(error, -EBUSY, "TOO-MANY-HANDLES", NULL, "close the first area",
					"a client can have one area");
	rc = item_allocate_memory(&client->server->items, "host", length, &item, error);
	if (rc < 0)
		return rc;
	rc = request_add_handle(client, item, "area", client->rights.access & (PL_ACCESS_READ | PL_ACCESS_WRITE), answer,
				error);
	if (rc < 0)
		return rc;
	client->handles[answer->handle]->area = true;
	answer->length = length;
	return rc;
}

/* -- in a thread of the committer ------------------------------------------------------------------ */

static void store_file(struct small_batch *batch, struct small_file *small)
{
	struct service_file *file = &small->file;
	struct file_version version = { file->size, file->modified, file->identity, file->mode };
	struct hash_state *state;
	struct hash hash;

	file->status = partial_file_write(&small->partial, small->folder, small->last, &version,
					  batch->area->bytes + file->offset, &file->error);
	small->written = file->status == 0;
	if (small->written)
		file->status = quota_mark(&batch->owner, small->partial.fd, file->name, &file->error);
	if (file->status < 0 || !batch->hashed)
		return;
	state = hash_begin();
	file->status = state ? hash_add_file(state, small->partial.fd, 0, file->size) : -ENOMEM;
	if (file->status < 0) {
		hash_discard(state);
		cli_fail_errno(&file->error, file->status, "read", file->name);
		return;
	}
	hash = hash_end(state);
	if (!hash_equal(hash, (struct hash){ file->hash[0], file->hash[1] }))
		file->status = cli_fail(&file->error, -ESTALE, "HASH-MISMATCH", file->name,
					"transfer it again; if this repeats, check the memory and disks of both hosts",
					"the file here and the file at the server have different hashes");
}

/* Waits until storage has the bytes of all files.  Begins with all of them, so that the disk writes them together. */
static void sync_files(struct small_batch *batch)
{
	for (size_t i = 0; i < batch->count; i++)
		if (batch->files[i].file.status == 0)
			sync_file_range(batch->files[i].partial.fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	for (size_t i = 0; i < batch->count; i++)
		if (batch->files[i].file.status == 0)
			batch->files[i].file.status =
				partial_file_sync(&batch->files[i].partial, &batch->files[i].file.error);
}

static void commit_file(struct small_file *small)
{
	small->file.status = partial_file_commit(&small->partial, false, &small->file.error);
	small->committed = small->file.status == 0;
}

/* Waits until storage has the names in a folder. */
static void sync_folder(struct small_batch *batch, int folder)
{
	struct pl_error error;
	int rc = 1;

	for (size_t i = 0; i < batch->count; i++) {
		struct small_file *small = &batch->files[i];

		if (small->folder != folder || small->file.status < 0)
			continue;
		if (rc > 0)
			rc = partial_folder_sync(folder, small->last, &error);
		if (rc < 0)
			small->file.error = error;
		small->file.status = rc;
	}
}

static void store_files(struct commit *commit)
{
	struct small_batch *batch = batch_of(commit);

	for (size_t i = 0; i < batch->count; i++)
		if (batch->files[i].file.status == 0)
			store_file(batch, &batch->files[i]);
	if (commit->sync)
		sync_files(batch);
	for (size_t i = 0; i < batch->count; i++)
		if (batch->files[i].file.status == 0)
			commit_file(&batch->files[i]);
	for (size_t i = 0; commit->sync && i < batch->folders.count; i++)
		sync_folder(batch, batch->folders.folders[i]);
	for (size_t i = 0; i < batch->count; i++)
		if (batch->files[i].written)
			partial_file_close(&batch->files[i].partial, batch->files[i].file.status < 0);
}

static int read_whole(int fd, uint8_t *bytes, uint64_t size)
{
	for (uint64_t done = 0; done < size;) {
		ssize_t got = pread(fd, bytes + done, size - done, (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ESTALE;
		done += (uint64_t)got;
	}
	return 0;
}

static void load_file(struct small_batch *batch, struct small_file *small)
{
	struct service_file *file = &small->file;
	uint8_t *bytes = batch->area->bytes + file->offset;
	struct stat status;
	struct hash hash;
	int rc = read_whole(small->fd, bytes, file->size);

	if (rc == 0 && fstat(small->fd, &status) < 0)
		rc = -errno;
	if (rc == -ESTALE ||
	    (rc == 0 && ((uint64_t)status.st_size != file->size || file_modified(&status) != file->modified)))
		file->status = cli_fail(&file->error, -ESTALE, "FILE-CHANGED", file->name, "fetch it again",
					"the file at the server changed during the transfer");
	else if (rc < 0)
		file->status = cli_fail_errno(&file->error, rc, "read", file->name);
	if (file->status < 0 || !batch->hashed)
		return;
	hash = hash_memory(bytes, file->size);
	file->hash[0] = hash.low;
	file->hash[1] = hash.high;
}

static void load_files(struct commit *commit)
{
	struct small_batch *batch = batch_of(commit);

	for (size_t i = 0; i < batch->count; i++)
		if (batch->files[i].file.status == 0)
			load_file(batch, &batch->files[i]);
}

/* -- in the server's thread ------------------------------------------------------------------------ */

static int fail_not_small(struct service_file *file)
{
	return cli_fail(&file->error, -ENOTSUP, "NOT-SMALL", file->name, NULL, "this is transferred alone");
}

static int begin_store(struct small_batch *batch, struct client *client, struct small_file *small)
{
	struct server *server = client->server;
	struct service_file *file = &small->file;
	int rc;

	if (catalogue_memory(&server->catalogue, file->name))
		return fail_not_small(file);
	if (server->upload < 0)
		return cli_fail(&file->error, -EACCES, "NOT-WRITABLE", file->name,
				"start the server with --upload DIRECTORY", "the server does not accept files");
	if (!service_name_valid(file->name) || is_partial_file_name(file->name))
		return cli_fail(&file->error, -EINVAL, "NAME-SYNTAX", file->name, "choose another name with --as",
				"the server does not accept this file name");
	small->folder = folder_set_find(&batch->folders, file->name, &small->last, &file->error);
	if (small->folder < 0)
		return small->folder;
	rc = folder_check_target(small->folder, file->name, small->last, &file->error);
	if (rc == 0)
		rc = quota_reserve_small(client, file->name, file->size, &file->error);
	small->reserved = rc == 0;
	return rc;
}

/* Opens a file and finds room for its bytes.  Returns 1 if the area is full. */
static int begin_load(struct small_batch *batch, struct client *client, struct small_file *small)
{
	struct server *server = client->server;
	struct service_file *file = &small->file;
	struct file_version version;
	struct stat status;

	if (catalogue_memory(&server->catalogue, file->name))
		return fail_not_small(file);
	small->fd = catalogue_open(&server->catalogue, file->name, &status, &file->error);
	if (small->fd < 0)
		return small->fd;
	version = file_version_of(&status);
	if (version.size > service_small_max(batch->area->version.size))
		return fail_not_small(file);
	if (version.size > SERVICE_AREA_MIN && file_is_sparse(&status))
		return fail_not_small(file);
	if (version.size > batch->area->version.size - batch->used)
		return 1;
	file->size = version.size;
	file->modified = version.modified;
	file->identity = version.identity;
	file->mode = version.mode;
	file->offset = batch->used;
	batch->used += version.size;
	server_report(client, SERVER_READS, file->name, file->size);
	return 0;
}

static void batch_close(struct server *server, struct small_batch *batch)
{
	for (size_t i = 0; i < batch->count; i++) {
		const struct small_file *small = &batch->files[i];

		if (small->fd >= 0)
			close(small->fd);
		if (small->reserved)
			quota_end_small(server, &batch->owner, small->file.size, small->committed);
	}
	folder_set_close(&batch->folders);
	free(batch->files);
}

/* Opens all files of the request; -EINVAL if the request is not valid. */
static int begin_files(struct small_batch *batch, struct client *client, const struct service_message *request,
		       struct pl_error *error)
{
	bool put = request->type == SERVICE_PUT_SMALL;
	uint64_t size = batch->area->version.size;
	size_t at = 0;
	int rc;

	for (struct small_file *small = batch->files; service_file_next(request, &at, &small->file); small++) {
		struct service_file *file = &small->file;

		if (batch->count == FILES_MAX || (put && (file->size > size || file->offset > size - file->size)))
			return cli_fail(error, -EINVAL, "SERVICE-PROTOCOL", file->name, NULL,
					"a small file lies outside of its area");
		small->fd = -1;
		rc = permission_check(client, file->name, put ? PL_ACCESS_WRITE : PL_ACCESS_READ, &file->error);
		if (rc == 0)
			rc = put ? begin_store(batch, client, small) : begin_load(batch, client, small);
		batch->count++;
		if (rc > 0) {
			close(small->fd);
			batch->count--;
			break;
		}
		file->status = rc;
		/* The client requests this file alone, and repeats those behind it. */
		if (rc == -ENOTSUP)
			break;
	}
	return 0;
}

int small_begin(struct client *client, const struct service_message *request, struct pl_error *error)
{
	bool put = request->type == SERVICE_PUT_SMALL;
	struct small_batch *batch;
	struct handle *handle;
	int rc = request_find_handle(client, request->handle, &handle, error);

	if (rc == 0 && !handle->area)
		rc = cli_fail(error, -EINVAL, "NO-HANDLE", NULL, NULL, "the handle is no area");
	if (rc < 0)
		return rc;
	batch = calloc(1, sizeof(*batch));
	if (batch)
		batch->files = calloc(FILES_MAX + 1, sizeof(*batch->files));
	if (!batch || !batch->files) {
		free(batch);
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	}
	batch->area = handle->item;
	batch->owner = quota_owner_of(client);
	batch->hashed = request->flags & SERVICE_HASHED;
	batch->folders.base = client->server->upload;
	batch->folders.make = request->flags & SERVICE_FOLDERS;
	rc = begin_files(batch, client, request, error);
	if (rc < 0) {
		batch_close(client->server, batch);
		free(batch);
		return rc;
	}
	item_acquire(batch->area);
	batch->commit = (struct commit){ .client = client,
					 .perform = put ? store_files : load_files,
					 .item = batch->area,
					 .request = request->request,
					 .type = request->type,
					 .sync = !(request->flags & SERVICE_UNSYNCED) };
	client->commit = &batch->commit;
	committer_submit(&client->server->committer, &batch->commit);
	return REQUEST_LATER;
}

/* Leaves the texts of an error out if they do not fit. */
static bool put_answer_file(struct service_file *file, uint8_t *entries, size_t *length)
{
	if (service_file_put(file, entries, SERVICE_ENTRIES_MAX, length))
		return true;
	memset(&file->error, 0, sizeof(file->error));
	return file->status && service_file_put(file, entries, SERVICE_ENTRIES_MAX, length);
}

static void report_small_refused(const struct client *client, const struct service_file *file)
{
	const struct server_event_report report = {
		.event = SERVER_REFUSED, .client = client, .name = file->name, .error = &file->error
	};

	client->server->report_event(client->server->user, &report);
}

void small_end(struct server *server, struct commit *commit, struct service_message *answer)
{
	struct small_batch *batch = batch_of(commit);
	bool put = commit->type == SERVICE_PUT_SMALL;

	answer->files = server->entries;
	for (; answer->done < batch->count; answer->done++) {
		struct service_file *file = &batch->files[answer->done].file;

		if (commit->client && file->status < 0)
			report_small_refused(commit->client, file);
		if (!put || file->status < 0) {
			if (!put_answer_file(file, server->entries, &answer->files_length))
				break;
			if (commit->client && file->status == 0)
				watch_count_moved(commit->client, false, file->size);
			continue;
		}
		server->catalogue.scanned = 0;
		if (!commit->client)
			continue;
		watch_count_moved(commit->client, true, file->size);
		server_report(commit->client, SERVER_STORED, file->name, file->size);
	}
	item_release(&server->items, batch->area, false);
	batch_close(server, batch);
}
