/* SPDX-License-Identifier: BSD-2-Clause */
/* Records under each number, of each size, with a cipher of an ENGINE, and the error queue of OpenSSL. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <errno.h>
#include <openssl/err.h>
#ifndef OPENSSL_NO_ENGINE
#include <openssl/engine.h>
#endif
#include <string.h>

#include "control/record.h"
#include "support/cases.h"
#include "support/check.h"

#define SIZE 3000

static const uint8_t secret[PL_RECORD_SECRET] = { 7 };
static uint8_t data[SIZE] = { 1, 2, 3 };

/*
 * Every bit of a record's number counts: a record opens under its own number only. Memory that waits for the content keeps its bytes,
 * whether the record is right or not.
 */
static void case_numbers(void *unused)
{
	static uint8_t record[SIZE + PL_RECORD_OVERHEAD], copy[sizeof(record)], room[2 * SIZE], zeros[sizeof(room)];
	const struct iovec part = { data, SIZE }, waiting = { room, sizeof(room) };
	struct pl_record_key seal, open;
	uint8_t type;

	(void)unused;
	check_number(pl_record_key_open(&seal, secret, true), 0);
	check_number(pl_record_key_open(&open, secret, false), 0);
	for (unsigned bit = 0; bit < 64; bit++) {
		seal.sequence = 1ull << bit;
		check_number(pl_record_seal(&seal, PL_RECORD_DATA, &part, 1, record), sizeof(record));
		memcpy(copy, record, sizeof(record));
		open.sequence = 0;
		check_number(pl_record_open(&open, copy, sizeof(copy), waiting, &type), -EPROTO);
		check(ERR_peek_error() == 0);
		open.sequence = 1ull << bit;
		check_number(pl_record_open(&open, record, sizeof(record), waiting, &type), SIZE);
		check(!memcmp(record + PL_RECORD_HEADER, data, SIZE));
		check(!memcmp(room, zeros, sizeof(room)));
	}
	pl_record_key_close(&seal);
	pl_record_key_close(&open);
}

/*
 * A record opens as a whole or not at all, of any size, and for any memory that waits: it is decrypted in parts if that memory is loaded
 * meanwhile.
 */
static void case_parts(void *unused)
{
	static const size_t sizes[] = { 0,    1,    2047,  2048,  2049,  4096,  5471, 5472,
					5473, 8192, 10943, 10944, 10945, 16383, 16384 };
	static uint8_t content[PL_RECORD_CONTENT], room[PL_RECORD_CONTENT + 1];
	static uint8_t record[PL_RECORD_MAX], damaged[PL_RECORD_MAX];
	struct pl_record_key seal, open;
	uint8_t type;

	(void)unused;
	for (size_t i = 0; i < sizeof(content); i++)
		content[i] = (uint8_t)(i * 31 + i / 256);
	check_number(pl_record_key_open(&seal, secret, true), 0);
	check_number(pl_record_key_open(&open, secret, false), 0);
	for (size_t i = 0; i < PL_ARRAY_SIZE(sizes) * PL_ARRAY_SIZE(sizes); i++) {
		const struct iovec part = { content, sizes[i / PL_ARRAY_SIZE(sizes)] };
		const struct iovec waiting = { room + 1, sizes[i % PL_ARRAY_SIZE(sizes)] };
		size_t size = part.iov_len + PL_RECORD_OVERHEAD;

		check_number(pl_record_seal(&seal, PL_RECORD_DATA, &part, 1, record), (long long)size);
		memcpy(damaged, record, size);
		damaged[i % 2 ? size - 1 : PL_RECORD_HEADER] ^= 1;
		check_number(pl_record_open(&open, damaged, size, waiting, &type), -EPROTO);
		check_number(pl_record_open(&open, record, size, waiting, &type), (long long)part.iov_len);
		check(!memcmp(record + PL_RECORD_HEADER, content, part.iov_len));
	}
	pl_record_key_close(&seal);
	pl_record_key_close(&open);
}

/* Right records leave OpenSSL's error queue as it is. Emptying it took a fifth of the instructions beside the cipher. */
static void case_error_queue(void *unused)
{
	static uint8_t record[SIZE + PL_RECORD_OVERHEAD];
	const struct iovec part = { data, SIZE }, none = { NULL, 0 };
	struct pl_record_key seal, open;
	uint8_t type;

	(void)unused;
	check_number(pl_record_key_open(&seal, secret, true), 0);
	check_number(pl_record_key_open(&open, secret, false), 0);
	ERR_raise(ERR_LIB_USER, 1);
	check_number(pl_record_seal(&seal, PL_RECORD_DATA, &part, 1, record), sizeof(record));
	check_number(pl_record_open(&open, record, sizeof(record), none, &type), SIZE);
	check_number(ERR_GET_LIB(ERR_get_error()), ERR_LIB_USER);
	check(ERR_peek_error() == 0);
	pl_record_key_close(&seal);
	pl_record_key_close(&open);
}

#ifndef OPENSSL_NO_ENGINE

static int choose_engine_cipher(ENGINE *engine, const EVP_CIPHER **cipher, const int **all, int wanted)
{
	static const int own[] = { NID_aes_128_gcm };

	(void)engine;
	if (!cipher) {
		*all = own;
		return PL_ARRAY_SIZE(own);
	}
	*cipher = wanted == *own ? EVP_aes_128_gcm() : NULL;
	return *cipher != NULL;
}

static void make_default_engine(void)
{
	ENGINE *engine = ENGINE_new();

	check(engine && ENGINE_set_id(engine, "test") && ENGINE_set_ciphers(engine, choose_engine_cipher));
	check_number(ENGINE_set_default_ciphers(engine), 1);
	ENGINE_free(engine);
}

/* OpenSSL's configuration may make an ENGINE the default. Its cipher takes no parameters. */
static void case_engine(void *unused)
{
	static uint8_t record[SIZE + PL_RECORD_OVERHEAD];
	const struct iovec part = { data, SIZE }, none = { NULL, 0 };
	struct pl_record_key seal, open;
	uint8_t type;

	(void)unused;
	make_default_engine();
	check_number(pl_record_key_open(&seal, secret, true), 0);
	check_number(pl_record_key_open(&open, secret, false), 0);
	for (unsigned i = 0; i < 6; i++) {
		check_number(pl_record_seal(&seal, PL_RECORD_DATA, &part, 1, record), sizeof(record));
		check_number(pl_record_open(&open, record, sizeof(record), none, &type), SIZE);
		check(!memcmp(record + PL_RECORD_HEADER, data, SIZE));
		check(ERR_peek_error() == 0);
		if (i != 2)
			continue;
		check_number(pl_record_key_update(&seal), 0);
		check_number(pl_record_key_update(&open), 0);
	}
	check_number(pl_record_seal(&seal, PL_RECORD_DATA, &part, 1, record), sizeof(record));
	record[sizeof(record) - 1] ^= 1;
	check_number(pl_record_open(&open, record, sizeof(record), none, &type), -EPROTO);
	pl_record_key_close(&seal);
	pl_record_key_close(&open);
}

#endif

int main(void)
{
	static const struct test_case cases[] = {
#ifndef OPENSSL_NO_ENGINE
		{ "engine", case_engine, NULL, 20 },
#endif
		{ "numbers", case_numbers, NULL, 20 },
		{ "parts", case_parts, NULL, 20 },
		{ "error-queue", case_error_queue, NULL, 20 },
	};

	return cases_run("record_open", cases, PL_ARRAY_SIZE(cases));
}
