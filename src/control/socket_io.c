/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/socket_io.h"

#include <sys/socket.h>

static ssize_t socket_result(ssize_t result)
{
	if (result >= 0)
		return result;
	return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

/* Usually there is one buffer, which costs the kernel less without a vector. */
ssize_t pl_socket_read(int fd, const struct iovec *vector, int count)
{
	struct msghdr message = { .msg_iov = (struct iovec *)vector, .msg_iovlen = (size_t)count };
	ssize_t got;

	do
		got = count == 1 ? recv(fd, vector->iov_base, vector->iov_len, MSG_DONTWAIT)
				 : recvmsg(fd, &message, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	return got == 0 ? -EPIPE : socket_result(got);
}

ssize_t pl_socket_write(int fd, const struct iovec *vector, int count)
{
	struct msghdr message = { .msg_iov = (struct iovec *)vector, .msg_iovlen = (size_t)count };
	ssize_t sent;

	do
		sent = count == 1 ? send(fd, vector->iov_base, vector->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
				  : sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return socket_result(sent);
}
