/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input: names of hosts if it begins with '@', a document of a fleet if it begins with '#', else the output of a command on a
 * host.  Names must survive folding.  Three hosts with the same output must not differ from each other.  A fleet compared
 * with itself has no changes.
 */
#include "fuzz.h"

#include <stdio.h>

#include "cmd/fleet/changes.h"
#include "cmd/fleet/output.h"

/* -- names ----------------------------------------------------------------------------------------- */

static int compare_fuzzed_names(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

static void try_names(char *text)
{
	struct host_list list = { .count = 0 }, without = { .count = 0 }, again = { .count = 0 };
	struct pl_error error;
	size_t repeated;
	char *folded;

	if (host_list_add_lines(&list, text, "fuzz", &error) < 0)
		REQUIRE((error.code == -EINVAL || error.code == -E2BIG) && error.message[0]);
	REQUIRE(list.count <= FLEET_HOSTS_MAX);
	REQUIRE(host_list_reduce(&list, &without, &repeated, &error) == 0);
	folded = host_list_fold((const char *const *)list.names, list.count);
	REQUIRE(folded && host_list_add(&again, folded, &error) == 0 && again.count == list.count);
	if (list.count) {
		qsort(list.names, list.count, sizeof(*list.names), compare_fuzzed_names);
		qsort(again.names, again.count, sizeof(*again.names), compare_fuzzed_names);
	}
	for (size_t i = 0; i < list.count; i++)
		REQUIRE(!strcmp(list.names[i], again.names[i]) && list.names[i][0] != '-' &&
			!strchr(list.names[i], '/'));
	free(folded);
	host_list_free(&list);
	host_list_free(&again);
}

/* -- outputs --------------------------------------------------------------------------------------- */

/* True if the reason of a silence has the name of a host, for which the row of that host alone has HOST. */
static bool reason_names_host(const struct fleet *fleet)
{
	for (size_t i = 0; i < fleet->hosts.count; i++)
		if (strstr(fleet->answers[0].reason, fleet->hosts.names[i]))
			return true;
	return false;
}

static void try_output(const char *text, size_t size, enum fleet_kind kind)
{
	struct fleet fleet = { .kind = kind, .fail_on = PL_CHECK_UNKNOWN };
	struct json_object *document;
	struct pl_error error;

	REQUIRE(host_list_add(&fleet.hosts, "n[1-3]", &error) == 0);
	fleet.answers = calloc(3, sizeof(*fleet.answers));
	REQUIRE(fleet.answers);
	for (int i = 0; i < 3; i++) {
		struct answer *answer = &fleet.answers[i];

		answer_read(answer, kind, text, size);
		REQUIRE(answer->outcome != ANSWER_NONE);
		REQUIRE((answer->outcome == ANSWER_DOCUMENT) == (answer->document != NULL));
		REQUIRE((answer->outcome == ANSWER_DOCUMENT) != (answer->reason[0] != '\0'));
		/* Otherwise the answers are of one machine, or two with one name. */
		answer->host[0] = '\0';
	}
	REQUIRE(fleet_judge(&fleet) == 0);
	for (size_t i = 0; i < fleet.row_count; i++)
		REQUIRE(!fleet.rows[i].outlier && fleet.rows[i].state != ROW_DIFFERS && fleet.rows[i].count);
	for (size_t i = 0; i < fleet.group_count; i++)
		REQUIRE(fleet.groups[i].host_count == 3 || reason_names_host(&fleet));
	REQUIRE(!fleet.mixture_count);
	document = fleet_document(&fleet);
	REQUIRE(cli_json_string(document, true));
	json_object_put(document);
	fleet_free(&fleet);
}

/* -- saved runs ------------------------------------------------------------------------------------ */

static void try_saved(const char *text, size_t size)
{
	struct saved saved = { .path = NULL };
	struct changes changes = { .before = &saved, .after = &saved };
	struct json_object *document;
	struct pl_error error;

	if (saved_parse(&saved, "fuzz", text, size, &error) == 0) {
		REQUIRE(changes_find(&changes) == 0 && !changes_exist(&changes));
		document = changes_document(&changes);
		REQUIRE(cli_json_string(document, true));
		json_object_put(document);
	} else {
		REQUIRE(error.message[0] && (error.code == -EINVAL || error.code == -E2BIG));
	}
	changes_free(&changes);
	saved_free(&saved);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	if (*text == '@') {
		try_names(text + 1);
	} else if (*text == '#') {
		try_saved(text + 1, size - 1);
	} else if (size < 1 << 18) {
		try_output(text, size, FLEET_CHECK);
		try_output(text, size, FLEET_TOPO);
	}
	free(text);
	return 0;
}
