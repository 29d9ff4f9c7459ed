/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input: a file of `peerlane check --config`, or of --baseline if it begins with '{' or '['.  The target compares each
 * readable baseline with itself and with an empty machine.
 */
#include "fuzz.h"

#include <string.h>

#include "cmd/check/policy_file.h"

static size_t count_findings(const struct pl_inventory *now, const struct pl_check_baseline *baseline)
{
	struct pl_check_result result = { .row = NULL };
	size_t count;

	pl_check_compare(&result, now, baseline);
	for (size_t i = 0; i < result.count; i++)
		REQUIRE(result.findings[i].status > PL_CHECK_OK && result.findings[i].text[0]);
	count = result.count + result.left_out;
	free(result.findings);
	return count;
}

static void try_baseline(const char *text, size_t size)
{
	const struct pl_inventory nothing = { .gpu_count = 0 };
	struct pl_check_baseline baseline;
	struct pl_error error;
	size_t lost;

	if (check_parse_baseline(&baseline, "fuzz", text, size, &error) < 0) {
		REQUIRE(error.code == -EINVAL && !strcmp(error.id, "CHECK-BASELINE") && error.message[0]);
		REQUIRE(!baseline.inventory.gpus && !baseline.inventory.ports && !baseline.inventory.port_count);
		return;
	}
	REQUIRE(strlen(baseline.host) < sizeof(baseline.host));
	/* Comparing takes the product of the numbers of devices. */
	if (baseline.inventory.gpu_count + baseline.inventory.port_count < 200) {
		lost = count_findings(&nothing, &baseline);
		REQUIRE(lost >= baseline.inventory.gpu_count + baseline.inventory.card_count);
		count_findings(&baseline.inventory, &baseline);
	}
	pl_inventory_release(&baseline.inventory);
}

static void try_config(const char *text, size_t size)
{
	struct pl_check_policy policy = { .accepted = NULL };
	struct pl_error error;
	int rc = check_parse_config(&policy, "fuzz", text, size, &error);

	REQUIRE(rc == 0 || (rc == error.code && !strncmp(error.object, "fuzz:", 5) && error.message[0]));
	for (size_t i = 0; i < policy.accepted_count; i++) {
		REQUIRE(policy.accepted[i].row && policy.accepted[i].reason[0]);
		REQUIRE(strlen(policy.accepted[i].object) < sizeof(policy.accepted[i].object));
	}
	if (rc == 0 && policy.expected.lanes)
		REQUIRE(pl_check_generation_speed(policy.expected.generation));
	free(policy.accepted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	if (*text == '{' || *text == '[')
		try_baseline(text, size);
	else
		try_config(text, size);
	free(text);
	return 0;
}
