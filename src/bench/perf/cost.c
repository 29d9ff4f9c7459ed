/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processor cycles of this process and energy of this machine, where the kernel makes them available; else the reason.
 */
#include "bench/perf/cost.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POWERCAP "class/powercap"

/* -- cycles ------------------------------------------------------------------------------------------ */

static int open_cycle_counter(bool user_only)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attributes),
		.config = PERF_COUNT_HW_CPU_CYCLES,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
		.inherit = 1,
		.exclude_kernel = user_only,
		.exclude_hv = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static void open_cycles(struct bench_cost *cost)
{
	const char *reason = "";

	cost->cycles = open_cycle_counter(false);
	if (cost->cycles < 0 && (errno == EACCES || errno == EPERM)) {
		cost->user_only = true;
		cost->cycles = open_cycle_counter(true);
	}
	if (cost->cycles >= 0)
		return;
	if (errno == EACCES || errno == EPERM)
		reason = "sysctl kernel.perf_event_paranoid is above 2";
	else if (errno == ENOENT || errno == EOPNOTSUPP || errno == ENODEV)
		reason = "this processor or virtual machine has no cycle counter";
	snprintf(cost->no_cycles, sizeof(cost->no_cycles), "perf_event_open: %.60s%s", reason[0] ? "" : strerror(errno),
		 reason);
}

/* Reads the cycles since the counter was opened, scaled up if other users shared the counter. */
static bool read_cycles(const struct bench_cost *cost, double *cycles)
{
	struct {
		uint64_t value, enabled, running;
	} counter;

	if (cost->cycles < 0 || read(cost->cycles, &counter, sizeof(counter)) != sizeof(counter))
		return false;
	*cycles = (double)counter.value;
	if (counter.running && counter.running < counter.enabled)
		*cycles *= (double)counter.enabled / (double)counter.running;
	return true;
}

/* -- joules ------------------------------------------------------------------------------------------ */

static bool read_sysfs_number(const char *folder, const char *name, uint64_t *value)
{
	char path[128];
	unsigned long long number;
	FILE *file;
	int got;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "re");
	if (!file)
		return false;
	got = fscanf(file, "%llu", &number);
	fclose(file);
	*value = number;
	return got == 1;
}

/* True for a package, "intel-rapl:0" (AMD's too); false for a part of one, "intel-rapl:0:0". */
static int is_energy_package(const struct dirent *entry)
{
	const char *colon = strchr(entry->d_name, ':');

	return !strncmp(entry->d_name, "intel-rapl:", 11) && colon == strrchr(entry->d_name, ':') &&
	       strlen(entry->d_name) < 32;
}

static void open_energy(struct bench_cost *cost, const char *sysfs)
{
	char folder[64];
	struct dirent **entries;
	bool unreadable = false;
	int count;

	snprintf(folder, sizeof(folder), "%.40s/" POWERCAP, sysfs);
	count = scandir(folder, &entries, is_energy_package, alphasort);

	for (int i = 0; i < count; i++) {
		struct bench_energy *energy = &cost->energy[cost->packages];
		uint64_t now;

		snprintf(energy->path, sizeof(energy->path), "%s/%.32s", folder, entries[i]->d_name);
		free(entries[i]);
		if (cost->packages == BENCH_PACKAGES_MAX || unreadable)
			continue;
		/* The energy of only some packages would be misleading. */
		if (read_sysfs_number(energy->path, "energy_uj", &now) &&
		    read_sysfs_number(energy->path, "max_energy_range_uj", &energy->range))
			cost->packages++;
		else
			unreadable = true;
	}
	if (count >= 0)
		free(entries);
	if (unreadable)
		cost->packages = 0;
	if (cost->packages == 0)
		snprintf(cost->no_joules, sizeof(cost->no_joules), "%s%s", folder,
			 unreadable ? ": only root can read energy_uj" : " has no package with an energy counter");
}

static double read_energy_since_begin(const struct bench_cost *cost)
{
	double joules = 0;

	for (unsigned i = 0; i < cost->packages; i++) {
		const struct bench_energy *energy = &cost->energy[i];
		uint64_t now = energy->begin;

		read_sysfs_number(energy->path, "energy_uj", &now);
		/* The counter wrapped around. */
		if (now < energy->begin)
			now += energy->range;
		joules += (double)(now - energy->begin) / 1e6;
	}
	return joules;
}

/* -- both --------------------------------------------------------------------------------------------- */

void bench_cost_open(struct bench_cost *cost, const char *sysfs)
{
	memset(cost, 0, sizeof(*cost));
	open_cycles(cost);
	open_energy(cost, sysfs);
}

void bench_cost_close(struct bench_cost *cost)
{
	if (cost->cycles >= 0)
		close(cost->cycles);
	cost->cycles = -1;
}

void bench_cost_begin(struct bench_cost *cost)
{
	read_cycles(cost, &cost->begin);
	for (unsigned i = 0; i < cost->packages; i++)
		read_sysfs_number(cost->energy[i].path, "energy_uj", &cost->energy[i].begin);
}

void bench_cost_end(struct bench_cost *cost, struct bench_spent *spent)
{
	double now;

	memset(spent, 0, sizeof(*spent));
	spent->has_cycles = read_cycles(cost, &now);
	if (spent->has_cycles)
		spent->cycles = now - cost->begin;
	spent->has_joules = cost->packages > 0;
	if (spent->has_joules)
		spent->joules = read_energy_since_begin(cost);
}
