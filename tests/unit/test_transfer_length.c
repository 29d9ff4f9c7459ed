/* SPDX-License-Identifier: BSD-2-Clause */
/* The lengths of a vector's elements: their sum must fit 64 bits. Ranges of that size need regions that no machine has. */
#include "core/fabric.h"
#include "core/vector.h"
#include "support/cases.h"
#include "support/check.h"

#define ELEMENTS 4
#define QUARTER (1ull << 62)

static void sum_of_lengths(void *argument)
{
	static struct pl_context context;
	static struct pl_peer peer;
	static struct pl_region region;
	static struct pl_remote remote;
	struct pl_transfer transfers[ELEMENTS];
	struct pl_error error;

	(void)argument;
	peer.context = region.context = &context;
	atomic_store(&peer.state, PL_PEER_UP);
	region.memory.length = SIZE_MAX;
	remote.peer = &peer;
	remote.length = UINT64_MAX;
	remote.rights = PL_ACCESS_ALL;
	for (unsigned i = 0; i < ELEMENTS; i++)
		transfers[i] = (struct pl_transfer){ &remote, 0, &region, 0, QUARTER };
	transfers[ELEMENTS - 1].length = QUARTER - 1;
	check_ok(pl_transfer_check(&peer, PL_KIND_WRITE, transfers, ELEMENTS, "pl_writev", &error), &error);
	transfers[ELEMENTS - 1].length = QUARTER;
	check_status(pl_transfer_check(&peer, PL_KIND_WRITE, transfers, ELEMENTS, "pl_writev", &error), -EINVAL, &error);
	check_text(error.id, "TRANSFER-LENGTH");
	check_text(error.object, "element 3");
	check_status(pl_transfer_check(&peer, PL_KIND_READ, transfers, ELEMENTS, "pl_readv", NULL), -EINVAL, NULL);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "sum of lengths", sum_of_lengths, NULL, 60 },
	};

	return cases_run("transfer-length", cases, PL_ARRAY_SIZE(cases));
}
