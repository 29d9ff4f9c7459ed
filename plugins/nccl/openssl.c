/* SPDX-License-Identifier: BSD-2-Clause */
#define PLUGIN_OPENSSL_TABLE
#include "openssl.h"

#include <pthread.h>

#include "base/base.h"
#include "base/dynamic_library.h"

/* Brings libcrypto.so.3 with it, so that dlsym(3) finds the symbols of both. */
#define LIBSSL "libssl.so.3"

struct plugin_openssl plugin_openssl;

#define SYMBOL(name) { #name, offsetof(struct plugin_openssl, name) },
static const struct pl_symbol symbols[] = { PLUGIN_OPENSSL_FUNCTIONS(SYMBOL) };
#undef SYMBOL

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *failure;

static void load_openssl(void)
{
	failure = pl_library_load(LIBSSL, symbols, PL_ARRAY_SIZE(symbols), &plugin_openssl);
}

const char *plugin_openssl_load(void)
{
	pthread_once(&once, load_openssl);
	return failure;
}
