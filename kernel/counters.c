/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Counters in /proc/driver/peerlane_peermem: one line for each, with a name and a number. */
#include "peermem.h"

#include <linux/atomic.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#define PATH "driver/" KBUILD_MODNAME

static atomic64_t counts[PM_COUNTS];

static const char *const names[PM_COUNTS] = {
	[PM_REGIONS] = "regions",       [PM_BYTES] = "bytes",       [PM_REGISTERED] = "registered",
	[PM_PERSISTENT] = "persistent", [PM_NOT_OURS] = "not_ours", [PM_REFUSED] = "refused",
	[PM_MAPPED] = "mapped",         [PM_UNMAPPED] = "unmapped", [PM_PAGES] = "pages",
	[PM_ENTRIES] = "entries",       [PM_REVOKED] = "revoked",   [PM_REVOKED_EARLY] = "revoked_early",
	[PM_OVERTAKEN] = "overtaken",   [PM_OLD_CORE] = "old_core", [PM_DRIVER_ERRORS] = "driver_errors",
};

void pm_add(enum pm_count count, s64 amount)
{
	atomic64_add(amount, &counts[count]);
}

static int show(struct seq_file *file, void *unused)
{
	int i;

	seq_puts(file, "version " PM_VERSION "\n");
	for (i = 0; i < PM_COUNTS; i++)
		seq_printf(file, "%s %lld\n", names[i], (long long)atomic64_read(&counts[i]));
	return 0;
}

int pm_counters_create(void)
{
	return proc_create_single(PATH, 0444, NULL, show) ? 0 : -ENOMEM;
}

void pm_counters_destroy(void)
{
	remove_proc_entry(PATH, NULL);
}
