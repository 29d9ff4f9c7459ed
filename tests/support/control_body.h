/* SPDX-License-Identifier: BSD-2-Clause */
/* Decoding of control messages in tests. */
#ifndef TEST_CONTROL_BODY_H
#define TEST_CONTROL_BODY_H

#include "wire/wire.h"

/* Decodes from a heap block of the exact length, so that a sanitizer sees any byte read beyond it. */
int control_decode_exact(uint16_t type, const uint8_t *body, size_t length, struct pl_control *message);

#endif
