/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input of fuzz_context: one byte with the kind of the connection, one with its number of lanes, then steps of 16 bytes.
 * A field selects from what is valid at that moment, so that most inputs get far.
 */
#ifndef FUZZ_CONTEXT_STEP_H
#define FUZZ_CONTEXT_STEP_H

#include <stdint.h>

#define STEP_HEAD 2
#define STEP_SIZE 16

/* First byte of an input. */
enum fuzz_connection {
	FUZZ_VICTIM_CONNECTS = 1, /* the victim is the initiator */
	FUZZ_ENCRYPTED = 2,       /* the intruder demands encrypted lanes */
	FUZZ_KEYED = 4,           /* both ends have a key */
	FUZZ_UNREAD = 8,          /* the intruder reads in steps STEP_READ only */
	FUZZ_FOREIGN_HOST = 16,   /* the intruder claims to run on another host */
	FUZZ_NEWEST = 32,         /* the intruder claims all that this release can over tcp */
};

enum fuzz_op {
	STEP_FRAME,    /* the intruder sends a frame */
	STEP_CONTROL,  /* the intruder sends a control message */
	STEP_RAW,      /* the intruder sends some bytes */
	STEP_ANSWER,   /* the intruder answers the oldest request of the victim */
	STEP_PROGRAM,  /* the victim's program calls a function */
	STEP_CLOSE,    /* the intruder closes a socket, or one direction */
	STEP_LANE,     /* the intruder opens another lane */
	STEP_READ,     /* the intruder reads all that has arrived */
	STEP_ADVANCE,  /* time passes */
	STEP_REPEAT,   /* the next step happens many times */
	STEP_STRANGER, /* another socket connects */
	STEP_STREAM,   /* the intruder sends a message about streams */
	STEP_OPS,
};

/* Calls of the victim's program: `kind` of STEP_PROGRAM. */
enum fuzz_call {
	CALL_SHARE,
	CALL_REVOKE,
	CALL_DEREGISTER,
	CALL_RECEIVE,
	CALL_CANCEL,
	CALL_IMPORT,
	CALL_WRITE,
	CALL_READ,
	CALL_ATOMIC,
	CALL_SEND,
	CALL_SEND_COPY,
	CALL_NOTIFY,
	CALL_CLOSE,
	CALL_QUERY,
	CALL_RELEASE,
	CALL_VECTOR,
	CALL_STREAM,
	CALLS,
};

struct fuzz_step {
	uint8_t op;      /* enum fuzz_op */
	uint8_t channel; /* low 3 bits: 0 control, then lanes. Frames: bits 3 to 5 select the ack, 6 and 7 the payload */
	uint8_t kind;    /* type of the frame or message, call of the program, way of closing */
	uint8_t flags;
	uint8_t key, cookie, length, offset; /* selectors */
	uint8_t value[8];                    /* number, little-endian */
};

#endif
