/* SPDX-License-Identifier: BSD-2-Clause */
/* Plain blocking TCP sockets, with which tests play a faulty peer. */
#ifndef TEST_SOCKET_H
#define TEST_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Listens on a free port of 127.0.0.1 and stores "127.0.0.1:port". */
int socket_listen(char address[32]);
/* Listens at a "127.0.0.1:port" whose listener has gone. */
int socket_listen_at(const char *address);
int socket_accept(int listener);
/* Connects to a numeric "host:port" or "[host]:port".  Returns -1 with errno set on failure. */
int socket_connect(const char *address);
/* Stores an address without a listener. */
void socket_dead_address(char address[32]);
/* Sends all bytes.  Returns false if the other end closed the connection. */
bool socket_send(int fd, const void *data, size_t length);
/* Receives exactly `length` bytes within the time.  Returns false otherwise. */
bool socket_receive(int fd, void *data, size_t length, unsigned milliseconds);
/* Returns true once the other end closes or resets the connection.  Drops all bytes that arrive before. */
bool socket_wait_closed(int fd, unsigned milliseconds);
/* Returns true if the other end closes or resets the connection within the time, and sends no byte before. */
bool socket_ends_silently(int fd, unsigned milliseconds);
/* Closes the socket with a reset. */
void socket_reset(int fd);

#endif
