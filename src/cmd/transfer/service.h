/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `peerlane serve` and its clients say to each other, as messages of the library.  Bytes of
 * files never travel in these: a client asks for a token and then reads or writes by itself.
 *
 * Every message begins with a header of 16 bytes: magic, version, type, request number, status;
 * then the fields of its type, in the order of the table in service.c.  Integers are little-endian,
 * strings have their length in front.  A client has one request under way at a time; EXTENT has no
 * answer.  An answer whose status is not 0 has the error's strings in place of its type's fields.
 */
#ifndef PL_CLI_SERVICE_H
#define PL_CLI_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

#define SERVICE_VERSION 1
#define SERVICE_TAG 0x53
#define SERVICE_REQUEST_MAX 2048
#define SERVICE_ANSWER_MAX PL_SEND_COPY_MAX
#define SERVICE_NAME_MAX 1024

enum service_type {
	SERVICE_LIST = 1, /* names after `name`, as many as fit */
	SERVICE_OPEN,     /* a token to read `name` */
	SERVICE_CREATE,   /* a token to write `name`, from `done` on */
	SERVICE_EXTENT,   /* the first `done` bytes are written */
	SERVICE_HASH,     /* of a range of what `handle` names */
	SERVICE_COMMIT,   /* all is written: give the file its name */
	SERVICE_CLOSE,    /* ends a handle; the answer has the file as it is now */
	SERVICE_TYPES,
};

enum service_kind { SERVICE_FILE = 0, SERVICE_MEMORY = 1, SERVICE_KINDS };

/* Flags of CLOSE. */
#define SERVICE_DISCARD 1u /* do not keep what was written for later */

struct service_message {
	enum service_type type;
	bool answer;
	uint32_t request;
	int status; /* answers: 0 or a negative errno; then only `error` follows */
	struct pl_error error;

	uint32_t handle;
	uint32_t flags;
	uint8_t kind; /* enum service_kind */
	uint8_t more; /* LIST: there are more names */
	uint64_t size;
	uint64_t modified; /* nanoseconds since 1970; 0: unknown */
	uint64_t identity; /* differs for different files */
	uint64_t done;
	uint64_t offset;
	uint64_t length;
	uint64_t hash[2]; /* low and high half of XXH3-128 */
	char name[SERVICE_NAME_MAX + 1];
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
	const uint8_t *entries; /* LIST: see service_entry_next(); checked when decoded */
	size_t entries_length;
};

/* Bytes written, or -ENOBUFS; -EINVAL for what cannot be encoded. */
int service_encode(const struct service_message *message, void *buffer, size_t size);

/*
 * 0, or -EPROTO for anything that is not exactly one well-formed message.  `entries` points into
 * the buffer.  If the header could be read, `type` and `request` are set even so.
 */
int service_decode(const void *buffer, size_t length, struct service_message *message);

/* One published thing. */
struct service_entry {
	uint8_t kind;
	uint64_t size;
	uint64_t modified;
	char name[SERVICE_NAME_MAX + 1];
};

/* Appends an entry at *length; false if it does not fit into size. */
bool service_entry_put(const struct service_entry *entry, uint8_t *buffer, size_t size, size_t *length);
/* Takes the entry at *offset of a message's entries; false at the end. */
bool service_entry_next(const struct service_message *message, size_t *offset, struct service_entry *entry);
/* Room for entries in an answer. */
#define SERVICE_ENTRIES_MAX (SERVICE_ANSWER_MAX - 64)

/* Relative, without "." and "..", empty parts: 1 to SERVICE_NAME_MAX bytes. */
bool service_name_valid(const char *name);

#endif
