/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/record.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define KEY_BYTES 16
#define IV_BYTES 12
#define TAG_BYTES 16

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

/* Begins a record: sets its nonce, the number of the record combined with the iv, and adds the header. */
static bool begin_record(struct pl_record_key *key, const uint8_t header[PL_RECORD_HEADER])
{
	uint8_t nonce[IV_BYTES];
	int length;

	memcpy(nonce, key->iv, sizeof(nonce));
	for (unsigned i = 0; i < 8; i++)
		nonce[IV_BYTES - 1 - i] ^= (uint8_t)(key->sequence >> 8 * i);
	return EVP_CipherInit_ex(key->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
	       EVP_CipherUpdate(key->cipher, NULL, &length, header, PL_RECORD_HEADER) == 1;
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
	done = begin_record(key, record);
	for (int i = 0; i < count && done; i++) {
		done = EVP_CipherUpdate(key->cipher, at, &length, parts[i].iov_base, (int)parts[i].iov_len) == 1;
		at += parts[i].iov_len;
	}
	done = done && EVP_CipherUpdate(key->cipher, at, &length, &content_type, 1) == 1 &&
	       EVP_CipherFinal_ex(key->cipher, at + 1, &length) == 1 &&
	       EVP_CIPHER_CTX_ctrl(key->cipher, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, at + 1) == 1;
	key->sequence++;
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

ssize_t pl_record_open(struct pl_record_key *key, uint8_t *record, size_t length, uint8_t *type)
{
	uint8_t *content = record + PL_RECORD_HEADER;
	size_t body = length - PL_RECORD_HEADER - TAG_BYTES;
	int got;
	bool right = begin_record(key, record) &&
		     EVP_CipherUpdate(key->cipher, content, &got, content, (int)body) == 1 &&
		     EVP_CIPHER_CTX_ctrl(key->cipher, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, content + body) == 1 &&
		     EVP_CipherFinal_ex(key->cipher, content + body, &got) == 1;

	ERR_clear_error();
	if (!right)
		return -EPROTO;
	key->sequence++;
	while (body && content[body - 1] == 0) /* padding */
		body--;
	if (body == 0)
		return -EPROTO;
	*type = content[body - 1];
	return (ssize_t)(body - 1);
}
