/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/record.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>

#include "base/prefetch.h"

#define KEY_BYTES 16
#define IV_BYTES 12
#define TAG_BYTES 16
/* Bytes of the iv that all records have, and those that the number of the record changes. */
#define FIXED_BYTES (IV_BYTES - NUMBER_BYTES)
#define NUMBER_BYTES sizeof(uint64_t)
/*
 * Bytes of a destination to load at a time, and bytes to decrypt meanwhile: three parts of the largest record, of whole units of
 * OpenSSL's code. A core waits for few cache lines at once, and more would delay the cipher. More parts cost more than they gain.
 */
#define LOAD_BYTES 2048
#define LOAD_STEP ((size_t)57 * 96)

/* HKDF-Expand-Label of RFC 8446, section 7.1, without a context: one block of HMAC-SHA-256 is enough for `length`. */
static int expand_label(const uint8_t secret[PL_RECORD_SECRET], const char *label, uint8_t *out, uint8_t length)
{
	uint8_t info[2 + 1 + 32 + 1 + 1] = { 0, length, (uint8_t)(6 + strlen(label)), 't', 'l', 's', '1', '3', ' ' };
	size_t used = 3 + 6 + strlen(label);
	uint8_t block[PL_RECORD_SECRET];
	unsigned got = sizeof(block);
	int rc = 0;

	memcpy(info + 9, label, strlen(label));
	info[used++] = 0; /* length of the context */
	info[used++] = 1; /* number of the block */
	if (HMAC(EVP_sha256(), secret, PL_RECORD_SECRET, info, used, block, &got))
		memcpy(out, block, length);
	else
		rc = -EIO;
	OPENSSL_cleanse(block, sizeof(block));
	return rc;
}

static int derive_record_key(struct pl_record_key *key, bool seal)
{
	uint8_t bytes[KEY_BYTES];
	int rc = expand_label(key->secret, "key", bytes, sizeof(bytes));

	if (rc == 0)
		rc = expand_label(key->secret, "iv", key->iv, sizeof(key->iv));
	if (rc == 0 && EVP_CipherInit_ex(key->cipher, EVP_aes_128_gcm(), NULL, bytes, NULL, seal) != 1)
		rc = -EIO;
	/* If this fails, begin_opening() sets whole nonces. */
	if (rc == 0 && !seal)
		EVP_CIPHER_CTX_ctrl(key->cipher, EVP_CTRL_AEAD_SET_IV_FIXED, FIXED_BYTES, key->iv);
	key->sequence = 0;
	OPENSSL_cleanse(bytes, sizeof(bytes));
	ERR_clear_error();
	return rc;
}

int pl_record_key_open(struct pl_record_key *key, const uint8_t secret[PL_RECORD_SECRET], bool seal)
{
	int rc;

	memcpy(key->secret, secret, sizeof(key->secret));
	key->cipher = EVP_CIPHER_CTX_new();
	rc = key->cipher ? derive_record_key(key, seal) : -ENOMEM;
	if (rc < 0)
		pl_record_key_close(key);
	ERR_clear_error();
	return rc;
}

int pl_record_key_update(struct pl_record_key *key)
{
	uint8_t next[PL_RECORD_SECRET];
	int rc = expand_label(key->secret, "traffic upd", next, sizeof(next));

	memcpy(key->secret, next, sizeof(next));
	OPENSSL_cleanse(next, sizeof(next));
	return rc < 0 ? rc : derive_record_key(key, EVP_CIPHER_CTX_is_encrypting(key->cipher));
}

void pl_record_key_close(struct pl_record_key *key)
{
	EVP_CIPHER_CTX_free(key->cipher);
	OPENSSL_cleanse(key, sizeof(*key));
}

/* Fills the record's nonce: the number of the record combined with the iv. */
static void fill_nonce(const struct pl_record_key *key, uint8_t nonce[IV_BYTES])
{
	memcpy(nonce, key->iv, IV_BYTES);
	for (unsigned i = 0; i < NUMBER_BYTES; i++)
		nonce[IV_BYTES - 1 - i] ^= (uint8_t)(key->sequence >> 8 * i);
}

static bool add_header(struct pl_record_key *key, const uint8_t header[PL_RECORD_HEADER])
{
	int length;

	return EVP_CipherUpdate(key->cipher, NULL, &length, header, PL_RECORD_HEADER) == 1;
}

static bool begin_sealing(struct pl_record_key *key, const uint8_t header[PL_RECORD_HEADER])
{
	uint8_t nonce[IV_BYTES];

	fill_nonce(key, nonce);
	return EVP_CipherInit_ex(key->cipher, NULL, NULL, NULL, nonce, -1) == 1 && add_header(key, header);
}

static bool set_nonce_and_tag(struct pl_record_key *key, const uint8_t nonce[IV_BYTES], uint8_t tag[TAG_BYTES])
{
	return EVP_CipherInit_ex(key->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
	       EVP_CIPHER_CTX_ctrl(key->cipher, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) == 1;
}

/*
 * Sets the tag to check and the nonce in one call, which takes half of the instructions of set_nonce_and_tag(). OpenSSL does not permit
 * it for sealing. A cipher of an ENGINE, which OpenSSL's configuration may make the default, has no such call.
 */
static bool begin_opening(struct pl_record_key *key, const uint8_t header[PL_RECORD_HEADER], uint8_t tag[TAG_BYTES])
{
	uint8_t nonce[IV_BYTES];
	const OSSL_PARAM params[] = {
		OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, tag, TAG_BYTES),
		OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TLS1_SET_IV_INV, nonce + FIXED_BYTES, NUMBER_BYTES),
		OSSL_PARAM_END,
	};

	fill_nonce(key, nonce);
	return (EVP_CIPHER_CTX_set_params(key->cipher, params) == 1 || set_nonce_and_tag(key, nonce, tag)) &&
	       add_header(key, header);
}

ssize_t pl_record_seal(struct pl_record_key *key, enum pl_record_type type, const struct iovec *parts, int count,
		       uint8_t *record)
{
	const uint8_t content_type = (uint8_t)type;
	uint8_t *at = record + PL_RECORD_HEADER;
	size_t body = 1 + TAG_BYTES;
	int length;
	bool done;

	for (int i = 0; i < count; i++)
		body += parts[i].iov_len;
	record[0] = PL_RECORD_DATA; /* of all sealed records */
	record[1] = record[2] = 3;
	record[3] = (uint8_t)(body >> 8);
	record[4] = (uint8_t)body;
	done = begin_sealing(key, record);
	for (int i = 0; i < count && done; i++) {
		done = EVP_CipherUpdate(key->cipher, at, &length, parts[i].iov_base, (int)parts[i].iov_len) == 1;
		at += parts[i].iov_len;
	}
	done = done && EVP_CipherUpdate(key->cipher, at, &length, &content_type, 1) == 1 &&
	       EVP_CipherFinal_ex(key->cipher, at + 1, &length) == 1 &&
	       EVP_CIPHER_CTX_ctrl(key->cipher, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, at + 1) == 1;
	key->sequence++;
	if (!done)
		ERR_clear_error();
	return done ? (ssize_t)(PL_RECORD_HEADER + body) : -EIO;
}

ssize_t pl_record_length(const uint8_t header[PL_RECORD_HEADER])
{
	size_t length = PL_RECORD_HEADER + ((size_t)header[3] << 8 | header[4]);

	if (header[0] != PL_RECORD_DATA || header[1] != 3 || header[2] != 3 || length < PL_RECORD_OVERHEAD ||
	    length > PL_RECORD_MAX)
		return -EPROTO;
	return (ssize_t)length;
}

/*
 * Begins to load the next bytes of a destination. A destination is usually larger than the caches, and a copy to it waits for memory most
 * of the time. These lines arrive during the work up to the next call.
 */
static void load_some(struct iovec *room)
{
	size_t length = PL_MIN(room->iov_len, (size_t)LOAD_BYTES);

	/* Addition of 0 to NULL has no defined result in C. */
	if (!length)
		return;
	pl_copy_prefetch(room->iov_base, length);
	room->iov_base = (uint8_t *)room->iov_base + length;
	room->iov_len -= length;
}

static bool open_content(struct pl_record_key *key, const uint8_t *record, uint8_t *content, size_t body,
			 struct iovec room)
{
	int got;

	room.iov_len = PL_MIN(room.iov_len, body);
	load_some(&room);
	if (!begin_opening(key, record, content + body))
		return false;
	for (size_t done = 0, part; done < body; done += part) {
		load_some(&room);
		part = room.iov_len ? PL_MIN(body - done, LOAD_STEP) : body - done;
		if (EVP_CipherUpdate(key->cipher, content + done, &got, content + done, (int)part) != 1)
			return false;
	}
	load_some(&room);
	return EVP_CipherFinal_ex(key->cipher, content + body, &got) == 1;
}

ssize_t pl_record_open(struct pl_record_key *key, uint8_t *record, size_t length, struct iovec room, uint8_t *type)
{
	uint8_t *content = record + PL_RECORD_HEADER;
	size_t body = length - PL_RECORD_HEADER - TAG_BYTES;

	if (!open_content(key, record, content, body, room)) {
		ERR_clear_error();
		return -EPROTO;
	}
	key->sequence++;
	while (body && content[body - 1] == 0) /* padding */
		body--;
	if (body == 0)
		return -EPROTO;
	*type = content[body - 1];
	return (ssize_t)(body - 1);
}
