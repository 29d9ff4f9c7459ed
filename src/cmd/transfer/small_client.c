/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/small_client.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/transfer/data_ranges.h"
#include "cmd/transfer/folder_set.h"
#include "cmd/transfer/partial_file.h"

/* Files of one request. */
struct batch {
	struct small *small;
	struct transfer *transfers;
	size_t count;
	uint64_t used; /* bytes of the area */
	struct service_message request, answer;
	struct pl_completion receipt; /* of the bytes; fabric NULL: there were none */
	struct folder_set folders;    /* get */
	uint64_t begin;
	uint8_t files[SERVICE_ENTRIES_MAX];
};

static int area_open(struct small *small, struct pl_error *error)
{
	struct session *session = &small->command->session;
	struct service_message request = { .type = SERVICE_AREA, .length = SERVICE_AREA_MAX }, answer;
	int rc = session_call(session, &request, &answer, error);

	if (rc == 0 && (answer.length < SERVICE_AREA_MIN || answer.length > SERVICE_AREA_MAX))
		rc = cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", session->address, NULL,
			      "the server's area has %llu bytes", (unsigned long long)answer.length);
	if (rc < 0)
		return rc;
	small->handle = answer.handle;
	small->length = answer.length;
	rc = session_import(session, &answer, &small->remote, error);
	if (rc == 0)
		rc = pl_region_allocate(session->context, small->length, PL_ACCESS_LOCAL, &small->region, error);
	if (rc == 0)
		small->bytes = pl_region_address(small->region);
	return rc;
}

/* Opens the area before the first request.  Without it, files are transferred one by one. */
static bool small_ready(struct small *small)
{
	struct pl_error ignored;

	if (small->open || small->failed)
		return small->open;
	small->open = area_open(small, &ignored) == 0;
	small->failed = !small->open;
	return small->open;
}

/* -- one request ---------------------------------------------------------------------------------- */

static void batch_begin(struct batch *batch, struct small *small, enum service_type type, struct transfer *transfers)
{
	memset(batch, 0, offsetof(struct batch, files));
	batch->small = small;
	batch->transfers = transfers;
	batch->begin = cli_now();
	batch->request.type = type;
	batch->request.handle = small->handle;
	batch->request.flags = small->command->verify ? SERVICE_HASHED : 0;
	batch->request.files = batch->files;
}

/* Adds a file to the request.  Returns false if the request is full. */
static bool batch_add(struct batch *batch, const struct service_file *file)
{
	if (!service_file_put(file, batch->files, sizeof(batch->files), &batch->request.files_length))
		return false;
	batch->count++;
	batch->used += file->size;
	return true;
}

/* Moves bytes between the area and the memory here. */
static int batch_move(struct batch *batch, uint64_t length, struct pl_error *error)
{
	struct small *small = batch->small;
	struct session *session = &small->command->session;
	bool put = batch->request.type == SERVICE_PUT_SMALL;
	struct pl_transfer transfer = { small->remote, 0, small->region, 0, length };
	struct await await;
	struct pl_attributes attributes = session_attributes(&await, 0);
	int rc;

	if (length == 0)
		return 0;
	if (!session->peer)
		return cli_fail(error, -ENOTCONN, "CONNECTION-LOST", session->address, NULL,
				"the connection is closed");
	rc = (put ? pl_write : pl_read)(session->peer, &transfer, &attributes, NULL, error);
	if (rc < 0)
		return rc;
	rc = session_await(session, &await, error);
	batch->receipt = await.completion;
	return rc;
}

static void transfer_fail(struct transfer *transfer, int rc, const struct pl_error *error)
{
	transfer->status = rc;
	transfer->error = *error;
}

/* All files of the request have the same error. */
static void batch_fail(struct batch *batch, size_t count, const struct pl_error *error)
{
	for (size_t i = 0; i < count; i++)
		transfer_fail(&batch->transfers[i], error->code, error);
}

/* Takes the server's error of a file. */
static void take_error(struct batch *batch, struct transfer *transfer, const struct service_file *file)
{
	const char *address = batch->small->command->session.address;
	size_t used = strlen(file->error.message);

	if (used) {
		transfer_fail(transfer, file->status, &file->error);
		snprintf(transfer->error.message + used, sizeof(transfer->error.message) - used, " (at the server %s)",
			 address);
	} else {
		transfer->status = cli_fail_errno(&transfer->error, file->status, "peerlane serve", transfer->name);
	}
}

/* Shares the time of the request among its files, and adds the kind of their transfer. */
static void batch_results(struct batch *batch, size_t count)
{
	uint64_t each = count ? (cli_now() - batch->begin) / count : 0;

	for (size_t i = 0; i < count; i++) {
		struct pipeline_result *result = &batch->transfers[i].result;

		result->nanoseconds = each;
		if (batch->transfers[i].status < 0 || batch->transfers[i].size == 0)
			continue;
		result->bytes = batch->transfers[i].size;
		result->staged = batch->receipt.bytes_staged ? result->bytes : 0;
		result->route = batch->receipt.route;
		result->reason = batch->receipt.reason;
		result->fabric = batch->receipt.fabric;
		result->lanes = batch->receipt.lanes;
	}
}

static int fail_answer(struct batch *batch, struct pl_error *error)
{
	return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", batch->small->command->session.address,
			"run `peerlane serve` of the same version at that address",
			"the answer does not match the request");
}

static int batch_call(struct batch *batch, struct pl_error *error)
{
	int rc = session_call(&batch->small->command->session, &batch->request, &batch->answer, error);

	if (rc == 0 && (batch->answer.done == 0 || batch->answer.done > batch->count))
		rc = fail_answer(batch, error);
	return rc;
}

/* -- put -------------------------------------------------------------------------------------------- */

/* True if a file may travel through the area. One whose holes are worth more requests travels alone. */
static bool is_small(const struct small *small, const struct stat *status)
{
	uint64_t size = (uint64_t)status->st_size;

	return S_ISREG(status->st_mode) && size <= service_small_max(small->length) &&
	       (size <= SERVICE_AREA_MIN || !file_is_sparse(status));
}

/* Reads a file of this size, and notices bytes of a file without size, as in /proc. */
static bool read_whole_file(int fd, uint8_t *bytes, uint64_t size)
{
	char byte;

	return size ? pread(fd, bytes, size, 0) == (ssize_t)size : pread(fd, &byte, 1, 0) == 0;
}

/* Reads a file into the area's copy.  Returns false if it must be sent alone: it is not small, or fails. */
static bool read_small_file(struct batch *batch, const char *path, struct service_file *file)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct small *small = batch->small;
	struct file_version version, after;
	struct stat status;
	bool whole = false;

	if (fd < 0)
		return false;
	if (fstat(fd, &status) == 0 && is_small(small, &status) &&
	    (uint64_t)status.st_size <= small->length - batch->used) {
		version = file_version_of(&status);
		whole = read_whole_file(fd, small->bytes + batch->used, version.size) && fstat(fd, &status) == 0;
		after = file_version_of(&status);
		whole = whole && file_version_equal(&version, &after);
		file->size = version.size;
		file->modified = version.modified;
		file->identity = version.identity;
		file->mode = version.mode;
		file->offset = batch->used;
	}
	close(fd);
	return whole;
}

static bool add_local_file(struct batch *batch, struct transfer *transfer)
{
	struct service_file file = { 0 };

	if (!service_name_valid(transfer->name) || !read_small_file(batch, transfer->file, &file))
		return false;
	strcpy(file.name, transfer->name);
	if (batch->small->command->verify) {
		transfer->hash = hash_memory(batch->small->bytes + file.offset, file.size);
		file.hash[0] = transfer->hash.low;
		file.hash[1] = transfer->hash.high;
	}
	transfer->size = file.size;
	transfer->status = 0;
	return batch_add(batch, &file);
}

/* Gives the errors of the answer to their files. */
static int take_put_answer(struct batch *batch, size_t *alone, struct pl_error *error)
{
	struct service_file file;
	size_t at = 0, i = 0;

	for (; service_file_next(&batch->answer, &at, &file); i++) {
		while (i < batch->answer.done && strcmp(batch->transfers[i].name, file.name) != 0)
			i++;
		if (i == batch->answer.done || file.status == 0)
			return fail_answer(batch, error);
		if (file.status == -ENOTSUP && i < *alone)
			*alone = i;
		take_error(batch, &batch->transfers[i], &file);
	}
	return 0;
}

size_t small_put(struct small *small, struct transfer *transfers, size_t count)
{
	struct pl_error error;
	struct batch batch;
	size_t done;
	int rc;

	if (!small_ready(small))
		return 0;
	batch_begin(&batch, small, SERVICE_PUT_SMALL, transfers);
	batch.request.flags |= small->flags;
	while (batch.count < count && add_local_file(&batch, &transfers[batch.count]))
		;
	if (batch.count == 0)
		return 0;
	rc = batch_move(&batch, batch.used, &error);
	if (rc == 0)
		rc = batch_call(&batch, &error);
	done = rc == 0 ? batch.answer.done : batch.count;
	if (rc == 0)
		rc = take_put_answer(&batch, &done, &error);
	if (rc < 0)
		batch_fail(&batch, batch.count, &error);
	for (size_t i = 0; i < done; i++)
		transfers[i].verified = small->command->verify && transfers[i].status == 0;
	batch_results(&batch, done);
	return done;
}

/* -- get -------------------------------------------------------------------------------------------- */

static int store_small_file(struct batch *batch, struct transfer *transfer, const struct service_file *file,
			    struct partial_file *partial)
{
	struct small *small = batch->small;
	const uint8_t *bytes = small->bytes + file->offset;
	struct file_version version = { file->size, file->modified, file->identity, file->mode };
	const char *last = transfer_last_name(transfer->file);
	int folder = small->folder;

	transfer->size = file->size;
	if (small->recursive)
		folder = folder_set_find(&batch->folders, transfer->file, &last, &transfer->error);
	if (folder < 0)
		return folder;
	if (small->command->verify) {
		transfer->hash = hash_memory(bytes, file->size);
		if (!hash_equal(transfer->hash, (struct hash){ file->hash[0], file->hash[1] }))
			return cli_fail(&transfer->error, -ESTALE, "HASH-MISMATCH", transfer->name,
					"transfer it again; if this repeats, check the memory and disks of both hosts",
					"the file here and the file at the server have different hashes");
		transfer->verified = true;
	}
	return partial_file_write(partial, folder, last, &version, bytes, &transfer->error);
}

/* Gives the files their names, after storage has them if that is wanted. */
static void commit_small_files(struct batch *batch, struct partial_file *partials, size_t count)
{
	struct small *small = batch->small;
	struct pl_error error;
	int rc = 0;

	for (size_t i = 0; i < count; i++) {
		struct transfer *transfer = &batch->transfers[i];

		if (transfer->status == 0 && small->sync)
			transfer->status = partial_file_sync(&partials[i], &transfer->error);
		if (transfer->status == 0)
			transfer->status = partial_file_commit(&partials[i], false, &transfer->error);
		if (partials[i].name)
			partial_file_close(&partials[i], transfer->status < 0);
	}
	if (small->sync && !small->recursive)
		rc = partial_folder_sync(small->folder, batch->transfers[0].file, &error);
	for (size_t i = 0; small->sync && rc == 0 && i < batch->folders.count; i++)
		rc = partial_folder_sync(batch->folders.folders[i], batch->transfers[0].file, &error);
	if (rc < 0)
		batch_fail(batch, count, &error);
}

/* Decodes the answer.  Returns the bytes of its files, or -EPROTO. */
static int64_t check_get_answer(struct batch *batch, struct service_file *files, struct pl_error *error)
{
	uint64_t length = batch->small->length, used = 0;
	size_t at = 0, i = 0;

	for (; i < batch->answer.done && service_file_next(&batch->answer, &at, &files[i]); i++) {
		struct service_file *file = &files[i];

		if (strcmp(file->name, batch->transfers[i].name) != 0 ||
		    (file->status == 0 && (file->size > length || file->offset > length - file->size)))
			return fail_answer(batch, error);
		if (file->status == 0)
			used = CLI_MAX(used, file->offset + file->size);
	}
	return i == batch->answer.done ? (int64_t)used : fail_answer(batch, error);
}

/* Fetches the bytes of the answered files and stores them.  Returns the number of files. */
static size_t take_get_answer(struct batch *batch, struct service_file *files, struct partial_file *partials)
{
	struct pl_error error;
	int64_t used = check_get_answer(batch, files, &error);
	size_t done = used < 0 ? batch->count : batch->answer.done;
	int rc = used < 0 ? (int)used : batch_move(batch, (uint64_t)used, &error);

	if (rc < 0) {
		batch_fail(batch, done, &error);
		return done;
	}
	for (size_t i = 0; i < done; i++) {
		if (files[i].status == -ENOTSUP) {
			done = i;
			break;
		}
		if (files[i].status < 0)
			take_error(batch, &batch->transfers[i], &files[i]);
		else
			batch->transfers[i].status =
				store_small_file(batch, &batch->transfers[i], &files[i], &partials[i]);
	}
	if (done)
		commit_small_files(batch, partials, done);
	return done;
}

size_t small_get(struct small *small, struct transfer *transfers, size_t count)
{
	struct service_file file = { 0 };
	struct partial_file *partials;
	struct service_file *files;
	struct pl_error error;
	struct batch batch;
	size_t done = 0;

	if (!small_ready(small))
		return 0;
	batch_begin(&batch, small, SERVICE_GET_SMALL, transfers);
	batch.folders = (struct folder_set){ .base = small->folder, .make = true };
	do {
		if (batch.count == count || !service_name_valid(transfers[batch.count].name) ||
		    transfers[batch.count].listed > service_small_max(small->length))
			break;
		strcpy(file.name, transfers[batch.count].name);
	} while (batch_add(&batch, &file));
	files = calloc(batch.count + 1, sizeof(*files));
	partials = calloc(batch.count + 1, sizeof(*partials));
	if (batch.count && files && partials) {
		if (batch_call(&batch, &error) < 0) {
			batch_fail(&batch, batch.count, &error);
			done = batch.count;
		} else {
			done = take_get_answer(&batch, files, partials);
		}
		batch_results(&batch, done);
	}
	folder_set_close(&batch.folders);
	free(files);
	free(partials);
	return done;
}
