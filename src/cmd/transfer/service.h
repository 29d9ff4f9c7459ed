/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages between `peerlane serve` and its clients.  They contain no bytes of files: a client requests a token and then
 * reads or writes with one-sided operations.  Small files travel together, through an area of memory at the server.
 *
 * A message begins with a header of 16 bytes: magic, version, type, request number, status.  The fields of its type
 * follow, in the order of the table in service.c.  Integers are little-endian; strings are preceded by their length.  A
 * client has one request under way at a time; EXTENT has no answer.  An answer with a nonzero status contains the strings
 * of the error instead of the fields of its type.
 */
#ifndef PL_CMD_TRANSFER_SERVICE_H
#define PL_CMD_TRANSFER_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

#include "cmd/transfer/file_version.h"

#define SERVICE_VERSION 2
#define SERVICE_TAG 0x53
#define SERVICE_REQUEST_MAX PL_SEND_COPY_MAX
#define SERVICE_ANSWER_MAX PL_SEND_COPY_MAX
#define SERVICE_NAME_MAX 1024

enum service_type {
	SERVICE_LIST = 1, /* lists the entries behind `name`, as many as fit */
	SERVICE_OPEN,     /* opens `name`; the answer has a token for reading */
	SERVICE_CREATE,   /* creates `name`; the answer has a token for writing from `done` on */
	/* reports that the first `done` bytes are written, or have been read, and how many bytes were staged for that */
	SERVICE_EXTENT,
	SERVICE_HASH, /* hashes a range of `handle` */
	/* reports that all bytes are written; the file gets its final name, and the answer comes when it is on storage */
	SERVICE_COMMIT,
	SERVICE_CLOSE, /* closes `handle`; the answer has the current version of the file */
	/* COMMIT for scratch data: the answer may come before the file is on storage */
	SERVICE_COMMIT_UNSYNCED,
	/* allocates an area of memory, of at most `length` bytes, for the bytes of small files; CLOSE frees it */
	SERVICE_AREA,
	/* stores `files`, whose bytes are in the area `handle`; the answer has those of the first `done` that failed */
	SERVICE_PUT_SMALL,
	SERVICE_GET_SMALL, /* reads `files` into the area `handle`; the answer has the first `done` of them */
	SERVICE_DATA,      /* lists the ranges of `handle` that are not holes, from `offset` on */
	SERVICE_DELETE, /* deletes the client's own upload `name`; the answer has the bytes that were freed as `size` */
	/*
	 * lists the clients with numbers below `offset`, as many as fit, or all for 0; the answer has `size` and `length`, the
	 * bytes that clients have read and written since the server began, and `done`, the number of clients.  An identity that
	 * is limited to names gets those of its own connections.  With SERVICE_WATCH_ROUTES in `offset`, the clients have the
	 * bytes by route, and `more` has SERVICE_MORE_ROUTES; with SERVICE_WATCH_SUMS, the answer has `direct` and `staged`, the
	 * bytes by route of all clients, and `more` has SERVICE_MORE_SUMS.  Earlier servers take both for a large number
	 */
	SERVICE_WATCH,
	SERVICE_TYPES,
};

enum service_kind { SERVICE_FILE = 0, SERVICE_MEMORY = 1, SERVICE_KINDS };

/* Flags. */
#define SERVICE_DISCARD 1u  /* CLOSE: delete the partial file */
#define SERVICE_UNSYNCED 2u /* PUT_SMALL, DELETE: the answer may come before storage has the change */
#define SERVICE_HASHED 4u   /* PUT_SMALL: compare with the hashes; GET_SMALL: answer with hashes */
#define SERVICE_FOLDERS 8u  /* PUT_SMALL, CREATE: make missing directories of the names */
/* OPEN, answer: the file has holes; CREATE: it has holes, and `length` bytes of data */
#define SERVICE_SPARSE 16u
#define SERVICE_FLAGS 31u

/* In `handle` of an answer to OPEN or CREATE: the server takes `staged`.  The client repeats it with the handle. */
#define SERVICE_HANDLE_STAGED (1u << 31)
/* In `offset` of WATCH, above the numbers of clients. */
#define SERVICE_WATCH_ROUTES (1ull << 63)
#define SERVICE_WATCH_SUMS (1ull << 62)
/* Bits of `more`. */
#define SERVICE_MORE 1u
#define SERVICE_MORE_ROUTES 2u /* WATCH */
#define SERVICE_MORE_SUMS 4u   /* WATCH */

/* Smallest and largest area, in bytes. */
#define SERVICE_AREA_MIN (64u << 10)
#define SERVICE_AREA_MAX (1u << 20)

/* Returns the size of the largest file that travels through an area of this length. Earlier servers have 256 KiB. */
static inline uint64_t service_small_max(uint64_t area)
{
	return area / 4 > SERVICE_AREA_MIN ? area / 4 : SERVICE_AREA_MIN;
}

struct service_message {
	enum service_type type;
	bool answer;
	uint32_t request;
	int status; /* of an answer: 0, or a negative errno, with only `error` valid */
	struct pl_error error;

	uint32_t handle;
	uint32_t flags;
	uint8_t kind; /* enum service_kind */
	uint8_t more; /* LIST, DATA, WATCH: SERVICE_MORE if there are more */
	uint64_t size;
	uint64_t modified; /* nanoseconds since 1970; 0: unknown */
	uint64_t identity; /* differs between files */
	uint32_t mode;     /* permissions of the file, at most FILE_MODE_MAX; 0: unknown */
	uint64_t done;
	uint64_t offset;
	uint64_t length;
	uint64_t hash[2]; /* low and high half of XXH3-128 */
	/*
	 * EXTENT, COMMIT: bytes staged since the handle was opened, as far as the client knows; WATCH, with SERVICE_MORE_SUMS:
	 * staged bytes of all clients since the server began
	 */
	uint64_t staged;
	bool has_staged; /* EXTENT, COMMIT: `staged` is valid; it travels only if `handle` has SERVICE_HANDLE_STAGED */
	uint64_t direct; /* WATCH, with SERVICE_MORE_SUMS: bytes of all clients that were not staged */
	char name[SERVICE_NAME_MAX + 1];
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
	const uint8_t *entries; /* LIST: for service_entry_next(); validated by service_decode() */
	size_t entries_length;
	const uint8_t *files; /* PUT_SMALL, GET_SMALL: for service_file_next(); validated by service_decode() */
	size_t files_length;
	const uint8_t *ranges; /* DATA: for service_range_next(); validated by service_decode() */
	size_t ranges_length;
	const uint8_t *clients; /* WATCH: for service_client_next(); validated by service_decode() */
	size_t clients_length;
};

/* Returns the bytes written, -ENOBUFS, or -EINVAL if the message is not valid. */
int service_encode(const struct service_message *message, void *buffer, size_t size);

/*
 * Returns 0, or -EPROTO unless the buffer is exactly one well-formed message.  `entries` points into the buffer.  `type`
 * and `request` are set whenever the header is valid.
 */
int service_decode(const void *buffer, size_t length, struct service_message *message);

/* Published file or block of memory. */
struct service_entry {
	uint8_t kind;
	uint64_t size;
	uint64_t modified;
	char name[SERVICE_NAME_MAX + 1];
};

/* Appends an entry at *length.  Returns false if it does not fit into `size`. */
bool service_entry_put(const struct service_entry *entry, uint8_t *buffer, size_t size, size_t *length);
/* Reads the entry at *offset and advances *offset.  Returns false at the end. */
bool service_entry_next(const struct service_message *message, size_t *offset, struct service_entry *entry);
/* Bytes of entries that fit into an answer, or of files that fit into a message. */
#define SERVICE_ENTRIES_MAX (SERVICE_ANSWER_MAX - 64)

/* Small file of a request or answer. */
struct service_file {
	int status; /* of an answer: 0, or a negative errno, with only `error` and `name` valid */
	struct pl_error error;
	uint64_t size, modified, identity;
	uint32_t mode;
	uint64_t offset; /* of the first byte in the area */
	uint64_t hash[2];
	char name[SERVICE_NAME_MAX + 1];
};

/* Appends a file at *length.  Returns false if it does not fit into `size`. */
bool service_file_put(const struct service_file *file, uint8_t *buffer, size_t size, size_t *length);
/* Reads the file at *offset and advances *offset.  Returns false at the end. */
bool service_file_next(const struct service_message *message, size_t *offset, struct service_file *file);

/* Range of a file. */
struct service_range {
	uint64_t offset, length;
};

/* Bytes of a range in a message. */
#define SERVICE_RANGE 16
/* Appends a range at *length.  Returns false if it does not fit into `size`. */
bool service_range_put(const struct service_range *range, uint8_t *buffer, size_t size, size_t *length);
/* Reads the range at *offset and advances *offset.  Returns false at the end. */
bool service_range_next(const struct service_message *message, size_t *offset, struct service_range *range);

/* True if a name is relative, has 1 to SERVICE_NAME_MAX bytes, and no component is empty, "." or "..". */
bool service_name_valid(const char *name);
/* Returns the remedy for a name that the server does not have. */
const char *service_unknown_name_hint(const char *name);

#endif
