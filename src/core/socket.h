/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and options of sockets. */
#ifndef PL_CORE_SOCKET_H
#define PL_CORE_SOCKET_H

#include <netdb.h>
#include <sys/socket.h>

#include "base/address.h"
#include "core/context.h"

/* connect.c */
/* True if the context may listen at an address (`passive`), or connect to it. */
bool pl_address_allowed(const struct pl_context *context, const struct sockaddr *address, bool passive);
int pl_address_resolve(const char *address, bool passive, struct addrinfo **result, struct pl_error *error);
/* socket.c: sets no delay, keepalive and traffic class as the options say */
void pl_socket_tune(int fd, const struct pl_options *options);
int pl_socket_connect(const struct sockaddr *address,
		      const struct pl_options *options); /* returns a descriptor or a negative errno */

#endif
