/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer without the library, which knows the key and has opened a connection in the right way. */
#ifndef FUZZ_CONTEXT_INTRUDER_H
#define FUZZ_CONTEXT_INTRUDER_H

#include "context/step.h"
#include "context/world.h"
#include "core/lane_auth.h"

#define INTRUDER_ID 7 /* each byte of the intruder's context id */

#define LANES 4u
#define CHANNELS (1 + LANES) /* the control channel is number 0 */
#define STRANGERS 4u
#define KEYS 32u
#define REQUESTS 64u
/* Most bytes that the intruder sends for one input. */
#define BUDGET (4u << 20)
/* Most lanes that it opens for one input: the kernel keeps the port of a closed socket for a minute. */
#define OPENINGS 6u

struct channel {
	struct pl_stream stream; /* fd -1: closed, or not open yet */
	bool jammed;             /* the victim takes no more bytes, or a part of a message was lost */
	uint8_t tail[7];         /* last bytes received, in which the secret may begin */
	unsigned tail_length;
	uint8_t received[PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX];
	size_t have;
	uint32_t skip;    /* payload that is still to come */
	uint32_t counted; /* frames to acknowledge */
};

/* Request of the victim: a frame, or an IMPORT. */
struct request {
	struct pl_frame frame;
	unsigned channel;
	uint64_t import;
};

struct intruder {
	struct world *world;
	unsigned connection; /* enum fuzz_connection */
	unsigned lanes;      /* in the hello */
	struct pl_tls *tls;
	int listener; /* of the process: the victim connects there */
	char address[32];
	struct pl_context context; /* has only the allocator, for lane_auth.h */
	struct pl_peer self;       /* has only the secret */
	uint8_t secret[PL_SECRET]; /* memory of that */
	uint64_t peer_index;       /* at the victim */
	struct channel channels[CHANNELS];
	int strangers[STRANGERS];
	unsigned stranger_count;
	uint64_t keys[KEYS];
	unsigned key_count;
	struct request requests[REQUESTS]; /* the oldest first */
	unsigned request_count;
	struct token stream_tokens[2]; /* of the last subscription: control, payload */
	uint32_t announced; /* announcements that arrived */
	uint32_t cookie;
	size_t budget;
	unsigned lanes_opened;
	bool up;
};

/* Prepares TLS and the listening socket, once for each world. */
void intruder_prepare(struct intruder *intruder, struct world *world);
void intruder_end(struct intruder *intruder);

/* Connects, or is connected to.  Returns false if the victim refused. */
bool intruder_connect(struct intruder *intruder, unsigned connection, unsigned lanes);
void intruder_disconnect(struct intruder *intruder);

/* Opens a lane of this number in the right way, or accepts one. */
bool intruder_open_lane(struct intruder *intruder, unsigned lane, unsigned number);
void intruder_send(struct intruder *intruder, unsigned channel, const void *bytes, size_t length);
void intruder_send_control(struct intruder *intruder, const struct pl_control *message);
/* Reads all that has arrived. */
void intruder_read(struct intruder *intruder);
/* Lets the victim work, and reads unless the connection is FUZZ_UNREAD. */
void intruder_settle(struct intruder *intruder);
/* Removes a request.  Returns false if there is none. */
bool intruder_take_request(struct intruder *intruder, unsigned index, struct request *request);
/* Connects to the victim's listener. */
int intruder_dial(const struct world *world);
/* Sets the options of a socket of the intruder. */
void intruder_tune(int fd);
/* Makes the close of a socket reset the connection, which keeps no port. */
void intruder_reset_at_close(int fd);

/* steps.c */
void intruder_step(struct intruder *intruder, const struct fuzz_step *step);
/* program.c: the victim's program calls a function. */
void program_step(struct world *world, const struct fuzz_step *step);

/* streams.c */
void program_stream(struct world *world, const struct fuzz_step *step);
void step_stream(struct intruder *intruder, const struct fuzz_step *step);
/* Takes tokens from a message of the victim. */
void intruder_note_stream(struct intruder *intruder, const void *body, size_t length);

uint64_t step_value(const struct fuzz_step *step);

#endif
