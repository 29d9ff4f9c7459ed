/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses in text form. */
#ifndef PL_ADDRESS_H
#define PL_ADDRESS_H

#include <sys/socket.h>

#include "base/base.h"

/* Enough for "[", an IPv6 address, "%", a 32-bit scope, "]:", a port and a NUL. */
#define PL_ADDRESS_FORMAT_MAX 80

struct pl_address_text {
	char host[256]; /* name or address without brackets; empty: any */
	char port[8];   /* decimal, no leading zeros */
};

/*
 * Splits "host:port", "[v6]:port", ":port", "host" and "[v6]"; resolves nothing. default_port is used for texts without
 * a port; NULL: a port is required. -EINVAL "ADDRESS-SYNTAX".
 */
int pl_address_parse(const char *text, const char *default_port, struct pl_address_text *out, struct pl_error *error);

/*
 * Writes "1.2.3.4:5" (also for IPv4 peers of a dual-stack socket), "[::1]:5" or "[fe80::1%2]:5". Returns 0, -ENOBUFS,
 * or -EAFNOSUPPORT for other address families.
 */
int pl_address_format(const struct sockaddr *addr, char *buffer, size_t size);

/* True for 127/8, ::1 and IPv4-mapped 127/8. */
bool pl_address_is_loopback(const struct sockaddr *addr);

#endif
