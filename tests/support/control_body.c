/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/control_body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

int control_decode_exact(uint16_t type, const uint8_t *body, size_t length, struct pl_control *message)
{
	uint8_t *exact = malloc(length ? length : 1);
	int rc;

	assert_non_null(exact);
	if (length)
		memcpy(exact, body, length);
	rc = pl_control_decode(type, exact, length, message);
	free(exact);
	return rc;
}
