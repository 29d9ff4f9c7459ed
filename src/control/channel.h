/* SPDX-License-Identifier: BSD-2-Clause */
/* Control messages over a stream, in both directions, without blocking. Belongs to one engine. */
#ifndef PL_CHANNEL_H
#define PL_CHANNEL_H

#include "control/stream.h"
#include "engine/engine.h"
#include "wire/wire.h"

/* Reasons for which a channel ends, other than pl_channel_close(). */
enum pl_channel_end {
	PL_CHANNEL_BROKEN,    /* the other end closed the socket, or its process ended: why is not known here */
	PL_CHANNEL_SILENT,    /* the other host did not answer in time, or cannot be reached */
	PL_CHANNEL_MALFORMED, /* the other end broke the protocol */
	PL_CHANNEL_NO_MEMORY,
};

struct pl_channel {
	struct pl_source source;
	struct pl_stream stream;
	const struct pl_allocator *allocator;
	bool open;
	/* Bytes of the message that is being handled; valid in message() only. */
	const uint8_t *body;
	size_t body_length;
	/* Set while received messages are handled: their answers are queued and sent together. A close stores true. */
	bool *gone;
	uint8_t *received; /* beginning of a message, or postponed messages; only while there are bytes */
	size_t received_length;
	uint8_t *unsent;                   /* of the engine, or allocated; NULL while there are none */
	size_t unsent_length, unsent_sent; /* bytes there, and of these the first that the socket has taken */
	/* Each callback may close the channel and free its owner. */
	void (*message)(struct pl_channel *channel, const struct pl_control *message);
	void (*closed)(struct pl_channel *channel, enum pl_channel_end end);
	/* The socket has taken all bytes, after one of the functions below had returned false. NULL: nobody asks. */
	void (*drained)(struct pl_channel *channel);
	bool room_awaited; /* drained() is due */
	bool paused;       /* nothing is read before it */
	bool postponed;    /* nothing is read, and no message handled, before pl_channel_resume() */
	bool resumed;      /* received messages wait to be handled */
};

/*
 * Takes over the stream and watches it; `prefix` holds bytes already read from it. On failure the stream is closed. The
 * engine calls `message` first, never this function.
 */
int pl_channel_open(struct pl_channel *channel, struct pl_engine *engine, struct pl_stream *stream,
		    const uint8_t *prefix, size_t prefix_length);

/*
 * Sends a message, or queues bytes that the socket does not take. Returns 0; -ENOMEM; -ENOBUFS if too many bytes are
 * queued; -EPIPE if the channel is closed, or an error of the stream, which closed() reports too.
 */
int pl_channel_send(struct pl_channel *channel, const struct pl_control *message);

/*
 * The same for a message that one end waits for, perhaps without limit of time, and that no later one replaces. The connection ends
 * soon if the message was left out.
 */
int pl_channel_send_awaited(struct pl_channel *channel, const struct pl_control *message);

/* True if pl_channel_send() returned that it left the message out: without memory, or with too many unsent bytes. */
static inline bool pl_channel_left_out(int rc)
{
	return rc == -ENOMEM || rc == -ENOBUFS;
}

/* Returns the bytes that the socket has not taken yet. */
static inline size_t pl_channel_unsent(const struct pl_channel *channel)
{
	return channel->unsent_length - channel->unsent_sent;
}

/*
 * True if a message that can wait may be sent: few bytes are unsent, also with the message. So this end goes on reading, and two ends
 * that send to each other do not wait for each other. The rest of the room is for other messages. After false, drained() follows,
 * unless the channel ends. A closed channel has room: its sends fail.
 */
bool pl_channel_has_room(struct pl_channel *channel);
/* The same for the answer to a request, which may use all of that room. */
bool pl_channel_has_room_for_answer(struct pl_channel *channel);
/* Reads nothing before drained(), which is due: too many answers wait for room. */
void pl_channel_pause(struct pl_channel *channel);

/* For message(): the message comes again after pl_channel_resume(), and no other comes before. */
void pl_channel_postpone(struct pl_channel *channel);
/* Has the engine handle postponed messages soon. Without any it does nothing. Returns 0 or a negative errno. */
int pl_channel_resume(struct pl_channel *channel);

/* Describes the end of a channel. Returns its negative errno. */
int pl_channel_explain_end(enum pl_channel_end end, struct pl_error *error);

/* Stops and closes. Accepts a channel that was never opened. */
void pl_channel_close(struct pl_channel *channel);

#endif
