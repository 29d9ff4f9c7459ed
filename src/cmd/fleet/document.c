/* SPDX-License-Identifier: BSD-2-Clause */
/* The fleet's JSON document: counts, groups of rows, and each host with its own document. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/fleet/output.h"

#define DOCUMENT_FORMAT 1

static struct json_object *fleet_seconds_json(double seconds)
{
	char text[40];

	if (seconds < 0)
		return NULL;
	snprintf(text, sizeof(text), "%.3f", seconds);
	return json_object_new_double_s(seconds, text);
}

/* Returns a JSON text as it is. */
static struct json_object *raw_json(const char *text)
{
	struct json_object *object = text ? json_object_new_object() : NULL;
	char *copy = object ? strdup(text) : NULL;

	if (copy)
		json_object_set_serializer(object, json_object_userdata_to_json_string, copy,
					   json_object_free_userdata);
	return object;
}

/* Adds "hosts" and "folded". */
static void add_hosts_json(struct json_object *object, const struct fleet *fleet, const size_t *hosts, size_t count)
{
	struct json_object *names = json_object_new_array();
	char *folded = fleet_fold_hosts(fleet, hosts, count);

	for (size_t i = 0; i < count; i++)
		cli_json_append(names, cli_json_text(fleet->hosts.names[hosts[i]]));
	cli_json_add(object, "hosts", names);
	cli_json_add(object, "folded", cli_json_text(folded));
	free(folded);
}

static struct json_object *group_json(const struct fleet *fleet, const struct fleet_group *group)
{
	struct json_object *object = json_object_new_object(), *findings = json_object_new_array();
	const struct fleet_row *row = group->row;

	cli_json_add(object, "id", cli_json_text(row->id));
	cli_json_add(object, "status", cli_json_text(row_state_name(row->state)));
	cli_json_add(object, "outlier", json_object_new_boolean(row->outlier));
	cli_json_add(object, "usual", cli_json_text(row->usual));
	cli_json_add(object, "usual_hosts", row->usual ? json_object_new_uint64(row->usual_count) : NULL);
	for (size_t i = 0; i < row->count; i++) {
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "object", cli_json_text_or_null(row->items[i].object));
		cli_json_add(one, "found", cli_json_text(row->items[i].text));
		cli_json_append(findings, one);
	}
	cli_json_add(object, "findings", findings);
	cli_json_add(object, "numbers_differ", json_object_new_boolean(group->numbers_vary));
	add_hosts_json(object, fleet, group->hosts, group->host_count);
	return object;
}

static struct json_object *mixture_json(const struct fleet *fleet, const struct fleet_mixture *mixture)
{
	struct json_object *object = json_object_new_object(), *values = json_object_new_array();

	for (size_t i = 0; i < mixture->count; i++) {
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "value", cli_json_text(mixture->values[i].value));
		add_hosts_json(one, fleet, mixture->values[i].hosts, mixture->values[i].host_count);
		cli_json_append(values, one);
	}
	cli_json_add(object, "id", cli_json_text(mixture->id));
	cli_json_add(object, "values", values);
	return object;
}

static struct json_object *host_json(const struct fleet *fleet, size_t host)
{
	const struct answer *answer = &fleet->answers[host];
	struct json_object *object = json_object_new_object();
	char clock[40];

	snprintf(clock, sizeof(clock), "%.3f", answer->clock);
	cli_json_add(object, "host", cli_json_text(fleet->hosts.names[host]));
	cli_json_add(object, "status", cli_json_text(row_state_name(fleet->states[host])));
	cli_json_add(object, "outcome", cli_json_text(answer_outcome_name(answer->outcome)));
	cli_json_add(object, "reason", cli_json_text_or_null(answer->reason));
	cli_json_add(object, "seconds", fleet_seconds_json(answer->seconds));
	cli_json_add(object, "clock_difference_seconds", json_object_new_double_s(answer->clock, clock));
	cli_json_add(object, "document", answer->outcome == ANSWER_DOCUMENT ? raw_json(answer->document) : NULL);
	return object;
}

static struct json_object *fleet_counts_json(const struct fleet *fleet)
{
	static const char *const names[ROW_STATES] = { "fail", "warn", "differs", "unknown", "none", "ok" };
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "hosts", json_object_new_uint64(fleet->hosts.count));
	cli_json_add(object, "answered", json_object_new_uint64(fleet_answered(fleet)));
	for (int state = ROW_WELL; state >= 0; state--)
		cli_json_add(object, names[state], json_object_new_uint64(fleet->counts[state]));
	return object;
}

static struct json_object *ignored_json(const struct fleet *fleet)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < fleet->ignored_count; i++) {
		const struct fleet_ignored *ignored = &fleet->ignored[i];
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "id", cli_json_text(ignored->id));
		cli_json_add(one, "object", cli_json_text_or_null(ignored->object));
		cli_json_add(one, "reason", cli_json_text(ignored->reason));
		cli_json_add(one, "used", json_object_new_uint64(ignored->used));
		cli_json_append(array, one);
	}
	return array;
}

struct json_object *fleet_document(const struct fleet *fleet)
{
	struct json_object *object = cli_json_begin(), *rows = json_object_new_array();
	struct json_object *mixtures = json_object_new_array(), *hosts = json_object_new_array();
	time_t now = time(NULL);
	struct tm date;
	char text[40];

	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &date));
	for (size_t i = 0; i < fleet->group_count; i++)
		cli_json_append(rows, group_json(fleet, &fleet->groups[i]));
	for (size_t i = 0; i < fleet->mixture_count; i++)
		cli_json_append(mixtures, mixture_json(fleet, &fleet->mixtures[i]));
	for (size_t i = 0; i < fleet->hosts.count; i++)
		cli_json_append(hosts, host_json(fleet, i));
	cli_json_add(object, "format", json_object_new_int(DOCUMENT_FORMAT));
	cli_json_add(object, "kind", cli_json_text("fleet"));
	cli_json_add(object, "version", cli_json_text(pl_version()));
	cli_json_add(object, "time", cli_json_text(text));
	cli_json_add(object, "duration_seconds", fleet_seconds_json(fleet->seconds));
	cli_json_add(object, "command", cli_json_text(fleet->kind == FLEET_CHECK ? "check" : "topo"));
	cli_json_add(object, "fail_on", cli_json_text(pl_check_status_name(fleet->fail_on)));
	cli_json_add(object, "counts", fleet_counts_json(fleet));
	cli_json_add(object, "ignored", ignored_json(fleet));
	cli_json_add(object, "rows", rows);
	cli_json_add(object, "mixed", mixtures);
	cli_json_add(object, "hosts", hosts);
	return object;
}
