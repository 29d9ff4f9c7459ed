/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/socket_io.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
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

/*
 * ThreadSanitizer records what a send reads after the send, when the other end may have got the bytes and let their owner change the
 * memory. These record it before.
 */
#if defined(__SANITIZE_THREAD__)
void __tsan_read_range(void *address, long size); /* as gcc has it built in */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);

static void begin_recorded_reads(const struct iovec *vector, int count)
{
	for (int i = 0; i < count; i++)
		__tsan_read_range(vector[i].iov_base, (long)vector[i].iov_len);
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
}

static void end_recorded_reads(void)
{
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static inline void begin_recorded_reads(const struct iovec *vector, int count)
{
	(void)vector;
	(void)count;
}

static inline void end_recorded_reads(void)
{
}
#endif

ssize_t pl_socket_write(int fd, const struct iovec *vector, int count)
{
	struct msghdr message = { .msg_iov = (struct iovec *)vector, .msg_iovlen = (size_t)count };
	ssize_t sent;

	begin_recorded_reads(vector, count);
	do
		sent = count == 1 ? send(fd, vector->iov_base, vector->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
				  : sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	end_recorded_reads();
	return socket_result(sent);
}

size_t pl_socket_unacknowledged(int fd)
{
	int domain = AF_UNIX, unacknowledged = 0;
	socklen_t length = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) < 0 || domain == AF_UNIX)
		return 0;
	return ioctl(fd, SIOCOUTQ, &unacknowledged) < 0 ? 0 : (size_t)unacknowledged;
}

bool pl_socket_is_silence(int code)
{
	return code == -ETIMEDOUT || code == -EHOSTUNREACH || code == -ENETUNREACH;
}

void pl_socket_explain_silence(struct pl_error *error)
{
	pl_fail(error, -ECONNRESET, "PEER-LOST", "connection", NULL,
		"check the network and the other host; to survive outages and stopped processes, set keepalive in the "
		"options of both ends to twice the longest one",
		"the other host, or a process whose socket is full, did not answer for the time of keepalive");
}
