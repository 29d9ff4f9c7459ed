/* SPDX-License-Identifier: BSD-2-Clause */
/* Plain blocking TCP sockets, to play a bad peer with. */
#ifndef TEST_SOCKET_H
#define TEST_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Listens on a free port of 127.0.0.1 and writes "127.0.0.1:port". */
int socket_listen(char address[32]);
int socket_accept(int listener);
/* Connects to "host:port" or "[host]:port", numeric; -1 with errno. */
int socket_connect(const char *address);
/* An address that nobody listens on. */
void socket_dead_address(char address[32]);
/* Sends all; false if the other end hung up. */
bool socket_send(int fd, const void *data, size_t length);
/* Receives exactly that much within the time; false otherwise. */
bool socket_receive(int fd, void *data, size_t length, unsigned milliseconds);
/* True once the other end closed or reset the connection; what it sends until then is dropped. */
bool socket_wait_closed(int fd, unsigned milliseconds);
/* Closes with a reset. */
void socket_reset(int fd);

#endif
