/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts the bytes that clients move, and lists clients for `peerlane top`. */
#include <string.h>

#include "cmd/transfer/server.h"
#include "cmd/transfer/service_client.h"

void watch_count_moved(struct client *client, bool written, uint64_t bytes)
{
	struct server *server = client->server;

	if (!bytes)
		return;
	*(written ? &client->written : &client->read) += bytes;
	*(written ? &server->written : &server->read) += bytes;
	server_report(client, written ? SERVER_HAS_WRITTEN : SERVER_HAS_READ, NULL, bytes);
}

void watch_count(struct client *client, struct handle *handle, uint64_t moved)
{
	/* No client moves more than there is, whatever it reports; what it moves again does not count. */
	if (moved > handle->length || (handle->reported && moved <= handle->moved))
		return;
	if (handle->reported)
		watch_count_moved(client, handle->rights == PL_ACCESS_WRITE, moved - handle->moved);
	handle->moved = moved;
	handle->reported = true;
}

uint64_t watch_count_routes(struct client *client, bool written, uint64_t moved, uint64_t staged)
{
	/* No client stages more than it moves, whatever it reports. */
	const struct server_event_report report = {
		.event = written ? SERVER_ROUTES_OF_WRITING : SERVER_ROUTES_OF_READING,
		.client = client,
		.bytes = moved,
		.staged = CLI_MIN(staged, moved),
	};

	client->staged += report.staged;
	client->direct += moved - report.staged;
	client->server->staged += report.staged;
	client->server->direct += moved - report.staged;
	client->server->report_event(client->server->user, &report);
	return report.staged;
}

uint64_t watch_unreported_staged(const struct handle *handle, const struct service_message *report)
{
	return report->staged > handle->staged ? report->staged - handle->staged : 0;
}

void watch_count_report(struct client *client, struct handle *handle, uint64_t moved,
			const struct service_message *report)
{
	uint64_t before = client->read + client->written;

	watch_count(client, handle, moved);
	if (report->has_staged)
		handle->staged += watch_count_routes(client, handle->rights == PL_ACCESS_WRITE,
						     client->read + client->written - before,
						     watch_unreported_staged(handle, report));
}

/* True if the client learns only of connections of its own identity. */
static bool is_limited(const struct client *client)
{
	return client->rights.names[0];
}

static bool may_see(const struct client *client, const struct client *other)
{
	if (!is_limited(client))
		return true;
	return client->identity.fingerprint[0] && !strcmp(client->identity.fingerprint, other->identity.fingerprint);
}

static void describe_client(const struct client *client, struct service_client *row)
{
	const char *identity = client->identity.name[0] ? client->identity.name : client->identity.fingerprint;
	const struct handle *last = NULL;

	*row = (struct service_client){
		.number = client->number,
		.connected = cli_now() - client->connected,
		.read = client->read,
		.written = client->written,
		.requests = client->requests,
		.direct = client->direct,
		.staged = client->staged,
	};
	snprintf(row->address, sizeof(row->address), "%s", client->address);
	snprintf(row->fabric, sizeof(row->fabric), "%s", client->fabric);
	snprintf(row->identity, sizeof(row->identity), "%s", identity);
	for (size_t i = 0; i < SERVER_HANDLES_MAX; i++) {
		const struct handle *handle = client->handles[i];

		if (!handle || handle->area)
			continue;
		row->open++;
		if (!last || handle->opened > last->opened)
			last = handle;
	}
	if (last)
		snprintf(row->name, sizeof(row->name), "%s", last->name);
}

/* Bytes of several clients. */
struct sums {
	uint64_t read, written, direct, staged;
};

static void add_client(struct sums *sums, const struct client *client)
{
	sums->read += client->read;
	sums->written += client->written;
	sums->direct += client->direct;
	sums->staged += client->staged;
}

int watch_list(struct client *client, const struct service_message *request, struct service_message *answer)
{
	struct server *server = client->server;
	struct service_client row;
	uint64_t below = request->offset & ~(SERVICE_WATCH_ROUTES | SERVICE_WATCH_SUMS);
	bool routes = request->offset & SERVICE_WATCH_ROUTES;
	struct sums sums = { 0 };

	answer->clients = server->entries;
	/* The newest client is the first one. */
	for (const struct client *other = server->clients; other; other = other->next) {
		if (!other->peer || !may_see(client, other))
			continue;
		answer->done++;
		add_client(&sums, other);
		if (answer->more || (below && other->number >= below))
			continue;
		describe_client(other, &row);
		row.routes = routes;
		answer->more = !service_client_put(&row, server->entries, SERVICE_ENTRIES_MAX, &answer->clients_length);
	}
	answer->more |= routes ? SERVICE_MORE_ROUTES : 0;
	answer->more |= request->offset & SERVICE_WATCH_SUMS ? SERVICE_MORE_SUMS : 0;
	/* The sums of the server have the bytes of clients that left, too. */
	if (!is_limited(client))
		sums = (struct sums){ server->read, server->written, server->direct, server->staged };
	answer->size = sums.read;
	answer->length = sums.written;
	answer->direct = sums.direct;
	answer->staged = sums.staged;
	return REQUEST_ANSWER;
}
