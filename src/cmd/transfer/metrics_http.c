/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/metrics_http.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cmd/common/cli.h"

#define CONNECTION_TIME (2 * CLI_NS_PER_S)
#define BACKLOG 16
/* Pause of accepting after a failure, such as a lack of descriptors. */
#define ACCEPT_PAUSE (200 * CLI_NS_PER_MS)

/* -- address ----------------------------------------------------------------------------------------- */

/* Splits the text into host and port, which point into `buffer`.  Returns false if the syntax is wrong. */
static bool split_metrics_address(const char *text, char *buffer, size_t size, const char **host, const char **port)
{
	char *colon, *end;

	if ((size_t)snprintf(buffer, size, "%s", text) >= size)
		return false;
	colon = strrchr(buffer, ':');
	*port = colon ? colon + 1 : buffer;
	*host = "127.0.0.1";
	if (strspn(*port, "0123456789") != strlen(*port) || !**port || strtoul(*port, NULL, 10) > UINT16_MAX)
		return false;
	if (!colon || colon == buffer)
		return true;
	*colon = '\0';
	*host = buffer;
	if (buffer[0] != '[')
		return !strchr(buffer, ':');
	end = colon - 1;
	if (*end != ']')
		return false;
	*end = '\0';
	*host = buffer + 1;
	return true;
}

static bool is_loopback(const struct sockaddr *address)
{
	const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)(const void *)address;
	const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)(const void *)address;

	if (address->sa_family == AF_INET)
		return ntohl(ipv4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&ipv6->sin6_addr);
}

/* Returns a listening socket, or a negative errno. */
static int bind_metrics_socket(const struct addrinfo *target)
{
	int fd = socket(target->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), saved;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int)) == 0 &&
	    bind(fd, target->ai_addr, target->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	saved = errno;
	close(fd);
	return -saved;
}

/* Returns a listening socket, or a negative errno with *error filled. */
static int listen_for_metrics(const char *text, bool any_address, struct pl_error *error)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	struct addrinfo *found;
	const char *host, *port;
	char buffer[300];
	int rc;

	if (!split_metrics_address(text, buffer, sizeof(buffer), &host, &port))
		return cli_fail(error, -EINVAL, "ADDRESS-SYNTAX", text, "write PORT, HOST:PORT or [IPv6]:PORT",
				"--metrics takes the address at which to listen");
	rc = getaddrinfo(host, port, &hints, &found);
	if (rc)
		return cli_fail(error, -EINVAL, "ADDRESS-UNKNOWN", text,
				"check the host's name, or use its numeric address", "%s", gai_strerror(rc));
	if (!any_address && !is_loopback(found->ai_addr)) {
		freeaddrinfo(found);
		return cli_fail(error, -EPERM, "INSECURE-ADDRESS", text,
				"use 127.0.0.1, or let any host read them (--metrics-open)",
				"the address is not loopback, and metrics have no key");
	}
	rc = bind_metrics_socket(found);
	freeaddrinfo(found);
	if (rc == -EADDRINUSE)
		return cli_fail(error, rc, "LISTEN-IN-USE", text,
				"stop the program that listens there, or choose another port", "the address is in use");
	if (rc < 0)
		return cli_fail(error, rc, "LISTEN-FAILED", text, "choose an address of this host", "%s",
				strerror(-rc));
	return rc;
}

static void fill_metrics_address(struct metrics_http *http)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	char host[64], port[8];

	if (getsockname(http->listener, (struct sockaddr *)&address, &length) < 0 ||
	    getnameinfo((struct sockaddr *)&address, length, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return;
	snprintf(http->address, sizeof(http->address), address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

struct metrics_http *metrics_http_open(const char *text, bool any_address, struct pl_error *error)
{
	struct metrics_http *http = calloc(1, sizeof(*http));

	if (!http) {
		cli_fail_errno(error, -ENOMEM, "malloc", NULL);
		return NULL;
	}
	for (size_t i = 0; i < METRICS_CONNECTIONS_MAX; i++)
		http->connections[i].fd = -1;
	http->listener = listen_for_metrics(text, any_address, error);
	if (http->listener < 0) {
		free(http);
		return NULL;
	}
	fill_metrics_address(http);
	return http;
}

/* -- connections --------------------------------------------------------------------------------------- */

static void close_connection(struct metrics_connection *connection)
{
	close(connection->fd);
	free(connection->answer);
	connection->answer = NULL;
	connection->fd = -1;
}

/* Fills the answer with a status line such as "200 OK", and a body that HEAD leaves out. */
static void set_answer(struct metrics_connection *connection, const char *status, const char *headers, const char *body,
		       bool head)
{
	int length = asprintf(&connection->answer,
			      "HTTP/1.1 %s\r\n%sConnection: close\r\nContent-Length: %zu\r\n"
			      "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n\r\n%s",
			      status, headers, strlen(body), head ? "" : body);

	if (length < 0)
		close_connection(connection);
	else
		connection->length = (size_t)length;
}

/* True if the first line of the request is METHOD TARGET HTTP/1.x, with one space between them; splits it. */
static bool split_request_line(char *line, char **target)
{
	char *version;

	line[strcspn(line, "\r\n")] = '\0';
	*target = strchr(line, ' ');
	version = *target ? strchr(*target + 1, ' ') : NULL;
	if (!version || *target == line || strncmp(version, " HTTP/1.", 8) != 0 || strlen(version) != 9)
		return false;
	*version = '\0';
	*(*target)++ = '\0';
	/* A query has no meaning here. */
	(*target)[strcspn(*target, "?")] = '\0';
	return true;
}

static void answer_request(const struct metrics_http *http, struct metrics_connection *connection)
{
	char *target, *page;
	bool head;

	if (!split_request_line(connection->request, &target)) {
		set_answer(connection, "400 Bad Request", "", "this is no HTTP request\n", false);
		return;
	}
	head = !strcmp(connection->request, "HEAD");
	if (strcmp(target, "/metrics") != 0) {
		set_answer(connection, "404 Not Found", "", "there is only /metrics\n", head);
	} else if (!head && strcmp(connection->request, "GET") != 0) {
		set_answer(connection, "405 Method Not Allowed", "Allow: GET, HEAD\r\n", "only GET and HEAD\n", false);
	} else {
		page = http->page(http->user);
		if (page)
			set_answer(connection, "200 OK", "", page, head);
		else
			set_answer(connection, "503 Service Unavailable", "", "out of memory\n", head);
		free(page);
	}
}

/* True if the request has its empty line. */
static bool request_is_complete(const struct metrics_connection *connection)
{
	return memmem(connection->request, connection->received, "\r\n\r\n", 4) ||
	       memmem(connection->request, connection->received, "\n\n", 2);
}

static void read_request(const struct metrics_http *http, struct metrics_connection *connection)
{
	ssize_t length = recv(connection->fd, connection->request + connection->received,
			      sizeof(connection->request) - 1 - connection->received, 0);

	if (length <= 0) {
		if (length == 0 || (errno != EAGAIN && errno != EINTR))
			close_connection(connection);
		return;
	}
	connection->received += (size_t)length;
	connection->request[connection->received] = '\0';
	if (request_is_complete(connection))
		answer_request(http, connection);
	else if (connection->received == sizeof(connection->request) - 1)
		set_answer(connection, "431 Request Header Fields Too Large", "", "the request is too long\n", false);
}

static void write_answer(struct metrics_connection *connection)
{
	ssize_t length = send(connection->fd, connection->answer + connection->sent,
			      connection->length - connection->sent, MSG_NOSIGNAL);

	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (length > 0)
		connection->sent += (size_t)length;
	if (length < 0 || connection->sent == connection->length)
		close_connection(connection);
}

/* Returns a place for a connection; NULL: all are in use. */
static struct metrics_connection *find_free_connection(struct metrics_http *http)
{
	for (size_t i = 0; i < METRICS_CONNECTIONS_MAX; i++)
		if (http->connections[i].fd < 0)
			return &http->connections[i];
	return NULL;
}

static void accept_connection(struct metrics_http *http)
{
	struct metrics_connection *connection = find_free_connection(http);

	if (!connection)
		return;
	connection->fd = accept4(http->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (connection->fd < 0 && errno != EAGAIN)
		http->accept_next = cli_now() + ACCEPT_PAUSE;
	connection->end = cli_now() + CONNECTION_TIME;
	connection->received = connection->sent = 0;
}

/* -- loop of the server ---------------------------------------------------------------------------------- */

void metrics_http_poll(struct metrics_http *http, struct pollfd *fds)
{
	/* poll(2) ignores negative descriptors. */
	for (size_t i = 0; i < METRICS_POLL_MAX; i++)
		fds[i] = (struct pollfd){ .fd = -1 };
	if (!http)
		return;
	if (find_free_connection(http) && cli_now() >= http->accept_next)
		fds[0] = (struct pollfd){ .fd = http->listener, .events = POLLIN };
	for (size_t i = 0; i < METRICS_CONNECTIONS_MAX; i++)
		fds[1 + i] = (struct pollfd){ .fd = http->connections[i].fd,
					      .events = http->connections[i].answer ? POLLOUT : POLLIN };
}

void metrics_http_run(struct metrics_http *http, const struct pollfd *fds)
{
	uint64_t now;

	if (!http)
		return;
	now = cli_now();
	for (size_t i = 0; i < METRICS_CONNECTIONS_MAX; i++) {
		struct metrics_connection *connection = &http->connections[i];

		if (connection->fd < 0)
			continue;
		if (now >= connection->end)
			close_connection(connection);
		else if (fds[1 + i].revents && connection->answer)
			write_answer(connection);
		else if (fds[1 + i].revents)
			read_request(http, connection);
	}
	if (now >= http->accept_next)
		http->accept_next = 0;
	if (fds[0].revents)
		accept_connection(http);
}

uint64_t metrics_http_next_time(const struct metrics_http *http)
{
	uint64_t next = http && http->accept_next ? http->accept_next : UINT64_MAX;

	for (size_t i = 0; http && i < METRICS_CONNECTIONS_MAX; i++)
		if (http->connections[i].fd >= 0)
			next = CLI_MIN(next, http->connections[i].end);
	return next;
}

void metrics_http_close(struct metrics_http *http)
{
	if (!http)
		return;
	for (size_t i = 0; i < METRICS_CONNECTIONS_MAX; i++)
		if (http->connections[i].fd >= 0)
			close_connection(&http->connections[i]);
	close(http->listener);
	free(http);
}
