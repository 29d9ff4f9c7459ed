/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_CMD_KEY_GENERATE_H
#define PL_CMD_KEY_GENERATE_H

#include "cmd/common/cli.h"

enum key_type { KEY_ED25519, KEY_P256 };

/*
 * Makes a private key and a certificate signed by it, and writes both to a new file, which only this user can read.
 * `name`: common name of the certificate.  -EEXIST if the file exists.
 */
int key_generate_identity(const char *path, const char *name, enum key_type type, struct pl_error *error);

/* Writes 32 random bytes in hexadecimal to a new file, which only this user can read. */
int key_generate_group(const char *path, struct pl_error *error);

#endif
