/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/check/check.h"

#include <string.h>

static struct json_object *check_status_json(enum pl_check_status status)
{
	return cli_json_text(pl_check_status_name(status));
}

static struct json_object *check_result_json(const struct pl_check_result *result)
{
	struct json_object *object = json_object_new_object(), *findings = json_object_new_array();

	cli_json_add(object, "id", cli_json_text(result->row->id));
	cli_json_add(object, "group", cli_json_text(result->row->group));
	cli_json_add(object, "title", cli_json_text(result->row->title));
	cli_json_add(object, "status", check_status_json(result->status));
	for (size_t i = 0; i < result->count; i++) {
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "object", cli_json_text_or_null(result->findings[i].object));
		cli_json_add(one, "status", check_status_json(result->findings[i].status));
		cli_json_add(one, "found", cli_json_text(result->findings[i].text));
		cli_json_add(one, "accepted",
			     result->findings[i].accepted ? cli_json_text(result->findings[i].accepted->reason) : NULL);
		json_object_array_add(findings, one);
	}
	cli_json_add(object, "findings", findings);
	cli_json_add(object, "left_out", json_object_new_uint64(result->left_out));
	cli_json_add(object, "why", cli_json_text(result->row->reason));
	cli_json_add(object, "remedy", cli_json_text_or_null(result->remedy));
	cli_json_add(object, "reveal",
		     result->status == PL_CHECK_UNKNOWN ? cli_json_text_or_null(result->reveal) : NULL);
	return object;
}

static void add_access_json(struct json_object *object, const char *name, enum pl_check_way way, const char *reason)
{
	struct json_object *one = json_object_new_object();

	cli_json_add(one, "works", cli_json_text(pl_check_way_name(way)));
	cli_json_add(one, "reason", cli_json_text_or_null(reason));
	cli_json_add(object, name, one);
}

static struct json_object *check_route_json(const struct pl_check_route *route)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "gpu", cli_json_text_or_null(route->gpu));
	cli_json_add(object, "gpu_model", cli_json_text_or_null(route->gpu_model));
	cli_json_add(object, "card", cli_json_text_or_null(route->card));
	cli_json_add(object, "device", cli_json_text_or_null(route->device));
	cli_json_add(object, "class", cli_json_text_or_null(route->class));
	cli_json_add(object, "best", json_object_new_boolean(route->best));
	if (*route->gpu) {
		add_access_json(object, "dmabuf", route->dmabuf, route->dmabuf_reason);
		add_access_json(object, "peer_memory", route->peer, route->peer_reason);
	}
	add_access_json(object, *route->gpu ? "staged" : "host", route->staged, route->staged_reason);
	return object;
}

void check_document_add_results(struct json_object *object, const struct pl_check_report *report)
{
	struct json_object *checks = json_object_new_array();

	for (size_t i = 0; i < report->count; i++)
		json_object_array_add(checks, check_result_json(&report->results[i]));
	cli_json_add(object, "checks", checks);
}

void check_document_add_report(struct json_object *object, const struct pl_check_report *report)
{
	struct json_object *routes = json_object_new_array();

	cli_json_add(object, "verdict", cli_json_text(pl_check_verdict_name(report->verdict)));
	cli_json_add(object, "summary", cli_json_text(report->summary));
	cli_json_add(object, "first", report->first ? cli_json_text(report->first->row->id) : NULL);
	cli_json_add(object, "first_remedy", report->first ? cli_json_text(report->first->remedy) : NULL);
	for (size_t i = 0; i < report->route_count; i++)
		json_object_array_add(routes, check_route_json(&report->routes[i]));
	cli_json_add(object, "routes", routes);
	check_document_add_results(object, report);
}

static struct json_object *check_row_json(const struct pl_check_row *row)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "id", cli_json_text(row->id));
	cli_json_add(object, "group", cli_json_text(row->group));
	cli_json_add(object, "title", cli_json_text(row->title));
	cli_json_add(object, "requirement", cli_json_text(row->requirement));
	cli_json_add(object, "how", cli_json_text(row->how));
	cli_json_add(object, "why", cli_json_text(row->reason));
	cli_json_add(object, "remedy", cli_json_text(row->remedy));
	cli_json_add(object, "safe_fix", json_object_new_boolean(row->plan != NULL));
	return object;
}

void render_rows_json(const struct pl_check_row *only)
{
	struct json_object *rows;
	const struct pl_check_row *row;

	if (only) {
		cli_json_print(check_row_json(only), true);
		return;
	}
	rows = json_object_new_array();
	for (size_t i = 0; (row = pl_check_row_at(i)); i++)
		json_object_array_add(rows, check_row_json(row));
	cli_json_print(rows, true);
}

static enum pl_check_status result_status(const struct pl_check_report *report, const char *id)
{
	for (size_t i = 0; report && id && i < report->count; i++)
		if (!strcmp(report->results[i].row->id, id))
			return report->results[i].status;
	return PL_CHECK_NONE;
}

void render_decoded_json(const struct decoded *decoded)
{
	struct json_object *object = json_object_new_object(), *causes = json_object_new_array();

	cli_json_add(object, "call", cli_json_text(decoded->call));
	cli_json_add(object, "number", json_object_new_int(decoded->number));
	cli_json_add(object, "symbol", cli_json_text_or_null(pl_decode_symbol(decoded->kind, decoded->number)));
	cli_json_add(object, "meaning", cli_json_text(pl_decode_meaning(decoded->kind, decoded->number)));
	for (size_t i = 0; i < PL_DECODE_CAUSES && decoded->entry->causes[i].text; i++) {
		const struct pl_decode_cause *cause = &decoded->entry->causes[i];
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "cause", cli_json_text(cause->text));
		cli_json_add(one, "run", cli_json_text_or_null(cause->run));
		cli_json_add(one, "check", cli_json_text_or_null(cause->row));
		cli_json_add(one, "here",
			     decoded->report && cause->row
				     ? check_status_json(result_status(decoded->report, cause->row))
				     : NULL);
		json_object_array_add(causes, one);
	}
	cli_json_add(object, "causes", causes);
	cli_json_print(object, true);
}
