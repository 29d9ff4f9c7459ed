/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: an address as text. */
#include "fuzz.h"

#include <stdio.h>

#include "base/address.h"

static void address_round_trip(const char *text, const char *default_port)
{
	struct pl_address_text first, second;
	struct pl_error error = { 0 };
	char again[sizeof(first.host) + sizeof(first.port) + 4];
	int rc = pl_address_parse(text, default_port, &first, &error);

	REQUIRE(rc == 0 || (rc == -EINVAL && error.code == rc && error.hint[0]));
	if (rc)
		return;
	snprintf(again, sizeof(again), strchr(first.host, ':') ? "[%s]:%s" : "%s:%s", first.host, first.port);
	REQUIRE(pl_address_parse(again, NULL, &second, &error) == 0);
	REQUIRE(strcmp(first.host, second.host) == 0 && strcmp(first.port, second.port) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	address_round_trip(text, NULL);
	address_round_trip(text, "7471");
	address_round_trip("host", text);
	free(text);
	return 0;
}
