/* SPDX-License-Identifier: BSD-2-Clause */
/* Servers that answer requests about several small files wrongly, or a `put`; and servers that send what nobody wants. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/false_server.h"

#define CONTENT 16u

/* -- get ------------------------------------------------------------------------------------------------ */

enum lie {
	LIE_NONE,
	LIE_AREA_SMALL, /* up to LIE_AREA_TOKEN: the files travel alone */
	LIE_AREA_LARGE,
	LIE_AREA_FAILS,
	LIE_AREA_TOKEN,
	LIE_NAMES,
	LIE_OFFSET,
	LIE_SIZE,
	LIE_NOTHING_DONE,
	LIE_TOO_MUCH_DONE,
	LIE_FILE_MISSING,
	LIE_MORE_FILES,
	LIE_HASH,
	LIES,
};

static void answer_area(struct false_server *server, struct service_message *answer, enum lie lie)
{
	answer->length = FALSE_AREA;
	if (lie == LIE_AREA_SMALL)
		answer->length = 1;
	if (lie == LIE_AREA_LARGE)
		answer->length = 1ull << 40;
	if (lie == LIE_AREA_FAILS)
		false_fail(answer, -ENOMEM, "NO-MEMORY");
	else if (lie != LIE_AREA_TOKEN)
		false_put_token(server, answer);
}

static void answer_small_get(struct false_server *server, const struct service_message *request,
			     struct service_message *answer, enum lie lie)
{
	struct service_file file, sent = { .size = CONTENT, .hash = { 1, 2 } };
	size_t at = 0;

	while (service_file_next(request, &at, &file)) {
		answer->done++;
		if (lie == LIE_FILE_MISSING && answer->done > 1)
			continue;
		if (lie == LIE_OFFSET)
			sent.offset = FALSE_AREA - CONTENT + 1;
		if (lie == LIE_SIZE)
			sent.size = UINT64_MAX;
		false_put_file(server, answer, &sent, lie == LIE_NAMES ? "../escaped" : file.name);
	}
	if (lie == LIE_MORE_FILES)
		false_put_file(server, answer, &sent, "../escaped");
	if (lie == LIE_NOTHING_DONE)
		answer->done = 0;
	if (lie == LIE_TOO_MUCH_DONE)
		answer->done += 1000;
}

static void answer_get(struct false_server *server, const struct service_message *request,
		       struct service_message *answer)
{
	enum lie lie = (enum lie)server->entries;

	switch (request->type) {
	case SERVICE_AREA:
		answer_area(server, answer, lie);
		break;
	case SERVICE_GET_SMALL:
		answer_small_get(server, request, answer, lie);
		break;
	case SERVICE_OPEN:
		answer->size = CONTENT;
		false_put_token(server, answer);
		break;
	case SERVICE_CLOSE:
		answer->size = CONTENT;
		break;
	default:
		false_fail(answer, -ENOTSUP, "no");
	}
}

static void lies_about_small_files(void *argument)
{
	struct false_server server;
	char path[128];

	(void)argument;
	for (unsigned lie = LIE_NONE; lie < LIES; lie++) {
		bool right = lie <= LIE_AREA_TOKEN || lie == LIE_MORE_FILES;
		const struct false_result *result;

		false_server_open(&server, answer_get);
		server.entries = lie;
		result = lie == LIE_HASH ? run(&server, "get", "a", "b", "c", "--verify")
					 : run(&server, "get", "a", "b", "c");
		if (right)
			check_number(result->status, 0);
		else
			false_check_fails(result, lie == LIE_HASH ? "HASH-MISMATCH" : "SERVICE-PROTOCOL");
		check_number(false_count_files(&server), right ? 3 : 0);
		snprintf(path, sizeof(path), "%s/../escaped", server.folder);
		check(access(path, F_OK) < 0);
		check(server.requests < 20);
		false_server_close(&server);
	}
}

/* -- put ------------------------------------------------------------------------------------------------ */

enum put_lie {
	PUT_NONE,
	PUT_DONE,
	PUT_SHORT_TOKEN,
	PUT_HASH,
	PUT_COMMIT,
	PUT_SMALL_NOTHING,
	PUT_SMALL_MORE,
	PUT_SMALL_FOREIGN,
	PUT_SMALL_TWICE,
	PUT_LIES,
};

static void answer_small_put(struct false_server *server, const struct service_message *request,
			     struct service_message *answer, enum put_lie lie)
{
	struct service_file file, failed = { .status = -EACCES, .error = { .id = "NO" } };
	size_t at = 0;

	while (service_file_next(request, &at, &file))
		answer->done++;
	if (lie == PUT_SMALL_NOTHING)
		answer->done = 0;
	if (lie == PUT_SMALL_MORE)
		answer->done++;
	if (lie == PUT_SMALL_FOREIGN)
		false_put_file(server, answer, &failed, "never-sent");
	for (unsigned i = 0; i < 2 && lie == PUT_SMALL_TWICE; i++)
		false_put_file(server, answer, &failed, "first");
}

static void answer_put(struct false_server *server, const struct service_message *request,
		       struct service_message *answer)
{
	enum put_lie lie = (enum put_lie)server->entries;

	switch (request->type) {
	case SERVICE_AREA:
		answer_area(server, answer, LIE_NONE);
		break;
	case SERVICE_PUT_SMALL:
		answer_small_put(server, request, answer, lie);
		break;
	case SERVICE_CREATE:
		answer->done = lie == PUT_DONE ? 1ull << 50 : 0;
		server->granted = lie == PUT_SHORT_TOKEN ? 1 : 0;
		false_put_token(server, answer);
		break;
	case SERVICE_COMMIT:
		if (lie == PUT_COMMIT)
			false_fail(answer, -EIO, "COMMIT-FAILED");
		break;
	default: /* a wrong hash, and right answers to all others */
		break;
	}
}

static void write_file(const struct false_server *server, const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", server->folder, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	check(fd >= 0 && write(fd, "0123456789", 10) == 10);
	close(fd);
}

static void lies_about_a_put(void *argument)
{
	static const char *const facts[PUT_LIES] = {
		[PUT_DONE] = "SERVICE-PROTOCOL",      [PUT_SHORT_TOKEN] = "REMOTE-RANGE",
		[PUT_HASH] = "HASH-MISMATCH",	      [PUT_COMMIT] = "COMMIT-FAILED",
		[PUT_SMALL_NOTHING] = "SERVICE-PROTOCOL", [PUT_SMALL_MORE] = "SERVICE-PROTOCOL",
		[PUT_SMALL_FOREIGN] = "SERVICE-PROTOCOL", [PUT_SMALL_TWICE] = "SERVICE-PROTOCOL",
	};
	struct false_server server;

	(void)argument;
	false_server_open(&server, answer_put);
	write_file(&server, "first");
	write_file(&server, "second");
	check_number(run(&server, "put", "first")->status, 0);
	check_number(run(&server, "put", "first", "second")->status, 0);
	for (unsigned lie = PUT_DONE; lie < PUT_LIES; lie++) {
		server.entries = lie;
		if (lie >= PUT_SMALL_NOTHING)
			false_check_fails(run(&server, "put", "first", "second"), facts[lie]);
		else if (lie == PUT_HASH)
			false_check_fails(run(&server, "put", "first", "--verify"), facts[lie]);
		else
			false_check_fails(run(&server, "put", "first"), facts[lie]);
		check(server.requests < 20);
	}
	check_number(false_count_files(&server), 2);
	false_server_close(&server);
}

/* -- messages that nobody wants -------------------------------------------------------------------------- */

#define NOTIFICATIONS 10000u /* for each request */
#define TOGETHER 250u
#define REQUESTS 12u
#define FLOOD_MEMORY ((uint64_t)64 << 20) /* half of the data of all notifications */

static void answer_after_notifications(struct false_server *server, const struct service_message *request,
				       struct service_message *answer)
{
	static const uint8_t data[PL_NOTIFY_DATA_MAX];
	struct pl_completion completions[TOGETHER];
	char name[16];

	(void)request;
	for (unsigned i = 0; i < NOTIFICATIONS / TOGETHER; i++) {
		for (unsigned n = 0; n < TOGETHER; n++)
			check_ok(pl_notify(server->peer, n, data, sizeof(data), NULL, NULL, NULL), NULL);
		for (unsigned n = 0; n < TOGETHER;)
			n += (unsigned)pl_poll(server->context, completions, TOGETHER);
	}
	snprintf(name, sizeof(name), "%04u", server->entries++);
	false_put_entry(server, answer, name, 1);
	answer->more = server->entries < REQUESTS;
}

static void notifications(void *argument)
{
	const struct false_result *result;
	struct false_server server;

	(void)argument;
	false_server_open(&server, answer_after_notifications);
	result = run(&server, "list");
	check_number(result->status, 0);
	check_number(server.requests, REQUESTS);
	if (memory_is_exact())
		check(result->memory < FLOOD_MEMORY);
	false_server_close(&server);
}

/* An answer that comes too early, or twice, is not taken for that of another request. */
static void answer_twice(struct false_server *server, const struct service_message *request,
			 struct service_message *answer)
{
	uint8_t buffer[SERVICE_ANSWER_MAX];
	struct pl_operation *operation;
	struct service_message early = *answer;
	int length;

	(void)request;
	early.request += server->entries;
	false_put_entry(server, &early, server->requests == 1 ? "a" : "b", 1);
	early.more = 1;
	length = service_encode(&early, buffer, sizeof(buffer));
	check(length > 0);
	/* The client may have left after the first wrong answer. */
	if (pl_send_copy(server->peer, SERVICE_TAG, buffer, (size_t)length, NULL, &operation, NULL) == 0)
		pl_wait(operation, UINT64_MAX, NULL, NULL);
	false_put_entry(server, answer, "b", 1);
}

static void early_answers(void *argument)
{
	struct false_server server;

	(void)argument;
	false_server_open(&server, answer_twice);
	for (server.entries = 0; server.entries < 2; server.entries++)
		false_check_fails(run(&server, "list"), "SERVICE-PROTOCOL");
	false_server_close(&server);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "lies about small files", lies_about_small_files, NULL, 60 },
		{ "lies about a put", lies_about_a_put, NULL, 60 },
		{ "notifications", notifications, NULL, 60 },
		{ "early answers", early_answers, NULL, 20 },
	};

	return cases_run("cli-false-area", cases, sizeof(cases) / sizeof(cases[0]));
}
