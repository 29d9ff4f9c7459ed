/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input: files of a machine as text, which libFuzzer mutates better than a tar file.
 * A line "PATH" begins a file, whose content ends at an empty line.  A line "PATH -> TARGET" is a link.  A line "PATH/"
 * is a folder.
 */
#include "fuzz.h"

#include <string.h>

#include "diag/check/check.h"
#include "diag/check/snapshot.h"

static void machine_add(struct pl_snapshot *snapshot, char *block, size_t length)
{
	struct pl_snapshot_entry entry = { .path = block, .kind = PL_SYSROOT_FILE };
	char *end = memchr(block, '\n', length), *arrow;

	if (!end)
		return;
	*end = '\0';
	entry.data = end + 1;
	entry.length = length - (size_t)(end + 1 - block);
	arrow = strstr(block, " -> ");
	if (arrow) {
		*arrow = '\0';
		entry.kind = PL_SYSROOT_LINK;
		entry.data = arrow + 4;
		entry.length = strlen(arrow + 4);
	} else if (end > block && end[-1] == '/') {
		entry.kind = PL_SYSROOT_FOLDER;
		entry.data = NULL;
		entry.length = 0;
	}
	pl_snapshot_add(snapshot, &entry);
}

static void check_machine_folder(struct pl_sysroot *root)
{
	struct pl_check_options options = { .ask = false };
	struct pl_check_machine *machine;
	struct pl_check_report report;
	struct pl_check_plan plan;
	struct pl_error error;

	if (pl_check_machine_open(&machine, root, &options, &error) < 0)
		return;
	REQUIRE(pl_check_run(&report, machine, &error) == 0);
	pl_check_plan(machine, &report, &plan);
	REQUIRE(plan.count <= PL_CHECK_ACTIONS);
	for (size_t i = 0; i < plan.count; i++)
		REQUIRE(!strpbrk(plan.actions[i].argument, " ;&|$'`\n"));
	pl_check_report_free(&report);
	pl_check_machine_close(machine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_snapshot *snapshot = pl_snapshot_new();
	char *text = malloc(size + 2), *at = text, *end;

	REQUIRE(snapshot && text);
	if (size)
		memcpy(text, data, size);
	text[size] = text[size + 1] = '\0';
	while ((size_t)(at - text) < size) {
		end = memmem(at, size - (size_t)(at - text), "\n\n", 2);
		if (!end)
			end = text + size;
		machine_add(snapshot, at, (size_t)(end - at));
		at = end + 2;
	}
	check_machine_folder(pl_snapshot_root(snapshot));
	pl_snapshot_free(snapshot);
	free(text);
	return 0;
}
