/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records of TLS 1.3 (RFC 8446, section 5.2) with the suite TLS_AES_128_GCM_SHA256, for connections whose ends have a
 * traffic secret of each direction without a handshake. An object protects one direction. Not thread-safe. No function
 * adds to OpenSSL's error queue; one that fails empties it.
 */
#ifndef PL_RECORD_H
#define PL_RECORD_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"

/* Bytes of a traffic secret. */
#define PL_RECORD_SECRET 32
/* Most bytes of content in a record, and what a record adds to them: header, type and tag. */
#define PL_RECORD_CONTENT 16384
#define PL_RECORD_HEADER 5
#define PL_RECORD_OVERHEAD (PL_RECORD_HEADER + 1 + 16)
#define PL_RECORD_MAX (PL_RECORD_CONTENT + PL_RECORD_OVERHEAD)

/* Types of content. */
enum pl_record_type { PL_RECORD_ALERT = 21, PL_RECORD_HANDSHAKE = 22, PL_RECORD_DATA = 23 };

struct pl_record_key {
	void *cipher; /* EVP_CIPHER_CTX * */
	uint8_t secret[PL_RECORD_SECRET];
	uint8_t iv[12];
	uint64_t sequence; /* records under this key */
};

/* Derives the key of a secret, for sealing or for opening. Returns 0, -ENOMEM or -EIO. */
int pl_record_key_open(struct pl_record_key *key, const uint8_t secret[PL_RECORD_SECRET], bool seal);
/* Replaces the key by the next one (RFC 8446, section 7.2). Returns 0 or -EIO. */
int pl_record_key_update(struct pl_record_key *key);
/* Wipes the key. Accepts a key of zeros. */
void pl_record_key_close(struct pl_record_key *key);

/*
 * Writes a record with all bytes of `parts`, at most PL_RECORD_CONTENT, to `record`. Parts may lie in `record` at
 * PL_RECORD_HEADER already. Returns the record's length or -EIO.
 */
ssize_t pl_record_seal(struct pl_record_key *key, enum pl_record_type type, const struct iovec *parts, int count,
		       uint8_t *record);

/*
 * Returns the length of the record whose first PL_RECORD_HEADER bytes are given, or -EPROTO if no sealed record begins
 * so. The length includes the header and is at most PL_RECORD_MAX: this release accepts no padding beyond that.
 */
ssize_t pl_record_length(const uint8_t header[PL_RECORD_HEADER]);

/*
 * Checks a whole record and decrypts it in place: its content then begins at PL_RECORD_HEADER. Returns the length of the
 * content, without padding, or -EPROTO for a record that the other end did not seal as the next one. `room` is the memory
 * to which the caller copies the content: it is loaded into caches meanwhile, and not changed. It may be empty.
 */
ssize_t pl_record_open(struct pl_record_key *key, uint8_t *record, size_t length, struct iovec room, uint8_t *type);

#endif
