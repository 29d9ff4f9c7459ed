/* SPDX-License-Identifier: BSD-2-Clause */
/* Policies of `peerlane check`: their texts, accepted findings, and comparison of inventories. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/check/policy_file.h"
#include "diag/check/row.h"

/* -- texts ----------------------------------------------------------------------------------------- */

static void test_expectations(void **state)
{
	static const char *const wrong[] = { "gpus",    "gpus=",    "gpus=0",     "gpus=1025",  "gpus=+1",
					     "gpus= 1", "rate=0.5", "links=16x8", "links=33x5", "links=x",
					     "links=",  "driver=",  "GPUS=1",     ",",          "a=1" };
	struct pl_check_expected expected = { .cards = 3 };
	struct pl_error error;

	(void)state;
	assert_int_equal(check_parse_expected(&expected, "gpus=8,rate=400,links=8x4,driver=580.*,gpus=1024", &error),
			 0);
	assert_int_equal(expected.gpus, 1024);
	assert_int_equal(expected.cards, 3);
	assert_int_equal(expected.rate, 50000000000);
	assert_int_equal(expected.lanes, 8);
	assert_int_equal(pl_check_generation_speed(expected.generation), 16000);
	assert_string_equal(expected.driver, "580.*");
	assert_int_equal(check_parse_expected(&expected, "", &error), 0);
	for (size_t i = 0; i < PL_ARRAY_SIZE(wrong); i++) {
		const struct pl_check_expected before = expected;

		assert_int_equal(check_parse_expected(&expected, wrong[i], &error), -EINVAL);
		assert_string_equal(error.id, "CHECK-EXPECT");
		/* A text with one wrong value sets none. */
		assert_memory_equal(&before, &expected, sizeof(before));
	}
	assert_int_equal(check_parse_expected(&expected, "gpus=2,cards=x", &error), -EINVAL);
	assert_int_equal(expected.gpus, 1024);
	assert_int_equal(pl_check_generation_speed(1000), 0);
}

static void test_acceptances(void **state)
{
	struct pl_check_policy policy = { .accepted = NULL };
	struct pl_error error;

	(void)state;
	assert_int_equal(check_parse_ignored(&policy, "bus-virtual=a cloud = fine,port-state:mlx5_1/1", &error), 0);
	assert_int_equal(policy.accepted_count, 2);
	assert_string_equal(policy.accepted[0].row->id, "bus-virtual");
	assert_string_equal(policy.accepted[0].object, "");
	assert_string_equal(policy.accepted[0].reason, "a cloud = fine");
	assert_string_equal(policy.accepted[1].object, "mlx5_1/1");
	assert_true(policy.accepted[1].reason[0]);
	assert_int_equal(check_parse_ignored(&policy, "bus-iommu:0000:3b:00.0=x", &error), 0);
	assert_string_equal(policy.accepted[2].object, "0000:3b:00.0");
	assert_int_equal(check_parse_ignored(&policy, "bus-virtal", &error), -ENOENT);
	assert_non_null(strstr(error.hint, "the nearest is bus-virtual;"));
	assert_int_equal(policy.accepted_count, 3);
	free(policy.accepted);
}

static void test_configuration(void **state)
{
	static const char text[] = "expect gpus=8\nexpect gpus=4,cards=2\nignore bus-numa known";
	struct pl_check_policy policy = { .expected = { .cards = 9 } };
	struct pl_error error;

	(void)state;
	assert_int_equal(check_parse_config(&policy, "x.conf", text, sizeof(text) - 1, &error), 0);
	assert_int_equal(policy.expected.gpus, 4);
	assert_int_equal(policy.expected.cards, 9);
	assert_int_equal(policy.accepted_count, 1);
	assert_int_equal(check_parse_config(&policy, "x.conf", "\n\nwhat", 6, &error), -EINVAL);
	assert_string_equal(error.object, "x.conf:3");
	assert_int_equal(check_parse_config(&policy, "x.conf", "", 0, &error), 0);
	free(policy.accepted);
}

/* -- accepted findings ----------------------------------------------------------------------------- */

static void test_acceptance_changes_the_status(void **state)
{
	struct pl_check_acceptance accepted[] = {
		{ .row = pl_check_row_find("port-state"), .object = "a/1", .reason = "x" },
		{ .row = pl_check_row_find("port-mtu"), .reason = "y" }
	};
	struct pl_check_policy policy = { .accepted = accepted, .accepted_count = 1 };
	struct pl_check_result result = { .row = accepted[0].row };
	struct pl_check_report report = { .results = &result, .count = 1 };

	(void)state;
	pl_check_note(&result, PL_CHECK_FAIL, "a/1", "down");
	pl_check_note(&result, PL_CHECK_WARN, "b/1", "slow");
	pl_check_note(&result, PL_CHECK_OK, "c/1", "well");
	pl_check_accept(&report, &policy);
	assert_int_equal(result.status, PL_CHECK_WARN);
	assert_ptr_equal(result.findings[0].accepted, &accepted[0]);
	assert_null(result.findings[1].accepted);
	assert_int_equal(pl_check_count(&report).accepted, 1);
	assert_true(pl_check_acceptance_used(&report, &accepted[0]));
	assert_false(pl_check_acceptance_used(&report, &accepted[1]));
	/* Without an object, all findings of the row are accepted, but those that are well. */
	accepted[0].object[0] = '\0';
	pl_check_accept(&report, &policy);
	assert_int_equal(result.status, PL_CHECK_OK);
	assert_int_equal(pl_check_count(&report).accepted, 2);
	assert_null(result.findings[2].accepted);
	free(result.findings);
}

static void test_findings_have_no_small_limit(void **state)
{
	struct pl_check_result result = { .row = NULL };

	(void)state;
	for (unsigned i = 0; i < PL_CHECK_FINDINGS_MAX + 10; i++)
		pl_check_note(&result, PL_CHECK_OK, NULL, "number %u", i);
	assert_int_equal(result.count, PL_CHECK_FINDINGS_MAX);
	assert_int_equal(result.left_out, 10);
	assert_string_equal(result.findings[1000].text, "number 1000");
	free(result.findings);
}

/* -- baselines ------------------------------------------------------------------------------------- */

/* Returns the only finding of a comparison in which only one device differs. */
static const char *compare_devices(struct pl_inventory_device now, struct pl_inventory_device before)
{
	static char text[300];
	struct pl_check_baseline baseline = { .inventory = { .gpus = &before, .gpu_count = 1 } };
	struct pl_inventory inventory = { .gpus = &now, .gpu_count = 1 };
	struct pl_check_result result = { .row = NULL };

	pl_check_compare(&result, &inventory, &baseline);
	assert_true(result.count <= 1);
	text[0] = '\0';
	if (result.count)
		snprintf(text, sizeof(text), "%s %s", pl_check_status_name(result.status), result.findings[0].text);
	free(result.findings);
	return text;
}

static void test_links(void **state)
{
	const struct pl_inventory_device fast = { .address = "a", .link = { 32000, 16 } };
	const struct pl_inventory_device slow = { .address = "a", .link = { 16000, 16 } };
	const struct pl_inventory_device narrow = { .address = "a", .link = { 32000, 8 } };
	const struct pl_inventory_device idle = { .address = "a", .link = { 2500, 16 }, .idle = true };
	const struct pl_inventory_device unknown = { .address = "a" };

	(void)state;
	assert_string_equal(compare_devices(fast, fast), "");
	assert_string_equal(compare_devices(fast, slow), "");
	assert_string_equal(compare_devices(slow, fast), "FAIL link 16 GT/s x16, was 32 GT/s x16");
	assert_string_equal(compare_devices(narrow, fast), "FAIL link 32 GT/s x8, was 32 GT/s x16");
	assert_string_equal(compare_devices(idle, fast), "");
	assert_string_equal(compare_devices(slow, idle), "");
	assert_string_equal(compare_devices(unknown, fast), "UNKNOWN link not known, was 32 GT/s x16");
	assert_string_equal(compare_devices(fast, unknown), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_expectations),
		cmocka_unit_test(test_acceptances),
		cmocka_unit_test(test_configuration),
		cmocka_unit_test(test_acceptance_changes_the_status),
		cmocka_unit_test(test_findings_have_no_small_limit),
		cmocka_unit_test(test_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
