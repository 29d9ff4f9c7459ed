/* SPDX-License-Identifier: BSD-2-Clause */
/* Both ends of a byte stream in one process, for tests of src/control/stream.c with cmocka. */
#ifndef TEST_STREAM_LINK_H
#define TEST_STREAM_LINK_H

#include <sys/types.h>

#include "control/stream.h"

#define STREAM_KEY "0123456789abcdef"

/* Both ends of a connection, each with the TLS context of a key. */
struct stream_link {
	struct pl_stream client, server;
};

/* TLS contexts of two keys, with equal settings.  The setup and the teardown of a test group open and close both. */
extern struct pl_tls *stream_tls, *stream_other_tls;
int stream_keys_open(void **state);
int stream_keys_close(void **state);

/* Setup of a test: sets an alarm of 200 s.  A wait without end thus kills the program, which fails the test. */
int stream_alarm(void **state);

/* Makes two connected sockets without blocking.  `buffer`: size of their buffers in bytes, 0 for the default. */
void stream_sockets(int fd[2], bool tcp, int buffer);

/* Opens both ends.  `client` and `server` are TLS contexts; NULL: in the clear. */
void stream_link_open(struct stream_link *link, bool tcp, int buffer, struct pl_tls *client, struct pl_tls *server);
/* Opens both ends with one key and completes the handshake. */
void stream_link_open_tls(struct stream_link *link, bool tcp, int buffer);
/* Opens both ends, sealed with the same secrets. */
void stream_link_open_sealed(struct stream_link *link, bool tcp, int buffer);
/* Opens both ends in the clear, with TLS, or sealed. */
enum stream_kind { STREAM_CLEAR, STREAM_TLS, STREAM_SEALED, STREAM_KINDS };
void stream_link_open_kind(struct stream_link *link, enum stream_kind kind, bool tcp, int buffer);
void stream_link_close(struct stream_link *link);
/* Runs the handshake at both ends until both succeed or fail. */
void stream_link_handshake(struct stream_link *link, int status[2], struct pl_error error[2]);

/* Waits at most 10 s until the socket is ready for what the stream wants. */
void stream_await(struct pl_stream *stream);
/* Continues the handshake at one end until it fails, and checks the failure. */
void stream_expect_failure(struct pl_stream *stream, int code, const char *id);

/* Read and write once.  stream_read_waiting() repeats the read until data or an error arrives. */
ssize_t stream_read_some(struct pl_stream *stream, void *data, size_t length);
ssize_t stream_write_some(struct pl_stream *stream, const void *data, size_t length);
ssize_t stream_read_waiting(struct pl_stream *stream, void *data, size_t length);

/* Checks that writes to a closed connection fail before they fill the socket's buffer, without SIGPIPE. */
void stream_check_broken(struct pl_stream *stream);

#endif
