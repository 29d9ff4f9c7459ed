/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: a file of `peerlane dump`.  The target checks it as a machine. */
#include "fuzz.h"

#include <string.h>

#include "diag/check/check.h"
#include "diag/check/snapshot.h"

static void check_dump_folder(struct pl_sysroot *root)
{
	struct pl_check_options options = { .ask = false };
	struct pl_check_machine *machine;
	struct pl_check_report report;
	struct pl_error error;

	if (pl_check_machine_open(&machine, root, &options, &error) < 0)
		return;
	REQUIRE(pl_check_run(&report, machine, &error) == 0);
	REQUIRE(report.count && report.summary[0]);
	for (size_t i = 0; i < report.count; i++) {
		const struct pl_check_result *result = &report.results[i];

		REQUIRE(result->count <= PL_CHECK_FINDINGS_MAX);
		REQUIRE((result->status >= PL_CHECK_WARN) == (result->remedy[0] != '\0'));
		REQUIRE(result->status != PL_CHECK_UNKNOWN || result->reveal[0]);
	}
	pl_check_report_free(&report);
	pl_check_machine_close(machine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_snapshot *snapshot = pl_snapshot_new();
	struct pl_error error = { 0 };
	int rc;

	REQUIRE(snapshot);
	rc = pl_archive_parse(snapshot, data, size, &error);
	REQUIRE(rc == 0 || (rc < 0 && error.code == rc && error.id[0]));
	/* The files before the damage form a machine, too. */
	check_dump_folder(pl_snapshot_root(snapshot));
	pl_snapshot_free(snapshot);
	return 0;
}
