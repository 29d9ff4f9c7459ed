/* SPDX-License-Identifier: BSD-2-Clause */
/* Answer of `peerlane check --cached`, from the metrics of an earlier check: it asks no driver and no device. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/check/check.h"

#define CACHE_MAX (4u << 20)
#define WRITER_HINT "systemctl status peerlane-check.timer peerlane-check.service"

struct cached {
	double time; /* of the check, in seconds since 1970; 0: the file has none */
	int verdict; /* -1: the file has none */
	bool has_status;
	struct pl_check_counts counts;
	char first[48]; /* first check that is FAIL, or else the first that is WARN; empty: none */
};

/* Copies the value of a label of a sample; false if the sample has no such label. */
static bool copy_label(const char *sample, const char *name, char *value, size_t size)
{
	char begin[32];
	const char *at;

	snprintf(begin, sizeof(begin), "%s=\"", name);
	at = strstr(sample, begin);
	if (!at)
		return false;
	at += strlen(begin);
	snprintf(value, size, "%.*s", (int)strcspn(at, "\""), at);
	return true;
}

static void take_status(struct cached *cached, const char *sample)
{
	char name[16], check[sizeof(cached->first)];

	if (!copy_label(sample, "status", name, sizeof(name)) || !copy_label(sample, "check", check, sizeof(check)))
		return;
	for (enum pl_check_status status = PL_CHECK_NONE; status <= PL_CHECK_FAIL; status++) {
		if (strcmp(name, check_metric_status(status)))
			continue;
		cached->counts.results[status]++;
		cached->has_status = true;
		if (status <= cached->counts.worst)
			continue;
		cached->counts.worst = status;
		if (status >= PL_CHECK_WARN)
			snprintf(cached->first, sizeof(cached->first), "%s", check);
		cli_printable(cached->first, false);
	}
}

static void take_verdict(struct cached *cached, const char *sample)
{
	char name[16];

	for (int i = PL_CHECK_READY; copy_label(sample, "verdict", name, sizeof(name)) && i <= PL_CHECK_NO_RDMA; i++)
		if (!strcmp(name, pl_check_verdict_name(i)))
			cached->verdict = i;
}

/* Takes one line of the metrics. */
static void take_sample(struct cached *cached, const char *line)
{
	static const char time_name[] = "peerlane_check_last_success_timestamp_seconds ";
	size_t length = strlen(line);
	bool present = length > 3 && !strcmp(line + length - 3, "} 1");

	if (!strncmp(line, time_name, sizeof(time_name) - 1))
		cached->time = strtod(line + sizeof(time_name) - 1, NULL);
	else if (present && !strncmp(line, "peerlane_check_status{", 22))
		take_status(cached, line);
	else if (present && !strncmp(line, "peerlane_check_verdict{", 23))
		take_verdict(cached, line);
}

static int read_cached(struct cached *cached, const struct check *check, double *age, struct pl_error *error)
{
	double limit = (double)check->max_age / CLI_NS_PER_S;
	struct timespec now;
	char *text, *rest;
	size_t length;
	int rc = check_read_file(check->cached, CACHE_MAX, &text, &length, error);

	if (rc == -ENOENT)
		snprintf(error->hint, sizeof(error->hint), "%s", WRITER_HINT);
	if (rc < 0)
		return rc;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		take_sample(cached, line);
	free(text);
	if (!(cached->time > 0) || cached->verdict < 0 || !cached->has_status)
		return cli_fail(error, -EINVAL, "CHECK-CACHE", check->cached,
				"write the file with `peerlane check --format prometheus --output FILE`",
				"the file has no result of a check");
	clock_gettime(CLOCK_REALTIME, &now);
	*age = (double)now.tv_sec + (double)now.tv_nsec / CLI_NS_PER_S - cached->time;
	/* A time in the future says nothing about the age. */
	if (*age > limit || *age < -limit)
		return cli_fail(error, -ESTALE, "CHECK-STALE", check->cached,
				WRITER_HINT, "the check is %.0f s old, and the limit is %.0f s", *age, limit);
	return 0;
}

int check_answer_cached(const struct check *check, struct pl_error *error)
{
	struct cached cached = { .verdict = -1, .counts.worst = PL_CHECK_OK };
	double age = 0;
	int rc = read_cached(&cached, check, &age, error);

	if (rc < 0)
		return rc;
	if (!check->common.quiet)
		printf("%s, %.0f s ago: %zu FAIL, %zu WARN, %zu UNKNOWN%s%s\n", pl_check_verdict_name(cached.verdict),
		       CLI_MAX(age, 0), cached.counts.results[PL_CHECK_FAIL], cached.counts.results[PL_CHECK_WARN],
		       cached.counts.results[PL_CHECK_UNKNOWN], *cached.first ? "; first " : "", cached.first);
	return check_exit_status((enum pl_check_verdict)cached.verdict, &cached.counts, check);
}
