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
 * True if the other end's kernel has all bytes that were written. The kernel may drop the others when both ends close the socket.
 * Always true for local sockets, where a write hands the bytes over.
 */
bool pl_socket_is_acknowledged(int fd);

#endif
