/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests of clients, by type. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/transfer/data_ranges.h"
#include "cmd/transfer/folder_set.h"
#include "cmd/transfer/permission.h"
#include "cmd/transfer/quota.h"

/* Age from which the first LIST of a client scans the catalogue again; the next ones continue in the same catalogue. */
#define CATALOGUE_AGE (2 * CLI_NS_PER_S)
#define HASH_SLICE (4ull << 20)

/* -- handles ------------------------------------------------------------------------------------ */

static void report_closed(const struct client *client, const struct handle *handle)
{
	const struct server_event_report report = {
		.event = SERVER_CLOSED,
		.client = client,
		.name = handle->name,
		.bytes = handle->item->version.size,
		.duration = cli_now() - handle->opened,
	};

	client->server->report_event(client->server->user, &report);
}

void request_handle_close(struct client *client, size_t index, bool discard)
{
	struct handle *handle = client->handles[index];

	client->handles[index] = NULL;
	if (!handle->area)
		report_closed(client, handle);
	if (handle->token_length && handle->item->region)
		pl_region_revoke(handle->item->region, handle->token, handle->token_length);
	item_release(&client->server->items, handle->item, discard);
	free(handle->name);
	free(handle);
}

int request_find_handle(struct client *client, uint32_t number, struct handle **handle, struct pl_error *error)
{
	*handle = number < SERVER_HANDLES_MAX ? client->handles[number] : NULL;
	if (*handle)
		return 0;
	return cli_fail(error, -EINVAL, "NO-HANDLE", NULL, NULL, "unknown handle %u", number);
}

static int make_handle_token(struct handle *handle, struct pl_error *error)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;

	if (!handle->item->region)
		return 0;
	options.rights = handle->rights;
	handle->token_length = sizeof(handle->token);
	return pl_region_share(handle->item->region, &options, handle->token, &handle->token_length, error);
}

int request_add_handle(struct client *client, struct item *item, const char *name, unsigned rights,
		       struct service_message *answer, struct pl_error *error)
{
	struct handle *handle = calloc(1, sizeof(*handle));
	uint32_t number = 0;
	int rc;

	while (number < SERVER_HANDLES_MAX && client->handles[number])
		number++;
	if (!handle || number == SERVER_HANDLES_MAX) {
		free(handle);
		item_release(&client->server->items, item, false);
		return cli_fail(error, -EMFILE, "TOO-MANY-HANDLES", name, "close files",
				"a client can open at most %d files", SERVER_HANDLES_MAX);
	}
	handle->item = item;
	handle->rights = rights;
	handle->opened = cli_now();
	handle->length = item->version.size;
	handle->name = strdup(name);
	client->handles[number] = handle;
	rc = make_handle_token(handle, error);
	if (rc < 0) {
		handle->token_length = 0;
		request_handle_close(client, number, false);
		return rc;
	}
	answer->handle = number;
	answer->kind = item->kind == ITEM_MEMORY ? SERVICE_MEMORY : SERVICE_FILE;
	memcpy(answer->token, handle->token, handle->token_length);
	answer->token_length = handle->token_length;
	return REQUEST_ANSWER;
}

/* -- requests ----------------------------------------------------------------------------------- */

static void fill_version(struct service_message *answer, const struct file_version *version)
{
	answer->size = version->size;
	answer->modified = version->modified;
	answer->identity = version->identity;
	answer->mode = version->mode;
}

static int handle_list(struct client *client, const struct service_message *request, struct service_message *answer,
		       struct pl_error *error)
{
	struct catalogue *catalogue = &client->server->catalogue;
	uint8_t *entries = client->server->entries;
	struct service_entry entry;
	int rc = request->name[0] ? 0 : catalogue_refresh(catalogue, CATALOGUE_AGE, error);

	if (rc < 0)
		return rc;
	answer->entries = entries;
	for (size_t i = catalogue_after(catalogue, request->name); i < catalogue->count; i++) {
		const struct catalogue_entry *from = &catalogue->entries[i];

		if (!permission_name_fits(client->rights.names, from->name))
			continue;
		entry.kind = from->kind;
		entry.size = from->size;
		entry.modified = from->modified;
		strcpy(entry.name, from->name);
		if (!service_entry_put(&entry, entries, SERVICE_ENTRIES_MAX, &answer->entries_length)) {
			answer->more = 1;
			break;
		}
	}
	return REQUEST_ANSWER;
}

static int open_published_item(struct server *server, const char *name, struct item **item, struct pl_error *error)
{
	struct item *memory = catalogue_memory(&server->catalogue, name);
	struct stat status;
	int fd;

	if (memory) {
		item_acquire(memory);
		*item = memory;
		return 0;
	}
	fd = catalogue_open(&server->catalogue, name, &status, error);
	return fd < 0 ? fd : item_open_file(&server->items, fd, &status, name, item, error);
}

static int handle_open(struct client *client, const struct service_message *request, struct service_message *answer,
		       struct pl_error *error)
{
	struct server *server = client->server;
	struct stat status;
	struct item *item;
	int rc = permission_check(client, request->name, PL_ACCESS_READ, error);

	if (rc == 0)
		rc = open_published_item(server, request->name, &item, error);
	if (rc < 0)
		return rc;
	rc = request_add_handle(client, item, request->name, PL_ACCESS_READ, answer, error);
	if (rc < 0)
		return rc;
	fill_version(answer, &item->version);
	if (item->kind == ITEM_FILE && fstat(item->fd, &status) == 0 && file_is_sparse(&status))
		answer->flags = SERVICE_SPARSE;
	answer->handle |= SERVICE_HANDLE_STAGED;
	server_report(client, SERVER_READS, request->name, item->version.size);
	return rc;
}

static int open_memory_for_writing(struct server *server, struct item *memory, const struct service_message *request,
				   struct item **item, struct pl_error *error)
{
	if (!server->writable)
		return cli_fail(error, -EACCES, "NOT-WRITABLE", request->name, "start the server with --writable",
				"the server does not allow writing to this memory");
	if (request->size > memory->version.size)
		return cli_fail(error, -ENOSPC, "NO-SPACE", request->name, "start the server with a larger --memory",
				"the memory has %llu bytes; the file has %llu",
				(unsigned long long)memory->version.size, (unsigned long long)request->size);
	item_acquire(memory);
	*item = memory;
	return 0;
}

static int open_upload(struct client *client, const struct service_message *request, struct item **item,
		       struct pl_error *error)
{
	struct server *server = client->server;
	struct file_version version = { request->size, request->modified, request->identity, request->mode };
	struct quota_owner owner = quota_owner_of(client);
	const char *last;
	int folder, rc;

	if (server->upload < 0)
		return cli_fail(error, -EACCES, "NOT-WRITABLE", request->name,
				"start the server with --upload DIRECTORY", "the server does not accept files");
	if (!service_name_valid(request->name) || is_partial_file_name(request->name))
		return cli_fail(error, -EINVAL, "NAME-SYNTAX", request->name, "choose another name with --as",
				"the server does not accept this file name");
	folder = folder_open(server->upload, request->name, request->flags & SERVICE_FOLDERS, &last, error);
	if (folder < 0)
		return folder;
	rc = folder_check_target(folder, request->name, last, error);
	if (rc == 0)
		rc = quota_reserve(client, request->name, request->size, quota_allocated(client, folder, last), error);
	if (rc < 0) {
		close(folder);
		return rc;
	}
	rc = item_open_partial_file(&server->items, folder, last, &version,
				    request->flags & SERVICE_SPARSE ? request->length : request->size, item, error);
	if (rc < 0)
		return rc;
	/* Another client began it. */
	if (quota_owned_by(client, (*item)->partial.fd) == OWNED_BY_OTHER)
		rc = partial_file_begin_again(&(*item)->partial, error);
	if (rc == 0)
		rc = quota_mark(&owner, (*item)->partial.fd, request->name, error);
	if (rc < 0)
		item_release(&server->items, *item, true);
	return rc;
}

static int handle_create(struct client *client, const struct service_message *request, struct service_message *answer,
			 struct pl_error *error)
{
	struct server *server = client->server;
	struct item *memory = catalogue_memory(&server->catalogue, request->name), *item = NULL;
	int rc = permission_check(client, request->name, PL_ACCESS_WRITE, error);

	if (rc == 0)
		rc = memory ? open_memory_for_writing(server, memory, request, &item, error)
			    : open_upload(client, request, &item, error);
	if (rc < 0)
		return rc;
	rc = request_add_handle(client, item, request->name, PL_ACCESS_WRITE, answer, error);
	if (rc < 0)
		return rc;
	answer->done = item->kind == ITEM_PARTIAL_FILE ? item->partial.done : 0;
	client->handles[answer->handle]->length = request->size;
	watch_count(client, client->handles[answer->handle], answer->done);
	answer->handle |= SERVICE_HANDLE_STAGED;
	server_report(client, SERVER_WRITES, request->name, request->size);
	return rc;
}

static int handle_extent(struct client *client, const struct service_message *request)
{
	struct pl_error ignored;
	struct handle *handle;

	/* Ignores errors: without the record, a resumed transfer only repeats more bytes. */
	if (request_find_handle(client, request->handle, &handle, &ignored) < 0 || handle->area)
		return REQUEST_NO_ANSWER;
	watch_count_report(client, handle, request->done, request);
	if (handle->item->kind == ITEM_PARTIAL_FILE && request->done <= handle->item->version.size)
		partial_file_record(&handle->item->partial, request->done);
	return REQUEST_NO_ANSWER;
}

static void perform_commit(struct commit *commit)
{
	commit->rc = partial_file_commit(&commit->item->partial, commit->sync, &commit->error);
}

/* Hands an uploaded file to the committer.  The commit takes over the handle's use of the item. */
static int submit_commit(struct client *client, struct handle *handle, const struct service_message *request,
			 struct pl_error *error)
{
	struct commit *commit = calloc(1, sizeof(*commit));

	if (!commit)
		return cli_fail_errno(error, -ENOMEM, "malloc", handle->name);
	item_end_access(handle->item);
	*commit = (struct commit){ .client = client,
				   .perform = perform_commit,
				   .item = handle->item,
				   .name = handle->name,
				   .request = request->request,
				   .type = request->type,
				   .unreported = handle->length - handle->moved,
				   .unreported_staged = watch_unreported_staged(handle, request),
				   .has_staged = request->has_staged,
				   .sync = request->type == SERVICE_COMMIT };
	client->handles[request->handle] = NULL;
	client->commit = commit;
	free(handle);
	committer_submit(&client->server->committer, commit);
	return REQUEST_LATER;
}

static int handle_commit(struct client *client, const struct service_message *request, struct pl_error *error)
{
	struct handle *handle;
	int rc = request_find_handle(client, request->handle, &handle, error);

	if (rc < 0)
		return rc;
	if (handle->rights != PL_ACCESS_WRITE)
		return cli_fail(error, -EINVAL, "NO-HANDLE", handle->name, NULL,
				"the handle was not opened for writing");
	if (handle->token_length && handle->item->region)
		pl_region_revoke(handle->item->region, handle->token, handle->token_length);
	handle->token_length = 0;
	if (handle->item->kind == ITEM_PARTIAL_FILE)
		return submit_commit(client, handle, request, error);
	watch_count_report(client, handle, handle->length, request);
	server_report(client, SERVER_STORED, handle->name, handle->item->version.size);
	request_handle_close(client, request->handle, false);
	return REQUEST_ANSWER;
}

struct client *request_commit_end(struct server *server, struct commit *commit, struct service_message *answer)
{
	struct client *client = commit->client;

	if (client)
		client->commit = NULL;
	if (commit->type == SERVICE_PUT_SMALL || commit->type == SERVICE_GET_SMALL) {
		small_end(server, commit, answer);
		return client;
	}
	if (commit->type == SERVICE_DELETE) {
		deletion_end(commit, answer);
		return client;
	}
	if (commit->rc == 0)
		server->catalogue.scanned = 0;
	if (commit->rc == 0 && client) {
		watch_count_moved(client, true, commit->unreported);
		if (commit->has_staged)
			watch_count_routes(client, true, commit->unreported, commit->unreported_staged);
		server_report(client, SERVER_STORED, commit->name, commit->item->version.size);
	}
	item_release(&server->items, commit->item, commit->rc < 0);
	free(commit->name);
	return client;
}

/* Lists ranges of an open file that are not holes. */
static int handle_data(struct client *client, const struct service_message *request, struct service_message *answer,
		       struct pl_error *error)
{
	struct service_range ranges[SERVICE_ENTRIES_MAX / SERVICE_RANGE];
	uint8_t *bytes = client->server->entries;
	struct handle *handle;
	bool more = false;
	size_t count;
	int rc = request_find_handle(client, request->handle, &handle, error);

	if (rc == 0 && handle->item->kind != ITEM_FILE)
		rc = cli_fail(error, -EINVAL, "NO-HANDLE", handle->name, NULL, "the handle is no published file");
	if (rc < 0)
		return rc;
	count = data_ranges_find(handle->item->fd, request->offset, handle->item->version.size, ranges,
				 CLI_ARRAY_SIZE(ranges), &more);
	answer->ranges = bytes;
	for (size_t i = 0; i < count; i++)
		service_range_put(&ranges[i], bytes, SERVICE_ENTRIES_MAX, &answer->ranges_length);
	answer->more = more;
	return REQUEST_ANSWER;
}

static int handle_close(struct client *client, const struct service_message *request, struct service_message *answer,
			struct pl_error *error)
{
	struct handle *handle;
	struct file_version version;
	int rc = request_find_handle(client, request->handle, &handle, error);

	if (rc < 0)
		return rc;
	version = item_current_version(handle->item);
	fill_version(answer, &version);
	request_handle_close(client, request->handle, request->flags & SERVICE_DISCARD);
	return REQUEST_ANSWER;
}

/* -- hashes ------------------------------------------------------------------------------------- */

static int handle_hash(struct client *client, const struct service_message *request, struct pl_error *error)
{
	struct handle *handle;
	int rc = request_find_handle(client, request->handle, &handle, error);

	if (rc < 0)
		return rc;
	if (request->offset > handle->item->version.size ||
	    request->length > handle->item->version.size - request->offset)
		return cli_fail(error, -ERANGE, "RANGE", handle->name, NULL, "the range is beyond the end of the file");
	client->hash = hash_begin();
	if (!client->hash)
		return cli_fail_errno(error, -ENOMEM, "malloc", handle->name);
	item_acquire(handle->item);
	client->hash_item = handle->item;
	client->hash_offset = request->offset;
	client->hash_remaining = request->length;
	client->hash_request = request->request;
	client->server->hashing++;
	return REQUEST_LATER;
}

void request_hash_end(struct client *client)
{
	if (!client->hash_item)
		return;
	hash_discard(client->hash);
	item_release(&client->server->items, client->hash_item, false);
	client->hash = NULL;
	client->hash_item = NULL;
	client->server->hashing--;
}

int request_hash_slice(struct client *client, struct service_message *answer, struct pl_error *error)
{
	uint64_t length = CLI_MIN(client->hash_remaining, HASH_SLICE);
	struct hash result;
	int rc = item_hash(client->hash_item, client->hash, client->hash_offset, length);

	if (rc == -ESTALE)
		return cli_fail(error, rc, "FILE-CHANGED", NULL, "transfer it again",
				"the file was truncated while it was hashed");
	if (rc < 0)
		return cli_fail_errno(error, rc, "read", NULL);
	client->hash_offset += length;
	client->hash_remaining -= length;
	if (client->hash_remaining)
		return REQUEST_LATER;
	result = hash_end(client->hash);
	client->hash = NULL;
	answer->hash[0] = result.low;
	answer->hash[1] = result.high;
	return REQUEST_ANSWER;
}

int request_handle(struct client *client, const struct service_message *request, struct service_message *answer,
		   struct pl_error *error)
{
	switch (request->type) {
	case SERVICE_LIST:
		return handle_list(client, request, answer, error);
	case SERVICE_OPEN:
		return handle_open(client, request, answer, error);
	case SERVICE_CREATE:
		return handle_create(client, request, answer, error);
	case SERVICE_EXTENT:
		return handle_extent(client, request);
	case SERVICE_HASH:
		return handle_hash(client, request, error);
	case SERVICE_COMMIT:
	case SERVICE_COMMIT_UNSYNCED:
		return handle_commit(client, request, error);
	case SERVICE_CLOSE:
		return handle_close(client, request, answer, error);
	case SERVICE_AREA:
		return small_area_open(client, request, answer, error);
	case SERVICE_PUT_SMALL:
	case SERVICE_GET_SMALL:
		return small_begin(client, request, error);
	case SERVICE_DATA:
		return handle_data(client, request, answer, error);
	case SERVICE_DELETE:
		return deletion_begin(client, request, error);
	case SERVICE_WATCH:
		return watch_list(client, request, answer);
	case SERVICE_TYPES:
		break;
	}
	return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", NULL, NULL, "unknown type of request");
}
