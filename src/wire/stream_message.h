/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages about streams: the bodies of control messages of type PL_CONTROL_STREAM. The subscriber chooses the number of a
 * subscription; both ends name it by that number and the connection.
 */
#ifndef PL_WIRE_STREAM_MESSAGE_H
#define PL_WIRE_STREAM_MESSAGE_H

#include <peerlane/stream.h>

#include "wire/wire.h"

enum pl_stream_message_type {
	PL_STREAM_LIST = 1,    /* asks for the streams of the other end, from an index on */
	PL_STREAM_LISTED,      /* answers LIST */
	PL_STREAM_SUBSCRIBE,   /* subscriber to publisher */
	PL_STREAM_SUBSCRIBED,  /* answers SUBSCRIBE */
	PL_STREAM_UNSUBSCRIBE, /* subscriber to publisher: reads no more */
	PL_STREAM_ANNOUNCE,    /* publisher to subscriber: newest cursors, and newest descriptors */
	PL_STREAM_TAKEN,       /* subscriber to publisher: answers announcements, releases slots, reports accounts */
	PL_STREAM_CLOSED,      /* publisher to subscriber: nothing can be read any more */
	PL_STREAM_SLOTS,       /* subscriber to publisher: key of the slots that the publisher may write into */
	PL_STREAM_CREDIT,      /* subscriber to publisher: slots that are free, and accounts */
	PL_STREAM_PUSHED, /* publisher to subscriber: fates of sequences, and a frame that was written into a slot */
};

/* Result of SUBSCRIBE. */
enum pl_subscribe_status {
	PL_SUBSCRIBE_OK,
	PL_SUBSCRIBE_UNKNOWN,  /* no stream of that name */
	PL_SUBSCRIBE_NO_BLOCK, /* the publisher does not allow to block */
	PL_SUBSCRIBE_FULL,     /* the publisher, or this connection, has its most subscribers */
	PL_SUBSCRIBE_ENDED,    /* the stream has ended, and has no frame that the subscriber wants */
	PL_SUBSCRIBE_INTERNAL, /* no memory */
	/* PL_CAPABILITY_STREAM_TOKENS: */
	PL_SUBSCRIBE_NEEDS_TOKEN,   /* the stream is for those that have a token */
	PL_SUBSCRIBE_WRONG_TOKEN,   /* the token is unknown, revoked, or of another stream */
	PL_SUBSCRIBE_EXPIRED_TOKEN, /* the token's lifetime is over */
	PL_SUBSCRIBE_TOKEN_RATE,    /* the connection has had too many wrong tokens */
	/* To ends with PL_CAPABILITY_STREAM_LIMITS; others get PL_SUBSCRIBE_FULL. */
	PL_SUBSCRIBE_PLACES, /* this connection has its most subscribers of the publisher */
	PL_SUBSCRIBE_OFTEN,  /* this connection subscribes too often */
	PL_SUBSCRIBE_END,
};

/* Reason of a CLOSED. */
enum pl_closed_reason {
	PL_CLOSED_PUBLISHER, /* the publisher was closed, or a subscription has ended */
	/* PL_CAPABILITY_STREAM_TOKENS: */
	PL_CLOSED_REVOKED, /* the publisher has revoked the token of the subscription */
	PL_CLOSED_EXPIRED, /* the token's lifetime is over */
	PL_CLOSED_END,
};

/* Token of a stream, as a subscriber presents it. Without one, all members are 0. */
struct pl_stream_token {
	bool given;
	uint64_t id;
	uint8_t secret[16];
};

/* Description of a stream. */
struct pl_stream_entry {
	char name[PL_STREAM_NAME_SIZE], content_type[PL_CONTENT_TYPE_SIZE];
	uint8_t instance[16];
	uint64_t created;
	uint32_t slots, metadata_bytes;
	uint64_t slot_bytes;
	struct pl_layout layout;
	uint64_t claimed, published;
	uint32_t subscribers, blocking;
	bool allow_block;
	bool needs_token; /* shown only to ends that presented a token of the stream */
	enum pl_stream_state state;
	bool gpu; /* the slots are in GPU memory */
};

#define PL_STREAM_LISTED_MAX 16     /* entries of a LISTED */
#define PL_STREAM_ANNOUNCE_MAX 4096 /* bytes of descriptors and metadata in an ANNOUNCE */
#define PL_STREAM_CREDIT_MAX 1024   /* slots in a CREDIT */
#define PL_STREAM_PUSH_SLOTS_MAX 8193 /* slots of a subscriber */

/* Sequences that the publisher gave a fate without a frame, since the subscription began. */
struct pl_push_fates {
	uint64_t lapped, aborted, unwanted, rejected;
};

struct pl_stream_message {
	enum pl_stream_message_type type;
	uint32_t number; /* of the subscription; LIST and LISTED: of the request */
	struct pl_stream_token token; /* LIST, SUBSCRIBE */
	union {
		uint32_t from; /* LIST: index of the first entry */
		struct {
			uint32_t total; /* entries that this end has */
			uint32_t count;
			struct pl_stream_entry entries[PL_STREAM_LISTED_MAX];
			/* Status of the token of LIST. Unless it is PL_SUBSCRIBE_OK, there are no entries. */
			enum pl_subscribe_status status;
		} listed;
		enum pl_closed_reason closed;
		struct {
			char name[PL_STREAM_NAME_SIZE];
			enum pl_start start;
			enum pl_overflow overflow;
			uint64_t from;
			uint8_t instance[16]; /* continues with this instance at `from`; zero: any instance */
			uint32_t every;       /* the subscriber wants the first of each `every` sequences */
			uint64_t base;        /* of `instance`: `every` counts from this sequence */
			/* True if the subscriber blocks, and its program uses frames in the ring (PL_CAPABILITY_FRAMES_IN_PLACE). */
			bool in_place;
			/* True if the publisher writes frames into the subscriber's slots (PL_CAPABILITY_PUSHED_FRAMES). */
			bool push;
			/*
			 * True if the subscriber prepares, and sends the same message without it once it is ready: the subscription begins then
			 * (PL_CAPABILITY_PREPARED_FRAMES).
			 */
			bool prepare;
		} subscribe;
		struct {
			enum pl_subscribe_status status; /* the rest is zero unless this is PL_SUBSCRIBE_OK */
			struct pl_stream_entry entry;
			uint64_t first;
			uint64_t skipped;                                       /* as in ANNOUNCE */
			uint8_t control[PL_TOKEN_SIZE], payload[PL_TOKEN_SIZE]; /* for this connection only */
		} subscribed;
		struct {
			uint64_t claimed, published;
			enum pl_stream_state state;
			bool demoted; /* the subscriber holds no slot back any more */
			bool waits;   /* the publisher waits for slots (PL_CAPABILITY_QUIET_FRAMES) */
			/* Wanted sequences of the subscription that were skipped and have no descriptor. All lie before those of the ring. */
			uint64_t skipped;
			uint32_t count; /* descriptors of the sequences before `published` */
			const uint8_t
				*frames; /* each 128 bytes and its metadata; in the decoded body, or of the caller */
			size_t frames_length;
		} announce;
		struct {
			uint32_t answered; /* announcements that arrived so far, modulo 2^32 */
			uint64_t taken;    /* first sequence that must be held back */
			struct pl_accounts accounts;
		} taken; /* and UNSUBSCRIBE */
		struct {
			uint32_t count; /* slots, from 1 */
			uint64_t stride;
			bool gpu;                     /* the slots are in GPU memory */
			uint8_t token[PL_TOKEN_SIZE]; /* for this connection only */
		} slots;
		struct {
			struct pl_accounts accounts;
			bool paused; /* later sequences are unwanted */
			uint32_t count;
			uint32_t slots[PL_STREAM_CREDIT_MAX];
		} credit;
		struct {
			uint64_t next; /* sequences below have a fate: that of `fates`, or were written */
			uint64_t published;
			enum pl_stream_state state;
			bool demoted; /* as in ANNOUNCE */
			struct pl_push_fates fates;
			uint32_t slot; /* that has the frame `next` - 1 */
			const uint8_t *
				frame; /* its descriptor and metadata, in the decoded body or of the caller; NULL: no frame */
			size_t frame_length;
		} pushed;
	};
};

/*
 * Decodes a body. Returns -EPROTO for anything malformed or out of range. Accounts of TAKEN and CREDIT add up, and
 * descriptors of ANNOUNCE and PUSHED have the lengths that they name; their other fields are not checked.
 */
int pl_stream_message_decode(const void *body, size_t length, struct pl_stream_message *message);
/* Returns the bytes written; -EINVAL for a message that the decoder refuses; -ENOBUFS. */
int pl_stream_message_encode(const struct pl_stream_message *message, void *buffer, size_t size);
/* Returns the bytes of the descriptor and its metadata at `at`; 0 if fewer are left. */
size_t pl_stream_frame_bytes(const uint8_t *at, size_t left);

/* stream_parts.c: parts of messages. True if the fates add up. */
bool pl_accounts_exact(const struct pl_accounts *accounts);
bool pl_get_bool(struct pl_reader *reader);
void pl_get_entry(struct pl_reader *reader, struct pl_stream_entry *entry);
void pl_put_entry(struct pl_writer *writer, const struct pl_stream_entry *entry);
void pl_get_accounts(struct pl_reader *reader, struct pl_accounts *accounts);
void pl_put_accounts(struct pl_writer *writer, const struct pl_accounts *accounts);
/* A token at the end of a body, where only an end with a token has bytes. */
void pl_get_stream_token(struct pl_reader *reader, struct pl_stream_token *token);
void pl_put_stream_token(struct pl_writer *writer, const struct pl_stream_token *token);

#endif
