/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/check/run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "diag/check/facts.h"
#include "diag/check/snapshot.h"

/* Time limit of a query to a library; a suspended GPU needs time to answer. */
#define QUERY_TIMEOUT (3 * CLI_NS_PER_S)

/* Names the machine.  A dump has no host name. */
static void name_host(struct check_run *run, const char *host, bool live)
{
	if (!host && live)
		cli_host_name(run->host, sizeof(run->host));
	else
		snprintf(run->host, sizeof(run->host), "%s", host ? host : "");
	cli_printable(run->host, false);
}

static void read_boot(struct check_run *run)
{
	if (pl_sysroot_text(run->root, run->boot_id, sizeof(run->boot_id), "proc/sys/kernel/random/boot_id") <= 0)
		run->boot_id[0] = '\0';
}

static void read_uptime(struct check_run *run)
{
	char text[64], *end;

	run->uptime = -1;
	if (pl_sysroot_text(run->root, text, sizeof(text), "proc/uptime") <= 0)
		return;
	run->uptime = strtod(text, &end);
	if (end == text || !(run->uptime >= 0 && run->uptime < 1e12))
		run->uptime = -1;
}

static void note_time(struct check_run *run)
{
	time_t seconds;
	struct tm date;

	run->wall = pl_wall_clock();
	seconds = (time_t)(run->wall / CLI_NS_PER_S);
	gmtime_r(&seconds, &date);
	strftime(run->time, sizeof(run->time), "%Y-%m-%dT%H:%M:%SZ", &date);
}

static void identify_run(struct check_run *run, const char *host)
{
	bool live = pl_sysroot_is_live(run->root);

	name_host(run, host, live);
	run->uptime = -1;
	if (live) {
		read_boot(run);
		read_uptime(run);
	}
}

void check_run_identify(struct check_run *run, const char *host, bool dump)
{
	*run = (struct check_run){ .uptime = -1, .root_user = -1 };
	note_time(run);
	name_host(run, host, !dump);
}

int check_run_begin(struct check_run *run, const char *sysroot, const char *host, struct pl_check_policy *policy,
		    struct pl_error *error)
{
	struct pl_check_options options = { .ask = true, .timeout = QUERY_TIMEOUT, .policy = policy };
	uint64_t begun = cli_now();
	long long user;
	int rc;

	*run = (struct check_run){ .root = NULL };
	note_time(run);
	rc = pl_archive_open_root(&run->root, sysroot, error);
	if (rc < 0)
		return rc;
	identify_run(run, host);
	memcpy(policy->host, run->host, sizeof(policy->host));
	rc = pl_check_machine_open(&run->machine, run->root, &options, error);
	if (rc == 0)
		rc = pl_check_run(&run->report, run->machine, error);
	if (rc < 0) {
		check_run_end(run);
		return rc;
	}
	run->inventory = pl_check_machine_inventory(run->machine);
	user = pl_facts_number(pl_check_machine_facts(run->machine), -1, "process.euid");
	run->root_user = user < 0 ? -1 : user == 0;
	run->duration = cli_now() - begun;
	return 0;
}

void check_run_end(struct check_run *run)
{
	pl_check_report_free(&run->report);
	pl_check_machine_close(run->machine);
	pl_sysroot_close(run->root);
}
