/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/check.h"
#include "support/process.h"

/* Connections of an earlier listener may still have the port. */
static int listen_on_port(unsigned port)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				    .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	check(fd >= 0);
	if (port)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	check(!bind(fd, (struct sockaddr *)&name, sizeof(name)));
	check(!listen(fd, 64));
	return fd;
}

int socket_listen_at(const char *address)
{
	return listen_on_port((unsigned)atoi(strrchr(address, ':') + 1));
}

int socket_listen(char address[32])
{
	struct sockaddr_in name;
	socklen_t length = sizeof(name);
	int fd = listen_on_port(0);

	check(!getsockname(fd, (struct sockaddr *)&name, &length));
	snprintf(address, 32, "127.0.0.1:%u", ntohs(name.sin_port));
	return fd;
}

int socket_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	check(fd >= 0);
	return fd;
}

int socket_connect(const char *address)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	const char *colon = strrchr(address, ':');
	bool bracketed = address[0] == '[';
	char host[96];
	int fd;

	check(colon);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - address) - 2 * bracketed, address + bracketed);
	check(!getaddrinfo(host, colon + 1, &hints, &found));
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(fd >= 0);
	if (connect(fd, found->ai_addr, found->ai_addrlen) < 0) {
		close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	return fd;
}

void socket_dead_address(char address[32])
{
	close(socket_listen(address));
}

bool socket_send(int fd, const void *data, size_t length)
{
	const uint8_t *bytes = data;

	while (length) {
		ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);

		if (sent < 0)
			return false;
		bytes += sent;
		length -= (size_t)sent;
	}
	return true;
}

/* Waits for input until the deadline. */
static bool readable(int fd, uint64_t deadline)
{
	struct pollfd poll_fd = { fd, POLLIN, 0 };
	uint64_t now = clock_now();

	return now < deadline && poll(&poll_fd, 1, (int)((deadline - now) / MS) + 1) > 0;
}

bool socket_receive(int fd, void *data, size_t length, unsigned milliseconds)
{
	uint64_t deadline = clock_now() + milliseconds * MS;
	uint8_t *bytes = data;

	while (length) {
		ssize_t got;

		if (!readable(fd, deadline))
			return false;
		got = recv(fd, bytes, length, 0);
		if (got <= 0)
			return false;
		bytes += got;
		length -= (size_t)got;
	}
	return true;
}

bool socket_wait_closed(int fd, unsigned milliseconds)
{
	uint64_t deadline = clock_now() + milliseconds * MS;
	char dropped[4096];

	while (readable(fd, deadline)) {
		if (recv(fd, dropped, sizeof(dropped), 0) <= 0)
			return true;
	}
	return false;
}

bool socket_ends_silently(int fd, unsigned milliseconds)
{
	char byte;

	return readable(fd, clock_now() + milliseconds * MS) && recv(fd, &byte, 1, 0) <= 0;
}

void socket_reset(int fd)
{
	struct linger linger = { 1, 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close(fd);
}
