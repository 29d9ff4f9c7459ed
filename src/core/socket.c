/* SPDX-License-Identifier: BSD-2-Clause */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <unistd.h>

#include "core/socket.h"

/* Seconds; the limit of the kernel's socket options. */
#define KEEPALIVE_MAX 32767

/* IPv6 sockets that carry IPv4 need IP_TOS, other IPv6 sockets IPV6_TCLASS; the kernel refuses the wrong one. */
static void set_traffic_class(int fd, int class)
{
	setsockopt(fd, IPPROTO_IP, IP_TOS, &class, sizeof(class));
	setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof(class));
}

/* The kernel probes a silent host, so an idle peer costs the library no work. */
void pl_socket_tune(int fd, const struct pl_options *options)
{
	uint64_t keepalive = options->keepalive;
	/* 0 would mean the system's default, which is minutes. */
	unsigned milliseconds = (unsigned)PL_MIN(PL_MAX(keepalive / PL_NS_PER_MS, (uint64_t)1), (uint64_t)INT32_MAX);
	int seconds = (int)PL_MIN(PL_MAX(keepalive / PL_NS_PER_S, (uint64_t)4), (uint64_t)2 * KEEPALIVE_MAX);
	int one = 1, idle = seconds / 2, probes = 3, interval = PL_MAX(seconds / 6, 1);

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	/* The same limit for a host that vanishes while bytes are under way. */
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
	if (options->traffic_class)
		set_traffic_class(fd, (int)options->traffic_class);
}

void pl_socket_stop_pacing(int fd, char paced[PL_CONGESTION_NAME])
{
	/* Every user may choose reno. */
	static const char unpaced[] = "reno";
	socklen_t length = PL_CONGESTION_NAME - 1;

	memset(paced, 0, PL_CONGESTION_NAME);
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, paced, &length) < 0 || strncmp(paced, "bbr", 3) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, unpaced, sizeof(unpaced) - 1) < 0)
		memset(paced, 0, PL_CONGESTION_NAME);
}

void pl_socket_resume_pacing(int fd, const struct sockaddr *other, const char paced[PL_CONGESTION_NAME])
{
	if (paced[0] && !pl_address_is_loopback(other))
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, paced, (socklen_t)strlen(paced));
}

uint64_t pl_socket_round_trip(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t length = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0 || info.tcpi_min_rtt == UINT32_MAX)
		return 0;
	return (uint64_t)info.tcpi_min_rtt * 1000;
}

static socklen_t sockaddr_length(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static int connect_socket(const struct sockaddr *address, const struct pl_options *options)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char paced[PL_CONGESTION_NAME];
	int rc;

	if (fd < 0)
		return -errno;
	pl_socket_tune(fd, options);
	if (pl_address_is_loopback(address))
		pl_socket_stop_pacing(fd, paced);
	if (connect(fd, address, sockaddr_length(address)) < 0 && errno != EINPROGRESS) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

int pl_socket_connect(const struct sockaddr *address, const struct pl_options *options)
{
	const struct sockaddr_in6 *wildcard = (const struct sockaddr_in6 *)address;
	struct sockaddr_in loopback = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = connect_socket(address, options);

	/* The wildcard of IPv6 means this host, which may have addresses of IPv4 only. */
	if (fd != -EADDRNOTAVAIL || address->sa_family != AF_INET6 || !IN6_IS_ADDR_UNSPECIFIED(&wildcard->sin6_addr))
		return fd;
	loopback.sin_port = wildcard->sin6_port;
	return connect_socket((const struct sockaddr *)&loopback, options);
}
