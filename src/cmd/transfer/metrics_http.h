/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP server of one page, /metrics, for `peerlane serve --metrics`.  Runs in the loop of the server, and never waits.  A
 * connection has one request of at most 4 KiB, and ends after 2 s.  Further connections wait in the kernel.
 */
#ifndef PL_CMD_TRANSFER_METRICS_HTTP_H
#define PL_CMD_TRANSFER_METRICS_HTTP_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

#define METRICS_CONNECTIONS_MAX 8
#define METRICS_REQUEST_MAX 4096
/* Entries that metrics_http_poll() fills. */
#define METRICS_POLL_MAX (1 + METRICS_CONNECTIONS_MAX)

struct metrics_connection {
	int fd;       /* -1: free */
	uint64_t end; /* time at which the connection is closed */
	char request[METRICS_REQUEST_MAX];
	size_t received;
	char *answer; /* NULL: the request is not complete */
	size_t length, sent;
};

struct metrics_http {
	int listener;
	struct metrics_connection connections[METRICS_CONNECTIONS_MAX];
	uint64_t accept_next; /* time until which no connection is accepted, after a failure; 0: none */
	char address[80];     /* HOST:PORT at which it listens */
	/* Returns the page, for free(3); NULL: no memory. */
	char *(*page)(void *user);
	void *user;
};

/*
 * Listens at PORT or :PORT of 127.0.0.1, at HOST:PORT or at [IPv6]:PORT.  Returns NULL with *error filled on failure:
 * ADDRESS-SYNTAX, ADDRESS-UNKNOWN, LISTEN-IN-USE, LISTEN-FAILED, or INSECURE-ADDRESS for an address other than loopback
 * unless `any_address`.
 */
struct metrics_http *metrics_http_open(const char *text, bool any_address, struct pl_error *error);
/* Fills METRICS_POLL_MAX entries for poll(2).  Accepts NULL, as the functions below do. */
void metrics_http_poll(struct metrics_http *http, struct pollfd *fds);
/* Accepts, reads and answers, as far as poll(2) says that this does not wait.  Closes connections whose time is over. */
void metrics_http_run(struct metrics_http *http, const struct pollfd *fds);
/* Time at which metrics_http_run() has to close a connection; UINT64_MAX: never. */
uint64_t metrics_http_next_time(const struct metrics_http *http);
void metrics_http_close(struct metrics_http *http);

#endif
