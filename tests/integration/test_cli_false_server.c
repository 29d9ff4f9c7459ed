/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Servers that answer `peerlane list` and `get` wrongly.  The command ends with an error in bounded time and memory,
 * writes nothing outside its folder, and prints no control characters.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/false_server.h"

#define LISTING_MAX (1u << 20)

/* -- list -------------------------------------------------------------------------------------------- */

/* A listing without end, in order. */
static void answer_endless_list(struct false_server *server, const struct service_message *request,
				struct service_message *answer)
{
	char name[16];

	(void)request;
	for (unsigned i = 0; i < 250; i++) {
		snprintf(name, sizeof(name), "%010u", server->entries++);
		false_put_entry(server, answer, name, 1);
	}
	answer->more = 1;
}

static void endless_list(void *argument)
{
	struct false_server server;
	const struct false_result *result;

	(void)argument;
	false_server_open(&server, answer_endless_list);
	result = run(&server, "list");
	false_check_fails(result, "SERVICE-PROTOCOL");
	check(server.entries >= LISTING_MAX && server.entries < LISTING_MAX + 500);
	false_server_close(&server);
}

/* Long names without end. */
static void answer_long_names(struct false_server *server, const struct service_message *request,
			      struct service_message *answer)
{
	char name[SERVICE_NAME_MAX + 1];

	(void)request;
	memset(name, 'n', sizeof(name));
	name[SERVICE_NAME_MAX] = '\0';
	for (unsigned i = 0; i < 7; i++) {
		snprintf(name, 11, "%010u", server->entries++);
		name[10] = 'n';
		false_put_entry(server, answer, name, 1);
	}
	answer->more = 1;
}

static void long_names(void *argument)
{
	struct false_server server;
	const struct false_result *result;

	(void)argument;
	false_server_open(&server, answer_long_names);
	result = run(&server, "list");
	false_check_fails(result, "SERVICE-PROTOCOL");
	false_server_close(&server);
}

/* The same entries each time, and entries that go back. */
static void answer_same_list(struct false_server *server, const struct service_message *request,
			     struct service_message *answer)
{
	(void)request;
	false_put_entry(server, answer, "a", 1);
	false_put_entry(server, answer, server->text, 1);
	answer->more = 1;
}

static void repeated_list(void *argument)
{
	static const char *const names[] = { "b", "a", "A" };
	struct false_server server;

	(void)argument;
	false_server_open(&server, answer_same_list);
	for (unsigned i = 0; i < 3; i++) {
		server.text = names[i];
		false_check_fails(run(&server, "list"), "SERVICE-PROTOCOL");
		check(server.requests <= 2);
	}
	false_server_close(&server);
}

/* Names, and texts of errors, that a terminal would interpret. */
static void answer_escapes(struct false_server *server, const struct service_message *request,
			   struct service_message *answer)
{
	if (request->type == SERVICE_LIST && !server->entries)
		false_put_entry(server, answer, "\x1b]0;title\a\x1b[2J\xc2\x9b" "31m", 1);
	else
		false_fail(answer, -EACCES, "\x1b]0;t\a\x1b[2J\xc2\x9b" "3\r\n");
}

static void escapes(void *argument)
{
	struct false_server server;

	(void)argument;
	false_server_open(&server, answer_escapes);
	check_number(run(&server, "list")->status, 0);
	check_number(run(&server, "list", "--json")->status, 0);
	check_number(run(&server, "get", "-r")->status, 1);
	server.entries = 1;
	check_number(run(&server, "list")->status, 1);
	check_number(run(&server, "list", "--json")->status, 1);
	check_number(run(&server, "get", "name")->status, 1);
	check_number(run(&server, "get", "name", "other", "--json")->status, 1);
	check_number(run(&server, "put", "/etc/passwd")->status, 1);
	false_server_close(&server);
}

/* -- get: names ---------------------------------------------------------------------------------------- */

static const char *const foreign_names[] = { "../escaped",	  "../../escaped", "/tmp/escaped", "a/../../escaped",
					     "a//escaped",	  "a/./b",	   "a/",	   ".",
					     "..",		  "not-asked/x",   "sub",	   "sub-other/x" };

static int compare_names(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Lists names that lead elsewhere, and serves each. */
static void answer_foreign_names(struct false_server *server, const struct service_message *request,
				 struct service_message *answer)
{
	const char *names[sizeof(foreign_names) / sizeof(foreign_names[0])];
	size_t count = sizeof(names) / sizeof(names[0]);

	memcpy(names, foreign_names, sizeof(names));
	qsort(names, count, sizeof(names[0]), compare_names);
	if (request->type == SERVICE_LIST) {
		for (size_t i = 0; i < count; i++)
			false_put_entry(server, answer, names[i], 4);
		false_put_entry(server, answer, "wanted/ok", 4);
	} else if (request->type == SERVICE_OPEN) {
		check(service_name_valid(request->name));
		answer->size = 4;
		false_put_token(server, answer);
	} else if (request->type == SERVICE_CLOSE) {
		answer->size = 4;
	} else {
		false_fail(answer, -ENOTSUP, "no");
	}
}

static void names_elsewhere(void *argument)
{
	struct false_server server;
	char outside[128];

	(void)argument;
	false_server_open(&server, answer_foreign_names);
	check_number(run(&server, "get", "-r", "wanted")->status, 0);
	check(false_exists(&server, "wanted/ok"));
	check_number(false_count_files(&server), 1);
	/* All names: those that are valid are written below the folder. */
	run(&server, "get", "-r");
	snprintf(outside, sizeof(outside), "%s/../escaped", server.folder);
	check(access(outside, F_OK) < 0);
	check(access("/tmp/escaped", F_OK) < 0);
	check(false_exists(&server, "not-asked/x") && false_exists(&server, "sub-other/x"));
	false_server_close(&server);
}

/* -- get: one file -------------------------------------------------------------------------------------- */

enum lie {
	LIE_NONE,
	LIE_SHORT_TOKEN,
	LIE_NO_TOKEN,
	LIE_SIZE,
	LIE_CHANGED,
	LIE_HASH,
	LIE_NO_HASH,
	LIE_RANGES_ENDLESS,
	LIE_RANGES_OUTSIDE,
	LIE_RANGES_EMPTY,
	LIE_OTHER_REQUEST,
	LIE_OTHER_TYPE,
	LIES,
};

static void answer_ranges(struct false_server *server, const struct service_message *request,
			  struct service_message *answer, enum lie lie)
{
	answer->more = 1;
	if (lie == LIE_RANGES_OUTSIDE)
		false_put_range(server, answer, 1ull << 40, 1ull << 40);
	for (unsigned i = 0; i < 400 && lie == LIE_RANGES_ENDLESS; i++)
		false_put_range(server, answer, request->offset + 2 * i + 1, 1);
}

static void answer_lie(struct false_server *server, const struct service_message *request,
		       struct service_message *answer)
{
	enum lie lie = (enum lie)server->entries;
	bool sparse = lie >= LIE_RANGES_ENDLESS && lie <= LIE_RANGES_EMPTY;

	answer->size = lie == LIE_SIZE ? 1ull << 62 : 4096;
	if (sparse)
		answer->size = FALSE_AREA;
	switch (request->type) {
	case SERVICE_OPEN:
		server->granted = lie == LIE_SHORT_TOKEN ? 100 : 0;
		answer->flags = sparse ? SERVICE_SPARSE : 0;
		if (lie != LIE_NO_TOKEN)
			false_put_token(server, answer);
		answer->request += lie == LIE_OTHER_REQUEST;
		answer->type = lie == LIE_OTHER_TYPE ? SERVICE_CLOSE : SERVICE_OPEN;
		break;
	case SERVICE_CLOSE:
		answer->size += lie == LIE_CHANGED;
		break;
	case SERVICE_DATA:
		answer_ranges(server, request, answer, lie);
		break;
	case SERVICE_HASH:
		server->silent = lie == LIE_NO_HASH;
		break;
	default:
		false_fail(answer, -ENOTSUP, "no");
	}
}

static bool remove_file(const struct false_server *server, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", server->folder, name);
	return unlink(path) == 0;
}

static void lies_about_a_file(void *argument)
{
	static const char *const facts[LIES] = {
		[LIE_SHORT_TOKEN] = "REMOTE-RANGE",
		[LIE_NO_TOKEN] = "TOKEN",
		[LIE_SIZE] = "NO-SPACE",
		[LIE_CHANGED] = "FILE-CHANGED",
		[LIE_HASH] = "HASH-MISMATCH",
		[LIE_NO_HASH] = "OPERATION-TIMEOUT",
		[LIE_RANGES_OUTSIDE] = "SERVICE-PROTOCOL",
		[LIE_RANGES_EMPTY] = "SERVICE-PROTOCOL",
		[LIE_OTHER_REQUEST] = "SERVICE-PROTOCOL",
		[LIE_OTHER_TYPE] = "SERVICE-PROTOCOL",
	};
	struct false_server server;

	(void)argument;
	false_server_open(&server, answer_lie);
	check_number(run(&server, "get", "name")->status, 0);
	check_number(false_count_files(&server), 1);
	check(false_exists(&server, "name"));
	for (unsigned lie = LIE_SHORT_TOKEN; lie < LIES; lie++) {
		bool verify = lie == LIE_HASH || lie == LIE_NO_HASH;
		const struct false_result *result;

		server.entries = lie;
		server.impatient = lie == LIE_NO_HASH;
		result = verify ? run(&server, "get", "other", "--verify") : run(&server, "get", "other");
		check(server.requests < 500);
		if (lie == LIE_RANGES_ENDLESS) {
			/* Ranges that are right, as many as the client takes; it fetches the rest as one. */
			check_number(result->status, 0);
			check(remove_file(&server, "other"));
			continue;
		}
		false_check_fails(result, facts[lie]);
		/* A request without an answer names the file and the server. */
		if (lie == LIE_NO_HASH)
			check(strstr(result->output, "peerlane: other: not done within ") &&
			      strstr(result->output, server.address));
		check(!false_exists(&server, "other"));
	}
	false_server_close(&server);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "endless list", endless_list, NULL, 60 },
		{ "long names", long_names, NULL, 60 },
		{ "repeated list", repeated_list, NULL, 20 },
		{ "escapes", escapes, NULL, 40 },
		{ "names elsewhere", names_elsewhere, NULL, 20 },
		{ "lies about a file", lies_about_a_file, NULL, 90 },
	};

	return cases_run("cli-false-server", cases, sizeof(cases) / sizeof(cases[0]));
}
