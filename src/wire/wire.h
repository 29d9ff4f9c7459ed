/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wire formats: little-endian, versioned, no padding, no pointers. Independent of sockets.
 *
 * Decoders accept any bytes: they return -EPROTO (or -EMSGSIZE where a length exceeds its limit) for malformed input,
 * and never read outside of it. Encoders return the number of bytes, or -ENOBUFS.
 */
#ifndef PL_WIRE_H
#define PL_WIRE_H

#include <endian.h>

#include "base/base.h"

/* -- cursors: errors are sticky, so a codec checks once at its end ------------------------------- */

struct pl_reader {
	const uint8_t *at, *end;
	bool bad; /* read beyond the end */
};

struct pl_writer {
	uint8_t *begin, *at, *end;
	bool full; /* wrote beyond the end */
};

void pl_reader_init(struct pl_reader *reader, const void *data, size_t length);
uint8_t pl_get_u8(struct pl_reader *reader);
uint16_t pl_get_u16(struct pl_reader *reader);
uint32_t pl_get_u32(struct pl_reader *reader);
uint64_t pl_get_u64(struct pl_reader *reader);
void pl_get_bytes(struct pl_reader *reader, void *to, size_t length); /* zeroes `to` on failure */
/* u16 length, bytes. Always NUL-terminates; bad if longer than size - 1 or if it holds a NUL. */
void pl_get_string(struct pl_reader *reader, char *to, size_t size);

void pl_writer_init(struct pl_writer *writer, void *data, size_t length);
void pl_put_u8(struct pl_writer *writer, uint8_t value);
void pl_put_u16(struct pl_writer *writer, uint16_t value);
void pl_put_u32(struct pl_writer *writer, uint32_t value);
void pl_put_u64(struct pl_writer *writer, uint64_t value);
void pl_put_bytes(struct pl_writer *writer, const void *from, size_t length);
void pl_put_string(struct pl_writer *writer, const char *from);

/* -- the first bytes of a connection ------------------------------------------------------------ */

#define PL_MAGIC_CONTROL 0x31434c50u   /* "PLC1": a control channel */
#define PL_MAGIC_LANE 0x324c4c50u      /* "PLL2": a data socket of the tcp fabric */
#define PL_MAGIC_KEY_PROOF 0x324b4c50u /* "PLK2": proof of a pre-shared key, before the control messages */
#define PL_PROTOCOL_VERSION 2

/* -- control messages --------------------------------------------------------------------------- */

#define PL_CONTROL_HEADER 12            /* u32 magic, u16 type, u16 zero, u32 body length */
#define PL_CONTROL_BODY_MAX (32 + 8192) /* a frame with the largest small message */
#define PL_FABRICS_MAX 4
#define PL_FABRIC_NAME_MAX 16 /* with its NUL */
#define PL_FABRIC_BLOB_MAX 256
#define PL_KEY_BLOB_MAX 160

enum pl_control_type {
	PL_CONTROL_HELLO = 1, /* both ways, first */
	PL_CONTROL_REJECT,    /* in place of HELLO: refusal with its reason, then close */
	PL_CONTROL_IMPORT,    /* present a token */
	PL_CONTROL_IMPORTED,  /* answer to IMPORT */
	PL_CONTROL_RELEASE,   /* a key is no longer used */
	PL_CONTROL_LANES,     /* acceptor to initiator: open `count` lanes */
	PL_CONTROL_BYE,       /* orderly end */
	PL_CONTROL_MESSAGE,   /* a small message that must not travel in the clear */
	PL_CONTROL_RAIL,      /* a connection of the verbs fabric begins or ends */
	PL_CONTROL_RAILS,     /* rails for memory near some ports: the acceptor's question, the initiator's answer */
	PL_CONTROL_STREAM,    /* about streams, with a body of wire/stream_message.h in `message`; its tag is 0 */
};
#define PL_CONTROL_OPTIONAL 0x8000 /* receivers ignore messages of types from here on that they do not know */

struct pl_fabric_advert {
	char name[PL_FABRIC_NAME_MAX];
	uint16_t blob_length;
	uint8_t blob[PL_FABRIC_BLOB_MAX]; /* data of the fabric: how to reach it */
};

struct pl_hello {
	uint16_t version_min, version_max;
	uint8_t boot_id[16];    /* of the kernel: equal on the same host */
	uint8_t context_id[16]; /* random, of the context */
	uint64_t capabilities;  /* unknown bits are ignored */
	uint32_t lanes;         /* most lanes that this end wants */
	uint32_t eager_max;     /* largest eager message accepted */
	uint32_t window;        /* messages accepted before any is consumed */
	uint32_t flags;         /* PL_HELLO_*; unknown bits are -EPROTO */
	char software[32];
	char program[32];      /* an extension, from acceptors; "": none */
	uint16_t fabric_count; /* 1 to PL_FABRICS_MAX */
	struct pl_fabric_advert fabrics[PL_FABRICS_MAX];
};
#define PL_HELLO_ENCRYPT_DATA 1u   /* this end demands encrypted data; not with the next flag */
#define PL_HELLO_CLEAR_DATA 2u     /* this end wants data in the clear, if the other end wants that too */
#define PL_CAPABILITY_ASKS 256u    /* in struct pl_hello: asks over verbs for keys that the answer to an import lacks */
#define PL_CAPABILITY_VISIBLE 512u /* over verbs: flushes on request, accepts notifications with writes, and SKIP */
#define PL_CAPABILITY_HEADERLESS 1024u      /* accepts small messages without a header over verbs */
#define PL_CAPABILITY_NOTIFY_DATA 4096u     /* accepts notifications with a payload */
#define PL_CAPABILITY_PACKED 2048u          /* accepts several frames in one SEND over verbs */
#define PL_CAPABILITY_BOUND_MESSAGES 16384u /* over verbs: asks for keys that a rendezvous lacks */
/* 32768: an earlier form of PL_CONTROL_STREAM, without skipped sequences */
#define PL_CAPABILITY_STREAMS 65536u     /* accepts PL_CONTROL_STREAM */
#define PL_CAPABILITY_FRAMES_IN_PLACE 131072u /* accepts SUBSCRIBE for frames in place */
#define PL_CAPABILITY_QUIET_FRAMES 262144u    /* accepts few announcements and reports of frames in place */
#define PL_CAPABILITY_MANY_GATES 524288u      /* on one host: maps a gate for each of the most keys of a peer */
#define PL_CAPABILITY_PUSHED_FRAMES 1048576u  /* accepts SUBSCRIBE for frames that the publisher writes */
#define PL_CAPABILITY_CONFIRMS_LANES 2097152u /* as an initiator: sends a frame over each further lane that is up */
#define PL_CAPABILITY_NOTIFY_LANES 4194304u   /* accepts notifications behind their data on each lane, and void ones */
#define PL_CAPABILITY_OWNER_COPIES 8388608u /* on one host: copies between the peer's host memory and its own device memory on request */
#define PL_CAPABILITY_STREAM_TOKENS 16777216u /* accepts tokens in LIST and SUBSCRIBE, and their refusals */
#define PL_CAPABILITY_STREAM_LIMITS 33554432u /* accepts the statuses PL_SUBSCRIBE_PLACES and PL_SUBSCRIBE_OFTEN */
#define PL_CAPABILITY_PREPARED_FRAMES 67108864u /* accepts a SUBSCRIBE that prepares, and the one that follows */
#define PL_CAPABILITY_TRAILING_WORDS 134217728u /* over tcp: sends trailing words behind the bytes of READs */
#define PL_CAPABILITY_ECE 268435456u     /* over verbs: accepts the options of the sender's queue pair (ECE) in RAIL */
#define PL_CAPABILITY_FINISH_LANES 536870912u   /* over tcp: accepts FINISH of received messages on each lane */
#define PL_CAPABILITY_ASKED_REPORTS \
	1073741824u                      /* a publisher asks blocking subscribers for reports that it needs at once */
#define PL_CAPABILITY_NOTIFY_RAILS 8192u /* accepts notifications with writes over verbs with several rails, too */

struct pl_reject {
	int32_t code; /* one of enum pl_wire_status, not 0 */
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
	int32_t status; /* enum pl_wire_status; the rest is zero unless it is PL_WIRE_OK */
	uint64_t length;
	uint32_t rights;
	uint16_t key_length;
	uint8_t key[PL_KEY_BLOB_MAX]; /* remote key of the fabric */
};

struct pl_release {
	uint16_t key_length;
	uint8_t key[PL_KEY_BLOB_MAX];
};

struct pl_control_message {
	uint64_t tag;
	uint16_t length;        /* at most 8192 */
	const uint8_t *payload; /* in the decoded body; or of the caller, for the encoder */
};

#define PL_RAILS_MAX 8
/* Ports of an end. */
#define PL_PORTS_MAX 12

/* CONNECT: of the initiator. ACCEPT: the acceptor's answer. DOWN: the sender uses the connection no more. */
enum pl_rail_step { PL_RAIL_CONNECT = 1, PL_RAIL_ACCEPT, PL_RAIL_DOWN };

/* One end's queue pair of a rail; in a DOWN only step, index and generation, and zero in all others. */
struct pl_rail_message {
	enum pl_rail_step step;
	uint8_t index;       /* rail */
	uint16_t generation; /* number of the connection */
	uint8_t count;       /* CONNECT: all rails; else 0 */
	/* CONNECT: for each rail, the numbers of its ports: low four bits in the acceptor's advert, others at the initiator */
	uint8_t ports[PL_RAILS_MAX];
	uint16_t renewals;  /* devices that the sender's end of the rail had before */
	uint32_t qp_number; /* 24 bits */
	uint32_t psn;       /* first packet sequence number that the sender uses; 24 bits */
	uint16_t lid;       /* 0: the port has none */
	uint8_t gid[16];
	uint8_t mtu;   /* enum ibv_mtu: 1 (256 bytes) to 5 (4096) */
	uint8_t reads; /* reads and atomics that the sender's device serves at a time, and requests at a time */
	bool global;   /* the sender's port needs a global route header */
	uint8_t traffic_class, service_level; /* CONNECT: of both directions; ACCEPT: repeated */
	/* ibv_query_ece(3): the card's maker, 0: none, and its options. CONNECT: supported; ACCEPT: chosen of these */
	uint32_t ece_vendor, ece_options;
};

/* Masks of ports, by the numbers in a CONNECT; 0: memory to which all ports of that end are alike. */
struct pl_rails_message {
	uint16_t acceptor, initiator;
	uint8_t rails; /* answer: mask of the rails to use; question: 0 */
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
		struct pl_control_message message;
		struct pl_rail_message rail;
		struct pl_rails_message rails;
	};
};

/*
 * Reads a control header, and sets *length to the body's length. -EPROTO for a wrong magic, type 0 or a nonzero
 * reserved field; -EMSGSIZE for a body over PL_CONTROL_BODY_MAX. Unknown types are no error here: pl_control_decode()
 * reports them.
 */
int pl_control_header_decode(const uint8_t header[PL_CONTROL_HEADER], uint16_t *type, uint32_t *length);

/*
 * Decodes a body. -EPROTO for trailing bytes, counts out of range, version_min > version_max, negative statuses;
 * -EMSGSIZE for a blob or key over its limit; -ENOMSG for an unknown type. Texts for people (software, id, message)
 * come out as printable ASCII, so that a peer cannot send terminal escapes.
 */
int pl_control_decode(uint16_t type, const void *body, size_t length, struct pl_control *message);

/*
 * Encodes header and body. Returns the bytes written, at most PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX; -EINVAL for a
 * message that decoders refuse.
 */
int pl_control_encode(const struct pl_control *message, void *buffer, size_t size);

/* -- lanes of the tcp fabric -------------------------------------------------------------------- */

#define PL_LANE_HELLO 40     /* u32 magic, u16 version, u16 lane, u64 peer index, u8 nonce[16], u64 zero */
#define PL_LANE_CHALLENGE 40 /* u32 magic, u32 enum pl_wire_status, u8 nonce[16], u8 tag[16] */
#define PL_LANE_WELCOME 8    /* u32 magic, u32 enum pl_wire_status */
#define PL_NONCE 16
#define PL_TAG 16 /* proof that the sender knows the secret of the peer; see core/lane_auth.h */

/* In place of a lane's number: the socket carries descriptors (local fabric), and no data. */
#define PL_LANE_FD_SOCKET 0xffffu

struct pl_lane_hello {
	uint16_t version;
	uint16_t lane;
	uint64_t peer_index;
	uint8_t nonce[PL_NONCE]; /* random; in messages without a challenge: the tag of all other bytes */
};

struct pl_lane_challenge {
	uint32_t status; /* enum pl_wire_status */
	uint8_t nonce[PL_NONCE];
	uint8_t tag[PL_TAG];
};

void pl_lane_hello_encode(const struct pl_lane_hello *hello, uint8_t buffer[PL_LANE_HELLO]);
int pl_lane_hello_decode(const uint8_t buffer[PL_LANE_HELLO], struct pl_lane_hello *hello); /* -EPROTO */
void pl_lane_challenge_encode(const struct pl_lane_challenge *challenge, uint8_t buffer[PL_LANE_CHALLENGE]);
int pl_lane_challenge_decode(const uint8_t buffer[PL_LANE_CHALLENGE],
			     struct pl_lane_challenge *challenge); /* -EPROTO */
void pl_lane_welcome_encode(uint32_t status, uint8_t buffer[PL_LANE_WELCOME]);
int pl_lane_welcome_decode(const uint8_t buffer[PL_LANE_WELCOME], uint32_t *status); /* -EPROTO */

/* -- frames: the unit on a lane ----------------------------------------------------------------- */

#define PL_FRAME_HEADER 32 /* u8 type, u8 flags, u16 zero, u32 ack, u32 length, u32 cookie, u64 key, u64 offset */
#define PL_FRAME_BULK_MAX (16u << 20) /* payload of WRITE and DATA */
#define PL_FRAME_NOTIFY_MAX 1024u     /* payload of NOTIFY */
#define PL_FRAME_SMALL_MAX 8192u      /* payload of EAGER and OFFER */
#define PL_FRAME_ATOMIC_PAYLOAD 16u

enum pl_frame_type {
	PL_FRAME_WRITE = 1, /* key, offset, payload */
	PL_FRAME_READ,      /* key, offset, cookie; length = bytes wanted, no payload; flags: PL_READ_TRAILING */
	PL_FRAME_DATA,      /* cookie, payload: answers READ */
	PL_FRAME_ATOMIC,    /* key, offset, cookie, flags = enum pl_wire_atomic; payload 16: operand, compare */
	PL_FRAME_VALUE,     /* cookie, offset = old value: answers ATOMIC; behind DATA: PL_READ_TRAILING */
	/* cookie, offset = enum pl_wire_status, flags = type of the refused READ, ATOMIC or WRITE */
	PL_FRAME_FAIL,
	PL_FRAME_ACK,   /* only its acknowledgement */
	PL_FRAME_EAGER, /* key = tag, payload */
	/* key = tag, offset = total length, cookie, payload = source's key: start of a large send */
	PL_FRAME_RENDEZVOUS,
	/* cookie, offset = enum pl_wire_status: end of a large send; on other lanes than 0: PL_CAPABILITY_FINISH_LANES */
	PL_FRAME_FINISH,
	/*
	 * offset = value, payload (PL_CAPABILITY_NOTIFY_DATA). Behind data (PL_CAPABILITY_NOTIFY_LANES): cookie = WRITEs
	 * of the lane just before it that it announces, key = messages of lane 0 that precede it.
	 */
	PL_FRAME_NOTIFY,
	PL_FRAME_CREDIT,  /* offset = messages consumed so far, in total */
	PL_FRAME_FENCE,   /* cookie = rail, offset = generation: asks to take nothing of that any more */
	PL_FRAME_FENCED,  /* the same: nothing of that is taken any more */
	PL_FRAME_ASK_KEY, /* cookie = rail, key = key's id: asks for the device's key over this rail */
	PL_FRAME_KEY,     /* the same, offset = the device's key, or over 2^32: none */
	PL_FRAME_FLUSH,   /* cookie, key = key's id, flags = level: asks to make written bytes visible */
	PL_FRAME_FLUSHED, /* cookie, offset = enum pl_wire_status, flags = enum pl_wire_flush: answers FLUSH */
	PL_FRAME_SKIP,    /* replaces a notification whose write failed; counts as consumed */
	/*
	 * cookie, key = key's id of the sender's region, offset = its length, flags = enum pl_wire_copy, payload: asks the
	 * owner of device memory to copy (PL_CAPABILITY_OWNER_COPIES, local fabric)
	 */
	PL_FRAME_COPY,
	PL_FRAME_COPIED, /* cookie, offset = enum pl_wire_status: answers COPY */
	PL_FRAME_TYPE_END,
};

/* Level that a FLUSH asks for, and the method that its answer reports. */
enum pl_wire_level { PL_LEVEL_PLACED = 1, PL_LEVEL_GPU = 2 };
enum pl_wire_flush { PL_FLUSH_READ = 1, PL_FLUSH_DRIVER, PL_FLUSH_NATIVE, PL_FLUSH_ORDER, PL_FLUSH_END };

/* Flag of READ (PL_CAPABILITY_TRAILING_WORDS, tcp fabric): VALUE follows DATA, with the trailing word of the key as its offset. */
#define PL_READ_TRAILING 1u

/* Flag of NOTIFY: it replaces a message, or a notification, that was cancelled; counts as consumed. */
#define PL_NOTIFY_VOID 1u

/* Direction of a COPY: from the sender's memory into the receiver's, or the reverse. */
enum pl_wire_copy { PL_COPY_WRITE = 1, PL_COPY_READ = 2 };

enum pl_wire_atomic { PL_ATOMIC_ADD = 1, PL_ATOMIC_SWAP = 2 };

struct pl_frame {
	uint8_t type; /* enum pl_frame_type */
	uint8_t flags;
	uint32_t ack;    /* frames of the other direction that were placed, in total, modulo 2^32 */
	uint32_t length; /* payload bytes; READ: bytes wanted */
	uint32_t cookie; /* of the sender; answers repeat it */
	uint64_t key;
	uint64_t offset;
};

/* Inline: on the path of every small operation. */
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

/* Returns the largest `length` of a valid type. */
static inline uint32_t pl_frame_limit(uint8_t type)
{
	static const uint32_t limits[PL_FRAME_TYPE_END] = {
		[PL_FRAME_WRITE] = PL_FRAME_BULK_MAX,    [PL_FRAME_READ] = PL_FRAME_BULK_MAX, /* one DATA answers it */
		[PL_FRAME_DATA] = PL_FRAME_BULK_MAX,     [PL_FRAME_ATOMIC] = PL_FRAME_ATOMIC_PAYLOAD,
		[PL_FRAME_EAGER] = PL_FRAME_SMALL_MAX,   [PL_FRAME_RENDEZVOUS] = PL_FRAME_SMALL_MAX,
		[PL_FRAME_NOTIFY] = PL_FRAME_NOTIFY_MAX, [PL_FRAME_COPY] = PL_FRAME_SMALL_MAX,
	};

	return limits[type];
}

/*
 * -EPROTO for an unknown type, a nonzero reserved field or an ATOMIC with too short a payload; -EMSGSIZE for a length
 * over the type's limit, which is 0 for types without payload. Flags are not checked.
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

/*
 * Returns the payload bytes behind the header: 0 for READ, whose length counts other bytes, and for types without
 * payload.
 */
static inline uint32_t pl_frame_payload(const struct pl_frame *frame)
{
	switch (frame->type) {
	case PL_FRAME_WRITE:
	case PL_FRAME_DATA:
	case PL_FRAME_ATOMIC:
	case PL_FRAME_EAGER:
	case PL_FRAME_RENDEZVOUS:
	case PL_FRAME_NOTIFY:
	case PL_FRAME_COPY:
		return frame->length;
	default:
		return 0;
	}
}

/* -- tokens ------------------------------------------------------------------------------------- */

/*
 * magic "PLT1", u8 version, u8 rights, u16 kind, context[16], u64 grant, secret[16], u64 length, u64 expires,
 * u32 XXH32 (seed 0) of all before
 */
#define PL_TOKEN_SIZE 68

/* Object that a token gives access to. Releases without tokens of streams refuse these as malformed. */
enum pl_token_kind { PL_TOKEN_REGION, PL_TOKEN_STREAM, PL_TOKEN_KIND_END };

struct pl_token {
	uint8_t rights; /* enum pl_access; of a stream: 0 */
	uint16_t kind;  /* enum pl_token_kind */
	uint8_t context_id[16];
	uint64_t grant;
	uint8_t secret[16];
	uint64_t length;
	uint64_t expires; /* CLOCK_REALTIME ns, 0 never */
};

void pl_token_encode(const struct pl_token *token, uint8_t buffer[PL_TOKEN_SIZE]);
/* Returns -EPROTO for another format or version, or an unknown kind; -EBADMSG for a wrong checksum. */
int pl_token_decode(const void *data, size_t length, struct pl_token *token);

/* -- blobs of regions --------------------------------------------------------------------------- */

/*
 * magic "PLS1", u16 version, u16 zero, u32 count, u32 zero, count times: u64 address of the memory at its owner and a
 * token; u32 XXH32 (seed 0) of all before
 */
struct pl_blob_writer {
	struct pl_writer writer;
};

/* `buffer` has PL_REGIONS_BLOB_SIZE(count) bytes. pl_blob_end() returns that number. */
void pl_blob_begin(struct pl_blob_writer *blob, void *buffer, size_t count);
void pl_blob_add(struct pl_blob_writer *blob, uint64_t address, const uint8_t token[PL_TOKEN_SIZE]);
size_t pl_blob_end(struct pl_blob_writer *blob);
/*
 * Returns the number of regions, at least 1; -EPROTO for another format or version, -EBADMSG for a wrong checksum. The
 * tokens are not decoded. The functions below take a blob that was decoded, and an index below that number.
 */
int pl_blob_decode(const void *data, size_t length);
uint64_t pl_blob_address(const void *data, size_t index);
const uint8_t *pl_blob_token(const void *data, size_t index);

/* -- status codes ------------------------------------------------------------------------------- */

enum pl_wire_status {
	PL_WIRE_OK = 0,
	PL_WIRE_UNKNOWN_KEY, /* key or token that is unknown or revoked */
	PL_WIRE_EXPIRED,
	PL_WIRE_RANGE,  /* outside the granted range */
	PL_WIRE_RIGHTS, /* the grant does not allow this */
	PL_WIRE_MISALIGNED,
	PL_WIRE_UNSUPPORTED,
	PL_WIRE_CANCELED,
	PL_WIRE_TOO_LONG,  /* message longer than the posted buffer */
	PL_WIRE_NEEDS_KEY, /* this end requires a pre-shared key */
	PL_WIRE_VERSION,   /* no common protocol version */
	PL_WIRE_NO_FABRIC, /* no common fabric */
	PL_WIRE_BUSY,      /* a limit is reached */
	PL_WIRE_INTERNAL,
	PL_WIRE_MEMORY, /* the memory no longer exists: a truncated file, a removed mapping */
	PL_WIRE_NO_KEY, /* this end has no pre-shared key, which the other end proves */
	PL_WIRE_WRONG_KEY,
	PL_WIRE_REFUSED,      /* this end does not admit the other end's identity */
	PL_WIRE_SELF,         /* the connection leads back to the context that began it */
	PL_WIRE_TOKEN_RIGHTS, /* the identity may not use a token that allows so much */
	PL_WIRE_IMPORTS,      /* the identity may not hold more imports */
};

/* Returns the negative errno of a status; -EPROTO for unknown ones. */
int pl_wire_errno(uint32_t status);
/*
 * Fills an error for a failure that a peer reported, and returns its errno. Never 0: a failure with PL_WIRE_OK is
 * -EPROTO.
 */
int pl_wire_fail(struct pl_error *error, uint32_t status, const char *call, const char *object);

#endif
