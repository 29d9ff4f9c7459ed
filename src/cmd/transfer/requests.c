/* SPDX-License-Identifier: BSD-2-Clause */
/* What a server does on each kind of request. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/transfer/server.h"

/* A listing that a client begins sees what changed since; one that goes on keeps to what it saw. */
#define CATALOGUE_AGE (2 * CLI_NS_PER_S)
#define HASH_SLICE (4ull << 20)

/* -- handles ------------------------------------------------------------------------------------ */

void request_handle_close(struct client *client, size_t index, bool discard)
{
	struct handle *handle = client->handles[index];

	client->handles[index] = NULL;
	if (handle->token_length && handle->item->region)
		pl_region_revoke(handle->item->region, handle->token, handle->token_length);
	item_release(&client->server->items, handle->item, discard);
	free(handle->name);
	free(handle);
}

static int find_handle(struct client *client, uint32_t number, struct handle **handle, struct pl_error *error)
{
	*handle = number < SERVER_HANDLES_MAX ? client->handles[number] : NULL;
	if (*handle)
		return 0;
	return cli_fail(error, -EINVAL, "NO-HANDLE", NULL, NULL, "there is no handle %u", number);
}

static int make_token(struct handle *handle, struct pl_error *error)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;

	if (!handle->item->region)
		return 0;
	options.rights = handle->writing ? PL_ACCESS_WRITE : PL_ACCESS_READ;
	handle->token_length = sizeof(handle->token);
	return pl_region_share(handle->item->region, &options, handle->token, &handle->token_length, error);
}

/* Makes a handle for an item, which is its own from now on, also on failure. */
static int new_handle(struct client *client, struct item *item, const char *name, bool writing,
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
		return cli_fail(error, -EMFILE, "TOO-MANY-HANDLES", name, "close some",
				"a client can have %d files open", SERVER_HANDLES_MAX);
	}
	handle->item = item;
	handle->writing = writing;
	handle->name = strdup(name);
	client->handles[number] = handle;
	rc = make_token(handle, error);
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

static void fill_source(struct service_message *answer, const struct part_source *source)
{
	answer->size = source->size;
	answer->modified = source->modified;
	answer->identity = source->identity;
}

static int list(struct client *client, const struct service_message *request, struct service_message *answer,
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

static int open_item(struct server *server, const char *name, struct item **item, struct pl_error *error)
{
	struct item *memory = catalogue_memory(&server->catalogue, name);
	struct stat status;
	int fd;

	if (memory) {
		item_use(memory);
		*item = memory;
		return 0;
	}
	fd = catalogue_open(&server->catalogue, name, &status, error);
	return fd < 0 ? fd : item_of_file(&server->items, fd, &status, name, item, error);
}

static int open_to_read(struct client *client, const struct service_message *request, struct service_message *answer,
			struct pl_error *error)
{
	struct server *server = client->server;
	struct item *item;
	int rc = open_item(server, request->name, &item, error);

	if (rc < 0)
		return rc;
	rc = new_handle(client, item, request->name, false, answer, error);
	if (rc < 0)
		return rc;
	fill_source(answer, &item->source);
	server->tell(server->user, SERVER_READS, client, request->name, item->source.size);
	return rc;
}

static int create_memory(struct server *server, struct item *memory, const struct service_message *request,
			 struct item **item, struct pl_error *error)
{
	if (!server->writable)
		return cli_fail(error, -EACCES, "NOT-WRITABLE", request->name, "start the server with --writable",
				"this memory can only be read");
	if (request->size > memory->source.size)
		return cli_fail(error, -ENOSPC, "NO-SPACE", request->name, "publish a larger one with --memory",
				"the memory has %llu bytes, not %llu", (unsigned long long)memory->source.size,
				(unsigned long long)request->size);
	item_use(memory);
	*item = memory;
	return 0;
}

/* The folder, below the one for uploads, that a name is to be in. */
static int open_parent(struct server *server, const char *name, const char **last, struct pl_error *error)
{
	char parent[SERVICE_NAME_MAX + 1];
	const char *slash = strrchr(name, '/');
	int fd;

	*last = slash ? slash + 1 : name;
	snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - name) : 0, name);
	if (!slash)
		fd = fcntl(server->upload, F_DUPFD_CLOEXEC, 0);
	else
		fd = catalogue_open_below(server->upload, parent, O_PATH | O_DIRECTORY, false);
	if (fd == -1 && !slash)
		return cli_fail_errno(error, -errno, "open", name);
	return fd < 0 ? cli_fail_errno(error, fd, "open", parent) : fd;
}

static int create_file(struct server *server, const struct service_message *request, struct item **item,
		       struct pl_error *error)
{
	struct part_source source = { request->size, request->modified, request->identity };
	const char *last;
	int folder;

	if (server->upload < 0)
		return cli_fail(error, -EACCES, "NOT-WRITABLE", request->name,
				"start the server with --upload DIRECTORY", "the server takes no files");
	if (!service_name_valid(request->name) || part_is_temporary(request->name))
		return cli_fail(error, -EINVAL, "NAME-SYNTAX", request->name, "choose another with --as",
				"the server cannot have a file of this name");
	folder = open_parent(server, request->name, &last, error);
	return folder < 0 ? folder : item_of_part(&server->items, folder, last, &source, item, error);
}

static int create(struct client *client, const struct service_message *request, struct service_message *answer,
		  struct pl_error *error)
{
	struct server *server = client->server;
	struct item *memory = catalogue_memory(&server->catalogue, request->name), *item = NULL;
	int rc = memory ? create_memory(server, memory, request, &item, error)
			: create_file(server, request, &item, error);

	if (rc < 0)
		return rc;
	rc = new_handle(client, item, request->name, true, answer, error);
	if (rc < 0)
		return rc;
	answer->done = item->kind == ITEM_PART ? item->part.done : 0;
	server->tell(server->user, SERVER_WRITES, client, request->name, request->size);
	return rc;
}

static int extent(struct client *client, const struct service_message *request)
{
	struct pl_error ignored;
	struct handle *handle;

	/* If it cannot be recorded, more is transferred again than need be: no reason to fail. */
	if (find_handle(client, request->handle, &handle, &ignored) == 0 && handle->item->kind == ITEM_PART &&
	    request->done <= handle->item->source.size)
		part_record(&handle->item->part, request->done);
	return REQUEST_NO_ANSWER;
}

static int commit(struct client *client, const struct service_message *request, struct pl_error *error)
{
	struct server *server = client->server;
	struct handle *handle;
	uint64_t size;
	int rc = find_handle(client, request->handle, &handle, error);

	if (rc < 0)
		return rc;
	if (!handle->writing)
		return cli_fail(error, -EINVAL, "NO-HANDLE", handle->name, NULL, "this is not being written");
	if (handle->token_length && handle->item->region)
		pl_region_revoke(handle->item->region, handle->token, handle->token_length);
	handle->token_length = 0;
	size = handle->item->source.size;
	rc = item_commit(handle->item, error);
	if (rc == 0) {
		server->tell(server->user, SERVER_STORED, client, handle->name, size);
		server->catalogue.scanned = 0;
	}
	request_handle_close(client, request->handle, rc < 0);
	return rc;
}

static int end(struct client *client, const struct service_message *request, struct service_message *answer,
	       struct pl_error *error)
{
	struct handle *handle;
	struct part_source source;
	int rc = find_handle(client, request->handle, &handle, error);

	if (rc < 0)
		return rc;
	source = item_source_now(handle->item);
	fill_source(answer, &source);
	request_handle_close(client, request->handle, request->flags & SERVICE_DISCARD);
	return REQUEST_ANSWER;
}

/* -- hashes ------------------------------------------------------------------------------------- */

static int hash(struct client *client, const struct service_message *request, struct pl_error *error)
{
	struct handle *handle;
	int rc = find_handle(client, request->handle, &handle, error);

	if (rc < 0)
		return rc;
	if (request->offset > handle->item->source.size ||
	    request->length > handle->item->source.size - request->offset)
		return cli_fail(error, -ERANGE, "RANGE", handle->name, NULL, "this is beyond the end");
	client->hash = hash_begin();
	if (!client->hash)
		return cli_fail_errno(error, -ENOMEM, "malloc", handle->name);
	item_use(handle->item);
	client->hash_item = handle->item;
	client->hash_offset = request->offset;
	client->hash_left = request->length;
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
	uint64_t length = CLI_MIN(client->hash_left, HASH_SLICE);
	struct hash result;
	int rc = item_hash(client->hash_item, client->hash, client->hash_offset, length);

	if (rc == -ESTALE)
		return cli_fail(error, rc, "FILE-CHANGED", NULL, "transfer it again",
				"the file became shorter while it was used");
	if (rc < 0)
		return cli_fail_errno(error, rc, "read", NULL);
	client->hash_offset += length;
	client->hash_left -= length;
	if (client->hash_left)
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
		return list(client, request, answer, error);
	case SERVICE_OPEN:
		return open_to_read(client, request, answer, error);
	case SERVICE_CREATE:
		return create(client, request, answer, error);
	case SERVICE_EXTENT:
		return extent(client, request);
	case SERVICE_HASH:
		return hash(client, request, error);
	case SERVICE_COMMIT:
		return commit(client, request, error);
	case SERVICE_CLOSE:
		return end(client, request, answer, error);
	case SERVICE_TYPES:
		break;
	}
	return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", NULL, NULL, "there is no such request");
}
