/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cycles of this process and joules of this machine, where the kernel tells them.  Where it does not, the reason is
 * kept.
 */
#include <dirent.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/perf/endpoint.h"

#define POWERCAP "class/powercap"

/* -- cycles ------------------------------------------------------------------------------------------ */

static int open_counter(bool user_only)
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
	const char *remedy = "";

	cost->cycles = open_counter(false);
	if (cost->cycles < 0 && (errno == EACCES || errno == EPERM)) {
		cost->user_only = true;
		cost->cycles = open_counter(true);
	}
	if (cost->cycles >= 0)
		return;
	if (errno == EACCES || errno == EPERM)
		remedy = "sysctl kernel.perf_event_paranoid is above 2";
	else if (errno == ENOENT || errno == EOPNOTSUPP || errno == ENODEV)
		remedy = "this processor, or virtual machine, has no such counter";
	snprintf(cost->no_cycles, sizeof(cost->no_cycles), "perf_event_open: %.60s%s", remedy[0] ? "" : strerror(errno),
		 remedy);
}

/* Since it was opened.  Where the counter was shared, what it would have been. */
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

static bool read_number(const char *folder, const char *name, uint64_t *value)
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

/* "intel-rapl:0" is a package (AMD's as well), "intel-rapl:0:0" a part of one. */
static int is_package(const struct dirent *entry)
{
	const char *colon = strchr(entry->d_name, ':');

	return !strncmp(entry->d_name, "intel-rapl:", 11) && colon == strrchr(entry->d_name, ':') &&
	       strlen(entry->d_name) < 32;
}

static void open_energy(struct bench_cost *cost, const char *sysfs)
{
	char folder[64];
	struct dirent **entries;
	bool refused = false;
	int count;

	snprintf(folder, sizeof(folder), "%.40s/" POWERCAP, sysfs);
	count = scandir(folder, &entries, is_package, alphasort);

	for (int i = 0; i < count; i++) {
		struct bench_energy *energy = &cost->energy[cost->packages];
		uint64_t now;

		snprintf(energy->path, sizeof(energy->path), "%s/%.32s", folder, entries[i]->d_name);
		free(entries[i]);
		if (cost->packages == BENCH_PACKAGES_MAX || refused)
			continue;
		/* A part of the machine's packages would be no answer. */
		if (read_number(energy->path, "energy_uj", &now) &&
		    read_number(energy->path, "max_energy_range_uj", &energy->range))
			cost->packages++;
		else
			refused = true;
	}
	if (count >= 0)
		free(entries);
	if (refused)
		cost->packages = 0;
	if (cost->packages == 0)
		snprintf(cost->no_joules, sizeof(cost->no_joules), "%s%s", folder,
			 refused ? ": its energy_uj can be read by root only"
				 : " has no package that tells its energy");
}

static double energy_since(const struct bench_cost *cost)
{
	double joules = 0;

	for (unsigned i = 0; i < cost->packages; i++) {
		const struct bench_energy *energy = &cost->energy[i];
		uint64_t now = energy->begin;

		read_number(energy->path, "energy_uj", &now);
		/* It starts again from 0. */
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
		read_number(cost->energy[i].path, "energy_uj", &cost->energy[i].begin);
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
		spent->joules = energy_since(cost);
}
