/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses as people write them. */
#ifndef PL_ADDRESS_H
#define PL_ADDRESS_H

#include <sys/socket.h>

#include "base/base.h"

/* Enough for "[", an IPv6 address, "%", a 32-bit scope, "]:", a port and a NUL. */
#define PL_ADDRESS_FORMAT_MAX 80

struct pl_address_text {
	char host[256]; /* a name or address without brackets; empty: any */
	char port[8];   /* decimal, no leading zeros */
};

/*
 * Takes "host:port", "[v6]:port", ":port", "host" and "[v6]" apart; resolves nothing.  default_port is
 * for texts without a port; NULL: they must have one.  -EINVAL "ADDRESS-SYNTAX".
 */
int pl_address_parse(const char *text, const char *default_port, struct pl_address_text *out, struct pl_error *error);

/*
 * "1.2.3.4:5" (also for the IPv4 peers of a socket for both), "[::1]:5", "[fe80::1%2]:5".  0, -ENOBUFS,
 * or -EAFNOSUPPORT for what is not an internet address.
 */
int pl_address_format(const struct sockaddr *addr, char *buffer, size_t size);

/* 127/8, ::1 and IPv4-mapped 127/8. */
bool pl_address_is_loopback(const struct sockaddr *addr);

#endif
