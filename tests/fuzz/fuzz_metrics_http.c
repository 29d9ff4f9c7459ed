/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input: what a client of /metrics sends. The first byte is the length of each part. The answer is one HTTP response,
 * and then the connection ends.
 */
#include "fuzz.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The command is not part of the library, so its source is included. */
#include "cmd/transfer/metrics_http.c"

#define PAGE "peerlane_up 1\n"

static char *copy_page(void *user)
{
	(void)user;
	return strdup(PAGE);
}

static void run_once(struct metrics_http *http)
{
	struct pollfd fds[METRICS_POLL_MAX];

	metrics_http_poll(http, fds);
	REQUIRE(poll(fds, METRICS_POLL_MAX, 0) >= 0);
	metrics_http_run(http, fds);
}

/* Checks status, length and content of a whole response. */
static void check_response(const char *text, bool head)
{
	const char *body = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
	int status = 0;

	REQUIRE(body && length && length < body);
	body += 4;
	REQUIRE(sscanf(text, "HTTP/1.1 %d ", &status) == 1);
	REQUIRE(status == 200 || status == 400 || status == 404 || status == 405 || status == 431);
	REQUIRE(!strncmp(text, "HTTP/1.1 ", 9) && strstr(text, "Connection: close\r\n"));
	REQUIRE(head ? !*body : strlen(body) == strtoul(length + 16, NULL, 10));
	REQUIRE(status != 200 || head || !strcmp(body, PAGE));
}

static size_t receive_answer(int fd, char *answer, size_t size)
{
	ssize_t length = recv(fd, answer, size - 1, MSG_DONTWAIT);

	answer[length > 0 ? length : 0] = '\0';
	return length > 0 ? (size_t)length : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct metrics_http http = { .listener = -1, .page = copy_page };
	size_t part = size ? data[0] + 1u : 1, sent = size ? 1 : 0;
	char answer[1024];
	int ends[2];

	for (size_t i = 1; i < METRICS_CONNECTIONS_MAX; i++)
		http.connections[i].fd = -1;
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
	http.connections[0] = (struct metrics_connection){ .fd = ends[0], .end = UINT64_MAX };
	for (; http.connections[0].fd >= 0 && sent < size; sent += CLI_MIN(part, size - sent)) {
		/* The server closes the connection behind its answer. */
		if (send(ends[1], data + sent, CLI_MIN(part, size - sent), MSG_NOSIGNAL) < 0)
			break;
		run_once(&http);
	}
	shutdown(ends[1], SHUT_WR);
	for (unsigned i = 0; i < 4 && http.connections[0].fd >= 0; i++)
		run_once(&http);
	REQUIRE(http.connections[0].fd < 0);
	/* No answer: the request had no end. */
	if (receive_answer(ends[1], answer, sizeof(answer)))
		check_response(answer, size > 5 && !memcmp(data + 1, "HEAD ", 5) && !strstr(answer, " 400 ") &&
					       !strstr(answer, " 431 "));
	REQUIRE(receive_answer(ends[1], answer, sizeof(answer)) == 0);
	close(ends[1]);
	return 0;
}
