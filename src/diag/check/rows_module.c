/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters of Peerlane's kernel module. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "diag/check/row.h"

#define COUNTERS "proc/driver/peerlane_peermem"

/* Returns the number of a line with that name; -1 if there is none. */
static int64_t counter(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (!strncmp(line, name, length) && line[length] == ' ')
			return strtoll(line + length, NULL, 10);
	return -1;
}

static void judge_counter(const char *text, struct pl_check_result *result)
{
	int64_t refused = counter(text, "refused"), errors = counter(text, "driver_errors"),
		old = counter(text, "old_core"), bytes = counter(text, "bytes");
	char version[32] = "";

	sscanf(text, "version %31[0-9A-Za-z.-]", version);
	pl_check_note(result, PL_CHECK_OK, NULL,
		      "version %s: %" PRId64 " regions of %" PRId64 " bytes are registered, %" PRId64
		      " were since it was loaded",
		      version[0] ? version : "unknown", counter(text, "regions"), bytes, counter(text, "registered"));
	if (refused > 0)
		pl_check_note(result, PL_CHECK_WARN, NULL, "it refused %" PRId64 " registrations", refused);
	if (bytes > 0 && counter(text, "regions") == 0)
		pl_check_note(result, PL_CHECK_WARN, NULL,
			      "%" PRId64
			      " bytes without a region stay pinned until the process that registered them frees "
			      "them, or ends",
			      bytes);
	if (errors > 0)
		pl_check_note(result, PL_CHECK_WARN, NULL,
			      "NVIDIA's driver contradicted itself, or kept pins, %" PRId64 " times", errors);
	if (old > 0) {
		pl_check_note(result, PL_CHECK_WARN, NULL,
			      "the RDMA core lacks its correction for inverted locks, which this module gets along "
			      "without");
		pl_check_remedy(result, "install DOCA-OFED, or MLNX_OFED 5.5 or later");
	}
}

static void probe_module(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	char text[4096];

	if (!check_module(machine, "peerlane_peermem"))
		return;
	if (check_text(machine, text, COUNTERS) < 0)
		pl_check_unknown(result, NULL, "cat /" COUNTERS, "its counters cannot be read");
	else
		judge_counter(text, result);
}

const struct pl_check_row pl_check_rows_module[] = {
	{
		.id = "peer-module",
		.group = "Peer memory",
		.title = "Peerlane's kernel module",
		.requirement =
			"If peerlane_peermem is loaded, it refuses nothing, and what it works with keeps to the rules.",
		.how = "/proc/driver/peerlane_peermem",
		.reason =
			"A refused registration is a \"Bad address\" in the program; the kernel's log has the reason.",
		.remedy = "dmesg | grep peerlane_peermem",
		.rank = 57,
		.probe = probe_module,
	},
	{ .id = NULL },
};
