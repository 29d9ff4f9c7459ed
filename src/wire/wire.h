/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What goes over the wire: little-endian, versioned, no padding, no pointers.  Knows no sockets.
 *
 * Decoders accept any bytes whatever: they return -EPROTO (or -EMSGSIZE where a length is over its
 * limit) for what is not well-formed, and never read outside what they were given.  Encoders return
 * the number of bytes, or -ENOBUFS.
 */
#ifndef PL_WIRE_H
#define PL_WIRE_H

#include <endian.h>

#include "base/base.h"

/* -- cursors: sticky failure, so that a codec checks once at its end ----------------------------- */

struct pl_reader {
	const uint8_t *at, *end;
	bool bad; /* asked for more than there was */
};

struct pl_writer {
	uint8_t *begin, *at, *end;
	bool full; /* did not fit */
};

void pl_reader_init(struct pl_reader *reader, const void *data, size_t length);
uint8_t pl_get_u8(struct pl_reader *reader);
uint16_t pl_get_u16(struct pl_reader *reader);
uint32_t pl_get_u32(struct pl_reader *reader);
uint64_t pl_get_u64(struct pl_reader *reader);
void pl_get_bytes(struct pl_reader *reader, void *to, size_t length); /* zeroes `to` on failure */
/* u16 length, bytes; always NUL-terminates; bad if longer than size - 1 or if it holds a NUL. */
void pl_get_string(struct pl_reader *reader, char *to, size_t size);

void pl_writer_init(struct pl_writer *writer, void *data, size_t length);
void pl_put_u8(struct pl_writer *writer, uint8_t value);
void pl_put_u16(struct pl_writer *writer, uint16_t value);
void pl_put_u32(struct pl_writer *writer, uint32_t value);
void pl_put_u64(struct pl_writer *writer, uint64_t value);
void pl_put_bytes(struct pl_writer *writer, const void *from, size_t length);
void pl_put_string(struct pl_writer *writer, const char *from);

/* -- the first bytes of a connection ------------------------------------------------------------ */

#define PL_MAGIC_CONTROL 0x31434c50u /* "PLC1": a control channel */
#define PL_MAGIC_LANE 0x314c4c50u    /* "PLL1": a data socket of the tcp fabric */
#define PL_PROTOCOL_VERSION 1

/* -- control messages --------------------------------------------------------------------------- */

#define PL_CONTROL_HEADER 12 /* u32 magic, u16 type, u16 zero, u32 body length */
#define PL_CONTROL_BODY_MAX 4096
#define PL_FABRICS_MAX 4
#define PL_FABRIC_NAME_MAX 16 /* with its NUL */
#define PL_FABRIC_BLOB_MAX 256
#define PL_KEY_BLOB_MAX 160

enum pl_control_type {
	PL_CONTROL_HELLO = 1, /* both ways, first */
	PL_CONTROL_REJECT,    /* instead of a HELLO: why not; then close */
	PL_CONTROL_IMPORT,    /* present a token */
	PL_CONTROL_IMPORTED,  /* the answer */
	PL_CONTROL_RELEASE,   /* a key is no longer used */
	PL_CONTROL_LANES,     /* acceptor to initiator: please have `count` lanes */
	PL_CONTROL_BYE,       /* orderly end */
};

struct pl_fabric_advert {
	char name[PL_FABRIC_NAME_MAX];
	uint16_t blob_length;
	uint8_t blob[PL_FABRIC_BLOB_MAX]; /* the fabric's own: how to reach it */
};

struct pl_hello {
	uint16_t version_min, version_max;
	uint8_t boot_id[16];    /* of the kernel: equal means same host */
	uint8_t context_id[16]; /* random, of the context */
	uint64_t capabilities;  /* unknown bits are ignored */
	uint32_t streams;       /* the most data sockets that this end wants */
	uint32_t eager_max;     /* largest eager message accepted */
	uint32_t window;        /* messages accepted before any is consumed */
	uint32_t flags;         /* PL_HELLO_ENCRYPT_DATA; unknown bits are -EPROTO */
	char software[32];
	uint16_t fabric_count; /* 1 to PL_FABRICS_MAX */
	struct pl_fabric_advert fabrics[PL_FABRICS_MAX];
};
#define PL_HELLO_ENCRYPT_DATA 1u
#define PL_CAPABILITY_ASKS 256u    /* of struct pl_hello: asks over verbs for keys that an answer to an import lacks */
#define PL_CAPABILITY_VISIBLE 512u /* over verbs: flushes when asked, takes notifications with writes, and skips */
#define PL_CAPABILITY_HEADERLESS 1024u   /* takes over verbs small messages without a header */
#define PL_CAPABILITY_PACKED 2048u /* takes over verbs several frames in one SEND */

struct pl_reject {
	int32_t code; /* one of enum pl_wire_status, over 0 */
	char id[24];
	char message[176];
};

struct pl_import {
	uint64_t request;
	uint64_t grant;
	uint8_t secret[16];
};

struct pl_imported {
	uint64_t request;
	int32_t status; /* enum pl_wire_status; the rest is zero unless PL_WIRE_OK */
	uint64_t length;
	uint32_t rights;
	uint16_t key_length;
	uint8_t key[PL_KEY_BLOB_MAX]; /* the fabric's remote key */
};

struct pl_release {
	uint16_t key_length;
	uint8_t key[PL_KEY_BLOB_MAX];
};

struct pl_control {
	enum pl_control_type type;
	union {
		struct pl_hello hello;
		struct pl_reject reject;
		struct pl_import import;
		struct pl_imported imported;
		struct pl_release release;
		uint32_t lanes; /* 1 to 16 */
	};
};

/*
 * Reads a control header.  *length becomes the body's length.
 * -EPROTO for a wrong magic, type 0 or a reserved field that is not 0; -EMSGSIZE for a body over
 * PL_CONTROL_BODY_MAX.  Unknown types are not an error here: pl_control_decode tells.
 */
int pl_control_header_decode(const uint8_t header[PL_CONTROL_HEADER], uint16_t *type, uint32_t *length);

/*
 * Decodes a body.  -EPROTO for trailing bytes, out-of-range counts, version_min > version_max, negative statuses;
 * -EMSGSIZE for a blob or key over its limit; -ENOMSG for an unknown type.  Texts meant for people (software, id,
 * message) come out as printable ASCII: the peer need not be trusted not to send a terminal escape.
 */
int pl_control_decode(uint16_t type, const void *body, size_t length, struct pl_control *message);

/*
 * Header and body; returns the bytes written, at most PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX; -EINVAL for a message
 * that no decoder would accept.
 */
int pl_control_encode(const struct pl_control *message, void *buffer, size_t size);

/* -- lanes of the tcp fabric -------------------------------------------------------------------- */

#define PL_LANE_HELLO 40  /* u32 magic, u16 version, u16 lane, u64 ticket, u8 secret[16], u64 zero */
#define PL_LANE_WELCOME 8 /* u32 magic, u32 enum pl_wire_status */

/* In place of a lane's number: the socket carries descriptors (local fabric), and no data. */
#define PL_LANE_SIDE 0xffffu

struct pl_lane_hello {
	uint16_t version;
	uint16_t lane;
	uint64_t peer_index;
	uint8_t secret[16];
};

void pl_lane_hello_encode(const struct pl_lane_hello *hello, uint8_t buffer[PL_LANE_HELLO]);
int pl_lane_hello_decode(const uint8_t buffer[PL_LANE_HELLO], struct pl_lane_hello *hello); /* -EPROTO */
void pl_lane_welcome_encode(uint32_t status, uint8_t buffer[PL_LANE_WELCOME]);
int pl_lane_welcome_decode(const uint8_t buffer[PL_LANE_WELCOME], uint32_t *status); /* -EPROTO */

/* What a connection request of the verbs fabric says. */
#define PL_RAIL_HELLO 52       /* lane hello, u8 index, u8 count, u8 places[8], u16 renewals */
#define PL_RAIL_HELLO_LEAST 50 /* of a release that never renews */
#define PL_RAIL_WELCOME 2      /* u16 renewals: what the answer says */
#define PL_RAILS_MAX 8

struct pl_rail_hello {
	struct pl_lane_hello lane; /* its number is the connection's generation */
	uint8_t index, count;
	uint8_t places[PL_RAILS_MAX]; /* of each rail at the acceptor's, as it numbered them */
	uint16_t renewals;            /* how many devices the sender's end of the rail had before */
};

void pl_rail_hello_encode(const struct pl_rail_hello *hello, uint8_t buffer[PL_RAIL_HELLO]);
int pl_rail_hello_decode(const uint8_t *buffer, size_t length, struct pl_rail_hello *hello); /* -EPROTO */
void pl_rail_welcome_encode(uint16_t renewals, uint8_t buffer[PL_RAIL_WELCOME]);
/* 0 if there is none. */
uint16_t pl_rail_welcome_decode(const uint8_t *buffer, size_t length);

/* -- frames: the unit on a lane ----------------------------------------------------------------- */

#define PL_FRAME_HEADER 32 /* u8 type, u8 flags, u16 zero, u32 ack, u32 length, u32 cookie, u64 key, u64 offset */
#define PL_FRAME_BULK_MAX (16u << 20) /* payload of WRITE and DATA */
#define PL_FRAME_SMALL_MAX 8192u      /* payload of EAGER and OFFER */
#define PL_FRAME_ATOMIC_PAYLOAD 16u

enum pl_frame_type {
	PL_FRAME_WRITE = 1, /* key, offset, payload */
	PL_FRAME_READ,      /* key, offset, cookie; length = bytes wanted, no payload */
	PL_FRAME_DATA,      /* cookie, payload: answers READ */
	PL_FRAME_ATOMIC,    /* key, offset, cookie, flags = enum pl_atomic; payload 16: operand, compare */
	PL_FRAME_VALUE,     /* cookie, offset = old value: answers ATOMIC */
	PL_FRAME_FAIL,      /* cookie, offset = enum pl_wire_status, flags = the READ, ATOMIC or WRITE refused */
	PL_FRAME_ACK,       /* only its ack */
	PL_FRAME_EAGER,     /* key = tag, payload */
	PL_FRAME_RENDEZVOUS,     /* key = tag, offset = total length, cookie, payload = source's key: a large send */
	PL_FRAME_FINISH,    /* cookie, offset = enum pl_wire_status: the offered send was fetched */
	PL_FRAME_NOTIFY,    /* offset = value */
	PL_FRAME_CREDIT,    /* offset = messages consumed so far (cumulative) */
	PL_FRAME_FENCE,     /* cookie = rail, offset = generation: take nothing of that any more */
	PL_FRAME_FENCED,    /* the same: nothing of that is taken any more */
	PL_FRAME_ASK_KEY,   /* cookie = rail, key = key's id: what is it over this rail? */
	PL_FRAME_KEY,       /* the same, offset = the device's key, or over 2^32: there is none */
	PL_FRAME_FLUSH,     /* cookie, key = key's id, flags = level: make what was written there visible */
	PL_FRAME_FLUSHED,   /* cookie, offset = enum pl_wire_status, flags = enum pl_wire_flush: answers FLUSH */
	PL_FRAME_SKIP,      /* in place of a notification whose write failed; counts as consumed */
	PL_FRAME_TYPE_END,
};

/* What a FLUSH asks for, and how its answer says that it was reached. */
enum pl_wire_level { PL_LEVEL_PLACED = 1, PL_LEVEL_GPU = 2 };
enum pl_wire_flush { PL_FLUSH_READ = 1, PL_FLUSH_DRIVER, PL_FLUSH_NATIVE, PL_FLUSH_ORDER, PL_FLUSH_END };

enum pl_atomic { PL_ATOMIC_ADD = 1, PL_ATOMIC_SWAP = 2 };

struct pl_frame {
	uint8_t type; /* enum pl_frame_type */
	uint8_t flags;
	uint32_t ack;    /* frames of the other direction that were placed, cumulative, modulo 2^32 */
	uint32_t length; /* payload bytes, but see READ */
	uint32_t cookie; /* the sender's; answers repeat it */
	uint64_t key;
	uint64_t offset;
};

/* Inline: these are on the path of every small operation. */
static inline void pl_frame_encode(const struct pl_frame *frame, uint8_t buffer[PL_FRAME_HEADER])
{
	uint32_t ack = htole32(frame->ack), length = htole32(frame->length), cookie = htole32(frame->cookie);
	uint64_t key = htole64(frame->key), offset = htole64(frame->offset);

	buffer[0] = frame->type;
	buffer[1] = frame->flags;
	buffer[2] = buffer[3] = 0;
	memcpy(buffer + 4, &ack, 4);
	memcpy(buffer + 8, &length, 4);
	memcpy(buffer + 12, &cookie, 4);
	memcpy(buffer + 16, &key, 8);
	memcpy(buffer + 24, &offset, 8);
}

/* The largest `length` that a type allows; type is a valid one. */
static inline uint32_t pl_frame_limit(uint8_t type)
{
	static const uint32_t limits[PL_FRAME_TYPE_END] = {
		[PL_FRAME_WRITE] = PL_FRAME_BULK_MAX,  [PL_FRAME_READ] = PL_FRAME_BULK_MAX, /* one DATA answers it */
		[PL_FRAME_DATA] = PL_FRAME_BULK_MAX,   [PL_FRAME_ATOMIC] = PL_FRAME_ATOMIC_PAYLOAD,
		[PL_FRAME_EAGER] = PL_FRAME_SMALL_MAX, [PL_FRAME_RENDEZVOUS] = PL_FRAME_SMALL_MAX,
	};

	return limits[type];
}

/*
 * -EPROTO for an unknown type, a reserved field that is not 0 or an ATOMIC with too short a payload; -EMSGSIZE for a
 * length over the type's limit, which is 0 for those without payload.  Flags are not looked at.
 */
static inline int pl_frame_decode(const uint8_t buffer[PL_FRAME_HEADER], struct pl_frame *frame)
{
	uint32_t ack, length, cookie;
	uint64_t key, offset;

	memcpy(&ack, buffer + 4, 4);
	memcpy(&length, buffer + 8, 4);
	memcpy(&cookie, buffer + 12, 4);
	memcpy(&key, buffer + 16, 8);
	memcpy(&offset, buffer + 24, 8);
	frame->type = buffer[0];
	frame->flags = buffer[1];
	frame->ack = le32toh(ack);
	frame->length = le32toh(length);
	frame->cookie = le32toh(cookie);
	frame->key = le64toh(key);
	frame->offset = le64toh(offset);
	if (frame->type == 0 || frame->type >= PL_FRAME_TYPE_END || (buffer[2] | buffer[3]))
		return -EPROTO;
	if (frame->length > pl_frame_limit(frame->type))
		return -EMSGSIZE;
	if (frame->type == PL_FRAME_ATOMIC && frame->length != PL_FRAME_ATOMIC_PAYLOAD)
		return -EPROTO;
	return 0;
}

/* Payload bytes that follow the header: 0 for READ, whose length means others, and types without payload. */
static inline uint32_t pl_frame_payload(const struct pl_frame *frame)
{
	switch (frame->type) {
	case PL_FRAME_WRITE:
	case PL_FRAME_DATA:
	case PL_FRAME_ATOMIC:
	case PL_FRAME_EAGER:
	case PL_FRAME_RENDEZVOUS:
		return frame->length;
	default:
		return 0;
	}
}

/* -- tokens ------------------------------------------------------------------------------------- */

/*
 * magic "PLT1", u8 version, u8 rights, u16 zero, context[16], u64 grant, secret[16], u64 length, u64 expires,
 * u32 XXH32 (seed 0) of all before
 */
#define PL_TOKEN_SIZE 68

struct pl_token {
	uint8_t rights; /* enum pl_access */
	uint8_t context_id[16];
	uint64_t grant;
	uint8_t secret[16];
	uint64_t length;
	uint64_t expires; /* CLOCK_REALTIME ns, 0 never */
};

void pl_token_encode(const struct pl_token *token, uint8_t buffer[PL_TOKEN_SIZE]);
/* -EPROTO if it is no token or another version, -EBADMSG if its checksum is wrong. */
int pl_token_decode(const void *data, size_t length, struct pl_token *token);

/* -- status codes that travel ------------------------------------------------------------------- */

enum pl_wire_status {
	PL_WIRE_OK = 0,
	PL_WIRE_UNKNOWN_KEY, /* no such key or token, or it was revoked */
	PL_WIRE_EXPIRED,
	PL_WIRE_RANGE,  /* outside the granted range */
	PL_WIRE_RIGHTS, /* the grant does not allow this */
	PL_WIRE_MISALIGNED,
	PL_WIRE_UNSUPPORTED,
	PL_WIRE_CANCELED,
	PL_WIRE_TOO_LONG,  /* message longer than the posted buffer */
	PL_WIRE_NEEDS_KEY, /* this end wants a pre-shared key */
	PL_WIRE_VERSION,   /* no common protocol version */
	PL_WIRE_NO_FABRIC, /* no common fabric */
	PL_WIRE_BUSY,      /* too many of something */
	PL_WIRE_INTERNAL,
	PL_WIRE_MEMORY, /* the memory is there no more: a file that was cut, a mapping that is gone */
};

/* The errno (negative) a status stands for; -EPROTO for unknown ones. */
int pl_wire_errno(uint32_t status);
/* Fills an error for a failure that a peer told and returns its errno; never 0: a failure "PL_WIRE_OK" is -EPROTO. */
int pl_wire_fail(struct pl_error *error, uint32_t status, const char *call, const char *object);

#endif
