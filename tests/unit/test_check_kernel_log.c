/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines of the kernel's log: the last one of each kind, and the state of each GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "diag/check/kernel_log.h"

static struct pl_facts *facts_of(const char *const *records)
{
	struct pl_kernel_log *log = pl_kernel_log_new();
	struct pl_facts *facts = pl_facts_new();

	assert_true(log && facts);
	for (; *records; records++)
		pl_kernel_log_take(log, *records);
	pl_kernel_log_tell(log, facts);
	pl_kernel_log_free(log);
	return facts;
}

static void test_lines(void **state)
{
	static const char *const records[] = {
		"3,1,0,-;NVRM: Xid (PCI:0000:3d:00): 31, pid=1, name=a\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3d:00.0\n",
		"3,2,0,-;NVRM: Xid (PCI:0000:3d:00): 48, pid=2, name=b\n",
		"6,3,0,-;device: nothing of interest\n DRIVER=Oops\n",
		NULL,
	};
	struct pl_facts *facts = facts_of(records);

	(void)state;
	assert_string_equal(pl_facts_get(facts, "log.xid"), "NVRM: Xid (PCI:0000:3d:00): 48, pid=2, name=b");
	assert_null(pl_facts_get(facts, "log.oops"));
	assert_null(pl_facts_get(facts, "log.gpu.0000:3d:00.0"));
	pl_facts_free(facts);
}

/* Messages of healthy machines report no error. */
static void test_healthy_lines(void **state)
{
	static const char *const records[] = {
		"6,1,0,-;pcieport 0000:00:01.0: AER: enabled with IRQ 34",
		"7,2,0,-;mlx5_core 0000:3e:00.0: DEBUG: firmware version 22.41.1000",
		NULL,
	};
	struct pl_facts *facts = facts_of(records);

	(void)state;
	assert_null(pl_facts_get(facts, "log.aer"));
	assert_null(pl_facts_get(facts, "log.bug"));
	pl_facts_free(facts);
}

/* A healthy message after an error does not hide the error. */
static void test_errors_before_healthy_lines(void **state)
{
	static const char *const records[] = {
		"4,1,0,-;pcieport 0000:00:01.0: AER: Corrected error received: 0000:3e:00.0",
		"6,2,0,-;pcieport 0000:00:02.0: AER: enabled with IRQ 35",
		"1,3,0,-;BUG: kernel NULL pointer dereference, address: 0000000000000000",
		"0,4,0,-;watchdog: BUG: soft lockup - CPU#1 stuck for 22s!",
		"7,5,0,-;driver: DEBUG: done",
		NULL,
	};
	struct pl_facts *facts = facts_of(records);

	(void)state;
	assert_string_equal(pl_facts_get(facts, "log.aer"), strchr(records[0], ';') + 1);
	assert_string_equal(pl_facts_get(facts, "log.bug"), strchr(records[3], ';') + 1);
	pl_facts_free(facts);
}

/* A line reports a BUG at its beginning, and behind another word that ends in "BUG: ". */
static void test_bugs(void **state)
{
	static const char *const begin[] = { "1,1,0,-;BUG: unable to handle page fault", NULL };
	static const char *const later[] = { "1,1,0,-;DEBUG: BUG: Bad page state", NULL };
	struct pl_facts *facts = facts_of(begin);

	(void)state;
	assert_string_equal(pl_facts_get(facts, "log.bug"), "BUG: unable to handle page fault");
	pl_facts_free(facts);
	facts = facts_of(later);
	assert_string_equal(pl_facts_get(facts, "log.bug"), "DEBUG: BUG: Bad page state");
	pl_facts_free(facts);
}

/* A rescan finds a lost GPU again. */
static void test_gpus(void **state)
{
	static const char *const records[] = {
		"6,1,0,-;pci 0000:3d:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint\n",
		"6,2,0,-;pci 0000:4d:00.0: [10de:2330] type 00 class 0x030200\n",
		"6,3,0,-;pci 10001:5d:00.0: [10de:20b0] class 0x030000\n",
		"6,4,0,-;pci 0000:3d:00.4: [10de:2330] type 7f class 0x030200\n",
		"6,5,0,-;pci 0000:06:00.0: [10de:22a3] type 00 class 0x068000\n",
		"6,6,0,-;pci 0000:3e:00.0: [15b3:1021] type 00 class 0x020700\n",
		"3,7,0,-;NVRM: Xid (PCI:0000:3d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
		"3,8,0,-;NVRM: GPU 0000:4d:00.0: GPU has fallen off the bus.\n",
		"6,9,0,-;pci 0000:4d:00.0: [10de:2330] type 00 class 0x030200\n",
		NULL,
	};
	struct pl_facts *facts = facts_of(records);

	(void)state;
	assert_string_equal(pl_facts_get(facts, "log.gpu.0000:3d:00.0"), "fell off");
	assert_string_equal(pl_facts_get(facts, "log.gpu.0000:4d:00.0"), "found");
	assert_string_equal(pl_facts_get(facts, "log.gpu.10001:5d:00.0"), "found");
	assert_null(pl_facts_get(facts, "log.gpu.0000:3d:00.4"));
	assert_null(pl_facts_get(facts, "log.gpu.0000:06:00.0"));
	assert_null(pl_facts_get(facts, "log.gpu.0000:3e:00.0"));
	assert_non_null(pl_facts_get(facts, "log.gpu_fell_off"));
	pl_facts_free(facts);
}

/* Lines that are cut, or forged by a program that may write to the log. */
static void test_bad_lines(void **state)
{
	static const char *const records[] = {
		"",
		";",
		"no semicolon",
		"6,1,0,-;: [10de:2330] class 0x030200",
		"6,1,0,-;pci : [10de:2330] class 0x030200",
		"6,1,0,-;pci zz:00: [10de:2330] class 0x030200",
		"6,1,0,-;pci 0000:3d:00.9: [10de:2330] class 0x030200",
		"6,1,0,-;NVRM: Xid (PCI:",
		"6,1,0,-;(PCI: fallen off the bus",
		"6,1,0,-;NVRM: GPU fallen off the bus",
		NULL,
	};
	struct pl_facts *facts = facts_of(records);
	const char *key, *value;

	(void)state;
	for (size_t i = 0; (key = pl_facts_at(facts, i, &value)); i++)
		assert_true(strncmp(key, "log.gpu.", 8));
	pl_facts_free(facts);
}

/* More GPUs than the log keeps are left out. */
static void test_many_gpus(void **state)
{
	struct pl_kernel_log *log = pl_kernel_log_new();
	struct pl_facts *facts = pl_facts_new();
	char record[128];
	size_t count = 0;
	const char *value;

	(void)state;
	assert_true(log && facts);
	for (unsigned i = 0; i < 200; i++) {
		snprintf(record, sizeof(record), "6,1,0,-;pci %04x:3d:00.0: [10de:2330] class 0x030200", i);
		pl_kernel_log_take(log, record);
	}
	pl_kernel_log_tell(log, facts);
	while (pl_facts_at(facts, count, &value))
		count++;
	assert_int_equal(count, 64);
	pl_kernel_log_free(log);
	pl_facts_free(facts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_healthy_lines),
		cmocka_unit_test(test_errors_before_healthy_lines),
		cmocka_unit_test(test_bugs),
		cmocka_unit_test(test_gpus),
		cmocka_unit_test(test_bad_lines),
		cmocka_unit_test(test_many_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
