/* SPDX-License-Identifier: BSD-2-Clause */
/* Bytes of a connected socket, without blocking. */
#ifndef PL_SOCKET_IO_H
#define PL_SOCKET_IO_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"

/*
 * Read or write once. `count`: at most IOV_MAX. Return bytes, at least 1; -EAGAIN; -EPIPE at the end of the stream;
 * another negative errno. A write never raises SIGPIPE.
 */
ssize_t pl_socket_read(int fd, const struct iovec *vector, int count);
ssize_t pl_socket_write(int fd, const struct iovec *vector, int count);
/*
 * Returns the number of written bytes that the other end's kernel does not have, as far as this kernel knows: it may drop them
 * when both ends close the socket. 0 for local sockets, where a write hands the bytes over.
 */
size_t pl_socket_unacknowledged(int fd);
/* True if a socket's error, a negative errno, says that the other host did not answer in time (pl_socket_tune()), or cannot be reached. */
bool pl_socket_is_silence(int code);
/* Describes the loss of a peer by such an error. */
void pl_socket_explain_silence(struct pl_error *error);

#endif
