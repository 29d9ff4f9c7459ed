/* SPDX-License-Identifier: BSD-2-Clause */
/* Control messages over a stream, both ways, without blocking.  Belongs to one engine. */
#ifndef PL_CHANNEL_H
#define PL_CHANNEL_H

#include "control/stream.h"
#include "engine/engine.h"
#include "wire/wire.h"

struct pl_channel {
	struct pl_source source;
	struct pl_stream stream;
	const struct pl_allocator *allocator;
	bool open;
	uint8_t *received; /* the begin of a message; only while one is incomplete */
	size_t received_length;
	uint8_t *unsent; /* only while the socket is full */
	size_t unsent_length;
	/* Each may close the channel, and free what it is embedded in. */
	void (*message)(struct pl_channel *channel, const struct pl_control *message);
	void (*closed)(struct pl_channel *channel, const struct pl_error *error);
};

/*
 * Takes over the stream and watches it; `prefix` are bytes that were read from it already.
 * On failure the stream is closed.  `message` is first called from the engine, never from here.
 */
int pl_channel_open(struct pl_channel *channel, struct pl_engine *engine, struct pl_stream *stream,
		    const uint8_t *prefix, size_t prefix_length);

/* Sends, or queues what the socket does not take.  0, -ENOMEM or -EPIPE; a broken stream is told by closed(). */
int pl_channel_send(struct pl_channel *channel, const struct pl_control *message);

/* Stops and closes.  Accepts a channel that was never opened. */
void pl_channel_close(struct pl_channel *channel);

#endif
