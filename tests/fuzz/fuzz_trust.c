/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: the text of a file of authorized identities, and of a file of known hosts. */
#include "fuzz.h"

#include "control/authorized.h"
#include "control/known_hosts.h"

static void look_up(const struct pl_authorized *list)
{
	static const uint8_t fingerprint[PL_FINGERPRINT];
	static const char *const names[] = { "", "gpu1.example", "spiffe://x/a/b" };

	for (size_t i = 0; i < PL_ARRAY_SIZE(names); i++) {
		struct pl_rights rights = PL_RIGHTS_INIT;
		enum pl_listed listed = pl_authorized_find(list, i ? fingerprint : NULL, names[i], &rights);

		REQUIRE(listed == PL_UNLISTED || listed == PL_LISTED || listed == PL_LISTED_REVOKED);
		REQUIRE(rights.access && rights.access <= PL_ACCESS_ALL && rights.size == sizeof(rights));
		REQUIRE(memchr(rights.names, 0, sizeof(rights.names)));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t fingerprint[PL_FINGERPRINT];
	char *text = fuzz_text(data, size);
	struct pl_authorized *list;
	struct pl_error error;
	unsigned line;
	int rc;

	if (pl_authorized_parse(&pl_system_allocator, "authorized", text, &list, &error) == 0) {
		look_up(list);
		pl_authorized_free(list);
	} else {
		REQUIRE(!list && !strcmp(error.id, "AUTHORIZED-SYNTAX"));
	}
	rc = pl_known_hosts_find("hosts", text, "[gpu1]:19875", fingerprint, &line, &error);
	REQUIRE((rc >= PL_HOST_UNKNOWN && rc <= PL_HOST_REVOKED) || rc == -EINVAL);
	free(text);
	return 0;
}
