/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/metrics.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/common/prometheus.h"

/* -- counters ---------------------------------------------------------------------------------------- */

const char *const metrics_fabric_names[METRICS_FABRICS] = { "local", "verbs", "tcp" };

void metrics_init(struct metrics *metrics)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	metrics->started = (uint64_t)now.tv_sec * CLI_NS_PER_S + (uint64_t)now.tv_nsec;
	pthread_mutex_init(&metrics->lock, NULL);
}

void metrics_close(struct metrics *metrics)
{
	pthread_mutex_destroy(&metrics->lock);
}

static void count_id(struct metrics_ids *ids, const char *id)
{
	for (size_t i = 0; i < ids->count; i++) {
		if (!strcmp(ids->list[i].id, id)) {
			ids->list[i].count++;
			return;
		}
	}
	if (ids->count == METRICS_IDS_MAX) {
		ids->others++;
		return;
	}
	snprintf(ids->list[ids->count].id, sizeof(ids->list[0].id), "%s", id);
	ids->list[ids->count++].count = 1;
}

void metrics_count_refused_connection(struct metrics *metrics, const struct pl_error *error)
{
	pthread_mutex_lock(&metrics->lock);
	count_id(&metrics->refused_connections, error->id);
	pthread_mutex_unlock(&metrics->lock);
}

static struct metrics_traffic *traffic_of_client(struct metrics *metrics, const struct client *client)
{
	size_t fabric = 0;

	while (fabric < METRICS_TCP && strcmp(metrics_fabric_names[fabric], client->fabric) != 0)
		fabric++;
	return &metrics->traffic[fabric];
}

void metrics_count_event(struct metrics *metrics, const struct server_event_report *report)
{
	struct metrics_traffic *traffic = traffic_of_client(metrics, report->client);

	switch (report->event) {
	case SERVER_CONNECTED:
		traffic->clients++;
		traffic->connections++;
		break;
	case SERVER_LEFT:
		traffic->clients--;
		break;
	case SERVER_READS:
		traffic->opened++;
		traffic->opened_bytes += report->bytes;
		break;
	case SERVER_STORED:
		traffic->stored++;
		traffic->stored_bytes += report->bytes;
		break;
	case SERVER_HAS_READ:
		traffic->read_bytes += report->bytes;
		break;
	case SERVER_HAS_WRITTEN:
		traffic->written_bytes += report->bytes;
		break;
	case SERVER_ROUTES_OF_READING:
	case SERVER_ROUTES_OF_WRITING:
		traffic->routed[report->event == SERVER_ROUTES_OF_WRITING][0] += report->bytes - report->staged;
		traffic->routed[report->event == SERVER_ROUTES_OF_WRITING][1] += report->staged;
		break;
	case SERVER_DELETED:
		metrics->deleted++;
		break;
	case SERVER_REFUSED:
		count_id(&metrics->refused_requests, report->error->id);
		break;
	case SERVER_WRITES:
	case SERVER_CLOSED:
	case SERVER_LIMITED:
		break;
	}
}

/* -- text ---------------------------------------------------------------------------------------------- */

void metrics_write_ids(FILE *file, const char *metric, const char *help, const struct metrics_ids *ids)
{
	prometheus_describe(file, metric, "counter", help);
	for (size_t i = 0; i < ids->count; i++) {
		prometheus_begin(file, metric, "id", ids->list[i].id);
		prometheus_end(file, ids->list[i].count);
	}
	prometheus_begin(file, metric, "id", "other");
	prometheus_end(file, ids->others);
}

static void write_traffic(FILE *file, const struct metrics *metrics)
{
	static const struct {
		const char *metric, *type, *help;
		size_t offset;
	} rows[] = {
		{ "clients", "gauge", "Clients that are connected.", offsetof(struct metrics_traffic, clients) },
		{ "connections_total", "counter", "Clients that have connected.",
		  offsetof(struct metrics_traffic, connections) },
		{ "opened_names_total", "counter", "Names that clients have opened to read.",
		  offsetof(struct metrics_traffic, opened) },
		{ "opened_bytes_total", "counter", "Sizes of the names that clients have opened to read.",
		  offsetof(struct metrics_traffic, opened_bytes) },
		{ "stored_names_total", "counter", "Names of which clients have written all bytes.",
		  offsetof(struct metrics_traffic, stored) },
		{ "stored_bytes_total", "counter", "Sizes of the names of which clients have written all bytes.",
		  offsetof(struct metrics_traffic, stored_bytes) },
		{ "read_bytes_total", "counter", "Bytes that clients have read, as they reported.",
		  offsetof(struct metrics_traffic, read_bytes) },
		{ "written_bytes_total", "counter", "Bytes that clients have written, as they reported.",
		  offsetof(struct metrics_traffic, written_bytes) },
	};

	for (size_t i = 0; i < CLI_ARRAY_SIZE(rows); i++) {
		prometheus_describe(file, rows[i].metric, rows[i].type, rows[i].help);
		for (size_t j = 0; j < METRICS_FABRICS; j++) {
			uint64_t value;

			memcpy(&value, (const char *)&metrics->traffic[j] + rows[i].offset, sizeof(value));
			prometheus_begin(file, rows[i].metric, "fabric", metrics_fabric_names[j]);
			prometheus_end(file, value);
		}
	}
}

static void write_routes(FILE *file, const struct metrics *metrics)
{
	prometheus_describe(file, "routed_bytes_total", "counter",
			    "Bytes that clients have read and written, by route, as they reported.");
	for (size_t i = 0; i < 4 * METRICS_FABRICS; i++) {
		size_t fabric = i / 4, written = i / 2 % 2, staged = i % 2;

		prometheus_begin(file, "routed_bytes_total", "fabric", metrics_fabric_names[fabric]);
		prometheus_label(file, "direction", written ? "write" : "read");
		prometheus_label(file, "route", staged ? "staged" : "direct");
		prometheus_end(file, metrics->traffic[fabric].routed[written][staged]);
	}
}

static void write_requests(FILE *file, const struct server *server)
{
	static const char *const kinds[SERVICE_TYPES] = {
		[0] = "unknown",
		[SERVICE_LIST] = "list",
		[SERVICE_OPEN] = "open",
		[SERVICE_CREATE] = "create",
		[SERVICE_EXTENT] = "extent",
		[SERVICE_HASH] = "hash",
		[SERVICE_COMMIT] = "commit",
		[SERVICE_CLOSE] = "close",
		[SERVICE_COMMIT_UNSYNCED] = "commit_unsynced",
		[SERVICE_AREA] = "area",
		[SERVICE_PUT_SMALL] = "put_small",
		[SERVICE_GET_SMALL] = "get_small",
		[SERVICE_DATA] = "data",
		[SERVICE_DELETE] = "delete",
		[SERVICE_WATCH] = "watch",
	};

	prometheus_describe(file, "requests_total", "counter", "Requests that are done.");
	for (size_t i = 0; i < SERVICE_TYPES; i++) {
		for (size_t failed = 0; failed < 2; failed++) {
			prometheus_begin(file, "requests_total", "kind", kinds[i]);
			prometheus_label(file, "result", failed ? "error" : "ok");
			prometheus_end(file, server->requests[i][failed]);
		}
	}
}

static uint64_t count_uploads(const struct server *server)
{
	uint64_t count = 0;

	for (const struct item *item = server->items.first; item; item = item->next)
		count += item->kind == ITEM_PARTIAL_FILE;
	return count;
}

static void write_state(FILE *file, const struct server *server)
{
	const struct catalogue *catalogue = &server->catalogue;

	prometheus_describe(file, "published_names", "gauge", "Names that the last scan found.");
	prometheus_begin(file, "published_names", "kind", "file");
	prometheus_end(file, catalogue->count - catalogue->blocks);
	prometheus_begin(file, "published_names", "kind", "memory");
	prometheus_end(file, catalogue->blocks);
	prometheus_value(file, "published_bytes", "gauge", "Sizes of the names that the last scan found.",
			 catalogue->bytes);
	prometheus_value(file, "uploads", "gauge", "Files that clients are uploading.", count_uploads(server));
	prometheus_value(file, "clients_limit", "gauge", "Most clients that are served at a time.",
			 server->clients_max);
}

char *metrics_text(struct metrics *metrics, const struct server *server)
{
	struct metrics_ids refused;
	size_t length;
	char *text = NULL;
	FILE *file = open_memstream(&text, &length);

	if (!file)
		return NULL;
	pthread_mutex_lock(&metrics->lock);
	refused = metrics->refused_connections;
	pthread_mutex_unlock(&metrics->lock);
	prometheus_describe(file, "build_info", "gauge", "Version of Peerlane; the value is 1.");
	prometheus_begin(file, "build_info", "version", pl_version());
	prometheus_end(file, 1);
	fprintf(file,
		"# HELP process_start_time_seconds Time at which the server began, since 1970.\n"
		"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %.3f\n",
		(double)metrics->started / CLI_NS_PER_S);
	write_traffic(file, metrics);
	write_routes(file, metrics);
	metrics_write_ids(file, "refused_connections_total",
			  "Connections that were refused, by identifier of the error.", &refused);
	write_requests(file, server);
	metrics_write_ids(file, "refused_requests_total",
			  "Requests, and small files within requests, that were refused, by identifier of the error.",
			  &metrics->refused_requests);
	prometheus_value(file, "deleted_names_total", "counter", "Uploads that clients have deleted.",
			 metrics->deleted);
	write_state(file, server);
	metrics_write_context(file, server->context);
	if (fclose(file) == 0)
		return text;
	free(text);
	return NULL;
}
