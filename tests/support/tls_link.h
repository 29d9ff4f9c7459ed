/* SPDX-License-Identifier: BSD-2-Clause */
/* Control channels of faulty peers: TLS without a key, over a plain blocking socket. */
#ifndef TEST_TLS_LINK_H
#define TEST_TLS_LINK_H

#include "control/stream.h"

struct tls_link {
	struct pl_tls *tls;
	struct pl_stream stream;
};

/* Takes over fd and completes the handshake.  Returns false if the other end closed the connection. */
bool tls_link_open(struct tls_link *link, int fd, bool server);
/* Sends all bytes.  Returns false if the other end closed the connection. */
bool tls_link_send(struct tls_link *link, const void *data, size_t length);
/* Receives exactly `length` bytes within the time.  Returns false otherwise. */
bool tls_link_receive(struct tls_link *link, void *data, size_t length, unsigned milliseconds);
void tls_link_close(struct tls_link *link);

/*
 * Takes over the link.  Returns a socket whose bytes a thread passes over the link in both directions, until either
 * side is closed.
 */
int tls_link_socket(struct tls_link *link);

#endif
