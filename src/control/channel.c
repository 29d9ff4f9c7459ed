/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/channel.h"

#include <sys/socket.h>

#include "control/socket_io.h"

#define MESSAGE_MAX (PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX)
/* Received bytes that wait: a message that began, or postponed ones. */
#define RECEIVED_MAX ((size_t)2 * MESSAGE_MAX)
/* The channel to a peer that requests answers and does not read them is closed at this many bytes. */
#define UNSENT_MAX (256u << 10)
/* Unsent bytes from which on nothing is read. The answers to the messages of one visit fit into the rest. */
#define UNSENT_STOP (192u << 10)
/* Unsent bytes from which on answers wait. Messages that can wait stay below. So these alone do not keep an end from reading. */
#define UNSENT_ROOM (64u << 10)
/* Reads of one visit: then other sockets get their turn. */
#define READS_A_VISIT 2

static void fail(struct pl_channel *channel, int code)
{
	if (code == -EPROTO || code == -EMSGSIZE || code == -ENOMSG)
		channel->closed(channel, PL_CHANNEL_MALFORMED);
	else if (code == -ENOMEM)
		channel->closed(channel, PL_CHANNEL_NO_MEMORY);
	else
		channel->closed(channel, pl_socket_is_silence(code) ? PL_CHANNEL_SILENT : PL_CHANNEL_BROKEN);
}

int pl_channel_explain_end(enum pl_channel_end end, struct pl_error *error)
{
	switch (end) {
	case PL_CHANNEL_MALFORMED:
		return pl_fail(error, -EPROTO, "PROTOCOL", "control message", NULL,
			       "check that the other end is Peerlane, and of a release that this one knows",
			       "the other end sent a malformed control message");
	case PL_CHANNEL_NO_MEMORY:
		return pl_fail_memory(error, "control message");
	case PL_CHANNEL_SILENT:
		pl_socket_explain_silence(error);
		return error->code;
	default:
		return pl_fail(error, -ECONNRESET, "PEER-LOST", "control channel", NULL, NULL,
			       "the other end closed the connection");
	}
}

/* Handles one message at the front of the data. Returns bytes used, 0 if it is incomplete, or a negative errno. */
static ssize_t take_message(struct pl_channel *channel, const uint8_t *data, size_t length)
{
	struct pl_control message;
	uint32_t body;
	uint16_t type;
	int rc;

	if (length < PL_CONTROL_HEADER)
		return 0;
	rc = pl_control_header_decode(data, &type, &body);
	if (rc < 0)
		return rc;
	if (length < PL_CONTROL_HEADER + body)
		return 0;
	if (type >= PL_CONTROL_OPTIONAL)
		return PL_CONTROL_HEADER + body;
	rc = pl_control_decode(type, data + PL_CONTROL_HEADER, body, &message);
	if (rc < 0)
		return rc;
	channel->body = data + PL_CONTROL_HEADER;
	channel->body_length = body;
	channel->message(channel, &message);
	return PL_CONTROL_HEADER + body;
}

static int keep_received(struct pl_channel *channel, const uint8_t *data, size_t length)
{
	if (length == 0) {
		pl_free(channel->allocator, channel->received);
		channel->received = NULL;
		channel->received_length = 0;
		return 0;
	}
	if (!channel->received) {
		channel->received = pl_alloc(channel->allocator, RECEIVED_MAX);
		if (!channel->received)
			return -ENOMEM;
	}
	memmove(channel->received, data, length);
	channel->received_length = length;
	return 0;
}

/* Handles all complete messages up to a postponed one. Returns 1 if one of them closed the channel, which sets *gone. */
static int take_messages(struct pl_channel *channel, const uint8_t *data, size_t length, const bool *gone)
{
	while (length) {
		ssize_t used = take_message(channel, data, length);

		if (*gone)
			return 1;
		if (used < 0)
			return (int)used;
		if (used == 0 || channel->postponed)
			break;
		data += used;
		length -= (size_t)used;
	}
	return keep_received(channel, data, length);
}

/* Returns 0, 1 if the channel is gone, or a negative errno; -EAGAIN: nothing to read. */
static int receive(struct pl_channel *channel, const bool *gone)
{
	uint8_t buffer[RECEIVED_MAX];
	size_t have = channel->received_length;
	struct iovec vector = { .iov_base = buffer + have, .iov_len = sizeof(buffer) - have };
	ssize_t got;
	int rc;

	if (have)
		memcpy(buffer, channel->received, have);
	got = pl_stream_read(&channel->stream, &vector, 1);
	if (got < 0)
		return (int)got;
	rc = take_messages(channel, buffer, have + (size_t)got, gone);
	return rc == 0 && channel->stream.dry ? -EAGAIN : rc;
}

/* Handles messages that were postponed. Returns as receive() does. */
static int take_postponed(struct pl_channel *channel, const bool *gone)
{
	uint8_t buffer[RECEIVED_MAX];
	size_t length = channel->received_length;

	channel->resumed = false;
	if (length)
		memcpy(buffer, channel->received, length);
	return take_messages(channel, buffer, length, gone);
}

static bool channel_reads(const struct pl_channel *channel)
{
	return pl_channel_unsent(channel) < UNSENT_STOP && !channel->paused && !channel->postponed;
}

/*
 * Watches the socket. `again`: bytes may be left that TLS has read already, which epoll does not report; EPOLLOUT makes
 * channel_ready() run for them, for drained(), and for postponed messages.
 */
static int watch(struct pl_channel *channel, bool again)
{
	size_t unsent = pl_channel_unsent(channel);
	uint32_t events = channel_reads(channel) ? EPOLLIN : 0;

	again &= events && pl_stream_pending(&channel->stream);
	again |= channel->room_awaited || channel->resumed;
	return pl_source_watch(&channel->source, events | (unsent || again ? EPOLLOUT : 0));
}

/* -- unsent bytes: in the engine's memory while they fit and no other channel uses it, else in allocated memory -------- */

static bool unsent_is_engines(const struct pl_channel *channel)
{
	return channel->unsent && channel->unsent == channel->source.engine->messages;
}

static void unsent_release(struct pl_channel *channel)
{
	if (unsent_is_engines(channel))
		channel->source.engine->messages_owner = NULL;
	else
		pl_free(channel->allocator, channel->unsent);
	channel->unsent = NULL;
	channel->unsent_length = channel->unsent_sent = 0;
}

/* Makes room for `length` unsent bytes in all. Returns false without memory. */
static bool unsent_reserve(struct pl_channel *channel, size_t length)
{
	struct pl_engine *engine = channel->source.engine;
	bool engines = unsent_is_engines(channel);
	uint8_t *grown;

	if (length <= PL_ENGINE_MESSAGES && (engines || (!channel->unsent && !engine->messages_owner))) {
		engine->messages_owner = channel;
		channel->unsent = engine->messages;
		return true;
	}
	grown = pl_realloc(channel->allocator, engines ? NULL : channel->unsent, length);
	if (!grown)
		return false;
	if (engines) {
		memcpy(grown, channel->unsent, channel->unsent_length);
		engine->messages_owner = NULL;
	}
	channel->unsent = grown;
	return true;
}

static int flush(struct pl_channel *channel)
{
	while (channel->unsent_sent < channel->unsent_length) {
		struct iovec vector = { .iov_base = channel->unsent + channel->unsent_sent,
					.iov_len = pl_channel_unsent(channel) };
		ssize_t sent = pl_stream_write(&channel->stream, &vector, 1);

		if (sent == -EAGAIN)
			return watch(channel, true);
		if (sent < 0)
			return (int)sent;
		channel->unsent_sent += (size_t)sent;
	}
	unsent_release(channel);
	return watch(channel, true);
}

static bool channel_ready(struct pl_source *source, uint32_t events)
{
	struct pl_channel *channel = pl_container_of(source, struct pl_channel, source);
	bool gone = false;
	int rc = 0;

	if (channel->unsent_length)
		rc = flush(channel);
	/* Bytes that TLS read ahead come without EPOLLIN. epoll reports these two until the channel is closed. */
	if (rc == 0 && channel->postponed && (events & (EPOLLERR | EPOLLHUP)))
		rc = -ECONNRESET;
	/* The answers of a visit are sent together. */
	channel->gone = &gone;
	if (rc == 0 && channel->resumed)
		rc = take_postponed(channel, &gone);
	for (int i = 0; rc == 0 && i < READS_A_VISIT && channel_reads(channel); i++)
		rc = receive(channel, &gone);
	if (gone)
		return true;
	channel->gone = NULL;
	if (rc == 0 || rc == -EAGAIN)
		rc = flush(channel);
	if (rc < 0) {
		fail(channel, rc);
	} else if (channel->room_awaited && !channel->unsent_length) {
		channel->room_awaited = channel->paused = false;
		channel->drained(channel);
	}
	return true;
}

int pl_channel_open(struct pl_channel *channel, struct pl_engine *engine, struct pl_stream *stream,
		    const uint8_t *prefix, size_t prefix_length)
{
	int rc;

	channel->allocator = engine->allocator;
	channel->stream = *stream;
	stream->fd = -1;
	stream->ssl = NULL;
	channel->received = channel->unsent = NULL;
	channel->received_length = channel->unsent_length = channel->unsent_sent = 0;
	channel->open = true;
	channel->room_awaited = channel->paused = channel->postponed = channel->resumed = false;
	channel->gone = NULL;
	memset(&channel->source, 0, sizeof(channel->source));
	channel->source.fd = channel->stream.fd;
	channel->source.ready = channel_ready;
	rc = keep_received(channel, prefix, prefix_length);
	if (rc == 0) /* EPOLLOUT makes channel_ready() run once, for bytes that TLS read ahead */
		rc = pl_source_add(engine, &channel->source, EPOLLIN);
	if (rc < 0)
		pl_channel_close(channel);
	else if (pl_stream_pending(&channel->stream))
		rc = pl_source_watch(&channel->source, EPOLLIN | EPOLLOUT);
	return rc;
}

int pl_channel_send(struct pl_channel *channel, const struct pl_control *message)
{
	uint8_t buffer[MESSAGE_MAX];
	int length;

	if (!channel->open)
		return -EPIPE;
	length = pl_control_encode(message, buffer, sizeof(buffer));
	if (length < 0)
		return length;
	if (channel->unsent_sent > channel->unsent_length / 2) {
		channel->unsent_length -= channel->unsent_sent;
		memmove(channel->unsent, channel->unsent + channel->unsent_sent, channel->unsent_length);
		channel->unsent_sent = 0;
	}
	if (channel->unsent_length + (size_t)length > UNSENT_MAX)
		return -ENOBUFS;
	if (!unsent_reserve(channel, channel->unsent_length + (size_t)length))
		return -ENOMEM;
	memcpy(channel->unsent + channel->unsent_length, buffer, (size_t)length);
	channel->unsent_length += (size_t)length;
	return channel->gone ? 0 : flush(channel);
}

int pl_channel_send_awaited(struct pl_channel *channel, const struct pl_control *message)
{
	int rc = pl_channel_send(channel, message);

	/* Both ends learn of the end of the socket from epoll, and not during this call: its caller still uses the peer. */
	if (pl_channel_left_out(rc))
		shutdown(channel->stream.fd, SHUT_RDWR);
	return rc;
}

bool pl_channel_has_room(struct pl_channel *channel)
{
	if (!channel->open || pl_channel_unsent(channel) + MESSAGE_MAX < UNSENT_ROOM)
		return true;
	channel->room_awaited = true;
	return false;
}

bool pl_channel_has_room_for_answer(struct pl_channel *channel)
{
	if (!channel->open || pl_channel_unsent(channel) < UNSENT_ROOM)
		return true;
	channel->room_awaited = true;
	return false;
}

void pl_channel_pause(struct pl_channel *channel)
{
	channel->room_awaited = channel->paused = true;
}

void pl_channel_postpone(struct pl_channel *channel)
{
	channel->postponed = true;
}

int pl_channel_resume(struct pl_channel *channel)
{
	if (!channel->open || !channel->postponed)
		return 0;
	channel->postponed = false;
	channel->resumed = true;
	return watch(channel, false);
}

void pl_channel_close(struct pl_channel *channel)
{
	if (!channel->open)
		return;
	if (channel->gone && pl_channel_unsent(channel))
		flush(channel);
	if (channel->gone)
		*channel->gone = true;
	channel->gone = NULL;
	channel->open = false;
	unsent_release(channel);
	pl_source_remove(&channel->source);
	pl_stream_close(&channel->stream);
	pl_free(channel->allocator, channel->received);
	channel->received = NULL;
}
