/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and options of sockets. */
#ifndef PL_CORE_SOCKET_H
#define PL_CORE_SOCKET_H

#include <netdb.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/address.h"
#include "core/context.h"

/* connect.c */
/* True if the context may listen at an address (`passive`), or connect to it. */
bool pl_address_allowed(const struct pl_context *context, const struct sockaddr *address, bool passive);
int pl_address_resolve(const char *address, bool passive, struct addrinfo **result, struct pl_error *error);
/* socket.c: sets no delay, keepalive and traffic class as the options say */
void pl_socket_tune(int fd, const struct pl_options *options);
/*
 * Pacing, which some algorithms of congestion control do, delays each burst of a connection on this host, where nothing is
 * congested. Whether a connection is paced is decided for good when it is established.
 */
#define PL_CONGESTION_NAME 16 /* bytes, TCP_CA_NAME_MAX of the kernel */
/* Before a connection is established: takes another algorithm if the socket's paces. `paced` receives its name, or "". */
void pl_socket_stop_pacing(int fd, char paced[PL_CONGESTION_NAME]);
/* Gives a socket from a listener of pl_socket_stop_pacing() the algorithm back, unless the other end is on this host. */
void pl_socket_resume_pacing(int fd, const struct sockaddr *other, const char paced[PL_CONGESTION_NAME]);
/* Returns the shortest round trip of a connection that the kernel has measured, in nanoseconds; 0: none, as of a local socket. */
uint64_t pl_socket_round_trip(int fd);
int pl_socket_connect(const struct sockaddr *address,
		      const struct pl_options *options); /* returns a descriptor or a negative errno */

#endif
