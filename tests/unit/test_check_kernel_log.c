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
		cmocka_unit_test(test_gpus),
		cmocka_unit_test(test_bad_lines),
		cmocka_unit_test(test_many_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
