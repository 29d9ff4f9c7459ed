/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * OpenSSL's memory in the process of a server.  Private keys lie in a heap of their own, which core dumps leave out.  All
 * memory that OpenSSL frees is wiped, because OpenSSL frees some copies of private keys without that.
 */
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/transfer/serve.h"

/* Memory for private keys, a power of two, and its smallest piece. */
#define PRIVATE_KEYS_SIZE (64 << 10)
#define PRIVATE_KEY_MIN 32

static void *allocate_for_openssl(size_t size, const char *file, int line)
{
	(void)file;
	(void)line;
	return size ? malloc(size) : NULL;
}

static void wipe_and_free(void *memory, const char *file, int line)
{
	(void)file;
	(void)line;
	if (memory)
		explicit_bzero(memory, malloc_usable_size(memory));
	free(memory);
}

static void *reallocate_and_wipe(void *memory, size_t size, const char *file, int line)
{
	void *other = allocate_for_openssl(size, file, line);

	if (other && memory)
		memcpy(other, memory, CLI_MIN(malloc_usable_size(memory), size));
	if (other || !size)
		wipe_and_free(memory, file, line);
	return other;
}

void serve_protect_openssl_memory(void)
{
	/* A failure leaves the memory as it usually is. */
	CRYPTO_set_mem_functions(allocate_for_openssl, reallocate_and_wipe, wipe_and_free);
	if (!CRYPTO_secure_malloc_initialized())
		CRYPTO_secure_malloc_init(PRIVATE_KEYS_SIZE, PRIVATE_KEY_MIN);
}
