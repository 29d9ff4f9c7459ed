/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of `peerlane serve`: on standard output, and in the audit log. */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/transfer/serve.h"

/* -- standard output ------------------------------------------------------------------------------ */

/* Events, by enum server_event: name in JSON, word in text, and name in the audit log; NULL: not there. */
static const struct {
	const char *name, *verb, *audit;
} events[] = {
	[SERVER_READS] = { "reads", "reads", "open" },
	[SERVER_WRITES] = { "writes", "writes", "create" },
	[SERVER_STORED] = { "stored", "stored", "store" },
	[SERVER_CLOSED] = { NULL, NULL, "close" },
	[SERVER_DELETED] = { "deleted", "deleted", "delete" },
	[SERVER_REFUSED] = { NULL, NULL, "refuse" },
	[SERVER_LIMITED] = { NULL, NULL, "limit" },
	[SERVER_CONNECTED] = { "connected", NULL, "connect" },
	[SERVER_LEFT] = { "left", NULL, "disconnect" },
	[SERVER_HAS_READ] = { NULL, NULL, NULL },
	[SERVER_HAS_WRITTEN] = { NULL, NULL, NULL },
	[SERVER_ROUTES_OF_READING] = { NULL, NULL, NULL },
	[SERVER_ROUTES_OF_WRITING] = { NULL, NULL, NULL },
};

static void print_event_json(const struct server_event_report *report)
{
	struct json_object *object = cli_json_begin();

	cli_json_add(object, "event", cli_json_text(events[report->event].name));
	cli_json_add(object, "client", cli_json_text(report->client->address));
	if (report->client->identity.fingerprint[0])
		cli_json_add(object, "identity", cli_json_text(report->client->identity.fingerprint));
	if (report->name) {
		cli_json_add(object, "name", cli_json_text(report->name));
		cli_json_add(object, "bytes", json_object_new_uint64(report->bytes));
	}
	/* Without memory, the event is dropped. */
	cli_json_end(object, false);
}

/* True if standard output can be written without blocking; else the event is dropped, so the server never waits. */
static bool stdout_is_writable(void)
{
	struct pollfd output = { .fd = STDOUT_FILENO, .events = POLLOUT };

	return poll(&output, 1, 0) == 1;
}

static void print_event(const struct serve *serve, const struct server_event_report *report)
{
	char size[CLI_UNIT_MAX], clean[CLI_ESCAPED(SERVICE_NAME_MAX)];

	if (serve->common.quiet || !events[report->event].name || !stdout_is_writable())
		return;
	if (serve->common.json) {
		print_event_json(report);
		return;
	}
	if (!events[report->event].verb)
		return;
	printf("%s %s %s (%s)\n", report->client->address, events[report->event].verb,
	       cli_escape(clean, sizeof(clean), report->name), cli_format_bytes(size, report->bytes));
	fflush(stdout);
}

/* -- audit log --------------------------------------------------------------------------------------- */

void serve_report_event(void *user, const struct server_event_report *report)
{
	struct serve *serve = user;
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct audit_event event = {
		.priority = report->event == SERVER_REFUSED ? AUDIT_REFUSED : AUDIT_NORMAL,
		.event = events[report->event].audit,
		.identity = &report->client->identity,
		.name = report->name,
		.error = report->error,
		.limit = report->limit,
		.bytes = report->bytes,
		.duration = report->duration,
		.has_bytes = report->name && !report->error,
		.connection = report->event == SERVER_CONNECTED || report->event == SERVER_LEFT,
	};

	print_event(serve, report);
	metrics_count_event(&serve->metrics, report);
	if (!serve->audit || !event.event)
		return;
	if (report->event == SERVER_CONNECTED && pl_peer_query(report->client->peer, &info) == 0) {
		event.fabric = info.fabric;
		event.encrypted = info.encrypted;
	}
	audit_write(serve->audit, &event);
}

bool serve_is_blocked(void *user)
{
	const struct serve *serve = user;

	return audit_is_blocked(serve->audit);
}

void serve_report_refused(void *user, const struct pl_identity *identity, const struct pl_error *error)
{
	struct serve *serve = user;

	metrics_count_refused_connection(&serve->metrics, error);
	audit_write(serve->audit, &(struct audit_event){ .priority = AUDIT_REFUSED,
							 .event = "refuse",
							 .identity = identity,
							 .error = error,
							 .connection = true });
}

void serve_report_reload(struct serve *serve, const struct pl_error *error)
{
	audit_write(serve->audit, &(struct audit_event){ .priority = error ? AUDIT_LOST : AUDIT_NORMAL,
							 .event = error ? "reload-failed" : "reload",
							 .name = error ? error->object : NULL,
							 .error = error });
}

/* -- start --------------------------------------------------------------------------------------------- */

int serve_print_listening(const struct serve *serve, struct pl_error *error)
{
	const struct catalogue *catalogue = &serve->server.catalogue;
	struct json_object *object;
	char address[80], size[CLI_UNIT_MAX];
	int rc;

	pl_listener_address(serve->server.listener, address, sizeof(address));
	if (serve->common.json) {
		object = cli_json_begin();
		cli_json_add(object, "event", cli_json_text("listening"));
		cli_json_add(object, "address", cli_json_text(address));
		cli_json_add(object, "entries", json_object_new_uint64(catalogue->count));
		cli_json_add(object, "bytes", json_object_new_uint64(catalogue->bytes));
		cli_json_add(object, "authenticated", json_object_new_boolean(cli_authenticates(&serve->common)));
		cli_json_add(object, "sandbox", json_object_new_boolean(serve->sandboxed));
		if (serve->metrics_http)
			cli_json_add(object, "metrics", cli_json_text(serve->metrics_http->address));
		rc = cli_json_end(object, false);
		return rc < 0 ? cli_fail_errno(error, rc, "malloc", "standard output") : 0;
	}
	printf("listening on %s\n", address);
	if (!serve->common.quiet)
		printf("serving %zu %s, %s%s%s\n", catalogue->count, catalogue->count == 1 ? "entry" : "entries",
		       cli_format_bytes(size, catalogue->bytes), serve->upload ? "; uploads are stored in " : "",
		       serve->upload ? serve->upload : "");
	if (!serve->common.quiet && serve->metrics_http)
		printf("metrics at http://%s/metrics\n", serve->metrics_http->address);
	fflush(stdout);
	return 0;
}

static void warn_about_skipped(const struct catalogue_skipped *skipped)
{
	if (skipped->links)
		cli_warn("symbolic links not published: %u\n  hint: --follow publishes their targets", skipped->links);
	if (skipped->duplicates)
		cli_warn("files not published because another file has the same name: %u", skipped->duplicates);
	if (skipped->unreadable)
		cli_warn("entries not published because they cannot be read: %u", skipped->unreadable);
	if (skipped->long_names)
		cli_warn("files not published because their names exceed %d bytes: %u", SERVICE_NAME_MAX,
			 skipped->long_names);
}

void serve_print_warnings(const struct serve *serve)
{
	if (!cli_authenticates(&serve->common))
		cli_warn(serve->common.insecure
				 ? "anybody who can reach this address can connect, because there is no key"
				 : "any user of this host can connect, because there is no key\n"
				   "  hint: add --key FILE at both ends");
	if (!serve->common.quiet)
		warn_about_skipped(&serve->server.catalogue.skipped);
}
