/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs the scenarios over a fabric in several settings, each in a process of its own.
 *
 *   test_scenarios [--fabric NAME] [--host ADDRESS] [--memory KIND] [--one-sided] [--slow] [--allocated]
 *                  [--narrow] [--rails N] [--setting NAME] [--light] [--here] [--list] [PATTERN]
 *
 * --allocated makes the library allocate the shared memory.
 * --narrow makes peers access grants through memory windows, if the device has them.
 * --rails allows peers so many rails, over the same device if there are no more.
 * --memory places the buffers in GPU memory: alloc, pool or mapped (support/gpu.h); skipped without a GPU.
 * --light leaves out scenarios that move hundreds of megabytes or take seconds.
 * --here runs scenarios in this process, for a debugger or valgrind; the first failure ends it.
 * PATTERN selects scenarios by fnmatch(3), and NAME of --setting settings.
 */
#include <fnmatch.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "scenarios/scenario.h"
#include "support/gpu.h"

#define DEADLINE 10
#define DEADLINE_SLOW 90

struct matrix_row {
	struct setting setting;
	unsigned skipped; /* scenarios with one of these flags add nothing here */
};

static const struct matrix_row matrix[] = {
	{ { "thread", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 1, false, false, false, false }, 0 },
	{ { "manual", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 4, false, false, false, false }, 0 },
	{ { "thread-key", "tcp", "[::1]", PL_PROGRESS_THREAD, 4, true, false, false, false },
	  SCENARIO_HEAVY | SCENARIO_SETTING },
	{ { "thread-encrypted", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 4, true, true, false, false },
	  SCENARIO_SETTING | SCENARIO_CONTROL },
	{ { "manual-encrypted", "tcp", "[::1]", PL_PROGRESS_MANUAL, 1, true, true, false, false },
	  SCENARIO_HEAVY | SCENARIO_SETTING | SCENARIO_CONTROL },
};
#define ROWS (sizeof(matrix) / sizeof(matrix[0]))

struct run {
	const struct scenario *scenario;
	const char *memory;
	struct setting setting;
	char name[128];
	bool here;
};

struct selection {
	const char *fabric, *host, *memory, *setting;
	char **patterns; /* a scenario must match one of them; ends with NULL */
	bool one_sided, slow, light, here, list;
};

static bool has_ipv6(void)
{
	struct sockaddr_in6 name = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool good = fd >= 0 && !bind(fd, (struct sockaddr *)&name, sizeof(name));

	if (fd >= 0)
		close(fd);
	return good;
}

static void run_here(void *argument)
{
	const struct run *run = argument;
	struct scenario_environment environment;

	/* Opens the driver in the scenario's process: a CUDA driver does not work after fork(2). */
	if (run->memory)
		check(gpu_open(run->memory));
	environment_open(&environment, &run->setting);
	run->scenario->run(&environment);
	environment_close(&environment);
}

static void scenario_test(void **state)
{
	struct run *run = *state;

	if (run->here)
		run_here(run);
	else
		assert_int_equal(process_run(run->name, run->setting.slow ? DEADLINE_SLOW : DEADLINE, run_here, run),
				 0);
}

static bool named(const struct selection *selection, const char *name)
{
	char **at = selection->patterns;

	while (*at && fnmatch(*at, name, FNM_EXTMATCH))
		at++;
	return *at || !*selection->patterns;
}

static bool selected(const struct selection *selection, const struct matrix_row *row, const struct scenario *scenario)
{
	if (selection->setting && fnmatch(selection->setting, row->setting.name, FNM_EXTMATCH))
		return false;
	if (!named(selection, scenario->name))
		return false;
	/* Scenarios of the control channel are the same for every fabric, so only tcp runs them. */
	if (selection->fabric && strcmp(selection->fabric, "tcp") && (scenario->flags & SCENARIO_CONTROL))
		return false;
	if (buffers_allocated && (scenario->flags & SCENARIO_OUTLIVES))
		return false;
	if (selection->light && (scenario->flags & SCENARIO_HEAVY))
		return false;
	return !(scenario->flags & row->skipped);
}

/* Fills `runs` and returns their number. */
static size_t make_runs(const struct selection *selection, struct run *runs, size_t size)
{
	bool ipv6 = has_ipv6();
	size_t count = 0;

	for (size_t row = 0; row < ROWS; row++) {
		for (const struct scenario *const *list = scenario_lists; *list; list++) {
			for (const struct scenario *scenario = *list; scenario->name; scenario++) {
				struct run *run = &runs[count];

				if (!selected(selection, &matrix[row], scenario) || count == size)
					continue;
				*run = (struct run){ .scenario = scenario,
						     .memory = selection->memory,
						     .setting = matrix[row].setting,
						     .here = selection->here };
				if (selection->fabric)
					run->setting.fabric = selection->fabric;
				if (selection->host)
					run->setting.host = selection->host;
				run->setting.one_sided = selection->one_sided;
				run->setting.slow = selection->slow;
				if (!ipv6 && run->setting.host[0] == '[')
					continue;
				snprintf(run->name, sizeof(run->name), "%s %s%s%s %s", run->setting.fabric,
					 run->setting.name, run->memory ? "-gpu-" : "", run->memory ? run->memory : "",
					 scenario->name);
				count++;
			}
		}
	}
	return count;
}

static int parse(int argc, char **argv, struct selection *selection)
{
	static const struct option options[] = {
		{ "fabric", required_argument, NULL, 'f' },
		{ "host", required_argument, NULL, 'a' },
		{ "setting", required_argument, NULL, 's' },
		{ "one-sided", no_argument, NULL, 'o' },
		{ "slow", no_argument, NULL, 'w' },
		{ "light", no_argument, NULL, 'L' },
		{ "here", no_argument, NULL, 'h' },
		{ "list", no_argument, NULL, 'l' },
		{ "allocated", no_argument, NULL, 'm' },
		{ "memory", required_argument, NULL, 'g' },
		{ "narrow", no_argument, NULL, 'n' },
		{ "poll", no_argument, NULL, 'p' },
		{ "rails", required_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'f':
			selection->fabric = optarg;
			break;
		case 'g':
			selection->memory = optarg;
			break;
		case 'a':
			selection->host = optarg;
			break;
		case 's':
			selection->setting = optarg;
			break;
		case 'o':
			selection->one_sided = true;
			break;
		case 'w':
			selection->slow = true;
			break;
		case 'L':
			selection->light = true;
			break;
		case 'h':
			selection->here = true;
			break;
		case 'n':
			narrow_grants = true;
			break;
		case 'p':
			poll_time = 20000;
			break;
		case 'r':
			rail_limit = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'm':
			buffers_allocated = true;
			break;
		case 'l':
			selection->list = true;
			break;
		default:
			return -1;
		}
	}
	selection->patterns = argv + optind;
	return 0;
}

#define RUNS_MAX 1024

int main(int argc, char **argv)
{
	struct selection selection = { 0 };
	struct run *runs = calloc(RUNS_MAX, sizeof(*runs));
	struct CMUnitTest *tests = calloc(RUNS_MAX, sizeof(*tests));
	size_t count;
	int failed = 0;

	if (!runs || !tests || parse(argc, argv, &selection))
		return 2;
	/* A failure ends this process: flushes each line, so that the output shows the last scenario. */
	if (selection.here)
		setvbuf(stdout, NULL, _IOLBF, 0);
	count = make_runs(&selection, runs, RUNS_MAX);
	for (size_t i = 0; i < count; i++) {
		tests[i] = (struct CMUnitTest){ runs[i].name, scenario_test, NULL, NULL, &runs[i] };
		if (selection.list)
			puts(runs[i].name);
	}
	/* cmocka_run_group_tests() is a macro for arrays of constant length. */
	if (!selection.list)
		failed = _cmocka_run_group_tests("scenarios", tests, count, NULL, NULL);
	free(tests);
	free(runs);
	return failed ? 1 : 0;
}
