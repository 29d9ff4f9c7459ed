/* SPDX-License-Identifier: BSD-2-Clause */
/* Two threads in a context with manual progress, over sockets: one sleeps while the other one makes progress and stops. */
#include "support/cases.h"
#include "support/leader.h"

static const struct setting tcp = {
	.name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};
static const struct setting encrypted = { .name = "encrypted",
					  .fabric = "tcp",
					  .host = "127.0.0.1",
					  .progress = PL_PROGRESS_MANUAL,
					  .lanes = 1,
					  .key = true,
					  .encrypted = true };

static const struct test_case cases[] = {
	{ "leader-acknowledges", leader_acknowledges, &tcp, 30 },
	{ "leader-acknowledges-encrypted", leader_acknowledges, &encrypted, 30 },
	{ "leader-is-woken", leader_is_woken, &tcp, 30 },
};

int main(void)
{
	return cases_run("manual-leader", cases, sizeof(cases) / sizeof(cases[0]));
}
