/* SPDX-License-Identifier: BSD-2-Clause */
/* The plugin between processes without privileges, and between those of two users. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "end_buffer.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/process.h"

#define NOBODY 65534
#define MESSAGES 4u

static const size_t sizes[MESSAGES] = { 8, 4096, MIDDLE, LENGTH };

/* A program that starts without privileges can be copied from, but one that drops them cannot, unless it says so. */
static void drop_privileges(void)
{
	if (geteuid() != 0)
		return;
	check(!setresgid(NOBODY, NOBODY, NOBODY) && !setresuid(NOBODY, NOBODY, NOBODY));
	check_number(prctl(PR_SET_DUMPABLE, 1), 0);
}

static void send_all(struct end *end)
{
	end_open(end, true);
	for (unsigned i = 0; i < MESSAGES; i++) {
		content_fill(end->data, sizes[i], i);
		driver_finish(&end->driver,
			      driver_must_send(&end->driver, end->comm, end->data, sizes[i], end->memory));
	}
}

static void receive_all(struct end *end)
{
	end_open(end, false);
	for (unsigned i = 0; i < MESSAGES; i++) {
		void *request = driver_must_receive(&end->driver, end->comm, end->data, LENGTH, end->memory);

		check_number(driver_finish(&end->driver, request), sizes[i]);
		check(content_is(end->data, sizes[i], i));
	}
	end_close(end, false);
}

/* True if the kernel lets a process reach the memory of its descendants only. */
static bool ptrace_is_restricted(void)
{
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int scope = 0;

	if (file) {
		check_number(fscanf(file, "%d", &scope), 1);
		fclose(file);
	}
	return scope >= 1;
}

/* The child sends: the sender copies, and the setting concerns copies into a parent. */
static void unprivileged_sender(struct end *end)
{
	send_all(end);
	check_path(ptrace_is_restricted() ? "denied" : "local");
	end_close(end, true);
}

static void case_ptrace_scope(void *argument)
{
	struct end end;

	(void)argument;
	use_fabric("local");
	drop_privileges();
	end_start_child(&end, unprivileged_sender);
	receive_all(&end);
	check_number(process_wait(end.other), 0);
}

/* Both processes are on one host, but neither may reach the other one's memory. */
static void other_user_sender(struct end *end)
{
	drop_privileges();
	send_all(end);
	check(driver_logged("fabric tcp") && !driver_logged("fabric local"));
	end_close(end, true);
}

static void case_two_users(void *argument)
{
	struct end end;

	(void)argument;
	if (geteuid() != 0) {
		fprintf(stderr, "only root can start a process of another user\n");
		exit(SKIPPED);
	}
	use_fabric("auto");
	end_start_child(&end, other_user_sender);
	receive_all(&end);
	check_number(process_wait(end.other), 0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "ptrace_scope", case_ptrace_scope, NULL, 30 },
		{ "two_users", case_two_users, NULL, 30 },
	};

	return cases_run("nccl_users", cases, sizeof(cases) / sizeof(cases[0]));
}
